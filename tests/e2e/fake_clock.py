"""A wall clock for a rig that a test moves while processes run: theirs, their runner's and nobody else's.

All read the shift, in seconds, from one file, at each look at the clock. Two ways to it: a library loaded before the
C library (`preload`, needs a C compiler), which also SQLite and every other library sees; and a changed `time` module
(`python`), which works everywhere. Both come with an interpreter of their own that hands them on, because the runner
is started without the caller's environment. Clocks that only run forward (CLOCK_MONOTONIC) are left alone, as they are
when somebody sets a real machine's clock.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

from tests.e2e.rig import MUSE, Rig

Way = Literal["preload", "python"]

PRELOAD = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    char text[32] = {0};
    int fd = syscall(SYS_openat, AT_FDCWD, SHIFT_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    return atol(text);
}

int clock_gettime(clockid_t which, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, which, now);
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0) return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *kept) {
    struct timespec found;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0) return -1;
    if (kept) *kept = found.tv_sec;
    return found.tv_sec;
}
"""

PYTHON = """
import datetime, time

def _shift():
    with open(SHIFT_FILE) as file:
        return int(file.read() or 0)

_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _shift()
time.time_ns = lambda: _time_ns() + _shift() * 10**9

class Moved(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=_shift())

datetime.datetime = Moved
"""

RUN = """
import runpy, sys
exec(open(CLOCK_FILE).read(), {"SHIFT_FILE": SHIFT_FILE})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class FakeClock:
    """The clock of a rig's `muse` commands, from here on."""

    def __init__(self, rig: Rig, way: Way) -> None:
        self._file = rig.folder / "shift"
        self.shift(0)
        place = rig.folder / "python"
        (place / "bin").mkdir(parents=True)
        environment = Path(sys.prefix)
        shutil.copy(environment / "pyvenv.cfg", place)
        (place / "lib").symlink_to(environment / "lib")
        self.python = place / "bin" / "python"
        real = Path(sys.executable)
        self.python.write_text(_wrapper(real, self._library(place)) if way == "preload" else self._script(real, place))
        self.python.chmod(0o755)
        rig.command = [str(self.python), MUSE]

    def shift(self, seconds: int) -> None:
        """Set the clock so far ahead of the real one (negative: behind)."""
        draft = self._file.with_suffix(".new")
        draft.write_text(str(seconds))
        draft.rename(self._file)

    def _library(self, place: Path) -> Path:
        source, library = place / "clock.c", place / "clock.so"
        source.write_text(PRELOAD)
        compiler = shutil.which("cc")
        assert compiler is not None, "ask `has_compiler` first"
        define = f'-DSHIFT_FILE="{self._file}"'
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", define, "-o", str(library), str(source)], check=True)
        return library

    def _script(self, real: Path, place: Path) -> str:
        """Options stay; the script that follows them is run by one that changes the clock first."""
        clock, run = place / "clock.py", place / "run.py"
        clock.write_text(PYTHON)
        run.write_text(f"CLOCK_FILE, SHIFT_FILE = {str(clock)!r}, {str(self._file)!r}\n{RUN}")
        return _SCRIPT.format(real=real, run=run)


def has_compiler() -> bool:
    """Whether the way `preload` can be gone."""
    return sys.platform == "linux" and shutil.which("cc") is not None


def _wrapper(real: Path, library: Path) -> str:
    return f'#!/bin/bash\nLD_PRELOAD="{library}" exec -a "$0" "{real}" "$@"\n'


_SCRIPT = """#!/bin/bash
options=()
while [ $# -gt 0 ]; do
    case "$1" in
        -X|-W) options+=("$1" "$2"); shift 2 ;;
        -c|-m) exec -a "$0" "{real}" "${{options[@]}}" "$@" ;;
        -*) options+=("$1"); shift ;;
        *) exec -a "$0" "{real}" "${{options[@]}}" "{run}" "$@" ;;
    esac
done
exec -a "$0" "{real}" "${{options[@]}}"
"""
