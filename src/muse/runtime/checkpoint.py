"""Fold checkpoints: the state as bytes, written now and then so that opening costs the tail and not the whole log.

A cache: it may be deleted at any time, and a full fold gives the same state.
"""

import msgspec

from muse.event.envelope import decode
from muse.fold.evolve import evolve
from muse.fold.state import STATE_VERSION, Session
from muse.log.protocol import Log

CHECKPOINT_EVERY_EVENTS = 2_000
CHECKPOINT_GROWTH = 8
"""A checkpoint is written when the log has grown by this part of itself, at least by CHECKPOINT_EVERY_EVENTS: a state
is as large as what the log holds, so that even steps would write the square of it. The tail stays a ninth at most."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Session)


def next_checkpoint(seq: int) -> int:
    """The seq from which on the next checkpoint is to be written, when one was (or none is wanted) at `seq`."""
    return seq + max(CHECKPOINT_EVERY_EVENTS, seq // CHECKPOINT_GROWTH)


def write_state(state: Session) -> bytes:
    """The state as msgpack."""
    return _ENCODER.encode(state)


def read_state(data: bytes) -> Session:
    """The state that `write_state` wrote. Raises `msgspec.DecodeError` when the bytes are none."""
    return _DECODER.decode(data)


def fold(log: Log, *, before: int | None = None, checkpoints: bool = True) -> Session:
    """The state after the last event (or the last one below `before`), from the newest usable checkpoint."""
    state = Session(session=log.session)
    found = log.load_checkpoint(STATE_VERSION, None if before is None else before - 1) if checkpoints else None
    if found is not None:
        try:
            state = read_state(found[1])
        except msgspec.MsgspecError:
            state = Session(session=log.session)
    for stored in log.read(after=state.seq, before=before):
        evolve(state, decode(stored.header, stored.body, stored.hidden))
    return state
