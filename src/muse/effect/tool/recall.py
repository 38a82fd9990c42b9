"""The recall tool: what has left the agent's conversation to make room, read again from the log.

By call it is the whole result, part by part, like the tool `output`; by events, or by a text to look for, what was said
and done there, a line each. Only the asking agent's own lane is read. Where that is kept is the log's matter; a
function that reads it is passed in. Class `pure`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Final

from muse.effect.protocol import Workspace
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, schema_of
from muse.effect.tool.kept import ReadOutput, part_of_output
from muse.effect.tool.output import TEXT_BYTES_MAX, trim_end, trim_start
from muse.effect.tool.pure import PureTool
from muse.event.content import ToolSpec
from muse.event.text import clean, cut
from muse.event.told import Lane, Told

SEQ_MAX: Final = 1 << 53
QUERY_CHARACTERS_MAX: Final = 500
LINE_BYTES_MAX: Final = 700
"""Of one event among several; an event that is read alone is read whole."""


ReadLane = Callable[[str, int, int, str, int], Awaitable[Lane]]
"""Events of an agent, from one to another (both included), that hold a text ("": all), of about so many bytes."""

_PARAMETERS: Final = (
    Parameter(name="call", kind="string", description="Key of a call, like main/7: its whole result."),
    Parameter(name="from", kind="integer", minimum=1, description="First event, as in #12."),
    Parameter(name="to", kind="integer", minimum=1, description="Last event."),
    Parameter(name="query", kind="string", description="Only events that hold this text, in any case of letters."),
    Parameter(name="offset", kind="integer", minimum=0, description="First byte of the result, or of a single event."),
    Parameter(
        name="limit", kind="integer", minimum=1, description=f"How many bytes (default and most: {TEXT_BYTES_MAX})."
    ),
)

_DESCRIPTION = """\
Read again what has left this conversation to make room: with call the whole result of an earlier call of yours, with \
from and to what was said and done in those events, with query only what holds a text. from and to with the same \
number give one event whole."""


class RecallTool(PureTool):
    """Reads back what was compacted."""

    spec = ToolSpec(name="recall", description=_DESCRIPTION, schema=schema_of(_PARAMETERS), recovery="pure")
    parameters: ClassVar[tuple[Parameter, ...]] = _PARAMETERS

    def __init__(self, read_output: ReadOutput, read_lane: ReadLane) -> None:
        self._read_output = read_output
        self._read_lane = read_lane

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """None: it looks into the log."""
        return ()

    async def answer(self, args: Arguments, workspace: Workspace) -> str:
        """What was asked for, as text, and how to read on."""
        if args.has("call"):
            if args.has("from") or args.has("to") or args.has("query"):
                raise Refusal("give either call, or from, to and query")
            return await part_of_output(self._read_output, args)
        first, last, query = args.number("from", 1), args.number("to", SEQ_MAX - 1), args.text("query")
        if not (args.has("from") or args.has("to") or query):
            raise Refusal('say what to read: call="main/7", or from and to, or query')
        if max(first, last) >= SEQ_MAX or clean(query).exact is not None or len(query) > QUERY_CHARACTERS_MAX:
            raise Refusal("no such event, or no such text: give numbers as in #12, and a text of one line")
        if last < first:
            raise Refusal(f"to={last} comes before from={first}")
        if first == last:
            return await self._one(args, first)
        return await self._several(args, first, last, query)

    async def _one(self, args: Arguments, seq: int) -> str:
        found = await self._read_lane(args.agent, seq, seq, "", TEXT_BYTES_MAX)
        if not found.events:
            raise Refusal(
                f"#{seq} is no event of yours that says something: give from and to to read what is around it"
            )
        (event,) = found.events
        offset, limit = args.number("offset"), min(args.number("limit", TEXT_BYTES_MAX), TEXT_BYTES_MAX)
        data = event.text.encode()
        part = data[offset : offset + limit]
        if offset and not part:
            raise Refusal(f"#{seq} ends before byte {offset}: it has {len(data)}")
        part = trim_start(part) if offset else part
        part = (trim_end(part) or part) if offset + limit < len(data) else part
        end = offset + limit if offset + limit < len(data) else 0
        more = f"\n(bytes from {offset} of {len(data)}; read on with offset {end})" if end else ""
        return f"#{seq} {event.head}: {clean(part).text}{more}{_whole(event)}"

    async def _several(self, args: Arguments, first: int, last: int, query: str) -> str:
        limit = min(args.number("limit", TEXT_BYTES_MAX), TEXT_BYTES_MAX)
        found = await self._read_lane(args.agent, first, last, query, limit)
        lines = [_line(event, query) for event in found.events]
        if not lines:
            lines = ["Nothing of yours is there." if not query else "Nothing of yours holds that text."]
        if found.next:
            lines.append(f"(there is more: read on with from={found.next})")
        return "\n".join(lines)


def _line(event: Told, query: str) -> str:
    """One of several: its text in short, around what was looked for."""
    text = event.text
    at = text.casefold().find(query.casefold()) if query else -1
    if len(text.encode()) > LINE_BYTES_MAX and at > LINE_BYTES_MAX // 4:
        text = "… " + text[max(at - LINE_BYTES_MAX // 4, 0) :]
    short = cut(text, LINE_BYTES_MAX, 0)
    if not short.left_out_bytes:
        return f"#{event.seq} {event.head}: {text}"
    whole = _whole(event) or f" (whole: from={event.seq}, to={event.seq})"
    return f"#{event.seq} {event.head}: {short.text.rstrip()}{whole}"


def _whole(event: Told) -> str:
    return f' (whole: call="{event.call}")' if event.call else ""
