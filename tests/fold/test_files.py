"""Which line of snapshots an event about files belongs to, and what an agent is known to have changed in its tree."""

import msgspec
import pytest

from muse.event.content import BlobRef, FileChange
from muse.event.envelope import Event
from muse.event.kinds import KINDS, FilesChanged, FilesUnknown, WorktreePrepared, WorktreeRemoved
from muse.fold.evolve import evolve
from muse.fold.files import UNKNOWN, changes_text
from muse.fold.state import Agent, Session, remember, undone

BLOB = BlobRef(blob="b", length=1)


def session() -> Session:
    """`main`, its child `main.1` with a tree of its own, `main.1.1` that shares it, and `main.2` in the workspace."""
    agents = [
        Agent(id="main"),
        Agent(id="main.1", parent="main", isolation="worktree", workspace="/trees/1", tree="t0"),
        Agent(id="main.1.1", parent="main.1"),
        Agent(id="main.2", parent="main"),
    ]
    return Session(session="s", seq=9, workspace="/shop", tree="m0", agents={one.id: one for one in agents})


def say(state: Session, agent: str, body: msgspec.Struct) -> None:
    seq = state.seq + 1
    kind = next(name for name, one in KINDS.items() if one.body is type(body))
    evolve(state, Event(seq, f"{seq:032x}", "", kind, 1, agent, 0, 1, body))


def new(path: str) -> FileChange:
    return FileChange(path=path, after=BLOB, after_mode=0o644)


def edit(path: str) -> FileChange:
    return FileChange(path=path, before=BLOB, after=BLOB, before_mode=0o644, after_mode=0o644)


def gone(path: str) -> FileChange:
    return FileChange(path=path, before=BLOB, before_mode=0o644)


@pytest.mark.parametrize(("lane", "trees"), [("main", ("m1", "t0")), ("main.2", ("m1", "t0")), ("main.1", ("m0", "m1")),
                                             ("main.1.1", ("m0", "m1"))])  # fmt: skip
def test_a_change_belongs_to_the_folder_that_its_agent_works_in(lane: str, trees: tuple[str, str]) -> None:
    state = session()
    say(state, lane, FilesChanged(changes=(edit("a"),), tree="m1"))
    assert (state.tree, state.agents["main.1"].tree) == trees
    assert state.agents["main.1"].changed == ({"a": "changed"} if trees[1] == "m1" else {})
    assert state.agents["main.1.1"].changed == state.agents["main.2"].changed == {}


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ([new("a"), edit("a")], {"a": "new"}),
        ([new("a"), gone("a")], {}),
        ([edit("a"), gone("a")], {"a": "deleted"}),
        ([gone("a"), new("a")], {"a": "changed"}),
        ([FileChange(path="a", after_mode=0o644, note="too large")], {"a": "new, not recorded"}),
        ([FileChange(path="a", after_mode=0o644, note="too large"), edit("a")], {"a": "new"}),
        ([FileChange(path="a.log", note="ignored")], {}),
    ],
)
def test_what_was_changed_is_told_from_the_beginning_to_now(changes: list[FileChange], known: dict[str, str]) -> None:
    state = session()
    for change in changes:
        say(state, "main.1", FilesChanged(changes=(change,)))
    assert state.agents["main.1"].changed == known


def test_a_look_that_failed_is_not_forgotten_and_another_lane_is_not_concerned() -> None:
    state = session()
    say(state, "main.1.1", FilesUnknown(calls=(), why="full"))
    assert (state.tree, state.agents["main.1"].tree) == ("m0", "")
    assert UNKNOWN in state.agents["main.1"].changed
    assert "not known" in changes_text(state.agents["main.1"])


def test_taking_a_fold_back_takes_back_what_it_did_to_the_tree_of_another_lane() -> None:
    state = session()
    undo = remember(state)
    event = Event(10, "0" * 32, "", "files.changed", 1, "main.1.1", 0, 1, FilesChanged(changes=(new("a"),), tree="x"))
    evolve(state, event, undo)
    assert state.agents["main.1"].tree == "x"
    state = undone(undo, state)
    assert (state.agents["main.1"].tree, state.agents["main.1"].changed) == ("t0", {})


def test_who_goes_on_while_its_tree_is_taken_away_waits_for_another_one() -> None:
    state = session()
    state.agents["main.1"].turn = True
    say(state, "main.1", WorktreeRemoved(path="/trees/1"))
    child = state.agents["main.1"]
    assert (child.workspace, child.tree, child.preparing) == ("", "", True)
    say(state, "main.1", WorktreePrepared(path="/trees/1", base="c", tree="t9", left_out=("sub/",)))
    assert (child.workspace, child.tree, child.preparing) == ("/trees/1", "t9", False)
    assert any("Not taken along: sub/" in getattr(item, "text", "") for item in child.items)


def test_a_tree_that_is_kept_stays_where_the_agent_works() -> None:
    state = session()
    say(state, "main.1", WorktreeRemoved(path="/trees/1", left=("x.log",), why="ignored"))
    assert (state.agents["main.1"].workspace, state.agents["main.1"].kept) == ("/trees/1", True)


def test_the_parent_is_told_of_at_most_fifty_files_by_name() -> None:
    agent = Agent(id="main.1", parent="main", isolation="worktree", workspace="/t")
    assert changes_text(agent) == "It changed no files in its working tree."
    agent.changed = {f"f{n}": "new" for n in range(60)}
    text = changes_text(agent)
    assert text.count(" (new)\n") == 50
    assert "and 10 more" in text
    assert changes_text(Agent(id="main.2", parent="main")) == ""
