"""Who a process is, and which processes descend from another one.

A pid alone names nobody: it is used again. Pid, start time and boot id together name one process for ever.
Standard library only, because the supervisor and the keepers are built from this module. On Linux everything is read
from /proc; elsewhere `ps` and `sysctl` are asked, which is slower and gives start times to the second only.
"""

import os
from typing import Any

COMMAND_CHARS_MAX = 200
"""How much of a command line is kept to name a process."""


def boot_id() -> str:
    """A text that differs after each boot of the machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return _ask("sysctl", "-n", "kern.boottime")


def start_time(pid: int) -> str:
    """When the process started (clock ticks since boot on Linux), "" when there is no such process or only a zombie."""
    if os.path.exists("/proc/self/stat"):
        stat = _stat(pid)
        return "" if stat is None or stat[0] in ("Z", "X") else stat[19]
    answer = _ask("ps", "-o", "stat=,lstart=", "-p", str(pid))
    state, _, started = answer.partition(" ")
    return "" if state.startswith("Z") else started.strip()


def identity(pid: int) -> dict[str, Any]:
    """Pid, start time and boot id of a living process, as they are written into files."""
    return {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id()}


def is_alive(pid: int, started: str, boot: str) -> bool:
    """Whether exactly that process still runs: the same pid of another start time or another boot is somebody else."""
    return pid > 0 and started != "" and start_time(pid) == started and boot_id() == boot


def describe(pid: int) -> dict[str, Any]:
    """Pid, start time and command line of a process that was left running."""
    return {"pid": pid, "start_time": start_time(pid), "command": _command_line(pid)}


def descendants(root: int) -> list[int]:
    """Living processes below `root`, parents before children. Outside Linux: empty."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        stat = _stat(int(name)) if name.isdigit() else None
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(int(name))
    found = [root]
    for parent in found:
        found.extend(children.get(parent, ()))
    return [pid for pid in found[1:] if start_time(pid)]


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat after the name (which may hold anything): state, parent, group, session, …"""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            line = file.read(COMMAND_CHARS_MAX * 4).rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return _ask("ps", "-o", "command=", "-p", str(pid))[:COMMAND_CHARS_MAX]
    return line.decode("utf-8", "replace")[:COMMAND_CHARS_MAX]


def _ask(*argv: str) -> str:
    """Standard output of a small system tool, "" when it is missing or fails."""
    import subprocess  # slow to import, and never needed on Linux

    try:
        return (
            subprocess.run(argv, capture_output=True, check=True, timeout=5).stdout.decode("utf-8", "replace").strip()
        )
    except (OSError, subprocess.SubprocessError):
        return ""
