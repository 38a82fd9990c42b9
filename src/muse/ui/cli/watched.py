"""A session as somebody watches it who does not run it: rows of all agents, and on a terminal what they stream.

Words come line by line, each agent's behind its name, so that several may speak at once; the line that one is in the
middle of stands last and is written over. The log says everything again: what was shown as it came is not shown twice,
and what was missed is shown from the event that restates it. This module must not know where signals come from.
"""

import os
import shutil
from collections import deque
from typing import Final

from muse.event.envelope import Event
from muse.event.kinds import (
    EffectReconciled,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    SessionOpened,
    ToolFinished,
    ToolStarted,
)  # fmt: skip
from muse.event.signal import Piece
from muse.ui.cli.live import Live, without_words
from muse.ui.cli.output import WIDTH_MAX
from muse.view.text import paint
from muse.view.visible import columns, fit, visible, wrap

EARLY_MAX: Final = 256
"""Pieces that wait for the event that begins their call; they come no more than a moment before it."""
ROOM_MIN: Final = 20
"""Columns that are left for words, however narrow the terminal."""
LINE_CHARS_MAX: Final = 4000
"""Of a line of a command's output that is longer only the end is shown."""


class _Voice:
    """What one call streams: `shown` is what a model said so far, `rest` the unfinished line of it."""

    def __init__(self, agent: str, attempt: int, *, speaks: bool) -> None:
        self.agent, self.attempt, self.speaks = agent, attempt, speaks
        self.shown = ""
        self.rest = ""

    @property
    def start(self) -> str:
        """What stands before each of its lines."""
        if self.speaks:
            return "" if self.agent == "main" else f"{self.agent} > "
        return "       │ " if self.agent == "main" else f"{self.agent:<6} │ "


class Watched(Live):
    """What is shown of a session that another process runs. `streams`: whether pieces are wanted at all."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        super().__init__(as_json=as_json, quiet=quiet)
        self.streams = self.err.terminal and not as_json and not quiet
        self._draws = os.environ.get("TERM") != "dumb"
        self._voices: dict[str, _Voice] = {}
        self._early: deque[Piece] = deque(maxlen=EARLY_MAX)
        self._ended: dict[str, int] = {}
        self._speaker: _Voice | None = None
        self._drawn = False

    def learn(self, event: Event) -> None:
        """Take in an event that is not shown."""
        super().learn(event)
        self._follow(event)

    def event(self, event: Event) -> None:
        """Show an event."""
        body = event.body
        if isinstance(body, ModelResponded):
            event = self._restated(event, body)
        elif isinstance(body, ModelFailed | ToolFinished):
            self._finish_line(self._voices.get(body.call))
        elif isinstance(body, SessionOpened):  # who spoke until now was another owner's
            for voice in self._voices.values():
                self._finish_line(voice)
        super().event(event)
        self._follow(event)

    def piece(self, piece: Piece) -> None:
        """Something that is streamed just now."""
        if not self._begun(piece) and not self._is_over(piece):
            self._early.append(piece)

    def settle(self) -> None:
        """Everything that the log holds is shown: pieces that came ahead of it can be."""
        for _ in range(len(self._early)):
            self.piece(self._early.popleft())

    def _begun(self, piece: Piece) -> bool:
        voice = self._voices.get(piece.call)
        if voice is None or piece.attempt > voice.attempt:
            return False
        if piece.attempt < voice.attempt or voice.speaks != (piece.kind == "text"):
            return True
        if not voice.speaks:
            self._speak(voice, piece.text)
        elif piece.at <= len(voice.shown):  # else some are missing, and the event that restates them shows them
            new = piece.text[len(voice.shown) - piece.at :]
            voice.shown += new
            self._speak(voice, new)
        return True

    def _is_over(self, piece: Piece) -> bool:
        number = piece.call.rpartition("/")[2]
        return not number.isdecimal() or int(number) <= self._ended.get(piece.agent, -1)

    def _follow(self, event: Event) -> None:
        body = event.body
        if isinstance(body, ModelRequested) and body.purpose == "turn":
            self._voices[body.call] = _Voice(event.agent, body.attempt, speaks=True)
        elif isinstance(body, ToolStarted) or (isinstance(body, EffectReconciled) and body.verdict == "attached"):
            self._voices[body.call] = _Voice(event.agent, body.attempt, speaks=False)
        elif isinstance(body, SessionOpened):
            self._voices.clear()
            self._speaker = None
        elif isinstance(body, ModelResponded | ToolFinished):
            voice = self._voices.pop(body.call, None)
            self._speaker = None if voice is self._speaker else self._speaker
            if isinstance(body, ModelResponded):  # calls of a batch end in any order, but after their request
                self._ended[event.agent] = int(body.call.rpartition("/")[2])

    def _restated(self, event: Event, body: ModelResponded) -> Event:
        """A response is whole: show what of its words was not seen; the event without words that were."""
        words = "".join(block.text for block in body.blocks if block.kind == "text")
        voice = self._voices.get(body.call)
        if not self.streams or voice is None or not (voice.shown or event.agent == "main"):
            self.signal(body.call, words)
            return event
        if words.startswith(voice.shown):
            self._speak(voice, words[len(voice.shown) :])
        else:  # it was told otherwise than it is recorded: what is recorded counts
            self._finish_line(voice)
            self._speak(voice, words)
        self._finish_line(voice)
        if event.agent == "main":
            self.answer, self._streamed = words, [words] if words else []
            self._speaking = body.call
            return event
        return without_words(event, body)

    # -- lines -------------------------------------------------------------------------------------------------------

    def _speak(self, voice: _Voice, text: str) -> None:
        room = max(self._width() - columns(voice.start), ROOM_MIN)
        *lines, rest = (voice.rest + visible(text).expandtabs(4)).split("\n")
        done = [part for line in lines for part in self._wrapped(voice, line, room)]
        *parts, voice.rest = self._wrapped(voice, rest, room)
        for line in (*done, *parts):
            self._put_line(voice, line)
        self._speaker = voice
        self._draw()

    def _wrapped(self, voice: _Voice, line: str, room: int) -> list[str]:
        return wrap(line, room) if voice.speaks else [fit(line[-LINE_CHARS_MAX:].rstrip("\r"), room)]

    def _put_line(self, voice: _Voice, text: str) -> None:
        look = "" if voice.speaks else "2"
        start = paint(voice.start, "2", self.err.colour)
        self._line(f"{start}{paint(text.rstrip(), look, self.err.colour)}".rstrip())

    def _finish_line(self, voice: _Voice | None) -> None:
        if voice is not None and voice.rest:
            rest, voice.rest = voice.rest, ""
            self._put_line(voice, rest)

    def _line(self, text: str) -> None:
        super()._line(text)
        self._draw()

    def _begin_line(self) -> None:
        if self._drawn:
            self._drawn = False
            self.err.write("\r\x1b[K")
        super()._begin_line()

    def _draw(self) -> None:
        """Write the line that somebody is in the middle of; what is written next takes its place."""
        voice = self._speaker
        self._begin_line()
        if voice is not None and voice.rest and self._draws and self.streams:
            self.err.write(fit(f"{voice.start}{voice.rest}", self._width() - 1))
            self._drawn = True

    def _width(self) -> int:
        return min(shutil.get_terminal_size().columns, WIDTH_MAX)
