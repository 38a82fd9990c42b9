"""`muse doctor`: what this machine and these settings are good for, and what to do about the rest."""

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import click
import msgspec

from muse import __version__, app, config
from muse.errors import MuseError
from muse.ui.cli import completing
from muse.ui.cli.finding import here, short_id
from muse.ui.cli.output import answers
from muse.view.amounts import plural, size
from muse.view.text import paint
from muse.view.visible import one_line, paragraph

SPACE_WARN: Final = 1_000_000_000
SPACE_FAIL: Final = 100_000_000
SQLITE_SOUND: Final = (3, 51, 3)
"""The first SQLite without the WAL-reset corruption bug (https://sqlite.org/wal.html)."""
ASK_SECONDS: Final = 10
LISTENS_SECONDS: Final = 0.5
DAMAGED_SHOWN: Final = 5
NOTICES_SHOWN: Final = 20
LARGEST: Final = 10
"""How many sessions are named with what they take up."""
HANG: Final = 19
"""Where what is said of a finding begins."""

Status = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `advice` says what to do where it is not fine, `sizes` (in bytes) what it is made
    of."""

    name: str
    status: Status
    says: str
    advice: str = ""
    sizes: dict[str, int] = {}


@click.command("doctor")
@click.option(
    "-m",
    "--model",
    default="",
    metavar="PROVIDER/MODEL",
    help="The model to look at.",
    shell_complete=completing.models,
)
@click.option("-c", "--config", "pairs", multiple=True, metavar="KEY=VALUE", help="Override a setting.")
@click.option("--json", "as_json", is_flag=True, help="One finding a line, as JSON.")
def command(model: str, pairs: tuple[str, ...], as_json: bool) -> int:
    """Check this machine and the settings; exit code 1 when something must be mended.

    \b
      muse doctor -m anthropic/claude-sonnet-4-5
    """
    found = [*(finding for check in CHECKS for finding in check()), *_settings(model, pairs)]
    looks = {"ok": "32", "warn": "33", "fail": "31"}
    with answers() as out:
        for one in found:
            if as_json:
                out.line(msgspec.json.encode(one).decode())
                continue
            first, *rest = paragraph(f"{one.status:<4}  {one.name:<12} {one_line(one.says)}", out.width, HANG)
            out.line(paint(first[:4], looks[one.status], out.colour) + first[4:])
            out.lines(rest)
            if one.advice:
                out.paragraph(f"{'':<{HANG}}{one_line(one.advice)}", HANG)
    return 1 if any(one.status == "fail" for one in found) else 0


def _versions() -> Iterator[Finding]:
    yield Finding("muse", "ok", __version__)
    system = f"{platform.python_version()} on {platform.system()} {platform.release()}"
    tried = sys.platform == "linux"
    yield Finding(
        "python", "ok" if tried else "warn", system, "" if tried else "only Linux is proven: see docs/guarantees.md"
    )
    version = app.sqlite_version()
    sound = tuple(int(part) for part in version.split(".")[:3]) >= SQLITE_SOUND
    advice = "" if sound else "an older one can lose a log's tail: pip install -U apsw"
    yield Finding("sqlite", "ok" if sound else "fail", version, advice)


def _home() -> Iterator[Finding]:
    home = config.muse_home()
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        yield Finding("home", "fail", f"{home} cannot be written", "set MUSE_HOME to a folder of yours")
        return
    open_to_others = home.exists() and home.stat().st_mode & 0o077
    advice = f"others may look into it: chmod 700 {home}" if open_to_others else ""
    yield Finding("home", "warn" if open_to_others else "ok", str(home), advice)
    kind, sound = app.file_system(place)
    yield Finding(
        "file system", "ok" if sound else "fail", kind or "unknown",
        "" if sound else "locks are not safe there: set MUSE_HOME to a folder on a local disk",
    )  # fmt: skip
    yield from _disk()


def _disk() -> Iterator[Finding]:
    """What is free, and what sessions and all else take up, the largest first."""
    disk = app.disk_use()
    status: Status = "fail" if disk.free < SPACE_FAIL else "warn" if disk.free < SPACE_WARN else "ok"
    says = f"{size(disk.free)}; a run stops before less than {size(disk.reserve)} is left"
    advice = "" if status == "ok" else "free some (muse gc, muse archive, muse rm), or set MUSE_HOME elsewhere"
    yield Finding("free space", status, says, advice, {"free": disk.free, "reserve": disk.reserve})
    sessions = sum(disk.sessions.values())
    parts = {"sessions": sessions, **disk.others}
    said = ", ".join(f"{name} {size(taken)}" for name, taken in parts.items() if taken)
    yield Finding(
        "disk", "ok", f"{size(disk.total)}{f': {said}' if said else ''}", "", {"total": disk.total, **parts}
    )  # fmt: skip
    largest = dict(sorted(disk.sessions.items(), key=lambda one: one[1], reverse=True)[:LARGEST])
    if largest:
        named = ", ".join(f"{short_id(session)} {size(taken)}" for session, taken in largest.items())
        many = f"of {plural(len(disk.sessions), 'session')}: " if len(disk.sessions) > LARGEST else ""
        yield Finding("largest", "ok", f"{many}{named}", "", largest)


def _programs() -> Iterator[Finding]:
    yield _program("git", "fail", "changes and the repository's state are not seen without it: install git")
    yield _program("bash", "fail", "commands run under it: install bash")
    yield _program("rg", "warn", "searching is slower without it: install ripgrep")
    yield from _sandbox()


def _folder() -> Path:
    """The current folder; where it is gone (which is said of the settings) the root."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _sandbox() -> Iterator[Finding]:
    """What commands run in here unless something else is said, and what there is to run them in."""
    has, here = app.machine(), app.default_sandbox(_folder())
    advice = ""
    if here.why:
        advice = "install bubblewrap, or mind what you allow: docs/sandbox.md"
    elif here.lacks:
        advice = f"left open: {'; '.join(here.lacks)}. With bubblewrap installed nothing of this would be"
    holds = here.says if here.is_on else f"commands run with your own rights: {here.why}"
    yield Finding("sandbox", "warn" if advice else "ok", holds, advice)
    yield Finding("landlock", "ok", f"version {has.landlock}" if has.landlock else "this kernel has none, or it is off")
    network = "and of the network" if has.network else "and none of the network"
    names = f"of mounts {network}, {'in a user namespace' if has.user else 'as root'}"
    yield Finding("namespaces", "ok", names if has.mounts else f"none can be made: {has.why or 'not without Landlock'}")
    runs = has.bubblewrap_says if has.bubblewrap_works else f"does not run: {has.bubblewrap_says}"
    yield Finding("bubblewrap", "ok", runs if has.bubblewrap else "not installed")


def _program(name: str, missing: Status, advice: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(name, missing, "not found", advice)
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, timeout=ASK_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
        said = done.stdout.decode(errors="replace").strip().partition("\n")[0]
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name, missing, f"{path} does not run: {error}", advice)
    return Finding(name, "ok", f"{said or path}")


def _settings(model: str, pairs: tuple[str, ...]) -> Iterator[Finding]:
    try:
        loaded = config.read(here(), pairs)
    except MuseError as error:
        yield Finding("settings", "fail", str(error), error.hint)
        return
    files = ", ".join(str(path) for path in loaded.files) or f"none ({config.user_file()} would be read)"
    yield Finding("settings", "warn" if loaded.notice else "ok", files, loaded.notice)
    chosen = model or loaded.config.model
    known = config.BUILT_IN | loaded.config.providers
    ready = [name for name, one in known.items() if one.api_key_env and os.environ.get(one.api_key_env)]
    local = [name for name, one in known.items() if not one.api_key_env]
    words = f"with a key: {', '.join(ready) or 'none'}; without need of one: {', '.join(local)}"
    fine = bool(ready) or chosen.startswith(app.SCRIPTED) or chosen.partition("/")[0] in local
    advice = "" if fine else "export ANTHROPIC_API_KEY=… or OPENAI_API_KEY=…, or run a local server"
    yield Finding("providers", "ok" if fine else "warn", words, advice)
    yield from _model(loaded.config, chosen)
    yield from _roles(loaded.config, chosen.partition("/")[0])


def _roles(settings: config.Config, own: str) -> Iterator[Finding]:
    """The roles that agents can be spawned as from here, and what of their files is not followed by a session whose
    model is one of the provider `own`."""
    known = config.BUILT_IN | settings.providers
    found = app.find_roles(_folder(), providers=known)
    names = ", ".join(role.name for role in found.roles)
    yield Finding("roles", "ok", names or "none (.muse/agents/*.md would be read: docs/roles.md)")
    for notice in found.notices[:NOTICES_SHOWN]:
        what = "no role" if notice.ignored else "taken without this"
        yield Finding("role file", "warn", notice.path, f"{what}: {notice.says}")
    able = {own, *app.usable_providers(settings)}
    for role in found.roles:
        name, slash, _ = role.model.partition("/")
        if slash and name not in able:
            why = "only -m can choose it" if known[name].chosen_only else f"{known[name].api_key_env} is not set"
            yield Finding("role file", "warn", role.path, f"taken without its model, {role.model}: {why}")
    if len(found.notices) > NOTICES_SHOWN:
        yield Finding("role files", "warn", f"and {len(found.notices) - NOTICES_SHOWN} notes more of this kind")


def _model(settings: config.Config, chosen: str) -> Iterator[Finding]:
    if not chosen:
        hint = f'give -m PROVIDER/MODEL each time, or write model = "…" in {config.user_file()}'
        yield Finding("model", "warn", "none is chosen", hint)
        return
    try:
        app.model_of(settings, app.settings_of(settings, chosen))
    except MuseError as error:
        yield Finding("model", "fail", str(error), error.hint)
        return
    yield Finding("model", "ok", chosen)
    if not chosen.startswith(app.SCRIPTED):
        name, provider, _ = config.provider_of(settings, chosen)
        yield from _server(name, provider.base_url)


def _server(name: str, base_url: str) -> Iterator[Finding]:
    """Whether something listens where a provider on this machine should be; others are not asked."""
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if host != "localhost" and not host.startswith("127.") and host != "::1":
        return
    try:
        socket.create_connection((host, port), LISTENS_SECONDS).close()
    except OSError:
        start = "ollama serve" if name == "ollama" else f"the server of {name}"
        yield Finding("server", "warn", f"nothing listens on {host}:{port}", f"start it: {start}")
        return
    yield Finding("server", "ok", f"something listens on {host}:{port}")


def _sessions() -> Iterator[Finding]:
    files = app.session_files()
    used = 0
    for path in files:
        for name in (path, Path(f"{path}-wal")):
            try:
                used += name.stat().st_size
            except OSError:
                continue
    running = sum(1 for path in files if app.owner_pid(path))
    yield Finding("sessions", "ok", f"{plural(len(files), 'session')}, {size(used)}; {running} running now")


def _damaged() -> Iterator[Finding]:
    """Each session whose log is damaged; those over 64 MiB are looked at by `muse verify` alone."""
    entries = app.catalog().entries(app.session_files())
    bad = [entry for entry in entries if entry.state == "damaged"]
    for entry in bad[:DAMAGED_SHOWN]:
        advice = f"muse recover {short_id(entry.session)} saves what it still holds"
        yield Finding("damaged", "warn", f"{short_id(entry.session)}: {entry.problem}", advice)
    if len(bad) > DAMAGED_SHOWN:
        yield Finding("damaged", "warn", f"and {len(bad) - DAMAGED_SHOWN} more", "muse ls --all shows them")


def _left_running() -> Iterator[Finding]:
    count = sum(1 for _ in app.all_left_running())
    says = f"{plural(count, 'process', 'processes')} left running by sessions"
    yield Finding("processes", "ok", says, "muse processes lists them" if count else "")


CHECKS: Final[tuple[Callable[[], Iterator[Finding]], ...]] = (
    _versions,
    _home,
    _programs,
    _sessions,
    _damaged,
    _left_running,
)
"""What is looked at whatever the settings say."""
