"""Pieces that event bodies are made of: blobs, tool specifications, model blocks, usage, origins.

All are frozen; their field names are part of the log format. A field that is left out of the JSON has its default,
so a new field with a default needs no new version of the event.
"""

from typing import Literal

import msgspec

from muse.event.codec import BlobRef

__all__ = [
    "BlobRef",
    "Block",
    "FileChange",
    "Git",
    "Host",
    "Instruction",
    "Limit",
    "ModelFacts",
    "ModelRef",
    "Observed",
    "Origin",
    "PermissionRules",
    "RecoveryClass",
    "Role",
    "Settings",
    "ToolSpec",
    "Usage",
]  # fmt: skip

RecoveryClass = Literal["pure", "repeatable", "reconcilable", "attachable", "keyed", "opaque", "derived"]
"""`derived`: the call touches nothing but the log, and its end is decided from the state (docs/decisions/0025)."""


class Content(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of every piece: frozen, defaults left out of the JSON."""


class Origin(Content, frozen=True):
    """Where a command came from. `ancestry` is the chain of parent pids, nearest first."""

    pid: int = 0
    terminal: str = ""
    user: str = ""
    client: str = ""
    ancestry: tuple[int, ...] = ()


class Host(Content, frozen=True):
    """The process that opened the session. `started` is the kernel's start time of the process in clock ticks."""

    name: str
    pid: int
    started: int = 0
    boot_id: str = ""
    system: str = ""
    python: str = ""
    muse: str = ""


class Git(Content, frozen=True):
    """The workspace's git state at opening: `head` a commit id or "", `changed` the number of paths not clean,
    -1 where that could not be counted."""

    root: str
    head: str = ""
    branch: str = ""
    changed: int = 0


class Instruction(Content, frozen=True):
    """One instruction file (AGENTS.md, CLAUDE.md) as the model gets it; `cut` when over the cap."""

    path: str
    text: str
    cut: bool = False


class ToolSpec(Content, frozen=True):
    """A tool as offered to models. `schema` is the exact JSON Schema text of its arguments."""

    name: str
    description: str
    schema: str
    recovery: RecoveryClass
    writes: bool = False


class PermissionRules(Content, frozen=True):
    """Rules as written (`shell(git log *)`); deny is over ask over allow."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class ModelRef(Content, frozen=True):
    """A model that can be asked: at which provider, in which dialect, under which name there."""

    provider: str
    dialect: str
    model: str

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{self.provider}/{self.model}"


class ModelFacts(Content, frozen=True):
    """What is known of the model `name` (`provider/model`, or the start of some with `*` after it): tokens that it
    takes in one request (0: not known), and prices in millionths of a US dollar for a million tokens (0: not known, or
    free)."""

    name: str
    context_tokens: int = 0
    input_microusd: int = 0
    output_microusd: int = 0
    cache_read_microusd: int = 0
    cache_write_microusd: int = 0


class Limit(Content, frozen=True):
    """A budget. `scope` says whose: of the session, of each agent, or of each agent with all below it. `what`: tokens
    of all kinds, cost in millionths of a US dollar, turns, answered model calls, or seconds in turns."""

    scope: Literal["session", "agent", "tree"]
    what: Literal["tokens", "cost_microusd", "turns", "calls", "seconds"]
    value: int


class Role(Content, frozen=True):
    """What a role file says of the agents that are spawned with it. `tools` empty: all that the parent has; `model`
    and `mode` "": as the parent; `isolation` "": the default."""

    name: str
    description: str = ""
    prompt: str = ""
    tools: tuple[str, ...] = ()
    model: str = ""
    mode: str = ""
    isolation: Literal["", "shared", "worktree"] = ""
    path: str = ""


class Settings(Content, frozen=True):
    """What the session runs with. Times in seconds, sizes in bytes; 0 means no limit, except where noted. `sandbox` is
    the mode that holds, "" where none was asked for and none could be had.

    `agents_parallel_max` agents besides `main` work at once, the rest are queued; `agents_depth_max` levels below
    `main`; `agents_total_max` in all. `fallbacks` are switched to in this order; `models` are the others that agents
    may be spawned with. A request that fills `compact_permille` of a model's context is compacted before it is sent.
    A provider that asks for a wait of `park_seconds_min` or more parks the agent until the date it gave. `addresses`
    are those of providers that were given for this session alone, `name=address`: it goes on at no other.
    """

    provider: str
    dialect: str
    model: str
    mode: str = "default"
    permissions: PermissionRules = PermissionRules()
    approval_timeout_seconds: int = 0
    output_tokens_max: int = 8192
    model_attempts_max: int = 6
    model_calls_max: int = 1000
    parallel_tools_max: int = 8
    shell_timeout_seconds: int = 120
    retry_base_ms: int = 1000
    sandbox: str = ""
    network: bool = True
    agents_parallel_max: int = 8
    agents_depth_max: int = 3
    agents_total_max: int = 1000
    limits: tuple[Limit, ...] = ()
    fallbacks: tuple[ModelRef, ...] = ()
    models: tuple[ModelRef, ...] = ()
    facts: tuple[ModelFacts, ...] = ()
    compact_permille: int = 800
    park_seconds_min: int = 60
    addresses: tuple[str, ...] = ()


class Block(Content, frozen=True):
    """One content block of a model response.

    kind `text`: `text`. kind `tool_use`: `id`, `name`, `args` (the exact JSON text the provider sent, perhaps not
    valid JSON). Any other block, and any block whose JSON holds more than these: `raw`, the exact JSON text to send
    back verbatim (with `text`, `id`, `name`, `args` filled as far as they were understood). kind `reasoning`: `text`
    as shown to people, `raw` as sent back.
    """

    kind: Literal["text", "tool_use", "reasoning", "other"]
    text: str = ""
    id: str = ""
    name: str = ""
    args: str = ""
    raw: str = ""


class Usage(Content, frozen=True):
    """Token counts of one model request as the provider reported them. `input` includes neither cache count."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_microusd: int = 0


class Observed(Content, frozen=True):
    """What was seen just before an effect, and is not derived: not compared by `replay --verify`.

    For file tools: workspace-relative `path`, SHA-256 of the content before and after (`""`: no such file), both
    contents as blobs, permission bits. `summary` is what the model reads when the call has been done, made beforehand
    so that recovery answers the same. `error` when the tool already knows that it cannot be done.

    `tree` names the snapshot of the workspace that the call begins with ("": there is none). Snapshots are a cache of
    the machine: the name says whether two are the same, and nothing to anybody else. `changes` is the plan of a tool
    that writes several files.
    """

    folder: str = ""
    path: str = ""
    before_sha256: str = ""
    after_sha256: str = ""
    before: BlobRef | None = None
    after: BlobRef | None = None
    file_mode: int = 0
    error: str = ""
    summary: str = ""
    tree: str = ""
    changes: "tuple[FileChange, ...]" = ()


class FileChange(Content, frozen=True):
    """One path that changed: contents before and after (None: did not exist), permission bits (0o120000: a symbolic
    link, whose content is where it leads), and `note` where the content was not copied and why. `exact_path` holds the
    bytes of a name that is not UTF-8. What a tool is about to do says the SHA-256 of both contents, too."""

    path: str
    before: BlobRef | None = None
    after: BlobRef | None = None
    before_mode: int = 0
    after_mode: int = 0
    note: str = ""
    exact_path: BlobRef | None = None
    before_sha256: str = ""
    after_sha256: str = ""
