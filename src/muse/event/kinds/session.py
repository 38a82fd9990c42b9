"""Bodies of the events about the session itself: opening, closing, limits, timers, context and the log."""

from typing import Literal

from muse.event.content import BlobRef, Content, Git, Host, Instruction, Origin, Role, Settings, ToolSpec

Outcome = Literal["done", "failed", "cancelled", "provider", "unanswered", "budget", "imported"]


class CommandVersion(Content, frozen=True):
    """A command type that the owner understands, with its newest version."""

    type: str
    v: int


class SessionOpened(Content, frozen=True):
    """An owner has opened the session: the first event of each epoch. `crashed` if the last owner did not close.

    Everything from outside that later decisions may depend on stands here: settings, instruction files with their
    text, the tools on offer, the local date, the workspace and its inode number (it is known by that when renamed).
    """

    format: int
    rules: int
    workspace: str
    host: Host
    settings: Settings
    session: str = ""
    crashed: bool = False
    name: str = ""
    date: str = ""
    git: Git | None = None
    instructions: tuple[Instruction, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    commands: tuple[CommandVersion, ...] = ()
    sandbox: str = ""
    inode: int = 0
    roles: tuple[Role, ...] = ()


class SessionClosed(Content, frozen=True):
    """Nothing is running or due, and `main` waits for a person. Holds only while it is the last event. `imported`: the
    log was made from another agent's file, which ends here; how that session ended is not said."""

    outcome: Outcome
    reason: str = ""


class NoteAdded(Content, frozen=True):
    """A person's remark; changes nothing."""

    text: str
    origin: Origin = Origin()


class CommandRefused(Content, frozen=True):
    """The owner does not follow the command at seq `command`: it came from a process that may not give it, or does
    not say from where it came. `impossible`: what it wants cannot be, and `text` says why; then this is a decision."""

    command: int
    why: Literal["below_runner", "no_origin", "impossible"]
    text: str = ""


class BudgetReached(Content, frozen=True):
    """A limit stopped the agent in whose lane it stands: it sends no further request. `limit` is its name, `value` what
    was reached; `scope` says whose budget it is: of this agent, of the session, or of the agent `of` with all below it,
    among which this one is. Each agent that the same budget stops has an event of its own."""

    limit: str
    value: int
    scope: Literal["agent", "session", "tree"] = "agent"
    of: str = ""


class BudgetRaised(Content, frozen=True):
    """A person raised the limit of model calls of an agent's turn to `value`. Budgets are raised at an opening."""

    limit: str
    value: int
    origin: Origin = Origin()
    scope: Literal["agent", "session", "tree"] = "agent"


class TimerSet(Content, frozen=True):
    """A duration starts now on the owner's monotonic clock; it starts again in full when a new owner opens.
    `until` (RFC 3339) instead, where the date was given by a provider."""

    key: str
    duration_ms: int
    until: str = ""


class TimerFired(Content, frozen=True):
    """The duration is over."""

    key: str


class ContextCompacted(Content, frozen=True):
    """From the next request on, items from events `first` to `last` are replaced by `text`. Nothing leaves the log.

    `method` `results`: only the bulky tool results of the range, those of `calls`, each by a line of its own that says
    how to read it (`text` is that line's pattern). `summary`: the whole range, by the summary that the model call
    `call` wrote ("": none did, and `text` lists what there was), but for the words of people; the `kept` newest items
    stay as they are. `bytes_before` and `bytes_after` count the agent's transcript."""

    first: int
    last: int
    text: str
    method: str
    calls: tuple[str, ...] = ()
    call: str = ""
    kept: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


class Counted(Content, frozen=True):
    """How many lines of a source were of one kind, in the source's own words."""

    what: str
    count: int


class Aside(Content, frozen=True):
    """Events that do not belong to the conversation as it went on: `left` are those of a branch that was left when the
    person went back, `repeated` those that a fork copied from the session it began with (their tokens are not counted
    here)."""

    first: int
    last: int
    what: Literal["left", "repeated"]


class LogImported(Content, frozen=True):
    """The log was made from another agent's file. It is frozen: nothing is decided from it.

    `source` is the file's name, `events` its lines, `sha256` its digest, `raw` its bytes; `program` wrote it, and named
    the session `source_session`, begun as a copy of `source_parent`. `missing` is what it did not record. `kept` counts
    the lines that stand here as `source.kept`; `unknown` what is of a kind that this version does not know, of these
    lines and of blocks of others; `unreadable` what is no JSON object. `asides` are seqs of this log. One stands before
    the events of each source file, on the agent's lane.
    """

    source: str
    format_name: str
    events: int
    missing: tuple[str, ...] = ()
    raw: BlobRef | None = None
    sha256: str = ""
    program: str = ""
    source_session: str = ""
    source_parent: str = ""
    workspace: str = ""
    name: str = ""
    model: str = ""
    branch: str = ""
    kept: tuple[Counted, ...] = ()
    unknown: tuple[Counted, ...] = ()
    unreadable: int = 0
    asides: tuple[Aside, ...] = ()


class SourceKept(Content, frozen=True):
    """A line of an imported file that is no event of ours: `raw` is the line as it was, `what` its kind in the source's
    words, `line` its number, from 1. `why`: it has no counterpart here, its kind is unknown, it is no JSON object, it
    says again what an earlier line said, or it does not fit where it stands."""

    what: str
    line: int
    raw: str | BlobRef
    why: Literal["no_counterpart", "unknown", "unreadable", "repeated", "misplaced"] = "no_counterpart"


class LogRedacted(Content, frozen=True):
    """Content of these events was taken out."""

    seqs: tuple[int, ...]
    reason: str = ""
    origin: Origin = Origin()


class LostBlob(Content, frozen=True):
    """A blob that could not be saved; `rest` holds those of its chunks that could, one after the other."""

    root: str
    length: int
    rest: BlobRef | None = None


class LogRecovered(Content, frozen=True):
    """This log was saved from a damaged one, `source`, under the same numbers (docs/format.md §6.1).

    One stands in the place of each lost event: `first_lost` to `last_lost` is the whole gap, with the source's chain
    values (hex) at the event before it and at the one after it ("" where none follows). `header`, `leaves` and `root`
    are those of the event in whose place it stands, where only its body is lost; `remains` is what was left of its
    row. The last one of a recovery is a summary: it lost nothing itself (0 and 0), or, with `cut`, it stands for all
    that came after. It has the source's `head`, with its chain value where that is known, and the blobs that are lost.
    """

    first_lost: int
    last_lost: int
    hash_before: str
    hash_after: str
    source: str = ""
    header: str = ""
    leaves: int = 0
    root: str = ""
    remains: BlobRef | None = None
    cut: bool = False
    head: int = 0
    head_hash: str = ""
    lost: int = 0
    blobs: tuple[LostBlob, ...] = ()


class SessionForked(Content, frozen=True):
    """This session goes on from event `at` of `parent`."""

    parent: str
    at: int
    origin: Origin = Origin()


class SessionRewound(Content, frozen=True):
    """The conversation goes on from event `to`; what came after stays in the log."""

    to: int
    origin: Origin = Origin()


class HeadSigned(Content, frozen=True):
    """The chain value of event `seq` was signed."""

    seq: int
    hash: str
    signer: str
    signature: str


class OwnershipTaken(Content, frozen=True):
    """The session was taken from an owner that had not let go."""

    epoch: int
    previous_pid: int
    forced: bool = False
    evidence: str = ""
