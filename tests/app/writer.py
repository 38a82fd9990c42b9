"""A process that writes a session while others read it: for every line that it is sent, so many events; then it closes.

Run as `python -m tests.app.writer FILE`; it says the head after each append.
"""

import sys
from itertools import islice
from pathlib import Path

from bench.fleet import SETTINGS
from bench.sessions import TOOLS, edits, sealed, story
from muse.event.kinds import COMMANDS, SessionClosed
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal
from muse.runtime.session import claim


def main(path: Path) -> None:
    with SqliteLog.create(path, "s", commands=COMMANDS) as log:
        epoch = claim(log, SETTINGS, str(path.parent), lambda _epoch: TOOLS).epoch
        told = story(edits(log))
        print(1, flush=True)
        for line in sys.stdin:
            head = log.head().seq
            part = islice(told, int(line)) if line.strip() != "close" else ()
            drafts = [sealed(seq, body, lane) for seq, (body, lane) in enumerate(part, head + 1)]
            end = [] if drafts else [seal(SessionClosed(outcome="done"), "main", 0)]
            print(log.append([*drafts, *end], [], head, epoch).head.seq, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
