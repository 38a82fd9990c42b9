"""One byte of a copy of the log is changed: in an event whose exact bytes stand once in the file."""

import shutil
from pathlib import Path
from typing import Final

from muse import app
from muse.event.kinds import ToolFinished

_WAS: Final = b'"status":"ok"'
_WORD_AT: Final = 10
"""Where in it the word `ok` begins."""


def change_copy(log: Path, copy: Path) -> tuple[int, str]:
    """Copy the log and change one byte of the copy. Returns the seq of the event that the byte belongs to, and what
    became of it in words; 0 where no such event was found.

    The copy is made and searched after the log was closed: a file that SQLite has open must not be opened otherwise.
    """
    bodies = _candidates(log)
    shutil.copyfile(log, copy)
    data = bytearray(copy.read_bytes())
    for seq, body in bodies:
        at = data.find(body)
        if at < 0 or data.find(body, at + 1) >= 0:
            continue
        at += body.index(_WAS) + _WORD_AT
        before = bytes(data[at : at + 2]).decode()
        data[at] ^= 1
        copy.write_bytes(data)
        return seq, f'byte {at:,}, "{before}" is "{bytes(data[at : at + 2]).decode()}" now'
    return 0, "no event to change was found"


def _candidates(log: Path) -> list[tuple[int, bytes]]:
    """Seq and stored body of the results that a good tool run left."""
    found = []
    with app.read_session(log) as reading:
        for event in reading.events():
            stored = reading.stored(event.seq) if isinstance(event.body, ToolFinished) else None
            if stored is not None and stored.body is not None and _WAS in stored.body:
                found.append((event.seq, stored.body))
    return found
