"""Server-sent events, parsed from bytes cut anywhere (WHATWG HTML, 9.2.6).

Taken: LF, CRLF and CR line ends, comments, several data lines, a byte order mark, fields without a colon. `id` and
`retry` mean nothing here. This module must not know what the data holds.
"""

from typing import Final

import msgspec

HEAD_BYTES_MAX: Final = 1024 * 1024
"""How much of a body without any event is kept, to see what it is instead."""

_MARK: Final = b"\xef\xbb\xbf"
_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")


class Event(msgspec.Struct, frozen=True):
    """One event: its name ("" when none was given) and its data lines, joined by LF."""

    name: str
    data: bytes


class EventParser:
    """Feed bytes, get events. `head` holds the first bytes of the body while no event has been seen."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.seen = False
        self._buffer = bytearray()
        self._searched = 0
        self._data: list[bytes] = []
        self._name = ""
        self._at_start = True

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes."""
        if not self.seen and len(self.head) < HEAD_BYTES_MAX:
            self.head += data[: HEAD_BYTES_MAX - len(self.head)]
        self._buffer += data
        if self._at_start and not self._skip_mark():
            return []
        events: list[Event] = []
        start = 0
        while (end := self._line_end(max(start, self._searched))) is not None:
            line = bytes(self._buffer[start : end[0]])
            start = self._searched = end[1]
            self._take(line, events)
        self._searched = max(start, len(self._buffer) - 1) - start
        del self._buffer[:start]
        return events

    def finish(self) -> list[Event]:
        """The stream has ended: what stands there without its blank line, for the caller to judge."""
        events: list[Event] = []
        self._take(bytes(self._buffer).rstrip(b"\r"), events)
        self._buffer.clear()
        self._take(b"", events)
        return events

    def torn(self) -> bool:
        """Whether the body ended inside its first event (or before it), as far as can be told."""
        start = bytes(self.head[:64]).removeprefix(_MARK).lstrip()
        return not self.seen and any(start.startswith(name) or name.startswith(start) for name in _FIELDS)

    def _skip_mark(self) -> bool:
        """False while it cannot be told whether the body starts with a byte order mark."""
        if len(self._buffer) < len(_MARK) and _MARK.startswith(self._buffer):
            return False
        self._at_start = False
        if self._buffer.startswith(_MARK):
            del self._buffer[: len(_MARK)]
        return True

    def _line_end(self, start: int) -> tuple[int, int] | None:
        """Where the line that is being read ends and where the next begins. A CR at the end of what came so far is
        not judged before the next byte, which may be its LF."""
        feed = self._buffer.find(b"\n", start)
        carriage = self._buffer.find(b"\r", start, feed if feed >= 0 else len(self._buffer))
        if carriage < 0:
            return None if feed < 0 else (feed, feed + 1)
        if carriage + 1 == len(self._buffer):
            return None
        return carriage, carriage + (2 if self._buffer[carriage + 1] == 0x0A else 1)

    def _take(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data:
                events.append(Event(self._name, b"\n".join(self._data)))
                self.seen = True
                self.head.clear()
            self._data, self._name = [], ""
            return
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace")
