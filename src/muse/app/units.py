"""What has the system run `muse up` when its user logs in, or at boot: a systemd user unit, a launchd agent.

Text only: nothing here runs a program of the system. No key is ever written into such a file; what it names of the
environment is what muse and the commands of agents need to be found.
"""

import os
import plistlib
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from muse.config import Config, user_file
from muse.errors import MuseError, UsageError

MARK: Final = "written by muse up --install"
LABEL: Final = "muse.up"
"""The name of the launchd agent."""
NEEDED: Final = (
    "PATH", "MUSE_HOME", "MUSE_MODEL", "MUSE_SANDBOX", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "https_proxy", "http_proxy",
    "all_proxy", "no_proxy",
)  # fmt: skip
"""What is written into the file of what is set, with the variables that the settings let commands see."""
FILE_BYTES_MAX: Final = 64 * 1024


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """The file to write; `then` are the lines with which a person puts it to use, `before` those that undo it.
    `left_out` names variables that are set and not written, `keys` those of them that hold a provider's key, `key_file`
    where the unit looks for them ("": nowhere)."""

    path: Path
    text: bytes
    then: tuple[str, ...]
    before: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    key_file: str = ""


def unit_for(config: Config, environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Unit:
    """The file for this system and user. Raises UsageError where the program's path cannot stand in one."""
    from muse.app.commands import known_secrets
    from muse.config import BUILT_IN

    names = dict.fromkeys((*NEEDED, *config.shell_environment))
    providers = {**BUILT_IN, **config.providers}.values()
    keys = tuple(dict.fromkeys(one.api_key_env for one in providers if environment.get(one.api_key_env)))
    hidden = known_secrets(config)
    written: dict[str, str] = {}
    left_out: list[str] = list(keys)
    for name in names:
        value = environment.get(name, "")
        if not value or name in keys:
            continue
        if _may_be_written(name, value) and not hidden.is_in(value.encode()):
            written[name] = value
        else:
            left_out.append(name)
    program = (_program(environment), "up")
    make = _launchd if platform == "darwin" else _systemd
    unit = make(program, written, environment)
    return msgspec.structs.replace(unit, left_out=tuple(left_out), keys=keys)


def _may_be_written(name: str, value: str) -> bool:
    from muse.effect.tool.environment import is_secret_name

    with_password = "proxy" in name.casefold() and "@" in value
    return not is_secret_name(name) and not with_password and _is_text(value)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _program(environment: Mapping[str, str]) -> str:
    """The installed command: the one that runs, or the one beside the interpreter. A link to it stays a link, because
    what it leads to may be replaced by an update."""
    beside = Path(sys.executable).with_name("muse")
    found = next((path for path in (Path(sys.argv[0]), beside) if _is_program(path)), None)
    if found is None and (path := shutil.which("muse", path=environment.get("PATH"))):
        found = Path(path)
    if found is None:
        raise UsageError("the program muse is not to be found", hint="install it, so that `muse` is on the PATH")
    program = os.path.abspath(found)
    if not _is_text(program):
        raise UsageError(f"the program's path is not UTF-8: {program!r}", hint="install it elsewhere")
    return program


def _is_program(path: Path) -> bool:
    return path.name == "muse" and path.is_file() and os.access(path, os.X_OK)


# -- systemd -----------------------------------------------------------------------------------------------------------


def _systemd(program: tuple[str, ...], written: Mapping[str, str], environment: Mapping[str, str]) -> Unit:
    """systemd.service(5): `Type=oneshot` with `RemainAfterExit`, and only the process that is gone by then is ever
    killed, so that stopping the unit leaves hosts and their commands alone."""
    key_file = user_file(environment).with_name(".env")
    lines = [
        f"# {MARK}; muse up --uninstall takes it away",
        "[Unit]",
        "Description=muse: go on with all open sessions",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        f"ExecStart={_started(program)}",
        "KillMode=process",
        "OOMPolicy=continue",
        *(f"Environment={quoted(f'{name}={value}')}" for name, value in written.items()),
        f"EnvironmentFile=-{str(key_file).replace('%', '%%')}",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    base = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME') or Path.home()}/.config"
    return Unit(
        path=Path(base, "systemd", "user", "muse.service"),
        text="\n".join(lines).encode(),
        then=("systemctl --user daemon-reload", "systemctl --user enable --now muse.service", "loginctl enable-linger"),
        before=("systemctl --user disable muse.service", "systemctl --user daemon-reload"),
        key_file=str(key_file),
    )


def _started(program: tuple[str, ...]) -> str:
    """The words of ExecStart. The first may hold no quotes and no backslash: a shell takes such a program as an
    argument. `:` keeps `$` from meaning a variable."""
    odd = any(one in "\"'\\" or one < " " or one == "\x7f" for one in program[0])
    words = ("/bin/sh", "-c", 'exec "$0" "$@"', *program) if odd else program
    return (":" if any("$" in word for word in words) else "") + " ".join(map(quoted, words))


def quoted(word: str) -> str:
    """A word of a unit's line (systemd.syntax(7)): in quotes, with C escapes, and `%` doubled (systemd.unit(5))."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + "".join(f"\\x{ord(one):02x}" if one < " " or one == "\x7f" else one for one in text) + '"'


# -- launchd -----------------------------------------------------------------------------------------------------------


def _launchd(program: tuple[str, ...], written: Mapping[str, str], environment: Mapping[str, str]) -> Unit:
    """launchd.plist(5): run at log-in; what it started goes on when it has ended."""
    home = Path(environment.get("HOME") or Path.home())
    path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    logs = str(home / "Library" / "Logs" / f"{LABEL}.log")
    told = {
        "Label": LABEL,
        "ProgramArguments": list(program),
        "RunAtLoad": True,
        "AbandonProcessGroup": True,
        "EnvironmentVariables": {**written, "MUSE_UNIT": MARK},
        "StandardOutPath": logs,
        "StandardErrorPath": logs,
    }
    return Unit(
        path=path,
        text=plistlib.dumps(told, sort_keys=False),
        then=(f"launchctl bootstrap gui/$(id -u) {_in_shell(path)}",),
        before=(f"launchctl bootout gui/$(id -u)/{LABEL}",),
    )


def _in_shell(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


# -- the file ----------------------------------------------------------------------------------------------------------


def write_unit(unit: Unit) -> bool:
    """Write the file, whole or not at all; False when it stood there just so. Raises UsageError for a file that is not
    ours, MuseError when it cannot be written."""
    before = _kept(unit.path)
    if before == unit.text:
        return False
    if before is not None and MARK.encode() not in before:
        raise UsageError(f"{unit.path} is there, and not of muse", hint="look at it, and move it out of the way")
    draft = unit.path.with_name(f".{unit.path.name}.{secrets.token_hex(4)}")
    try:
        unit.path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(unit.text)
        draft.chmod(0o644)
        draft.replace(unit.path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise MuseError(f"{unit.path} cannot be written: {error.strerror or error}") from error
    return True


def remove_unit(unit: Unit) -> bool:
    """Take the file away; False when there is none. Raises UsageError for one that is not ours."""
    before = _kept(unit.path)
    if before is None:
        return False
    if MARK.encode() not in before:
        raise UsageError(f"{unit.path} is not of muse, and stays", hint="look at it")
    try:
        unit.path.unlink()
    except OSError as error:
        raise MuseError(f"{unit.path} cannot be removed: {error.strerror or error}") from error
    return True


def _kept(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MuseError(f"{path} cannot be read: {error.strerror or error}") from error
