"""Giving drafts their place: seq, header bytes and chain value. Shared by every store; pure.

This module must not know how or where rows are kept.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from muse.errors import Conflict, Damaged, InvalidEvent
from muse.event.codec import BlobRef, blob_refs, encode_header, parse, parse_header
from muse.event.commitment import KEY_BYTES, chain, check_disclosed, commit, parse_disclosed
from muse.event.envelope import check_body
from muse.event.kinds import required_clear
from muse.log.protocol import Draft, Head, Stored

OPENED: Final = "session.opened"
CLOSED: Final = "session.closed"
ABOUT_THE_LOG: Final = frozenset({"log.redacted", "log.recovered", "head.signed"})
"""Facts about the log itself, not about the work: one that follows a close leaves the session closed."""
ROOT_BYTES: Final = 32
DECIDED: Final = "approval.decided"
PERSON: Final = "person"
DECIDED_WITH: Final = {"cancel.requested": "by", "model.changed": "reason"}
"""Of commands, the field with which they are decisions."""

_id: Final = re.compile(r"[0-9a-f]{32}")


class Row(NamedTuple):
    """One event as stores write it, in the order of the SQLite columns."""

    seq: int
    id: bytes
    header: bytes
    key: bytes
    leaf_count: int
    root: bytes
    hash: bytes
    body: bytes


def place(drafts: Iterable[Draft], head: Head, epoch: int) -> tuple[list[Row], Head]:
    """The rows that these drafts become after `head`, and the head after them. Raises InvalidEvent."""
    rows = []
    seq, last = head.seq, head.hash
    for draft in drafts:
        seq += 1
        if len(draft.key) != KEY_BYTES or len(draft.root) != ROOT_BYTES:
            raise InvalidEvent("a draft's key and root have 32 bytes each")
        header = encode_header(
            seq=seq,
            id=draft.id,
            time=draft.time,
            type=draft.type,
            v=draft.v,
            agent=draft.agent,
            cause=draft.cause,
            epoch=epoch,
        )
        last = chain(last, header, draft.count, draft.root)
        rows.append(Row(seq, bytes.fromhex(draft.id), header, draft.key, draft.count, draft.root, last, draft.body))
    return rows, Head(seq, last)


def named_blobs(drafts: Iterable[Draft]) -> dict[str, list[BlobRef]]:
    """The blobs that drafts name, by event id. Only bodies that hold the reserved key `blob` are parsed: inside a
    string its quotes would be escaped."""
    return {draft.id: blob_refs(parse(draft.body)) for draft in drafts if b'"blob":' in draft.body}


def is_same(draft: Draft, header: bytes, body: bytes | None) -> bool:
    """Whether a stored event is this draft: same type and body (of a redacted event only the type is left)."""
    return parse_header(header).type == draft.type and body in (None, draft.body)


def without_repeats(drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts without those said twice. Raises Conflict if an id stands for two contents."""
    seen: dict[str, Draft] = {}
    for draft in drafts:
        other = seen.setdefault(draft.id, draft)
        if (other.type, other.body) != (draft.type, draft.body):
            raise Conflict(f"event id {draft.id} is given to two contents")
    return list(seen.values())


def left_open(newest_first: Iterable[bytes], commands: Mapping[str, int]) -> bool:
    """Whether the last owner did not close, from the headers, newest first: commands that came in after the close
    (or before the first opening) do not count, for they need no owner, and facts about the log say nothing of it."""
    for header in newest_first:
        kind = parse_header(header).type
        if kind not in commands and kind not in ABOUT_THE_LOG:
            return kind != CLOSED
    return False


def listed_commands(body: bytes | None) -> dict[str, int] | None:
    """The newest version of each command type that a `session.opened` lists; None if it lists none."""
    if body is None:
        return None
    listed = parse(body).get("commands")
    if not isinstance(listed, list):
        return None
    found: dict[str, int] = {}
    for entry in listed:
        if isinstance(entry, dict) and isinstance(entry.get("type"), str) and isinstance(entry.get("v"), int):
            found[entry["type"]] = max(entry["v"], found.get(entry["type"], 0))
    return found


def check_command(draft: Draft, commands: Mapping[str, int], listed: Mapping[str, int] | None) -> None:
    """Raises InvalidEvent unless the draft is a command that any process may give, of a version that the session's
    owner understands, with a body that fits its type: no later reader could make sense of another."""
    if draft.type not in commands:
        raise InvalidEvent(f"{draft.type} is not a command")
    known = commands if listed is None else listed
    if draft.v > known.get(draft.type, 0):
        raise InvalidEvent(
            f"the running session does not know {draft.type} version {draft.v}",
            hint="it was opened by an older muse: close and resume it with this one",
        )
    check_body(draft.type, draft.v, draft.body)
    check_speaker(draft.type, draft.body)


def check_speaker(kind: str, body: bytes) -> None:
    """Raises InvalidEvent for a decision that is the owner's alone: one on an approval by a rule or a time-out, the
    cancelling that an agent's call wants, a fallback to another model."""
    if kind == DECIDED and (by := parse(body).get("by")) != PERSON:
        raise InvalidEvent(f"only the session's owner decides an approval by {by}")
    if (field := DECIDED_WITH.get(kind)) and parse(body).get(field):
        raise InvalidEvent(f"only the session's owner decides a {kind} with {field}")


def check_commitment(draft: Draft) -> None:
    """Raises InvalidEvent unless the draft has an id, and its count and root are those of its body: whoever submits
    may be anybody."""
    if not _id.fullmatch(draft.id):
        raise InvalidEvent(f"{draft.id!r} is no event id: 32 lower-case hex digits")
    found = commit(draft.body, draft.key)
    if (found.count, found.root) != (draft.count, draft.root):
        raise InvalidEvent("this command's root is not that of its body")


def check_link(previous: Head, event: Stored) -> Head:
    """The head after `event`. Raises Damaged, naming the event, if it does not follow `previous`."""
    expected = chain(previous.hash, event.header, event.count, event.root)
    if event.seq != previous.seq + 1:
        raise Damaged(f"event {previous.seq + 1} is missing", seq=previous.seq + 1)
    if expected != event.hash:
        raise Damaged(f"event {event.seq} does not fit the chain", seq=event.seq)
    return Head(event.seq, event.hash)


def check_leaves(seq: int, leaves: bytes, header: bytes, count: int, root: bytes) -> None:
    """Raises InvalidEvent unless these disclosed leaves may stand for event `seq` with this header and commitment."""
    read = parse_header(header)
    found = check_disclosed(parse_disclosed(leaves), required_clear(read.type, read.v))
    if (found.count, found.root) != (count, root):
        raise InvalidEvent(f"these leaves are not those of event {seq}")


def thinned(seqs: Iterable[int], newest: int) -> list[int]:
    """Which fold checkpoints to drop so that one is left for each doubling of the distance from the newest: the
    oldest of each, so that what is kept moves on slowly."""
    kept: dict[int, int] = {}
    for seq in sorted(seqs):
        kept.setdefault((newest - seq).bit_length() if seq <= newest else -1, seq)
    return sorted(set(seqs) - set(kept.values()))
