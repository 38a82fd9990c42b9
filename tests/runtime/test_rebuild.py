"""Each model request can be rebuilt from the log, and a log whose meaning was changed says so."""

from pathlib import Path

import msgspec
import pytest

from muse.event import codec, commitment
from muse.event.kinds import COMMANDS, UserPrompted
from muse.log.protocol import Stored
from muse.log.sqlite import SqliteLog
from muse.runtime.rebuild import check_requests
from tests.runtime.rig import RULES, Rig, steps


class Retold:
    """A log whose chain is rebuilt after the text of one event was changed: only the meaning is wrong."""

    def __init__(self, log: SqliteLog, type_name: str, old: bytes, new: bytes) -> None:
        self.session = log.session
        self._events: list[Stored] = []
        changed, previous = False, commitment.genesis(log.session)
        for stored in log.read():
            body, key = stored.body, stored.key
            assert body is not None
            assert key is not None
            if not changed and type_name.encode() in stored.header and old in body:
                body, changed = body.replace(old, new, 1), True
            root = commitment.commit(body, key)
            previous = commitment.chain(previous, stored.header, root.count, root.root)
            self._events.append(Stored(stored.seq, stored.header, body, key, root.count, root.root, previous))
        assert changed

    def read(self) -> list[Stored]:
        return self._events


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
    row = check_requests(Retold(log, type_name, old, new), RULES)  # type: ignore[arg-type]
    assert row.state == "failed"
    assert row.seq


def test_an_impossible_story_is_named(log: SqliteLog) -> None:
    row = check_requests(Retold(log, "tool.started", b'"call":"main/2"', b'"call":"main/8"'), RULES)  # type: ignore[arg-type]
    assert row.state == "failed"


def test_a_builder_that_is_not_at_hand_is_no_fault(log: SqliteLog) -> None:
    rules = msgspec.structs.replace(RULES, builders={})
    assert check_requests(log, rules).state == "not checkable"


def test_the_bytes_are_canonical_all_the_same(log: SqliteLog) -> None:
    for stored in log.read():
        assert stored.body is not None
        assert codec.encode(codec.parse(stored.body)) == stored.body
