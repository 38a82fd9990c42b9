"""What this machine has for a sandbox. Nothing is believed that was not tried: bubblewrap may be installed where user
namespaces are forbidden, and a kernel may know Landlock and have it turned off.
"""

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from muse.effect.programs import search_path
from muse.effect.runner import confine

TRY_SECONDS: Final = 10
_CONFINE: Final = Path(confine.__file__)
_BUBBLEWRAP_TRIED: Final = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """`landlock`: its version, 0 for none. `mounts`: a mount namespace of our own works together with Landlock, where
    `user` with a user namespace; `why` not. `network`: so does a network namespace. `bubblewrap`: where the program is
    ("" for nowhere), `bubblewrap_works` whether it ran, `bubblewrap_says` its version or why not, `bubblewrap_network`
    whether it can take the network away."""

    landlock: int = 0
    mounts: bool = False
    user: bool = False
    network: bool = False
    why: str = ""
    bubblewrap: str = ""
    bubblewrap_works: bool = False
    bubblewrap_network: bool = False
    bubblewrap_says: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether it lacks nothing without bubblewrap."""
        return self.landlock >= confine.ABI_SCOPES and self.mounts and self.network


def this_machine(writable: Iterable[str] = ()) -> Machine:
    """All of it, tried once in the life of this process; some tens of milliseconds each. bubblewrap is looked for
    outside of the folders of `writable`."""
    return _with_bubblewrap(search_path(writable))


def enough_of_this_machine(writable: Iterable[str] = ()) -> Machine:
    """As `this_machine`, and bubblewrap is not asked where there is better."""
    found = _namespaces()
    return found if found.is_complete else this_machine(writable)


@functools.cache
def _with_bubblewrap(where: str) -> Machine:
    machine = _namespaces()
    path = shutil.which("bwrap", path=where)
    if sys.platform != "linux" or path is None:
        return machine
    says = _tried(path, ())
    works = not says
    return msgspec.structs.replace(
        machine,
        bubblewrap=path,
        bubblewrap_works=works,
        bubblewrap_network=works and not _tried(path, ("--unshare-net",)),
        bubblewrap_says=says or _version(path),
    )


@functools.cache
def _namespaces() -> Machine:
    if sys.platform != "linux":
        return Machine(why="only Linux has what it takes")
    command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_CONFINE)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_SECONDS, check=True, cwd="/"
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Machine(why=f"what it can do could not be tried: {error}")
    return Machine(
        landlock=found["abi"], mounts=found["mounts"], user=found["user"], network=found["network"], why=found["why"]
    )


def _tried(path: str, more: tuple[str, ...]) -> str:
    """Why bubblewrap does not run here, "" when it does."""
    try:
        done = subprocess.run(
            [path, *_BUBBLEWRAP_TRIED, *more, "--", "/bin/sh", "-c", "exit 7"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_SECONDS, check=False, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 7:
        return ""
    return done.stderr.decode("utf-8", "replace").strip().partition("\n")[0] or f"exit code {done.returncode}"


def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout.decode("utf-8", "replace").strip()
