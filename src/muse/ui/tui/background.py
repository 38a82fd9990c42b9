"""What goes on beside the screen, in a thread: looking whether the log has grown, the index, filters, searches.

All of it in slices, with a moment between them in which the screen gets at the log. What came out is told by messages.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from textual.message import Message

from muse.app.step_search import Pattern
from muse.errors import MuseError
from muse.ui.tui.listing import Listing

SLICE_SECONDS: Final = 0.02
BETWEEN_SECONDS: Final = 0.002
IDLE_SECONDS: Final = 0.2
"""How often it is looked whether the log has grown."""
TELL_SECONDS: Final = 0.1
"""Progress is told no more often."""
NEW_MAX: Final = 1_000
"""After more new events than this at once it is not looked whether something was taken out: all is read again."""
OWNER_SECONDS: Final = 2.0
"""How often it is looked who runs the session."""


class Progress(Message):
    """The log grew, or the index or the filter went on. `error`: nothing more will come, and why."""

    def __init__(self, error: MuseError | None = None) -> None:
        self.error = error
        super().__init__()


class Searched(Message):
    """A search came to its end: at event `seq`, or nowhere (0); or it goes on and has `looked` up to there."""

    def __init__(self, seq: int, looked: int, *, end: bool) -> None:
        self.seq, self.looked, self.end = seq, looked, end
        super().__init__()


class Background:
    """Keeps a listing up to date until `stop`."""

    def __init__(self, listing: Listing, tell: Callable[[Message], object], owner: Callable[[], int]) -> None:
        """`tell` may be called from any thread; `owner` gives the pid of who runs the session, 0 for nobody."""
        self.listing = listing
        self.stop = threading.Event()
        self.owner = 0
        self._tell = tell
        self._owner = owner
        self._told = 0.0
        self._looked = 0.0

    def run(self) -> None:
        """Until `stop` is set."""
        try:
            while not self.stop.is_set():
                news, more = self._slice()
                if news and (not more or time.monotonic() - self._told > TELL_SECONDS):
                    self._told = time.monotonic()
                    self._tell(Progress())
                self.stop.wait(BETWEEN_SECONDS if more else IDLE_SECONDS)
        except MuseError as error:
            self._tell(Progress(error))

    def _slice(self) -> tuple[bool, bool]:
        """Whether there is news, and whether there is more to do at once."""
        steps, listing = self.listing.steps, self.listing
        head = steps.head
        before = (steps.indexed, steps.damage, listing.events, self.owner, listing.looked)
        grown = steps.refresh()
        if grown and self._redacted(head):
            listing.forget()
        more = steps.index(SLICE_SECONDS)
        more = listing.grow(SLICE_SECONDS) or more
        if not more and time.monotonic() - self._looked > OWNER_SECONDS:
            self.owner, self._looked = self._owner(), time.monotonic()
        after = (steps.indexed, steps.damage, listing.events, self.owner, listing.looked)
        return grown or before != after, more

    def _redacted(self, head: int) -> bool:
        """Whether one of the events after `head` took something out of the log, which must not be shown any more."""
        new = self.listing.steps.rows(head + 1, NEW_MAX)
        return len(new) == NEW_MAX or any(row.type == "log.redacted" for row in new)

    def search(self, wanted: Pattern, seq: int, *, forward: bool, cancelled: Callable[[], bool]) -> None:
        """Look for the next place after (or before) `seq`, and tell."""
        looked, told = seq, time.monotonic()
        while not cancelled() and not self.stop.is_set():
            found = self.listing.steps.find(
                wanted, looked, forward=forward, selected=self.listing.selection, budget_seconds=SLICE_SECONDS
            )
            looked = found.looked
            if found.seq or found.end:
                self._tell(Searched(found.seq, looked, end=True))
                return
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                self._tell(Searched(0, looked, end=False))
            self.stop.wait(BETWEEN_SECONDS)
