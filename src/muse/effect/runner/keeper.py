"""The keeper: one small process per command. It starts it, spools its output, ends it, and writes how it ended.

A keeper is forked from the supervisor and needs nobody afterwards: host and supervisor may die, and the `exit` file is
still written. It adopts every orphan of its command (`PR_SET_CHILD_SUBREAPER`), so it knows exactly what was left
running and can end all of it. Output comes through a pipe and never as the spool itself, since a shell's
`> /dev/stderr` would truncate a file. It knows nothing of sockets, epochs and other commands.

Signals: SIGUSR1 asks it to end the command. HUP, INT, QUIT and TERM are ignored; at a shutdown the command gets its
own, and the keeper writes down how it took it. Standard library only.
"""

import contextlib
import errno
import json
import os
import select
import signal
import time
from typing import Any, NoReturn

from muse.effect.runner import files, processes
from muse.effect.runner.confine import confine
from muse.failpoint import hit

CANCEL_SIGNAL = signal.SIGUSR1
READ_BYTES = 1 << 16
FINAL_DRAIN_BYTES_MAX = 1 << 20
"""What is read after the command's end; more than a pipe holds, so only what others still write is cut."""
SETTLE_SECONDS = 0.1
"""After the end of the shell: time for its last children (`> >(tee log)`) to end before they count as left running."""
KILL_ROUND_SECONDS = 0.05
WAIT_SECONDS_MAX = 3600.0
"""No single wait is longer, since poll() takes a limited number."""
KILL_GIVE_UP_SECONDS = 5.0
"""After SIGKILL: how long until a process that does not go (stuck in the kernel) is reported instead."""
UNSEEN_END_SECONDS = 1.0
"""How often a group is looked at where its orphans do not become our children."""
LEFT_RUNNING_MAX = 64
"""How many processes left running are named."""
EXIT_TRIES_MAX = 600
EXIT_RETRY_SECONDS = 1.0
"""A full disk may delay the `exit` file; after that many tries the attempt is lost."""
ROOM_BYTES = 1 << 16
"""Taken before the command starts and given back for its `exit` file, so that a disk which it fills has room for it."""

_PR_SET_CHILD_SUBREAPER = 36
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_RESTORED = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, CANCEL_SIGNAL)
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


def become_subreaper() -> bool:
    """Let orphans below this process become its children. False where the system cannot do it."""
    try:
        import ctypes  # slow to import: loaded after the supervisor is ready

        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def keep(folder: str, spec: dict[str, Any], report_fd: int, lock_fd: int) -> NoReturn:
    """Run one command to its end, in a process of its own. Writes `accepted`, `refused …`, `exited` lines.

    The supervisor's lock is held on to until `accepted` is written: so a new supervisor meets no start under way.
    """
    status = 1
    try:
        os.setsid()  # what is sent to the supervisor's group is not for us
        _close_all_but((report_fd, lock_fd))
        os.set_blocking(report_fd, False)
        Keeper(folder, spec, report_fd, lock_fd).run()
        status = 0
    except OSError as error:
        _report(report_fd, f"refused {error}")
        raise
    finally:
        if status:
            import traceback

            traceback.print_exc()
        os._exit(status)


class Keeper:
    """State of one command; `run` is its whole life."""

    def __init__(self, folder: str, spec: dict[str, Any], report_fd: int, lock_fd: int) -> None:
        self.folder = folder
        self.spec = spec
        self.report_fd = report_fd
        self.lock_fd = lock_fd
        self.pid = 0
        self.mark = processes.mark_of(os.path.dirname(os.path.dirname(folder)), spec["call"], spec["attempt"])
        self.wait_status: int | None = None
        self.lingering = False
        self.has_others = False
        self.cancel_asked = False
        self.ending = ""
        self.spool_error = ""
        self.ending_left = False
        self.output_bytes = 0
        self.output_open = True
        self.subreaper = False
        self.started_at = 0.0
        self.output_bytes_max = int(spec["output_bytes_max"])
        self.wrapper = str(spec["confine"].get("wrapper", ""))
        self.deadline: float | None = None
        self.settle_at: float | None = None
        self.kill_at = 0.0
        self.give_up_at = 0.0
        self.ended_at = 0.0

    def run(self) -> None:
        """Start, watch, write the exit, and stay as the parent of what was left running."""
        self._watch_signals()
        self.subreaper = become_subreaper()
        files.make_folder(os.path.dirname(self.folder))
        files.make_folder(self.folder)
        spool = os.path.join(self.folder, files.OUTPUT)
        self.spool_fd = files.open_private(spool, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._take_room()
        hit("keeper_begun")
        if not self._start():
            self._give_room_back()
            _report(self.report_fd, "refused exists")
            return
        self.poll = select.poll()
        self.poll.register(self.output_fd, select.POLLIN)
        self.poll.register(self.wake_fd, select.POLLIN)
        while not self._is_over(time.monotonic()):
            self._turn()
        self._drain(FINAL_DRAIN_BYTES_MAX)
        hit("keeper_ended")
        self._write_exit()
        hit("keeper_exited")
        _report(self.report_fd, "exited")
        self._linger()

    # ---- the start

    def _watch_signals(self) -> None:
        self.wake_fd, wake_write = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(CANCEL_SIGNAL, self._on_cancel)

    def _on_cancel(self, *_: object) -> None:
        self.cancel_asked = True

    def _start(self) -> bool:
        """Fork the command, held at a gate until `accepted` is durable. False when somebody else was first."""
        self.output_fd, output_write = os.pipe()
        self.error_fd, error_write = os.pipe()
        gate_read, gate_write = os.pipe()
        os.set_blocking(self.output_fd, False)
        os.set_blocking(self.error_fd, False)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(gate_write)
            os.close(self.lock_fd)
            _become_command(self.spec, self.mark, gate_read, output_write, error_write)
        for fd in (output_write, error_write, gate_read):
            os.close(fd)
        hit("keeper_forked")
        accepted = {name: self.spec[name] for name in ("epoch", "call", "attempt", "args_digest", "request")}
        accepted |= {"time_ms": time.time_ns() // 1_000_000, "timeout_ms": self.spec["timeout_ms"]}
        accepted |= {"keeper": processes.identity(os.getpid()), "command": processes.identity(self.pid)}
        if not files.create_durable(os.path.join(self.folder, files.ACCEPTED), accepted):
            return False
        hit("keeper_accepted")
        os.close(self.lock_fd)
        _report(self.report_fd, "accepted")
        os.write(gate_write, b"x")
        hit("keeper_started")
        os.close(gate_write)
        self.started_at = time.monotonic()
        if self.spec["timeout_ms"] > 0:
            self.deadline = self.started_at + self.spec["timeout_ms"] / 1000
        return True

    def _take_room(self) -> None:
        """Raises OSError on a disk that is full already: the command is then refused and did not start."""
        self.room = os.path.join(self.folder, f"room.{os.getpid()}")
        room_fd = files.open_private(self.room, os.O_WRONLY | os.O_CREAT)
        try:
            if os.write(room_fd, bytes(ROOM_BYTES)) < ROOM_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._give_room_back()
            raise
        finally:
            os.close(room_fd)

    def _give_room_back(self) -> None:
        with contextlib.suppress(OSError):  # it goes with the folder at the latest
            os.unlink(self.room)

    # ---- the watch

    def _turn(self) -> None:
        now = time.monotonic()
        due = self._next_due(now)
        self._wait(None if due is None else due - now)
        self._reap()

    def _wait(self, seconds: float | None) -> None:
        """Until a child ended, a signal came or the time is over; output that came is moved to the spool."""
        limited = WAIT_SECONDS_MAX if seconds is None else min(max(0.0, seconds), WAIT_SECONDS_MAX)
        for fd, _ in self.poll.poll(limited * 1000 + 0.5):
            if fd == self.wake_fd:
                _read_some(self.wake_fd)
            else:
                self._drain(READ_BYTES)

    def _next_due(self, now: float) -> float | None:
        if self.ending:
            wanted = self.kill_at if now < self.kill_at else min(self.give_up_at, now + KILL_ROUND_SECONDS)
            return wanted if self.subreaper else min(wanted, now + KILL_ROUND_SECONDS)
        if self.wait_status is not None:
            return self.settle_at
        return self.deadline

    def _reap(self) -> None:
        """Collect every child that ended; `has_others` says whether anything of the command still runs."""
        while True:
            ended, started = _next_ended() if self.lingering else (0, "")
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.has_others = False
                break
            if pid == 0:
                self.has_others = True
                break
            if pid == self.pid:
                self.wait_status = status
                self.ended_at = time.monotonic()
            elif self.lingering:
                self._note_end(pid, started if pid == ended else "", os.waitstatus_to_exitcode(status))
        if not self.subreaper:
            self.has_others = _group_exists(self.pid)

    def _note_end(self, pid: int, started: str, status: int) -> None:
        """How a process that was left running has ended: told while our folder is there, for the log."""
        content = {"pid": pid, "start_time": started, "asked": self.ending_left}
        content |= {"code": status if status >= 0 else None, "signal": -status if status < 0 else None}
        files.append_line(os.path.join(self.folder, files.ENDS), content)

    def _is_over(self, now: float) -> bool:
        """Decide what the clock, the size of the output and a cancel ask for. True when the exit can be written."""
        if not self.ending:
            self._begin_ending(now)
        if self.ending:
            if now >= self.kill_at:
                self._signal_all(signal.SIGKILL)
            return (self.wait_status is not None and not self.has_others) or now >= self.give_up_at
        if self.wait_status is None:
            return False
        if self.settle_at is None:
            self.settle_at = now + SETTLE_SECONDS
        return not self.has_others or now >= self.settle_at

    def _begin_ending(self, now: float) -> None:
        if self.cancel_asked:
            self.ending = "cancelled"
        elif self.deadline is not None and now >= self.deadline and self.wait_status is None:
            self.ending = "timed_out"
        elif self.spool_error:
            self.ending = "spool_failed"
        elif self.output_bytes > self.output_bytes_max:
            self.ending = "output_limit"
        else:
            return
        at_once = self.ending in ("spool_failed", "output_limit")
        self.kill_at = now if at_once else now + max(0, self.spec["grace_ms"]) / 1000
        self.give_up_at = self.kill_at + KILL_GIVE_UP_SECONDS
        if not at_once:
            self._ask_all_to_end()

    def _ask_all_to_end(self) -> None:
        """SIGTERM, and SIGCONT: a process that is stopped could not see the one without the other."""
        self._signal_all(signal.SIGTERM)
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        """Signal the command's process group and everything else that descends from it."""
        if self.wrapper and number != signal.SIGKILL:
            for pid in self._inside(processes.descendants(os.getpid())):
                _signal_outside_group(pid, 0, number)
            return
        ours = processes.descendants(os.getpid()) if self.subreaper else []
        # Once the command was waited for and nothing is left in its group, the number may be that of others.
        if not self.subreaper or self.wait_status is None or any(_group_of(pid) == self.pid for pid in ours):
            # No such group: it is gone, or its leader has not reached setsid and is found below.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        if self.subreaper:
            for pid in ours:
                _signal_outside_group(pid, self.pid, number)
        elif self.wait_status is None:
            _signal_outside_group(self.pid, self.pid, number)

    def _inside(self, pids: list[int]) -> list[int]:
        """Without the processes of the sandbox's own program, which would end before the command does: those that are
        not in its process namespace, and the first one in it. What a process calls itself says nothing."""
        if not self.wrapper:
            return pids
        outside = len(processes.numbers(os.getpid()))
        return [pid for pid in pids if (numbers := processes.numbers(pid)) and numbers[outside:] not in ([], [1])]

    def _drain(self, limit: int) -> None:
        """Move output that is ready, at most about `limit` bytes, from the pipe to the spool."""
        moved = 0
        while self.output_open and moved < limit:
            try:
                data = os.read(self.output_fd, READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self.output_open = False
                self.poll.unregister(self.output_fd)
                return
            moved += len(data)
            self._spool(data)

    def _spool(self, data: bytes) -> None:
        if self.spool_error:
            return
        view = memoryview(data)
        try:
            while view:
                written = os.write(self.spool_fd, view)
                self.output_bytes += written
                view = view[written:]
        except OSError as error:
            self.spool_error = os.strerror(error.errno or errno.EIO)

    # ---- the end

    def _write_exit(self) -> None:
        if self.ending == "cancelled":
            self.cancel_asked = False  # that one is done; who reads the exit may send a new one at once
        left = self._inside(processes.descendants(os.getpid())) if self.has_others else []
        others = bool(left) if self.subreaper else self.has_others
        status = None if self.wait_status is None else os.waitstatus_to_exitcode(self.wait_status)
        content = {
            "code": status if status is not None and status >= 0 else None,
            "signal": -status if status is not None and status < 0 else None,
            "start_error": _read_some(self.error_fd).decode("utf-8", "replace"),
            "timed_out": self.ending == "timed_out",
            "cancelled": self.ending == "cancelled",
            "output_limit_reached": self.ending == "output_limit",
            "spool_error": self.spool_error,
            "time_ms": time.time_ns() // 1_000_000,
            "duration_ms": round(((self.ended_at or time.monotonic()) - self.started_at) * 1000),
            "output_bytes": self.output_bytes,
            "group_gone": self.wait_status is not None and not others,
            "left_running": [processes.describe(pid) for pid in left[:LEFT_RUNNING_MAX]],
        }
        self._give_room_back()
        for tries in range(EXIT_TRIES_MAX):
            try:
                if self.output_bytes:
                    files.sync(self.spool_fd)
                files.write_durable(os.path.join(self.folder, files.EXIT), content)
                return
            except OSError:
                if not os.path.isdir(self.folder):
                    return  # the host saw the exit while it was being made durable and, done with it, took all away
                if tries == EXIT_TRIES_MAX - 1:
                    raise
                if self.spool_error and content["output_bytes"]:
                    # The disk filled up and the output is cut anyway: its tail makes room for the record of that.
                    self.output_bytes = content["output_bytes"] = max(0, self.output_bytes - ROOM_BYTES)
                    os.ftruncate(self.spool_fd, self.output_bytes)
                else:
                    time.sleep(EXIT_RETRY_SECONDS)

    def _linger(self) -> None:
        """Stay while something was left running: keep its pipe open, reap it and note how it ended, end it when asked.

        The folder stays after the last of it, so that the host can put that into the log and then discard it.
        """
        self.lingering = True
        kill_at: float | None = None
        kill_round = KILL_ROUND_SECONDS
        self._reap()
        while self.has_others:
            now = time.monotonic()
            if self.cancel_asked:
                self.cancel_asked = False
                self.ending_left = True
                self._ask_all_to_end()
                kill_at = now + max(0, self.spec["grace_ms"]) / 1000
            elif kill_at is not None and now >= kill_at:
                self._signal_all(signal.SIGKILL)
                kill_at = now + kill_round
                kill_round = min(2 * kill_round, KILL_GIVE_UP_SECONDS)
            if self.output_bytes > self.output_bytes_max or os.fstat(self.spool_fd).st_nlink == 0:
                self.spool_error = self.spool_error or "closed"  # late output is dropped from here on
            wait = WAIT_SECONDS_MAX if kill_at is None else kill_at - now
            self._wait(wait if self.subreaper else min(wait, UNSEEN_END_SECONDS))
            self._reap()


def _next_ended() -> tuple[int, str]:
    """Pid and start time of the child that is to be waited for next: both are forgotten when it was."""
    if not hasattr(os, "waitid"):
        return 0, ""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0, ""
    return (found.si_pid, processes.zombie_start_time(found.si_pid)) if found is not None else (0, "")


def _become_command(spec: dict[str, Any], mark: str, gate_read: int, output_write: int, error_write: int) -> NoReturn:
    """The forked child: wait at the gate, then turn into the command. Never returns."""
    doing, status = "start", _NOT_EXECUTABLE
    try:
        os.setsid()
        for number in _RESTORED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if not os.read(gate_read, 1):
            os._exit(0)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output_write, 1), (output_write, 2)):
            os.dup2(source, target)
        os.umask(spec["umask"])
        if "abi" in spec["confine"]:
            doing = "confine the command"
            confine(spec["confine"], f"{processes.MARK}={mark}")
        doing = f"enter {spec['cwd']}"
        os.chdir(spec["cwd"])
        doing, status = f"execute {spec['argv'][0]}", _NOT_FOUND
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"] | {processes.MARK: mark})
    except (OSError, ValueError) as error:
        if not isinstance(error, FileNotFoundError):
            status = _NOT_EXECUTABLE
        reason = error.strerror if isinstance(error, OSError) else str(error)
        os.write(error_write, f"cannot {doing}: {reason}".encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _signal_outside_group(pid: int, group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended, or took another user's rights
        if os.getpgid(pid) != group:
            os.kill(pid, number)


def _group_of(pid: int) -> int:
    """The process group of a process, 0 when it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read_some(fd: int) -> bytes:
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return b""


def _report(fd: int, line: str) -> None:
    with contextlib.suppress(OSError):  # the supervisor may be gone; the files say the same
        os.write(fd, json.dumps(line).encode("ascii") + b"\n")


def _close_all_but(kept: tuple[int, ...]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # the one that listed them is closed by now
                os.close(int(name))
