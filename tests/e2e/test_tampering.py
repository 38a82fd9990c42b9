"""A running session whose log somebody changes: noticed before the next effect starts, exit 6, and said with the file.

The first step waits; meanwhile the log is changed by a process with Python's own `sqlite3`. The second step would leave
a file: it never does.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from muse import app
from tests.e2e.rig import Rig
from tests.e2e.test_same_lines import watched

WAITS = {"uses": [["shell", {"command": "until [ -e go ]; do sleep 0.02; done"}]]}
THEN = {"uses": [["shell", {"command": "touch then.txt"}]]}
DONE = {"text": "Done."}

SQL = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.executescript(sys.argv[2]); db.close()"
FORGED = """
import sys
from pathlib import Path
from muse import app
from muse.log.chain import place
from muse.log.protocol import Head
from muse.runtime.seal import seal
from muse.event.kinds import ToolStarted
import sqlite3

with app.read_session(Path(sys.argv[1])) as reading:
    head = reading.head()
    started = next(event for event in reading.events() if isinstance(event.body, ToolStarted))
evil = '{"command":"touch then.txt"}'
body = ToolStarted(call=started.body.call, attempt=2, tool="shell", args=evil, recovery="opaque")
((row,), _) = place([seal(body, "main", head.seq)], Head(head.seq, bytes.fromhex(head.hash)), 1)
db = sqlite3.connect(sys.argv[1])
with db:
    db.execute("INSERT INTO events (seq, id, header, key, leaf_count, root, hash, body) VALUES (?,?,?,?,?,?,?,?)", row)
db.close()
"""


def sql(path: Path, statement: str) -> list[str]:
    return [sys.executable, "-c", SQL, str(path), f"BEGIN; {statement}; COMMIT;"]


CHANGES = {
    "an old event": lambda path: sql(path, 'UPDATE events SET body = CAST(\'{"text":"other"}\' AS BLOB) WHERE seq = 2'),
    "a deleted row": lambda path: sql(path, "DELETE FROM events WHERE seq = 3"),
    "the last row": lambda path: sql(path, "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)"),
    "a planted trigger": lambda path: sql(
        path, "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events WHERE seq < 3; END"
    ),
    "a forged intent": lambda path: [sys.executable, "-c", FORGED, str(path)],
    "a copy in its place": lambda path: ["sh", "-c", f"cp {path} {path}.x && mv {path}.x {path}"],
    "removed": lambda path: ["rm", str(path)],
    "renamed": lambda path: ["mv", str(path), f"{path}.away"],
    "emptied": lambda path: ["sh", "-c", f": > {path}"],
}
WORDS = {
    "a forged intent": "by another process: a tool.started", "a copy in its place": "was replaced",
    "removed": "was removed", "renamed": "was renamed",
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_more_is_started_once_the_log_was_changed(rig: Rig, change: str) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([WAITS, THEN, DONE]), "go on") as run:
        run.until("tool.started")
        path = rig.path()
        subprocess.run(CHANGES[change](path), env=rig.environment, check=True)
        (rig.workspace / "go").touch()
        assert run.end() == 6, run.errors
        said = " ".join(run.errors.split())
        assert WORDS.get(change, "was rewritten while it was in use") in said
        assert path.name in said
        assert "nothing more is started" in said
    assert not (rig.workspace / "then.txt").exists()
    if change in ("removed", "a copy in its place"):
        saved = path.with_name(f"{path.name}.saved")
        assert str(saved) in said
        saved.replace(path)
    if change == "renamed":
        path.with_name(f"{path.name}.away").rename(path)
    if change in ("removed", "renamed", "a copy in its place"):
        assert rig.muse("resume", "last").returncode == 0, rig.said()
        assert (rig.workspace / "then.txt").exists()
        rig.verify()
    elif change in ("the last row", "a forged intent"):  # whole as it is: only the head that was named tells
        head = next(word for word in said.replace(",", " ").split() if re.fullmatch("[0-9]+:[0-9a-f]{64}", word))
        assert rig.muse("verify", str(path)).returncode == 0
        told = rig.muse("verify", str(path), "--head", head)
        assert told.returncode == (8 if change == "the last row" else 0)
        assert ("the log ends at the known head" in told.stdout) is False
    else:
        assert rig.muse("verify", str(path)).returncode == 6


def test_an_idle_chat_notices_it_too(rig: Rig) -> None:
    with watched(rig, "exec", "--json", "-m", rig.script([{"uses": [["shell", {"command": "touch x"}]]}]), "go") as run:
        run.until("approval.requested")
        subprocess.run(sql(rig.path(), "DELETE FROM events WHERE seq = 3"), check=True)
        assert run.end() == 6, run.errors
    assert not (rig.workspace / "x").exists()
    assert app.owner_pid(rig.path()) == 0


def test_damage_from_before_it_was_resumed_is_not_blamed_on_somebody_who_rewrote_it_meanwhile(rig: Rig) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([WAITS, THEN, DONE]), "go on") as run:
        run.until("tool.started")
        run.process.kill()
        run.end()
    rig.kill_all()
    subprocess.run(CHANGES["an old event"](rig.path()), env=rig.environment, check=True)
    with watched(rig, "resume", "--json", "last") as again:
        again.until("tool.started")
        rig.path().chmod(0o600)  # touched by somebody: reason enough to look at all of it
        assert again.end() == 6, again.errors
    said = " ".join(again.errors.split())
    assert "or was damaged before: event 2" in said
    assert "muse recover" in said
    assert not (rig.workspace / "then.txt").exists()
