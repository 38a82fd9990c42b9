"""What the screen of `muse replay` does, without a terminal around it."""

import unicodedata
from contextlib import closing
from pathlib import Path

import pytest

from muse.event import kinds
from muse.event.kinds import KINDS
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal
from muse.ui.tui.bottom import Typed
from muse.ui.tui.keys import KEYS
from tests.ui.tui.made import HOSTILE, SESSION, Story, write_session
from tests.ui.tui.pilots import Reader, reads
from tests.view.made import filled


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of 71 events."""
    path = tmp_path_factory.mktemp("session") / "story.muse"
    write_session(path)
    return path


def test_every_name_of_every_key_is_bound(session: Path) -> None:
    async def story(reader: Reader) -> None:
        bound = reader.screen._bindings.key_to_bindings
        for key in KEYS:
            for name in key.keys.split(","):
                known = {"/": "slash", "[": "left_square_bracket", "]": "right_square_bracket"}.get(name, name)
                actions = [binding.action for at in (name, known) for binding in bound.get(at, [])]
                actions = actions or [
                    b.action for bs in bound.values() for b in bs if b.action == f"screen.{key.action}"
                ]
                assert f"screen.{key.action}" in actions, name
        await reader.press("q")

    assert reads(session, story) == 0


def test_it_begins_at_the_event_of_the_address_with_what_was_before_and_after(session: Path) -> None:
    async def story(reader: Reader) -> None:
        assert reader.seq == 43
        assert next(row for row in reader.rows if row.startswith(">")).startswith(">#43 ")
        assert any(row.startswith(" #42 ") for row in reader.rows)
        assert any(row.startswith(" #44 ") for row in reader.rows)

    reads(session, story, seq=43)


def test_a_number_typed_at_once_is_taken_whole(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.type("62")
        assert reader.seq == 62
        await reader.type("99")
        assert (reader.seq, "there is no event 99" in reader.status) == (62, True)
        await reader.press("colon", "1", "7", "G")
        assert reader.seq == 17

    reads(session, story)


def test_a_click_elsewhere_leaves_the_line_that_is_typed(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("f", "a")
        await reader.click("#list", 10, 4)
        assert (reader.seq, reader.screen.prompt.display) == (5, False)
        await reader.press("j")
        assert reader.seq == 6

    reads(session, story)


def test_a_search_goes_over_rows_details_and_outputs_and_takes_expressions(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("slash")
        await reader.type("140 PASSED")
        await reader.until(lambda: reader.seq == 51)
        await reader.press("slash", "ctrl+r")
        await reader.type("exit [1-9]")
        await reader.until(lambda: "nothing more" in reader.status)
        await reader.press("N")
        await reader.until(lambda: reader.seq == 32)
        await reader.press("slash")
        await reader.type("(")
        assert "expression" in reader.status

    reads(session, story)


def test_an_expression_that_may_never_end_is_refused_by_search_and_filter(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("slash", "ctrl+r")
        await reader.type("(.*/)*q:")
        assert "may take for ever" in reader.status
        await reader.press("f")
        await reader.type("regex:(y+)+z")
        assert "may take for ever" in reader.status
        assert (reader.screen.listing.events, "only" in reader.status) == (71, False)

    reads(session, story)


def test_a_filter_shows_what_is_meant_and_can_be_changed(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("f")
        await reader.type("type:approval.* approved-by:ada")
        await reader.until(lambda: reader.screen.listing.looked == 71)
        assert [row.split()[0] for row in reader.rows if row] == [
            " #41",
            ">#58",
            " #67",
        ] or reader.screen.listing.events
        assert "only type:approval.* approved-by:ada" in reader.status
        await reader.press("f")
        await reader.type(" nonsense:1")
        assert "there is no filter nonsense" in reader.status
        await reader.press("f", "ctrl+u")
        await reader.type("")
        assert (reader.screen.listing.events, "only" in reader.status) == (71, False)

    reads(session, story, seq=58)


def test_whole_calls_are_found_by_any_of_their_events(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("f")
        await reader.type("denied whole-calls")
        await reader.until(lambda: reader.screen.listing.events == 2)
        assert [reader.screen.listing.seq_at(place) for place in range(2)] == [49, 50]

    reads(session, story)


def test_new_events_appear_and_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "running.muse"
    with closing(SqliteLog.create(path, SESSION, commands=kinds.COMMANDS)) as log:
        told = Story(log)

        async def story(reader: Reader) -> None:
            assert (reader.seq, reader.screen.listing.count) == (1, 1)
            told.say(kinds.NoteAdded(text="one more"))
            await reader.until(lambda: reader.screen.listing.count == 2)
            assert reader.seq == 1
            await reader.press("F")
            assert reader.seq == 2
            told.say(kinds.NoteAdded(text="and one more"))
            await reader.until(lambda: reader.seq == 3)
            assert any("and one more" in row for row in reader.rows)
            await reader.press("k")
            told.say(kinds.NoteAdded(text="the last"))
            await reader.until(lambda: reader.screen.listing.count == 4)
            assert reader.seq == 2, "who went back is not taken along"

        reads(path, story)


def test_playing_goes_on_by_itself_and_stops(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("plus", "plus", "plus", "p")
        await reader.until(lambda: reader.seq > 44)
        await reader.press("p")
        await reader.until(lambda: "stopped" in reader.status)
        assert reader.screen.player is None

    reads(session, story, seq=44)


def test_a_click_chooses_a_row_and_one_on_the_minimap_jumps(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.click("#list", 5, 3)
        assert reader.seq == 4
        await reader.click("#minimap", 1, reader.screen.list.size.height - 1)
        assert reader.seq > 60
        await reader.press("backspace")
        assert reader.seq == 4

    reads(session, story)


SAFE = tuple(
    key.keys.split(",")[-1]
    for key in KEYS
    if key.action not in ("quit", "suspend", "ask_seq", "ask_text", "ask_filter", "only_type", "only_agent", "play")
)
"""What can be pressed in any order; those left out end the story or begin a line."""


@pytest.mark.parametrize("size", [(1, 1), (200, 50)])
def test_every_key_works_at_every_size(session: Path, size: tuple[int, int]) -> None:
    async def story(reader: Reader) -> None:
        await reader.press(*SAFE)
        await reader.resize(120, 40)
        await reader.press("escape", "escape", "escape", "escape", "g")
        assert reader.seq == 1
        assert reader.pane("detail")[1].startswith(" ▶ opened")

    reads(session, story, seq=30, size=size)


def test_q_leaves_the_help_before_it_leaves_the_session(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("question_mark")
        assert reader.screen.view == "help"
        await reader.press("q")
        assert reader.screen.view == "detail"
        await reader.press("q")

    assert reads(session, story) == 0


def test_a_filter_with_a_slip_in_it_need_not_be_typed_again(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("f")
        await reader.type("agnt:main.2 failed")
        assert "there is no filter agnt:" in reader.status
        await reader.press("f", "home", "right", "right", "e", "enter")
        assert "only agent:main.2 failed" in reader.status
        await reader.press("f", "ctrl+u")
        await reader.type("agnt:main")
        await reader.press("f", "escape", "f")
        assert reader.screen.query_one(Typed).value == "agent:main.2 failed"

    reads(session, story)


def test_a_number_that_a_filter_of_nothing_hides_is_said_to_be_hidden(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("f")
        await reader.type("agent:main.7")
        await reader.type("62")
        assert "the filter hides #62 and all others (Esc shows all)" in reader.status

    reads(session, story)


def test_a_turn_of_which_the_filter_shows_nothing_is_no_next_turn(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("f")
        await reader.type("agent:main.1")
        await reader.until(lambda: reader.screen.listing.looked == 71)
        await reader.press("G", "right_curly_bracket")
        assert (reader.seq, "no turn after this" in reader.status) == (31, True)

    reads(session, story)


def test_every_jump_is_gone_back_on(session: Path) -> None:
    async def story(reader: Reader) -> None:
        await reader.press("G")
        await reader.type("5")
        await reader.press("backspace")
        assert reader.seq == 71
        await reader.press("backspace")
        assert reader.seq == 1
        await reader.press("backspace")
        assert "there was no jump" in reader.status

    reads(session, story)


def test_an_empty_log_says_so(tmp_path: Path) -> None:
    path = tmp_path / "empty.muse"
    SqliteLog.create(path, SESSION, commands=kinds.COMMANDS).close()

    async def story(reader: Reader) -> None:
        assert "no events" in reader.rows[0]
        await reader.press(*SAFE, "escape", "q")

    assert reads(path, story) == 0


def test_nothing_of_a_log_reaches_the_terminal_but_what_can_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "hostile.muse"
    text = HOSTILE + "\r\u2028\u200b\x00\x85" + "\x1b]52;c;aGk=\x07"
    with closing(SqliteLog.create(path, SESSION, commands=kinds.COMMANDS)) as log:
        told = Story(log)
        bodies = [filled(kind.body, text) for name, kind in KINDS.items() if name != "session.opened"]
        drafts = [seal(body, "main", 0) for body in bodies if not _names_blobs(body)]
        drafts.append(seal(kinds.NoteAdded(text=text * 2_000), "main", 0))
        log.append(drafts, [], told.state.seq, 1)

    async def story(reader: Reader) -> None:
        count = reader.screen.listing.count
        assert count > 30
        for seq in range(1, count + 1):
            reader.screen.jump(seq)
            reader.screen.settle()
            assert reader.seq == seq
            for line in (*reader.rows, *reader.pane("detail"), *reader.pane("state"), reader.status):
                bad = [sign for sign in line if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
                assert not bad, (seq, line)

    reads(path, story, size=(160, 50))


def _names_blobs(body: object) -> bool:
    return "BlobRef" in repr(body)
