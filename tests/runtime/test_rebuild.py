"""Each model request can be rebuilt from the log, and a log whose meaning was changed says so."""

from pathlib import Path

import msgspec
import pytest

from muse.event import codec
from muse.event.kinds import COMMANDS, UserPrompted
from muse.log.sqlite import SqliteLog
from muse.runtime.rebuild import check_requests
from tests.runtime.retold import changed
from tests.runtime.rig import RULES, Rig, steps


@pytest.fixture
def log(tmp_path: Path) -> SqliteLog:
    rig = Rig(tmp_path, steps(3))
    rig.submit(UserPrompted(text="go there"))
    rig.run()
    return SqliteLog.open(rig.path, commands=COMMANDS, read_only=True)


def test_every_request_of_a_session_is_rebuilt(log: SqliteLog) -> None:
    row = check_requests(log, RULES)
    assert (row.state, row.detail) == ("proven", "model requests rebuilt from the log, byte for byte: 4")


@pytest.mark.parametrize(
    ("type_name", "old", "new"),
    [
        ("user.prompted", b"go there", b"go here!"),
        ("tool.finished", b"tallied", b"skipped"),
        ("model.responded", b"step 1", b"step 9"),
        ("model.requested", b'"request_bytes":', b'"request_bytes":1'),
        ("agent.spawned", b"coding agent", b"loving agent"),
    ],
)
def test_a_retold_story_gives_other_bytes(log: SqliteLog, type_name: str, old: bytes, new: bytes) -> None:
    row = check_requests(changed(log, type_name, old, new), RULES)
    assert row.state == "failed"
    assert row.seq


def test_an_impossible_story_is_named(log: SqliteLog) -> None:
    row = check_requests(changed(log, "tool.started", b'"call":"main/2"', b'"call":"main/8"'), RULES)
    assert row.state == "failed"


def test_a_builder_that_is_not_at_hand_is_no_fault(log: SqliteLog) -> None:
    rules = msgspec.structs.replace(RULES, builders={})
    assert check_requests(log, rules).state == "not checkable"


def test_the_bytes_are_canonical_all_the_same(log: SqliteLog) -> None:
    for stored in log.read():
        assert stored.body is not None
        assert codec.encode(codec.parse(stored.body)) == stored.body
