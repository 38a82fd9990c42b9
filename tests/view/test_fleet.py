"""What agents do, in words, of states made by hand; and rows of many."""

import pytest

from muse.event.content import Block, FileChange, Settings, Usage
from muse.event.kinds import AgentFinished, FilesChanged, ModelResponded, UserPrompted
from muse.fold.state import Agent, ModelCall, Session, Timer, ToolRun
from muse.view.fleet import Doing, Trail, agent_rows, counts, doing, news, session_rows, subtree
from muse.view.fleet_text import agent_lines, short_time, short_tokens, titled, totals
from tests.view.made import event

SETTINGS = Settings(provider="p", dialect="d", model="m")


def run(phase: str = "running", tool: str = "shell", key: str = "main.1/2", **fields: object) -> ToolRun:
    """A tool use."""
    args = '{"command":"make"}' if tool == "shell" else "{}"
    return ToolRun(key=key, use=key, tool=tool, args=args, phase=phase, **fields)  # type: ignore[arg-type]  # by name


def model(phase: str = "running", **fields: object) -> ModelCall:
    """A model call."""
    return ModelCall(key="main.1/1", phase=phase, attempt=1, epoch=1, intent=1, cause=1, **fields)  # type: ignore[arg-type]  # by name


def does(agent: Agent, **state: object) -> Doing:
    """What a child does in a session."""
    return doing(Session(session="s", settings=SETTINGS, agents={agent.id: agent}, **state), agent)  # type: ignore[arg-type]  # by name


def child(**fields: object) -> Agent:
    """A child in a turn."""
    return Agent(**{"id": "main.1", "parent": "main", "turn": True, **fields})  # type: ignore[arg-type]  # by name


WAIT = Timer(key="retry:main.1/1", agent="main.1", duration_ms=0, until="2026-03-10T07:00:00Z", seq=4)
SHORT = Timer(key="retry:main.1/1", agent="main.1", duration_ms=900, until="", seq=4)
DERIVED = {"recovery": "derived"}


@pytest.mark.parametrize(
    ("agent", "state", "words", "step"),
    [
        (child(call=model()), {}, "running", "model"),
        (child(call=model(purpose="summary")), {}, "running", "model, for a summary"),
        (child(batch=[run()]), {}, "running", "shell make"),
        (child(batch=[run("done"), run(key="main.1/3"), run(key="main.1/4")]), {}, "running", "shell +1 make"),
        (child(batch=[run("asked"), run(key="main.1/3")]), {}, "waiting: approval", "shell +1 make"),
        (child(batch=[run(tool="spawn", **DERIVED)]), {}, "waiting: children", "spawn"),
        (child(batch=[run(tool="ask", question=7, **DERIVED)]), {}, "waiting: question", "ask"),
        (child(batch=[run(tool="wait", **DERIVED), run(key="main.1/3")]), {}, "running", "wait +1"),
        (child(call=model()), {"waiting": ["main.1"]}, "queued", "model"),
        (child(preparing=True), {}, "preparing", ""),
        (child(paused=True, batch=[run("asked")]), {}, "paused: approval", "shell make"),
        (child(call=model("failed", failure="rate_limited")), {"timers": {WAIT.key: WAIT}},
         "parked: until 2026-03-10T07:00:00Z", "model, failed"),
        (child(call=model("failed", failure="overloaded", failures=1)), {"timers": {SHORT.key: SHORT}}, "running",
         "model, failed"),
        (child(call=model("failed", failure="auth", message="no such key")), {}, "stuck: auth: no such key",
         "model, failed"),
        (child(ending="budget", reason="tokens reached 900"), {}, "stuck: tokens reached 900", ""),
        (child(ending="cancelled", reason="enough", batch=[run()]), {}, "cancelling: enough", "shell make"),
        (child(call=model(cancelling=True)), {}, "cancelling", "model"),
        (child(turn=False, finished=9, outcome="done"), {}, "done", ""),
        (child(turn=False, finished=9, outcome="failed", result="no test runs"), {}, "failed: no test runs", ""),
        (child(turn=False, finished=9, cancelled=True, outcome="cancelled"), {}, "cancelled", ""),
        (Agent(id="main"), {}, "idle", ""),
        (Agent(id="main", outcome="done", children=["main.1"]), {"unfinished": {"main.1"}}, "waiting: children", ""),
        (Agent(id="main", outcome="provider", reason="network: away"), {}, "failed: network: away", ""),
    ],
)  # fmt: skip
def test_each_state_has_its_word(agent: Agent, state: dict[str, object], words: str, step: str) -> None:
    found = does(agent, **state)
    assert (found.words, found.step) == (words, step)


def test_a_call_waits_for_the_file_that_another_call_edits() -> None:
    edit = ToolRun(key="main.1/2", use="u", tool="edit", args='{"path":"./src/a.py"}', phase="approved")
    other = ToolRun(key="main.1/2", use="u", tool="edit", args='{"path":"src/b.py"}', phase="approved")
    by_another, by_itself = ({"/shop\0src/a.py": call} for call in ("main.2/4", "main.1/2"))
    assert does(child(batch=[edit]), workspace="/shop", edits=by_another).words == "waiting: edit"
    assert does(child(batch=[other]), workspace="/shop", edits=by_another).words == "running"
    assert does(child(batch=[edit]), workspace="/shop", edits=by_itself).words == "running"
    own_tree = child(batch=[edit], isolation="worktree", workspace="/trees/1")
    assert does(own_tree, workspace="/shop", edits=by_another).words == "running"


def tree() -> Session:
    """main with two children, one of which has one; they were not spawned in the order of the tree."""
    used = {"main": 10, "main.1": 20, "main.2": 30, "main.1.1": 40}
    agents = {
        name: Agent(id=name, parent=name.rpartition(".")[0], usage=Usage(input=tokens, cost_microusd=tokens))
        for name, tokens in used.items()
    }
    return Session(session="s", settings=SETTINGS, agents=agents, approvals={7: "main.2/3", 5: "main.2/1"})


def test_rows_are_a_tree_and_sum_up_what_is_below() -> None:
    rows = agent_rows(tree(), Trail())
    assert [row.agent for row in rows] == ["main", "main.1", "main.1.1", "main.2"]
    assert [(row.own.input, row.below.input, row.below.cost_microusd) for row in rows] == [
        (10, 100, 100), (20, 60, 60), (40, 40, 40), (30, 30, 30),
    ]  # fmt: skip
    assert rows[3].approvals == (5, 7)
    assert [row.agent for row in subtree(rows, "main.1")] == ["main.1", "main.1.1"]
    assert counts(rows) == "4 agents: 4 idle"


def test_an_agent_whose_parent_is_not_there_is_shown_all_the_same() -> None:
    odd = Session(session="s", agents={"main.9": Agent(id="main.9", parent="main.8"), "main": Agent(id="main")})
    assert [row.agent for row in agent_rows(odd, Trail())] == ["main.9", "main"]


def test_a_trail_keeps_last_words_files_and_times() -> None:
    trail = Trail()
    block = Block(kind="text", text="First.\n\nLast\x1b.\n")
    said = ModelResponded(call="main/1", attempt=1, stop="end_turn", blocks=(block,))
    changed = FilesChanged(changes=tuple(FileChange(path=path) for path in "aba"), calls=("main/2",))
    others = FilesChanged(changes=(FileChange(path="c"),), external=True)
    for seq, body in enumerate((UserPrompted(text="go"), said, changed, others), 1):
        trail.take(event(body, seq))
    heard = trail.agents["main"]
    assert (heard.said, heard.paths) == ("Last\\x1b.", {"a", "b"})
    trail.take(event(AgentFinished(outcome="done", text=""), 5))
    trail.take(event(AgentFinished(outcome="done", text="Last.\n\nIt changed no files in its working tree."), 6))
    assert heard.said == "Last\\x1b.", "a result leaves the last words: not all of it was said"


def test_time_goes_on_only_where_something_does() -> None:
    trail = Trail()
    trail.header("main", "2026-03-09T09:00:00.000000Z", "session.opened")
    trail.header("main", "2026-03-09T09:01:00.000000Z", "model.requested")
    running = Session(session="s", settings=SETTINGS, agents={"main": Agent(id="main", turn=True)})
    late = "2026-03-09T10:00:00+00:00"
    live = session_rows(running, trail, file="f", pid=7, now=late)
    left = session_rows(running, trail, file="f", pid=0, now=late)
    assert (live.state, live.agents[0].seconds) == ("running", 3600)
    assert (left.state, left.agents[0].seconds) == ("stopped", 60)
    trail.header("main", "2026-03-19T09:00:00.000000Z", "agent.steered")
    assert session_rows(running, trail, file="f", pid=0, now=late).agents[0].seconds == 60


def test_the_date_of_a_parked_agent_fits_into_a_narrow_column() -> None:
    agent = child(call=model("failed", failure="rate_limited"))
    row = agent_rows(Session(session="s", agents={agent.id: agent}, timers={WAIT.key: WAIT}), Trail())[0]
    assert (row.words, row.brief_words) == ("parked: until 2026-03-10T07:00:00Z", "parked: 03-10 07:00Z")


def test_what_changed_is_what_an_agent_does_else() -> None:
    before = agent_rows(tree(), Trail())
    after_state = tree()
    after_state.agents["main.2"].turn = True
    after = agent_rows(after_state, Trail())
    assert [row.agent for row in news(before, after)] == ["main.2"]
    assert [row.agent for row in news((), after)] == [row.agent for row in after]


def test_nothing_of_a_log_is_obeyed() -> None:
    evil = "\x1b[2J\u202e\n"
    texts = dict.fromkeys(("name", "role", "task", "reason", "workspace", "mode", "model"), evil)
    agent = child(ending="cancelled", isolation="worktree", **texts)
    state = Session(session="s", settings=SETTINGS, agents={"main.1": agent})
    trail = Trail()
    trail.words("main.1", f"a{evil}b{evil}")
    (row,) = agent_rows(state, trail)
    shown = [row.said, row.words, row.task, row.name]
    shown += [line.text for line in agent_lines(session_rows(state, trail, file="", pid=0, now=""), row)]
    assert not any(sign in text for text in shown for sign in "\x1b\u202e\n")


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1_000, "1.0k"), (9_949, "9.9k"), (12_345, "12k"), (3_400_000, "3.4M"), (5 * 10**9, "5G")],
)
def test_tokens_in_few_columns(number: int, text: str) -> None:
    assert short_tokens(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(42, "42s"), (185, "3:05"), (7_402, "2:03:22"), (3 * 86_400 + 7_300, "3d 2h")]
)
def test_times_in_few_columns(seconds: int, text: str) -> None:
    assert short_time(seconds) == text


def test_totals_are_told_in_ever_fewer_words() -> None:
    agents = {
        "main": child(id="main", parent="", usage=Usage(input=14_000, output=910, cost_microusd=20_000)),
        "main.1": child(finished=True, outcome="done"),
        "main.2": child(id="main.2", paused=True),
    }
    session = session_rows(Session(session="s", settings=SETTINGS, agents=agents), Trail(), file="", pid=1, now="")
    assert list(totals([session])) == [
        "3 agents: 1 running, 1 paused, 1 done  14,910 tok $0.0200",
        "3 agents: 1 running, 1 paused, 1 done  14k tok $0.0200",
        "3 agents: 1 running, 1 paused …  14k tok $0.0200",
        "3 agents: 1 running …  14k tok $0.0200",
    ]


TOTALS = ("7 agents: 2 running, 5 done  14,910 tok $0.02", "7 agents: 2 running …  14k tok $0.02")


@pytest.mark.parametrize(
    ("width", "title"),
    [
        (80, f"4f2k9a31 checkout · stopped · {TOTALS[0]}"),
        (74, f"4f2k9a31 checko… · stopped · {TOTALS[0]}"),
        (64, f"4f2k9a31 check… · stopped · {TOTALS[1]}"),
        (50, f"stopped · {TOTALS[1]}"),
        (36, TOTALS[1]),
    ],
)
def test_a_title_gives_up_its_name_and_never_its_totals(width: int, title: str) -> None:
    assert titled("4f2k9a31 checkout", "stopped", TOTALS, width) == title


def test_a_long_reason_leaves_the_totals_their_room() -> None:
    assert titled("4f2k9a31", "the task failed: " + "x" * 90, TOTALS, 75).endswith(f" · {TOTALS[1]}")
