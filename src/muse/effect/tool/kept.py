"""The output tool: a part of the whole output of an earlier call, of which the model got head and tail only.

Where outputs are kept is the log's matter; a function that reads them is passed in. Class `pure`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Final

from muse.effect.protocol import Workspace
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, quote, schema_of
from muse.effect.tool.output import TEXT_BYTES_MAX, trim_end, trim_start
from muse.effect.tool.pure import PureTool
from muse.event.content import ToolSpec
from muse.event.text import clean

ReadOutput = Callable[[str, int, int], Awaitable[bytes | None]]
"""Bytes of the whole output of a call: key of the call, offset, at most how many. None: no such output is kept."""

_PARAMETERS: Final = (
    Parameter(name="call", kind="string", required=True, description="Key of the call, like main/7."),
    Parameter(name="offset", kind="integer", minimum=0, description="First byte to read, from 0."),
    Parameter(
        name="limit",
        kind="integer",
        minimum=1,
        description=f"How many bytes (default and most: {TEXT_BYTES_MAX}).",
    ),
)

_DESCRIPTION = """\
Read a part of the whole output of an earlier call, when its result says that bytes were left out."""


class OutputTool(PureTool):
    """Reads what was left out of an earlier result."""

    spec = ToolSpec(name="output", description=_DESCRIPTION, schema=schema_of(_PARAMETERS), recovery="pure")
    parameters: ClassVar[tuple[Parameter, ...]] = _PARAMETERS

    def __init__(self, read_output: ReadOutput) -> None:
        self._read_output = read_output

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """None: it looks into the log."""
        return ()

    async def answer(self, args: Arguments, workspace: Workspace) -> str:
        """The bytes that were asked for, as text, and where they stand."""
        return await part_of_output(self._read_output, args)


async def part_of_output(read_output: ReadOutput, args: Arguments) -> str:
    """A part of the whole output of an earlier call of the same agent, as `call`, `offset` and `limit` ask for it, as
    text, and where it stands. Raises Refusal."""
    call, offset = args.text("call"), args.number("offset")
    limit = min(args.number("limit", TEXT_BYTES_MAX), TEXT_BYTES_MAX)
    if clean(call).exact is not None or offset >= 1 << 53:
        raise Refusal("no output is kept under that call and offset")
    if args.agent and call.partition("/")[0] != args.agent:
        raise Refusal(f"{quote(call)} is no call of yours: only your own can be read, which begin with {args.agent}/")
    data = await read_output(call, offset, limit)
    if data is None:
        raise Refusal(f"no output is kept for call {quote(call)}: give the key that a result named")
    if not data:
        raise Refusal(f"the output of {call} ends before byte {offset}: give a smaller offset")
    start = len(data) - len(trim_start(data)) if offset else 0
    part = data[start:]
    if len(data) == limit:
        part = trim_end(part) or part
    first, end = offset + start, offset + start + len(part)
    note = f"(bytes {first} to {end - 1} of the output of {call}"
    note += f"; read on with offset {end})" if len(data) == limit else "; that is its end)"
    text = clean(part).text
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{note}"
