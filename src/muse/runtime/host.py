"""What the owner's process and machine are: facts for `session.opened`, gathered once at opening.

Reads /proc, git and instruction files; changes nothing. Nothing of the user's git configuration is run.
"""

import os
import platform
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from muse import __version__
from muse.decide.harmless import is_secret
from muse.effect.programs import search_path
from muse.event.content import Git, Host, Instruction, Origin
from muse.event.text import clean, cut
from muse.log.lock import boot_id, start_time

if TYPE_CHECKING:
    from muse.effect.tool.masking import KnownSecrets

INSTRUCTION_BYTES_MAX = 32 * 1024
INSTRUCTION_NAMES = ("AGENTS.md", "CLAUDE.md")
ANCESTRY_MAX = 32
GIT_SECONDS_MAX = 10
INODE_MAX = 2**53 - 1
"""What a log can hold of an inode number."""
GIT_FILTERS_MAX = 100

_GIT_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",  # what is missing would be fetched, by programs that the repository's settings name;
    "GIT_ALLOW_PROTOCOL": "",  # the same for a git older than 2.45, which does not know the one above
    "LC_ALL": "C",
}
_GIT_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false")
_NO_FILTER = {"clean": "", "process": "", "smudge": "", "required": "false"}


def this_host() -> Host:
    """This process, told apart from any later one with the same pid."""
    return Host(
        name=clean(socket.gethostname()).text,
        pid=os.getpid(),
        started=start_time(os.getpid()),
        boot_id=boot_id(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        muse=__version__,
    )


def this_origin(client: str) -> Origin:
    """Where a command submitted by this process comes from."""
    try:
        terminal = os.ttyname(0)
    except OSError:
        terminal = ""
    return Origin(
        pid=os.getpid(), terminal=terminal, user=_user(), client=client, ancestry=tuple(ancestry(os.getpid()))
    )


def ancestry(pid: int) -> list[int]:
    """Parent pids, nearest first, as far as they can be read."""
    found: list[int] = []
    while len(found) < ANCESTRY_MAX and pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            break
        pid = int(stat.rpartition(b")")[2].split()[1])
        if pid > 0:
            found.append(pid)
    return found


def _user() -> str:
    return clean(os.environ.get("USER") or os.environ.get("LOGNAME") or _account()).text


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that no account has
        return str(os.getuid())


def today() -> str:
    """The local date, for the system prompt."""
    return datetime.now().astimezone().strftime("%Y-%m-%d")


def git_state(workspace: Path, writable: Iterable[str] = ()) -> Git | None:
    """Root, head, branch and number of changed paths (-1: could not be counted), or None outside a repository (or
    without a git that lies neither in the workspace nor in a folder that commands may write to)."""
    program = _program(workspace, writable)
    root = _git(program, workspace, "rev-parse", "--show-toplevel")
    if root is None:
        return None
    filters = _without_filters(program, workspace)
    status = ("status", "--porcelain", "--no-renames", "--ignore-submodules=all")
    changed = None if filters is None else _git(program, workspace, *status, settings=filters)
    return Git(
        root=root,
        head=_git(program, workspace, "rev-parse", "--verify", "--quiet", "HEAD") or "",
        branch=_git(program, workspace, "symbolic-ref", "--quiet", "--short", "HEAD") or "",
        changed=-1 if changed is None else len(changed.splitlines()),
    )


def has_commit(folder: Path, commit: str) -> bool:
    """Whether the repository of a folder holds a commit."""
    return _git(_program(folder), folder, "cat-file", "-e", f"{commit}^{{commit}}") is not None


def inode(folder: Path) -> int:
    """The number by which the file system knows a folder, whatever its name; 0 where that cannot be told."""
    try:
        return folder.stat().st_ino & INODE_MAX
    except OSError:
        return 0


def _without_filters(program: str | None, folder: Path) -> dict[str, str] | None:
    """Environment that takes the commands away from every filter driver of the repository's settings, which `status`
    would run to compare a file; None when there are too many of them or they cannot be read."""
    found = _git_output(program, folder, "config", "--includes", "--null", "--name-only", "--list")
    keys = os.fsdecode(found or b"").split("\0")
    drivers = sorted({key.rpartition(".")[0] for key in keys if key.startswith("filter.")})
    if found is None or len(drivers) > GIT_FILTERS_MAX:
        return None
    pairs = [(f"{driver}.{name}", value) for driver in drivers for name, value in _NO_FILTER.items()]
    settings = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return settings


def _program(folder: Path, writable: Iterable[str] = ()) -> str | None:
    return shutil.which("git", path=search_path((str(folder), *writable)))


def _git(program: str | None, folder: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> str | None:
    found = _git_output(program, folder, *arguments, settings=settings)
    return None if found is None else clean(found).text.strip()


def _git_output(
    program: str | None, folder: Path, *arguments: str, settings: Mapping[str, str] | None = None
) -> bytes | None:
    if program is None:
        return None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {**_GIT_ENVIRONMENT, **(settings or {})}
    try:
        done = subprocess.run(
            [program, *_GIT_OPTIONS, "-C", str(folder), *arguments],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_SECONDS_MAX, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def instructions(
    workspace: Path, git_root: str | None, secrets: "KnownSecrets | None" = None
) -> tuple[Instruction, ...]:
    """AGENTS.md (CLAUDE.md where there is none) from the git root down to the workspace, 32 KiB in all, with
    placeholders for the secrets; what a cut leaves of one is left out.

    What such a file is made of goes to the model, so a link that leads out of that root, or to a file of secrets, is
    not followed.
    """
    top = Path(git_root) if git_root else workspace
    folders = [workspace, *workspace.parents]
    folders = folders[: folders.index(top) + 1] if top in folders else [workspace]
    left, found = INSTRUCTION_BYTES_MAX, []
    for folder in reversed(folders):
        path = next((folder / name for name in INSTRUCTION_NAMES if (folder / name).is_file()), None)
        if path is None or left <= 0:
            continue
        data = _instruction_bytes(path, folders[-1], left + 1)
        too_long = len(data) > left
        if secrets is not None:
            data = secrets.mask_bytes(data)
            data = secrets.without_part_at_end(data) if too_long else data
        text = clean(data).text
        if too_long:
            text = cut(text, left, 0).text
        left -= len(data)
        found.append(Instruction(path=str(path), text=text, cut=too_long))
    return tuple(found)


def _instruction_bytes(path: Path, top: Path, limit: int) -> bytes:
    """The first bytes of a file of instructions, or a line that says why they are not here."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(top.resolve()) or is_secret(str(real.relative_to(top.resolve()))):
            return b"(not read: this is a link to a file elsewhere)"
        with real.open("rb") as file:
            return file.read(limit)
    except (OSError, RuntimeError) as error:
        return f"(not read: {getattr(error, 'strerror', None) or error})".encode()
