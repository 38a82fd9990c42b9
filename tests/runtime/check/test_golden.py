"""A session as a fixture: kept once, and then every change of prompt, tools and rules shows as a readable text."""

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from muse import app
from muse.app import golden
from muse.app.golden import check, read_fixture, workspace_of
from muse.errors import ConfigError, UsageError
from muse.event.content import Git, ToolSpec
from muse.event.kinds import COMMANDS
from muse.log.export import write_export
from muse.log.memory import MemoryLog, MemoryPlace
from muse.runtime.check.substitute import differences
from muse.runtime.seal import seal
from muse.ui.cli import cli
from tests.runtime.check.mutations import Recorded

RECORDED = Path(__file__).with_name("recorded")
SETTINGS = '[permissions]\nask = ["shell(zip *)"]\n'
FOUND = ("decisions", "prompt", "tools", "rules")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project that the session `anthropic` was recorded in, as it was, with a fixture of it."""
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / ".muse").mkdir()
    (folder / "AGENTS.md").write_text("Be brief.\n")
    (folder / ".muse" / "config.toml").write_text(SETTINGS)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    done = keep(folder)
    assert done.return_value == 0, done.output
    return folder


def keep(folder: Path, *arguments: str, name: str = "anthropic") -> Result:
    words = ["replay", "--verify", str(RECORDED / f"{name}.jsonl"), "--golden", str(folder / "golden"), *arguments]
    return CliRunner().invoke(cli, words, standalone_mode=False)


def kept(folder: Path) -> Path:
    (found,) = (folder / "golden").iterdir()
    return found


def wrong(folder: Path) -> dict[str, str]:
    """What each check says, of those that say something."""
    fixture = read_fixture(kept(folder))
    said = {what: check(fixture, what, folder) for what in fixture.manifest.checks}
    return {what: text for what, text in said.items() if text}


def test_a_project_that_is_as_it_was_shows_nothing(project: Path) -> None:
    assert wrong(project) == {}
    manifest = read_fixture(kept(project)).manifest
    assert manifest.checks == FOUND
    assert manifest.project.instructions == ("AGENTS.md",)
    assert (manifest.project.ask, manifest.session.requests) == (("shell(zip *)",), 8)


def test_another_instruction_file_is_a_diff_of_the_system_prompt(project: Path) -> None:
    (project / "AGENTS.md").write_text("Be brief, and kind.\nSay what you checked.\n")
    found = wrong(project)
    assert list(found) == ["prompt"]
    lines = found["prompt"].splitlines()
    assert lines[0] == "the system prompt of main is another (8 of 8 requests would be others, from #4 on):"
    assert [line for line in lines if line[0] in "+-"] == [
        "-Be brief.",
        "+Be brief, and kind.",
        "+Say what you checked.",
    ]


@pytest.mark.parametrize(
    ("now", "was", "is_"),
    [(b"Be brief.\r\n", "-Be brief.\\n", "+Be brief.\\r\\n"), (b"Be brief.", "-Be brief.\\n", "+Be brief.")],
)
def test_other_line_ends_alone_are_seen_in_the_diff_as_well(project: Path, now: bytes, was: str, is_: str) -> None:
    (project / "AGENTS.md").write_bytes(now)
    assert [line for line in wrong(project)["prompt"].splitlines() if line[0] in "+-"] == [was, is_]


def test_git_gives_a_fixture_no_other_line_ends(project: Path, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "core.autocrlf=true", *words], cwd=project, check=True, capture_output=True)

    shutil.rmtree(project / ".git")
    git("init", "-q")
    git("add", "golden")
    git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "kept")
    git("clone", "-q", "-c", "core.autocrlf=true", str(project), str(tmp_path / "cloned"))
    (cloned,) = (tmp_path / "cloned" / "golden").iterdir()
    assert b"\r\n" in (cloned / "golden.toml").read_bytes(), "this git does what it is asked to"
    assert check(read_fixture(cloned), "decisions", project) == ""


@pytest.mark.parametrize(("worked_in", "found"), [("/then/shop", "."), ("/then/shop/sub", "sub"), ("/gone", "sub")])
def test_a_session_is_held_against_the_folder_of_the_repository_that_it_worked_in(
    project: Path, worked_in: str, found: str
) -> None:
    (project / "sub").mkdir()
    opened = Recorded(RECORDED / "anthropic.jsonl").events[0].body
    told = msgspec.structs.replace(opened, workspace=worked_in, git=Git(root="/then/shop"))  # type: ignore[call-arg]
    log = MemoryLog(MemoryPlace("told"), commands=COMMANDS)
    log.claim(lambda claim: seal(told, "main", 0)).release()
    with (kept(project) / "session.jsonl").open("wb") as file:
        write_export(log, file.write)
    asked_from = project / "sub"
    assert workspace_of(read_fixture(kept(project)), asked_from) == (project / found).resolve()


def test_a_rule_that_cannot_be_read_is_said_and_is_not_taken_for_none(project: Path) -> None:
    (project / ".muse" / "config.toml").write_text('[permissions]\ndeny = ["shell("]\n')
    with pytest.raises(ConfigError, match="'shell\\(' is no rule"):
        wrong(project)


def test_a_new_rule_says_which_call_it_would_have_met_and_what_it_met_then(project: Path) -> None:
    (project / ".muse" / "config.toml").write_text('[permissions]\nask = ["shell(seq *)"]\ndeny = ["shell(rm *)"]\n')
    found = wrong(project)
    assert list(found) == ["rules"]
    met, seq = found["rules"].splitlines()
    assert met.startswith("call main/8 `rm README.md` was asked about (mode default: ")
    assert met.endswith("; now it is denied by the rule shell(rm *)")
    assert seq.startswith("call main/10 `seq 9000; echo; echo end` was allowed (mode default: plainly harmless)")
    assert seq.endswith("; now it asks (the rule shell(seq *))")


def test_a_stricter_mode_of_the_project_is_followed(project: Path) -> None:
    (project / ".muse" / "config.toml").write_text(f'permission_mode = "plan"\n{SETTINGS}')
    found = wrong(project)
    assert set(found) == {"prompt", "rules"}
    assert "+You are in plan mode: read and think, change nothing, and answer with a plan." in found["prompt"]
    assert "now it is denied (plan mode: " in found["rules"]
    assert "now it is allowed" not in found["rules"], "reading is free in either mode"


def test_other_tools_are_a_diff_of_description_and_schema(project: Path) -> None:
    then = golden.offer_of(project)

    def another(spec: ToolSpec) -> ToolSpec:
        if spec.name != "glob":
            return spec
        return msgspec.structs.replace(spec, description="Find files.", schema='{"type":"object"}')

    tools = (*(another(spec) for spec in then.tools if spec.name != "stop"),)
    log = app.open_log(RECORDED / "anthropic.jsonl")
    found = differences(log, app.rules(), then, msgspec.structs.replace(then, tools=tools))
    texts = {one.lines[0].split()[2]: one.lines for one in found}
    assert {one.aspect for one in found} == {"tools"}
    assert texts["glob"][0] == "the tool glob is another (8 of 8 requests would be others, from #4 on):"
    assert "+Find files." in texts["glob"]
    assert "schema:" in texts["glob"]
    assert texts["stop"][1] == "it was offered, and is not any more"


def test_a_fixture_is_replaced_only_with_force_which_shows_what_changes(project: Path) -> None:
    again = keep(project)
    assert "the same as it was" in again.output
    (project / ".muse" / "config.toml").write_text('[permissions]\nask = ["shell(tar *)"]\n')
    refused = keep(project)
    assert isinstance(refused.exception, UsageError)
    assert '-ask = ["shell(zip *)"]\n+ask = ["shell(tar *)"]' in str(refused.exception)
    assert "--force" in refused.exception.hint
    assert read_fixture(kept(project)).manifest.project.ask == ("shell(zip *)",)
    forced = keep(project, "--force")
    assert '+ask = ["shell(tar *)"]' in forced.output
    assert read_fixture(kept(project)).manifest.project.ask == ("shell(tar *)",)


def test_an_export_that_was_changed_is_not_the_one_that_the_manifest_names(project: Path) -> None:
    shutil.copy(RECORDED / "openai.jsonl", kept(project) / "session.jsonl")
    assert set(wrong(project)) == set(FOUND)
    assert "is not the session that golden.toml names" in wrong(project)["rules"]


def test_pytest_collects_one_test_for_each_check_and_fails_with_the_difference(project: Path) -> None:
    (project / "conftest.py").write_text('pytest_plugins = ["muse.testing.golden"]\n')
    (project / "pytest.ini").write_text("[pytest]\nmuse_golden = golden\n")
    (project / "test_own.py").write_text("def test_own():\n    pass\n")
    name = kept(project).name
    (project / "AGENTS.md").write_text("Be long.\n")

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
        return subprocess.run(words, cwd=project, capture_output=True, text=True, check=False, timeout=60)

    done = run("-v")
    assert done.returncode == 1, done.stdout + done.stderr
    for what in FOUND:
        outcome = "FAILED" if what == "prompt" else "PASSED"
        assert f"golden/{name}/golden.toml::{name}-{what} {outcome}" in done.stdout
    assert "test_own.py::test_own PASSED" in done.stdout
    assert "-Be brief.\n+Be long." in done.stdout
    assert "Traceback" not in done.stdout
    assert "golden.py:" not in done.stdout
    (kept(project) / "session.jsonl").write_bytes(b"")
    torn = run("-q")
    assert "session.jsonl is empty\ngive a session" in torn.stdout, torn.stdout
    assert "golden.py:" not in torn.stdout
    only = run("-q", "test_own.py")
    assert only.returncode == 0, only.stdout
    assert "1 passed" in only.stdout
