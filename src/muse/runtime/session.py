"""A session under this process's ownership: open it, run it until it closes, let it go.

The public handle. It joins a log, the rules and the host's equipment; the loop does the work.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from muse.decide.context import RULES_VERSION, Rules
from muse.effect.protocol import Background
from muse.errors import MuseError, UsageError
from muse.event.content import Role, Settings, ToolSpec
from muse.event.envelope import Event, decode
from muse.event.kinds import COMMANDS, CommandVersion, OwnershipTaken, SessionOpened
from muse.event.text import clean
from muse.failpoint import hit
from muse.fold.state import Agent, Session
from muse.log.protocol import Claim, Draft, Log, Ownership
from muse.runtime import host
from muse.runtime.checkpoint import fold
from muse.runtime.dispatch import Dispatch, Equipment
from muse.runtime.loop import Loop
from muse.runtime.screening import Screen
from muse.runtime.seal import seal

if TYPE_CHECKING:
    from muse.effect.tool.masking import KnownSecrets

__all__ = ["FORMAT_VERSION", "Agent", "Running", "Session", "Taken", "claim", "fold"]

FORMAT_VERSION = 1


class Taken(msgspec.Struct, frozen=True):
    """That the session is taken from a process that ran it: which, and how it ended. `forced`: it may still run, and
    what it holds is left to it."""

    previous_pid: int
    forced: bool
    evidence: str


def claim(
    log: Log,
    settings: Settings,
    workspace: str,
    specs: Callable[[int], tuple[ToolSpec, ...]],
    *,
    name: str = "",
    fresh: bool = False,
    secrets: "KnownSecrets | None" = None,
    sandbox: str = "",
    writable: tuple[str, ...] = (),
    taken: Taken | None = None,
    roles: tuple[Role, ...] = (),
    first: Draft | None = None,
) -> Ownership:
    """Take ownership: the lock, the epoch and the `session.opened` event. `specs` is asked once with the new epoch
    and returns the tools on offer. `secrets` become placeholders in what is gathered. `sandbox` says what commands run
    in, `writable` where they may write to: no program is taken from there. `roles` are what agents can be spawned as.
    With `taken` the same transaction records from whom the session was taken; `first`, what its person says with the
    opening: no kill comes between the two. Raises `Busy` while another process owns
    the session, `UsageError` for a folder whose name is no text."""
    if clean(workspace).exact is not None:
        raise UsageError(
            f"the folder's name is not UTF-8: {clean(workspace).text}",
            hint="the log names the folder as text: rename it, or work in another one",
        )
    git = host.git_state(Path(workspace), writable)
    texts = host.instructions(Path(workspace), git.root if git else None, secrets) if fresh else ()
    if secrets is not None:
        name, git = secrets.mask(name), secrets.masked(git) if git else None

    def opened(found: Claim) -> Draft:
        body = SessionOpened(
            format=FORMAT_VERSION,
            rules=RULES_VERSION,
            workspace=workspace,
            inode=host.inode(Path(workspace)),
            host=host.this_host(),
            settings=settings,
            session=log.session,
            crashed=found.crashed,
            name=name,
            date=host.today(),
            git=git,
            instructions=texts,
            tools=specs(found.epoch),
            commands=tuple(CommandVersion(type=kind, v=v) for kind, v in sorted(COMMANDS.items())),
            sandbox=sandbox,
            roles=roles,
        )
        return seal(body, "main", 0)

    def record(found: Claim) -> list[Draft]:
        said = [first] if first is not None else []
        if taken is None:
            return said
        fields = msgspec.structs.asdict(taken)
        return [seal(OwnershipTaken(epoch=found.epoch, **fields), "main", found.head.seq + 1), *said]

    hit("before_claim")
    ownership = log.claim(opened, record, seize=taken is not None and taken.forced)
    hit("after_claim")
    return ownership


class Running:
    """One owned session. `run` returns its state when it has closed; `stop` makes it return earlier."""

    def __init__(
        self,
        log: Log,
        ownership: Ownership,
        rules: Rules,
        equipment: Equipment,
        on_event: Callable[[Event], None],
        *,
        stay: bool = False,
        show_after: int | None = None,
        on_fatal: Callable[[MuseError], None] | None = None,
        screen: Screen | None = None,
    ) -> None:
        """`on_event` gets every event after `show_after` (default: from this owner's `session.opened` on), in order
        and once each, when it is durable. `on_fatal`, `screen`: see `Loop`."""
        state = fold(log)
        self._on_event = on_event
        self._show_after = state.opened - 1 if show_after is None else show_after
        self._log = log
        self._ownership = ownership
        self._loop = Loop(
            log, ownership, state, rules, Dispatch(equipment), on_event, stay=stay, on_fatal=on_fatal, screen=screen
        )

    @property
    def state(self) -> Session:
        """The state now. Read it, do not keep it: the loop replaces it."""
        return self._loop.state

    @property
    def background(self) -> Background:
        """What calls left running, while `run` runs."""
        return self._loop.dispatch.background

    async def run(self) -> Session:
        """Go on until the session closes. Raises `Fenced`, `StoreUnavailable` or `Damaged`."""
        for stored in self._log.read(after=self._show_after, before=self.state.seq + 1):
            self._on_event(decode(stored.header, stored.body, stored.hidden))
        try:
            return await self._loop.run()
        except BaseExceptionGroup as group:
            raise _single(group) from group

    def stop(self) -> None:
        """Return from `run` soon, starting nothing more."""
        self._loop.stop()

    def poke(self) -> None:
        """A command was just submitted by this process: look at once."""
        self._loop.poke()

    def release(self) -> None:
        """Give up ownership and close the log, so that one file remains."""
        hit("before_close")
        self._log.close()  # as the owner still, so that it sweeps blobs and truncates the write-ahead log
        with suppress(OSError):
            self._ownership.release()
        hit("after_close")


def _single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that a task group wrapped."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
