"""`muse import`, and foreign files and exports given in the place of a session."""

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muse.errors import Damaged, UsageError
from muse.ui.cli import cli
from tests.ingest.made import answer, item, jsonl, message, result, said, text, use, wrapped

CLAUDE = jsonl([
    said("a", None, "find the cat"),
    answer("b", "a", "m1", text("I look."), use("t1", "Bash", command="grep -r cat .")),
    result("c", "b", "t1", "src/cat.py", {"stdout": "src/cat.py", "stderr": ""}),
    {"type": "hologram"},
    answer("d", "c", "m2", text("Found.")),
])  # fmt: skip
CODEX = jsonl([
    wrapped("session_meta", id="own", cwd="/w"), message("user", "hi"), message("assistant", "yes"),
    item("function_call", name="exec_command", arguments='{"cmd": "ls -la"}', call_id="c1"),
])  # fmt: skip


class Home:
    """A home, and a folder with foreign files in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "files"
        self.home = folder / "home"
        self.folder.mkdir()
        self.claude, self.codex = self.folder / "s.jsonl", self.folder / "rollout.jsonl"
        self.claude.write_bytes(CLAUDE)
        self.codex.write_bytes(CODEX)

    def run(self, *words: str | Path, typed: str = "") -> Result:
        environment = {"MUSE_HOME": str(self.home), "HOME": str(self.home), "COLUMNS": "200"}
        given = [str(word) for word in words]
        return CliRunner().invoke(cli, given, env=environment, standalone_mode=False, input=typed)

    def json(self, *words: str | Path) -> list[dict]:  # type: ignore[type-arg]  # any JSON
        return [json.loads(one) for one in self.run(*words).stdout.splitlines()]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_an_imported_file_is_a_session_that_verifies_is_listed_and_does_not_go_on(home: Home) -> None:
    done = home.run("import", home.claude, "--name", "the cat")
    assert done.return_value == 0
    session = done.stdout.split()[0]
    assert session.startswith("20260101-000000-")
    (entry,) = home.json("ls", "--all", "--json")
    assert (entry["session"], entry["name"], entry["imported"]) == (session, "the cat", "claude-code")
    assert (entry["state"], entry["outcome"], entry["workspace"]) == ("closed", "imported", "/w")
    assert entry["last_time"].startswith("2026-01-01T")
    assert "imported" in home.run("ls", "--all").stdout
    (verdict,) = home.json("verify", session, "--json")
    assert verdict["exit"] == 0
    assert {row["what"]: row["state"] for row in verdict["rows"]}["tail"] == "proven"
    refused = home.run("resume", session, "more")
    assert isinstance(refused.exception, UsageError)
    assert "frozen" in str(refused.exception)
    assert "Bash     grep -r cat ." in home.run("log", session).stdout


def test_a_session_that_is_kept_has_drawn_keys_and_a_view_has_not(home: Home) -> None:
    first, second = home.json("import", home.codex, "--json"), home.json("import", home.codex, "--force", "--json")
    keys = []
    for (one,) in (first, second):
        (path,) = home.home.glob(f"sessions/*/*/*/{one['session']}.muse")
        with sqlite3.connect(path) as db:
            keys.append(db.execute("SELECT key FROM events WHERE seq = 1").fetchone()[0])
        db.close()
    assert keys[0] != keys[1]
    assert home.run("show", f"{home.codex}@1", "--json").stdout == home.run("show", f"{home.codex}@1", "--json").stdout


def test_the_same_file_is_imported_once_and_a_second_time_only_by_force(home: Home) -> None:
    (first,) = home.json("import", home.claude, "--json")
    assert (first["is_new"], first["unknown"], first["unreadable"]) == (True, 1, 0)
    again = home.run("import", home.claude)
    assert again.return_value == 2
    assert first["session"] in again.stderr
    (forced,) = home.json("import", home.claude, "--force", "--json")
    assert forced["session"] != first["session"]
    assert len(home.json("ls", "--all", "--json")) == 2
    copy = home.folder / "copy.jsonl"
    copy.write_bytes(CLAUDE)
    assert home.run("import", copy).return_value == 2
    assert not list(home.home.glob("sessions/*/*/*/.*"))


def test_a_folder_stands_for_the_session_files_in_it_and_agents_files_belong_to_theirs(home: Home) -> None:
    agents = home.folder / "s" / "subagents"
    agents.mkdir(parents=True)
    (agents / "agent-A1.jsonl").write_bytes(jsonl([said("x", None, "count", isSidechain=True, agentId="A1")]))
    (home.folder / "notes.jsonl").write_text('{"a": 1}\n')
    done = home.run("import", home.folder)
    assert done.return_value == 0
    assert "2 sessions imported, 0 there already" in done.stderr
    assert home.run("import", home.folder).return_value == 0
    kept = [one for one in home.json("ls", "--all", "--json") if one["imported"] == "claude-code"]
    agents_seen = {event["agent"] for event in home.json("replay", kept[0]["session"], "--json")}
    assert agents_seen == {"main", "main.1"}


@pytest.mark.parametrize(
    "words", [("import", "nothing.jsonl"), ("import", "{folder}/notes.txt"), ("import", "{folder}/empty")]
)
def test_what_is_no_session_file_is_refused(home: Home, words: tuple[str, ...]) -> None:
    (home.folder / "notes.txt").write_text("no\n")
    (home.folder / "empty").mkdir()
    refused = home.run(*(word.format(folder=home.folder) for word in words))
    assert isinstance(refused.exception, UsageError)
    assert not home.home.exists() or not list(home.home.glob("sessions/*/*/*/*"))


def test_a_source_that_claims_to_be_of_the_future_gets_an_id_of_now(home: Home) -> None:
    later = CODEX.replace(b"2026-01-01", b"3026-01-01")
    home.codex.write_bytes(later)
    (done,) = home.json("import", home.codex, "--json")
    assert not done["session"].startswith("3026")
    assert home.json("ls", "--all", "--json")[0]["last_time"].startswith("3026")


def test_a_file_is_read_in_the_place_of_a_session_and_nothing_is_kept(home: Home) -> None:
    assert "grep -r cat ." in home.run("replay", home.claude, "--plain").stdout
    assert "src/cat.py" in home.run("show", f"{home.claude}@6").stdout
    assert "ls -la" in home.run("log", home.codex).stdout
    document = home.run("export", home.claude, "--format", "md").stdout
    assert "not recorded by the source" in document
    assert home.run("verify", home.claude).exception is not None
    assert not list(home.home.glob("sessions/*/*/*/*"))


def exported(home: Home, *redact: str) -> Path:
    """The export of an imported session, with a text taken out of it."""
    (done,) = home.json("import", home.claude, "--force", "--json")
    for words in redact:
        redacted = home.run("redact", done["session"], "--text", "-", "--yes", typed=words)
        assert redacted.return_value == 0, (redacted.output, redacted.exception)
    path = home.folder / f"{done['session']}-export.jsonl"
    assert home.run("export", done["session"], "-o", path).return_value == 0
    return path


def test_an_export_is_read_like_its_session(home: Home) -> None:
    export = exported(home)
    session = export.name.removesuffix("-export.jsonl")
    assert home.run("replay", export, "--json").stdout == home.run("replay", session, "--json").stdout
    assert home.run("show", f"{export}@5", "--json").stdout == home.run("show", f"{session}@5", "--json").stdout
    assert home.run("show", f"{export}@1", "--blob", "raw").stdout_bytes == CLAUDE
    again = home.folder / "again.jsonl"
    assert home.run("export", export, "-o", again).return_value == 0
    assert again.read_bytes() == export.read_bytes()
    assert isinstance(home.run("resume", export).exception, UsageError)


def test_a_redacted_export_is_read_and_what_was_taken_out_is_not_there(home: Home) -> None:
    export = exported(home, "src/cat.py")
    rows = home.run("replay", export, "--plain")
    assert rows.return_value == 0
    assert "src/cat.py" not in rows.stdout
    assert "hidden" in rows.stdout
    assert home.run("verify", export).return_value == 0
    again = home.folder / "again.jsonl"
    assert home.run("export", export, "-o", again).return_value == 0
    assert again.read_bytes() == export.read_bytes()


def test_an_export_that_breaks_off_or_was_changed_is_read_up_to_there_and_says_so(home: Home) -> None:
    export = exported(home)
    whole = export.read_bytes()
    lines = whole.splitlines(keepends=True)
    cut = home.folder / "cut-export.jsonl"
    cut.write_bytes(b"".join(lines[:5]) + lines[5][:40])
    broken = home.run("replay", cut, "--plain")
    assert isinstance(broken.exception, Damaged)
    assert "breaks off after event 3" in str(broken.exception)
    assert len(broken.stdout.splitlines()) == 3
    changed = home.folder / "changed-export.jsonl"
    changed.write_bytes(whole.replace(b"find the cat", b"find the dog"))
    tampered = home.run("log", changed)
    assert isinstance(tampered.exception, Damaged)
    assert "dog" not in tampered.stdout


def test_a_file_that_grew_is_kept_beside_what_was_kept_of_it(home: Home) -> None:
    (first,) = home.json("import", home.codex, "--json")
    home.codex.write_bytes(CODEX + jsonl([message("user", "more")]))
    grown = home.run("import", home.codex)
    assert grown.return_value == 0
    assert first["session"] in grown.stderr
    assert home.run("import", home.codex).return_value == 2
    assert len(home.json("ls", "--all", "--json")) == 2


def test_what_was_redacted_does_not_come_back_and_stands_in_no_id(home: Home) -> None:
    (done,) = home.json("import", home.claude, "--json")
    assert home.run("redact", done["session"], "--text", "-", "--yes", typed="src/cat.py").return_value == 0
    assert home.run("import", home.claude).return_value == 2
    other = home.folder / "other.jsonl"
    other.write_bytes(CLAUDE.replace(b"src/cat.py", b"src/dog.py"))
    viewed = home.json("replay", other, "--json")
    kept = home.json("replay", done["session"], "--json")
    assert {event["id"] for event in home.json("replay", home.claude, "--json")}.isdisjoint(
        event["id"] for event in kept
    )
    with_other_content = home.json("import", other, "--json", "--force")
    assert with_other_content[0]["session"][:-6] == done["session"][:-6]
    assert viewed[0]["type"] == "log.imported"


def test_agents_files_in_the_sessions_own_folder_are_found_by_the_session_that_they_name(home: Home) -> None:
    (home.folder / "S.jsonl").write_bytes(CLAUDE)
    home.claude.unlink()
    (home.folder / "agent-A1.jsonl").write_bytes(jsonl([said("x", None, "count", isSidechain=True, agentId="A1")]))
    stranger = said("y", None, "other", isSidechain=True, agentId="A2") | {"sessionId": "T"}
    (home.folder / "agent-A2.jsonl").write_bytes(jsonl([stranger]))
    spawned = [
        one["body"] for one in home.json("replay", home.folder / "S.jsonl", "--json") if one["type"] == "agent.spawned"
    ]
    assert [body.get("task", "") for body in spawned] == ["", "count"]
    alone = home.json("replay", home.folder / "agent-A1.jsonl", "--json")
    assert {one["agent"] for one in alone} == {"main"}
    sources = [Path(one["file"]).name for one in home.json("import", home.folder, "--json")]
    assert sources == ["S.jsonl", "agent-A2.jsonl", "rollout.jsonl"]


def test_last_means_an_imported_session_only_where_there_is_no_other(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    newer = CODEX.replace(b"/w", str(folder).encode()).replace(b"2026-", b"3026-")
    home.codex.write_bytes(newer)
    home.run("import", home.codex)
    assert home.json("replay", "--json")[0]["type"] == "log.imported"
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"steps": [{"text": "yes"}]}))
    assert home.run("exec", "hi", "--model", f"scripted/{script}", "--json").return_value == 0
    home.run("import", home.codex, "--force")
    assert home.json("ls", "--json")[0]["imported"] == "codex"
    assert home.json("replay", "--json")[0]["type"] == "session.opened"


def test_a_first_line_of_any_length_says_what_a_file_is(home: Home) -> None:
    long = wrapped("session_meta", id="own", base_instructions={"text": "x" * 5_000_000})
    home.codex.write_bytes(b"\xef\xbb\xbf" + jsonl([long, message("user", "hi")]))
    assert [one["type"] for one in home.json("replay", home.codex, "--json")].count("user.prompted") == 1


def test_a_file_whose_session_was_put_away_is_there_and_is_not_kept_under_its_id_again(home: Home) -> None:
    (first,) = home.json("import", home.claude, "--json")
    session = first["session"]
    assert home.run("redact", "-y", f"{session}@3").return_value == 0
    assert home.run("archive", "-y", session).return_value == 0
    refused = home.run("import", home.claude)
    assert refused.return_value == 2
    assert f"was imported already: session {session}" in refused.stderr
    home.claude.write_bytes(CLAUDE + CLAUDE.splitlines(keepends=True)[-2])
    (grown,) = home.json("import", home.claude, "--json", "--force")
    assert grown["session"] != session
    assert home.run("archive", "-y", "--restore", session).return_value == 0
    assert home.run("verify", session).return_value == 0


def test_an_imported_session_is_watched_to_its_end(home: Home) -> None:
    (kept,) = home.json("import", home.claude, "--json")
    done = home.run("attach", kept["session"])
    assert done.return_value == 0, done.exception


@pytest.fixture
def in_time() -> Iterator[None]:
    """What waits for a writer that never comes is ended."""

    def too_late(number: int, frame: object) -> None:
        raise TimeoutError("it waits for somebody to write into a pipe")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("in_time")
def test_no_pipe_is_opened_be_it_named_or_beside_a_session_where_its_agents_files_stand(home: Home) -> None:
    pipe = home.folder / "p.jsonl"
    os.mkfifo(pipe)
    for words in (["log"], ["verify"], ["replay", "--verify"], ["recover"], ["import"]):
        assert isinstance(home.run(*words, pipe).exception, UsageError), words
    os.mkfifo(home.folder / "agent-x.jsonl")
    (home.folder / "s" / "subagents").mkdir(parents=True)
    os.mkfifo(home.folder / "s" / "subagents" / "agent-y.jsonl")
    assert "find the cat" in home.run("log", home.claude).stdout
    assert "2 sessions imported" in home.run("import", home.folder).output
