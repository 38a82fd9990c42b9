"""What a verification by replay says: a report, or the first divergence.

This module must not know how either is found.
"""

from typing import Final, Literal

import msgspec

Kind = Literal[
    "not_due", "arguments", "cause", "request", "left_due", "no_intent", "order", "content", "decoding", "impossible"
]

KINDS: Final[dict[Kind, str]] = {
    "not_due": "a decision that the rules do not give at this place",
    "arguments": "a decision that is due here, with other arguments",
    "cause": "a header that names another cause, agent or epoch than it must",
    "request": "a model request whose bytes are not those that the log gives",
    "left_due": "a decision that was due and was not taken",
    "no_intent": "a result, a doubt, a timer or a process without the event that it answers",
    "order": "an opening, a verdict or a refusal that does not fit what stands before it",
    "content": "a blob that is missing or has another length, or a digest or text that is not that of its content",
    "decoding": "a model's answer or failure that is not what its raw bytes say",
    "impossible": "an event that cannot follow what stands before it",
}
"""Class of divergence → what it means. Closed: `--json` has no others."""

Why = Literal["redacted", "unknown", "recovered", "imported", "rules", "builder", "hidden", "no raw bytes"]


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the recorded session is not the one that the rules give. `what` is a sentence; `expected`
    and `recorded` stand for themselves; `difference` shows the two line by line where they are long."""

    seq: int
    agent: str
    type: str
    kind: Kind
    what: str
    expected: str = ""
    recorded: str = ""
    difference: tuple[str, ...] = ()


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What was not derived again, which is no divergence: why, how many decisions or contents, from which event on."""

    why: Why
    detail: str
    count: int
    first: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. `decisions` counts by type what was derived again and found the same, `requests` those of them
    whose bytes were built, `answers` the model's answers and failures decoded again, `facts` the other events that were
    held against what they belong to. Where the session is not closed, `open` names the calls that had not ended, and
    `due` what was to be decided next."""

    session: str
    events: int
    agents: tuple[str, ...]
    decisions: dict[str, int]
    requests: int
    answers: int
    facts: int
    contents: int
    left: tuple[Left, ...] = ()
    open: tuple[str, ...] = ()
    due: tuple[str, ...] = ()
    closed: bool = False
    divergence: Divergence | None = None

    @property
    def exit_code(self) -> Literal[0, 6]:
        """6 for a divergence."""
        return 0 if self.divergence is None else 6


class Diverged(Exception):
    """Raised by a rule; the walk adds where."""

    def __init__(
        self, kind: Kind, what: str, expected: object = "", recorded: object = "", difference: tuple[str, ...] = ()
    ) -> None:
        super().__init__(what)
        self.kind: Kind = kind
        self.what = what
        self.expected = str(expected)
        self.recorded = str(recorded)
        self.difference = difference

    def at(self, seq: int, agent: str, type: str) -> Divergence:
        """The divergence, at its event."""
        return Divergence(
            seq=seq, agent=agent, type=type, kind=self.kind, what=self.what, expected=self.expected,
            recorded=self.recorded, difference=self.difference,
        )  # fmt: skip
