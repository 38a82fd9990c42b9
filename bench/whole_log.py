"""A log as a whole: making events, checking all of them, opening, folding; and how that grows.

The session is one agent that reads files for a very long time: request, response, start, result of 400 bytes.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from bench.bodies import finished, text_of
from bench.fleet import SETTINGS, TOOL
from bench.measure import Figure, Section, Sizes, rates
from muse.event import codec
from muse.event.commitment import commit
from muse.event.content import Block
from muse.event.kinds import COMMANDS, AgentSpawned, ModelRequested, ModelResponded, ToolStarted, UserPrompted
from muse.fold.state import STATE_VERSION
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.runtime.checkpoint import fold, write_state
from muse.runtime.seal import seal
from muse.runtime.session import claim

BATCH = 1_000
SHA = "one SHA-256 over the same bytes"


def bodies(count: int) -> Iterator[msgspec.Struct]:
    """So many events of the session, from its agent on."""
    yield AgentSpawned(system="You read files.", tools=(TOOL.name,))
    yield UserPrompted(text="Read on.")
    text = text_of("400 B")
    for number in range(1, count, 2):
        call, run = f"main/{number}", f"main/{number + 1}"
        yield ModelRequested(
            call=call, attempt=1, provider="scripted", model="-", builder="scripted/1", items=number,
            request_sha256="0" * 64, request_bytes=1000,
        )  # fmt: skip
        use = Block(kind="tool_use", id=f"use_{number}", name=TOOL.name, args='{"path": "src/parser.py"}')
        yield ModelResponded(call=call, attempt=1, blocks=(use,), stop="tool_use", duration_ms=800)
        yield ToolStarted(call=run, attempt=1, tool=TOOL.name, args=use.args, recovery="opaque", allowed_by="yolo")
        yield finished(run, 1, text)


def make(path: Path, count: int) -> None:
    """A closed log of `count` events."""
    with SqliteLog.create(path, "s", commands=COMMANDS) as log:
        ownership = claim(log, SETTINGS, str(path.parent), lambda _epoch: (TOOL,))
        source = bodies(count)
        head = 1
        while head < count:
            drafts = [seal(body, "main", 0) for body in islice(source, min(BATCH, count - head))]
            head = log.append(drafts, [], head, ownership.epoch).head.seq


def section(folder: Path, sizes: Sizes) -> Section:
    """Rates at each size."""
    figures: list[Figure] = []
    for count in sizes.events:
        figures += _made(count, sizes.rounds)
        path = folder / f"{count}.muse"
        make(path, count)
        figures += _read(path, count, sizes.rounds)
    figures.sort(key=lambda figure: _ORDER.index(figure.name.partition(", ")[0]))
    return Section(
        title="Making, verifying, opening and folding a log",
        before=(
            "One agent's session: requests, responses, starts, and results of 400 bytes. *Open* follows the chain "
            "of stored roots through the whole file. *Verify* checks every byte of every event against its "
            "commitment and the chain, and starts further processes only for logs that are large enough. *Fold* "
            "decodes every event and computes the state; from a checkpoint, it reads a state written at 9/10 of the "
            "log and folds the rest.",
        ),
        parts=(tuple(figures),),
        after=(
            "A rate that stays the same from line to line is linear growth. Verifying costs a multiple of one plain "
            "hash because each leaf has a salt of its own (three more hashes) and a place in a tree: that is what "
            "redaction and single-line disclosure are paid with.",
        ),
    )


_ORDER = ("encode", "commit", "verify on one core", "verify on all cores", "open", "fold", "fold from a checkpoint")


def _made(count: int, rounds: int) -> list[Figure]:
    made = list(islice(bodies(count), count))
    plain = [codec.canonical(body) for body in made]
    key = bytes(32)

    def encode() -> None:
        for body in made:
            codec.canonical(body)

    def dump() -> None:
        for _, body in plain:
            json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    def commit_all() -> None:
        for _, body in plain:
            commit(body, key)

    def digest() -> None:
        for data, _ in plain:
            hashlib.sha256(data).digest()

    encodes, dumps, commits, digests = rates(count, rounds, encode, dump, commit_all, digest)
    return [
        _figure("encode", count, encodes, "json.dumps of the same", dumps),
        _figure("commit", count, commits, SHA, digests),
    ]


def _read(path: Path, count: int, rounds: int) -> list[Figure]:
    with SqliteLog.open(path, check=False) as log:
        state = fold(log, before=count * 9 // 10, checkpoints=False)
        decoder = msgspec.json.Decoder()

        def hash_all() -> None:
            whole = hashlib.sha256()
            for stored in log.read():
                whole.update(stored.header)
                whole.update(stored.body or b"")

        def decode_all() -> None:
            for stored in log.read():
                decoder.decode(stored.header)
                decoder.decode(stored.body or b"{}")

        def open_and_check() -> None:
            SqliteLog.open(path, read_only=True).close()

        def verify_with(jobs: int | None) -> Callable[[], None]:
            def work() -> None:
                assert verify(log, jobs=jobs).exit_code == 0

            return work

        def fold_all() -> None:
            fold(log, checkpoints=False)

        ones, alls, opens, folds, hashes, decodes = rates(
            count, rounds, verify_with(1), verify_with(None), open_and_check, fold_all, hash_all, decode_all
        )
        log.save_checkpoint(state.seq, STATE_VERSION, write_state(state))
        tails, again = rates(count, rounds, lambda: fold(log), decode_all)
    reading, decoding = "read the rows, one SHA-256 over them", "read the rows, decode their JSON"
    return [
        _figure("verify on one core", count, ones, reading, hashes),
        _figure("verify on all cores", count, alls, reading, hashes),
        _figure("open", count, opens, reading, hashes),
        _figure("fold", count, folds, decoding, decodes),
        _figure("fold from a checkpoint", count, tails, decoding, again),
    ]


def _figure(
    name: str, count: int, samples: tuple[float, ...], reference: str, reference_samples: tuple[float, ...]
) -> Figure:
    return Figure(
        name=f"{name}, {count:,} events", unit="events/s", samples=samples, reference=reference,
        reference_samples=reference_samples,
    )  # fmt: skip
