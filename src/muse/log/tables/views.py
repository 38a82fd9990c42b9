"""The views that `muse sql` offers, and what each column says. docs/sql.md is held against this page by a test.

In every view `session` is the session's id, and an `address` is what other commands take (`muse show ADDRESS`). Names
of columns are words that SQL does not reserve. Times are those of headers: RFC 3339, UTC, microseconds.
"""

from typing import Final, Literal

import msgspec

Affinity = Literal["TEXT", "INTEGER"]


class Column(msgspec.Struct, frozen=True):
    """A column: its name, what SQLite keeps in it, and what it says."""

    name: str
    kind: Affinity
    says: str


class View(msgspec.Struct, frozen=True):
    """A view: its name, what one row of it is, and its columns."""

    name: str
    says: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)


_SESSION: Final = "session: the session's id"
_ADDRESS: Final = "address: where it stands, as SESSION@SEQ"


def _view(name: str, says: str, *columns: str) -> View:
    made = []
    for column in columns:
        head, _, text = column.partition(": ")
        named, _, kind = head.partition(" ")
        made.append(Column(named, "INTEGER" if kind == "int" else "TEXT", text))
    return View(name, says, tuple(made))


VIEWS: Final = (
    _view(
        "sessions", "One row a session.", _SESSION,
        "name: the name it was given", "workspace: the folder it began in", "provider: of the last opening",
        "model: of the last opening", "mode: the permission mode of the last opening", "sandbox: what held commands",
        "branch: git's branch at the last opening", "git_head: git's commit at the last opening",
        "began: time of the first event", "ended: time of the last event", "events int: how many",
        "openings int: how often an owner opened it", "crashes int: openings after an owner that did not close",
        "outcome: done, failed, cancelled, provider, unanswered, budget; empty while it goes on",
        "reason: what the closing says", "parent: the session it was forked from",
        "source: the file it was imported from", "program: what wrote that file",
        "muse: the version that opened it last",
    ),
    _view(
        "events", "One row an event.", _SESSION, "seq int: its number", _ADDRESS, "time: when it was recorded",
        "type: such as tool.finished", "v int: the version of its type", "agent: whose lane it is in",
        "cause int: the event that led to it, 0 for none", "epoch int: the ownership under which it was recorded",
        "id: its id", "call: the call that it is about", "hidden int: 1 where redaction took something out",
        "body: its body as JSON, as stored; NULL where it is hidden",
    ),
    _view(
        "prompts", "One row for each time a person spoke to an agent.", _SESSION, "seq int: the event", _ADDRESS,
        "time: when", "agent: to whom", "how: prompt, steer, spawn or answer", "delivery: queue, steer or replace",
        "text: the words", "person: the user who said it", "terminal: where", "client: through which command",
    ),
    _view(
        "calls", "One row a tool call (a step), whatever became of it.", _SESSION, "call: its key, as main/7",
        "address: of its start, or of the request for it", "agent: whose it is", "tool: which tool",
        "args: the exact arguments", "command: of a shell call", "path: the file that it names",
        "recovery: its recovery class", "status: ok, error, cancelled, unknown, denied; running or waiting so far",
        "exit_code int: of a command", "timed_out int: 1 when its time was up",
        "asked int: the event in which the model asked for it", "started int: the event of its (last) start",
        "started_at: when", "finished int: the event of its result", "finished_at: when",
        "duration_ms int: as measured", "attempts int: how often it was started",
        "output: what the model read of its result", "output_bytes int: how long its whole output was",
        "allowed_by: the rule, mode or person that let it pass",
        "approval int: the event of a person's decision, 0 where nobody was asked",
    ),
    _view(
        "model_requests", "One row for each attempt of a request to a model.", _SESSION, "call: its key, as main/3",
        "attempt int: from 1 on", "address: of the request", "agent: whose it is", "provider: to whom",
        "model: which one", "builder: what built its bytes", "items int: transcript items sent",
        "request_bytes int: how long it was", "request_sha256: the digest of its bytes",
        "requested int: the event of the request", "requested_at: when", "ended int: the event of the outcome",
        "ended_at: when", "outcome: responded, failed, or open", "stop: why the answer ended",
        "failure: why there was none", "http_status int: of a failure", "message: of a failure",
        "retry_until: the date until which the provider wanted no request",
        "purpose: turn, or summary of what leaves the context",
        "text: the words of the answer", "tool_uses int: how many tools it asked for",
        "input int: tokens in, without the cache", "output int: tokens out",
        "cache_read int: tokens from the provider's cache", "cache_write int: tokens put there",
        "reasoning int: tokens of reasoning", "cost_microusd int: millionths of a dollar",
        "duration_ms int: as measured",
    ),
    _view(
        "approvals", "One row for each question to a person, and each call that a rule denied unasked.", _SESSION,
        _ADDRESS, "agent: whose call", "call: which call", "tool: which tool", "request int: the event of the question",
        "requested_at: when", "shown: exactly what was shown", "rule: why it was asked",
        "remember: what “always” would have allowed", "decided int: the event of the decision that counts",
        "decided_at: when", "decision: allow, deny, or empty", "decided_by: person, rule or timeout",
        "person: the user who decided", "terminal: where", "decided_rule: the rule that decided",
        "note: what the person said", "waited_ms int: from question to decision",
    ),
    _view(
        "files", "One row for each path that changed in an event.", _SESSION, "seq int: the event", _ADDRESS,
        "time: when it was noticed", "agent: in whose lane", "path: the file", "change: created, changed or deleted",
        "calls: the calls that may have done it, parted by blanks", "external int: 1 if others may have done it",
        "before_bytes int: its size before", "after_bytes int: its size after",
        "before_sha256: of its content before; NULL where it is not recorded",
        "after_sha256: of its content after; NULL where it is not recorded",
        "added int: lines that it gained; NULL for what is no text", "removed int: lines that it lost",
        "before_mode: permission bits, octal", "after_mode: permission bits, octal",
        "note: why its content is not recorded",
    ),
    _view(
        "agents", "One row an agent.", _SESSION, "agent: its lane", "address: where it began", "parent: who spawned it",
        "call: by which call", "place int: which of that call's agents it is, from 0", "name: what it was called",
        "role: the role file that it works by", "task: what for", "model: which one it asked",
        "mode: its permission mode", "background int: 1 if nobody waits for it",
        "isolation: worktree or shared", "workspace: its folder, where it has one of its own",
        "began: when", "finished int: the event of its end", "finished_at: when",
        "outcome: done, failed, cancelled; empty while it goes on", "answer: its last words as a result",
        "calls int: tools it ran", "requests int: attempts to ask a model", "input int: tokens in, all of them",
        "output int: tokens out", "cost_microusd int: millionths of a dollar",
    ),
    _view(
        "messages", "One row for each word of one agent to another: messages, and results that were brought.", _SESSION,
        "seq int: the event", _ADDRESS, "time: when", "agent: who said it, or whose result it is",
        "recipient: to whom", "how: message or result", "outcome: of a result: done, failed, cancelled",
        "call: the call that sent it", "text: the words",
    ),
    _view(
        "questions", "One row for each question of an agent to a person.", _SESSION, _ADDRESS, "agent: who asked",
        "call: in which call", "asked int: the event of the question", "asked_at: when", "text: the question",
        "options: the answers to choose from, one a line", "answered int: the event of the answer that counts",
        "answered_at: when", "answer: the words", "person: the user who answered", "terminal: where",
        "waited_ms int: from question to answer",
    ),
    _view(
        "interruptions", "One row for each time that somebody cancelled, paused or continued something.", _SESSION,
        "seq int: the event", _ADDRESS, "time: when", "agent: whom it concerns", "how: cancel, pause or continue",
        "target: call, turn, agent, tree or prompt", "call: the call that was to stop",
        "prompt int: the event of the prompt that was taken back", "by_call: the agent's call that wanted it",
        "person: the user who wanted it", "terminal: where", "client: through which command", "why: in whose words",
    ),
    _view(
        "budgets", "One row for each limit that was reached or raised.", _SESSION, "seq int: the event", _ADDRESS,
        "time: when", "agent: whom it stopped, or for whom it was raised", "how: reached or raised",
        "budget: such as tokens", "scope: agent, session or tree", "value int: what was reached, or is the limit now",
        "person: the user who raised it",
    ),
    _view(
        "compactions", "One row for each time that old content left the context of a model.", _SESSION,
        "seq int: the event", _ADDRESS, "time: when", "agent: whose", "method: results or summary",
        "first_seq int: the first event of the range", "last_seq int: the last one",
        "results int: how many tool results left", "call: the call that wrote the summary",
        "bytes_before int: of the conversation", "bytes_after int: of what is left", "text: what stands there now",
    ),
    _view(
        "worktrees", "One row for each working tree that was made for an agent, or could not be.", _SESSION, _ADDRESS,
        "agent: for whom", "path: where", "base: the commit that it began from", "prepared int: the event",
        "prepared_at: when", "error: why there is none", "removed int: the event of its removal", "removed_at: when",
        "kept: the paths because of which it was kept, one a line", "why: what the removal says",
    ),
    _view(
        "costs", "One row for each agent and model.", _SESSION, "agent: whose", "provider: to whom", "model: which one",
        "requests int: attempts", "failed int: of these, how many failed", "input int: tokens in, without the cache",
        "output int: tokens out", "cache_read int: tokens from the provider's cache",
        "cache_write int: tokens put there", "reasoning int: tokens of reasoning",
        "cost_microusd int: millionths of a dollar", "duration_ms int: of all together",
    ),
    _view(
        "doubts", "One row for each attempt whose owner died before its result.", _SESSION, _ADDRESS,
        "agent: whose call", "call: which call", "attempt int: which attempt", "recovery: its recovery class",
        "doubted int: the event", "doubted_at: when", "reconciled int: the event that settled it",
        "reconciled_at: when",
        "verdict: done, not_done, attached, retried, unknown; empty while it is open", "evidence: what was found",
    ),
    _view(
        "processes", "One row for each process that a command left running.", _SESSION, _ADDRESS, "call: of which call",
        "pid int: its number", "process_group int: its group", "command: what it ran", "started int: the event",
        "started_at: when it was recorded", "adopted int: how many later owners found it running",
        "gone int: the event of its end", "gone_at: when", "how: how it ended",
    ),
)  # fmt: skip
"""All views, in the order of the docs."""

BY_NAME: Final = {view.name: view for view in VIEWS}
