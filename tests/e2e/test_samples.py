"""Real session files of other agents, read by every command that reads.

They are not part of this project: `MUSE_SAMPLES` names the folder that holds them (docs/imports.md).
"""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muse import app
from muse.event.envelope import Event
from muse.event.kinds import AgentSpawned, AgentSteered, ModelResponded, ToolFinished, UserPrompted
from muse.ui.cli import cli
from tests.ingest import count

FOLDER = Path(os.environ.get("MUSE_SAMPLES") or "/nonexistent")
FILES = sorted(FOLDER.rglob("*.jsonl"))
NAMES = [str(path.relative_to(FOLDER)) for path in FILES]

pytestmark = pytest.mark.skipif(not FILES, reason="MUSE_SAMPLES names no folder with session files of other agents")


def parts_of(path: Path) -> list[Path]:
    """The file and those of its agents."""
    return [path, *sorted(path.with_suffix("").glob("subagents/*.jsonl"))]


def run(home: Path, *words: str) -> Result:
    environment = {"MUSE_HOME": str(home), "HOME": str(home), "MUSE_DEBUG": "1"}
    return CliRunner().invoke(cli, words, env=environment, standalone_mode=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(params=FILES, ids=NAMES)
def sample(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def counted(events: Iterable[Event], *, by_words: bool) -> dict[str, int]:
    found = {"said": 0, "answers": 0, "calls": 0, "results": 0, "tokens": 0}
    for event in events:
        match event.body:
            case UserPrompted() | AgentSteered():
                found["said"] += 1
            case ToolFinished():
                found["results"] += 1
            case ModelResponded():
                kinds = [block.kind for block in event.body.blocks]
                found["answers"] += kinds.count("text") if by_words else 1
                found["calls"] += kinds.count("tool_use")
                found["tokens"] += event.body.usage.output
    return found


def test_a_sample_holds_what_the_raw_file_does(sample: Path) -> None:
    by_words = sample.is_relative_to(FOLDER / "codex")
    with app.read_session(sample) as reading:
        found = counted(reading.events(), by_words=by_words)
    assert found == (count.codex(sample) if by_words else count.claude_code(*parts_of(sample)))


def test_a_sample_is_replayed_and_exported_and_the_same_each_time(sample: Path, home: Path, tmp_path: Path) -> None:
    plain, first = run(home, "replay", str(sample), "--plain"), run(home, "replay", str(sample), "--json")
    rows, events = plain.output.splitlines(), [json.loads(line) for line in first.output.splitlines()]
    assert (plain.return_value, first.return_value) == (0, 0)
    assert len(rows) == len(events)
    assert "imported" in rows[0]
    assert events[0]["body"]["missing"]

    moved = tmp_path / "elsewhere" / sample.name
    moved.parent.mkdir()
    for part in parts_of(sample):
        place = moved.parent / part.relative_to(sample.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(part.read_bytes())
    assert run(tmp_path, "replay", str(moved), "--json").output == first.output

    export = tmp_path / "sample-export.jsonl"
    assert run(home, "export", str(sample), "-o", str(export)).return_value == 0
    verdict = run(home, "verify", str(export), "--json")
    assert verdict.return_value == 0, verdict.output
    assert run(home, "replay", str(export), "--json").output == first.output
    document = run(home, "export", str(sample), "--format", "md")
    assert document.return_value == 0
    assert "not recorded by the source" in document.output


def test_what_was_said_in_a_sample_is_found_in_it(sample: Path, home: Path) -> None:
    with app.read_session(sample) as reading:
        texts = [getattr(event.body, name, "") for event in reading.events() for name in ("text", "task")
                 if isinstance(event.body, UserPrompted | AgentSpawned)]  # fmt: skip
    word = next(found[0] for words in texts if (found := re.findall(r"[A-Za-z]{2,}", words)))
    hits = run(home, "search", word, str(sample), "--json")
    assert hits.return_value == 0, hits.output
    assert word.lower() in hits.stdout.lower()


def test_the_state_at_the_end_of_a_sample_is_frozen(sample: Path) -> None:
    state = app.state_of(app.open_log(sample))
    assert state.imported in ("claude-code", "codex")
    assert state.incomplete
    assert state.closed
    with app.read_session(sample) as reading:
        spent = counted(reading.events(), by_words=False)["tokens"]
    assert sum(agent.usage.output for agent in state.agents.values()) == spent


def test_all_samples_are_imported_once_and_verify(home: Path) -> None:
    done = run(home, "import", str(FOLDER), "--json")
    assert done.return_value == 0
    sessions = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(sessions) == len([path for path in FILES if path.parent.name != "subagents"])
    assert all(one["is_new"] and not one["unknown"] and not one["unreadable"] for one in sessions)
    again = [json.loads(line) for line in run(home, "import", str(FOLDER), "--json").stdout.splitlines()]
    assert [one["session"] for one in again] == [one["session"] for one in sessions]
    assert not any(one["is_new"] for one in again)
    for one in sessions:
        verdict = json.loads(run(home, "verify", one["session"], "--json").output)
        assert verdict["exit"] == 0
    listed = [json.loads(line) for line in run(home, "ls", "--all", "--json", "-n", "0").stdout.splitlines()]
    assert {one["session"] for one in listed} == {one["session"] for one in sessions}
    assert {one["imported"] for one in listed} == {"claude-code", "codex"}
