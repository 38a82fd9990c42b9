"""A filter that was given by flags stands in the filter line, and means the same there."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from muse.ui.tui.opening import written
from muse.view.filters import Filter, parsed
from muse.view.moments import Moment
from tests.ui.tui.made import write_session
from tests.ui.tui.pilots import Reader, reads

NOW = datetime(2026, 3, 9, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        (Filter(), ""),
        (Filter(types=("tool.*", "model.failed"), failed=True), "type:tool.* type:model.failed failed"),
        (Filter(agents=("main.1",), below=True, turns=(2, 3)), "agent:main.1 below turn:2 turn:3"),
        (Filter(texts=("drop table", "it's")), 'grep:"drop table" grep:"it\'s"'),
        (Filter(texts=('say "no"',)), "grep:\"say \"'\"'\"no\"'\"'\"\""),
        (Filter(since=Moment(seq=12), until=Moment(time="2026-03-09T09:00:01.000002Z")),
         "since:@12 until:2026-03-09T09:00:01.000002Z"),
    ],
)  # fmt: skip
def test_a_filter_is_written_as_it_is_read(wanted: Filter, line: str) -> None:
    assert written(wanted) == line
    assert parsed(line, NOW) == wanted


def test_the_screen_begins_with_the_filter_of_the_flags(tmp_path: Path) -> None:
    path = tmp_path / "story.muse"
    write_session(path)

    async def story(reader: Reader) -> None:
        await reader.until(lambda: reader.screen.listing.looked == 71)
        assert [row[:4] for row in reader.rows if row] == [">#31", " #35"]
        assert "only type:agent.finished (2)" in reader.status
        await reader.press("escape")
        assert (reader.screen.listing.events, reader.seq) == (71, 1)

    reads(path, story, wanted=Filter(types=("agent.finished",)))
