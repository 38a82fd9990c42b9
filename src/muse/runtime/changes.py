"""What calls and others do to the files of the workspace, as facts for the log.

There is one line of snapshots for each folder that agents work in: the session's workspace, and the working tree of
each agent that has its own. Each look is compared with the one before, once, and what differs is recorded
with the calls that were open meanwhile; so two commands at once share what cannot be told apart, and nothing is
recorded twice. Calls that ask for a look at the same time share it. What a file tool says of its own change is exact
and stands for itself: the same change found by a look is left out. A look that fails is said (`files.unknown`) and
begins the line anew: an older tree never stands in for it. This module joins snapshots, blobs and dispatch; it must
not know git.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec

from muse.effect.snapshot import Contents, Difference, SnapshotError, Taken
from muse.event.content import FileChange, Observed
from muse.event.kinds import FilesChanged, FilesUnknown
from muse.event.text import clean
from muse.fold import agents
from muse.fold.state import Session
from muse.log.protocol import Log
from muse.runtime.recording import CHANGES_AN_EVENT_MAX, Exact, Found, Recorder, path_text

IGNORED_NAMED_MAX: Final = 100
"""Ignored files and folders that are named of one look."""

TOLD_MAX: Final = 50
"""Files that a model is told of after a crash."""

IGNORED: Final = "ignored by git: not copied"

NOTHING_CHANGED: Final = "No file of the workspace changed since it was started (what git ignores was not compared)."


class Look(Protocol):
    """Snapshots of the workspace: see `muse.effect.snapshot.Snapshots`, which is one. Calls block."""

    def take(self) -> Taken:
        """The workspace as it is now. Raises SnapshotError."""
        ...

    def compare(self, before: str, after: str, use: Callable[[bytes, Iterator[Difference], Contents], None]) -> None:
        """What differs. Raises SnapshotError."""
        ...


class Outcomes(Protocol):
    """Where facts go: the loop."""

    state: Session

    def post_bodies(self, agent: str, cause: int, *bodies: msgspec.Struct) -> None:
        """Hand in facts that belong together."""
        ...


class Changes:
    """The line of snapshots of one folder. `begin` before anything else.

    `exclusive`: nobody else works in that folder, so that what changes while one call is open was done by it.
    """

    def __init__(
        self,
        look: Look,
        log: Callable[[], Log],
        is_withheld: Callable[[bytes], bool],
        *,
        exclusive: bool = False,
    ) -> None:
        """`log` gives the handle that contents are put through, in a worker thread; `is_withheld` says of a content
        that it must not be recorded."""
        self._look = look
        self._log = log
        self._exclusive = exclusive
        self._recorder = Recorder(is_withheld)
        self._open: dict[str, None] = {}
        self._pending: dict[str, None] = {}
        self._after_crash: set[str] = set()
        self._unknown: set[str] = set()
        self._exact: dict[str, list[Exact]] = {}
        self._lock = anyio.Lock()
        self._begun = self._ended = 0

    def begin(self, outcomes: Outcomes, home: str = "main") -> None:
        """Go on with the line where the log left it: the session's, or that of the working tree of agent `home`."""
        self._to, self._home = outcomes, home
        state = outcomes.state
        self.tree = state.tree if home == "main" else state.agents[home].tree
        """The snapshot that all facts so far lead up to; "" when it is not known what the files are."""

    async def before(self, agent: str, cause: int, call: str) -> None:
        """Look ahead of an intent: what others changed until now is recorded, and `tree` is what this call begins
        with."""
        self._pending[call] = None
        self._exact.pop(call, None)
        self._open.pop(call, None)
        self._unknown.discard(call)
        await self._fresh(agent, cause)

    def started(self, call: str, observed: Observed, *, after_crash: bool = False) -> None:
        """The call runs from now on. `after_crash`: under an earlier owner it did already."""
        self._pending.pop(call, None)
        self._open[call] = None
        if after_crash:
            self._after_crash.add(call)
        if told := [Exact(call, seen) for seen in _told_by(observed)]:
            self._exact[call] = told

    async def after(self, agent: str, cause: int, call: str, own: Sequence[FileChange]) -> list[FilesChanged]:
        """Look after the call's end, ahead of its result. `own` is what it says of itself. Returns what belongs after
        that in the log."""
        if call not in self._open:
            return []
        await self._fresh(agent, cause)
        calls, external = self._who()
        late = self._after_crash.intersection(calls)
        self._open.pop(call, None)
        self._unknown.discard(call)
        self._after_crash.discard(call)
        exact = self._exact.pop(call, [])
        told = {change.path for change in own}
        rest = [change for one in exact for change in one.held if change.path not in told]
        rest += [change for one in exact for change in one.later]
        if not rest:
            return []
        return [
            FilesChanged(changes=tuple(rest), calls=calls, external=external, after_crash=bool(late), tree=self.tree)
        ]

    def forget(self, call: str) -> None:
        """The call turned out not to have begun."""
        self._open.pop(call, None)
        self._exact.pop(call, None)
        self._after_crash.discard(call)

    async def told(self, tree: str) -> str:
        """For a model whose call ended in doubt: which files changed since `tree`."""
        if not tree or not self.tree:
            return "Which files it changed is not known: look at them."
        if tree == self.tree:
            return NOTHING_CHANGED
        try:
            names, count = await anyio.to_thread.run_sync(self._names, tree, self.tree)
        except SnapshotError as error:
            return f"Which files it changed is not known ({error}): look at them."
        if not names:
            return NOTHING_CHANGED
        more = f" and {count - len(names)} more" if count > len(names) else ""
        return f"Files of the workspace that changed since it was started: {', '.join(names)}{more}."

    # -- one look ----------------------------------------------------------------------------------------------------

    async def _fresh(self, agent: str, cause: int) -> None:
        """Return after a look that began after this was called, be it one's own or that of others who wait."""
        wanted = self._begun + 1
        async with self._lock:
            if self._ended >= wanted:
                return
            self._begun += 1
            try:
                await self._take(agent, cause)
            finally:
                self._ended = self._begun

    async def _take(self, agent: str, cause: int) -> None:
        before, self.tree = self.tree, ""
        try:
            taken = await anyio.to_thread.run_sync(self._look.take)
        except SnapshotError as error:
            run = self._to.state.run
            self._pending = {call: None for call in self._pending if run(call) is not None}
            calls = tuple(sorted({*self._who()[0], *self._pending}))
            if calls and self._unknown.issuperset(calls):
                return  # it is said of them already
            self._unknown.update(calls)
            why = f"{error}; {error.hint}" if error.hint else str(error)
            self._to.post_bodies(agent, cause, FilesUnknown(calls=calls, why=clean(why).text))
            return
        ignored = _named(taken.ignored)
        if before and before != taken.id:
            await self._record(agent, cause, before, taken, ignored)
        elif ignored:
            self._post(agent, cause, taken, ignored, taken.id)
        self.tree = taken.id

    async def _record(self, agent: str, cause: int, before: str, taken: Taken, ignored: list[FileChange]) -> None:
        def post(changes: list[FileChange]) -> None:
            anyio.from_thread.run_sync(self._post, agent, cause, taken, changes, "")

        exact = {one.path: one for told in self._exact.values() for one in told}
        found = Found(exact=exact, full=post)
        try:
            await anyio.to_thread.run_sync(self._compare, before, taken.id, found)
        except SnapshotError as error:
            calls, _ = self._who()
            self._to.post_bodies(agent, cause, FilesUnknown(calls=calls, why=clean(str(error)).text))
        rest = found.changes + ignored
        for start in range(0, len(rest), CHANGES_AN_EVENT_MAX):
            part = rest[start : start + CHANGES_AN_EVENT_MAX]
            is_last = start + CHANGES_AN_EVENT_MAX >= len(rest)
            self._post(agent, cause, taken, part, taken.id if is_last else "")

    def _compare(self, before: str, after: str, found: Found) -> None:
        log = self._log()
        self._recorder.begin()

        def use(prefix: bytes, differences: Iterator[Difference], contents: Contents) -> None:
            self._recorder.record(prefix, differences, contents, log, found)

        self._look.compare(before, after, use)

    def _names(self, before: str, after: str) -> tuple[list[str], int]:
        names: list[str] = []
        count = 0

        def use(prefix: bytes, differences: Iterator[Difference], contents: Contents) -> None:
            nonlocal count
            for one in differences:
                count += 1
                if len(names) < TOLD_MAX:
                    what = "new" if not one.before_mode else "deleted" if not one.after_mode else "changed"
                    names.append(f"{path_text(prefix + one.path)} ({what})")

        self._look.compare(before, after, use)
        return names, count

    def _post(self, agent: str, cause: int, taken: Taken, changes: list[FileChange], tree: str) -> None:
        calls, external = self._who()
        late = bool(self._after_crash.intersection(calls))
        body = FilesChanged(
            changes=tuple(changes), calls=calls, external=external or taken.shared, after_crash=late, tree=tree
        )
        self._to.post_bodies(agent, cause, body)

    def _who(self) -> tuple[tuple[str, ...], bool]:
        """The calls that may have changed something until now (those which left processes running among them), and
        whether it may have been somebody else: in a folder that others can write to that cannot be excluded."""
        state = self._to.state
        left = {process.call for process in state.processes.values()}
        left = {call for call in left if agents.home(state, call.partition("/")[0]) == self._home}
        calls = tuple(sorted({*self._open, *left}))
        return calls, not calls or not self._exclusive


def _told_by(observed: Observed) -> list[Observed]:
    """What a call says beforehand that it does to files, one by one."""
    if observed.path:
        return [observed] if observed.after_sha256 else []
    return [
        Observed(
            path=change.path, before_sha256=change.before_sha256, after_sha256=change.after_sha256,
            before=change.before, after=change.after, file_mode=change.after_mode,
        )
        for change in observed.changes
    ]  # fmt: skip


def _named(paths: tuple[bytes, ...]) -> list[FileChange]:
    """Ignored files that changed, by name."""
    named = [FileChange(path=path_text(path), note=IGNORED) for path in paths[:IGNORED_NAMED_MAX]]
    if len(paths) > IGNORED_NAMED_MAX:
        more = f"{IGNORED}; {len(paths) - IGNORED_NAMED_MAX} more ignored files changed"
        named[-1] = msgspec.structs.replace(named[-1], note=more)
    return named
