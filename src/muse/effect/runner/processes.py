"""Who a process is, which processes descend from another one, and which belong to a command.

A pid alone names nobody: it is used again. Pid, start time and boot id together name one process for ever.
Standard library only, because the supervisor and the keepers are built from this module. On Linux everything is read
from /proc; elsewhere `ps` and `sysctl` are asked, which is slower and gives start times to the second only.
"""

import contextlib
import os
import signal
from typing import Any

COMMAND_CHARS_MAX = 200
"""How much of a command line is kept to name a process."""
MARK = "MUSE_CALL"
"""The variable that every command and all that it starts has in its environment (`mark_of`), and the name of a mount in
its sandbox. It finds what left its group, its session and its parents."""
ENVIRONMENT_BYTES_MAX = 4 << 20


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


def zombie_start_time(pid: int) -> str:
    """The same for one that has ended and was not waited for; "" where that cannot be told."""
    stat = _stat(pid)
    return "" if stat is None else stat[19]


def identity(pid: int) -> dict[str, Any]:
    """Pid, start time and boot id of a living process, as they are written into files."""
    return {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id()}


def is_alive(pid: int, started: str, boot: str) -> bool:
    """Whether exactly that process still runs: the same pid of another start time or another boot is somebody else."""
    return pid > 0 and started != "" and start_time(pid) == started and boot_id() == boot


def describe(pid: int) -> dict[str, Any]:
    """Pid, start time, process group and command line of a process that was left running."""
    stat = _stat(pid)
    group = int(stat[2]) if stat is not None else 0
    return {"pid": pid, "start_time": start_time(pid), "command": _command_line(pid), "group": group}


def descendants(root: int) -> list[int]:
    """Living processes below `root`, parents before children. Outside Linux: empty."""
    return below([root])


def children(parent: int) -> list[int]:
    """Living processes whose parent is this one. Outside Linux: empty."""
    return [pid for pid in everyone() if (stat := _stat(pid)) and int(stat[1]) == parent and start_time(pid)]


def below(roots: list[int]) -> list[int]:
    """Living processes below any of `roots`, without these themselves."""
    children: dict[int, list[int]] = {}
    for pid in everyone():
        stat = _stat(pid)
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(pid)
    found = list(roots)
    for parent in found:
        found.extend(child for child in children.get(parent, ()) if child not in roots)
    return [pid for pid in found[len(roots) :] if start_time(pid)]


def everyone() -> list[int]:
    """All processes that can be seen. Outside Linux: none."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def session_of(pid: int) -> int:
    """The session that a process belongs to, 0 when there is no such process."""
    stat = _stat(pid)
    return 0 if stat is None else int(stat[3])


def numbers(pid: int) -> list[int]:
    """What a process is called in each process namespace that it is seen from, ours first; empty when it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("NSpid:"):
                return [int(number) for number in line.split()[1:]]
    return []


def mark_prefix(run_dir: str) -> str:
    """What the marks of a run folder begin with: its name, and what tells it from a copy of it elsewhere."""
    found = os.stat(run_dir)
    return f"{os.path.basename(os.path.normpath(run_dir))}.{found.st_dev:x}.{found.st_ino:x}/"


def mark_of(run_dir: str, call: str, attempt: int) -> str:
    """What MARK holds below one command."""
    return f"{mark_prefix(run_dir)}{call}.{attempt}"


def marked(prefix: str) -> list[tuple[int, str]]:
    """Living processes whose mark begins with `prefix`, with their marks. One that cleared or overwrote its environment
    is found by its mounts; not so without a sandbox that has mounts, nor one that runs under another user's rights."""
    wanted = f"{MARK}={prefix}".encode("utf-8", "surrogateescape")
    here = _mounts_seen_by("self")
    found = []
    for pid in everyone():
        entry = next((entry for entry in _environment(pid) if entry.startswith(wanted)), b"")
        if not entry and _mounts_seen_by(pid) not in ("", here):
            entry = next((name for name in _mounted(pid) if name.startswith(wanted)), b"")
        if entry and start_time(pid):
            found.append((pid, entry.partition(b"=")[2].decode("utf-8", "surrogateescape")))
    return found


def of_command(command: dict[str, Any], mark: str) -> list[int]:
    """What lives of a command whose keeper is gone: itself, its session while it leads that, all that carries its mark,
    and everything below these. `command` is its identity as it was written down."""
    if command["boot_id"] != boot_id():
        return []
    roots = {pid for pid, found in marked(mark) if found == mark}
    leader = int(command["pid"])
    if is_alive(leader, command["start_time"], command["boot_id"]):
        roots |= {leader} | {pid for pid in everyone() if session_of(pid) == leader}
    ordered = sorted(roots)
    return [pid for pid in ordered if start_time(pid)] + below(ordered)


def send(pid: int, started: str, number: signal.Signals) -> None:
    """Signal exactly that process; nothing happens when it is gone or beyond our rights."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if not hasattr(os, "pidfd_open"):
            if start_time(pid) == started:
                os.kill(pid, number)
            return
        descriptor = os.pidfd_open(pid)
        try:
            if start_time(pid) == started:  # asked while the descriptor holds on to whoever has the pid now
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat after the name (which may hold anything): state, parent, group, session, …"""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read(ENVIRONMENT_BYTES_MAX).split(b"\0")
    except OSError:
        return []


def _mounts_seen_by(pid: int | str) -> str:
    """What names the mount namespace of a process, "" where that cannot be told."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""


def _mounted(pid: int) -> list[bytes]:
    """The names under which the mounts of a process were made: second after the dash, proc_pid_mountinfo(5)."""
    try:
        with open(f"/proc/{pid}/mountinfo", "rb") as file:
            tails = [line.rpartition(b" - ")[2].split() for line in file]
    except OSError:
        return []
    return [tail[1] for tail in tails if len(tail) > 1]


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
