"""Fold checkpoints: the state as bytes, written now and then so that opening costs the tail and not the whole log.

A cache: it may be deleted at any time, and a full fold gives the same state.
"""

import hashlib
from typing import Final

import msgspec

from muse.event.envelope import decode
from muse.fold.evolve import evolve
from muse.fold.state import STATE_VERSION, Session
from muse.log.protocol import Log

CHECKPOINT_EVERY_EVENTS = 2_000
CHECKPOINT_GROWTH = 8
"""A checkpoint is written when the log has grown by this part of itself, at least by CHECKPOINT_EVERY_EVENTS: a state
is as large as what the log holds, so that even steps would write the square of it. The tail stays a ninth at most."""

CHECKPOINTS_TRIED_MAX: Final = 8
"""So many older ones are looked at where the newest cannot be used, before everything is folded."""
DIGEST_BYTES: Final = 16

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Session)


def next_checkpoint(seq: int) -> int:
    """The seq from which on the next checkpoint is to be written, when one was (or none is wanted) at `seq`."""
    return seq + max(CHECKPOINT_EVERY_EVENTS, seq // CHECKPOINT_GROWTH)


def write_state(state: Session) -> bytes:
    """The state as a digest and msgpack: a file that rots must not change what a session is taken to be."""
    data = _ENCODER.encode(state)
    return _digest(data) + data


def read_state(data: bytes) -> Session:
    """The state that `write_state` wrote. Raises `msgspec.DecodeError` when the bytes are none."""
    if _digest(data[DIGEST_BYTES:]) != data[:DIGEST_BYTES]:
        raise msgspec.DecodeError("this is no state, or not as it was written")
    return _DECODER.decode(data[DIGEST_BYTES:])


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def fold(log: Log, *, before: int | None = None, checkpoints: bool = True) -> Session:
    """The state after the last event (or the last one below `before`), from the newest usable checkpoint."""
    state = _newest(log, before) if checkpoints else Session(session=log.session)
    for stored in log.read(after=state.seq, before=before):
        evolve(state, decode(stored.header, stored.body, stored.hidden))
    return state


def _newest(log: Log, before: int | None) -> Session:
    """The state of the newest checkpoint that can be used, or the one before the first event."""
    below = None if before is None else before - 1
    for _ in range(CHECKPOINTS_TRIED_MAX):
        found = log.load_checkpoint(STATE_VERSION, below)
        if found is None:
            break
        try:
            state = read_state(found[1])
        except msgspec.MsgspecError:
            below = found[0] - 1
            continue
        if (state.seq, state.session) == (found[0], log.session):
            return state
        below = found[0] - 1
    return Session(session=log.session)
