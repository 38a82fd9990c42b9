"""A process of its own for the tests of large logs: it does one thing to a log and says the peak of its memory (MiB).

`python -m tests.damage.big make FILE MIB` makes a log of about that size; `open`, `verify` and `recover` read one.
"""

import random
import sys
from pathlib import Path

from muse.event.codec import encode
from muse.event.commitment import commit
from muse.log.protocol import Draft
from muse.log.recover import recover
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.testing.store import COMMANDS, TIME, own

BODY_BYTES = 30_000
BLOB_BYTES = 4 * 1024 * 1024


def make(path: Path, mebibytes: int) -> None:
    """Half of it events of 30 KB, half of it blobs of 4 MiB."""
    chance = random.Random("big")
    with SqliteLog.create(path, "s", commands=COMMANDS) as log:
        own(log)
        head, size, stored = 1, 0, 0
        while size < mebibytes * 1024 * 1024:
            drafts = []
            for n in range(60):
                body: dict[str, object] = {"text": chance.randbytes(BODY_BYTES // 2).hex()}
                if n == 0 and stored <= size // 2:
                    root, length = log.put_blob(chance.randbytes(BLOB_BYTES), chance.randbytes(32))
                    body["output"] = {"blob": root, "length": length}
                    stored, size = stored + length, size + length
                data, key = encode(body), chance.randbytes(32)
                root_ = commit(data, key)
                id_ = chance.randbytes(16).hex()
                drafts.append(Draft(id_, TIME, "a.fact", 1, "main", 0, data, key, root_.count, root_.root))
                size += len(data)
            head = log.append(drafts, [], head, 1).head.seq
            log.tidy()


def peak() -> int:
    """The most memory that this process ever had, in MiB (VmHWM of proc(5))."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024


def open_it(path: Path) -> None:
    """Follow the chain, go through all events and to the last, as opening, listing and replaying do."""
    with SqliteLog.open(path, read_only=True) as log:
        assert sum(1 for _ in log.read()) == log.head().seq


def verify_it(path: Path) -> None:
    """Every byte, in this process."""
    with SqliteLog.open(path, read_only=True, check=False) as log:
        assert verify(log, jobs=1).exit_code == 0


def recover_it(path: Path) -> None:
    """Save it into a new one."""
    target = path.with_name("recovered.muse")
    target.unlink(missing_ok=True)
    recover(path, target, "r")


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "make":
        make(Path(where), int(rest[0]))
    else:
        {"open": open_it, "verify": verify_it, "recover": recover_it}[what](Path(where))
    print(peak())
