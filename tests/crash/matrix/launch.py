"""`muse` with a patch or two: rare work made frequent, and faults planted so that the matrix can be seen to find them.

`python launch.py PATCH[,PATCH…] ARGUMENTS…`. The patches are of this process only; the files of the runtime stay as
they are.
"""

import sys
from collections.abc import Callable
from typing import Any

from muse.effect.protocol import ToolResult, Verdict
from muse.effect.tool.shell import ShellTool


def checkpoints() -> None:
    """A fold checkpoint every three events, and the write-ahead log tidied all the time."""
    from muse.log.sqlite import SqliteLog
    from muse.runtime import checkpoint

    checkpoint.CHECKPOINT_EVERY_EVENTS = 3
    SqliteLog.tidy.__defaults__ = (1,)


def _verdict(verdict: Verdict) -> None:
    async def reconcile(*_: Any) -> Verdict:
        return verdict

    ShellTool.reconcile = reconcile  # type: ignore[method-assign]


def runs_again() -> None:
    """A command whose host died is taken for one that never began."""
    _verdict(Verdict(verdict="not_done", evidence="nobody looked"))


def believes() -> None:
    """It is taken for done."""
    _verdict(Verdict(verdict="attached", evidence="hope"))
    ran = ShellTool.run

    async def run(self: ShellTool, *given: Any) -> ToolResult:
        attach = given[-1]
        return ToolResult(status="ok", text="exit code 0") if attach else await ran(self, *given)

    ShellTool.run = run  # type: ignore[method-assign]


def doubts() -> None:
    """It is given up without a look."""
    _verdict(Verdict(verdict="unknown", evidence="nobody looked"))


def pure() -> None:
    """The shell says of itself that it only reads."""
    import msgspec

    ShellTool.spec = msgspec.structs.replace(ShellTool.spec, recovery="pure")


def hides() -> None:
    """What became of a call is written down as its result, and not that it was in doubt."""
    from muse.event.kinds import EffectReconciled
    from muse.runtime.loop import Loop

    posted = Loop.post_bodies

    def post(self: Loop, agent: str, cause: int, *bodies: Any) -> None:
        posted(
            self, agent, cause, *(body for body in bodies if len(bodies) == 1 or not isinstance(body, EffectReconciled))
        )

    Loop.post_bodies = post  # type: ignore[method-assign]


def miscounts() -> None:
    """An intent has another digest than its request."""
    import msgspec

    from muse.event.kinds import ModelRequested
    from muse.runtime import loop

    sealed = loop.seal

    def seal(body: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(body, ModelRequested):
            body = msgspec.structs.replace(body, request_sha256="0" * 64)
        return sealed(body, *rest, **more)

    loop.seal = seal


def garbles() -> None:
    """What is sent is not quite what the provider takes."""
    from muse.effect.model.wire import WireModel

    asked = WireModel.ask

    async def ask(self: Any, request: bytes, *rest: Any) -> Any:
        return await asked(self, request.replace(b'"role":"user"', b'"role":"guest"', 1), *rest)

    WireModel.ask = ask  # type: ignore[method-assign]


def leaks() -> None:
    """An agent is told what a sibling of it said."""
    import msgspec

    from muse.decide import due
    from muse.event.conversation import Answered, Said
    from muse.runtime import loop

    builds = due.next_request

    def next_request(state: Any, agent: Any, *rest: Any) -> Any:
        siblings = [one for one in state.agents.values() if agent.parent and one.parent == agent.parent != one.id]
        said = [item for one in siblings if one is not agent for item in one.items if isinstance(item, Answered)]
        if said:
            leak = Said(seq=said[-1].seq, text=said[-1].blocks[0].text, source="user")
            agent = msgspec.structs.replace(agent, steers=[*agent.steers, leak])
        return builds(state, agent, *rest)

    due.next_request = loop.next_request = next_request  # type: ignore[attr-defined]


PATCHES: dict[str, Callable[[], None]] = {
    patch.__name__: patch
    for patch in (checkpoints, runs_again, believes, doubts, pure, hides, miscounts, garbles, leaks)
}


def main() -> None:
    """Patch, then be `muse`."""
    for name in sys.argv[1].split(","):
        PATCHES[name]()
    sys.argv[1:2] = []
    from muse.ui.cli import main as muse

    sys.exit(muse())


if __name__ == "__main__":
    main()
