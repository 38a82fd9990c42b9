"""What other processes say to a session, and who may."""

import hashlib
import os
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from muse.app.places import event_at, open_log
from muse.config import BUILT_IN, Config, load
from muse.errors import ConfigError, Conflict, MuseError, UsageError
from muse.event.content import Origin
from muse.event.envelope import Event
from muse.event.kinds import (
    AgentSteered,
    AgentWanted,
    ApprovalDecided,
    NoteAdded,
    PolicyChanged,
    QuestionAnswered,
    UserPrompted,
)  # fmt: skip
from muse.log.protocol import Log
from muse.runtime import host
from muse.runtime.screening import fold_screened
from muse.runtime.seal import seal
from muse.runtime.session import Session

if TYPE_CHECKING:
    from muse.effect.tool.masking import KnownSecrets

SUPERVISOR = b"/effect/runner/supervisor.py"
"""What the command line of a runner, and of each keeper below it, holds."""
SCREENED = (ApprovalDecided, AgentSteered, AgentWanted, UserPrompted, QuestionAnswered, PolicyChanged)
"""Commands that make an agent do something, or let it."""
TRIED_MAX = 200
"""Characters that the log keeps of a command that an agent's process tried and was refused."""


def origin(client: str) -> Origin:
    """Where a command of this process comes from. Raises UsageError below a runner: a command that an agent started
    may not speak for a person."""
    found = host.this_origin(client)
    if _is_below_runner(found):
        raise UsageError(
            "this process was started by an agent, and an agent may not approve, steer, cancel, redact or delete",
            hint="do it from a terminal of your own",
        )
    return found


def refuse_agents(log: Log, client: str, tried: str) -> None:
    """As `origin`, and the log keeps a note of what was tried, with where it came from. A note that cannot be written
    changes nothing about the refusal."""
    found = host.this_origin(client)
    if not _is_below_runner(found):
        return
    said = tried if len(tried) <= TRIED_MAX else f"{tried[:TRIED_MAX]} …"
    with suppress(MuseError):
        submit(log, NoteAdded(text=f"refused: a command run by the agent tried: {said}", origin=found), "main")
    origin(client)


def refuse_agents_at(path: Path, client: str, tried: str) -> None:
    """As `refuse_agents`, for a log that is not open; one that cannot be opened keeps no note."""
    if not _is_below_runner(host.this_origin(client)):
        return
    with suppress(MuseError), closing(open_log(path, read_only=False, check=False)) as log:
        refuse_agents(log, client, tried)
    origin(client)


def screen(event: Event) -> Literal["", "below_runner", "no_origin"]:
    """Why the owner does not follow a command that came in, "" if it does: an approval, words or a policy from a
    process below a runner, or from one that does not say where it comes from.

    An origin is what its writer says of itself. It is compared with what the kernel says, as long as that process
    lives; who lies about it, and has ended, is not found out.
    """
    body = event.body
    if not isinstance(body, SCREENED) or (isinstance(body, ApprovalDecided) and body.decision != "allow"):
        return ""
    if body.origin.pid <= 0:
        return "no_origin"
    alive = Origin(pid=body.origin.pid, ancestry=tuple(host.ancestry(body.origin.pid)))
    return "below_runner" if _is_below_runner(body.origin) or _is_below_runner(alive) else ""


def state_to_go_on(log: Log) -> Session:
    """The state after the last event, but for commands that came in since and that the next owner will not follow."""
    return fold_screened(log, screen)


def _is_below_runner(found: Origin) -> bool:
    for pid in found.ancestry:
        with suppress(OSError):
            if SUPERVISOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
    return False


def known_secrets(config: Config | None = None) -> "KnownSecrets":
    """What may stand in no log and go to no model: the values of all variables that are named like secrets or hold a
    provider's key, whatever their name. Without `config` the settings of the current folder name the providers."""
    from muse.effect.tool.masking import KnownSecrets

    if config is None:
        try:
            config = load(Path.cwd())
        except (ConfigError, OSError):  # words are said with settings that are broken, too
            config = Config()
    names = {provider.api_key_env for provider in (*BUILT_IN.values(), *config.providers.values())}
    return KnownSecrets.of_environment(os.environ, names)


def holds_secret(text: str) -> bool:
    """Whether a known secret stands in `text`."""
    return known_secrets().is_in(text.encode("utf-8", "surrogateescape"))


class OwnerSeen(msgspec.Struct, frozen=True):
    """Who runs a session, as far as it can be seen from here. `pid` 0: nobody, or a process that cannot be seen (in
    another container, say); `is_gone`: nobody for certain."""

    pid: int
    is_gone: bool


def owner_of(path: Path) -> OwnerSeen:
    """Who runs the session in this file."""
    from muse.log import lock

    pid = owner_pid(path)
    named = lock.read_owner(path.with_suffix(".lock"))
    here = named is None or named.host in ("", lock.this_process().host)
    return OwnerSeen(pid=pid, is_gone=pid == 0 and here)


def owner_pid(path: Path) -> int:
    """The pid of the living process that owns this session, 0 if there is none.

    A lock is looked at by taking it for a moment, so that is done only where a living process says to hold it.
    """
    from muse.log import lock

    place = path.with_suffix(".lock")
    owner = lock.read_owner(place)
    if owner is None or (owner.boot_id and owner.boot_id != lock.boot_id()):
        return 0
    if owner.started and owner.started != lock.start_time(owner.pid):
        return 0
    try:
        return owner.pid if lock.is_held(place) else 0
    except OSError:
        return 0


def submit(log: Log, body: msgspec.Struct, agent: str, *, cause: int = 0, client_id: str = "") -> int:
    """Submit a command to a session, whoever runs it, and return its seq once it is durable. Known secrets in its words
    become placeholders.

    With `client_id` (any text) the same command from any process is one event: its seq is returned again. Raises
    UsageError when that id stands for something else, or for a session that was imported: nobody will ever follow it.
    """
    refuse_imported(log, body)
    body = known_secrets().masked(body)
    event_id = _event_id(client_id) if client_id else ""
    draft = seal(body, agent, cause, event_id=event_id)
    if client_id and (seq := _said_before(log, draft.id, body, agent)):
        return seq
    try:
        return log.submit(draft)
    except Conflict:
        if seq := _said_before(log, draft.id, body, agent):
            return seq
        raise


def refuse_imported(log: Log, body: msgspec.Struct) -> None:
    """Raises UsageError for words to a session that was imported; a note may be added."""
    first = None if isinstance(body, NoteAdded) else event_at(log, 1)
    if first is not None and first.type == "log.imported":
        raise UsageError(
            f"session {log.session} was imported: it is frozen, and nothing goes on in it",
            hint="read it: muse replay, log, show, search, export",
        )


def command_with(log: Log, client_id: str) -> Event | None:
    """The command that was submitted with this id of a client's, or None."""
    event_id = _event_id(client_id)
    seq = log.find([event_id]).get(event_id, 0)
    return event_at(log, seq) if seq else None


def _event_id(client_id: str) -> str:
    return hashlib.sha256(client_id.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _said_before(log: Log, event_id: str, body: msgspec.Struct, agent: str) -> int:
    """The seq of the command with this id, 0 if there is none. Who said it does not matter; what, does."""
    seq = log.find([event_id]).get(event_id, 0)
    event = event_at(log, seq) if seq else None
    if event is None:
        return 0
    if type(event.body) is not type(body) or event.agent != agent or _plain(event.body) != _plain(body):
        raise UsageError(f"this id was used for another command (#{seq})", hint="use a new id for a new command")
    return seq


def _plain(body: msgspec.Struct) -> msgspec.Struct:
    return msgspec.structs.replace(body, origin=Origin())
