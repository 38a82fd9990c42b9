"""Answers on standard output: whole lines, colour where it is wanted, and silence when the reader has gone."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

import click

from muse.errors import MuseError
from muse.view.visible import HANG, command_lines, fit, one_line, paragraph

WIDTH_MAX: Final = 200


class Answers:
    """Where a command's answers go. `width` is None where lines stay whole (a pipe, a file). With `acts` a reader that
    has gone is not minded: what a command does must not depend on who still listens."""

    def __init__(self, *, colour: bool = True, acts: bool = False) -> None:
        self.acts = acts
        self.terminal = sys.stdout.isatty()
        self.colour = colour and self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.width = min(shutil.get_terminal_size().columns, WIDTH_MAX) if self.terminal else None

    def line(self, text: str = "") -> None:
        """One line."""
        self.lines([text])

    def paragraph(self, text: str, hang: int = 0) -> None:
        """A line, wrapped where a person reads it."""
        self.lines(paragraph(text, self.width, hang))

    def commands(self, lead: str, *commands: str) -> None:
        """Commands to copy, after a `lead`; each stands whole on a line where it fits."""
        self.lines(command_lines(lead, commands, self.width))

    def lines(self, texts: list[str]) -> None:
        """Several lines."""
        with self._said_if_lost():
            sys.stdout.write("".join(f"{text}\n" for text in texts))

    def json(self, text: str) -> None:
        """A line of JSON: UTF-8 whatever the locale (RFC 8259 §8.1)."""
        self.raw(f"{text}\n".encode())

    def raw(self, data: bytes) -> None:
        """Bytes as they are. Not to be mixed with `line` but after a `flush`."""
        with self._said_if_lost():
            sys.stdout.buffer.write(data)

    def flush(self) -> None:
        """Let the reader see everything written so far."""
        with self._said_if_lost():
            sys.stdout.flush()

    @contextmanager
    def _said_if_lost(self) -> Iterator[None]:
        """An answer that cannot be written (a full disk) is an error that says so; a reader that has gone is none."""
        try:
            yield
        except BrokenPipeError:
            if not self.acts:
                raise
            to_nowhere(sys.stdout)
        except OSError as error:
            to_nowhere(sys.stdout)
            raise MuseError(f"standard output could not be written: {error.strerror or error}") from error


def to_nowhere(stream: TextIO) -> None:
    """From here on a stream is not written any more; what it holds is dropped, and fails no second time at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def answers(*, colour: bool = True, acts: bool = False) -> Iterator[Answers]:
    """Answers that may be cut short by their reader (`muse log | head`): that is no error, and ends the command,
    unless it `acts` (`muse rm`): then it goes on in silence. What is used after this block is made before it."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # a terminal of another character set still gets every line
    try:
        out = Answers(colour=colour, acts=acts)
        yield out
        out.flush()
    except BrokenPipeError:
        to_nowhere(sys.stdout)


def note(text: str) -> None:
    """A word to the person on standard error, wrapped where that is a terminal; lost where it cannot be written."""
    width = min(shutil.get_terminal_size().columns, WIDTH_MAX) if sys.stderr.isatty() else None
    with suppress(OSError):
        for line in text.split("\n"):
            click.echo("\n".join(paragraph(line, width, HANG)), err=True)


def progress(text: str) -> None:
    """A passing word on standard error, where a person watches it: on one line, or the next would not replace it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{fit(one_line(text), shutil.get_terminal_size().columns - 1)}")
        sys.stderr.flush()
