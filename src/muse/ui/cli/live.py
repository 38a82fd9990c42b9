"""A running session as watched: rows and streamed text on standard error, events or the answer on standard output.

A reader that goes away (`muse exec … | head`) never harms the run: its stream falls silent and the session goes on.
This module must not know what drives the session.
"""

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

import msgspec

from muse.event.envelope import Event
from muse.event.kinds import ModelRequested, ModelResponded, ToolFinished, ToolStarted
from muse.ui.cli.output import WIDTH_MAX
from muse.view.lines import json_line
from muse.view.text import paint, row_text
from muse.view.timeline import Context, learn, row
from muse.view.visible import HANG, command_lines, fit, paragraph, visible

BAR: Final = "       │ "
LIVE_LINE_CHARS_MAX: Final = 4000
"""How much of an unfinished line of a tool's output is kept until its end comes."""


Put = Callable[[str], None]
Around = Callable[[Put, str], None]
"""Writes a text with a stream's own `Put`, making room for it where a prompt stands."""


class Stream:
    """One of the two standard streams. Falls silent when its reader has gone; `trouble` says why if that was not it."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.terminal = file.isatty()
        dumb = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.colour = self.terminal and not dumb
        self.width = min(shutil.get_terminal_size().columns, WIDTH_MAX) if self.terminal else None
        self.gone = False
        self.trouble = ""
        self.around: Around | None = None
        reconfigure = getattr(file, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # a terminal of another character set still gets every line

    def write(self, text: str) -> None:
        """Write and flush; on a terminal by way of `around`, while a prompt stands there."""
        if self.around is not None and self.terminal:
            self.around(self._put, text)
        else:
            self._put(text)

    def beside(self, text: str) -> None:
        """Write what takes no place on the screen, past a prompt that stands there."""
        if self.terminal:
            self._put(text)

    def _put(self, text: str) -> None:
        if self.gone:
            return
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:  # a closed pipe, a terminal that hung up, a full disk under a redirection
            self.gone = True
            self.trouble = "" if error.errno in (errno.EPIPE, errno.EIO) else error.strerror or str(error)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)


class Live:
    """What is shown of a session. `answer` is the last answer of `main`, whether or not it was seen as it came. With
    `quiet` only what must be said is."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.out, self.err = Stream(sys.stdout), Stream(sys.stderr)
        self.answer = ""
        self.as_json, self.quiet = as_json, quiet
        self._rows = not as_json and not quiet
        self._context = Context(home=str(Path.home()))
        self._speaking = ""
        self._streamed: list[str] = []
        self._open_line = False
        self._question = ""
        self._tails: dict[str, str] = {}
        self._tools: set[str] = set()

    def learn(self, event: Event) -> None:
        """Take in an earlier event that is not shown, so that later rows can name its call, and its output is shown as
        it comes."""
        learn(self._context, event)
        if isinstance(event.body, ToolStarted):
            self._tools.add(event.body.call)

    def event(self, event: Event) -> None:
        """An event that is durable: one row, or one JSON line."""
        body = event.body
        if isinstance(body, ModelResponded) and event.agent == "main":
            self.answer = "".join(block.text for block in body.blocks if block.kind == "text")
        if self.as_json:
            self.out.write(json_line(event) + "\n")
        if not self._rows:
            return
        learn(self._context, event)
        if isinstance(body, ModelRequested) and event.agent == "main" and body.purpose == "turn":
            self._speaking, self._streamed = body.call, []
        elif isinstance(body, ToolStarted):
            self._tools.add(body.call)
        elif isinstance(body, ToolFinished):
            self._finish_tail(body.call)
        elif isinstance(body, ModelResponded) and self._streamed and body.call == self._speaking:
            event = without_words(event, body)
        shown = row(event, self._context)
        if shown.summary.startswith("(no words)"):
            shown = msgspec.structs.replace(shown, summary=shown.summary.removeprefix("(no words)").strip())
        self._line(row_text(shown, width=self.err.width, colour=self.err.colour))

    def signal(self, call: str, text: str) -> None:
        """Live text of a model or a tool; never stored, so nothing depends on it."""
        if not self._rows:
            return
        if call == self._speaking and not self._question:
            self._streamed.append(text)
            self._open_line = not text.endswith("\n")
            self.err.write(visible(text))
        elif call in self._tools and self.err.terminal:
            lines = (self._tails.get(call, "") + text).split("\n")
            self._tails[call] = lines.pop()[-LIVE_LINE_CHARS_MAX:]
            self._bars(lines)

    def say(self, text: str = "", look: str = "") -> None:
        """A line for the person, on standard error; `look` is an SGR code."""
        hang = min(len(text) - len(text.lstrip(" ")) + 2, HANG)
        self._line("\n".join(paint(part, look, self.err.colour) for part in paragraph(text, self.err.width, hang)))

    def tell(self, text: str = "", look: str = "") -> None:
        """As `say`, but not with `--quiet`."""
        if not self.quiet:
            self.say(text, look)

    def commands(self, lead: str, *commands: str, look: str = "") -> None:
        """Commands to copy, after a `lead`; each stands whole on a line where it fits."""
        lines = command_lines(lead, commands, self.err.width)
        self._line("\n".join(paint(line, look, self.err.colour) for line in lines))

    def ring(self, text: str) -> None:
        """The terminal's bell, with a notice of the desktop (OSC 9) where the terminal may know how. `text` must be
        safe for a terminal."""
        stream = self.err if self.err.terminal else self.out
        knows = os.environ.get("TERM", "") not in ("", "dumb", "linux")
        stream.beside(f"\x1b]9;{text}\x07\x07" if knows else "\x07")

    def ask(self, text: str) -> None:
        """The beginning of a line that the person finishes; it stays the last line until `answered`."""
        self._begin_line()
        self._question = text
        self.err.write(text)

    @property
    def asked(self) -> str:
        """The line that is open, "" for none."""
        return self._question

    def answered(self, text: str = "") -> None:
        """The question is over; `text` ends its line."""
        self._question = ""
        if text:
            self.err.write(text + "\n")

    def final(self) -> None:
        """The answer, on standard output; not a second time on the terminal where it was just streamed."""
        self._begin_line()
        streamed = "".join(self._streamed)
        seen = self.out.terminal and self.err.terminal and bool(streamed) and streamed == self.answer
        if self.as_json or seen or not self.answer:
            return
        text = visible(self.answer) if self.out.terminal else self.answer
        self.out.write(text if text.endswith("\n") else text + "\n")

    def _line(self, text: str) -> None:
        """A whole line, above the question if one is open."""
        self._begin_line()
        if self._question:
            self.err.write("\r\x1b[K" if self.err.terminal else "\n")
        self.err.write(f"{text}\n{self._question}")

    def _begin_line(self) -> None:
        if self._open_line:
            self._open_line = False
            self.err.write("\n")

    def _finish_tail(self, call: str) -> None:
        self._tools.discard(call)
        if tail := self._tails.pop(call, ""):
            self._bars([tail])

    def _bars(self, lines: list[str]) -> None:
        for line in lines:
            text = visible(line.rstrip("\r")).expandtabs()
            if self.err.width is not None:
                text = fit(text, self.err.width - len(BAR))
            self._line(paint(BAR + text, "2", self.err.colour))


def without_words(event: Event, body: ModelResponded) -> Event:
    """The event of a response whose words were shown as they came."""
    blocks = tuple(block for block in body.blocks if block.kind != "text")
    return msgspec.structs.replace(event, body=msgspec.structs.replace(body, blocks=blocks))
