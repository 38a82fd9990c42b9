"""Role files as people write them, for muse and for another program; what is odd in them is said and harms nobody."""

from pathlib import Path

import pytest

from muse.app.front_matter import read_front_matter
from muse.app.roles import ALL_BYTES_MAX, FILE_BYTES_MAX, OFFERED, ROLES_MAX, find_roles
from muse.effect.tool.masking import KnownSecrets
from muse.event.content import Role

REVIEWER = """---
name: reviewer
description: >
  Looks at a change
  and says what is wrong.
tools: [read, grep, "shell"]
model: inherit
mode: plan
isolation: shared
---

You review. Be brief.
"""


class Place:
    """A repository and a home."""

    def __init__(self, folder: Path) -> None:
        self.top, self.home = folder / "repo", folder / "home"
        (self.top / ".git").mkdir(parents=True)
        self.home.mkdir()
        self.workspace = self.top

    def write(self, path: str, text: str) -> Path:
        file = self.top.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def find(self, **more: object) -> tuple[dict[str, Role], list[str]]:
        found = find_roles(self.workspace, environment={"HOME": str(self.home)}, **more)  # type: ignore[arg-type]
        return {role.name: role for role in found.roles}, [f"{Path(n.path).name}: {n.says}" for n in found.notices]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_role_is_what_its_file_says(place: Place) -> None:
    path = place.write("repo/.muse/agents/any.md", REVIEWER)
    roles, notices = place.find()
    assert roles == {
        "reviewer": Role(
            name="reviewer",
            description="Looks at a change and says what is wrong.",
            prompt="You review. Be brief.",
            tools=("read", "grep", "shell", "recall", "output"),
            mode="plan",
            isolation="shared",
            path=str(path),
        )
    }
    assert notices == []


def test_the_nearest_of_a_name_wins_and_ours_before_the_other_programs(place: Place) -> None:
    place.workspace = place.top / "sub"
    place.workspace.mkdir()
    for at, folder in enumerate(
        ("repo/sub/.muse", "repo/sub/.claude", "repo/.muse", "repo/.claude", "home/.config/muse", "home/.claude")
    ):
        for name in range(at + 1):
            place.write(f"{folder}/agents/r{name}.md", f"---\nname: r{name}\n---\nfrom {folder}")
    roles, _ = place.find()
    assert [roles[f"r{at}"].prompt for at in range(6)] == [
        "from repo/sub/.muse", "from repo/sub/.claude", "from repo/.muse", "from repo/.claude",
        "from home/.config/muse", "from home/.claude",
    ]  # fmt: skip


def test_the_other_programs_words_are_understood(place: Place) -> None:
    text = """---
name: helper
description: "Use this: it says \\"hi\\""
tools: Read, Edit, MultiEdit, Bash, Grep, Glob, Task, WebFetch, Bash(git:*)
model: sonnet
permissionMode: acceptEdits
color: blue
hooks:
  PreToolUse:
    - matcher: x
---
Help.
"""
    place.write("repo/.claude/agents/helper.md", text)
    roles, notices = place.find()
    assert roles["helper"].tools == (
        "read", "edit", "shell", "output", "grep", "glob", "spawn", "wait", "result", "recall",
    )  # fmt: skip
    assert (roles["helper"].model, roles["helper"].mode) == ("", "accept-edits")
    assert roles["helper"].description == 'Use this: it says "hi"'
    assert "helper.md: no such tools here: WebFetch, Bash(git:*)" in notices
    assert any("sonnet" in one and "parent's" in one for one in notices)
    assert any("hooks" in one for one in notices)


def test_only_models_that_can_be_asked_are_followed(place: Place) -> None:
    for name, model in (("a", "shop/big"), ("b", "elsewhere/big"), ("c", "small"), ("d", "inherit")):
        place.write(f"repo/.muse/agents/{name}.md", f"---\nmodel: {model}\n---\n")
    roles, notices = place.find(providers=("shop",))
    assert {name: role.model for name, role in roles.items()} == {"a": "shop/big", "b": "", "c": "small", "d": ""}
    assert len(notices) == 1
    assert "elsewhere/big" in notices[0]


@pytest.mark.parametrize("given", ["sonnet", "Opus", "haiku", "sonnet[1m]"])
def test_what_another_program_calls_models_is_no_model_here(place: Place, given: str) -> None:
    place.write("repo/.muse/agents/a.md", f"---\nmodel: {given}\n---\n")
    roles, notices = place.find(providers=("shop",))
    assert roles["a"].model == ""
    assert f"its model is not followed, {given}" in notices[0]
    assert "name PROVIDER/MODEL" in notices[0]


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("mode: reckless", "no such mode"), ("disallowedTools: Bash", "disallowedTools"), ("name: ../../x", "its name"),
        ("tools:", "its tools are not named"), ("tools: []", "its tools are not named"),
    ],
)  # fmt: skip
def test_what_would_have_made_it_stricter_and_is_not_understood_makes_it_no_role(
    place: Place, head: str, why: str
) -> None:
    place.write("repo/.muse/agents/odd.md", f"---\n{head}\n---\nDo it.")
    roles, notices = place.find()
    assert roles == {}
    assert why in notices[0]


def test_unknown_tools_alone_do_not_give_all(place: Place) -> None:
    place.write("repo/.muse/agents/odd.md", "---\ntools: mcp__x__y\n---\nDo it.")
    assert place.find()[0]["odd"].tools == ("recall", "output")


def test_links_out_of_the_project_are_not_followed(place: Place) -> None:
    outside = place.write("elsewhere/secret.md", "---\nname: taken\n---\nprivate")
    agents = place.top / ".muse" / "agents"
    agents.mkdir(parents=True)
    (agents / "linked.md").symlink_to(outside)
    (agents / "loop.md").symlink_to(agents / "loop.md")
    (place.top / ".claude").symlink_to(outside.parent)
    (outside.parent / "agents").mkdir()
    (outside.parent / "agents" / "other.md").write_text("---\nname: other\n---\nprivate")
    roles, notices = place.find()
    assert roles == {}
    assert sum("a link to a file elsewhere" in one for one in notices) == 2


def test_secrets_are_masked_and_sizes_bounded(place: Place) -> None:
    place.write("repo/.muse/agents/a.md", "---\nname: a\n---\nuse key-0123456789abcdef here")
    place.write("repo/.muse/agents/b.md", "---\nname: b\n---\n" + "b" * (FILE_BYTES_MAX + 100))
    for number in range(6):
        place.write(f"repo/.muse/agents/z{number}.md", f"---\nname: z{number}\n---\n" + "z" * (FILE_BYTES_MAX - 100))
    roles, notices = place.find(secrets=KnownSecrets({"SHOP_KEY": "key-0123456789abcdef"}))
    assert roles["a"].prompt == "use [secret SHOP_KEY] here"
    assert sum(len(role.prompt) for role in roles.values()) <= ALL_BYTES_MAX
    assert any("64 KiB" in one for one in notices)
    assert any("256 KiB" in one for one in notices)


def test_no_more_than_so_many_roles(place: Place) -> None:
    for number in range(ROLES_MAX + 3):
        place.write(f"repo/.muse/agents/r{number:03d}.md", "---\ndescription: x\n---\n")
    roles, notices = place.find()
    assert len(roles) == ROLES_MAX
    assert len(notices) == 3


HOSTILE = [
    b"", b"---", b"---\n", b"---\n---", b"\xff\xfe\x00", b"---\n: x\n---\n", b"---\na: [b, {c}]\n---\n",
    b"---\na: &x *x\n---\n", b'---\na: "\\x41"\n---\n', b"---\na:\n  b:\n    c: d\n---\n", b"---\r\nname: w\r\n---",
    b"---\n" + b"a: b\n" * 10_000 + b"---\n", b"---\na: [" + b"[" * 5_000 + b"\n---\n", b"---\na: '" + b"'" * 4_001,
    b"---\n\tx\n---\n\x00\x1b[31m", "---\nname: ünï\n---\n".encode(), b"---\na: |\n---\n", b"---\n- a\n- b\n---\n",
]  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE)
def test_no_file_makes_it_raise(place: Place, data: bytes) -> None:
    file = place.write("repo/.muse/agents/x.md", "")
    file.write_bytes(data)
    place.find()[0].get("x")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: b c # d", "b c"), ("a: b#c", "b#c"), ("a: 'it''s' # x", "it's"), ('a: "x\\ny"', "x\ny"), ("a:", ""),
        ("a: |\n  one\n    two\n\n  three", "one\n  two\n\nthree"),
        ("a: >-\n  one\n  two\n\n  three", "one two\n\nthree"),
        ("a:\n  - b\n  - 'c d'", ["b", "c d"]), ("a:\n- b\n- c # no", ["b", "c"]),
        ("a: [b, 'c, d', \"e\"]", ["b", "c, d", "e"]),
        ("a: [b,\n  c]", ["b", "c"]), ("a: one\n  two", "one two"), ("a: http://x:1", "http://x:1"), ("a: []", []),
    ],
)  # fmt: skip
def test_values_of_a_head(text: str, value: object) -> None:
    assert read_front_matter(f"---\n{text}\n---\nbody").fields == {"a": value}


@pytest.mark.parametrize("text", ["a: {b: c}", "a: [b", "a: [[b]]", 'a: "b', "a: *b", "a:\n  b: c", "a: !!x y"])
def test_what_is_not_understood_is_said_and_left_out(text: str) -> None:
    found = read_front_matter(f"---\n{text}\nz: y\n---\nbody")
    assert found.fields == {"z": "y"}
    assert found.notices == ("the value of a is not understood",)


def test_the_tools_on_offer_are_those_of_sessions() -> None:
    from muse.app.golden import _tools
    from muse.decide.agent_tools import NAMES

    assert {spec.name for spec in _tools()} | {*NAMES, "diff", "apply"} == OFFERED
