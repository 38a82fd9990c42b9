"""Ids of sessions: unique, and in the order in which sessions were made."""

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from muse.app import new_session_id
from muse.app.places import session_path


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSE_HOME", str(tmp_path))


def kept(session: str) -> str:
    """As if this session had been made."""
    session_path(session).parent.mkdir(parents=True, exist_ok=True)
    session_path(session).touch()
    return session


def test_ids_sort_by_the_time_of_their_making_to_the_millisecond() -> None:
    made = [new_session_id() for _ in range(2_000)]
    to_the_millisecond = [name[: len("20260102-030405-xx")] for name in made]
    assert to_the_millisecond == sorted(to_the_millisecond)
    assert len(set(to_the_millisecond)) > 1


def test_the_last_eight_characters_name_a_session() -> None:
    made = {new_session_id()[-8:] for _ in range(2_000)}
    assert len(made) == 2_000
    assert all(re.fullmatch(r"[0-9a-z]{8}", tail) for tail in made)


def test_after_the_clock_was_set_back_a_new_session_still_is_the_newest() -> None:
    """B62: here seen from the other side: one was made a day ahead."""
    ahead = datetime.now(UTC) + timedelta(days=1)
    made = [kept(f"{ahead:%Y%m%d-%H%M%S}-zzabcdef"), *(kept(new_session_id()) for _ in range(40))]
    assert made == sorted(made)
    assert len(set(made)) == 41


def test_names_that_are_none_of_ours_move_no_clock() -> None:
    for name in ("99991231-235959-zzzzzzzz", "29991399-000000-00000000", "21000101-000000-notours!", "x"):
        kept(name)
    assert new_session_id()[:4] == time.strftime("%Y", time.gmtime())
