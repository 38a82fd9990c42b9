"""`muse sql`: what the views say of a session known by hand, and that a query can do nothing but answer."""

import csv
import io
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from muse import app
from muse.app import tables
from muse.errors import LimitReached
from muse.event.content import Block, FileChange, Observed, Origin, Usage
from muse.event.kinds import (
    AgentContinued,
    AgentFinished,
    AgentMessaged,
    AgentPaused,
    AgentSpawned,
    ApprovalDecided,
    ApprovalRequested,
    BudgetRaised,
    BudgetReached,
    CancelRequested,
    ContextCompacted,
    EffectDoubted,
    EffectReconciled,
    FilesChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    NoteAdded,
    ProcessAdopted,
    ProcessReaped,
    ProcessStarted,
    QuestionAnswered,
    QuestionAsked,
    ResultDelivered,
    SessionClosed,
    ToolFinished,
    ToolStarted,
    UserPrompted,
    WorktreePrepared,
    WorktreeRemoved,
)
from muse.log.tables.database import Database
from muse.log.tables.gathering import gather
from muse.log.tables.views import BY_NAME
from tests.ingest import made
from tests.ui.asking import Answer, ask
from tests.ui.driving import MUSE, OnTerminal, eventually
from tests.ui.test_search import foreign
from tests.ui.told import Telling, told

DOCS = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
OTHER, SESSION = "20261129-090000-00aaaaaa", "20261130-090000-00bbbbbb"
ADA = Origin(user="ada", terminal="/dev/pts/3", client="chat")


def requested(call: str, attempt: int = 1) -> ModelRequested:
    return ModelRequested(
        call=call, attempt=attempt, provider="shop", model="m-1", builder="b/1", items=3, request_sha256="ab" * 32,
        request_bytes=700,
    )  # fmt: skip


def use(name: str, **arguments: object) -> Block:
    return Block(kind="tool_use", id="u", name=name, args=json.dumps(arguments))


def started(call: str, tool: str, attempt: int = 1, **more: Any) -> ToolStarted:
    args = more.pop("args", "{}")
    return ToolStarted(call=call, attempt=attempt, tool=tool, args=args, recovery="attachable", **more)


def tell(home: Path) -> Path:
    """One turn with a failure, a crash, an approval, a denial, a change of files and a child."""
    with Telling(home, SESSION, name="Nightly") as log:
        before, after = log.blob(b"a\nb\nb\n"), log.blob(b"a\nb\nc")
        command = json.dumps({"command": "make test"})
        log.say(
            AgentSpawned(system="s"),  # 2
            UserPrompted(text="Mend it\nplease", origin=ADA),  # 3
            requested("main/1"),  # 4
            ModelFailed(call="main/1", attempt=1, failure="server", message="busy", status=503, duration_ms=10),  # 5
            requested("main/1", 2),  # 6
            ModelResponded(
                call="main/1", attempt=2, stop="tool_use", duration_ms=40,
                usage=Usage(input=100, output=20, cache_read=900, cost_microusd=1500),
                blocks=(Block(kind="text", text="I look."), use("shell", command="make test"),
                        use("shell", command="rm -rf /"), use("write", path="x.py"), use("read", path="y")),
            ),  # 7
            ApprovalRequested(call="main/2", tool="shell", shown="make test?", shown_sha256="0" * 64, rule="ask"),  # 8
            ApprovalDecided(call="main/3", decision="deny", by="rule", rule="shell(rm *)"),  # 9
            ApprovalDecided(call="main/2", decision="allow", by="person", request=8, note="go on", origin=ADA),  # 10
            ApprovalDecided(call="main/2", decision="deny", by="person", request=8, origin=Origin(user="late")),  # 11
            started("main/2", "shell", args=command, approval=10),  # 12
            EffectDoubted(call="main/2", attempt=1, recovery="attachable"),  # 13
            EffectReconciled(call="main/2", attempt=1, verdict="retried", evidence="never accepted"),  # 14
            started("main/2", "shell", 2, args=command, approval=10),  # 15
            ProcessStarted(call="main/2", pid=77, started=5, command="server", group=70),  # 16
            ProcessAdopted(call="main/2", pid=77, started=5),  # 17
            ToolFinished(call="main/2", attempt=2, status="error", text="2 failed", exit_code=2, output_bytes=8,
                         duration_ms=1234),  # 18
            ProcessReaped(call="main/2", pid=77, started=5, how="ended"),  # 19
            started("main/4", "write", args='{"path": "x.py"}', allowed_by="mode yolo",
                    observed=Observed(path="x.py")),  # 20
            ToolFinished(call="main/4", attempt=1, status="ok", text="written", duration_ms=2),  # 21
            FilesChanged(calls=("main/4",), changes=(
                FileChange(path="x.py", before=before, after=after, before_mode=0o644, after_mode=0o755),
                FileChange(path="gone", before=before, before_mode=0o644), FileChange(path="new", note="too large",
                                                                                      after_mode=0o644),
            )),  # 22
            CancelRequested(target="turn", origin=ADA),  # 23
        )  # fmt: skip
        log.say(
            AgentSpawned(task="help", parent="main", call="main/9", background=True, model="m-2"),  # 24
            requested("main.1/1"),  # 25
            ModelResponded(call="main.1/1", attempt=1, stop="end_turn", usage=Usage(output=7), blocks=()),  # 26
            AgentFinished(outcome="done", text="helped"),  # 27
            agent="main.1",
        )
        log.say(SessionClosed(outcome="failed", reason="tests"))  # 28
    return log.path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions; tests only read."""
    home = tmp_path_factory.mktemp("home")
    told(home, UserPrompted(text="earlier"), session=OTHER)
    tell(home)
    return home


def rows(home: Path, query: str, *args: str) -> list[dict[str, Any]]:
    """The answer as JSON."""
    done = ask(home, "sql", query, *(args or (SESSION,)), "--json")
    assert done.code == 0, done
    return [json.loads(line) for line in done.out.splitlines()]


def values(home: Path, query: str, *args: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows(home, query, *args)]


def test_calls_are_steps_with_all_that_became_of_them(home: Path) -> None:
    columns = "call, tool, status, exit_code, asked, started, finished, attempts, allowed_by, approval, duration_ms"
    assert values(home, f"SELECT {columns} FROM calls ORDER BY call") == [
        ("main/2", "shell", "error", 2, 7, 15, 18, 2, "ada", 10, 1234),
        ("main/3", "shell", "denied", None, 7, None, 9, 0, None, 0, None),
        ("main/4", "write", "ok", None, 7, 20, 21, 1, "mode yolo", 0, 2),
        ("main/5", "read", "cancelled", None, 7, None, 23, 0, None, 0, None),
    ]
    assert values(
        home, "SELECT command, path, args, output, address FROM calls WHERE call IN ('main/2', 'main/4')"
    ) == [
        ("make test", None, '{"command": "make test"}', "2 failed", f"{SESSION}@15"),
        (None, "x.py", '{"path": "x.py"}', "written", f"{SESSION}@20"),
    ]


def test_requests_to_models_stand_attempt_by_attempt(home: Path) -> None:
    columns = (
        "call, attempt, outcome, failure, http_status, requested, ended, input, cache_read, output, tool_uses, text"
    )
    assert values(home, f"SELECT {columns} FROM model_requests ORDER BY requested") == [
        ("main/1", 1, "failed", "server", 503, 4, 5, None, None, None, None, None),
        ("main/1", 2, "responded", None, None, 6, 7, 100, 900, 20, 4, "I look."),
        ("main.1/1", 1, "responded", None, None, 25, 26, 0, 0, 7, 0, ""),
    ]


def test_of_several_answers_to_an_approval_the_first_counts(home: Path) -> None:
    columns = "call, tool, request, shown, rule, decided, decision, decided_by, person, decided_rule, note"
    assert values(home, f"SELECT {columns} FROM approvals ORDER BY decided DESC") == [
        ("main/2", "shell", 8, "make test?", "ask", 10, "allow", "person", "ada", "", "go on"),
        ("main/3", "shell", 0, None, None, 9, "deny", "rule", "", "shell(rm *)", ""),
    ]
    ((waited,),) = values(home, "SELECT waited_ms FROM approvals WHERE request = 8")
    assert waited >= 0


def test_files_have_digests_and_lines(home: Path) -> None:
    columns = "path, change, calls, before_bytes, after_bytes, added, removed, before_mode, after_mode, note"
    assert values(home, f"SELECT {columns} FROM files ORDER BY path DESC") == [
        ("x.py", "changed", "main/4", 6, 5, 1, 1, "644", "755", None),
        ("new", "created", "main/4", None, None, None, None, None, "644", "too large"),
        ("gone", "deleted", "main/4", 6, None, 0, 3, "644", None, None),
    ]
    assert values(home, "SELECT before_sha256, after_sha256 FROM files WHERE path = 'x.py'") == [
        (digest(b"a\nb\nb\n"), digest(b"a\nb\nc"))
    ]


def digest(data: bytes) -> str:
    """By another program."""
    return subprocess.run(["sha256sum"], input=data, capture_output=True, check=True).stdout.decode().split()[0]


def test_agents_costs_doubts_processes_prompts_and_sessions(home: Path) -> None:
    columns = "agent, parent, task, background, outcome, answer, calls, requests, input, output, cost_microusd, model"
    assert values(home, f"SELECT {columns} FROM agents ORDER BY agent") == [
        ("main", None, None, 0, "", None, 2, 2, 1000, 20, 1500, "m-1"),
        ("main.1", "main", "help", 1, "done", "helped", 0, 1, 0, 7, 0, "m-2"),
    ]
    assert values(home, "SELECT agent, requests, failed, input, cache_read, output, duration_ms FROM costs") == [
        ("main", 2, 1, 100, 900, 20, 50), ("main.1", 1, 0, 0, 0, 7, 0),
    ]  # fmt: skip
    assert values(home, "SELECT call, attempt, doubted, reconciled, verdict, evidence FROM doubts") == [
        ("main/2", 1, 13, 14, "retried", "never accepted")
    ]
    assert values(home, "SELECT call, pid, process_group, command, started, adopted, gone, how FROM processes") == [
        ("main/2", 77, 70, "server", 16, 1, 19, "ended")
    ]
    assert values(home, "SELECT seq, how, text, person, terminal, client FROM prompts") == [
        (3, "prompt", "Mend it\nplease", "ada", "/dev/pts/3", "chat")
    ]
    assert values(home, "SELECT session, name, events, openings, crashes, outcome, reason, model FROM sessions") == [
        (SESSION, "Nightly", 28, 1, 0, "failed", "tests", "-")
    ]


def dealings(tmp_path: Path) -> None:
    """A log with two children with a working tree, a question that was answered twice, a message, a cancelling by an
    agent and by a person, a budget, a compaction, a result."""
    bob = Origin(user="bob", terminal="tty1", client="answer")
    with Telling(tmp_path, SESSION) as log:
        log.say(AgentSpawned(system="s"), UserPrompted(text="go"))  # 2, 3
        child = AgentSpawned(parent="main", call="main/2", task="t", name="Ann", role="reviewer", isolation="worktree")
        log.say(child, WorktreePrepared(path="/w/1", base="c0ffee"), agent="main.1")  # 4, 5
        log.say(
            msgspec.structs.replace(child, index=1, name="", role=""),  # 6
            WorktreePrepared(path="", base="", error="no room"),  # 7
            AgentFinished(outcome="failed", text="no working tree"),  # 8
            agent="main.2",
        )
        log.say(
            requested("main.1/1"),  # 9
            ModelFailed(call="main.1/1", attempt=1, failure="rate_limited", retry_until="2026-12-01T00:00:00.000000Z",
                        retry_after_ms=90_000, usage=Usage(input=5)),  # 10
            QuestionAsked(call="main.1/2", text="Red?", options=("yes", "no")),  # 11
            QuestionAnswered(question=11, text="no", origin=bob),  # 12
            QuestionAnswered(question=11, text="yes", origin=ADA),  # 13
            AgentMessaged(to="main", text="nearly there", call="main.1/3"),  # 14
            CancelRequested(target="tree", by="main/4", why="enough"),  # 15
            AgentFinished(outcome="done", text="first"),  # 16
            requested("main.1/4"),  # 17
            WorktreeRemoved(path="/w/1", left=("a", "b"), why="not in the log"),  # 18
            ContextCompacted(first=3, last=9, text="in short", method="summary", call="main.1/5", bytes_before=900,
                             bytes_after=90),  # 19
            BudgetReached(limit="tokens", value=512, scope="session"),  # 20
            agent="main.1",
        )  # fmt: skip
        log.say(
            ResultDelivered(child="main.2", text="it failed", outcome="failed"),  # 21
            AgentPaused(target="tree", why="lunch", origin=ADA),  # 22
            AgentContinued(origin=ADA),  # 23
            CancelRequested(target="prompt", prompt=3, origin=bob),  # 24
            BudgetRaised(limit="tokens", value=9_000, scope="session", origin=ADA),  # 25
        )


def test_what_passes_between_agents_and_people(tmp_path: Path) -> None:
    dealings(tmp_path)
    columns = "agent, place, name, role, isolation, workspace, finished, outcome, answer"
    assert values(tmp_path, f"SELECT {columns} FROM agents WHERE parent = 'main' ORDER BY place") == [
        ("main.1", 0, "Ann", "reviewer", "worktree", "/w/1", None, "", None),
        ("main.2", 1, None, None, "worktree", None, 8, "failed", "no working tree"),
    ]
    assert values(tmp_path, "SELECT seq, agent, recipient, how, outcome, call, text FROM messages") == [
        (14, "main.1", "main", "message", None, "main.1/3", "nearly there"),
        (21, "main.2", "main", "result", "failed", None, "it failed"),
    ]
    columns = "agent, call, asked, text, options, answered, answer, person, terminal"
    assert values(tmp_path, f"SELECT {columns} FROM questions") == [
        ("main.1", "main.1/2", 11, "Red?", "yes\nno", 12, "no", "bob", "tty1")
    ]
    columns = "seq, agent, how, target, prompt, by_call, person, client, why"
    assert values(tmp_path, f"SELECT {columns} FROM interruptions") == [
        (15, "main.1", "cancel", "tree", None, "main/4", "", "", "enough"),
        (22, "main", "pause", "tree", None, None, "ada", "chat", "lunch"),
        (23, "main", "continue", "agent", None, None, "ada", "chat", ""),
        (24, "main", "cancel", "prompt", 3, None, "bob", "answer", ""),
    ]
    assert values(tmp_path, "SELECT seq, agent, how, budget, scope, value, person FROM budgets") == [
        (20, "main.1", "reached", "tokens", "session", 512, ""),
        (25, "main", "raised", "tokens", "session", 9000, "ada"),
    ]
    columns = "agent, method, first_seq, last_seq, results, call, bytes_before, bytes_after, text"
    assert values(tmp_path, f"SELECT {columns} FROM compactions") == [
        ("main.1", "summary", 3, 9, 0, "main.1/5", 900, 90, "in short")
    ]
    assert values(tmp_path, "SELECT agent, path, base, prepared, error, removed, kept, why FROM worktrees") == [
        ("main.1", "/w/1", "c0ffee", 5, "", None, "a\nb", "not in the log"),
        ("main.2", "", None, 7, "no room", None, None, None),
    ]
    assert values(tmp_path, "SELECT purpose, input, retry_until FROM model_requests WHERE requested = 9") == [
        ("turn", 5, "2026-12-01T00:00:00.000000Z")
    ]


def test_events_join_with_everything_by_their_numbers(home: Path) -> None:
    query = """SELECT e.type, e.address, json_extract(e.body, '$.exit_code') FROM calls c
               JOIN events e ON e.session = c.session AND e.seq = c.finished WHERE c.call = 'main/2'"""
    assert values(home, query) == [("tool.finished", f"{SESSION}@18", 2)]
    assert values(home, "SELECT count(*), min(seq), max(seq), sum(hidden) FROM events") == [(28, 1, 28, 0)]


def test_all_sessions_one_session_or_a_file(home: Path) -> None:
    query = "SELECT session, count(*) FROM events GROUP BY session ORDER BY session"
    assert values(home, query, "--all") == [(OTHER, 2), (SESSION, 28)]
    assert values(home, query, "00aaaaaa") == [(OTHER, 2)]
    path = next(home.glob("sessions/*/*/*/*aaaa.muse"))
    assert values(home, query, str(path)) == [(OTHER, 2)]
    assert ask(home, "sql", query, "--all", OTHER).code == 2


def test_a_session_file_of_another_agent_is_asked(home: Path, tmp_path: Path) -> None:
    path = str(foreign(tmp_path))
    assert values(home, "SELECT tool, command, status, output FROM calls", path) == [
        ("Bash", "hunt it", "ok", "the culprit ran")
    ]
    assert values(home, "SELECT agent, model, requests, input, output FROM costs", path) == [("main", "x-1", 1, 5, 7)]
    assert values(home, "SELECT model, outcome, requested FROM model_requests", path) == [("x-1", "responded", None)]
    query = "SELECT source, program, workspace, outcome FROM sessions"
    assert values(home, query, path) == [(Path(path).name, "claude-code 2.1.101", "/x", "imported")]


def test_a_call_that_was_refused_in_another_agents_session_is_denied_as_here(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "refused.jsonl"
    words = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    path.write_bytes(made.jsonl([
        made.said("a", None, "tidy"),
        made.answer("b", "a", "m1", made.use("t1", "Bash", command="rm x")),
        made.result("c", "b", "t1", words, "Error: rejected", error=True),
    ]))  # fmt: skip
    assert values(home, "SELECT command, status, started FROM calls", str(path)) == [("rm x", "denied", None)]


def test_the_forms_of_an_answer(home: Path) -> None:
    query = "SELECT text AS words, NULL AS missing, x'00ff' AS bytes, 1.5 AS n, seq AS n FROM prompts"
    lines = ask(home, "sql", query, SESSION).out.split("\n")
    assert lines == ["words\tmissing\tbytes\tn\tn", "Mend it\\nplease\t\t00ff\t1.5\t3", ""]
    table = list(csv.reader(io.StringIO(ask(home, "sql", query, SESSION, "--csv").data.decode(), newline="")))
    assert table == [["words", "missing", "bytes", "n", "n"], ["Mend it\nplease", "", "00ff", "1.5", "3"]]
    expected = {"words": "Mend it\nplease", "missing": None, "bytes": "00ff", "n": 1.5, "n_2": 3}
    assert rows(home, query) == [expected]
    assert ask(home, "sql", "SELECT 1 WHERE 0", SESSION).out == "1\n"


def test_a_table_that_is_too_wide_has_narrower_texts_and_all_columns(home: Path, tmp_path: Path) -> None:
    env = os.environ | {"MUSE_HOME": str(home), "HOME": str(tmp_path), "TERM": "dumb", "COLUMNS": "80"}
    query = (
        f"SELECT '{SESSION}@8' AS address, 7 AS exit_code, replace(hex(zeroblob(50)), '0', 'x') AS command, 12 AS ms"
    )
    terminal = OnTerminal([MUSE, "sql", query, SESSION], env, tmp_path)
    try:
        code, shown = terminal.end()
    finally:
        terminal.close()
    head, row = shown.replace("\r\n", "\n").splitlines()[-2:]
    assert (code, head.split()) == (0, ["address", "exit_code", "command", "ms"])
    assert row == f"{SESSION}@8          7  {'x' * 36}…  12"
    assert len(row) == 80


def test_a_terminal_gets_a_table_in_which_nothing_acts(home: Path, tmp_path: Path) -> None:
    env = os.environ | {"MUSE_HOME": str(home), "HOME": str(tmp_path), "TERM": "dumb"}
    query = "SELECT call, duration_ms AS ms, char(27) || '[2Jx' AS odd FROM calls WHERE started > 0 ORDER BY call"
    terminal = OnTerminal([MUSE, "sql", query, SESSION], env, tmp_path)
    try:
        code, shown = terminal.end()
    finally:
        terminal.close()
    assert code == 0
    assert shown.replace("\r\n", "\n").splitlines()[-3:] == [
        "call      ms  odd", "main/2  1234  \\x1b[2Jx", "main/4     2  \\x1b[2Jx",
    ]  # fmt: skip


# -- nothing but answers -----------------------------------------------------------------------------------------------


def refused(home: Path, query: str) -> str:
    done: Answer = ask(home, "sql", query, SESSION)
    assert (done.code, done.out) == (2, ""), (query, done)
    return done.err


def test_a_query_reads_the_views_and_can_do_nothing_else(home: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.db"
    log = next(home.glob("sessions/*/*/*/*bbbb.muse"))
    for query in (
        f"ATTACH '{made}' AS x", f"VACUUM INTO '{made}'", "DELETE FROM calls", "UPDATE calls SET call = 1",
        "INSERT INTO calls (call) VALUES (1)", "DROP TABLE calls", "CREATE TABLE x (y)", "CREATE TEMP TABLE x (y)",
        "CREATE VIRTUAL TABLE x USING fts5(y)", "PRAGMA journal_mode = DELETE", "PRAGMA query_only = 0",
        "PRAGMA temp_store_directory = '/tmp'", "SELECT * FROM pragma_database_list", "SELECT * FROM dbstat",
        "SELECT load_extension('x')", f"SELECT readfile('{log}')", f"SELECT writefile('{made}', 'x')", "BEGIN",
        "SELECT edit('x')", "SELECT fts3_tokenizer('simple')", "REINDEX", "ANALYZE", "SELECT * FROM sqlite_dbpage",
        "SELECT 1; DELETE FROM calls", "SELECT 1; SELECT 2", "WITH x AS (SELECT 1) DELETE FROM calls", "EXPLAIN VACUUM",
        "SELECT ?", "SELECT :x", "", "  ", "-- nothing", "SELECT * FROM main.pragma_table_info('calls')",
    ):  # fmt: skip
        if query.startswith("--"):
            query = f" {query}"
        refused(home, query)
    assert not made.exists()
    assert values(home, "SELECT count(*) FROM calls") == [(4,)]


def test_the_views_are_there_and_tables_made_of_json(home: Path) -> None:
    names = {name for (name,) in values(home, "SELECT name FROM sqlite_schema")}
    assert names == {view.name for view in tables.VIEWS}
    assert values(home, "SELECT sum(value) FROM json_each('[1, 2, 3]');  -- three") == [(6,)]
    assert values(home, "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 4) "
                        "SELECT sum(x) FROM n") == [(10,)]  # fmt: skip


def test_half_a_character_in_an_answer_is_replaced(home: Path) -> None:
    half = """SELECT json_extract('{"said":"a\\ud83d"}', '$.said') AS said, 7 AS n, x'ff' AS data -- JSON can hold it"""
    assert rows(home, half) == [{"said": "a\ufffd\ufffd\ufffd", "n": 7, "data": "ff"}]
    later = "SELECT 'whole' AS said UNION ALL SELECT CAST(x'62ff' AS TEXT) UNION ALL SELECT NULL;"
    assert [row["said"] for row in rows(home, later)] == ["whole", "b\ufffd", None]


def test_a_mistake_is_named_with_its_place_and_the_names_there_are(home: Path) -> None:
    said = refused(home, "SELECT call,\n  exitcode FROM calls")
    assert "no such column: exitcode, in line 2 at character 3" in said
    assert "did you mean exit_code?" in said
    assert "calls has session, call" in said
    said = refused(home, "SELECT * FROM cals")
    assert "did you mean calls?" in said
    assert "model_requests" in said
    assert "line 1 at character 8" in refused(home, "SELECT FROM calls")


def test_only_what_a_query_reads_is_read() -> None:
    with Database() as database:
        assert database.prepare("SELECT call FROM calls WHERE status = 'ok'") == {"calls": {"call", "status"}}
        assert database.prepare("SELECT count(*) FROM files") == {"files": {""}}
        assert database.prepare("SELECT a.path FROM files a NATURAL JOIN prompts")["files"] >= {"path", "seq", "time"}
        assert database.prepare("SELECT 1") == {}


QUERIES = (
    "SELECT tool, count(*) FROM calls JOIN approvals USING (session, call, tool) GROUP BY 1",
    "SELECT * FROM files NATURAL JOIN prompts",
    "SELECT count(*) FROM calls c NATURAL JOIN approvals",
    "SELECT path, sum(added) OVER (ORDER BY seq, path) FROM files ORDER BY path",
    "SELECT x.call FROM (SELECT * FROM calls) AS x WHERE x.status = 'ok' ORDER BY x.started",
    "WITH a AS MATERIALIZED (SELECT call, output FROM calls) SELECT count(output) FROM a",
    "SELECT call FROM calls WHERE call IN (SELECT call FROM doubts WHERE verdict = 'retried')",
    "SELECT agent FROM agents EXCEPT SELECT agent FROM costs WHERE model = 'm-1'",
    "SELECT type FROM events e WHERE EXISTS (SELECT 1 FROM calls WHERE finished = e.seq AND exit_code = 2)",
    "SELECT value FROM calls, json_each(calls.args) WHERE tool = 'write'",
    "SELECT (SELECT text FROM prompts WHERE seq < calls.started) FROM calls ORDER BY call",
    "SELECT a.* FROM approvals a LEFT JOIN calls c ON c.approval = a.decided ORDER BY a.decided",
    "SELECT model FROM model_requests GROUP BY model HAVING sum(cost_microusd) > 0 AND max(output) > 1",
    "SELECT DISTINCT agent FROM events ORDER BY max(seq) OVER (PARTITION BY agent)",
    "VALUES ((SELECT count(*) FROM calls WHERE command LIKE 'make%'))",
)


@pytest.mark.parametrize("query", QUERIES)
def test_the_answer_is_that_of_views_filled_whole(home: Path, query: str) -> None:
    assert values(home, query) == filled_whole(home, query)


def filled_whole(home: Path, query: str) -> list[tuple[Any, ...]]:
    """The answer of a database that was filled without regard to the query."""
    path = next(home.glob("sessions/*/*/*/*bbbb.muse"))
    used = {view.name: frozenset(view.names) for view in tables.VIEWS}
    with Database() as database, app.read_session(path) as reading:
        database.prepare(query)
        for name, some in gather(SESSION, reading.all_stored(), reading.stream, used):
            database.fill(BY_NAME[name], used[name], SESSION, some)
        return list(database.rows()[1])


def test_contents_are_read_only_where_they_are_asked_for(tmp_path: Path) -> None:
    path = tell(tmp_path)
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM chunks")
    db.close()
    assert values(tmp_path, "SELECT count(path), sum(before_bytes) FROM files") == [(3, 12)]
    assert values(tmp_path, "SELECT count(before_sha256), count(added) FROM files") == [(0, 0)]


def test_memory_has_an_end() -> None:
    blob = "SELECT randomblob(100000)"
    query = f"WITH RECURSIVE n(x) AS ({blob} UNION ALL {blob} FROM n LIMIT 600) SELECT count(DISTINCT x) FROM n"
    with Database(40_000_000) as database:
        database.prepare(query)
        with pytest.raises(LimitReached):
            list(database.rows()[1])
    with Database() as database:
        database.prepare(query)
        assert list(database.rows()[1]) == [(600,)]


def test_ctrl_c_ends_a_query_that_would_never_end(home: Path, tmp_path: Path) -> None:
    env = os.environ | {"MUSE_HOME": str(home), "HOME": str(tmp_path)}
    query = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    process = subprocess.Popen([MUSE, "sql", query, SESSION], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        eventually(lambda: _spent(process.pid) > 1.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err.strip()) == (130, b"", b"")


def _spent(pid: int) -> float:
    """Seconds of processor time (proc_pid_stat(5)): past its start, it is in the query."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_what_redaction_hid_is_empty_and_the_rest_stays(tmp_path: Path) -> None:
    tell(tmp_path)
    assert ask(tmp_path, "redact", f"{SESSION}@15", f"{SESSION}@3", "--yes").code == 0
    query = "SELECT call, tool, status, exit_code, started, attempts FROM calls WHERE call = 'main/2'"
    assert values(tmp_path, query) == [("main/2", "", "error", 2, 15, 2)]
    assert values(tmp_path, "SELECT seq, text FROM prompts") == [(3, "")]
    assert values(tmp_path, "SELECT count(*) FROM events WHERE hidden AND body IS NULL")[0][0] >= 2
    assert "Mend it" not in ask(tmp_path, "sql", "SELECT * FROM events", SESSION).out


def test_a_damaged_session_among_all_is_named_and_the_others_answer(tmp_path: Path) -> None:
    tell(tmp_path)
    told(tmp_path, session=OTHER).write_bytes(b"no log any more" * 500)
    done = ask(tmp_path, "sql", "SELECT count(*) FROM prompts", "--all")
    assert (done.code, done.out) == (0, "count(*)\n1\n")
    assert OTHER in done.err


def test_a_session_that_is_damaged_half_way_answers_for_what_is_before_and_says_so(tmp_path: Path) -> None:
    path = told(tmp_path, *(NoteAdded(text=f"note {number} " + "x" * 3000) for number in range(40)))
    data = bytearray(path.read_bytes())
    at = data.index(b'"seq":32,')
    data[at : at + 3] = b"\xff" * 3
    path.write_bytes(data)
    done = ask(tmp_path, "sql", "SELECT count(*) FROM events WHERE body LIKE '%note 29 %'", path.stem)
    assert (done.code, done.out) == (6, "count(*)\n1\n")
    assert "event 32" in done.err


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_lists_every_view_and_column() -> None:
    text = DOCS.read_text()
    parts = re.split(r"^### (\w+)$", text.partition("## The views")[2], flags=re.MULTILINE)[1:]
    listed = {
        name: [
            (column, kind, says) for column, kind, says in re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", part, re.M)
        ]
        for name, part in zip(parts[::2], parts[1::2], strict=True)
    }
    assert listed == {
        view.name: [
            (column.name, "integer" if column.kind == "INTEGER" else "text", column.says) for column in view.columns
        ]
        for view in tables.VIEWS
    }
    assert all(view.says in text for view in tables.VIEWS)


def test_the_ten_questions_of_the_page_have_answers(home: Path) -> None:
    queries = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(queries) == 10
    said = [values(home, query, "--all") for query in queries]
    assert said[0] == [(f"{SESSION}@15", "make test", 2, 1234)]
    assert said[1][0] == (f"{SESSION}@15", "make test", "ada", "ada", "make test?")
    assert said[2] == [(f"{SESSION}@9", "main/3", "shell", "rule", "", "shell(rm *)", "")]
    assert said[3][0][:2] == ("ada", 1)
    assert said[4][0][1:] == ("m-1", 3, 1000, 27, 0.0015)
    assert (SESSION, "main", "m-1", 90.0) in said[5]
    assert said[6][0] == ("gone", 1, 0, 3, "main/4")
    assert said[7][0] == (f"{SESSION}@15", "shell", "make test", 1234)
    assert said[8] == [(f"{SESSION}@13", "main/2", "shell", "make test", "attachable", "retried", "never accepted")]
    assert said[9] == [(SESSION, "failed", 0, "Mend it\nplease"), (OTHER, "", 0, "earlier")]


def test_the_schema_is_printed(home: Path) -> None:
    out = ask(home, "sql", "--schema").out
    assert all(f"\n{view.name}: {view.says}\n" in f"\n{out}" for view in tables.VIEWS)
    lines = ask(home, "sql", "--schema", "--json").out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == [view.name for view in tables.VIEWS]
