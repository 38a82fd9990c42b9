"""The views about what passes between agents, and between them and people: messages, questions, interruptions, budgets,
compactions, worktrees. See `rows`."""

from collections.abc import Collection, Iterable
from typing import Any, Final

from muse.log.tables.rows import Contents, Fact, Row, milliseconds


def _standing(fact: Fact) -> Row:
    """Where an event stands, and whom it concerns."""
    return {"seq": fact.seq, "address": fact.address, "time": fact.time, "agent": fact.agent}


def _speaker(fact: Fact) -> Row:
    """The person who said it, "" for what no person said."""
    origin = fact.part("origin")
    return {"person": origin.get("user") or "", "terminal": origin.get("terminal") or ""}


def _lines(fact: Fact, name: str) -> str | None:
    return "\n".join(map(str, fact.parts(name))) or None


class _OfEvents:
    """A view with one row an event."""

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._rows: list[Row] = []

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        self._rows.append(_standing(fact) | self.row_of(fact))

    def row_of(self, fact: Fact) -> Row:
        """What the event itself says."""
        raise NotImplementedError

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._rows


class Messages(_OfEvents):
    """`messages`."""

    types: frozenset[str] | None = frozenset({"agent.messaged", "result.delivered"})
    bodies = types

    def row_of(self, fact: Fact) -> Row:
        """See `_OfEvents`."""
        if fact.type == "agent.messaged":
            return {
                "recipient": fact.text("to"),
                "how": "message",
                "call": fact.text("call"),
                "text": fact.text("text"),
            }
        return {
            "agent": fact.text("child"), "recipient": fact.agent, "how": "result", "outcome": fact.text("outcome"),
            "text": fact.text("text"),
        }  # fmt: skip


class Interruptions(_OfEvents):
    """`interruptions`."""

    types: frozenset[str] | None = frozenset({"cancel.requested", "agent.paused", "agent.continued"})
    bodies = types
    _HOW: Final = {"cancel.requested": "cancel", "agent.paused": "pause", "agent.continued": "continue"}

    def row_of(self, fact: Fact) -> Row:
        """See `_OfEvents`."""
        usual = "turn" if fact.type == "cancel.requested" else "agent"
        return {
            "how": self._HOW[fact.type], "target": fact.text("target") or usual, "call": fact.text("call") or None,
            "prompt": fact.number("prompt") or None, "by_call": fact.text("by") or None, "why": fact.text("why"),
            "client": fact.part("origin").get("client") or "", **_speaker(fact),
        }  # fmt: skip


class Budgets(_OfEvents):
    """`budgets`."""

    types: frozenset[str] | None = frozenset({"budget.reached", "budget.raised"})
    bodies = types

    def row_of(self, fact: Fact) -> Row:
        """See `_OfEvents`."""
        return {
            "how": fact.type.partition(".")[2], "budget": fact.text("limit"), "scope": fact.text("scope") or "agent",
            "value": fact.number("value"), "person": _speaker(fact)["person"],
        }  # fmt: skip


class Compactions(_OfEvents):
    """`compactions`."""

    types: frozenset[str] | None = frozenset({"context.compacted"})
    bodies = types

    def row_of(self, fact: Fact) -> Row:
        """See `_OfEvents`."""
        return {
            "method": fact.text("method"), "first_seq": fact.number("first"), "last_seq": fact.number("last"),
            "results": len(fact.parts("calls")), "call": fact.text("call") or None, "text": fact.text("text"),
            "bytes_before": fact.number("bytes_before"), "bytes_after": fact.number("bytes_after"),
        }  # fmt: skip


class Questions:
    """`questions`."""

    types: frozenset[str] | None = frozenset({"question.asked", "question.answered"})
    bodies = types

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._rows: dict[int, Row] = {}

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        if fact.type == "question.asked":
            self._rows[fact.seq] = {
                "address": fact.address, "agent": fact.agent, "call": fact.text("call"), "asked": fact.seq,
                "asked_at": fact.time, "text": fact.text("text"), "options": _lines(fact, "options"),
            }  # fmt: skip
            return
        row = self._rows.get(fact.number("question") or 0)
        if row is None or "answered" in row or row["agent"] != fact.agent:  # the first answer counts
            return
        row |= {"answered": fact.seq, "answered_at": fact.time, "answer": fact.text("text"), **_speaker(fact)}
        row["waited_ms"] = milliseconds(row["asked_at"], fact.time)

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._rows.values()


class Worktrees:
    """`worktrees`."""

    types: frozenset[str] | None = frozenset({"worktree.prepared", "worktree.removed"})
    bodies = types

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._rows: list[Row] = []
        self._of: dict[str, Row] = {}

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        if fact.type == "worktree.prepared":
            row: Row = {
                "address": fact.address, "agent": fact.agent, "path": fact.text("path"), "prepared": fact.seq,
                "base": fact.text("base") or None, "prepared_at": fact.time, "error": fact.text("error"),
            }  # fmt: skip
            self._rows.append(row)
            self._of[fact.agent] = row
        elif (found := self._of.get(fact.agent)) is not None:
            found |= {"kept": _lines(fact, "left"), "why": fact.text("why")}
            if not found["kept"]:
                found |= {"removed": fact.seq, "removed_at": fact.time}

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._rows


MAKERS: Final[dict[str, Any]] = {
    "messages": Messages, "questions": Questions, "interruptions": Interruptions, "budgets": Budgets,
    "compactions": Compactions, "worktrees": Worktrees,
}  # fmt: skip
"""View → its gatherer."""
