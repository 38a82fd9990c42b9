"""`apply` is judged, and shown, by the files that the child changed, which do not stand in its arguments."""

import json

import pytest

from muse.decide import applying
from muse.decide.due import judge
from muse.event.content import Settings, ToolSpec
from muse.fold.state import Agent, Session, ToolRun

APPLY = ToolSpec(name="apply", description="", schema="{}", recovery="reconcilable", writes=True)


def session(
    mode: str, *, allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), changed: str = "src/a README.md"
) -> Session:
    main = Agent(id="main", tools=(APPLY,), children=["main.1"])
    child = Agent(
        id="main.1", parent="main", isolation="worktree", changed=dict.fromkeys(changed.split(), "changed"), finished=9
    )
    settings = Settings(provider="p", dialect="d", model="m", mode=mode)
    return Session(
        session="s", seq=9, workspace="/shop", mode=mode, allow=allow, deny=deny, settings=settings,
        agents={"main": main, "main.1": child},
    )  # fmt: skip


def run(**args: object) -> ToolRun:
    return ToolRun(key="main/7", use="u", tool="apply", args=json.dumps({"agent": "main.1", **args}))


@pytest.mark.parametrize(
    ("mode", "allow", "deny", "args", "decision"),
    [
        ("default", (), (), {}, "ask"),
        ("accept-edits", (), (), {}, "allow"),
        ("plan", (), (), {}, "deny"),
        ("yolo", (), (), {}, "allow"),
        ("default", ("edit(src/**)",), (), {}, "ask"),
        ("default", ("edit(src/**)",), (), {"paths": ["src"]}, "allow"),
        ("default", ("apply",), (), {}, "allow"),
        ("yolo", (), ("edit(src/**)",), {}, "deny"),
        ("yolo", (), ("edit(src/**)",), {"paths": ["README.md"]}, "allow"),
        ("accept-edits", (), ("edit(src/**)",), {"paths": ["./src/a"]}, "deny"),
    ],
)
def test_modes_and_rules_about_paths_hold_for_what_the_child_changed(
    mode: str, allow: tuple[str, ...], deny: tuple[str, ...], args: dict[str, object], decision: str
) -> None:
    state = session(mode, allow=allow, deny=deny)
    assert judge(state, state.agents["main"], run(**args)).decision == decision


def test_a_file_that_is_never_free_to_write_is_asked_about_in_any_mode_that_asks() -> None:
    state = session("accept-edits", changed="ok .muse/config.toml")
    assert judge(state, state.agents["main"], run()).decision == "ask"


def test_a_person_is_shown_agent_and_files_with_control_characters_made_visible() -> None:
    state = session("default", changed="b a\x1b[2J")
    assert applying.shown(state, run()).splitlines()[:3] == [
        "apply what main.1 changed in its working tree:", "  a\\u001b[2J (changed)", "  b (changed)",
    ]  # fmt: skip
    other = ToolRun(key="main/8", use="u", tool="shell", args='{"command":"ls"}')
    assert applying.shown(state, other) == "$ ls"


def test_only_agents_below_the_caller_count() -> None:
    state = session("default")
    assert applying.applied_paths(state, "main.1", {"agent": "main"}) == ()
    assert applying.applied_paths(state, "main", {"agent": "main.1"}) == ("README.md", "src/a")
    assert applying.applied_paths(state, "main", {"agent": 3, "paths": "x"}) == ()
