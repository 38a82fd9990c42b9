"""Words that begin with a slash, and what is none of them."""

from contextlib import closing
from pathlib import Path

import pytest

from muse.app.fleet import Fleet
from muse.errors import UsageError
from muse.event.content import Origin
from muse.event.kinds import QuestionAnswered
from muse.ui.cli.slash import Word, meant, ours, word_of
from muse.ui.tui import fleet_said
from tests.ui.tui.fanout import write_fanout


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("/help", Word("/help")),
        (" /pause --tree\n", Word("/pause", tree=True)),
        ("/help me", None),
        ("/tmp", None),
        ("/", None),
        ("//help", None),
        ("help", None),
        ("see /help", None),
    ],
)
def test_only_a_whole_line_of_ours_is_a_word(text: str, word: Word | None) -> None:
    assert ours(text) == word


def test_a_slip_is_a_word_where_no_text_is_wanted() -> None:
    assert word_of("/hepl") == Word("/hepl")


@pytest.mark.parametrize(
    ("text", "says"),
    [("//help", "/help"), ("//pause --tree", "/pause --tree"), ("//srv/share", "//srv/share"), ("/tmp", "/tmp")],
)
def test_another_slash_says_a_word_of_ours_as_it_stands(text: str, says: str) -> None:
    assert meant(text) == says


def test_a_word_of_the_chat_is_no_answer_on_the_screen_of_agents_either(tmp_path: Path) -> None:
    path = tmp_path / "s.muse"
    write_fanout(path, "work")
    with closing(Fleet(lambda: [path], print)) as fleet:
        fleet.look()
        (session,) = fleet.sessions
        asked = fleet_said.asked(fleet, session, session.agents[5])
        assert asked is not None
        assert asked.line is not None
        with pytest.raises(UsageError, match="/help is no answer here; to say just that: //help"):
            asked.line("/help")
        body = asked.line("//help").body(Origin())
        assert isinstance(body, QuestionAnswered)
        assert body.text == "/help"
