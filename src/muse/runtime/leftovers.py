"""Keeps the log true about processes that calls left running: named, adopted by each new owner, reaped.

At the opening each one that the log names is looked for; while the session runs, ends are noticed, and processes that
were started later are named. What a person wants ended is ended. This module must not know how processes are found.
"""

from collections.abc import Callable
from typing import Protocol

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from muse.effect.protocol import Leftovers, LeftProcess, Stopped
from muse.event.kinds import ProcessAdopted, ProcessReaped, ProcessStarted
from muse.fold.state import Process, Session, process_key

LOOK_SECONDS = 0.5
"""How often it is looked whether a process that was left running still runs."""
SCAN_EVERY = 8
"""Every so many looks, processes that nobody named are searched for."""


class Outcomes(Protocol):
    """Where facts go: the loop."""

    state: Session

    def post_bodies(self, agent: str, cause: int, *bodies: msgspec.Struct) -> None:
        """Hand in facts that belong together."""
        ...


class LeftoverWatch:
    """The processes that the calls of one session left running."""

    def __init__(self, leftovers: Leftovers, outcomes: Outcomes) -> None:
        self._leftovers, self._to = leftovers, outcomes
        self._named: set[str] = set()
        self._gone: set[str] = set()
        self._ending: dict[str, anyio.Event] = {}
        self._some = anyio.Event()

    def begin(self, start_soon: Callable[..., None]) -> None:
        """Take over from an earlier owner: for each process that the log names, whether it was found, and what is found
        that it does not name. All this is handed in before anything else happens. `start_soon` runs what takes longer.
        """
        state = self._to.state
        for process in state.processes.values():
            if process.epoch < state.epoch and self._leftovers.lives(_left(process)):
                adopted = ProcessAdopted(call=process.call, pid=process.pid, started=process.started)
                self._to.post_bodies(process.agent, process.seq, adopted)
        self.look()
        self._name(self._leftovers.found(), set())
        self._leftovers.tidy(self._is_over)
        start_soon(self._watch)
        for call in {process.call for process in state.processes.values() if process.ending}:
            start_soon(self.end, call)

    def started(self) -> None:
        """The log names a new one: look after it."""
        self._some.set()

    def reaped(self, call: str) -> None:
        """The log says that one is gone."""
        if self._is_over(call):
            self._leftovers.forget(call)

    async def end(self, call: str) -> None:
        """End what a call left running, once at a time, and say which of it is gone."""
        if call in self._ending:
            await self._ending[call].wait()
            return
        self._ending[call] = anyio.Event()
        try:
            await self._scan()
            named = [_left(process) for process in self._to.state.processes.values() if process.call == call]
            await self._leftovers.end(call, named)
            self.look()
        finally:
            self._ending.pop(call).set()

    async def running(self) -> dict[str, tuple[LeftProcess, ...]]:
        """As `Background` says."""
        found = await anyio.to_thread.run_sync(self._leftovers.found)
        named = [(process.call, _left(process)) for process in self._to.state.processes.values()]
        open_now = self._open()
        by_call: dict[str, dict[str, LeftProcess]] = {}
        for call, one in (*found, *named):
            if call not in open_now and self._leftovers.lives(one):
                by_call.setdefault(call, {})[process_key(one.pid, one.started)] = one
        return {call: tuple(ones.values()) for call, ones in by_call.items()}

    async def stop(self, call: str) -> Stopped:
        """As `Background` says."""
        if call in self._open():
            return Stopped()  # what it runs is its own, and is ended by cancelling it
        living = (await self.running()).get(call, ())
        named = [_left(process) for process in self._to.state.processes.values() if process.call == call]
        gone = [one for one in named if not self._leftovers.lives(one)]
        told = [self._with_how(call, one) for one in gone]
        await self.end(call)
        left = (await self.running()).get(call, ())
        ended = [self._with_how(call, one) for one in living if not self._leftovers.lives(one)]
        return Stopped(ended=tuple(ended), gone=tuple(told), left=left)

    def _with_how(self, call: str, one: LeftProcess) -> LeftProcess:
        return msgspec.structs.replace(one, how=self._leftovers.how(call, one))

    async def _watch(self) -> None:
        looks = 0
        while True:
            if not self._to.state.processes:
                self._some = anyio.Event()
                await self._some.wait()
            await anyio.sleep(LOOK_SECONDS)
            self.look()
            looks += 1
            if looks % SCAN_EVERY == 0:
                await self._scan()

    def look(self) -> None:
        """Post the end of each process that is gone; one whose end is posted already is not told of again."""
        processes = self._to.state.processes
        self._gone &= set(processes)
        for key, process in processes.items():
            if key not in self._gone and not self._leftovers.lives(_left(process)):
                self._gone.add(key)
                how = self._leftovers.how(process.call, _left(process))
                reaped = ProcessReaped(call=process.call, pid=process.pid, started=process.started, how=how)
                self._to.post_bodies(process.agent, process.seq, reaped)

    async def _scan(self) -> None:
        """Name what runs for a call that has ended and is not named yet: started later by what was left running, or
        left by a command whose keeper was killed."""
        open_before = self._open()
        self._name(await anyio.to_thread.run_sync(self._leftovers.found), open_before)

    def _name(self, found: list[tuple[str, LeftProcess]], open_before: set[str]) -> None:
        for call, one in found:
            key = process_key(one.pid, one.started)
            agent = call.partition("/")[0]
            if call in open_before | self._open() or key in self._to.state.processes or key in self._named:
                continue
            if agent in self._to.state.agents and self._leftovers.lives(one):
                self._named.add(key)
                self._to.post_bodies(agent, 0, started_body(call, one))

    def _is_over(self, call: str) -> bool:
        """Whether the log has the result of a call and nothing of it is left to be told. One that the log does not know
        is kept: its log may have been cut."""
        agent_id, _, n = call.partition("/")
        agent = self._to.state.agents.get(agent_id)
        known = agent is not None and int(n) < agent.next_n
        left = any(process.call == call for process in self._to.state.processes.values())
        return known and not left and call not in self._open()

    def _open(self) -> set[str]:
        return {run.key for agent in self._to.state.agents.values() for run in agent.batch if run.phase != "done"}


def started_body(call: str, process: LeftProcess) -> ProcessStarted:
    """The event that names a process."""
    return ProcessStarted(
        call=call,
        pid=process.pid,
        started=process.started,
        command=process.command,
        group=process.group,
        boot_id=process.boot_id,
    )


def _left(process: Process) -> LeftProcess:
    return LeftProcess(pid=process.pid, started=process.started, command=process.command, boot_id=process.boot_id)
