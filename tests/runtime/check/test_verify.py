"""`muse replay --verify`: what it says of sessions that are as they were, of others, and of what it cannot derive."""

import dataclasses
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from muse import app
from muse.decide.context import RULES_VERSION, Rules
from muse.errors import Damaged
from muse.event.content import BlobRef
from muse.event.kinds import ApprovalDecided, ApprovalRequested, FilesChanged, SessionOpened, ToolFinished, ToolStarted
from muse.runtime.check.contents import text_of_output
from muse.runtime.check.offline import NotOffline, offline
from muse.runtime.check.report import KINDS, Report
from muse.runtime.check.walk import verify_story
from muse.ui.cli import cli
from tests.runtime.check.mutations import Recorded

HERE = Path(__file__).parent
GOLDEN = HERE.parent.parent / "golden" / "0.1.0.muse"


@pytest.fixture(scope="module")
def session() -> Recorded:
    return Recorded(HERE / "recorded" / "rules.jsonl")


def retold(session: Recorded, change: Callable[[Any], Any], rules: Rules | None = None) -> Report:
    """The report on a session whose bodies `change` replaces, but for those that it gives back as None."""
    events = []
    for event in session.events:
        body = change(event.body)
        events.append(event if body is None else msgspec.structs.replace(event, body=body))
    return verify_story(session.told(events), rules or app.rules())


def bodies(session: Recorded, kind: type[Any]) -> list[Any]:
    return [event.body for event in session.events if isinstance(event.body, kind)]


def muse(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["replay", "--verify", *arguments], standalone_mode=False)


@pytest.mark.parametrize(
    "change",
    [
        'UPDATE events SET body = replace(body, \'"status":"ok"\', \'"status":"error"\') WHERE seq = {finished}',
        "UPDATE events SET key = zeroblob(32) WHERE seq = {finished}",
    ],
    ids=["another body", "another key"],
)
def test_an_event_that_is_not_what_the_chain_commits_to_is_damage_before_anything_is_derived(
    tmp_path: Path, change: str
) -> None:
    copy = tmp_path / "golden.muse"
    shutil.copy(GOLDEN, copy)
    with app.read_session(copy) as reading:
        finished = next(event.seq for event in reading.events() if event.type == "tool.finished")
    with closing(sqlite3.connect(copy)) as db, db:
        db.create_function("replace", 3, lambda body, old, new: body.replace(old.encode(), new.encode()))
        db.execute(change.format(finished=finished))
    with pytest.raises(Damaged, match="not what the chain commits to") as damaged:
        app.verify_story(copy)
    assert damaged.value.seq == finished


def test_the_golden_log_is_derived_again_under_the_rules_of_its_day(tmp_path: Path) -> None:
    copy = tmp_path / "golden.muse"
    shutil.copy(GOLDEN, copy)
    done = muse("--json", str(copy))
    said = json.loads(done.stdout)
    assert (done.return_value, said["ok"], said["left"]) == (0, True, [])
    with app.read_session(copy) as reading:
        types = [event.type for event in reading.events()]
    counted = {kind: types.count(kind) for kind in said["decisions"]}
    assert said["decisions"] == counted
    assert {"agent.spawned", "approval.requested", "effect.doubted", "session.closed", "tool.started"} <= set(counted)


def test_another_argument_is_named_with_what_was_due(session: Recorded) -> None:
    def change(body: Any) -> Any:
        if isinstance(body, ToolStarted) and "rm b" in str(body.args):
            return msgspec.structs.replace(body, args='{"command": "rm -rf /"}')
        return None

    found = retold(session, change).divergence
    assert found is not None
    assert (found.type, found.kind) == ("tool.started", "arguments")
    assert "rm b" in found.expected
    assert "rm -rf /" in found.recorded
    assert [line[:7] for line in found.difference] == ["- args:", "+ args:"]


def test_a_long_text_is_compared_line_by_line(session: Recorded) -> None:
    def change(body: Any) -> Any:
        if type(body).__name__ != "AgentSpawned":
            return None
        return msgspec.structs.replace(body, system=body.system.replace("Make the smallest change", "Change all"))

    found = retold(session, change).divergence
    assert found is not None
    assert [line for line in found.difference if line.startswith(("-", "+"))] == [
        "-- Make the smallest change that does the whole job, in the style of the code around it.",
        "+- Change all that does the whole job, in the style of the code around it.",
    ]


def test_a_request_that_was_built_from_something_else_says_how_long_it_would_be(session: Recorded) -> None:
    def change(body: Any) -> Any:
        return msgspec.structs.replace(body, text="go on!") if getattr(body, "text", "") == "go on" else None

    found = retold(session, change).divergence
    assert found is not None
    assert (found.kind, found.type) == ("request", "model.requested")
    length = int(found.expected.split()[0])
    assert length == int(found.recorded.split()[0]) + 1


def test_an_approval_is_of_exactly_what_was_shown(session: Recorded) -> None:
    def change(body: Any) -> Any:
        if isinstance(body, ApprovalRequested) and body.shown == "$ echo x":
            return msgspec.structs.replace(body, shown="$ echo y")
        return None

    found = retold(session, change).divergence
    assert found is not None
    assert found.kind == "arguments"


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("edit", {"after": "after of the write"}),
        ("edit", {"before": "after of the write"}),
        ("write", {"after": "after of the edit"}),
    ],
)
def test_what_a_file_tool_made_follows_from_its_arguments_and_the_old_content(tool: str, told: dict[str, str]) -> None:
    """Every event tells the same other content, and each digest is that of what it tells."""
    whole = Recorded(HERE / "recorded" / "anthropic.jsonl")
    seen = {body.tool: body.observed for body in bodies(whole, ToolStarted) if body.tool in ("edit", "write")}
    other = seen["write" if tool == "edit" else "edit"]
    fields = {name: other.after for name in told} | {f"{name}_sha256": other.after_sha256 for name in told}

    def change(body: Any) -> Any:
        if isinstance(body, ToolStarted) and body.tool == tool:
            return msgspec.structs.replace(body, observed=msgspec.structs.replace(body.observed, **fields))
        if isinstance(body, FilesChanged) and body.changes[0].path == seen[tool].path:
            refs: dict[str, Any] = {name: other.after for name in told}
            return msgspec.structs.replace(body, changes=(msgspec.structs.replace(body.changes[0], **refs),))
        return None

    found = retold(whole, change).divergence
    assert found is not None
    assert (found.type, found.kind) == ("tool.started", "content")


def test_files_changed_tells_the_content_that_the_file_tool_made() -> None:
    whole = Recorded(HERE / "recorded" / "anthropic.jsonl")
    (one, other) = (body.changes[0].after for body in bodies(whole, FilesChanged) if body.changes[0].after)
    assert isinstance(one, BlobRef)

    def change(body: Any) -> Any:
        if isinstance(body, FilesChanged) and body.changes[0].after == one:
            return msgspec.structs.replace(body, changes=(msgspec.structs.replace(body.changes[0], after=other),))
        return None

    found = retold(whole, change).divergence
    assert found is not None
    assert (found.type, found.kind) == ("tool.finished", "content")


def test_a_word_for_a_secret_in_a_text_does_not_keep_it_from_being_held_against_its_output() -> None:
    whole = Recorded(HERE / "recorded" / "anthropic.jsonl")

    def change(body: Any) -> Any:
        if isinstance(body, ToolFinished) and body.output is not None:
            return msgspec.structs.replace(body, text="[api key] all is well")
        return None

    found = retold(whole, change).divergence
    assert found is not None
    assert (found.type, found.kind) == ("tool.finished", "content")


def test_a_person_remembers_only_the_rule_that_was_offered() -> None:
    whole = Recorded(HERE / "recorded" / "anthropic.jsonl")
    (offered,) = {body.remember for body in bodies(whole, ApprovalDecided) if body.remember}

    def change(body: Any) -> Any:
        if isinstance(body, ApprovalDecided) and body.remember == offered:
            return msgspec.structs.replace(body, remember="shell(*)")
        return None

    found = retold(whole, change).divergence
    assert found is not None
    assert (found.type, found.kind) == ("approval.decided", "content")
    assert (found.expected, found.recorded) == (offered, "shell(*)")


@pytest.mark.parametrize(
    ("name", "seq", "told", "found"),
    [
        ("opaque", 11, {"verdict": "retried"}, "class opaque cannot be found retried"),
        ("crashes", 46, {"verdict": "not_done"}, "class pure cannot be found not_done"),
        ("crashes", 9, {"verdict": "done"}, "class attachable cannot be found done"),
        ("anthropic", 39, {"failure": "cancelled"}, "nobody asked for that"),
        ("anthropic", 15, {"key": "retry:main/50"}, "the timer retry:main/50 fired, which was not set"),
    ],
)
def test_a_fact_that_nothing_in_the_log_can_have_led_to_is_named_where_it_stands(
    name: str, seq: int, told: dict[str, str], found: str
) -> None:
    session = Recorded(HERE / "recorded" / f"{name}.jsonl")
    meant = session.events[seq - 1].body
    report = retold(session, lambda body: msgspec.structs.replace(body, **told) if body is meant else None)
    assert report.divergence is not None
    assert (report.divergence.seq, found in report.divergence.what) == (seq, True), report.divergence


def test_a_file_tool_changes_a_file_that_had_the_mode_that_was_seen() -> None:
    session = Recorded(HERE / "recorded" / "anthropic.jsonl")
    meant = session.events[25].body
    (changed,) = bodies(session, FilesChanged)[:1]
    assert changed is meant
    other = (msgspec.structs.replace(changed.changes[0], before_mode=0o600),)
    report = retold(session, lambda body: msgspec.structs.replace(body, changes=other) if body is meant else None)
    assert report.divergence is not None
    assert (report.divergence.seq, report.divergence.kind) == (26, "content")


@pytest.mark.parametrize("version", [RULES_VERSION + 1, 99])
def test_rules_that_this_build_does_not_have_are_no_divergence(session: Recorded, version: int) -> None:
    def change(body: Any) -> Any:
        return msgspec.structs.replace(body, rules=version) if isinstance(body, SessionOpened) else None

    report = retold(session, change)
    assert (report.divergence, report.exit_code, report.decisions) == (None, 0, {})
    (left,) = report.left
    assert left.detail == f"decided by rules {version}, which this build does not have"
    assert left.count > 20


def test_without_its_builder_all_of_a_request_but_its_bytes_is_compared(session: Recorded) -> None:
    builders = {name: msgspec.structs.replace(one, name="another/9") for name, one in app.rules().builders.items()}
    rules = msgspec.structs.replace(app.rules(), builders=builders)
    report = retold(session, lambda body: None, rules)
    assert (report.divergence, report.requests) == (None, 0)
    assert report.decisions["model.requested"] == report.left[0].count > 5

    def change(body: Any) -> Any:
        return msgspec.structs.replace(body, attempt=7) if type(body).__name__ == "ModelRequested" else None

    found = retold(session, change, rules).divergence
    assert found is not None
    assert found.kind == "arguments"


def hidden(session: Recorded, wanted: Callable[[Any], bool]) -> Report:
    """The report on a session from which every event of this kind was taken out."""
    told = session.told(session.events)
    told.events = [
        dataclasses.replace(stored, body=None, key=None, hidden=b"[]") if wanted(event) else stored
        for stored, event in zip(told.events, session.events, strict=True)
    ]
    return verify_story(told, app.rules())


@pytest.mark.parametrize("kind", ["files.", "process."])
@pytest.mark.parametrize("name", ["anthropic", "crashes", "processes", "rules"])
def test_what_no_agent_reads_may_be_taken_out(name: str, kind: str) -> None:
    whole = Recorded(HERE / "recorded" / f"{name}.jsonl")
    taken_out = [event.seq for event in whole.events if event.type.startswith(kind)]
    report = hidden(whole, lambda event: event.seq in taken_out)
    assert (report.divergence, report.closed) == (None, True)
    said = [(left.why, left.count, left.first) for left in report.left]
    assert said == ([("hidden", len(taken_out), taken_out[0])] if taken_out else [])


def test_nothing_is_derived_after_what_an_agent_read_was_taken_out(session: Recorded) -> None:
    first = next(event.seq for event in session.events if event.type == "tool.finished")
    report = hidden(session, lambda event: event.seq == first)
    assert report.divergence is None
    (left,) = report.left
    assert (left.why, left.first) == ("redacted", first)
    assert report.decisions["tool.started"] == 1


def test_the_first_line_says_that_not_all_was_derived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSE_HOME", str(tmp_path))
    name = "20261129-205202-jzyh3kq7"
    kept = tmp_path / "sessions" / "2026" / "11" / "29" / f"{name}.muse"
    kept.parent.mkdir(parents=True)
    shutil.copy(GOLDEN, kept)
    assert muse(name).stdout.splitlines()[0] == f"{name}  59 events, 1 agent: nothing diverges"
    assert CliRunner().invoke(cli, ["redact", "-y", f"{name}@40"], standalone_mode=False).return_value == 0
    said = "nothing diverges in what was derived again, which is not all"
    assert muse(name).stdout.splitlines()[0] == f"{name}  60 events, 1 agent: {said}"


def test_of_a_log_that_is_not_closed_it_says_what_is_open_and_due(session: Recorded) -> None:
    last = max(index for index, event in enumerate(session.events) if event.type == "tool.started")
    report = verify_story(session.told(session.events[: last + 1]), app.rules())
    assert (report.divergence, report.closed, len(report.open)) == (None, False, 1)
    report = verify_story(session.told(session.events[:-1]), app.rules())
    assert (report.divergence, report.due) == (None, ("session.closed",))


def test_a_divergence_is_shown_with_exit_code_6_and_in_json(tmp_path: Path) -> None:
    """A log whose chain is whole and whose story is another: hashed anew after one word was changed."""
    from muse.event import codec, commitment

    lines = [json.loads(line) for line in (HERE / "recorded" / "stops.jsonl").read_text().splitlines()]
    hash_ = commitment.genesis(lines[0]["session"])
    for line in lines:
        if "header" not in line:
            continue
        line["body"] = line["body"].replace('"be quick"', '"be slow!"')
        root = commitment.commit(codec.parse(line["body"].encode()), bytes.fromhex(line["key"]))
        hash_ = commitment.chain(hash_, line["header"].encode(), root.count, root.root)
        line["hash"] = hash_.hex()
    lines[0]["hash"] = lines[-1]["hash"] = hash_.hex()
    path = tmp_path / "retold.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert app.verify_file(path).exit_code == 0, "the chain alone does not show it"
    done = muse(str(path))
    assert done.return_value == 6
    assert done.stdout.startswith("diverges at #")
    said = json.loads(muse("--json", str(path)).stdout)
    assert (said["exit"], said["ok"], said["divergence"]["kind"]) == (6, False, "request")
    assert said["divergence"]["kind"] in KINDS


def test_quiet_says_nothing_of_what_is_well_and_stepping_flags_are_refused() -> None:
    path = str(HERE / "recorded" / "stops.jsonl")
    done = muse("-q", path)
    assert (done.return_value, done.stdout) == (0, "")
    refused = muse("--plain", path)
    assert "steps through nothing" in str(refused.exception)


def test_nothing_leaves_the_process_while_it_is_offline(tmp_path: Path) -> None:
    def connect() -> None:
        socket.create_connection(("127.0.0.1", 9))

    attempts: list[Callable[[], object]] = [
        connect,
        lambda: socket.getaddrinfo("example.org", 80),
        lambda: subprocess.run(["true"], check=False),
        lambda: os.system("true"),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: os.fork(),
    ]
    with offline():
        for attempt in attempts:
            with pytest.raises(NotOffline):
                attempt()
        raised: list[BaseException] = []

        def elsewhere() -> None:
            try:
                connect()
            except NotOffline as error:
                raised.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert raised
    assert subprocess.run(["true"], check=False).returncode == 0


def test_the_verification_itself_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder that asks the network is stopped."""
    from muse.app import verifying

    def with_network() -> Rules:
        socket.socket()
        return app.rules()

    monkeypatch.setattr(verifying, "rules", with_network)
    with pytest.raises(NotOffline):
        app.verify_story(HERE / "recorded" / "stops.jsonl")


OUTPUT = b"".join(b"line %d\n" % n for n in range(1000))


@pytest.mark.parametrize(
    ("text", "data", "fits"),
    [
        ("line 0\n[... 8863 bytes left out; ask ...]\nline 998\nline 999\n\nexit code 0", OUTPUT, False),
        ("line 0\n[... 8865 bytes left out; ask ...]\nline 998\nline 999\nexit code 0", OUTPUT, True),
        ("line 1\n[... 8865 bytes left out; ask ...]\nline 998\nline 999\nexit code 0", OUTPUT, False),
        ("line 0\n[... 8865 bytes left out; ask ...]\nline 998\nline 997\nexit code 0", OUTPUT, False),
        ("ab\n[... 2 bytes left out; ask ...]\nef\nexit code 1", b"abcdef", True),
        ("a\ufffd\nexit code 1", b"a\xff", True),
        ("b\ufffd\nexit code 1", b"a\xff", False),
    ],
)
def test_a_text_is_made_of_its_output(text: str, data: bytes, fits: bool) -> None:
    assert (text_of_output(text, data) == "") is fits
