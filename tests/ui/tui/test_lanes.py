"""Lanes of agents, worked by hand."""

from muse.ui.tui.lanes import cells, lanes_of

AGENTS = [("main", 1, 0), ("main.1", 3, 6), ("main.2", 4, 9), ("main.3", 8, 0)]
"""main.3 begins after main.1 ended, and takes its column."""


def drawn(width: int, *rows: tuple[int, str]) -> list[str]:
    """Rows of (event, agent)."""
    lanes = lanes_of(AGENTS)
    return [cells(lanes, seq, agent, width) for seq, agent in rows]


def test_each_agent_has_a_column_that_is_free_again_when_it_ended() -> None:
    rows = [(1, "main"), (3, "main.1"), (4, "main.2"), (5, "main.1"), (6, "main.1"), (7, "main"), (8, "main.3")]
    assert drawn(3, *rows) == ["┬  ", "│┬ ", "││┬", "│●│", "│┴│", "● │", "│┬│"]
    assert drawn(3, (9, "main.2"), (10, "main.3")) == ["││┴", "│● "]


def test_lanes_beyond_the_width_share_the_last_column() -> None:
    assert drawn(2, (4, "main.2"), (5, "main.1"), (5, "main")) == ["│┬", "│●", "●┆"]


def test_many_agents_one_after_another_need_two_columns() -> None:
    agents = [("main", 1, 0), *((f"main.{n}", 10 * n, 10 * n + 5) for n in range(1, 1_000))]
    assert {lane.column for lane in lanes_of(agents)} == {0, 1}
