"""Rows, documents and causes of what agents do to each other."""

import msgspec
import pytest

from muse.event import kinds
from muse.event.content import Origin
from muse.view.detail import detailed
from muse.view.markdown import Proof, document
from muse.view.text import row_words
from muse.view.timeline import Context, row
from tests.view.made import event
from tests.view.test_causes import asked, path, requested, responded, started, story

ADA = Origin(user="ada", terminal="/dev/pts/3")
SPAWNED = kinds.AgentSpawned(
    task="Look at the cart.", parent="main", call="main/2", tools=("read",), name="cart", role="reviewer", mode="plan",
    model="p/small", background=True, isolation="worktree",
)  # fmt: skip
TREE = "the agent and all below it"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (SPAWNED, "+ agent    main.1 cart (reviewer) begins for main, 1 tool, in the background, in a working tree of"
         " its own, mode plan, model p/small: Look at the cart.  (main/2)"),
        (kinds.ResultDelivered(child="main.1", text="No.", outcome="failed"),
         "→ result   of main.1, the task failed: No."),
        (kinds.CancelRequested(target="tree", by="main/4"), f"■ cancel   {TREE}  by main/4"),
        (kinds.CancelRequested(target="prompt", prompt=9, origin=ADA),
         "■ cancel   the prompt #9, which waits  by ada on /dev/pts/3"),
        (kinds.AgentPaused(target="tree", origin=ADA), f"■ pause    nothing new starts in {TREE}"),
        (kinds.AgentContinued(target="tree", origin=ADA), f"▶ continue {TREE} go on after the pause"),
        (kinds.ModelChanged(provider="p", dialect="d", model="b", reason="fallback"),
         "· model    falls back: from now on p/b"),
        (kinds.TimerSet(key="retry:main.1/1", duration_ms=0, until="2026-03-10T07:00:00Z"),
         "… wait     parked until 2026-03-10T07:00:00Z: the provider wants no request before  main.1/1"),
        (kinds.BudgetReached(limit="cost_microusd", value=2_000_000, scope="session"),
         "✗ limit    cost reached $2.00, of the session"),
        (kinds.BudgetRaised(limit="tokens", value=9_000, scope="tree", origin=ADA),
         f"› limit    tokens raised to 9,000, of {TREE}  by ada on /dev/pts/3"),
        (kinds.WorktreePrepared(path="/t/1", base="5d1c0de0aa"), "+ worktree made from 5d1c0de0  /t/1"),
        (kinds.WorktreePrepared(path="", base="", error="no room"), "✗ worktree there is none: no room"),
        (kinds.WorktreeRemoved(path="/t/1"), "· worktree is gone  /t/1"),
        (kinds.WorktreeRemoved(path="/t/1", left=("a.py",)), "· worktree is kept for a.py  /t/1"),
        (kinds.ContextCompacted(first=3, last=40, text="-", method="results", calls=("main/2", "main/3"),
                                bytes_before=90_000, bytes_after=20_000),
         "⇲ context  2 results up to #40 left out of it, 90.0 kB → 20.0 kB"),
    ],
)  # fmt: skip
def test_each_says_who_and_whom(body: msgspec.Struct, words: str) -> None:
    assert row_words(row(event(body, 5, agent="main.1"), Context())) == words


def test_a_spawned_agent_is_told_whole() -> None:
    lines = [line.text for line in detailed(event(SPAWNED, 5, agent="main.1"), Context(), lambda _ref: None).detail]
    assert lines[0] == "Look at the cart."
    assert {"name       cart", "role       reviewer", "for        main/2 of main", "works in   worktree"} <= set(lines)


def test_a_document_names_an_agent_with_its_task_and_its_result() -> None:
    finished = kinds.AgentFinished(outcome="done", text="All is well.")
    told = [event(SPAWNED, 1, agent="main.1"), event(finished, 2, agent="main.1")]
    text = "\n".join(document("s", told, lambda _ref: None, Proof(2, "ab")))
    assert "## Agent `main.1` `cart (reviewer)` #1" in text
    assert "Look at the cart." in text
    assert "**#2 agent `main.1` ended**: done" in text
    assert "All is well." in text


FAN_OUT = (
    ("main", 0, kinds.UserPrompted(text="Do it.", origin=ADA)),
    ("main", 1, requested("main/1")),
    ("main", 2, responded("main/1", "spawn", "cancel")),
    ("main", 3, started("main/2", tool="spawn", recovery="derived")),
    ("main.1", 4, SPAWNED),
    ("main", 3, started("main/3", tool="cancel", recovery="derived")),
    ("main.1", 6, kinds.CancelRequested(target="tree", by="main/3")),
    ("main.1", 7, kinds.AgentFinished(outcome="cancelled", text="")),
    ("main", 8, kinds.ToolFinished(call="main/2", attempt=1, status="ok", text="ended")),
)


def test_an_agent_that_another_cancelled_leads_to_that_ones_call_and_a_persons_words() -> None:
    found = path(asked(story(*FAN_OUT), 8))
    assert found[:4] == [("", 8), ("cancelled by", 7), ("wanted by", 6), ("asked for by", 3)]
    assert found[-1][1] == 1


def test_the_end_of_a_spawn_rests_on_the_ends_of_its_children() -> None:
    chain = asked(story(*FAN_OUT), 9)
    assert path(chain)[1] == ("the result of", 4)
    assert [(rest.relation, rest.row.seq) for rest in chain.steps[0].rests] == [("with the result of", 8)]


def test_a_fallback_is_no_persons_doing() -> None:
    changed = kinds.ModelChanged(provider="p", dialect="d", model="b", reason="fallback")
    failed = kinds.ModelFailed(call="main/1", attempt=1, failure="overloaded")
    told = story(*FAN_OUT[:2], ("main", 2, failed), ("main", 3, changed))
    assert path(asked(told, 4))[1] == ("after", 3)
