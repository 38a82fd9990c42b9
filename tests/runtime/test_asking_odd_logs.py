"""Logs whose chain is whole and whose story is not: whatever they say, asking them gives an answer or a reason."""

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from muse.app.models import rules
from muse.errors import MuseError
from muse.event import codec
from muse.event.envelope import check_body
from muse.event.kinds import COMMANDS
from muse.log.protocol import Log, Stored
from muse.log.sqlite import SqliteLog
from muse.runtime.reading import Reading
from muse.view.causes import why
from muse.view.filters import Past, learn, parsed
from muse.view.sent import difference_lines, encoded, summary_lines, summary_value
from tests.runtime.retold import retold

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0.muse"
ODD: list[Any] = [
    "main/1", "main/2", "main.1/3", "main/٣", "main", "x", "", 0, 1, 2, 5, 30, 59, 60, 2**53, -1, True, None, [], {},
    "read", "shell", ["main/2"],
]  # fmt: skip
FILTERS = [parsed(text, datetime(2026, 1, 1, tzinfo=UTC)) for text in
           ("path:x", "grep:zzz", "tool:shell", "approved-by:ada", "turn:2", "failed", "regex:qq")]  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteLog]:
    copy = tmp_path_factory.mktemp("odd") / "old.muse"
    copy.write_bytes(GOLDEN.read_bytes())
    opened = SqliteLog.open(copy, commands=COMMANDS, read_only=True)
    yield opened
    opened.close()


def odd(value: Any, chance: random.Random) -> Any:
    """The value with one place in it changed, left out, or put in place of another."""
    if isinstance(value, dict) and value:
        name = chance.choice(sorted(value))
        rest = {key: item for key, item in value.items() if key != name}
        return rest if chance.random() < 0.15 else {**rest, name: odd(value[name], chance)}
    if isinstance(value, list) and value:
        at = chance.randrange(len(value))
        return [*value[:at], *([] if chance.random() < 0.3 else [odd(value[at], chance)]), *value[at + 1 :]]
    return chance.choice([item for item in ODD if type(item) is type(value)] or ODD)


def changed(one: Stored, chance: random.Random) -> Stored:
    """An event that says something else, of a form that can be read; or its header does."""
    assert one.body is not None
    header, body = one.header, one.body
    if chance.random() < 0.25:
        told = json.loads(header)
        told |= {"cause": chance.randrange(one.seq), "agent": chance.choice(("main", "main.1"))}
        header = codec.encode(told)
    with suppress(MuseError):
        said = codec.encode(odd(codec.parse(body), chance))
        head = codec.parse_header(header)
        check_body(head.type, head.v, said)
        body = said
    return Stored(one.seq, header, body, one.key, 0, b"", b"")


def odd_log(log: SqliteLog, seed: int) -> Log:
    chance, events = random.Random(seed), list(log.read())
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(events))
        events[at] = changed(events[at], chance)
    if chance.random() < 0.2:
        one = chance.choice(events)
        events[one.seq - 1] = Stored(one.seq, one.header, None, None, one.count, one.root, one.hash, hidden=b"[]")
    return retold(log, events)


@pytest.mark.parametrize("seed", range(24))
def test_an_odd_log_can_be_asked(log: SqliteLog, seed: int) -> None:
    reading, past, head = Reading(odd_log(log, seed)), Past(), log.head().seq
    for event in reading.events():
        learn(past, event)
        for wanted in FILTERS:
            wanted.matches(event, past, reading.content)
    for seq in (head, random.Random(seed).randrange(1, head)):
        at = reading.event(seq)
        assert at is not None
        steps = why(at, reading, reading.state_after(seq)).steps
        assert [step.row.seq for step in steps] == sorted({step.row.seq for step in steps}, reverse=True)
        sent = reading.request_at(seq, "main", rules())
        if sent is not None and sent.request.data is not None and not sent.request.differs:
            assert list(summary_lines(sent))
            assert encoded(summary_value(sent))
            if sent.previous is not None and sent.previous.data is not None:
                assert list(difference_lines(sent))
