"""Panes that take their time: what was sent, how it differs from the request before, why something happened.

Each reads the log by a handle of its own, in a thread, so that the screen stays alive. What was made is kept for a
while.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from textual.message import Message

from muse import app
from muse.errors import MuseError, UsageError
from muse.event.sent import Request
from muse.ui.tui.sources import NOT_KNOWN, Content, failed
from muse.view import causes
from muse.view.amounts import plural
from muse.view.line import Line
from muse.view.request import pretty
from muse.view.sent import difference_lines, summary_lines
from muse.view.text import row_words
from muse.view.visible import one_line

KEPT_MAX: Final = 64
KEPT_LINES_MAX: Final = 400_000
RESTS_SHOWN: Final = 8
"""What one step of a why rests on; the rest is counted."""
AS_SENT: Final = "as it was sent, indented (the exact bytes: muse show --request -o FILE)"
Made = Callable[[app.Reading, int], Content]


class Computed(Message):
    """A pane's content is there."""

    def __init__(self, view: str, seq: int) -> None:
        self.view, self.seq = view, seq
        super().__init__()


class Slow:
    """Makes contents in a thread, one at a time and only the newest wish, and keeps them.

    The thread is one that nobody waits for: who leaves the screen does not wait for the log to be read.
    """

    def __init__(self, read: Callable[[], app.Reading], tell: Callable[[Message], object]) -> None:
        self._read = read
        self._tell = tell
        self._kept: OrderedDict[tuple[str, int], Content] = OrderedDict()
        self._lock = threading.Lock()
        self._wanted: tuple[str, int] | None = None
        self._busy = False

    def get(self, view: str, seq: int) -> Content | None:
        """What was made of it; None where it is not there yet, and will be told."""
        with self._lock:
            found = self._kept.get((view, seq))
            if found is None:
                self._wanted = view, seq
                if not self._busy:
                    self._busy = True
                    threading.Thread(target=self._run, daemon=True).start()
        return found

    def forget(self) -> None:
        """Keep nothing of what was made."""
        with self._lock:
            self._kept.clear()

    def _run(self) -> None:
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None or wanted in self._kept:
                    self._busy = False
                    return
            made = self._made(*wanted)
            with self._lock:
                self._kept[wanted] = made
                while len(self._kept) > 1 and (len(self._kept) > KEPT_MAX or self._lines() > KEPT_LINES_MAX):
                    self._kept.popitem(last=False)
            self._tell(Computed(*wanted))

    def _made(self, view: str, seq: int) -> Content:
        try:
            with closing(self._read()) as reading:
                return MAKERS[view](reading, seq)
        except MuseError as error:
            return failed(error)
        except (AssertionError, LookupError) as error:  # an impossible story, as the fold finds it
            return Content(view, (Line(f"{NOT_KNOWN}: {one_line(str(error))}", "bad"),))

    def _lines(self) -> int:
        return sum(len(one.lines) for one in self._kept.values())


def request(reading: app.Reading, seq: int) -> Content:
    """What was sent at this event or last before it: in numbers, then the exact JSON, indented."""
    sent = app.request_at(reading, seq)
    lines = [*_not_to_be_had(sent.request)]
    if not lines and sent.request.data is not None:
        lines = [*map(_by_key, summary_lines(sent)), Line(""), Line(AS_SENT, "dim")]
        lines += map(Line, pretty(sent.request.data))
    return Content(f"request #{sent.request.seq} of {one_line(sent.request.agent)}", tuple(lines))


def _by_key(line: Line) -> Line:
    """On a screen a key does what a flag does elsewhere."""
    return Line(line.text.replace("(what changed since: --diff)", "(what changed since: d)"), line.look)


def difference(reading: app.Reading, seq: int) -> Content:
    """What that request holds that the one before it did not."""
    sent = app.request_at(reading, seq)
    title = f"request #{sent.request.seq} of {one_line(sent.request.agent)}"
    if sent.previous is None:
        return Content(title, (Line("it is the first request of this agent: there is none before it", "dim"),))
    lines = [*_not_to_be_had(sent.request), *_not_to_be_had(sent.previous)] or [*difference_lines(sent)]
    return Content(f"{title}, against #{sent.previous.seq}", tuple(lines))


def _not_to_be_had(request: Request) -> Iterator[Line]:
    if request.differs:
        yield Line(f"#{request.seq} cannot be rebuilt: the log gives {one_line(request.differs)}", "bad")
    elif request.data is None:
        yield Line(f"what was sent at #{request.seq} cannot be told: {one_line(request.why)}", "bad")


def why(reading: app.Reading, seq: int) -> Content:
    """The causes of an event, back to a person's words."""
    event = reading.event(seq)
    if event is None:
        raise UsageError(f"there is no event {seq}")
    chain = causes.why(event, reading, reading.state_after(seq), str(Path.home()))
    return Content(f"why #{seq}", tuple(_chain_lines(chain)))


def _chain_lines(chain: causes.Chain) -> Iterator[Line]:
    for step in chain.steps:
        if step.relation:
            yield Line(f"{step.relation}:", "dim")
        yield Line(f"#{step.row.seq} {step.row.agent} {row_words(step.row)}", "head")
        for note in step.notes:
            yield Line(f"    {one_line(note)}")
        for rest in step.rests[:RESTS_SHOWN]:
            yield Line(f"  + {rest.relation}: #{rest.row.seq} {rest.row.agent} {row_words(rest.row)}")
        if len(step.rests) > RESTS_SHOWN:
            yield Line(f"  + {plural(len(step.rests) - RESTS_SHOWN, 'more', 'more')}: muse why --all has them", "dim")
    yield Line(f"ends here: {one_line(chain.words)}", "dim")


MAKERS: Final[dict[str, Made]] = {"request": request, "difference": difference, "why": why}
