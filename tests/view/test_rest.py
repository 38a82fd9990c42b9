"""Whether an agent has anything left to do by itself, of states made by hand."""

import pytest

from muse.event.content import Block
from muse.event.conversation import Answered, Said
from muse.event.kinds import AgentWanted
from muse.fold.state import Agent, Session, Timer, Want
from muse.view.rest import last_words, rest
from tests.view.test_fleet import DERIVED, SETTINGS, SHORT, WAIT, child, model, run

SPAWNS = Agent(id="main", turn=True, children=["main.1"], batch=[run(tool="spawn", key="main/2", **DERIVED)])
WAITING = Timer(key="wait:main/2", agent="main", duration_ms=900, until="", seq=4)
APPROVAL = {"approvals": {7: "main.1/2"}}


def found(agent: Agent, *, of: str = "main", alive: bool = True, main: Agent = SPAWNS, **state: object) -> str:
    """What became of an agent of a session in which `main` waits for one child."""
    agents = {"main": main, agent.id: agent}
    session = Session(session="s", settings=SETTINGS, agents=agents, unfinished={agent.id}, **state)  # type: ignore[arg-type]  # by name
    result = rest(session, of, alive=alive)
    return " ".join(str(part) for part in (result.word, result.whom, result.seq or "") if part)


@pytest.mark.parametrize(
    ("agent", "state", "main", "own"),
    [
        (child(call=model()), {}, "works", "works"),
        (child(preparing=True), {}, "works", "works"),
        (child(call=model("failed", failure="rate_limited")), {"timers": {WAIT.key: WAIT}}, "works", "works"),
        (child(call=model("failed", failure="overloaded")), {"timers": {SHORT.key: SHORT}}, "works", "works"),
        (child(call=model("failed", failure="auth")), {}, "provider main.1", "provider main.1"),
        (child(ending="budget", reason="tokens"), {}, "budget main.1", "budget main.1"),
        (child(batch=[run("asked")]), APPROVAL, "approval main.1 7", "approval main.1 7"),
        (child(batch=[run("asked"), run(key="main.1/3")]), APPROVAL, "works", "works"),
        (child(batch=[run("asked"), run("new", key="main.1/3")], paused=True), APPROVAL, *["approval main.1 7"] * 2),
        (child(batch=[run(tool="ask", question=7, **DERIVED)]), {"questions": {7: "main.1/2"}},
         "question main.1 7", "question main.1 7"),
        (child(paused=True), {}, "paused main.1", "paused main.1"),
        (child(paused=True, batch=[run()]), {}, "works", "works"),
        (child(paused=True, call=model()), {}, "works", "works"),
        (child(batch=[run("asked")]), APPROVAL | {"timers": {WAITING.key: WAITING}}, "works", "approval main.1 7"),
        (child(turn=False, finished=9, outcome="done"), {}, "works", "done"),
        (child(turn=False, finished=9, outcome="failed"), {}, "works", "failed"),
        (child(turn=False, finished=9, outcome="cancelled", cancelled=True), {}, "works", "cancelled"),
    ],
)  # fmt: skip
def test_it_works_as_long_as_it_or_one_below_it_can_go_on_without_a_person(
    agent: Agent, state: dict[str, object], main: str, own: str
) -> None:
    assert (found(agent, **state), found(agent, of="main.1", **state)) == (main, own)  # type: ignore[arg-type]  # by name


def test_an_agent_that_is_wanted_below_it_is_something_left_to_do() -> None:
    wants = {"main.1": (Want(seq=7, body=AgentWanted(task="t")),)}
    rests = child(turn=False, outcome="done")
    assert found(rests, of="main.1", wants=wants) == "works"
    assert found(rests, of="main.1", wants=wants, alive=False) == "stopped"
    paused = child(turn=False, outcome="done", paused=True)
    assert found(paused, of="main.1", wants=wants) == "paused main.1"


def test_what_would_go_on_is_stopped_where_nobody_runs_it_and_what_waits_for_a_person_still_does() -> None:
    assert found(child(call=model()), alive=False) == "stopped"
    assert found(child(batch=[run("asked")]), alive=False, approvals={7: "main.1/2"}) == "approval main.1 7"
    assert found(child(), of="main.1", alive=False) == "stopped"


def test_main_ends_with_its_session_and_a_prompt_that_came_later_is_to_be_followed() -> None:
    main = Agent(id="main", outcome="done")
    closed = Session(session="s", settings=SETTINGS, agents={"main": main}, closed=True, outcome="budget", reason="so")
    assert (rest(closed, "main", alive=False).word, rest(closed, "main", alive=False).about) == ("budget", "so")
    open_again = Session(
        session="s", settings=SETTINGS, agents={"main": Agent(id="main", queue=[Said(seq=9, text="x")])}
    )
    assert rest(open_again, "main", alive=True).word == "works"
    assert rest(open_again, "main", alive=False).word == "stopped"
    assert rest(Session(session="s"), "main", alive=True).word == "idle"


def answer(seq: int, *texts: str) -> Answered:
    return Answered(seq=seq, call=f"main/{seq}", blocks=tuple(Block(kind="text", text=text) for text in texts))


def test_the_last_words_are_the_answer_of_the_last_turn_or_the_result_that_a_parent_was_given() -> None:
    before = [Said(seq=1, text="go"), answer(2, "Old."), Said(seq=3, text="again")]
    done = Agent(id="main", outcome="done", items=[*before, answer(4, "I look."), answer(5, "Two ", "parts.")])
    assert (last_words(done).text, last_words(done).seq) == ("Two parts.", 5)
    silent = Agent(id="main", outcome="done", items=[*before, answer(4, "I look."), answer(5)])
    assert last_words(silent).text == "", "what it said on the way is no answer"
    broken = Agent(id="main", outcome="cancelled", items=[*before, answer(4, "I look."), answer(5)])
    assert last_words(broken).text == "I look."
    assert last_words(Agent(id="main", outcome="cancelled", items=before)).text == "", "an old answer is none"
    assert last_words(child(turn=False, finished=9, result="All.\n\nIt changed a.py.")).text.endswith("a.py.")
