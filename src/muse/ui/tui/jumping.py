"""Where "the next of a kind" is, and the way back. This module must not know Textual."""

from typing import Final

from muse.ui.tui.listing import Listing
from muse.view.marks import Mark

JUMPS_MAX: Final = 200
MARKS: Final[dict[str, tuple[Mark, ...]]] = {
    "error": (Mark.ERROR, Mark.DOUBT), "approval": (Mark.APPROVAL,), "edit": (Mark.EDIT,),
}  # fmt: skip
WORDS: Final = {
    "type": "event of this type", "agent": "event of this agent", "turn": "turn", "error": "error",
    "approval": "approval", "edit": "change of files",
}  # fmt: skip


def next_like(listing: Listing, kind: str, seq: int, *, forward: bool) -> int | None:
    """The next (or previous) event of a kind that the list shows, as far as the index goes."""
    steps, selected = listing.steps, listing.selection
    if kind in MARKS:
        return steps.next(seq, MARKS[kind], forward=forward, selected=selected)
    if kind == "turn":
        return _turn(listing, seq, forward=forward)
    if not 1 <= seq <= steps.head:
        return None
    here = steps.event(seq)
    if kind == "type":
        return steps.next_of_type(seq, here.type, forward=forward, selected=selected)
    return steps.next_of_agent(seq, here.agent, forward=forward, selected=selected)


def _turn(listing: Listing, seq: int, *, forward: bool) -> int | None:
    """The first shown event of the next turn; under a filter a turn may begin at an event that is not shown."""
    begins = listing.steps.next_turn(seq, forward=forward)
    if begins is None or listing.selection is None:
        return begins
    shown = listing.seq_at(listing.place_of(begins))
    return shown if (shown > seq) == forward and shown != seq else None


def none_left(listing: Listing, kind: str, *, forward: bool) -> str:
    """What is said where there is none."""
    known = (
        "" if listing.steps.indexed >= listing.steps.head else f" up to #{listing.steps.indexed:,}, as far as is known"
    )
    return f"no {WORDS[kind]} {'after' if forward else 'before'} this{known}"


class Jumps:
    """Where jumps began, to go back to."""

    def __init__(self) -> None:
        self._from: list[int] = []

    def begin(self, seq: int) -> None:
        """A jump begins here."""
        if not self._from or self._from[-1] != seq:
            self._from = [*self._from[1 - JUMPS_MAX :], seq]

    def back(self) -> int | None:
        """Where the last one began, None where there was none."""
        return self._from.pop() if self._from else None
