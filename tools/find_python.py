"""Print the path of a working Python of the given version (`3.12`), or exit 1.

Looks on PATH and where pyenv and uv keep theirs. A shim that answers with another version, or not at all, is passed
over.
"""

import glob
import os
import shutil
import subprocess
import sys

PROBE_SECONDS_MAX = 20
KEPT = (
    "~/.pyenv/versions/{0}*/bin/python",
    "~/.local/share/uv/python/cpython-{0}*/bin/python",
    "/opt/python/{0}*/bin/python",
)


def works(path: str, version: str) -> bool:
    """Whether this interpreter runs and has that version."""
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [path, "-I", "-c", code], capture_output=True, text=True, timeout=PROBE_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def main(version: str) -> int:
    """Print the first that works."""
    candidates = [shutil.which(f"python{version}"), f"/usr/bin/python{version}"]
    for folder in os.get_exec_path():
        if os.path.basename(folder) == "shims":  # pyenv's: the interpreters themselves are kept beside it
            beside = os.path.join(os.path.dirname(folder), "versions", f"{version}*", "bin", "python")
            candidates += sorted(glob.glob(beside), reverse=True)
    for pattern in KEPT:
        candidates += sorted(glob.glob(os.path.expanduser(pattern.format(version))), reverse=True)
    for path in candidates:
        if path and works(path, version):
            print(path)
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
