"""The stop tool: end what an earlier call left running in the background.

Commands cannot do it themselves: each has a sandbox of its own, and a signal does not leave it. Which processes belong
to a call is known to the runtime, which ends them and records how; it comes in as a `Background`.

Class `reconcilable`, like a write: what is to go is known before (the processes of one call that has ended, each told
apart from all others by pid, start time and boot), and after a crash it can be seen whether it has gone. Nothing of it
runs: done. Something does: it is ended now, which harms nothing that was ended already, and nothing else, because a
call that has ended starts nothing more. `repeatable` would be as safe, but would say *asked again* where looking is
enough; `opaque` would leave a doubt where there is none.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio

from muse.effect.protocol import (
    Background,
    Keep,
    KeepFile,
    LeftProcess,
    Show,
    Stopped,
    ToolCall,
    ToolResult,
    Verdict,
    Workspace,
)
from muse.effect.tool.arguments import Parameter, Refusal, quote, schema_of, take
from muse.event.content import Observed, ToolSpec
from muse.event.text import clean

GetBackground = Callable[[], Background]
"""Gives what calls left running, while the session runs."""

NAMED_MAX: Final = 50
"""Processes, or calls, that are named in one answer."""

_PARAMETERS: Final = (
    Parameter(
        name="call", kind="string", required=True, description="Key of the shell call that started it, like main/7."
    ),
)

_DESCRIPTION: Final = """\
End everything that an earlier shell call left running in the background, such as a server started with &. Give the \
key of that call; its result named it. Use this instead of kill, which does not reach processes of other calls."""


class StopTool:
    """Ends what a call of the same agent, or of one below it, left running."""

    spec = ToolSpec(
        name="stop", description=_DESCRIPTION, schema=schema_of(_PARAMETERS), recovery="reconcilable", writes=True
    )

    def __init__(self, background: GetBackground) -> None:
        self._background = background

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """None: what a process does at its end is not known."""
        return ()

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Keep) -> Observed:
        """Nothing: the log names the processes already."""
        return Observed(folder=str(workspace.root))

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Keep, keep_file: KeepFile, show: Show,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        """End it, and say of each process what became of it."""
        try:
            of = _target(call)
            stopped = await self._background().stop(of)
            if stopped == Stopped() and call.attempt == 1:
                running = await self._background().running()
                return ToolResult(status="error", text=_nothing_runs(of, _own(call, running)))
        except Refusal as refusal:
            return ToolResult(status="error", text=str(refusal))
        except anyio.get_cancelled_exc_class():
            return ToolResult(status="cancelled", text="cancelled: what was to be ended may still run, or end soon")
        return ToolResult(status="error" if stopped.left else "ok", text=_told(of, stopped))

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        """Whether anything of it still runs."""
        try:
            of = _target(call)
        except Refusal as refusal:
            return Verdict(verdict="done", evidence=str(refusal), result=ToolResult(status="error", text=str(refusal)))
        if of in await self._background().running():
            return Verdict(verdict="not_done", evidence=f"something that {of} left running still runs")
        text = _told(of, Stopped())
        return Verdict(verdict="done", evidence=text, result=ToolResult(status="ok", text=text))


def _target(call: ToolCall) -> str:
    """The call that is meant. Raises Refusal."""
    of = take("stop", _PARAMETERS, call.args).text("call")
    if not _is_own(call, of):
        raise Refusal(f"{quote(of)} is no call of yours: give the key of a shell call, like {call.call}")
    return of


def _is_own(call: ToolCall, of: str) -> bool:
    """Whether it is a call of this agent or of one below it."""
    agent, _, number = of.partition("/")
    mine = call.call.partition("/")[0]
    is_key = clean(of).exact is None and number.isascii() and number.isdecimal()
    return is_key and (agent == mine or agent.startswith(f"{mine}."))


def _own(call: ToolCall, running: Mapping[str, Sequence[LeftProcess]]) -> dict[str, Sequence[LeftProcess]]:
    return {of: ones for of, ones in running.items() if _is_own(call, of)}


def _nothing_runs(of: str, others: Mapping[str, Sequence[LeftProcess]]) -> str:
    if not others:
        return f"nothing that {of} left running runs, nor of any other call"
    named = [f"{other}: {_names(ones)}" for other, ones in sorted(others.items())[:NAMED_MAX]]
    return "\n".join((f"nothing that {of} left running runs. These calls have something running:", *named))


def _told(of: str, stopped: Stopped) -> str:
    lines = []
    if stopped.ended:
        lines.append(f"ended: {_names(stopped.ended)}")
    if stopped.gone:
        lines.append(f"had ended before: {_names(stopped.gone)}")
    if stopped.left:
        lines.append(f"this could not be ended and still runs: {_names(stopped.left)}")
    else:
        lines.append(f"nothing that {of} left running runs any more")
    return "\n".join(lines)


def _names(ones: Sequence[LeftProcess]) -> str:
    named = [f"{one.pid} ({one.command}{': ' + one.how if one.how else ''})" for one in ones[:NAMED_MAX]]
    more = [f"{len(ones) - NAMED_MAX} more"] if len(ones) > NAMED_MAX else []
    return ", ".join((*named, *more))
