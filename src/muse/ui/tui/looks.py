"""What severity and look are on a screen: the terminal's own colours, so that light and dark ones are both readable.

What is told by a colour is also told by a sign or a word. Texts come from views, so that they hold nothing that a
terminal would act on; they become segments, never markup.
"""

import re
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from muse.view.line import Look
from muse.view.timeline import Severity
from muse.view.visible import fit

PLAIN: Final = Style()
DIM: Final = Style(dim=True)
BOLD: Final = Style(bold=True)
CHOSEN: Final = Style(reverse=True)
TITLE: Final = Style(bold=True)
FOUND: Final = Style(bold=True, underline=True)
BY_SEVERITY: Final[dict[Severity, Style]] = {
    "quiet": DIM, "normal": PLAIN, "good": Style(color="green"), "bad": Style(color="red"),
    "attention": Style(color="yellow"),
}  # fmt: skip
BY_LOOK: Final[dict[Look, Style]] = {
    "plain": PLAIN, "dim": DIM, "head": BOLD, "add": Style(color="green"), "remove": Style(color="red"),
    "bad": Style(color="red"),
}  # fmt: skip

IN_ASCII: Final = dict(zip("✗✓›»■±▪▶·…●┬┴│┆◂─━→×▒“”", 'xv>}#=@>.~oT\'|:<-=>x%""', strict=True))
"""What stands for a sign where the terminal's character set lacks it: signs of the minimap stay different ones."""


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    """An error handler for encoders (`codecs.register_error`): one character for each, so that columns stay columns."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(IN_ASCII.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def strip(parts: list[tuple[str, Style]], width: int, style: Style = PLAIN) -> Strip:
    """Parts in their styles, exactly `width` columns wide."""
    segments = [Segment(text, style + one) for text, one in parts if text]
    return Strip(segments).adjust_cell_length(width, style)


TITLE_COLUMNS: Final = 5
"""Of the line above a pane so many are no title."""


def title_strip(title: str, width: int, *, focused: bool) -> Strip:
    """The line above a pane: `── title ─────`; of the pane that has the keys `━━`."""
    rule = "━" if focused else "─"
    text = fit(title, max(width - TITLE_COLUMNS, 0))
    line = f"{rule * 2} {text} " if text else ""
    style = TITLE if focused else DIM
    return strip([(line, style), (rule * width, style)], width)


def marked(text: str, style: Style, sought: re.Pattern[str] | None) -> list[tuple[str, Style]]:
    """The text with what is sought underlined."""
    if sought is None:
        return [(text, style)]
    parts, at = [], 0
    for found in sought.finditer(text):
        if found.end() > found.start():
            parts += [(text[at : found.start()], style), (found[0], style + FOUND)]
            at = found.end()
    return [*parts, (text[at:], style)]
