"""What the joining place does with files: a session that never began leaves nothing behind, and takes nothing away."""

from contextlib import closing
from pathlib import Path

import pytest

from muse import app
from muse.log.lock import acquire
from muse.log.sqlite import SqliteLog
from muse.testing.store import draft


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MUSE_HOME", str(tmp_path))
    return tmp_path


def files(home: Path) -> list[str]:
    return sorted(path.suffix for path in home.glob("sessions/*/*/*/*"))


def test_a_session_that_never_began_leaves_neither_log_nor_lock(home: Path) -> None:
    log = app.create_log(app.new_session_id())
    acquire(app.path_of(log).with_suffix(".lock")).release()
    app.discard_empty(log)
    assert files(home) == []


def test_an_empty_log_that_another_process_is_about_to_claim_stays_with_its_lock(home: Path) -> None:
    log = app.create_log(app.new_session_id())
    other = acquire(app.path_of(log).with_suffix(".lock"))
    app.discard_empty(log)
    assert files(home) == [".lock", ".muse"]
    other.release()


def test_a_log_with_an_event_stays_with_its_lock(home: Path) -> None:
    log = app.create_log(app.new_session_id())
    assert isinstance(log, SqliteLog)
    log.claim(lambda claim: draft("session.opened")).release()
    app.discard_empty(log)
    assert files(home) == [".lock", ".muse"]
    with closing(app.open_log(next(home.glob("sessions/*/*/*/*.muse")))) as again:
        assert again.head().seq == 1
