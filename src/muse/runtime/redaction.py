"""What has to go so that a text is gone from a log: every leaf, content and digest that holds it, in any of its forms.

A plan is made by reading the whole log and changes nothing. Where the text went into model requests, their digests go,
too: a digest of something with one unknown word in it gives the word to whoever tries all words. What cannot be told
(a request that can no longer be rebuilt) counts as holding it. This module must not know files or who asks.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from muse.decide.context import Rules, next_request
from muse.errors import Incomplete, UsageError
from muse.event.codec import parse, parse_header
from muse.event.commitment import (
    Disclosed,
    Path,
    Shown,
    disclose,
    encode_disclosed,
    hide_more,
    parse_disclosed,
    steps,
)
from muse.event.envelope import Redacted, Unknown, decode
from muse.event.kinds import KINDS, ModelRequested
from muse.event.leaves import BLOB, INTEGER, STRING, Leaf, leaves
from muse.event.needles import Needles, Place, named_in
from muse.fold.evolve import evolve
from muse.fold.models import model_ref
from muse.fold.state import Session
from muse.log.protocol import Log, Stored
from muse.runtime.check.story import BROKEN

WORDS: Final = frozenset(
    {
        "args", "command", "error", "evidence", "message", "note", "partial", "raw", "reason", "shown", "summary",
        "system", "task", "text", "why",
    }
)  # fmt: skip
"""Keys whose text is somebody's words: what a redacted event says there is looked for in all others."""
WORDS_BYTES_MIN: Final = 12
"""Shorter words of an event stand in others by chance; `--text` takes them out, however short."""
CONTENT_BYTES_MAX: Final = 1 << 20
"""The largest content of a redacted event that is looked for elsewhere as a whole."""
ASIDE: Final = frozenset({"note.added", "files.changed", "approval.requested", "log.redacted", "session.closed"})
"""Types whose words go into no model request."""
CUT: Final = b" bytes left out;"
"""What stands in the line between head and tail of a shortened output (`effect.tool.output`)."""
DIGEST: Final[Path] = ("request_sha256",)


class Hiding(msgspec.Struct):
    """What of one event is to go; `call` is the call that it is about, "" for none; `clear` names keys that hold the
    text and can never be hidden."""

    seq: int
    type: str
    call: str = ""
    places: set[Place] = msgspec.field(default_factory=set)
    clear: tuple[str, ...] = ()

    @property
    def fields(self) -> list[str]:
        """The values concerned, as `a.b.0`."""
        return sorted({".".join(map(str, path)) for path, _ in self.places})


class Plan(msgspec.Struct):
    """What is to go: events by seq, and contents (root → bytes)."""

    events: dict[int, Hiding] = msgspec.field(default_factory=dict)
    blobs: dict[str, int] = msgspec.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.blobs or any(hiding.places for hiding in self.events.values()))

    def at(self, stored: Stored) -> Hiding:
        """The entry of an event, made when it is missing."""
        if stored.seq not in self.events:
            call = str(clear_values(stored).get("call", ""))
            self.events[stored.seq] = Hiding(stored.seq, parse_header(stored.header).type, call)
        return self.events[stored.seq]


def plan(log: Log, rules: Rules, texts: Iterable[bytes] = (), whole: Iterable[int] = ()) -> Plan:
    """What has to go so that no form of the `texts` is left, nor anything but clear keys of the events `whole`, nor
    their words elsewhere. Raises UsageError for a seq that is not there, Damaged for a log that cannot be read."""
    wanted = set(whole)
    found = Plan()
    head = log.head().seq
    for seq in wanted:
        if not 1 <= seq <= head:
            raise UsageError(f"there is no event {seq}: the log has {head}", hint="muse log lists them")
    needles = Needles([*texts, *_words_of(log, wanted)])
    digests = set(_in_events(log, needles, wanted, found))
    digests |= set(_in_blobs(log, needles, wanted, found))
    if digests:
        _in_events(log, Needles((), exact=digests), set(), found)
    _at_cuts(log, needles, found)
    if found:
        _in_requests(log, rules, needles, wanted, found)
    return found


def leaves_for(log: Log, found: Plan) -> dict[int, bytes]:
    """What replaces the body of each event of the plan (docs/format.md §4)."""
    made = {}
    for seq, hiding in found.events.items():
        if hiding.places:
            stored = next(log.read(after=seq - 1, before=seq + 1))
            made[seq] = encode_disclosed(_hidden(stored, hiding))
    return made


def _hidden(stored: Stored, hiding: Hiding) -> Disclosed:
    def hide_piece(path: Path, piece: int) -> bool:
        return (path, piece) in hiding.places

    if stored.body is not None and stored.key is not None:
        return disclose(parse(stored.body), stored.key, lambda _: False, hide_piece=hide_piece)
    return hide_more(parse_disclosed(stored.hidden or b"[]"), lambda _: False, hide_piece=hide_piece)


# ---------------------------------------------------------------------- where it stands


def _shown(stored: Stored) -> list[Leaf]:
    """The leaves that are (still) there."""
    if stored.body is not None:
        return leaves(parse(stored.body))
    return [entry.leaf for entry in parse_disclosed(stored.hidden or b"[]").leaves if isinstance(entry, Shown)]


def clear_values(stored: Stored) -> dict[str, object]:
    """The values of an event's top level that are still there, though the event may have been redacted: texts and
    numbers."""
    if stored.body is not None:
        return parse(stored.body)
    found: dict[str, object] = {}
    for leaf in _shown(stored):
        path = steps(leaf.path)
        if len(path) == 1 and leaf.kind in (STRING, INTEGER):
            text = leaf.text.decode()
            found[str(path[0])] = int(text) if leaf.kind == INTEGER else str(found.get(str(path[0]), "")) + text
    return found


def _clear(stored: Stored) -> frozenset[str]:
    head = parse_header(stored.header)
    kind = KINDS.get(head.type)
    return kind.clear if kind is not None and head.v <= kind.version else frozenset()


def _values(shown: Iterable[Leaf]) -> dict[bytes, bytes]:
    """The texts of the string values, by the text of their path."""
    found: dict[bytes, bytes] = {}
    for leaf in shown:
        if leaf.kind == STRING:
            found[leaf.path] = found.get(leaf.path, b"") + leaf.text
    return found


def _words_of(log: Log, wanted: set[int]) -> Iterator[bytes]:
    """What the events that go say in words, and what their contents are."""
    for seq in wanted:
        stored = next(log.read(after=seq - 1, before=seq + 1))
        shown = _shown(stored)
        for path, text in _values(shown).items():
            key = next((step for step in reversed(steps(path)) if isinstance(step, str)), "")
            if key in WORDS and len(text.strip()) >= WORDS_BYTES_MIN:
                yield text.strip()
        for named in named_in(shown):
            content = _content(log, named.root)
            if content is not None and WORDS_BYTES_MIN <= len(content.strip()) <= CONTENT_BYTES_MAX:
                yield content.strip()


def _in_events(log: Log, needles: Needles, wanted: set[int], found: Plan) -> list[bytes]:
    """Note the places in bodies; returns the digests of the values that hold it."""
    digests: list[bytes] = []
    for stored in log.read():
        shown = _shown(stored)
        places = needles.places(shown)
        if stored.seq in wanted:
            places |= {(steps(leaf.path), leaf.piece) for leaf in shown if leaf.kind != BLOB}
        if not places:
            continue
        clear = _clear(stored)
        hiding = found.at(stored)
        hiding.places |= {place for place in places if place[0][:1] and place[0][0] not in clear}
        if stored.seq not in wanted:
            stuck = {str(path[0]) for path, _ in places if path[:1] and path[0] in clear}
            hiding.clear = tuple(sorted({*hiding.clear, *stuck}))
        paths = {path for path, _ in hiding.places}
        digests += [_sha256(text) for path, text in _values(shown).items() if steps(path) in paths and len(text) > 1]
    return digests


def _at_cuts(log: Log, needles: Needles, found: Plan) -> None:
    """Note the lines beside the cut of a shortened output that end or begin with a part of it: the whole is hidden."""
    for stored in log.read() if found.blobs else ():
        shown = _shown(stored)
        if not {named.root for named in named_in(shown)} & found.blobs.keys():
            continue
        lines = [leaf for leaf in shown if leaf.kind == STRING]
        for before, cut, after in zip(lines, lines[1:], lines[2:], strict=False):
            if not (cut.text.startswith(b"[... ") and CUT in cut.text and before.path == cut.path == after.path):
                continue
            if needles.is_cut_at_end(before.text.removesuffix(b"\n")):
                found.at(stored).places.add((steps(before.path), before.piece))
            if needles.is_cut_at_start(after.text):
                found.at(stored).places.add((steps(after.path), after.piece))


def _in_blobs(log: Log, needles: Needles, wanted: set[int], found: Plan) -> list[bytes]:
    """Note the contents that hold it; returns their digests, as events and git name them. What came over the wire from
    a model whose words are hidden goes unseen: there, the words may be cut into pieces."""
    looked_at: set[str] = set()
    for stored in log.read():
        hiding = found.events.get(stored.seq)
        is_wire = hiding is not None and bool(hiding.places) and hiding.type in ("model.responded", "model.failed")
        for named in named_in(_shown(stored)):
            must = stored.seq in wanted or (is_wire and named.path[:1] == ("raw",))
            if named.root in found.blobs or (named.root in looked_at and not must):
                continue
            looked_at.add(named.root)
            if must or _holds(log, named.root, needles):
                found.blobs[named.root] = _length(log, named.root)
    found.blobs = {root: length for root, length in found.blobs.items() if length >= 0}
    return [digest for root in found.blobs for digest in _digests(log, root, found.blobs[root])]


def _holds(log: Log, root: str, needles: Needles) -> bool:
    try:
        return needles.is_in_parts(log.stream_blob(root))
    except Incomplete:  # hidden before
        return False


def _length(log: Log, root: str) -> int:
    """Bytes of a content, -1 when it was hidden before."""
    try:
        return sum(len(chunk) for chunk in log.stream_blob(root))
    except Incomplete:
        return -1


def _content(log: Log, root: str) -> bytes | None:
    try:
        return log.get_blob(root)
    except Incomplete:
        return None


def _digests(log: Log, root: str, length: int) -> list[bytes]:
    plain, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % length, usedforsecurity=False)
    for chunk in log.stream_blob(root):
        plain.update(chunk)
        git.update(chunk)
    return [plain.hexdigest().encode(), git.hexdigest().encode()] if length else []


def _sha256(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


# ---------------------------------------------------------------------- what was sent to models


def _in_requests(log: Log, rules: Rules, needles: Needles, wanted: set[int], found: Plan) -> None:
    """Note the digests of requests that held it, each rebuilt from the log; from where that cannot be done on, and
    after a whole event that models were told of, all of them."""
    first = min((seq for seq, hiding in found.events.items() if hiding.places), default=0)
    told = [seq for seq in wanted if seq in found.events and found.events[seq].type not in ASIDE]
    certain_until = min(told, default=2**62)
    state: Session | None = Session(session=log.session)
    for stored in log.read():
        event = decode(stored.header, stored.body, stored.hidden)
        asked = event.body if isinstance(event.body, ModelRequested) and stored.seq > first else None
        if asked is not None and (stored.seq > certain_until or _sent(state, event.agent, asked, rules, needles)):
            found.at(stored).places.add((DIGEST, 0))
        if isinstance(event.body, Redacted | Unknown) and event.type not in ASIDE:
            state = None
        if state is not None:
            try:
                evolve(state, event)
            except BROKEN:  # the log's story is an impossible one: nothing can be rebuilt
                state = None


def _sent(state: Session | None, agent_id: str, asked: ModelRequested, rules: Rules, needles: Needles) -> bool:
    agent = state.agents.get(agent_id) if state is not None else None
    if (
        state is None
        or state.settings is None
        or agent is None
        or model_ref(state, agent).dialect not in rules.builders
    ):
        return True
    try:
        return needles.is_in(next_request(state, agent, rules, asked.purpose).body)
    except BROKEN:
        return True
