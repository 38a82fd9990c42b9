"""Agents in words: a line each for lists and tables, what changed, and all that is known of one.

Rows come from `fleet`. This module must not know where lines go, nor what is drawn around them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from muse.view.agents_told import called_words
from muse.view.amounts import duration, money, plural
from muse.view.fleet import AgentRow, SessionRows, Spent, Word, counts, used_by
from muse.view.line import Line
from muse.view.summary import outcome_words
from muse.view.timeline import Severity
from muse.view.visible import columns, fit, headline, one_line

SEVERITIES: Final[dict[Word, Severity]] = {
    "waiting": "attention", "stuck": "bad", "failed": "bad", "parked": "attention", "paused": "attention",
    "cancelling": "attention", "done": "good", "cancelled": "quiet", "queued": "quiet", "preparing": "quiet",
    "idle": "quiet", "running": "normal",
}  # fmt: skip
INDENT: Final = 2
NAME_COLUMNS_MIN: Final = 8
"""So much of a session's name is kept beside longer words of its totals; that is an id."""
STATE_COLUMNS_MIN: Final = 12


def label(row: AgentRow, *, brief: bool = False) -> str:
    """`main.1 cart (reviewer)`, indented as deep as it stands; in `brief` without the role where there is a name."""
    called = called_words(row.name, "" if brief and row.name else row.role)
    return f"{' ' * (INDENT * row.depth)}{row.agent} {called}".rstrip()


def short_tokens(number: int) -> str:
    """`950`, `1.2k`, `12k`, `3.4M`: at most four columns below a billion."""
    for unit, limit in (("", 1), ("k", 1_000), ("M", 1_000_000)):
        if number < 10 * limit and unit:
            return f"{number / limit:.1f}{unit}"
        if number < 1_000 * limit:
            return f"{number // limit}{unit}"
    return f"{number // 1_000_000_000}G"


def short_time(seconds: int) -> str:
    """`42s`, `3:05`, `2:03:22`, `3d 2h`."""
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}:{seconds % 60:02}"
    if seconds < 86_400:
        return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return f"{seconds // 86_400}d {seconds % 86_400 // 3600}h"


def used(spent: Spent) -> str:
    """`1,234 tok $0.0042`, "" for nothing."""
    cost = f" {money(spent.cost_microusd)}" if spent.cost_microusd else ""
    return f"{spent.tokens:,} tok{cost}" if spent.tokens or cost else ""


def session_words(session: SessionRows) -> str:
    """What becomes of a session: `running (4242)`, `stopped (resume)`, or how it ended."""
    if session.problem:
        return f"unreadable: {headline(session.problem, 200)}"
    if session.state == "closed":
        return outcome_words(session.outcome, session.reason)
    if session.state == "stopped":
        return "stopped (resume)"
    return f"{session.state} ({session.pid})"


def agents_words(session: SessionRows) -> str:
    """`12 agents: 8 running, 4 done  12,345 tok $0.12`."""
    return f"{counts(session.agents)}  {used(session.used)}".rstrip()


def totals(sessions: Iterable[SessionRows]) -> Iterator[str]:
    """How many agents there are, what they do, their tokens and cost: from the longest words to the shortest, which
    still tell how many work, if any do."""
    known = tuple(sessions)
    spent, words = used_by(known), counts(row for session in known for row in session.agents)
    cost = f" {money(spent.cost_microusd)}" if spent.cost_microusd else ""
    brief_spent = f"  {short_tokens(spent.tokens)} tok{cost}" if spent.tokens or cost else ""
    yield f"{words}  {used(spent)}".rstrip()
    yield f"{words}{brief_spent}"
    parts = words.split(", ")
    for kept in range(len(parts) - 1, 0, -1):
        yield f"{', '.join(parts[:kept])} …{brief_spent}"


def titled(name: str, state: str, words: Iterable[str], width: int, between: str = " · ") -> str:
    """`name · state · totals` in `width` columns. Where that is too narrow the state is cut, then the name, and of
    `words` (`totals`) the first that has room counts; the last is never cut while anything else stands there."""
    state = fit(state, max(width // 3, STATE_COLUMNS_MIN))
    last = ""
    for last in words:
        room = width - columns(f"{between}{state}{between}{last}")
        if room >= min(columns(name), NAME_COLUMNS_MIN):
            return between.join(part for part in (fit(name, room), state, last) if part)
    room = width - columns(f"{between}{last}")
    return fit(f"{state}{between}{last}" if columns(state) <= room else last, width)


def news_words(row: AgentRow) -> str:
    """What an agent does now: `running: shell make test`, `done: all is well`."""
    if row.state in ("done", "failed", "cancelled") and not row.about:
        return f"{row.state}: {row.said}" if row.said else row.state
    return f"{row.words}  {row.step}".rstrip()


def agent_lines(session: SessionRows, row: AgentRow) -> Iterator[Line]:
    """All that is known of one agent."""
    yield Line(row.words, "bad" if SEVERITIES[row.state] == "bad" else "head")
    if row.step:
        yield Line(f"step      {row.step}  ({row.call})")
    for seq in row.approvals:
        yield Line(f"asks      whether a call may run, #{seq}: a shows it", "head")
    for seq in row.questions:
        yield Line(f"asks      a question, #{seq}: a shows it", "head")
    if row.said:
        yield Line(f"said      {row.said}")
    if row.task:
        yield Line(f"task      {row.task}")
    yield Line(f"used      {_used(row)}")
    if row.files:
        yield Line(f"changed   {plural(row.files, 'file')}")
    if row.queued:
        yield Line(f"waiting   {plural(row.queued, 'message')} for it")
    parts = [
        f"child of {row.parent}" if row.parent else "",
        "in the background" if row.background else "",
        f"in its own working tree {one_line(row.workspace)}".rstrip() if row.isolation == "worktree" else "",
        f"mode {row.mode}" if row.mode else "",
        f"model {row.model}" if row.model else "",
    ]
    yield Line(f"is        {', '.join(part for part in parts if part) or 'the session’s own agent'}", "dim")


def _used(row: AgentRow) -> str:
    """Own and with all below, and how long."""
    own = used(row.own) or "nothing counted"
    below = f"; with all below it {used(row.below)}" if row.children and row.below != row.own else ""
    return f"{own}{below}; {duration(row.seconds * 1000) if row.seconds else 'no time'}"


_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def session_json(session: SessionRows) -> str:
    """One line of JSON: the session with its agents, a flat list in the order of the tree."""
    return _ENCODER.encode(session).decode()


def news_json(session: SessionRows, row: AgentRow) -> str:
    """One line of JSON: an agent that does something else."""
    return _ENCODER.encode({"session": session.session, "seq": session.seq, "agent": row}).decode()
