"""What is mounted where in the mount namespaces of other processes: the sandboxes of commands that run."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


def mounted_elsewhere(proc: Path = Path("/proc")) -> set[str]:
    """The mount points of every mount namespace but our own, as far as the kernel lets us see them."""
    found: set[str] = set()
    seen = {_namespace(proc / "self")}
    for process in proc.glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is another user's
            namespace = _namespace(process)
            if namespace not in seen:
                found.update(_points((process / "mountinfo").read_bytes()))
                seen.add(namespace)
    return found


def _namespace(process: Path) -> str:
    return os.readlink(process / "ns" / "mnt")


def _points(table: bytes) -> set[str]:
    """See proc_pid_mountinfo(5): the fifth field, with blanks, line ends and backslashes in octal."""
    fields = [line.split(b" ")[4] for line in table.splitlines()]
    return {os.fsdecode(_ESCAPED.sub(lambda one: bytes([int(one[1], 8)]), field)) for field in fields}
