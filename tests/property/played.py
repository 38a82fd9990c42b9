"""Logs that were played in memory, as readings, whole or with parts missing; and what is true of them, told in the
plainest way: all events folded and all rows made from the front."""

from collections.abc import Sequence
from random import Random

import msgspec

from muse.event import codec
from muse.event.commitment import chain, genesis
from muse.event.envelope import Event, decode
from muse.event.kinds import COMMANDS
from muse.fold.evolve import evolve
from muse.fold.state import Session
from muse.log.memory import MemoryLog, MemoryPlace
from muse.log.protocol import Stored
from muse.runtime.checkpoint import read_state, write_state
from muse.runtime.reading import Reading
from muse.view.timeline import Context, Row, rows

Bytes = tuple[bytes, bytes | None]


def place_of(stored: Sequence[Bytes], session: str = "s") -> MemoryPlace:
    """These headers and bodies as a log. Commitments are not real: only the chain over them is."""
    place, last = MemoryPlace(session), genesis(session)
    for seq, (header, body) in enumerate(stored, 1):
        last = chain(last, header, 1, bytes(32))
        hidden = b"[]" if body is None else None
        place.events.append(Stored(seq, header, body, bytes(32), 1, bytes(32), last, hidden))
    return place


def reading_of(place: MemoryPlace) -> Reading:
    """That log, open."""
    return Reading(MemoryLog(place, commands=COMMANDS))


def mutilated(stored: Sequence[Bytes], chance: Random) -> list[Bytes]:
    """The same log as others may leave it: bodies redacted, types that nobody knows, events that are not there."""
    found: list[Bytes] = []
    for header, body in stored:
        what = chance.randrange(12)
        head = codec.parse_header(header)
        if what == 0 and head.type != "session.opened":
            continue
        kind = "later.invented" if what == 1 else head.type
        fields = msgspec.structs.asdict(head) | {"seq": len(found) + 1, "cause": 0, "type": kind}
        found.append((codec.encode_header(**fields), None if what == 2 else body))
    return found


def events_of(stored: Sequence[Bytes]) -> list[Event]:
    """The events, decoded."""
    return [decode(header, body, b"[]" if body is None else None) for header, body in stored]


def states_of(events: Sequence[Event], session: str = "s") -> list[Session]:
    """The state after each event (and before the first), transcripts taken out, as far as the log can be folded."""
    state = Session(session=session)
    found = [_without_items(state)]
    for event in events:
        try:
            evolve(state, event)
        except (AssertionError, LookupError):
            break
        found.append(_without_items(state))
    return found


def _without_items(state: Session) -> Session:
    agents = {agent_id: msgspec.structs.replace(agent, items=[]) for agent_id, agent in state.agents.items()}
    return read_state(write_state(msgspec.structs.replace(state, agents=agents)))


def rows_of(events: Sequence[Event]) -> list[Row]:
    """The rows as `muse log` makes them, from the front."""
    return [row for _, row in rows(events, Context())]
