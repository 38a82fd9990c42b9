"""Answers on standard output: whole lines, colour where it is wanted, and silence when the reader has gone."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from muse.view.visible import paragraph

WIDTH_MAX: Final = 200
HANG: Final = 6
"""How far to the right the second line of a note stands."""


class Answers:
    """Where a command's answers go. `width` is None where lines stay whole (a pipe, a file)."""

    def __init__(self, *, colour: bool = True) -> None:
        self.terminal = sys.stdout.isatty()
        self.colour = colour and self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.width = min(shutil.get_terminal_size().columns, WIDTH_MAX) if self.terminal else None

    def line(self, text: str = "") -> None:
        """One line."""
        sys.stdout.write(f"{text}\n")

    def paragraph(self, text: str, hang: int = 0) -> None:
        """A line, wrapped where a person reads it."""
        self.lines(paragraph(text, self.width, hang))

    def lines(self, texts: list[str]) -> None:
        """Several lines."""
        sys.stdout.write("".join(f"{text}\n" for text in texts))

    def json(self, text: str) -> None:
        """A line of JSON: UTF-8 whatever the locale (RFC 8259 §8.1)."""
        self.raw(f"{text}\n".encode())

    def raw(self, data: bytes) -> None:
        """Bytes as they are. Not to be mixed with `line` but after a `flush`."""
        sys.stdout.buffer.write(data)

    def flush(self) -> None:
        """Let the reader see everything written so far."""
        sys.stdout.flush()


@contextmanager
def answers(*, colour: bool = True) -> Iterator[Answers]:
    """Answers that may be cut short by their reader (`muse log | head`): that is no error, and ends the command."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # a terminal of another character set still gets every line
    try:
        yield Answers(colour=colour)
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def note(text: str) -> None:
    """A word to the person on standard error, wrapped where that is a terminal."""
    width = min(shutil.get_terminal_size().columns, WIDTH_MAX) if sys.stderr.isatty() else None
    for line in text.split("\n"):
        click.echo("\n".join(paragraph(line, width, HANG)), err=True)


def progress(text: str) -> None:
    """A passing word on standard error, where a person watches it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
