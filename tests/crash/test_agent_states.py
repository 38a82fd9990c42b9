"""The host killed while agents are in every state: after `kill -9` each is in the right state again, over three
restarts, and then goes on to the right end.

One session has a child in each state at once. `STATES` names them: what the child's lane of the script makes it do, and
what `muse agents` must say of it when the host is dead, and again when the next one has come.
"""

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from muse.decide.compaction import INSTRUCTION
from muse.effect.model.scripted import Lane, Script, Step
from muse.testing.wire import Trouble
from tests.crash.matrix.life import state_of
from tests.e2e.fake_clock import FakeClock, has_compiler
from tests.e2e.rig import Rig
from tests.night import checks, work
from tests.night.held import HeldServer
from tests.night.hosts import Session
from tests.ui.asking import ask

HOUR = 3600
RESTARTS = 3
STATES = {
    1: ("asking its model", "running"),
    2: ("in a command", "running"),
    3: ("in an edit", "running"),
    4: ("waiting for an approval", "waiting: approval"),
    5: ("waiting for an answer", "waiting: question"),
    6: ("waiting for a child in the foreground", "waiting: children"),
    7: ("waiting with wait", "waiting: children"),
    8: ("paused", "paused"),
    9: ("being cancelled", "cancelling"),
    10: ("parked", "parked"),
    11: ("queued", "queued"),
}
GRANDCHILDREN = {16: 6, 17: 7}
FILLING = (14, 12, 13)
"""Of the eight slots there are one each for 1, 2, 3, 8, 9, 16, 17 and 14; 4 to 7 and 10 have given theirs up. When 8 is
paused and 9 cancelled, 12 and 13 get theirs, so that 11 goes on waiting."""
PARKED_STEP = 5
QUESTION = "Which colour?"


def until(child: int) -> work.Use:
    """A command that waits for a file of the test."""
    name, place = f"c{child}s0", f"~/{work.COUNT}/c{child}.txt"
    return ("shell", {"command": f'echo "{name} start" >> {place}; until [ -e ~/go{child} ]; do sleep 0.05; done; '
                                 f'echo "{name} end" >> {place}'})  # fmt: skip


def spawn(*children: int, background: bool = False, mode: str = "") -> work.Use:
    agents = [{"task": work.task(n), "isolation": "shared"} | ({"mode": mode} if mode else {}) for n in children]
    return ("spawn", {"agents": agents, "background": background})


def says(*uses: work.Use) -> Step:
    return Step(text="", uses=uses) if uses else Step(text="-")


SCRIPTS: dict[int, tuple[Step, ...]] = {
    1: (says(work.read(1)), work.the_end(1)),
    2: (says(until(2)), work.the_end(2)),
    3: (says(work.edit(3, 0)), says(work.read(3)), work.the_end(3)),
    4: (says(work.shell(4, 0)), work.the_end(4)),
    5: (says(("ask", {"question": QUESTION})), work.the_end(5)),
    6: (says(spawn(16)), work.the_end(6)),
    7: (says(spawn(17, background=True)), says(("wait", {})), work.the_end(7)),
    8: (says(until(8)), work.the_end(8)),
    9: (says(work.shell(9, 0, 600.0, stubborn=True)),),
    10: (*(says(work.read(10)) for _ in range(PARKED_STEP)), work.the_end(10)),
    11: (says(work.shell(11, 0)), work.the_end(11)),
    **{n: (says(until(n)), work.the_end(n)) for n in (*FILLING, *GRANDCHILDREN)},
}  # fmt: skip
MAIN = (
    says(spawn(1, 2, 3, 5, 6, 7, 8, 9, 10, 14, background=True), spawn(4, background=True, mode="default")),
    says(spawn(12, 13, 11)),
    says(("wait", {})),
    Step(text="All have ended."),
)


class States:
    """The session. `seen` has what `muse agents` said: of a dead host and of the next, at each restart."""

    def __init__(self, rig: Rig, server: HeldServer, clock: FakeClock) -> None:
        self.rig, self.server, self.clock = rig, server, clock
        (rig.home / work.COUNT).mkdir()
        self.session = Session(rig, "Be in every state.", "--yolo", "--approval-timeout", "0")
        self.seen: list[dict[str, str]] = []
        self.starts: list[float] = []

    # -- to the states -----------------------------------------------------------------------------------------------

    def play(self) -> None:
        session = self.session
        hits = self.rig.folder / "hits"
        session.start(failpoint=f"file_synced:1:stop:{hits}")
        session.until(lambda: len(self.agents()) >= 13 and self.settled())
        self.say("pause", f"SESSION:{self.agents()[8]}")
        self.server.gates[(0, 1)].set()  # main spawns 12, which gets the slot of 8, and 13 and 11, which get none
        session.until(lambda: 11 in self.agents() and self.states_are(11))
        self.say("cancel", f"SESSION:{self.agents()[9]}", "--agent")
        self.server.gates[(3, 0)].set()  # 3 edits, and the host stops in the middle of it
        self.rig.wait_for(lambda: state_of(session.process.pid) == "T")
        for n in range(RESTARTS):
            assert session.kill()
            self.seen.append(self.told())
            session.start()
            session.until(lambda: session.count("session.opened") == session.lives)
            self.starts.append(time.monotonic() - session.begun)
            session.until(lambda: self.recovered() and self.settled())
            if n + 1 == RESTARTS:  # it does not hear SIGTERM, so that it takes some seconds to end it
                session.until(lambda: self.told()[self.agents()[9]].startswith("cancelled"))
            self.seen.append(self.told())
        self.to_its_end()

    def to_its_end(self) -> None:
        """Everybody gets what he waits for."""
        agents = self.agents()
        for gate in self.server.gates.values():
            gate.set()
        for child in (2, 8, *FILLING, *GRANDCHILDREN):
            (self.rig.home / f"go{child}").touch()
        self.clock.shift(3 * HOUR)
        (asked,) = [e for e in self.session.events if e["type"] == "approval.requested"]
        (question,) = [e for e in self.session.events if e["type"] == "question.asked"]
        self.say("approve", f"SESSION@{asked['seq']}")
        self.say("answer", f"SESSION@{question['seq']}", "Blue.")
        self.say("continue", f"SESSION:{agents[8]}")
        self.code = self.session.to_the_end()

    # -- what is seen of it ------------------------------------------------------------------------------------------

    def agents(self) -> dict[int, str]:
        return checks.numbers_of(self.session.events)

    def told(self) -> dict[str, str]:
        """What `muse agents` says that each does."""
        answer = ask(self.rig.muse_home, "agents", self.rig.session(), "--json")
        rows = [row for line in answer.out.splitlines() for row in json.loads(line)["agents"]]
        return {row["agent"]: f"{row['state']}: {row['about']}" if row["about"] else row["state"] for row in rows}

    def states_are(self, *children: int) -> bool:
        told, agents = self.told(), self.agents()
        return all(n in agents and told.get(agents[n], "").startswith(STATES[n][1]) for n in children)

    def settled(self) -> bool:
        """Whether those that no test moves are where they are to be."""
        counted = work.counted(self.rig)
        begun = all(counted[f"c{n}s0 start"] for n in (2, 8, 9, 14, 16, 17))
        asked = all(self.session.count(kind) for kind in ("approval.requested", "question.asked"))
        held = {(1, 1), (3, 0)} <= self.server.waiting
        return begun and asked and held and self.states_are(1, 2, 4, 5, 6, 7, 10)

    def recovered(self) -> bool:
        """Whether every call that this life found under way has its verdict."""
        opened = [n for n, event in enumerate(self.session.events) if event["type"] == "session.opened"]
        if len(opened) < self.session.lives:
            return False
        since = self.session.events[opened[-1] :]
        doubted = {e["body"]["call"] for e in since if e["type"] == "effect.doubted"}
        return bool(doubted) and doubted <= {e["body"]["call"] for e in since if e["type"] == "effect.reconciled"}

    def say(self, *words: str) -> None:
        name = self.rig.session()
        done = self.rig.muse(*(word.replace("SESSION", name) for word in words))
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[States]:
    if not has_compiler():
        pytest.skip("a parked agent needs a clock that can be moved: Linux and a C compiler (cc)")
    script = Script(steps=MAIN, lanes=tuple(Lane(when=work.task(n), steps=steps) for n, steps in SCRIPTS.items()))
    quota = Trouble("status", status=429, error="rate_limit_error", headers=(("retry-after", str(2 * HOUR)),))
    gates = [(0, 1), (1, 1), (3, 0), (3, 1)]
    with (
        HeldServer(script, gates, {PARKED_STEP: [quota]}) as server,
        Rig(tmp_path_factory.mktemp("states"), work.files(17)) as rig,
    ):
        rig.provider("anthropic", server.base_url)
        played = States(rig, server, FakeClock(rig, "preload"))
        played.play()
        yield played


@pytest.mark.long
@pytest.mark.parametrize("child", STATES, ids=[name for name, _ in STATES.values()])
def test_a_child_is_in_the_right_state_again_after_every_kill(states: States, child: int) -> None:
    agent, wanted = states.agents()[child], STATES[child][1]
    told = [seen[agent] for seen in states.seen]
    if child == 9:
        assert told[0].startswith(wanted)
        assert all(one.startswith(("cancelling", "cancelled")) for one in told)
        assert told[-1].startswith("cancelled")
    else:
        assert all(one.startswith(wanted) for one in told), told


@pytest.mark.long
def test_then_each_goes_on_to_its_right_end_and_every_effect_happened_once(states: States) -> None:
    session, agents = states.session, states.agents()
    assert states.code == 0, session.errors()
    ends = {e["agent"]: e["body"]["outcome"] for e in session.events if e["type"] == "agent.finished"}
    assert ends == {agent: "cancelled" if child == 9 else "done" for child, agent in agents.items()}
    findings = checks.born_and_ended_once(session.events, list(SCRIPTS)) + checks.calls_once(session.events)
    findings += checks.silent(session.events) + checks.log_holds(states.rig.path())
    findings += checks.effects(states.rig, session.events, SCRIPTS, set(), {9})
    findings += checks.requests(session.events, states.server.requests, words_of(agents))
    assert findings == []
    assert states.server.violations == []
    assert session.events == states.rig.events()


def words_of(agents: dict[int, str]) -> dict[str, tuple[str, ...]]:
    parents = {n: agents[GRANDCHILDREN[n]] if n in GRANDCHILDREN else "main" for n in agents}
    return work.words(parents, agents)


@pytest.mark.long
def test_b43_who_was_cancelled_does_nothing_more_over_three_restarts(states: States) -> None:
    agent = states.agents()[9]
    mine = [event for event in states.session.events if event["agent"] == agent]
    cancelled = next(n for n, event in enumerate(mine) if event["type"] == "cancel.requested")
    after = Counter(event["type"] for event in mine[cancelled + 1 :])
    assert not {"tool.started", "model.requested", "approval.requested"} & after.keys()
    assert after["agent.finished"] == 1


@pytest.mark.long
def test_b45_after_a_restart_every_open_child_is_accounted_for_within_a_second(states: States) -> None:
    """By the times in the log: each call that was found under way has its verdict. The quickest of three restarts, and
    on a machine where already the start of a process takes seconds, not longer than a few such."""
    took = []
    events = states.session.events
    for n, event in enumerate(events):
        if event["type"] == "session.opened" and n:
            upto = next((m for m in range(n + 1, len(events)) if events[m]["type"] == "session.opened"), len(events))
            verdicts = [one["time"] for one in events[n:upto] if one["type"] == "effect.reconciled"]
            took.append(max(map(_seconds, verdicts)) - _seconds(event["time"]))
    assert len(took) == RESTARTS
    assert min(took) < max(1.0, 3 * min(states.starts)), (took, states.starts)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.long
def test_what_was_under_way_is_in_doubt_at_each_restart_and_what_only_waits_never(states: States) -> None:
    agents = states.agents()
    doubted = Counter(e["agent"] for e in states.session.events if e["type"] == "effect.doubted")
    for child in (1, 2, 8):
        assert doubted[agents[child]] == RESTARTS, STATES[child]
    for child in (4, 5, 6, 7, 10, 11):
        assert doubted[agents[child]] == 0, STATES[child]


# -- states of which there is one a session ----------------------------------------------------------------------------


def one_child(rig: Rig) -> Session:
    (rig.home / work.COUNT).mkdir()
    return Session(rig, "One child.", "--yolo")


def told_of(rig: Rig, agent: str) -> tuple[str, str]:
    """What `muse agents` says that it does: its state and its step."""
    answer = ask(rig.muse_home, "agents", rig.session(), "--json")
    rows = [row for line in answer.out.splitlines() for row in json.loads(line)["agents"]]
    (row,) = [row for row in rows if row["agent"] == agent]
    return row["state"], row["step"]


def ends_well(session: Session, server: HeldServer, scripts: dict[int, tuple[Step, ...]], isolated: bool) -> None:
    """Child 1 did its work once, and the log tells all of it."""
    assert session.to_the_end() == 0, session.errors()
    findings = checks.born_and_ended_once(session.events, [1]) + checks.calls_once(session.events)
    findings += checks.silent(session.events) + checks.log_holds(session.rig.path())
    findings += checks.effects(session.rig, session.events, scripts, set(), isolated=[1] if isolated else [])
    findings += checks.requests(session.events, server.requests, work.words({1: "main"}, {1: "main.1"}))
    assert findings == []
    assert server.violations == []


@pytest.mark.long
@pytest.mark.parametrize("place", ["worktree_begun", "worktree_added", "worktree_filled"])
def test_killed_while_its_working_tree_is_prepared_a_child_begins_in_one_whole_tree(tmp_path: Path, place: str) -> None:
    seen = ("shell", {"command": "cp untracked.txt ~/seen.txt"})
    scripts = {
        1: (says(work.read(1)), says(work.edit(1, 0), work.shell(1, 1)), says(seen, work.keep(1)), work.the_end(1))
    }
    agents = [{"task": work.task(1), "isolation": "worktree"}]
    script = Script(
        steps=(says(("spawn", {"agents": agents})), says()), lanes=(Lane(when=work.task(1), steps=scripts[1]),)
    )
    with HeldServer(script, []) as server, Rig(tmp_path, work.files(1)) as rig:
        rig.provider("anthropic", server.base_url)
        session = one_child(rig)
        (rig.workspace / "untracked.txt").write_text("not committed\n")
        session.start(failpoint=f"{place}:1")
        assert session.to_the_end() == -signal.SIGKILL
        assert told_of(rig, "main.1")[0] == "preparing"
        session.start()
        session.until(lambda: session.count("worktree.prepared"))
        ends_well(session, server, scripts, True)
        assert (rig.home / "seen.txt").read_text() == "not committed\n"
        assert session.count("worktree.prepared") == 1
        assert rig.read(work.notes(1)) == work.files(1)[work.notes(1)]


@pytest.mark.long
def test_killed_while_it_asks_for_a_summary_of_its_context_an_agent_asks_again_and_goes_on(tmp_path: Path) -> None:
    scripts = {1: (*(says(work.shell(1, n, bulk=1_500)) for n in range(14)), work.the_end(1))}
    script = Script(steps=(says(spawn(1)), says()), lanes=(Lane(when=work.task(1), steps=scripts[1]),))
    summary = {INSTRUCTION[:60]: Step(text="I have counted so far.")}
    with HeldServer(script, [(1, -1)], asides=summary) as server, Rig(tmp_path, work.files(1)) as rig:
        context = '[models."shop/some-model"]\ncontext = 9000'
        rig.provider("anthropic", server.base_url, f"max_output_tokens = 500\n{context}")
        session = one_child(rig)
        for _ in range(2):
            session.start()
            session.until(lambda: (1, -1) in server.waiting)
            session.until(lambda: told_of(rig, "main.1")[1].startswith("model, for a summary"))
            assert session.kill()
            assert told_of(rig, "main.1")[0] == "running"
            server.waiting.clear()
        assert session.count("context.compacted") == 0
        server.gates[(1, -1)].set()
        session.start()
        ends_well(session, server, scripts, False)
        methods = {event["body"]["method"] for event in session.events if event["type"] == "context.compacted"}
        assert "summary" in methods
