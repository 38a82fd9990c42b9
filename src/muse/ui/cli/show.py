"""`muse show`: one event in full, and what belongs to it."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from muse import app
from muse.errors import Damaged, UsageError
from muse.event.content import BlobRef
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import ModelRequested, ToolFinished, ToolStarted
from muse.ui.cli import completing
from muse.ui.cli.address import Address, require_event, resolve
from muse.ui.cli.files import write_file
from muse.ui.cli.filtering import chosen, filtering, of_lane, require_agent, say_nothing_found
from muse.ui.cli.output import Answers, answers, note
from muse.ui.cli.requested import Wish, show_request
from muse.view.amounts import size
from muse.view.detail import detailed
from muse.view.filters import Filter, Past
from muse.view.lines import json_line
from muse.view.text import detail_text, paint, row_text
from muse.view.timeline import Context, learn, row
from muse.view.visible import lines_of, one_line, paragraph


@click.command("show")
@click.argument("address", default="", shell_complete=completing.agents)
@click.option(
    "--blob", "blob", default="", metavar="NAME", help="A blob of the event: its name as listed, or its root."
)
@click.option(
    "-o",
    "--output",
    default="",
    metavar="FILE",
    help="Write the blob or the request, or without either the call's whole output, to FILE.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--request", is_flag=True, help="What the model was sent there, or last before: the exact bytes.")
@click.option("--diff", is_flag=True, help="What changed in it since the agent's request before.")
@click.option("--summary", is_flag=True, help="What is in it, in numbers; caches, compaction, what was left out.")
@click.option("--pretty", is_flag=True, help="The request indented (so on a terminal).")
@filtering
@click.option("--json", "as_json", is_flag=True, help="The event as one JSON line, with its hash.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(
    address: str,
    blob: str,
    output: str,
    force: bool,
    request: bool,
    diff: bool,
    summary: bool,
    pretty: bool,
    as_json: bool,
    no_color: bool,
    wanted: Filter,
) -> int:
    """Print the event at ADDRESS (SESSION@SEQ; default: the last event of the last session).

    With filters: all events that are meant, each in full, up to SEQ. For example: muse show --failed
    """
    request = request or diff or summary or pretty
    if wanted and (blob or output or request):
        raise UsageError("filters choose events, and this is about one", hint="give its address: SESSION@SEQ")
    if blob and request:
        raise UsageError("--blob and --request are two answers", hint="give one of them")
    place = resolve(address)
    with app.read_session(place.path) as reading, answers(colour=not no_color) as out:
        require_event(reading, place.address.seq)
        if wanted:
            _print_all(reading, wanted, place.address, out, as_json)
            return 0
        seq = place.address.seq or app.last_of(reading, place.address.agent)
        event = reading.event(seq)
        if event is None:
            raise UsageError(f"{reading.session} has no events yet", hint="muse log -f waits for them")
        if request:
            lane = place.address.agent
            wish = Wish(diff=diff, summary=summary, pretty=pretty, as_json=as_json, output=output, force=force)
            show_request(reading, seq, lane, wish, out)
        elif output and not blob:
            write_file(Path(output), _output_of(reading, event), force=force)
            note(f"wrote {size(Path(output).stat().st_size)} to {output}")
        elif blob:
            _give_blob(reading, _chosen(event, blob), output, force, out)
        elif as_json:
            out.json(_json(reading, event))
        else:
            _print_with_family(reading, event, out)
        if fault := reading.fault(seq):
            raise Damaged(f"event {seq} was altered: {fault}", hint="`muse verify` says what can still be trusted")
    return 0


def _print_all(reading: app.Reading, wanted: Filter, address: Address, out: Answers, as_json: bool) -> None:
    """All events that are meant, each in full, in the order of the log."""
    past, shown = Past(home=str(Path.home())), 0
    wanted, upto = of_lane(wanted, address.agent), address.seq
    for event in chosen(reading, wanted, past, before=upto + 1 if upto else None):
        if as_json:
            out.json(_json(reading, event))
        else:
            if shown:
                out.line()
            _print(reading, event, past, out)
        shown += 1
    require_agent(address.agent, past, reading.session)
    if not shown:
        say_nothing_found(wanted, past, reading.session)


def blobs_of(event: Event) -> dict[str, BlobRef]:
    """The blobs that an event names, by where they stand: `raw`, `output`, `observed.after`, `changes.0.before`."""
    found: dict[str, BlobRef] = {}
    if not isinstance(event.body, Redacted | Unknown):
        _collect(event.body, "", found)
    return found


def _collect(value: object, name: str, found: dict[str, BlobRef]) -> None:
    if isinstance(value, BlobRef):
        found[name] = value
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            _collect(getattr(value, field), f"{name}.{field}" if name else field, found)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            _collect(item, f"{name}.{index}", found)


def _chosen(event: Event, wanted: str) -> BlobRef:
    found = blobs_of(event)
    if wanted in found:
        return found[wanted]
    matching = {
        ref.blob: ref for name, ref in found.items() if ref.blob.startswith(wanted) or name.endswith(f".{wanted}")
    }
    if len(matching) == 1:
        return next(iter(matching.values()))
    names = ", ".join(found) or "none"
    raise UsageError(f"#{event.seq} has no single blob {wanted!r}", hint=f"it has: {names}")


def _give_blob(reading: app.Reading, ref: BlobRef, output: str, force: bool, out: Answers) -> None:
    if output:
        write_file(Path(output), reading.stream(ref.blob), force=force)
        note(f"wrote {size(ref.length)} to {output}")
    elif out.terminal:
        for line in lines_of(b"".join(reading.stream(ref.blob)).decode(errors="replace")):
            out.line(line)
    else:
        for chunk in reading.stream(ref.blob):
            out.raw(chunk)


def _output_of(reading: app.Reading, event: Event) -> Iterator[bytes]:
    """Exactly what the call of an event gave out: a command's bytes without the lines that tell how it ended, of any
    other tool what the model read. Known secrets are placeholders. Raises UsageError when the call has no result."""
    call = getattr(event.body, "call", "")
    found: ToolFinished | None = None
    is_command = False
    for one in reading.events():
        body = one.body
        if isinstance(body, ToolStarted) and body.call == call:
            is_command = body.recovery == "attachable"
        elif isinstance(body, ToolFinished) and body.call == call:
            found = body
    if found is None:
        raise UsageError(f"#{event.seq} belongs to no call that has a result", hint="muse log shows which have one")
    if found.output is not None:
        return reading.stream(found.output.blob)
    if isinstance(found.text, BlobRef):
        return reading.stream(found.text.blob)
    text = found.text.encode()
    return iter([text[: found.output_bytes] if is_command else text])


def _json(reading: app.Reading, event: Event) -> str:
    """The line that `log --json` prints, with the chain value after the event."""
    line = msgspec.json.decode(json_line(event))
    return msgspec.json.encode({**line, "hash": reading.at(event.seq).hash}, order="sorted").decode()


def _print_with_family(reading: app.Reading, event: Event, out: Answers) -> None:
    """An event in full, and after it in short the other events of its call."""
    context, family = _family(reading, event)
    _print(reading, event, context, out)
    others = [one for one in family if one.seq != event.seq]
    if others:
        out.line()
        for one in others:
            shown = detailed(one, context, reading.content, lines_max=40)
            out.line(row_text(shown, width=out.width, colour=out.colour))
            out.lines(detail_text(shown, width=out.width, colour=out.colour))


def _print(reading: app.Reading, event: Event, context: Context, out: Answers) -> None:
    out.line(row_text(row(event, context), width=out.width, colour=out.colour))
    stored = reading.stored(event.seq)
    assert stored is not None
    kind = f"{event.type} v{event.v}"
    fields = {
        "type": kind, "time": event.time, "agent": event.agent, "epoch": str(event.epoch),
        "cause": f"#{event.cause}" if event.cause else "none", "id": event.id,
        "leaves": f"{stored.count}, root {stored.root.hex()}", "hash": stored.hash.hex(),
    }  # fmt: skip
    for name, value in fields.items():
        first, *rest = paragraph(f"  {name:<7} {one_line(value)}", out.width, 10)
        out.line(f"  {paint(first[2:9], '2', out.colour)}{first[9:]}")
        out.lines(rest)
    detail = detailed(event, context, reading.content)
    if detail.detail:
        out.line()
        out.lines(detail_text(detail, indent="  ", width=out.width, colour=out.colour))
    out.line()
    for line in _body_lines(event):
        out.paragraph(f"  {line}", len(line) - len(line.lstrip(" ")) + 4)
    blobs = blobs_of(event)
    if blobs:
        out.line()
        for name, ref in blobs.items():
            out.line(f"  blob {name}  {size(ref.length)}  {ref.blob[:16]}…")
    if isinstance(event.body, ModelRequested):
        out.line()
        words = f"what was sent: muse show @{event.seq} --request (--summary, --diff)"
        out.line(f"  {paint(words, '2', out.colour)}")


def _body_lines(event: Event) -> Iterator[str]:
    """The body as indented JSON, safe to show."""
    line = msgspec.json.decode(json_line(event), type=dict[str, msgspec.Raw])["body"]
    text = msgspec.json.format(bytes(line), indent=2).decode()
    yield from lines_of(text)


def _family(reading: app.Reading, event: Event) -> tuple[Context, list[Event]]:
    """What is known up to the end of the event's call, and the events of that call."""
    context, family = Context(home=str(Path.home())), []
    call = getattr(event.body, "call", "")
    with suppress(Damaged):  # the event itself was read; what comes after damage cannot be told
        for one in reading.events():
            learn(context, one)
            if call and (getattr(one.body, "call", "") == call or call in getattr(one.body, "calls", ())):
                family.append(one)
    return context, family
