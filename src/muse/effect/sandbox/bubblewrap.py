"""The same plan as arguments of bubblewrap, the program that flatpak starts its applications with.

It has a process namespace of its own besides, so host and runner are out of sight. Its first process stays between
keeper and command, and so does a second one for as long as anything of the command runs.
"""

import os
from typing import Any, Final

from muse.effect.runner.confine import Plan

_CAPABILITIES: Final = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
    "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SYS_CHROOT", "CAP_SETFCAP",
)  # fmt: skip
"""The ones that `confine` leaves to root, too."""


def wrapped(program: str, plan: Plan, argv: list[str], cwd: str) -> list[str]:
    """The command line that runs `argv` in `cwd` under the plan. What exists is looked at now."""
    line = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid"]
    if plan["network"] != "open":
        line.append("--unshare-net")
    if os.geteuid() == 0:
        line += ["--cap-drop", "ALL", *(word for name in _CAPABILITIES for word in ("--cap-add", name))]
    writable = [path for path in plan["writable"] if not path.startswith("/dev/")]  # there is a new one
    for option, paths in (
        ("--bind-try", [*writable, *plan["pinned"]]),
        ("--ro-bind-try", plan["guarded"]),
        ("--bind-try", plan["again"]),
        ("--ro-bind-try", plan["readonly"]),
    ):
        for path in paths:
            line += [option, path, path]
    for path in plan["hidden"]:
        if os.path.isdir(path):
            line += ["--tmpfs", path, "--remount-ro", path]
        elif os.path.exists(path):
            line += ["--ro-bind", os.devnull, path]
    return [*line, "--chdir", cwd, "--", *argv]


def marks(program: str) -> dict[str, Any]:
    """What the keeper is told of a command that runs under it: that it has a process namespace of its own, with
    processes of this program around the command."""
    return {"wrapper": program}
