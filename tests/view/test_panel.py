"""The state pane, of states made by hand."""

from muse.event.content import Settings, Usage
from muse.fold.state import Agent, ModelCall, Process, Session, Timer, ToolRun
from muse.view.panel import LISTED_MAX, Beside, Question, Size, panel, panel_lines


def lines(state: Session, beside: Beside | None = None) -> list[str]:
    """The pane's texts."""
    return [line.text for line in panel_lines(panel(state, beside or Beside()))]


def run(key: str, phase: str = "running", **fields: object) -> ToolRun:
    """A tool use."""
    return ToolRun(key=key, use=key, tool="shell", args='{"command":"make"}', phase=phase, **fields)  # type: ignore[arg-type]  # by name


def test_before_the_first_event_nothing_is_there() -> None:
    assert lines(Session(session="s")) == [
        "after #0: open", "mode     default", "used     nothing counted", "agents: none", "open calls: none",
        "approvals waiting: none", "timers: none", "processes left running: none", "rules: none",
    ]  # fmt: skip


def test_everything_open_is_named_with_where_it_began() -> None:
    agent = Agent(
        id="main", turn=True, usage=Usage(input=1_000, output=20, cost_microusd=12_000),
        batch=[run("main/2", "asked", request=7, cause=7), run("main/3", cause=9, attempt=2), run("main/4", "doubted")],
    )  # fmt: skip
    waiting = Agent(
        id="main.1", turn=True, call=ModelCall(key="main.1/1", phase="failed", attempt=3, epoch=1, intent=4, cause=5)
    )
    left = Process(agent="main", call="main/1", pid=9, started=1, boot_id="", command="sleep 9", epoch=1, seq=3)
    settings = Settings(provider="p", dialect="d", model="m")
    state = Session(
        session="s", seq=12, settings=settings, agents={"main": agent, "main.1": waiting},
        approvals={7: "main/2"}, deny=("shell(rm *)",), remembered=("shell(make *)",),
        timers={
            "retry:main.1/1": Timer(key="retry:main.1/1", agent="main.1", duration_ms=4_000, until="", seq=6),
            "budget:seconds": Timer(key="budget:seconds", agent="main", duration_ms=60_000, until="", seq=8),
        },
        processes={"9:1": left},
    )  # fmt: skip
    beside = Beside(
        sizes={"main": Size(seq=2, items=5, request_bytes=2_000, tokens=900)},
        questions=(Question(seq=11, agent="main", text="Which shop?"),),
    )
    shown = "\n".join(lines(state, beside))
    for expected in (
        "model    p/m", "  main  waiting: approval, 3 calls: 1 wait for approval, 1 running, 1 in doubt",
        "    context 5 items, 2.0 kB, 900 tokens",
        "    used 1,000 in, 20 out, $0.0120",
        "  main.1  running, model, failed, attempt 3, waits to ask again (main.1/1)",
        "  ? main/2  shell make\n    waits for approval since #7",
        "  … main/3  shell make\n    running since #9, attempt 2",
        "  ! main/4  shell make\n    in doubt since #0", "approvals waiting (1)\n  ? #7  main/2  shell make",
        "questions (1)\n  ? #11  main: Which shop?", "  … retry:main.1/1  4.0 s  since #6\n",
        "  … budget of time  1 min 00 s  since #8",
        "  · 9  sleep 9  of main/1, #3", "  deny   shell(rm *)", "  always shell(make *)",
    ):  # fmt: skip
        assert expected in shown


def test_what_could_not_be_folded_is_said() -> None:
    state = Session(session="s", unknown=["later.invented v3"], redacted=["#4"])
    assert "not all is known: later.invented v3 could not be folded" in lines(state)
    assert "not all is known: #4 could not be folded" in lines(state)


def test_of_very_many_some_are_listed_and_the_rest_counted() -> None:
    many = {f"main.{n}": Agent(id=f"main.{n}") for n in range(1, 1_001)}
    shown = lines(Session(session="s", agents=many))
    assert f"  … and {1_000 - LISTED_MAX:,} more" in shown
    assert len(shown) < LISTED_MAX + 20


def test_no_text_of_a_log_is_obeyed() -> None:
    state = Session(
        session="s",
        name="\x1b[2J",
        workspace="/w\n\x07",
        mode="\u202e",
        agents={"main": Agent(id="main", turn=True, batch=[run("main/1\x1b")])},
    )
    assert not any(sign in text for text in lines(state) for sign in "\x1b\x07\u202e\n")
