"""Confine this process, and all that it will start, before it becomes a command.

Runs in the keeper's child between fork and exec, so a sandbox costs no process and changes no exit status. Two parts
of Linux do the work. Landlock refuses writes, signals, ptrace and abstract sockets that lead out of the sandbox (and a
seccomp filter to set limits for other processes, which Landlock does not know of). A
mount namespace of our own, where the system allows one, makes everything but the writable folders read-only, hides
folders and sockets, and keeps names in a writable tree from being replaced, none of which Landlock can do.

What is to hold comes as a plan, made by `effect/sandbox/`; this module decides nothing. A step that fails raises
OSError, and the command is then not started. Run as a program it tries on itself what the machine can do, and prints
that as JSON. Standard library only.
"""

import contextlib
import errno
import json
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ctypes

Plan = dict[str, Any]
"""A plan, as JSON:

    abi        version of Landlock to rely on
    mounts     whether to make a mount namespace; `user` whether a user namespace is needed for that
    network    "open", "namespace" (an own, empty one) or "tcp" (Landlock refuses TCP)
    writable   folders to write in, none inside another; `devices` files to write to
    pinned     folders that keep their names, parents first
    guarded    what stays read-only as a whole inside writable folders, but for what is writable in it `again`
    readonly   what stays read-only inside writable folders
    hidden     folders, files and sockets that are not there

From `pinned` on they are used with `mounts` only; what does not exist is left out."""

DEVICES = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts",
)  # fmt: skip
ABI_MIN = 3
"""Before it, a file could be truncated through any sandbox."""
ABI_TCP = 4
ABI_SCOPES = 6

# From linux/sched.h, linux/mount.h, linux/landlock.h, linux/prctl.h, linux/capability.h; the numbers of these newer
# system calls are the same on every architecture.
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_AT_FDCWD, _AT_RECURSIVE, _OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = -100, 0x8000, 1, 4
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 2, 4, 8, 4096, 16384, 1 << 19
_MOUNT_ATTR_RDONLY = 1
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITY_LAST = 63
_KEPT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 10, 13, 18, 31)
"""chown, dac_override, fowner, fsetid, kill, setgid, setuid, net_bind_service, net_raw, sys_chroot, setfcap: what root
does with files, users and ports. None of them mounts, traces, loads modules or opens files by handle."""
_SETPCAP = 8
_RULE_PATH = 1
_WRITE_FILE, _MAKE_CHAR, _MAKE_BLOCK, _REFER, _TRUNCATE = 1 << 1, 1 << 6, 1 << 11, 1 << 13, 1 << 14
_HANDLED = sum(1 << bit for bit in (1, *range(4, 15)))
"""Every right that changes something: write, remove, make, rename into, truncate."""
_IN_FOLDERS = _HANDLED & ~(_MAKE_CHAR | _MAKE_BLOCK)
_NET_TCP = 3
_SCOPES = 3
_PRLIMIT = {
    0xC000003E: (302, 302 | 0x40000000), 0x40000003: (340,),  # x86-64 (also as x32), i386
    0xC00000B7: (261,), 0x40000028: (369,),  # arm64, arm
    0xC00000F3: (261,), 0xC0000102: (261,), 0xC0000015: (325,),  # riscv64, loongarch64, ppc64le
}  # fmt: skip
"""The numbers of `prlimit64` by AUDIT_ARCH, where the low half of an argument comes first."""
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_BPF_LOAD, _BPF_IF_EQUAL, _BPF_RETURN = 0x20, 0x15, 0x06
_SECCOMP_NUMBER, _SECCOMP_ARCH, _SECCOMP_ARGUMENTS = 0, 4, 16
_SECCOMP_ALLOW, _SECCOMP_REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def confine(plan: Plan, name: str = "tmpfs") -> None:
    """Make the plan hold for this process. What hides folders is mounted as `name`, which everything that this process
    starts has in its /proc/PID/mountinfo. Raises OSError when any of it cannot be had."""
    system = _System()
    if plan["mounts"] or plan["network"] == "namespace":
        _leave_namespaces(system, plan)
        if plan["mounts"]:
            _mount(system, plan, name)
        if plan["network"] == "namespace":
            _raise_loopback()
    _drop_capabilities(system)
    system.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _landlock(system, plan)
    _refuse_limits_for_others(system)


def landlock_abi() -> int:
    """The version of Landlock that the running kernel has, 0 for none."""
    try:
        return max(0, _System().call(_LANDLOCK_CREATE, 0, 0, 1))
    except (OSError, ImportError, AttributeError):
        return 0


class _System:
    """System calls by number, each raising OSError when it fails."""

    def __init__(self) -> None:
        import ctypes  # slow to import: the keeper has loaded it when it became a subreaper

        self._ctypes = ctypes
        self._libc = ctypes.CDLL(None, use_errno=True)

    def call(self, number: int, *arguments: "int | bytes | ctypes.Array[ctypes.c_char]") -> int:
        found = [self._ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
        return self._checked(self._libc.syscall(self._ctypes.c_long(number), *found))

    def prctl(self, *arguments: int) -> int:
        return self._checked(self._libc.prctl(*[self._ctypes.c_ulong(one) for one in arguments]))

    def filter(self, program: bytes) -> None:
        code = self._ctypes.create_string_buffer(program, len(program))
        header = struct.pack("@HP", len(program) // 8, self._ctypes.addressof(code))
        held = self._ctypes.create_string_buffer(header, len(header))
        self.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._ctypes.addressof(held), 0, 0)

    def mount(self, source: str, target: str, kind: str, flags: int, options: str = "") -> None:
        texts = [os.fsencode(one) or None for one in (source, target, kind)]
        self._checked(self._libc.mount(*texts, self._ctypes.c_ulong(flags), os.fsencode(options) or None), target)

    def unshare(self, flags: int) -> None:
        self._checked(self._libc.unshare(flags))

    def capset(self, header: bytes, data: bytes) -> None:
        self._checked(self._libc.capset(header, data))

    def _checked(self, result: int, name: str | None = None) -> int:
        if result < 0:
            number = self._ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
        return result


# ---- namespaces


def _leave_namespaces(system: _System, plan: Plan) -> None:
    user, group = os.geteuid(), os.getegid()
    flags = _CLONE_NEWNS if plan["mounts"] else 0
    flags |= _CLONE_NEWNET if plan["network"] == "namespace" else 0
    system.unshare(flags | (_CLONE_NEWUSER if plan["user"] else 0))
    if plan["user"]:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def _mount(system: _System, plan: Plan, name: str) -> None:
    """Read-only all around, writable where the plan says; then the names, and what is hidden."""
    system.mount("", "/", "", _MS_REC | _MS_SLAVE)  # nothing of this is seen outside
    writable = [path for path in plan["writable"] if os.path.isdir(path)]
    if "/" not in writable:
        copies = [(path, _copy(system, path)) for path in writable]
        _make_read_only(system, "/")
        for path, copy in copies:
            system.call(_MOVE_MOUNT, copy, b"", _AT_FDCWD, os.fsencode(path), _MOVE_MOUNT_F_EMPTY_PATH)
            os.close(copy)
    _make_terminals(system)
    for path in _existing(plan["pinned"]):
        system.mount(path, path, "", _MS_BIND | _MS_REC)
    again = [(path, _copy(system, path)) for path in _existing(plan.get("again", ()))]
    for path in _existing(plan.get("guarded", ())):
        system.mount(path, path, "", _MS_BIND | _MS_REC)
        _make_read_only(system, path)
    for path, copy in again:
        system.call(_MOVE_MOUNT, copy, b"", _AT_FDCWD, os.fsencode(path), _MOVE_MOUNT_F_EMPTY_PATH)
        os.close(copy)
    for path in _existing(plan["readonly"]):
        system.mount(path, path, "", _MS_BIND | _MS_REC)
        _make_read_only(system, path)
    for path in _existing(plan["hidden"]):
        if os.path.isdir(path):
            flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
            system.mount(name, path, "tmpfs", flags, "size=4k,nr_inodes=2,mode=0555")
        else:
            system.mount(os.devnull, path, "", _MS_BIND)


def _make_terminals(system: _System) -> None:
    """Terminals of our own, so that the person's cannot be written to. Where none can be made, those there are stay."""
    with contextlib.suppress(OSError):
        flags = _MS_NOSUID | _MS_NOEXEC
        system.mount("devpts", "/dev/pts", "devpts", flags, "newinstance,ptmxmode=0666,mode=0620")
        if not os.path.islink("/dev/ptmx"):
            system.mount("/dev/pts/ptmx", "/dev/ptmx", "", _MS_BIND)


def _existing(paths: Iterable[str]) -> Iterator[str]:
    """Asked path by path, when its turn comes: an earlier one may have hidden it."""
    return (path for path in paths if os.path.exists(path))


def _copy(system: _System, path: str) -> int:
    """A copy of the mounts at and below a folder, with their flags as they are now."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    return system.call(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)


def _make_read_only(system: _System, path: str) -> None:
    attributes = struct.pack("=4Q", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    system.call(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, attributes, len(attributes))


def _raise_loopback() -> None:
    """A new network namespace has its loopback down; programs that talk to themselves want it."""
    import fcntl
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _drop_capabilities(system: _System) -> None:
    """Keep what root needs for files of its own, and nothing that undoes the rest. Who is not root has none to drop."""
    permitted = _permitted()
    if not permitted >> _SETPCAP & 1:
        return
    for number in range(_CAPABILITY_LAST + 1):
        if number not in _KEPT_CAPABILITIES:
            try:
                system.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
            except OSError as error:
                if error.errno == errno.EINVAL:  # past the last one that this kernel knows
                    break
                raise
    system.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    kept = sum(1 << number for number in _KEPT_CAPABILITIES) & permitted
    system.capset(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def _permitted() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith("CapPrm:"))


# ---- Landlock


def _landlock(system: _System, plan: Plan) -> None:
    abi = plan["abi"]
    attributes = struct.pack("=Q", _HANDLED)
    if abi >= ABI_TCP:
        attributes += struct.pack("=Q", _NET_TCP if plan["network"] == "tcp" else 0)
    if abi >= ABI_SCOPES:
        attributes += struct.pack("=Q", _SCOPES)
    ruleset = system.call(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    try:
        for path in plan["writable"]:
            _allow(system, ruleset, path, _IN_FOLDERS)
        for path in plan["devices"]:
            _allow(system, ruleset, path, _WRITE_FILE | _TRUNCATE)
        system.call(_LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(system: _System, ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        system.call(_LANDLOCK_ADD, ruleset, _RULE_PATH, struct.pack("=Qi", access, fd), 0)
    finally:
        os.close(fd)


# ---- seccomp


def _refuse_limits_for_others(system: _System) -> None:
    """`prlimit` asks for no right but the same user, and a limit on processor time is a SIGKILL for whoever has used
    it up. One's own (pid 0) may be set, those of others only be read."""
    with contextlib.suppress(OSError):  # a kernel without it
        system.filter(_limits_filter())


def _limits_filter() -> bytes:
    """As in linux/filter.h; a jump counts the instructions that it leaves out."""
    pid, new = _SECCOMP_ARGUMENTS, _SECCOMP_ARGUMENTS + 2 * 8
    allow = (_BPF_RETURN, 0, 0, _SECCOMP_ALLOW)
    asked = [
        (_BPF_LOAD, 0, 0, pid), (_BPF_IF_EQUAL, 4, 0, 0),
        (_BPF_LOAD, 0, 0, new), (_BPF_IF_EQUAL, 0, 3, 0), (_BPF_LOAD, 0, 0, new + 4), (_BPF_IF_EQUAL, 0, 1, 0),
        allow, (_BPF_RETURN, 0, 0, _SECCOMP_REFUSE),
    ]  # fmt: skip
    found = [(_BPF_LOAD, 0, 0, _SECCOMP_ARCH)]
    for arch, numbers in _PRLIMIT.items():
        checks = [(_BPF_IF_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
        block = [(_BPF_LOAD, 0, 0, _SECCOMP_NUMBER), *checks, allow, *asked]
        found += [(_BPF_IF_EQUAL, 0, len(block), arch), *block]
    return b"".join(struct.pack("=HBBI", *one) for one in [*found, allow])


# ---- what this machine can do


def found() -> dict[str, Any]:
    """Try it: `abi`; whether a mount namespace works (`mounts`), and as whom (`user`); a network namespace
    (`network`); and `why` not."""
    answer: dict[str, Any] = {"abi": landlock_abi(), "mounts": False, "user": False, "network": False, "why": ""}
    if answer["abi"] < ABI_MIN:
        return answer
    folder = f"/tmp/muse-probe-{os.urandom(8).hex()}"
    try:
        for name in ("", "open", "open/kept", "open/hidden"):
            os.mkdir(os.path.join(folder, name), 0o700)
        for user in (False, True):
            answer["why"] = _tried(folder, answer["abi"], user, "open")
            if not answer["why"]:
                network = not _tried(folder, answer["abi"], user, "namespace")
                return answer | {"mounts": True, "user": user, "network": network}
    finally:
        for name in ("open/hidden", "open/kept", "open", ""):
            os.rmdir(os.path.join(folder, name))
    return answer


def _tried(folder: str, abi: int, user: bool, network: str) -> str:
    """Confine a child and look whether it holds there: "" or what does not."""
    inside = os.path.join(folder, "open")
    plan = {
        "abi": abi, "mounts": True, "user": user, "network": network, "writable": [inside], "devices": list(DEVICES),
        "pinned": [], "readonly": [f"{inside}/kept"], "hidden": [f"{inside}/hidden"],
    }  # fmt: skip
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = "it does not hold"
        try:
            confine(plan)
            refused = [_is_refused(f"{where}/x") for where in (folder, f"{inside}/kept", f"{inside}/hidden")]
            said = "" if all(refused) and not _is_refused(f"{inside}/x") else said
        except OSError as error:
            said = str(error)
        finally:
            os.write(write, said.encode("utf-8", "replace")[:2000])
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read, encoding="utf-8") as said_there:
        return said_there.read()


def _is_refused(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        return True
    with contextlib.suppress(OSError):
        os.unlink(path)
    return False


if __name__ == "__main__":
    json.dump(found(), sys.stdout)
