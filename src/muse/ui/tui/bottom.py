"""The last line: where we are and what state the session is in, or what is being typed."""

from typing import Final, Literal

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from muse.ui.tui.looks import BOLD, CHOSEN, DIM, PLAIN, strip
from muse.view.visible import columns, fit, visible

Asked = Literal["seq", "text", "filter", "only", "steer", "answer"]
LABELS: Final[dict[Asked, str]] = {
    "seq": "to event #", "text": "search: ", "filter": "filter: ", "only": "only: ", "steer": "say: ",
    "answer": "answer: ",
}  # fmt: skip
REGEX_LABEL: Final = "search (regex): "
HINTS: Final[dict[Asked, str]] = {
    "seq": "a number",
    "text": "a text, in any case; Ctrl-R: a regular expression",
    "filter": "type:tool.* agent:main.1 failed since:2h grep:\"a text\"; nothing shows all",
    "only": "words of the line: main.2 waiting cart; nothing shows all",
    "steer": "joins its turn at its next model request; Esc says nothing",
    "answer": "your answer, or the number of one that is offered",
}  # fmt: skip
NUMBER: Final = r"[0-9]{0,16}G?"
TYPED_CHARACTERS_MAX: Final = 1_000


class Status(Widget):
    """One line: facts at the left, hints at the right as far as there is room; a note stands before both."""

    DEFAULT_CSS = "Status { height: 1; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__(id="status")
        self._facts, self._note = "", ""
        self._hints: tuple[str, ...] = ()

    def say(self, facts: str, hints: tuple[str, ...], note: str = "") -> None:
        """Show these: of `hints`, which say the same at different lengths, the first that has room."""
        if (facts, hints, note) != (self._facts, self._hints, self._note):
            self._facts, self._hints, self._note = facts, hints, note
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line, over the whole width."""
        width = self.size.width
        note = f" {visible(self._note)} " if self._note else ""
        note = fit(note, width)
        facts = fit(f" {self._facts}", width - columns(note))
        room = width - columns(note) - columns(facts) - 1
        hints = next((one for one in self._hints if columns(one) < room - 1), "")
        gap = " " * max(room - columns(hints), 0)
        return strip([(note, BOLD), (facts, PLAIN), (gap, PLAIN), (hints, DIM)], width, CHOSEN)


class Typed(Input):
    """The field; keys that are no text go to the prompt first."""

    BINDINGS = []  # noqa: RUF012 - Textual's own form; those of Input stay

    def __init__(self) -> None:
        super().__init__(id="typed", compact=True, select_on_focus=False, max_length=TYPED_CHARACTERS_MAX)


class Label(Widget):
    """What is asked for."""

    DEFAULT_CSS = "Label { height: 1; }"

    def __init__(self) -> None:
        super().__init__(id="label")
        self.text = ""

    def say(self, text: str) -> None:
        """Ask for this."""
        self.text = text
        self.styles.width = columns(text) + 1
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The label."""
        return strip([(f" {self.text}", BOLD)], self.size.width)


class Prompt(Horizontal):
    """Asks for a line: a number, a text, a filter. Escape and an empty Backspace give up."""

    DEFAULT_CSS = "Prompt { height: 1; display: none; }"

    class Given(Message):
        """A line was typed."""

        def __init__(self, asked: Asked, text: str, *, regex: bool) -> None:
            self.asked, self.text, self.regex = asked, text, regex
            super().__init__()

    class GivenUp(Message):
        """It was left."""

    def __init__(self) -> None:
        super().__init__(id="prompt")
        self._asked: Asked = "seq"
        self._regex = False

    def compose(self) -> ComposeResult:
        """Label and field."""
        yield Label()
        yield Typed()

    def ask(self, asked: Asked, begun: str = "") -> None:
        """Ask, with what is there already."""
        self._asked = asked
        field = self.query_one(Typed)
        field.restrict = NUMBER if asked == "seq" else None
        field.value, field.placeholder = begun, HINTS[asked]
        field.cursor_position = len(begun)
        self._call_it()
        self.display = True
        self.screen.set_focus(field)  # at once: what is typed next is meant for it

    def _call_it(self) -> None:
        regex = self._asked == "text" and self._regex
        self.query_one(Label).say(REGEX_LABEL if regex else LABELS[self._asked])

    def on_key(self, event: events.Key) -> None:
        """The keys that mean something here."""
        empty = not self.query_one(Typed).value
        if event.key == "escape" or (event.key in ("backspace", "ctrl+c") and (empty or event.key == "ctrl+c")):
            event.stop()
            self.post_message(self.GivenUp())
        elif event.key == "ctrl+r" and self._asked == "text":
            event.stop()
            self._regex = not self._regex
            self._call_it()

    def on_input_changed(self, event: Input.Changed) -> None:
        """A number may end in G, as in less."""
        event.stop()
        if self._asked == "seq" and event.value.endswith("G"):
            self._give()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        event.stop()
        self._give()

    def _give(self) -> None:
        typed = self.query_one(Typed).value.rstrip("G" if self._asked == "seq" else "")
        self.post_message(self.Given(self._asked, typed, regex=self._regex))
