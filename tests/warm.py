"""Processes of the installed command without the time that its imports take.

More than half of what a short `muse` costs is loading its modules, and the suite starts two thousand of them. Here one
process has loaded them all, has done nothing else, and is forked for each start: its child is a process like any other
(a child of the test, killed, waited for and stopped by the test), with the environment, folder, session, umask, streams
and arguments that it is given, also as /proc shows them. It shares with others only what importing made.

Where the start itself is what is tested, or what is set acts on the interpreter (LD_PRELOAD, PYTHON…, TZ, another
locale), a process is started as always; so is every one if MUSE_TEST_COLD is set, and where this is not Linux on a
processor whose number of clone(2) is known here. Starts on a terminal and from a shell's line are never warm.
"""

import ctypes
import json
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MUSE = str(Path(sys.executable).with_name("muse"))
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT = 0x8000
SIGCHLD = 17
FAULTS = ("LD_", "PYTHON", "GLIBC", "MALLOC", "TZ", "LANG", "LC_")
HARMLESS = ("PYTHONDONTWRITEBYTECODE", "LANG", "LC_ALL")
LENGTH = struct.Struct("!I")
Acting = tuple[tuple[str, str], ...]
PATIENCE_SECONDS = 60.0
SPACE_BYTES = 16384
"""Room for what /proc shows of arguments and environment; more than that is not shown."""
MODULES = (
    "muse.app", "muse.runtime.loop", "muse.runtime.dispatch", "muse.effect.model.anthropic", "muse.effect.model.openai",
    "muse.effect.model.scripted", "muse.effect.model.wire", "httpx2", "httpcore2", "anyio._backends._asyncio",
)  # fmt: skip


def loadable(environment: Mapping[str, str]) -> bool:
    """Whether nothing in this environment acts on an interpreter while it starts, or a process was loaded with it."""
    if os.environ.get("MUSE_TEST_COLD") or sys.platform != "linux" or platform.machine() not in CLONE:
        return False
    acting = _acting(environment)
    return acting in _templates or all(name in HARMLESS for name, _ in acting)


def load(environment: Mapping[str, str]) -> None:
    """Have a process loaded with what in this environment acts on an interpreter, for all that start with the same."""
    if os.environ.get("MUSE_TEST_COLD") is None and sys.platform == "linux" and platform.machine() in CLONE:
        _template(environment)


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, but the command `muse` is forked from a process that has it loaded."""

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any,
                       env: Any, *rest: Any) -> None:  # fmt: skip
        (_, _, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, _, gid, gids, uid, umask,
         start_new_session, process_group) = rest  # fmt: skip
        words = [args] if isinstance(args, str | bytes) else [os.fsdecode(word) for word in args]
        environment = dict(os.environ if env is None else env)
        plain = not (executable or preexec_fn or pass_fds or shell or gid or gids or uid) and process_group == -1
        if not (plain and words[0] == MUSE and loadable(environment) and (cwd is None or os.path.isdir(cwd))):
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest
            )
            return
        request = {
            "argv": words, "env": environment, "cwd": os.fsdecode(cwd or os.getcwd()), "setsid": start_new_session,
            "umask": umask if umask >= 0 else _umask(),
        }  # fmt: skip
        streams = [given if given >= 0 else own for given, own in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2))]
        self.pid = _template(environment).start(request, streams)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def run(command: list[str], *, stdin: Any = None, input: str | None = None, timeout: float, **more: Any) -> Any:
    """`subprocess.run` with captured text."""
    pipe = subprocess.PIPE
    with Popen(command, stdin=pipe if input is not None else stdin, stdout=pipe, stderr=pipe, text=True, **more) as it:
        try:
            out, err = it.communicate(input, timeout=timeout)
        except BaseException:
            it.kill()
            raise
    return subprocess.CompletedProcess(command, it.returncode, out, err)


def _umask() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    raise AssertionError("proc(5) promises an Umask")


# -- this side of the template -----------------------------------------------------------------------------------------


class Template:
    """The loaded process, as its parent sees it."""

    def __init__(self, acting: Acting) -> None:
        self._ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        space = "-" * SPACE_BYTES
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), space], pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], **dict(acting), "SPACE": space},
        )  # fmt: skip
        theirs.close()
        self.reported = False

    def runs(self) -> bool:
        """Whether it is there to be forked."""
        return self._process.poll() is None

    def start(self, request: Mapping[str, Any], streams: list[int]) -> int:
        """Fork one; its pid. It is a child of this process."""
        data = json.dumps(request).encode("utf-8", "surrogateescape")
        assert self.runs(), f"something ended the loaded process: {self._process.returncode}"
        with self._lock:
            socket.send_fds(self._ours, [LENGTH.pack(len(data))], streams)
            self._ours.sendall(data)
            if not select.select([self._ours], [], [], PATIENCE_SECONDS)[0]:
                raise AssertionError("no process came of it; its traceback is on standard error")
            answer = self._ours.recv(LENGTH.size, socket.MSG_WAITALL)
        assert len(answer) == LENGTH.size, "the loaded process has gone"
        (pid,) = LENGTH.unpack(answer)
        return int(pid)


_templates: dict[Acting, Template] = {}
_guard = threading.Lock()


def _acting(environment: Mapping[str, str]) -> Acting:
    """What in an environment acts on an interpreter while it starts."""
    names = [name for name in environment if name.startswith(FAULTS) and name != "PYTHONDONTWRITEBYTECODE"]
    return tuple((name, environment[name]) for name in sorted(names))


def _template(environment: Mapping[str, str]) -> Template:
    acting = _acting(environment)
    with _guard:
        template = _templates.get(acting)
        if template is None or template.reported:
            template = _templates[acting] = Template(acting)
        template.reported = not template.runs()  # whoever asks now is told, and the next gets another one
        return template


# -- the template itself -----------------------------------------------------------------------------------------------


def serve(number: int) -> None:
    """Load everything; then fork for each request, until the parent has gone."""
    import gc
    import importlib

    from muse.ui.cli import COMMANDS

    group = importlib.import_module("muse.ui.cli").LazyGroup()
    for name in MODULES:
        importlib.import_module(name)
    for name in COMMANDS:
        group.get_command(None, name)
    gc.collect()
    gc.freeze()
    asked = socket.socket(fileno=number)
    while True:
        head, streams, _, _ = socket.recv_fds(asked, LENGTH.size, 3)
        if not head:
            os._exit(0)
        (length,) = LENGTH.unpack(head)
        data = b""
        while len(data) < length:
            data += asked.recv(length - len(data)) or sys.exit("the test has gone")
        if fork_a_sibling() == 0:
            become(as_started_here(json.loads(data.decode("utf-8", "surrogateescape"))), streams)
            asked.sendall(LENGTH.pack(os.getpid()))  # by now it is what it is to be, for all who look at it
            asked.close()
            os._exit(ended())
        for stream in streams:
            os.close(stream)


def fork_a_sibling() -> int:
    """fork(2), but whose parent is this process's parent: clone(2) with CLONE_PARENT."""
    kernel, python = ctypes.PyDLL(None), ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = int(kernel.syscall(CLONE[platform.machine()], CLONE_PARENT | SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    assert pid >= 0, "clone failed"
    return pid


def as_started_here(request: Any) -> Any:
    """A request whose bytes are decoded as this interpreter decodes what it is started with."""

    def read(text: str) -> str:
        return os.fsdecode(text.encode("utf-8", "surrogateescape"))

    words, environment = map(read, request["argv"]), request["env"].items()
    there = {read(name): read(value) for name, value in environment}
    return request | {"argv": list(words), "env": there, "cwd": read(request["cwd"])}


def become(request: Any, streams: list[int]) -> None:
    """Be that process, about to run its command."""
    if request["setsid"]:
        os.setsid()
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    show_as(request["argv"], request["env"])
    sys.argv[:] = request["argv"]
    open_streams()
    arm_failpoints()


def arm_failpoints() -> None:
    """`muse.failpoint` has read its variable when it was loaded; every module gets the `hit` of this environment."""
    from muse import failpoint

    unarmed, armed = failpoint.hit, failpoint.armed(os.environ.get(failpoint.VARIABLE, ""))
    for module in list(sys.modules.values()):
        if getattr(module, "hit", None) is unarmed:
            module.hit = armed  # type: ignore[attr-defined]


def open_streams() -> None:
    """The three streams, as an interpreter opens them that starts in this locale."""
    import io

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        binary = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115 - to the end
        lines = number == 2 or os.isatty(number)
        made = io.TextIOWrapper(binary, old.encoding, old.errors, "\n", line_buffering=lines)
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def show_as(words: list[str], environment: Mapping[str, str]) -> None:
    """Write over what /proc shows as command line and environment (proc_pid_stat(5), fields 48 to 51)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    places = [int(field) for field in fields[45:49]]
    shown = ([sys.executable, *words], [f"{name}={value}" for name, value in environment.items()])
    for (begin, end), texts in zip((places[:2], places[2:]), shown, strict=True):
        data = b"".join(os.fsencode(text) + b"\0" for text in texts)[: end - begin - 1]
        ctypes.memmove(begin, data.ljust(end - begin, b"\0"), end - begin)


def ended() -> int:
    """Run the command; the exit code, as the end of an interpreter makes it."""
    import atexit
    import traceback

    from muse.ui.cli import main

    code: Any = 0
    try:
        sys.exit(main())
    except SystemExit as exit:
        code = exit.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:  # noqa: BLE001 - what an interpreter prints at its end
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    sys.stderr.flush()
    return (code or 0) & 0xFF


if __name__ == "__main__":
    serve(int(sys.argv[1]))
