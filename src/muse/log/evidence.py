"""What a recovered log says about the damaged one: which events are lost, and whether the old chain fits what is there.

The old chain is followed again over the saved events, from the old session's name, across the gaps by the values that
the recovery kept (docs/format.md §6.1). This module must not know how events are kept.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from muse.event.commitment import chain, genesis
from muse.event.kinds import LogRecovered
from muse.log.protocol import Stored

RECOVERED: Final = "log.recovered"
_TYPE: Final = b'"type":"log.recovered"'
GAPS_SHOWN: Final = 5


class Evidence(NamedTuple):
    """`fault` is the first event at which the old chain does not fit, 0 for none."""

    source: str
    gaps: list[tuple[int, int]]
    lost: int
    lost_blobs: frozenset[str]
    head: int
    head_hash: str
    fault: int

    @property
    def words(self) -> str:
        """What is lost, in one line."""
        gaps = self.gaps[:GAPS_SHOWN]
        some = ", ".join(f"#{first}" if first == last else f"#{first}–#{last}" for first, last in gaps)
        more = f" and {len(self.gaps) - GAPS_SHOWN} more gaps" if len(self.gaps) > GAPS_SHOWN else ""
        lost = f"{self.lost} events are lost ({some}{more})" if self.lost else "no event is lost"
        blobs = f", {len(self.lost_blobs)} blobs are lost or in part" if self.lost_blobs else ""
        if self.fault:
            return f"saved from {self.source}, but its chain does not fit"
        head = f"; its head was {self.head}:{self.head_hash}" if self.head_hash else ""
        return f"saved from {self.source}: {lost}{blobs}{head}"


class _OldChain:
    """Follows the damaged log's chain; `value` is None where nothing is known."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.value: bytes | None = genesis(source)
        self.gaps: list[tuple[int, int]] = []
        self.lost_blobs: set[str] = set()
        self.summary: LogRecovered | None = None
        self.fault = 0
        self._after = ""

    def add(self, event: Stored) -> None:
        """Take the next event."""
        fact = fact_of(event)
        if fact is None or fact.source != self._source:  # a fact of an earlier recovery was saved like any other
            self._saved(event)
        elif fact.cut or not fact.first_lost:
            self._end(event.seq, fact)
        else:
            self._lost(event.seq, fact)

    def _saved(self, event: Stored) -> None:
        known = self.value
        if known is None:
            self.value = _value(self._after)
        else:
            self.value = chain(known, event.header, event.count, event.root)
            self._hold(event.seq, self._after)
        self._after = ""

    def _lost(self, seq: int, fact: LogRecovered) -> None:
        if seq == fact.first_lost:
            self.gaps.append((fact.first_lost, fact.last_lost))
            self._hold(seq, fact.hash_before)
        known, self._after = self.value, fact.hash_after
        self.value = None
        root = _value(fact.root)
        if known is not None and root is not None and 0 < fact.leaves < 2**32:
            self.value = chain(known, fact.header.encode(), fact.leaves, root)

    def _end(self, seq: int, fact: LogRecovered) -> None:
        self._hold(seq, fact.hash_before if fact.cut else fact.head_hash)
        if fact.cut:
            self.gaps.append((fact.first_lost, fact.last_lost))
        self.lost_blobs |= {blob.root for blob in fact.blobs}
        self.summary = fact

    def _hold(self, seq: int, expected: str) -> None:
        """The old chain must have this value here, as far as both are known."""
        if expected and self.value is not None and self.value.hex() != expected and not self.fault:
            self.fault = seq


def fact_of(event: Stored) -> LogRecovered | None:
    """The body of a `log.recovered`, None for any other event."""
    return read_fact(event.body) if event.body is not None and _TYPE in event.header else None


def read_fact(body: bytes) -> LogRecovered | None:
    """The body of a `log.recovered`, None where it does not fit."""
    try:
        return msgspec.json.decode(body, type=LogRecovered)
    except msgspec.MsgspecError:
        return None


def _value(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text) or None
    except ValueError:
        return None


def evidence(events: Iterable[Stored], source: str) -> Evidence | None:
    """What the events of a recovered log say, up to the recovery's last fact; None where that is missing."""
    old = _OldChain(source)
    for event in events:
        old.add(event)
        if old.summary is not None:
            fact = old.summary
            return Evidence(
                source, old.gaps, fact.lost, frozenset(old.lost_blobs), fact.head, fact.head_hash, old.fault
            )
    return None
