"""Runs one command for a notice, in a process of its own: `python -I -S notify_run.py SECONDS COMMAND…`.

Whoever started it need not wait: what stands on standard input is read to its end first, the command is ended after
SECONDS with all in its process group, and how it went is one line on standard output, for whom still listens. It knows
the standard library only, so that it is there at once, and must not know what a notice is.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress

INPUT_BYTES_MAX = 1024 * 1024


def run(seconds: float, command: list[str], given: bytes) -> str:
    """Run the command; why it failed, "" if it did not."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return f"cannot be run: {getattr(error, 'strerror', None) or error}"
    try:
        process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"took over {seconds:g} s and was ended"
    return f"failed (exit {process.returncode})" if process.returncode else ""


if __name__ == "__main__":
    said = run(float(sys.argv[1]), sys.argv[2:], sys.stdin.buffer.read(INPUT_BYTES_MAX))
    with suppress(OSError):
        os.write(1, f"{said}\n".encode())
