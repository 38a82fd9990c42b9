"""`muse import`: keep the session files of other agents."""

from pathlib import Path

import click
import msgspec

from muse.app.foreign import Imported, foreign_files, import_session
from muse.errors import UsageError
from muse.ui.cli.finding import short_id, tilde
from muse.ui.cli.output import Answers, answers, note, progress
from muse.view.amounts import plural
from muse.view.visible import one_line


@click.command("import")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=click.Path())
@click.option("--name", default="", metavar="NAME", help="What to call the session; of one file only.")
@click.option("--force", is_flag=True, help="Keep a file again whose session is there already.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each file.")
def command(paths: tuple[str, ...], name: str, force: bool, as_json: bool) -> int:
    """Keep session files of Claude Code and Codex as sessions that can be read like any other, and not be continued.

    A folder stands for all session files in it: muse import ~/.claude/projects/X. The files of a session's agents
    belong to it. To look at one without keeping it: muse replay PATH. What a source did not record is said.

    \b
      muse import ~/.claude/projects/shop
    """
    given = [Path(path).expanduser() for path in paths]
    if name and (len(given) > 1 or given[0].is_dir()):
        raise UsageError("--name names one session", hint="give one file, or leave --name out")
    refused = 0
    with answers(acts=True) as out:
        for path in given:
            refused += _folder(path, force, out, as_json) if path.is_dir() else _file(path, name, force, out, as_json)
    return 2 if refused else 0


def _file(path: Path, name: str, force: bool, out: Answers, as_json: bool) -> int:
    done = _import(path, name, force)
    if done.is_new:
        _say(done, out, as_json)
        if done.earlier:
            note(f"an earlier state of it is session {done.earlier}; both are kept")
        return 0
    _say(done, out, as_json)
    note(f"muse: {tilde(str(path))} was imported already: session {done.session}")
    note(f"      muse replay {short_id(done.session)} shows it; --force keeps it a second time")
    return 1


def _folder(path: Path, force: bool, out: Answers, as_json: bool) -> int:
    """Each session file below. Those that are there already are no mistake."""
    progress(f"looking for session files in {one_line(str(path))}")
    sources = foreign_files(path)
    if not sources:
        progress("")
        raise UsageError(
            f"there is no session file of Claude Code or Codex in {tilde(str(path))}",
            hint="Claude Code keeps them in ~/.claude/projects, Codex in ~/.codex/sessions",
        )
    done = []
    for at, source in enumerate(sources, 1):
        progress(f"{at} of {len(sources)}: {one_line(source.name)}")
        done.append(_import(source, "", force))
        _say(done[-1], out, as_json)
    new = sum(one.is_new for one in done)
    note(f"{plural(new, 'session')} imported, {len(done) - new} there already; muse ls --all lists them")
    return 0


def _import(path: Path, name: str, force: bool) -> Imported:
    if not path.is_file():
        raise UsageError(f"there is no file {tilde(str(path))}", hint="give a session file, or a folder of them")
    label = one_line(path.name)
    done = import_session(path, name=name, again=force, progress=lambda seq: progress(f"{label}: {seq:,} events"))
    progress("")
    return done


def _say(done: Imported, out: Answers, as_json: bool) -> None:
    if as_json:
        out.json(msgspec.json.encode(msgspec.structs.replace(done, file=one_line(done.file)), order="sorted").decode())
        return
    odd = [plural(done.unknown, "part") + " of an unknown kind"] if done.unknown else []
    odd += [plural(done.unreadable, "unreadable line")] if done.unreadable else []
    more = f" ({', '.join(odd)})" if odd else ""
    state = "imported" if done.is_new else "is there"
    out.line(f"{done.session}  {state}  {done.format}  {plural(done.events, 'event')}{more}  {tilde(done.file)}")
