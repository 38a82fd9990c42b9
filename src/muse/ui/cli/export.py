"""`muse export`: a session for somebody else."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from muse import app
from muse.errors import UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import require_event, resolve
from muse.ui.cli.files import write_with
from muse.ui.cli.output import answers, note, progress
from muse.view.amounts import plural
from muse.view.markdown import Proof, document

Write = Callable[[bytes], object]


@click.command("export")
@click.argument("address", default="", shell_complete=completing.sessions)
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "md"]), default=None,
    help="jsonl verifies; md is for reading. Default: by FILE's ending, else jsonl.",
)  # fmt: skip
@click.option("-o", "--output", default="", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--json", "as_json", is_flag=True, help="With -o: say as JSON what was written.")
def command(address: str, form: str | None, output: str, force: bool, as_json: bool) -> int:
    """Export ADDRESS (SESSION[@SEQ]; default: the last session), up to SEQ.

    \b
      muse export 4f2k -o session.jsonl
      muse export last --format md
    """
    place = resolve(address)
    output = "" if output == "-" else output
    if place.address.agent:
        raise UsageError("an export is of a whole session", hint="leave :AGENT out")
    if as_json and not output:
        raise UsageError("--json says what was written to a file", hint="add -o FILE")
    chosen = form or ("md" if output.endswith((".md", ".markdown")) else "jsonl")
    with app.read_session(place.path) as reading:
        require_event(reading, place.address.seq)
        head = reading.at(place.address.seq) if place.address.seq else reading.head()
        produce = (
            _markdown(reading, head) if chosen == "md" else _jsonl(reading, head, not output and sys.stdout.isatty())
        )
        if output:
            write_with(Path(output), produce, force=force)
            _say(reading.session, output, chosen, head, as_json)
        else:
            with answers() as out:
                produce(out.raw)
    return 0


def _jsonl(reading: app.Reading, head: app.Position, to_terminal: bool) -> Callable[[Write], object]:
    def produce(write: Write) -> None:
        if to_terminal:
            reading.export(write, head.seq)
        else:
            reading.export(write, head.seq, lambda seq: progress(f"{seq:,} of {head.seq:,} events"))
            progress("")

    return produce


def _markdown(reading: app.Reading, head: app.Position) -> Callable[[Write], object]:
    def produce(write: Write) -> None:
        events = reading.events(before=head.seq + 1)
        for line in document(reading.session, events, reading.content, Proof(head.seq, head.hash)):
            write(f"{line}\n".encode())

    return produce


def _say(session: str, output: str, form: str, head: app.Position, as_json: bool) -> None:
    if as_json:
        import msgspec

        fields = {"session": session, "file": output, "format": form, "events": head.seq, "hash": head.hash}
        click.echo(msgspec.json.encode(fields, order="sorted").decode())
        return
    note(f"wrote {plural(head.seq, 'event')} to {output}; head {head.seq}:{head.hash}")
