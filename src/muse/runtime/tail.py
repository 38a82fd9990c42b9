"""The state at the end of a log that others write, kept up by reading what is new; without its transcripts.

Opening costs what follows the last checkpoint, keeping up what is new. Of a transcript the fold reads at most the last
item (see `light.py`), so that the rest is let go, and a hundred agents take little memory. It reads and never writes.
This module must not know how states are shown.
"""

from collections.abc import Callable, Iterator

from muse.event.conversation import Answered, TranscriptItem
from muse.event.envelope import Event, decode
from muse.event.kinds import FilesChanged
from muse.fold.evolve import evolve
from muse.fold.state import Session
from muse.log.protocol import Log
from muse.runtime.checkpoint import fold

BROKEN = (AssertionError, LookupError)
"""What folding a log raises that tells an impossible story."""


class Tail:
    """The end of one log. `broken` says why nothing more is folded."""

    def __init__(self, log: Log, spoke: Callable[[str, str], None]) -> None:
        """`spoke` gets each agent's last words up to here: agent, text. Raises what reading a log raises."""
        self._log = log
        self.broken = ""
        self.state = Session(session=log.session)
        try:
            self.state = fold(log)
        except BROKEN as error:
            self.broken = _says(error)
        for agent in self.state.agents.values():
            spoke(agent.id, _last_words(agent.items) or agent.result)
            del agent.items[:-1]

    def news(self) -> Iterator[Event]:
        """The events after the last one that was folded, each folded when it is given."""
        for stored in self._log.read(after=self.state.seq):
            event = decode(stored.header, stored.body, stored.hidden)
            if self.broken:
                return
            try:
                woken = evolve(self.state, event)
            except BROKEN:
                if not self._again(event.seq):
                    return
                woken = set(self.state.agents)
            for agent_id in {event.agent, *woken}:
                if agent_id in self.state.agents:
                    del self.state.agents[agent_id].items[:-1]
            yield event

    def _again(self, seq: int) -> bool:
        """Fold from the last checkpoint to an event that did not fit: what it needs may have been let go."""
        try:
            self.state = fold(self._log, before=seq + 1)
        except BROKEN as error:
            self.broken = _says(error)
            return False
        return True


def _says(error: Exception) -> str:
    return f"what is recorded does not fit together: {error}"


def _last_words(items: list[TranscriptItem]) -> str:
    for item in reversed(items):
        if isinstance(item, Answered):
            for block in reversed(item.blocks):
                if block.kind == "text" and block.text.strip():
                    return block.text
    return ""


def changes(log: Log, seqs: list[int]) -> Iterator[tuple[str, FilesChanged]]:
    """Who changed which files at these events."""
    for seq in seqs:
        stored = next(log.read(after=seq - 1, before=seq + 1), None)
        event = decode(stored.header, stored.body, stored.hidden) if stored is not None else None
        if event is not None and isinstance(event.body, FilesChanged):
            yield event.agent, event.body
