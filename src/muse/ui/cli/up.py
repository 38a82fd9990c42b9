"""`muse up`: go on with every open session; have the system do so at log-in or boot."""

from pathlib import Path
from typing import Final

import click
import msgspec

from muse import app
from muse.config import load
from muse.errors import ConfigError, UsageError
from muse.event.text import clean
from muse.ui.cli.finding import short_id, tilde
from muse.ui.cli.output import Answers, answers, note, progress
from muse.view.amounts import plural
from muse.view.text import paint
from muse.view.visible import columns, fit, headline, one_line

DID: Final = {
    "open": "can go on", "runs": "runs", "resumed": "resumed", "nothing": "closed", "skipped": "skipped",
    "failed": "failed",
}  # fmt: skip
_COLOURS: Final = {"resumed": "32", "failed": "31", "skipped": "33"}
STATE_COLUMNS: Final = 16


@click.command("up")
@click.option("-a", "--all", "everything", is_flag=True, help="Try those too that a provider's refusal ended.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--install", is_flag=True, help="Write a systemd user unit, or a launchd agent, that runs muse up.")
@click.option("--uninstall", is_flag=True, help="Take that file away.")
@click.option("--json", "as_json", is_flag=True, help="One session a line, as JSON.")
def command(everything: bool, dry_run: bool, install: bool, uninstall: bool, as_json: bool) -> int:
    """Go on with every session that is open and that nobody runs (of all folders): its process was killed, the machine
    went down, it waits for an answer. Each runs in a process of its own, as with muse exec --background.

    Sessions that run, that are damaged or that cannot go on by themselves are named and left alone; paused agents stay
    paused. Exit code: 0, or that of the first session that could not be gone on with.

    For example, after a reboot: muse up; always after one: muse up --install
    """
    app.origin("terminal")  # what an agent started speaks for nobody
    if install and uninstall:
        raise UsageError("--install and --uninstall say two things", hint="give one of them")
    if everything and (install or uninstall):
        raise UsageError("--all is said of one time only", hint="what is installed runs muse up, without it")
    if install or uninstall:
        return _unit(install=install, dry_run=dry_run, as_json=as_json)
    found = app.open_sessions(closed_by_provider=everything)
    if not dry_run:
        found = list(app.go_on(found, lambda seen: progress(f"{short_id(seen.session)} {DID[seen.fate]}")))
        if found:
            progress("")
    with answers(acts=True) as out:
        for seen in found:
            _show(seen, out, as_json=as_json, dry_run=dry_run)
    if not as_json:
        _sum_up(found, dry_run=dry_run, everything=everything)
    return next((seen.code for seen in found if seen.code), 0)


def _show(seen: app.Seen, out: Answers, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        plain = msgspec.to_builtins(seen)
        told = {key: clean(value).text if isinstance(value, str) else value for key, value in plain.items()}
        out.json(msgspec.json.encode({**told, "dry_run": dry_run}, order="sorted").decode())
        return
    state = f"{DID[seen.fate]} ({seen.pid})" if seen.pid else DID[seen.fate]
    padded = state + " " * max(STATE_COLUMNS - columns(state), 0)
    name, place = short_id(seen.session), tilde(seen.workspace)
    start = f"{name}  {paint(padded, _COLOURS.get(seen.fate, ''), out.colour)}  {place}"
    remarks = [one_line(seen.why)] if seen.why else []
    remarks += [f"{', '.join(seen.paused)} paused"] if seen.paused else []
    remarks += [f"waits for approval @{seen.waits[0]}"] if seen.waits and seen.fate != "skipped" else []
    text = "; ".join(remarks) or headline(seen.said)
    if out.width is None:
        out.line(f"{start}  {text}".rstrip())
        return
    room = out.width - columns(f"{name}  {padded}  {place}") - 2
    if not remarks:
        out.line(f"{start}  {fit(text, max(room, 1))}".rstrip())
    else:
        out.line(start)
        out.paragraph(f"    {text}", 4)
    if seen.hint and seen.fate in ("failed", "skipped"):
        out.paragraph(f"    {one_line(seen.hint)}", 4)


def _sum_up(found: list[app.Seen], *, dry_run: bool, everything: bool) -> None:
    if not found:
        note("no session is open")
        return
    counted = {fate: sum(seen.fate == fate for seen in found) for fate in DID}
    if dry_run:
        how = "muse up --all" if everything else "muse up"
        note(f"{plural(counted['open'], 'session')} can go on: {how}" if counted["open"] else "nothing can go on")
    elif counted["resumed"]:
        note(f"{plural(counted['resumed'], 'session')} resumed; watch: muse attach SESSION; what waits: muse approvals")


# -- the system --------------------------------------------------------------------------------------------------------


def _unit(*, install: bool, dry_run: bool, as_json: bool) -> int:
    try:
        config = load(Path.cwd())
    except (ConfigError, OSError):  # a unit is written with settings that are broken, too
        from muse.config import Config

        config = Config()
    unit = app.unit_for(config)
    changed = False
    if not dry_run:
        changed = app.write_unit(unit) if install else app.remove_unit(unit)
    with answers(acts=True) as out:
        if as_json:
            out.json(msgspec.json.encode(_told(unit, changed=changed, install=install), order="sorted").decode())
        elif install and dry_run:
            out.line(clean(unit.text).text)
        elif install:
            out.line(str(unit.path))
    if not as_json:
        _say(unit, install=install, dry_run=dry_run, changed=changed)
    return 0


def _told(unit: app.Unit, *, changed: bool, install: bool) -> dict[str, object]:
    return {
        "file": clean(str(unit.path)).text, "changed": changed, "run": unit.then if install else unit.before,
        "left_out": unit.left_out, "keys": unit.keys, "key_file": clean(unit.key_file).text,
    }  # fmt: skip


def _say(unit: app.Unit, *, install: bool, dry_run: bool, changed: bool) -> None:
    where = tilde(str(unit.path))
    if not install:
        note(f"{where} {'would be taken away' if dry_run else 'is taken away' if changed else 'is not there'}")
        note("nothing was run; to have the system forget it:")
    elif dry_run:
        note(f"this would be written to {where}; nothing was")
        return
    else:
        note(f"{'written' if changed else 'it stood there already'}: {where}; nothing was run. To put it to use:")
    for line in unit.then if install else unit.before:
        note(f"  {line}")
    if not install:
        return
    if unit.keys and unit.key_file:
        names = " ".join(f"{name}=…" for name in unit.keys)
        note(f"keys are not written into it: put them into {tilde(unit.key_file)} (chmod 600), one a line: {names}")
    elif unit.keys:
        note(f"keys are not written into it: give them with launchctl setenv NAME VALUE: {', '.join(unit.keys)}")
    if others := [name for name in unit.left_out if name not in unit.keys]:
        note(f"not written either, as they may hold a secret: {', '.join(others)}")
