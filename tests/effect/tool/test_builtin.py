"""The set of tools as the runtime gets it."""

import json
from pathlib import Path

import msgspec
import pytest

from muse.effect.protocol import LeftProcess, Stopped, Workspace
from muse.effect.runner import Runner
from muse.effect.tool import builtin_tools
from muse.effect.tool.environment import is_secret_name, shell_environment
from muse.event.told import Lane
from tests.effect.tool.conftest import Harness

pytestmark = pytest.mark.anyio


class Nothing:
    """`Background` of a session in which nothing was left running."""

    async def running(self) -> dict[str, tuple[LeftProcess, ...]]:
        return {}

    async def stop(self, call: str) -> Stopped:
        return Stopped()


async def read_nothing(call: str, offset: int, limit: int) -> bytes | None:
    return None


async def empty_lane(agent: str, first: int, last: int, query: str, bytes_max: int) -> Lane:
    return Lane(())


def test_the_tools_and_their_recovery_classes(tmp_path: Path) -> None:
    tools = builtin_tools(
        Runner(tmp_path / "run", 1), read_output=read_nothing, read_lane=empty_lane, background=Nothing, environment={}
    )
    assert {name: (tool.spec.recovery, tool.spec.writes) for name, tool in tools.items()} == {
        "read": ("pure", False),
        "write": ("reconcilable", True),
        "edit": ("reconcilable", True),
        "glob": ("pure", False),
        "grep": ("pure", False),
        "shell": ("attachable", True),
        "output": ("pure", False),
        "recall": ("pure", False),
        "stop": ("reconcilable", True),
    }
    assert not {"output", "stop"} & set(builtin_tools(Runner(tmp_path / "run", 1), environment={}))


def test_the_schemas_are_json_schemas_of_exactly_the_offered_arguments(tmp_path: Path) -> None:
    tools = builtin_tools(
        Runner(tmp_path / "run", 1), read_output=read_nothing, read_lane=empty_lane, background=Nothing, environment={}
    )
    offered = {}
    for name, tool in tools.items():
        schema = json.loads(tool.spec.schema)
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])
        assert all(one["description"] for one in schema["properties"].values())
        assert 40 < len(tool.spec.description) < 500
        assert msgspec.json.decode(tool.spec.schema)
        offered[name] = (list(schema["properties"]), schema["required"])
    assert offered == {
        "read": (["path", "offset", "limit"], ["path"]),
        "write": (["path", "content"], ["path", "content"]),
        "edit": (["path", "edits"], ["path", "edits"]),
        "glob": (["pattern", "path"], ["pattern"]),
        "grep": (["pattern", "path", "glob", "context", "ignore_case", "output"], ["pattern"]),
        "shell": (["command", "timeout_seconds", "description"], ["command"]),
        "output": (["call", "offset", "limit"], ["call"]),
        "recall": (["call", "from", "to", "query", "offset", "limit"], []),
        "stop": (["call"], ["call"]),
    }


HOSTILE: list[object] = [
    None, True, 0, -1, 10**40, 1.5, float("nan"), "", "\0", "\ud800", "\udc80", "x" * 10_000_000, "/" * 5000, "~",
    "~nobody/x", "..", "a\nb", [], [[]], [None], {}, {"old": {}}, "*" * 3000, "{" * 3000, "[" * 3000, "(" * 3000,
    "\\", "-rf",
]  # fmt: skip


async def test_no_argument_makes_a_tool_raise(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    (root / "a").write_text("text\n")
    tools = builtin_tools(
        Runner(tmp_path / "run", 1), read_output=read_nothing, read_lane=empty_lane, background=Nothing, environment={}
    )
    del tools["shell"]  # its arguments are only the command, which test_shell tries
    good: dict[str, object] = {
        "path": "a", "content": "text\n", "edits": [{"old": "t", "new": "t"}], "pattern": "a", "call": "main/1",
    }  # fmt: skip
    for tool in tools.values():
        harness = Harness(tool, workspace)
        names = json.loads(tool.spec.schema)["properties"]
        base = {name: good[name] for name in names if name in good and (tool.spec.name, name) != ("glob", "path")}
        for name in names:
            for value in HOSTILE:
                args = base | {name: value}
                for path in harness.paths(**args):
                    path.encode()
                result = await harness.do(**args)
                assert result.status in ("ok", "error"), (tool.spec.name, name, value)
                assert len(result.text.encode()) < 100_000


async def test_a_workspace_that_vanished_is_an_error(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    root.rmdir()
    tools = builtin_tools(Runner(tmp_path / "run", 1), environment={})
    for name, args in [
        ("read", {"path": "a"}),
        ("write", {"path": "a", "content": ""}),
        ("edit", {"path": "a", "old": "a", "new": "b"}),
        ("glob", {"pattern": "*"}),
        ("grep", {"pattern": "a"}),
    ]:
        result = await Harness(tools[name], workspace).do(**args)
        assert result.status == "error", name


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("ANTHROPIC_API_KEY", True), ("github_token", True), ("AWS_SECRET_ACCESS_KEY", True),
        ("AWS_ACCESS_KEY_ID", True), ("OPENAI_APIKEY", True), ("DB_PASS", True), ("COMPASS", False),
        ("PGPASSWORD", True), ("DB_PASSWORD", True), ("CLIENT_SECRET", True), ("SSH_KEY", True), ("TOKEN", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True), ("PATH", False), ("KEYBOARD", False),
        ("TOKENIZERS_PARALLELISM", False), ("MONKEY", False),
        ("CI", False), ("EDITOR", False), ("SECRETARY", False),
    ],
)  # fmt: skip
def test_names_of_secrets_are_recognised(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret
    assert (name in shell_environment({name: "x"}, (name,))) is not secret
