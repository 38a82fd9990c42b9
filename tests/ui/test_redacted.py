"""A session of which something was taken out, under the commands: it can be read and handed on, not continued."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muse.event.codec import parse
from muse.event.commitment import disclose, encode_disclosed
from muse.event.kinds import COMMANDS, required_clear
from muse.log.sqlite import SqliteLog
from muse.testing.store import draft
from tests.ui.driving import World, shell

ALWAYS_NEEDED = [
    "session.opened", "user.prompted", "agent.spawned", "model.requested", "model.responded", "tool.started",
    "tool.finished", "session.closed",
]  # fmt: skip


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A machine with one finished session; its tests work on copies."""
    world = World(tmp_path_factory.mktemp("past"))
    script = world.script({"uses": [["write", {"path": "a", "content": "x\n"}], shell("echo hi")]}, {"text": "Well."})
    assert world.run("exec", "--yolo", "-m", script, "do it").code == 0
    yield world
    world.close()


def redacted(world: World, folder: Path, kind: str) -> tuple[Path, int]:
    """A closed copy of the session whose first event of a type is hidden, but for what must stay clear; and its seq."""
    copy = folder / "copy.muse"
    copy.write_bytes(world.files()[0].read_bytes())
    with closing(SqliteLog.open(copy, commands=COMMANDS)) as log:
        found = list(log.read())
        headers = [json.loads(event.header) for event in found]
        at = next(index for index, header in enumerate(headers) if header["type"] == kind)
        opened, event, clear = found[0].body, found[at], required_clear(kind, headers[at]["v"])
        assert opened is not None
        assert event.body is not None
        assert event.key is not None
        owned = log.claim(lambda claim: draft("session.opened", body=json.loads(opened)))
        hidden = disclose(parse(event.body), event.key, lambda path: bool(path[:1]) and path[0] not in clear)
        log.redact({event.seq: encode_disclosed(hidden)}, [], owned.epoch)
        log.append([], [draft("session.closed", body={"outcome": "done"})], log.head().seq, owned.epoch)
    return copy, event.seq


@pytest.mark.parametrize("kind", ALWAYS_NEEDED)
def test_what_the_agents_went_by_is_gone_and_the_session_cannot_go_on(past: World, tmp_path: Path, kind: str) -> None:
    copy, seq = redacted(past, tmp_path, kind)
    before = past.run("log", str(copy), "--json").out
    done = past.run("resume", str(copy), "go on")
    assert (done.code, done.out) == (2, "")
    first, second = done.err.splitlines()
    assert first.endswith(f"redacted: {kind} (#{seq})")
    assert all(word in second for word in ("muse replay", "muse export", "new session"))
    assert past.run("log", str(copy), "--json").out == before


@pytest.mark.parametrize("kind", [*ALWAYS_NEEDED, "files.changed"])
def test_a_redacted_session_can_be_read_spoken_to_and_handed_on(past: World, tmp_path: Path, kind: str) -> None:
    copy, seq = redacted(past, tmp_path, kind)
    exported = str(tmp_path / "out.jsonl")
    for words in (
        ["replay", str(copy)], ["log", str(copy)], ["show", f"{copy}@{seq}"], ["show", str(copy)],
        ["export", str(copy), "-o", exported], ["export", str(copy), "--format", "md"], ["verify", str(copy)],
        ["verify", exported], ["steer", str(copy), "hear me"],
    ):  # fmt: skip
        done = past.run(*words)
        assert done.code == 0, (words, done)
    assert "parts of 1 event, 0 blobs" in past.run("verify", str(copy)).out
    assert "1 blobs" not in past.run("verify", exported).out


def test_what_no_agent_went_by_may_be_gone_and_the_session_goes_on(past: World, tmp_path: Path) -> None:
    copy, _ = redacted(past, tmp_path, "files.changed")
    script = past.script({"text": "unused"}, {"text": "unused"}, {"text": "On it."})
    done = past.run("resume", str(copy), "-m", script, "go on")
    assert (done.code, done.out) == (0, "On it.\n"), done
