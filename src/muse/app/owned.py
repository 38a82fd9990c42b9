"""A session that this process owns."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import anyio
import msgspec

from muse.app.commands import known_secrets, screen
from muse.app.models import clients_of, rules
from muse.app.places import event_at, open_log, path_of, run_folder
from muse.app.roles import settings_roles
from muse.app.sandbox import sandbox_of
from muse.app.watching import Watching
from muse.app.worktrees import Worktrees
from muse.config import Config
from muse.decide.agent_tools import agent_tools
from muse.effect.protocol import Model, Tool, Workspace
from muse.errors import MuseError
from muse.event.content import Settings, ToolSpec
from muse.event.envelope import Event
from muse.event.told import Lane
from muse.log.protocol import Draft, Log
from muse.runtime.children import children
from muse.runtime.dispatch import Equipment
from muse.runtime.outputs import read_output
from muse.runtime.recalling import read_lane
from muse.runtime.seal import seal
from muse.runtime.session import Running, Session, Taken, claim
from muse.runtime.signals import LiveSignals

if TYPE_CHECKING:
    from muse.effect.sandbox import Sandbox

T = TypeVar("T")


class Owned:
    """A session that this process owns: what `exec`, `resume` and the chat drive."""

    _blobs: Log | None = None

    def __init__(
        self,
        log: Log,
        config: Config,
        settings: Settings,
        workspace: Path,
        on_event: Callable[[Event], None],
        on_signal: Callable[[str, str], None],
        *,
        fresh: bool,
        name: str = "",
        stay: bool = False,
        show_after: int | None = None,
        model: Model | None = None,
        on_fatal: Callable[[MuseError], None] | None = None,
        taken: Taken | None = None,
        first: msgspec.Struct | None = None,
    ) -> None:
        """`on_fatal` is called when the session cannot go on (fenced, full disk); if it returns, what runs is
        cancelled: who wants commands to go on ends the process there. `first` is recorded with the opening."""
        from muse.effect.runner import Runner, RunnerLeftovers
        from muse.effect.tool import builtin_tools

        model, reach = clients_of(config, settings, model)
        self._secrets = known_secrets(config)
        self._mine: set[str] = set()
        self.sandbox = sandbox_of(config, settings, workspace, path_of(log))
        self.sandbox.prepare()
        settings = msgspec.structs.replace(settings, sandbox="" if self.sandbox.why else self.sandbox.mode)
        found: dict[str, Tool] = {}
        runners: list[Runner] = []
        roles = settings_roles(workspace, settings, self._secrets).roles

        def tools(sandbox: "Sandbox") -> dict[str, Tool]:
            return builtin_tools(
                runners[0],
                read_output=self._read_output,
                read_lane=self._read_lane,
                background=lambda: self.running.background,
                children=children(lambda: self.running.state, self._reader),
                environment=os.environ | {"MUSE_SESSION": log.session},
                extra_names=(*config.shell_environment, "MUSE_SESSION"),
                secrets=self._secrets,
                sandbox=sandbox,
            )

        def specs(epoch: int) -> tuple[ToolSpec, ...]:
            runners.append(Runner(run_folder(log.session), epoch))
            found.update(tools(self.sandbox))
            return (*(tool.spec for tool in found.values()), *agent_tools({one.name: one.description for one in roles}))

        ownership = claim(
            log, settings, str(workspace), specs, name=name, fresh=fresh, secrets=self._secrets,
            sandbox=self.sandbox.says, writable=self.sandbox.writable, taken=taken, roles=roles,
            first=self._sealed(first) if first is not None else None,
        )  # fmt: skip
        self._runner, self._submitter = runners[0], log.another()
        self._watching = Watching(config, log, workspace, ownership.epoch, self._secrets, self.sandbox.writable)
        self._trees = Worktrees(config, log, workspace, ownership.epoch, self._secrets, self.sandbox, tools)
        equipment = Equipment(
            model=model, tools=found, workspace=Workspace(workspace), log=log, blobs=self._blob_log,
            settled=self._settled, on_signal=self._signal, changes=self._watching.changes,
            leftovers=RunnerLeftovers(self._runner, self._secrets.mask), trees=self._trees, reach=reach,
        )  # fmt: skip
        self._on_event, self._on_signal = on_event, on_signal
        self._log, self._live = log, LiveSignals(run_folder(log.session), log.session)
        self.running = Running(
            log, ownership, rules(), equipment, self._event, stay=stay, show_after=show_after, on_fatal=on_fatal,
            screen=self._screen,
        )  # fmt: skip

    def _event(self, event: Event) -> None:
        self._live.event(event)
        self._on_event(event)

    def _signal(self, call: str, text: str) -> None:
        self._live.signal(call, text)
        self._on_signal(call, text)

    def _settled(self, call: str, attempt: int) -> None:
        """The result is in the log: what the runner has of it may go. What cannot be taken away stays as litter."""
        with suppress(MuseError, OSError):
            self._runner.discard(call, attempt)

    def _reader(self) -> Log:
        return open_log(path_of(self._log), check=False)

    async def _read_output(self, call: str, offset: int, limit: int) -> bytes | None:
        return await anyio.to_thread.run_sync(self._read, lambda log: read_output(log, call, offset, limit))

    async def _read_lane(self, agent: str, first: int, last: int, query: str, bytes_max: int) -> Lane:
        return await anyio.to_thread.run_sync(
            self._read, lambda log: read_lane(log, agent, first, last, query, bytes_max)
        )

    def _read(self, read: Callable[[Log], T]) -> T:
        """What a worker thread reads, through a handle of its own."""
        log = open_log(path_of(self._log), check=False)
        try:
            return read(log)
        finally:
            log.close()

    def _blob_log(self) -> Log:
        if self._blobs is None:
            self._blobs = self._log.another()
        return self._blobs

    def event(self, seq: int) -> Event | None:
        """An event of the log."""
        return event_at(self._submitter, seq)

    def submit(self, body: msgspec.Struct, agent: str = "main", cause: int = 0) -> int:
        """Submit a command, through the log like anybody else and without known secrets, and return its seq."""
        seq = self._submitter.submit(self._sealed(body, agent, cause))
        self.running.poke()
        return seq

    def _sealed(self, body: msgspec.Struct, agent: str = "main", cause: int = 0) -> Draft:
        draft = seal(self._secrets.masked(body), agent, cause)
        self._mine.add(draft.id)
        return draft

    def _screen(self, event: Event) -> Literal["", "below_runner", "no_origin"]:
        return "" if event.id in self._mine else screen(event)

    async def run(self) -> Session:
        """Go on until the session closes, then let go of runner and log."""
        try:
            state = await self._run_live()
            self.sandbox.close()
            return state
        finally:
            with anyio.CancelScope(shield=True):
                await self._runner.aclose()
            self.close()

    async def _run_live(self) -> Session:
        """Run, and tell watchers meanwhile what is streamed."""
        failed: MuseError | None = None
        state: Session | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._live.serve)
            try:
                state = await self.running.run()
            except MuseError as error:
                failed = error
            tasks.cancel_scope.cancel()
        if failed is not None:
            raise failed
        assert state is not None
        return state

    def leave(self) -> None:
        """Close the log at once, cancelling nothing: for a process that ends right after. Commands go on under the
        runner, and the next owner re-attaches to them."""
        self.close()

    def close(self) -> None:
        """Close every handle; the log last, so that one file remains."""
        self._trees.close()
        self._watching.close()
        for log in (self._blobs, self._submitter):
            if log is not None:
                log.close()
        self.running.release()
