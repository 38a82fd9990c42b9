"""What a recovery may find out, per recovery class, and what is said where it found out nothing.

A class is a promise about running again. A tool whose look after a crash says more than its class may promise is not
believed: its call is in doubt, and told so. Pure.
"""

import hashlib
from typing import Final

from muse.effect.protocol import ToolResult, Verdict
from muse.event.content import RecoveryClass

UNKNOWN_TEXT: Final = (
    "The host died while this call ran, and what became of it cannot be known: it may or may not have happened. "
    "Look at the real state before you go on; do not simply run it again."
)

ALLOWED: Final[dict[RecoveryClass, frozenset[str]]] = {
    "pure": frozenset({"retried"}),
    "repeatable": frozenset({"retried"}),
    "reconcilable": frozenset({"done", "not_done", "unknown"}),
    "attachable": frozenset({"attached", "not_done", "unknown"}),
    "keyed": frozenset({"retried", "done", "not_done", "unknown"}),
    "opaque": frozenset({"done", "unknown"}),
}
"""The verdicts of each class. An opaque call is never run again by itself, whatever its tool thinks."""


def believed(recovery: RecoveryClass, verdict: Verdict) -> Verdict:
    """The verdict, or `unknown` with what was said where the class does not allow it."""
    if verdict.verdict in ALLOWED[recovery]:
        return verdict
    evidence = f"the tool says {verdict.verdict} ({verdict.evidence}), which a call of class {recovery} may not be"
    return Verdict(verdict="unknown", evidence=evidence)


def as_far_as_known(recovery: RecoveryClass, verdict: Verdict, *, is_lost: bool) -> Verdict:
    """The verdict about a call whose intent stands before the place from which on a log lost its end (`is_lost`). The
    runner whose folder holds no start of it is not the one that it was given to, so that proves nothing."""
    if not is_lost or recovery != "attachable" or verdict.verdict != "not_done":
        return verdict
    evidence = "the log lost what came after its start, so whether it ran, and how it ended, is not known"
    return Verdict(verdict="unknown", evidence=evidence)


def unknown_result(evidence: str) -> ToolResult:
    """What the model reads of a call about which nothing more is known."""
    known = f"\nWhat is known: {evidence}" if evidence else ""
    return ToolResult(status="unknown", text=UNKNOWN_TEXT + known)


def idempotency_key(session: str, call: str, args_text: str) -> str:
    """The key under which a `keyed` call is sent, the same in every attempt and under every host: SHA-256 of the
    session, the call and the digest of its arguments."""
    digest = hashlib.sha256(args_text.encode("utf-8", "surrogatepass")).hexdigest()
    return hashlib.sha256(f"{session}\n{call}\n{digest}".encode()).hexdigest()
