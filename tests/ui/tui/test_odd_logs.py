"""The screen on logs that are damaged, redacted, of a later version, imported, or no record of anything."""

import json
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest
from click.testing import CliRunner

from muse.event import codec, kinds
from muse.log.sqlite import SqliteLog
from muse.ui.cli import cli
from tests.property.played import Bytes, place_of, reading_of
from tests.ui.tui.made import write_session
from tests.ui.tui.pilots import Reader, reads


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of 71 events."""
    path = tmp_path_factory.mktemp("session") / "story.muse"
    write_session(path)
    return path


def test_a_damaged_log_ends_with_a_row_that_says_so(session: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.muse"
    path.write_bytes(session.read_bytes())
    with closing(apsw.Connection(str(path))) as db:
        db.execute("UPDATE events SET hash = zeroblob(32) WHERE seq = 20")

    async def story(reader: Reader) -> None:
        await reader.until(lambda: "DAMAGED at #20" in reader.status)
        await reader.press("G")
        last = [row for row in reader.rows if row][-1]
        assert last.startswith(">#20 ")
        assert "✗ damaged  event 20 does not fit the chain" in last
        assert any("muse recover" in line for line in reader.pane("detail"))
        await reader.press("k")
        assert (reader.seq, reader.pane("detail")[1].startswith(" … model")) == (19, True)
        await reader.press("w")
        await reader.until(lambda: "ends here: the words of ada" in reader.screen.detail.text)
        await reader.press("q")

    assert reads(path, story) == 6


def stored_of(session: Path) -> list[Bytes]:
    """Headers and bodies of all events."""
    with closing(SqliteLog.open(session, commands=kinds.COMMANDS)) as log:
        return [(one.header, one.body) for one in log.read()]


def changed(session: Path) -> list[Bytes]:
    """The session with #8 redacted, and #51 of a type that nobody knows."""
    stored = stored_of(session)
    header, body = stored[50]
    fields = msgspec.structs.asdict(codec.parse_header(header)) | {"type": "later.invented"}
    stored[50] = codec.encode_header(**fields), body
    stored[7] = stored[7][0], None
    return stored


def test_what_is_hidden_or_unknown_is_shown_as_that(session: Path, tmp_path: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.type("8")
        assert any("▒ tool.finished hidden" in row for row in reader.rows)
        assert any("hidden by redaction" in line for line in reader.pane("detail"))
        await reader.type("51")
        assert any(row.startswith(">#51") and "? later.invented v1" in row for row in reader.rows)
        await reader.press("G", "s")
        await reader.until(lambda: any("not all is known" in line for line in reader.pane("detail")))
        await reader.press("s", "r")
        await reader.until(lambda: reader.pane("detail")[1] and "reading the log" not in reader.pane("detail")[1])

    place = place_of(changed(session))
    reads(tmp_path / "no.muse", story, opens=lambda: reading_of(place))


def test_another_agents_file_is_said_to_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    common = {"sessionId": "5d1c0de0", "version": "2.1.0", "cwd": "/home/ada/shop", "isSidechain": False}
    lines = [
        {"type": "user", "uuid": "a", "parentUuid": None, "timestamp": "2026-03-09T09:00:00.000Z",
         "message": {"role": "user", "content": "Say hello"}},
        {"type": "assistant", "uuid": "b", "parentUuid": "a", "timestamp": "2026-03-09T09:00:02.000Z",
         "message": {"id": "m", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "Hello there"}],
                     "usage": {"input_tokens": 5, "output_tokens": 2}}},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line | common) + "\n" for line in lines))

    async def story(reader: Reader) -> None:
        assert "imported" in reader.status
        assert any("Hello there" in row for row in reader.rows)
        await reader.press("slash")
        await reader.type("hello there")
        await reader.until(lambda: any(row.startswith(">") and "Hello there" in row for row in reader.rows))
        for view in ("r", "d", "w", "s"):
            await reader.press(view)
        await reader.press("q")

    assert reads(path, story) == 0


def test_a_story_that_cannot_have_been_has_rows_and_no_state(session: Path, tmp_path: Path) -> None:
    stored = stored_of(session)
    header, _ = stored[40]  # an approval of a call that was never asked for
    fields = msgspec.structs.asdict(codec.parse_header(header)) | {"type": "tool.started"}
    body = kinds.ToolStarted(call="main/999", attempt=1, tool="shell", args="{}", recovery="opaque")
    stored[40] = codec.encode_header(**fields), codec.canonical(body)[0]
    place = place_of(stored)

    async def story(reader: Reader) -> None:
        await reader.type("45")
        assert any(row.startswith(">#45") for row in reader.rows)
        await reader.until(lambda: any("not known" in line for line in reader.pane("state")))

    reads(tmp_path / "no.muse", story, size=(160, 40), opens=lambda: reading_of(place))


def test_what_is_redacted_meanwhile_is_not_shown_any_more(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSE_HOME", str(tmp_path / "home"))
    path = tmp_path / "kept.muse"
    path.write_bytes(session.read_bytes())

    async def story(reader: Reader) -> None:
        assert any("The checkout test fails" in line for line in reader.pane("detail"))
        await reader.press("w")
        await reader.until(lambda: any("ends here" in line for line in reader.pane("detail")))
        await reader.press("w")
        done = CliRunner().invoke(cli, ["redact", f"{path}@2", "-y"], standalone_mode=False)
        assert done.exception is None, done.exception
        await reader.until(
            lambda: not any("The checkout test" in line for line in (*reader.rows, *reader.pane("detail")))
        )
        assert any("hidden by redaction" in line for line in reader.pane("detail"))
        await reader.press("w")
        await reader.until(lambda: any("ends here" in line for line in reader.pane("detail")))
        assert not any("The checkout test" in line for line in reader.pane("detail"))

    reads(path, story, seq=2)
