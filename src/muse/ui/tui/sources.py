"""What stands in the panes: title and lines of a step's detail, its state, the request, the causes, the help.

Every line comes from a view, where it was made safe to show; `--plain --detail` and `--state` print the same ones.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from muse.app.steps import Steps
from muse.errors import Damaged, MuseError
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import ToolFinished
from muse.ui.tui.keys import GROUPS, KEYS
from muse.ui.tui.minimap import SIGNS
from muse.view.amounts import size
from muse.view.detail import DETAIL_LINES_MAX
from muse.view.line import Line
from muse.view.panel import panel_lines
from muse.view.text import row_words
from muse.view.visible import headline, lines_of, one_line

WHOLE_LINES_MAX: Final = 200_000
WHOLE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of an output; the log has all of it, and `show -o FILE` writes it."""


_microseconds: Final = re.compile(r"(\.\d{3})\d{3}(?=Z)")
NOT_KNOWN: Final = "not known: what is recorded before does not fit together"


class Content(msgspec.Struct, frozen=True):
    """What a pane shows."""

    title: str
    lines: tuple[Line, ...]
    words: bool = True
    """Whether the lines are about something, not its content as it stands."""


def detail(steps: Steps, seq: int, *, whole: bool) -> Content:
    """An event: its words, and what it holds beyond them; `whole` with all that a command gave out."""
    if seq > steps.head:
        return _damage(steps)
    event = steps.event(seq)
    shown = steps.detail(seq, WHOLE_LINES_MAX if whole else DETAIL_LINES_MAX)
    lines = [Line(row_words(shown), "head"), *shown.detail]
    if fault := steps.fault(seq):
        lines.insert(1, Line(f"altered: {one_line(fault)}; muse verify says what can still be trusted", "bad"))
    if whole:
        lines += _output(steps, event)
    cause = f" · cause #{event.cause}" if event.cause else ""
    when = _microseconds.sub(r"\1", one_line(event.time)).replace("T", " ").replace("Z", " UTC")
    return Content(f"#{seq} {headline(event.type, 60)} · {when}{cause}", tuple(lines), words=False)


def _output(steps: Steps, event: Event) -> Iterator[Line]:
    body = event.body
    if isinstance(body, Redacted | Unknown) or not isinstance(body, ToolFinished) or body.output is None:
        return
    yield Line("the whole output:", "head")
    if body.output.length > WHOLE_BYTES_MAX:
        yield Line(f"it is of {size(body.output.length)}: muse show @{event.seq} -o FILE writes it", "dim")
        return
    data = steps.content(body.output)
    if data is None:
        yield Line("hidden by redaction", "dim")
    else:
        yield from (Line(line) for line in lines_of(data.decode(errors="replace")))


def _damage(steps: Steps) -> Content:
    """What is said in the place of events that cannot be read."""
    damage = steps.damage
    lines = [Line(headline(str(damage or "it cannot be read")), "bad")]
    if isinstance(damage, Damaged) and damage.hint:
        lines.append(Line(one_line(damage.hint)))
    return Content("damaged", tuple(lines))


def failed(error: MuseError) -> Content:
    """What is said where something could not be shown."""
    return Content("not to be had", (Line(headline(str(error)), "bad"), *map(Line, lines_of(error.hint or ""))))


def state(steps: Steps, seq: int) -> Content:
    """What was true after an event."""
    if seq > steps.head:
        return Content("state", _damage(steps).lines)
    now = steps.panel(seq)
    if now is None:
        known = NOT_KNOWN if steps.indexed >= seq else f"not known yet: read up to #{steps.indexed:,} of {steps.head:,}"
        return Content("state", (Line(known, "dim"),))
    return Content("state", tuple(panel_lines(now)))


def keys_and_signs() -> Content:
    """The help: every key, and what the signs mean."""
    lines: list[Line] = []
    for group in GROUPS:
        lines.append(Line(group, "head"))
        lines += [Line(f"  {key.shown:<13} {key.words}") for key in KEYS if key.group == group]
    lines.append(Line("signs beside the list, the most urgent first", "head"))
    lines += [Line(f"  {shown:<13} {words}") for shown, _, words in SIGNS.values()]
    lines.append(Line("  ◂ where you are; │ what the list shows; a click goes there", "dim"))
    lines.append(Line("lanes (with more than one agent)", "head"))
    lines.append(
        Line("  ┬ an agent's first event   ● one of its events   ┴ its last   │ it goes on meanwhile", "plain")
    )
    return Content("help", tuple(lines))
