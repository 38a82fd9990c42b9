"""Addresses: `SESSION[:AGENT][@SEQ]`, the one way to point at a session, a lane or an event.

What is left out means the last session of this folder, every lane (or `main`), and the head. SESSION may be a file
whose name holds `:` or `@`: what is a file is never taken apart.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from muse import app
from muse.errors import UsageError
from muse.ui.cli.finding import find_session

SEQ_MAX: Final = 2**53
FORM: Final = "SESSION[:AGENT][@SEQ], as in 4f2k or 4f2k@41 or :main.1 or @41"

_seq_part: Final = re.compile(r"(?s)(.*)@([0-9]+)")
_agent_part: Final = re.compile(r"(?s)(.*):(main(?:\.[1-9][0-9]*)*)")


class Address(msgspec.Struct, frozen=True):
    """A parsed address. `session` "" is the last one, `agent` "" none in particular, `seq` 0 the head."""

    session: str = ""
    agent: str = ""
    seq: int = 0

    def __str__(self) -> str:
        agent = f":{self.agent}" if self.agent else ""
        return f"{self.session}{agent}{f'@{self.seq}' if self.seq else ''}"


class Place(msgspec.Struct, frozen=True):
    """An address with the file that it leads to."""

    address: Address
    path: Path


def parse(text: str, is_file: Callable[[str], bool]) -> Address:
    """Take an address apart from its end; the longest beginning that is a file stands whole.

    Raises `UsageError` for a seq or a lane that cannot be.
    """
    rest, agent, seq = text, "", 0
    if text and is_file(text):
        return Address(text)
    if found := _seq_part.fullmatch(rest):
        rest, seq = found[1], _seq(text, found[2])
        if rest and is_file(rest):
            return Address(rest, "", seq)
    if found := _agent_part.fullmatch(rest):
        rest, agent = found[1], found[2]
    if (":" in rest or "@" in rest) and "/" not in rest and not is_file(rest):
        raise UsageError(f"{text!r} is no address", hint=f"write {FORM}")
    return Address("" if rest == "last" else rest, agent, seq)


def resolve(text: str, folder: Path | None = None, *, running: bool = False) -> Place:
    """The address and its file; `folder` and `running` say which session is meant where none is named (see
    `find_session`). Raises `UsageError` when there is no such session."""
    address = parse(text, _is_file)
    if address.session and _is_file(address.session):
        return Place(address, Path(address.session).expanduser())
    return Place(address, find_session(address.session, folder, running=running))


def require_event(reading: app.Reading, seq: int) -> None:
    """Raises `UsageError` when the session has no event `seq` (0 is the head and always there)."""
    events = reading.head().seq
    if seq > events:
        raise UsageError(f"there is no event {seq}: {reading.session} has {events}", hint="muse log lists them")


def _is_file(text: str) -> bool:
    try:
        return ("/" in text or "." in text) and Path(text).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, a home that does not exist: no file
        return False


def _seq(text: str, digits: str) -> int:
    seq = int(digits) if len(digits) <= len(str(SEQ_MAX)) else SEQ_MAX + 1
    if not 1 <= seq <= SEQ_MAX:
        raise UsageError(f"{text!r}: there is no event {digits[:20]}", hint="events are numbered 1, 2, 3 …")
    return seq
