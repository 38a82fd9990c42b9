"""The list of `muse agents`: which lines of the tree are in view."""

from types import SimpleNamespace
from typing import Any

import pytest

from muse.ui.tui.fleet_list import FleetList


def in_view(lines: str, at: int, room: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The lines shown where the one at `at` is chosen: `S` a session, `a` an agent. First there was no room at all."""
    tree: Any = SimpleNamespace(at=at, places=[SimpleNamespace(row=None if one == "S" else one) for one in lines])
    shown = FleetList(tree)
    monkeypatch.setattr(shown, "refresh", lambda: None)
    for lines_of_room in (1, room):
        monkeypatch.setattr(FleetList, "room", lines_of_room)
        shown.reveal()
    return lines[shown.top : shown.top + room]


@pytest.mark.parametrize(
    ("lines", "at", "room", "seen"),
    [
        ("SabcSde", 1, 4, "Sabc"),  # as it opens: the first agent is chosen
        ("SabcSde", 5, 2, "Sd"),
        ("SabcSde", 2, 2, "bc"),
        ("SabcSde", 1, 1, "a"),
        ("abc", 0, 2, "ab"),
    ],
)
def test_the_line_of_a_session_is_in_view_above_its_first_agent(
    lines: str, at: int, room: int, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_view(lines, at, room, monkeypatch) == seen
