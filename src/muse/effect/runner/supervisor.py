"""The supervisor of one session's runner folder: takes requests on a socket, starts one keeper per command.

Run as `python -I -S -B -X utf8 supervisor.py <run_dir> [idle seconds]`; it detaches, prints `ready` or `taken`, and
goes on alone. It is the one door for starts: it refuses lower epochs and second starts, and it announces exits. It
holds nothing that is not in the files too (`protocol.py` describes them), so when it dies another one takes over, also
for the commands that run. Standard library only, and no package above this module is loaded, so that it is up soon.
"""

import contextlib
import errno
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

if __name__ == "__main__":
    # The package by its real name without running any `__init__` above it: those load what a supervisor must not need.
    _here = os.path.dirname(os.path.abspath(__file__))
    for _name, _up in (("muse.effect.runner", 0), ("muse.effect", 1), ("muse", 2)):
        _package = type(sys)(_name)
        _package.__path__ = [os.path.abspath(os.path.join(_here, *[".."] * _up))]
        sys.modules[_name] = _package

from muse.effect.runner import files, keeper, peers, processes
from muse.effect.runner.orphans import Orphans
from muse.failpoint import hit

IDLE_SECONDS = 30.0
ANSWER_BACKLOG_BYTES_MAX = 16 << 20
CONNECTIONS_MAX = 450
RUNNING_MAX = 450
"""Both together stay below the usual 1,024 open files."""
FULL_PAUSE_SECONDS = 0.05
STOP_SECONDS_MAX = 15.0
LOG_BYTES_MAX = 1 << 20
POLL_ADOPTED_SECONDS = 0.1

Key = tuple[str, int]
Message = dict[str, Any]

_SPEC_TYPES = {
    "call": str, "attempt": int, "args_digest": str, "request": str, "argv": list, "cwd": str, "env": dict,
    "timeout_ms": int, "grace_ms": int, "output_bytes_max": int, "umask": int, "confine": dict,
}  # fmt: skip


class Refused(Exception):
    """A request that is answered with `refused`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.answer: Message = {"is": "refused", "reason": reason, "detail": detail}


class Connection:
    """One client: bytes in, bytes out, and the attempts whose exit it waits for."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = bytearray()
        self.unsent = bytearray()

    def say(self, message: Message) -> None:
        self.unsent += json.dumps(message).encode("ascii") + b"\n"


class Watched:
    """One keeper whose command has not ended: our child, or one of an earlier supervisor (`report_fd` -1, polled)."""

    def __init__(self, key: Key, report_fd: int, epoch: int = 0) -> None:
        self.key = key
        self.epoch = epoch
        self.report_fd = report_fd
        self.heard = bytearray()
        self.keeper_pid = 0
        self.silent = report_fd < 0
        self.accepted = report_fd < 0
        self.cancel_asked = False
        self.starters: list[Connection] = []
        self.attached: set[Connection] = set()


class Supervisor:
    """The loop and what it knows. Everything here can be found again in the files."""

    def __init__(self, run_dir: str, idle_seconds: float, lock_fd: int) -> None:
        self.run_dir = run_dir
        self.lock_fd = lock_fd
        self.idle_seconds = idle_seconds
        self.identity = processes.identity(os.getpid())
        stored = files.read_json(os.path.join(run_dir, files.EPOCH))
        self.epoch = int(stored["epoch"]) if stored else 0
        self.connections: dict[int, Connection] = {}
        self.watched: dict[Key, Watched] = {}
        self.reports: dict[int, Watched] = {}
        self.keepers: dict[int, Key] = {}
        self.orphans: dict[Key, Orphans] = {}
        self.awaiting: dict[Key, set[Connection]] = {}
        self.strays: set[int] = set()
        self.pings: list[Connection] = []
        self.stopping: Connection | None = None
        self.stop_at: float | None = None
        self.poll = select.poll()
        self.wake_fd, self.wake_write = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self.wake_write, False)
        self.listener = self._listen()
        self.poll.register(self.wake_fd, select.POLLIN)
        self.poll.register(self.listener.fileno(), select.POLLIN)
        self._adopt()

    def _listen(self) -> socket.socket:
        """Bind in the folder itself: a relative name is short however long the path is."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.chdir(self.run_dir)
        try:
            if os.path.lexists(files.SOCKET):
                os.unlink(files.SOCKET)  # of a supervisor that died; we hold the lock
            listener.bind(files.SOCKET)
            os.chmod(files.SOCKET, 0o600)
        finally:
            os.chdir("/")
        listener.listen(128)
        listener.setblocking(False)
        return listener

    def _adopt(self) -> None:
        files.remove_rests(self.run_dir)
        for key in files.attempts(self.run_dir):
            state = self._state(key)
            if state["state"] == "running":
                self.watched[key] = Watched(key, -1)
            elif state["state"] == "lost":
                self._lose(key, state["accepted"], [])

    # ---- the loop

    def serve(self) -> None:
        """Until nobody is connected and nothing runs for the idle time, or until told to stop."""
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, keeper.CANCEL_SIGNAL):
            signal.signal(number, signal.SIG_IGN)
        idle_since = time.monotonic()
        while True:
            now = time.monotonic()
            if self.connections or self.watched or self.orphans:
                idle_since = now
            if now - idle_since >= self.idle_seconds or self._is_stopped(now):
                break
            self._turn(None if self.connections or self.watched else idle_since + self.idle_seconds - now)
        self.listener.close()
        os.unlink(os.path.join(self.run_dir, files.SOCKET))

    def _turn(self, wait: float | None) -> None:
        adopted = [watched for watched in self.watched.values() if watched.report_fd < 0]
        if adopted or self.orphans or self.stop_at is not None:
            wait = POLL_ADOPTED_SECONDS
        for fd, _ in self.poll.poll(None if wait is None else max(0.0, wait * 1000 + 0.5)):
            if fd == self.wake_fd:
                self._reap()
            elif fd == self.listener.fileno():
                self._accept()
            elif fd in self.reports:
                self._hear(self.reports[fd])
            elif fd in self.connections:
                self._receive(self.connections[fd])
        self._look_after(adopted)
        self._answer_pings()
        self._send_all()

    def _look_after(self, adopted: list[Watched]) -> None:
        for watched in adopted:
            state = self._state(watched.key)
            if state["state"] == "lost":
                self._lose(watched.key, state["accepted"], [])
            if state["state"] != "running":
                self._ended(watched)
        for key in list(self.orphans):
            self._tend(key)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError, ChildProcessError):  # nothing to read, or no child left
            os.read(self.wake_fd, 4096)
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in self.keepers:
                    self._keeper_ended(self.keepers.pop(ended[0]), ended[0], orderly=ended[1] == 0)

    def _keeper_ended(self, key: Key, pid: int, *, orderly: bool) -> None:
        """What a killed keeper had below it is below us now: the rest of its command, or, where that had ended before,
        what it had left running, which stays."""
        state = self._state(key)
        if not orderly:
            ours = [pid for pid in processes.children(os.getpid()) if pid not in self.keepers]
            fresh = [pid for pid in ours if pid not in self.strays]
            self.strays = set(ours)
            if state["state"] == "lost":
                mark = processes.mark_of(self.run_dir, *key)
                others = {pid for pid, found in processes.marked("") if found != mark}
                self._lose(key, state["accepted"], [pid for pid in fresh if pid not in others])
        watched = self.watched.get(key)
        if watched is not None and watched.keeper_pid == pid:
            self._hear(watched)  # what it said last
            self._ended(watched)

    # ---- commands without a keeper

    def _lose(self, key: Key, accepted: Message, strays: list[int]) -> None:
        folder = files.call_folder(self.run_dir, *key)
        if not os.path.lexists(os.path.join(folder, files.LOST)):
            self.orphans[key] = Orphans(folder, accepted, processes.mark_of(self.run_dir, *key), strays)
            self._tend(key)

    def _tend(self, key: Key) -> None:
        with contextlib.suppress(OSError):  # a full disk: `lost` is written when there is room
            if self.orphans[key].tend():
                del self.orphans[key]
                for connection in self.awaiting.pop(key, ()):
                    connection.say(self._ending(key) | {"epoch": self.epoch})

    def _accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(FULL_PAUSE_SECONDS)  # it stays in the queue; do not spin until a descriptor is free
            return
        if len(self.connections) >= CONNECTIONS_MAX or not _same_user(sock) or peers.is_below(sock, sys.argv[:2]):
            sock.close()
            return
        sock.setblocking(False)
        self.connections[sock.fileno()] = Connection(sock)
        self.poll.register(sock.fileno(), select.POLLIN)

    def _receive(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(connection.received) > files.REQUEST_BYTES_MAX:
            self._drop(connection)
            return
        connection.received += data
        while b"\n" in data:
            line, _, rest = bytes(connection.received).partition(b"\n")
            connection.received = bytearray(rest)
            self._answer(connection, line)
            data = rest

    def _send_all(self) -> None:
        for connection in list(self.connections.values()):
            events = select.POLLIN
            try:
                if connection.unsent:
                    del connection.unsent[: connection.sock.send(connection.unsent)]
            except BlockingIOError:
                pass  # a slow reader: POLLOUT says when to go on
            except OSError:
                self._drop(connection)
                continue
            if len(connection.unsent) > ANSWER_BACKLOG_BYTES_MAX:
                self._drop(connection)
                continue
            if connection.unsent:
                events |= select.POLLOUT
            self.poll.modify(connection.sock.fileno(), events)

    def _drop(self, connection: Connection) -> None:
        fd = connection.sock.fileno()
        if self.connections.pop(fd, None) is None:
            return
        self.poll.unregister(fd)
        connection.sock.close()
        for waiting in (*(watched.attached for watched in self.watched.values()), *self.awaiting.values()):
            waiting.discard(connection)

    # ---- requests

    def _answer(self, connection: Connection, line: bytes) -> None:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise Refused("invalid", "a request is a JSON object")
            answer = self._do(connection, request)
        except Refused as refused:
            answer = refused.answer
        except (ValueError, KeyError, TypeError) as error:
            answer = Refused("invalid", f"{type(error).__name__}: {error}").answer
        except OSError as error:
            answer = Refused("failed", str(error)).answer
        if answer is not None:
            connection.say(answer | {"epoch": self.epoch})

    def _do(self, connection: Connection, request: Message) -> Message | None:
        match request.get("do"):
            case "ping":
                self._see_epoch(request)
                self.pings.append(connection)
                return None  # answered when no start of an earlier owner is under way
            case "start":
                self._see_epoch(request)
                return self._start(connection, request)
            case "attach":
                return self._attach(connection, _key(request))
            case "cancel":
                self._see_epoch(request)
                return self._cancel(_key(request))
            case "status":
                states = [self._state(key) for key in files.attempts(self.run_dir)]
                return {"is": "status", "attempts": states}
            case "stop":
                self._see_epoch(request)
                return self._stop(connection, request.get("kill") is True)
            case other:
                raise Refused("invalid", f"no such request: {other!r}")

    def _see_epoch(self, request: Message) -> None:
        """Fence: the highest epoch ever seen is durable before anything is done for it; lower ones are refused."""
        epoch = request["epoch"]
        if not isinstance(epoch, int) or epoch < self.epoch:
            raise Refused("fenced", f"epoch {epoch!r} is over: {self.epoch} has been seen")
        if epoch > self.epoch:
            files.write_durable(os.path.join(self.run_dir, files.EPOCH), {"epoch": epoch})
            self.epoch = epoch

    def _answer_pings(self) -> None:
        """After a pong, what the files say of an earlier owner's starts is final."""
        under_way = [
            watched for watched in self.watched.values() if not watched.accepted and watched.epoch < self.epoch
        ]
        if not under_way:
            for connection in self.pings:
                connection.say({"is": "pong", "protocol": files.PROTOCOL, "epoch": self.epoch} | self.identity)
            self.pings.clear()

    def _start(self, connection: Connection, request: Message) -> Message | None:
        key = _key(request)
        spec = _checked(request)
        folder = files.call_folder(self.run_dir, *key)
        if self.stop_at is not None:
            raise Refused("failed", "the runner is stopping")
        under_way = self.watched.get(key)
        if under_way is not None and not under_way.accepted:
            under_way.starters.append(connection)
            return None
        if os.path.lexists(os.path.join(folder, files.ACCEPTED)):
            raise self._exists(key)
        if len(self.watched) >= RUNNING_MAX:
            raise Refused("limit", f"{RUNNING_MAX} commands are running")
        report_read, report_write = os.pipe()
        hit("supervisor_start")
        pid = os.fork()
        if pid == 0:
            keeper.keep(folder, spec, report_write, self.lock_fd)
        hit("supervisor_forked")
        os.close(report_write)
        os.set_blocking(report_read, False)
        watched = Watched(key, report_read, self.epoch)
        watched.starters.append(connection)
        self.keepers[pid] = key
        watched.keeper_pid = pid
        self.watched[key] = watched
        self.reports[report_read] = watched
        self.poll.register(report_read, select.POLLIN)
        return None  # answered when the keeper says how it went

    def _exists(self, key: Key) -> Refused:
        refused = Refused("exists", f"attempt {key[1]} of {key[0]} was started before")
        refused.answer["attempt"] = self._state(key)
        return refused

    def _attach(self, connection: Connection, key: Key) -> Message | None:
        watched = self.watched.get(key)
        if key in self.orphans:
            self.awaiting.setdefault(key, set()).add(connection)
            return None  # answered when what is left of the command has ended, too
        if watched is None:
            return self._ending(key)
        watched.attached.add(connection)
        return None  # answered at the end of the command

    def _cancel(self, key: Key) -> Message:
        watched = self.watched.get(key)
        if watched is not None and not watched.accepted:
            watched.cancel_asked = True
            return {"is": "cancelling"}
        return {"is": "cancelling" if key in self.orphans or self._signal_keeper(key) else "gone"}

    def _signal_keeper(self, key: Key) -> bool:
        pid = self._keeper(key)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, keeper.CANCEL_SIGNAL)
            return True
        return False

    def _stop(self, connection: Connection, kill: bool) -> Message | None:
        if not kill:
            self.stop_at = time.monotonic()
            return {"is": "stopping"}
        for key in files.attempts(self.run_dir):
            self._signal_keeper(key)
        for watched in self.watched.values():
            watched.cancel_asked = True
        self.stopping = connection
        self.stop_at = time.monotonic() + STOP_SECONDS_MAX
        return None  # answered when all keepers have gone

    def _is_stopped(self, now: float) -> bool:
        if self.stop_at is None:
            return False
        keys = files.attempts(self.run_dir) if self.stopping is not None else []
        left = [key for key in keys if self._keeper(key) is not None]
        starting = self.stopping is not None and any(not watched.accepted for watched in self.watched.values())
        if now < self.stop_at and (left or starting or (self.stopping is not None and self.orphans)):
            return False
        if self.stopping is not None:
            self.stopping.say({"is": "stopped", "left": [f"{call}.{attempt}" for call, attempt in left]})
            self._send_all()
        return True

    def _keeper(self, key: Key) -> int | None:
        """The pid of the living keeper of an attempt."""
        state = self._state(key)
        return int(state["accepted"]["keeper"]["pid"]) if state["keeper_alive"] else None

    # ---- keepers

    def _hear(self, watched: Watched) -> None:
        """Lines from a keeper; the end of them without `exited` means that it was killed."""
        if watched.silent:
            return
        try:
            data = os.read(watched.report_fd, 4096)
        except BlockingIOError:
            return
        watched.heard += data
        while b"\n" in watched.heard:
            line, _, rest = bytes(watched.heard).partition(b"\n")
            watched.heard = bytearray(rest)
            self._told(watched, json.loads(line))
        if not data and not watched.silent:
            self._hush(watched)  # it is ended when it is waited for, because only then its children are ours

    def _told(self, watched: Watched, line: str) -> None:
        if line == "accepted":
            watched.accepted = True
            hit("supervisor_accepted")
            self._tell_starters(watched, self._state(watched.key) | {"is": "accepted"})
            if watched.cancel_asked:
                self._signal_keeper(watched.key)
        elif line == "exited":
            self._ended(watched)
        else:
            reason = line.removeprefix("refused ")
            refused = self._exists(watched.key) if reason == "exists" else Refused("failed", reason)
            self._tell_starters(watched, refused.answer)
            self._ended(watched)

    def _tell_starters(self, watched: Watched, answer: Message) -> None:
        """The first one asked for the start; those who asked for the same meanwhile came second, if it was accepted."""
        for position, connection in enumerate(watched.starters):
            second = position > 0 and answer["is"] == "accepted"
            connection.say((self._exists(watched.key).answer if second else answer) | {"epoch": self.epoch})
        watched.starters.clear()

    def _ended(self, watched: Watched) -> None:
        if self.watched.pop(watched.key, None) is None:
            return
        hit("supervisor_ended")
        if not watched.silent:
            self._hush(watched)
        self._tell_starters(watched, Refused("failed", "the keeper of the command died").answer)
        if watched.key in self.orphans:
            self.awaiting.setdefault(watched.key, set()).update(watched.attached)
            return
        for connection in watched.attached:
            connection.say(self._ending(watched.key) | {"epoch": self.epoch})

    def _hush(self, watched: Watched) -> None:
        watched.silent = True
        self.poll.unregister(watched.report_fd)
        del self.reports[watched.report_fd]
        os.close(watched.report_fd)

    def _ending(self, key: Key) -> Message:
        state = self._state(key)
        return state | {"is": state["state"]}

    def _state(self, key: Key) -> Message:
        """never_accepted, running, exited, lost or damaged, from the files and the keeper's life."""
        folder = files.call_folder(self.run_dir, *key)
        found: Message = {"call": key[0], "attempt": key[1], "accepted": None, "exit": None, "keeper_alive": False}
        try:
            accepted = files.read_json(os.path.join(folder, files.ACCEPTED))
            if accepted is None:
                return found | {"state": "never_accepted"}
            living = _is_living(accepted["keeper"])  # before `exit` is read: it may write that and end in between
            exited = files.read_json(os.path.join(folder, files.EXIT))
        except (ValueError, KeyError, TypeError):
            return found | {"state": "damaged"}
        state = "exited" if exited is not None else "running" if living else "lost"
        return found | {"accepted": accepted, "exit": exited, "keeper_alive": living, "state": state}


def _key(request: Message) -> Key:
    call, attempt = request["call"], request["attempt"]
    if not isinstance(call, str) or not isinstance(attempt, int):
        raise Refused("invalid", "call is a text, attempt a number")
    files.call_folder("", call, attempt)
    return call, attempt


def _checked(request: Message) -> Message:
    for name, kind in _SPEC_TYPES.items():
        if not isinstance(request[name], kind):
            raise Refused("invalid", f"{name} is not {kind.__name__}")
    texts = [*request["argv"], *request["env"], *request["env"].values(), request["cwd"]]
    if not request["argv"] or any(not isinstance(text, str) or "\0" in text for text in texts):
        raise Refused("invalid", "argv, env and cwd hold texts without NUL, argv at least one")
    return request


def _is_living(who: Message) -> bool:
    return processes.is_alive(who["pid"], who["start_time"], who["boot_id"])


def _same_user(sock: socket.socket) -> bool:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True  # elsewhere the 0700 folder keeps others out
    credentials = sock.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.geteuid())


def _lock(run_dir: str) -> int:
    """Take the lock for as long as the descriptor is open here or in a keeper that has not yet written `accepted`.

    -1 when another supervisor has it.
    """
    fd = files.open_private(os.path.join(run_dir, files.LOCK), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return -1
    return fd


def _trim_log(run_dir: str) -> None:
    path = os.path.join(run_dir, files.LOG)
    if os.path.exists(path) and os.path.getsize(path) > LOG_BYTES_MAX:
        os.truncate(path, 0)


def main() -> None:
    """Detach, take the lock, say so on standard output, and serve."""
    run_dir = os.path.abspath(sys.argv[1])
    idle_seconds = float(sys.argv[2]) if len(sys.argv) > 2 else IDLE_SECONDS
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    os.chdir("/")
    lock_fd = _lock(run_dir)
    if lock_fd < 0:
        os.write(1, b"taken\n")
        return
    _trim_log(run_dir)
    supervisor = Supervisor(run_dir, idle_seconds, lock_fd)
    os.write(1, b"ready\n")
    hit("supervisor_ready")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    keeper.become_subreaper()
    gc.collect()
    gc.freeze()  # keepers are forked from here: what they never touch stays shared
    supervisor.serve()


if __name__ == "__main__":
    main()
