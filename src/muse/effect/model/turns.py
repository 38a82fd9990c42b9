"""From transcript items to alternating turns, the shape that every wire dialect builds from.

Results stand in the order of the tool uses they answer, ahead of what people said meanwhile; neighbours of one role
are one turn. This module must not know any wire dialect.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from muse.event.content import Block
from muse.event.conversation import Answered, Resulted, Said, TranscriptItem

EMPTY_TEXT: Final = "(empty)"
"""What is sent where a provider wants text and there is none: an empty prompt, the result of a silent command."""

TRANSCRIPTS_KEPT_MAX: Final = 512
"""Transcripts whose turns are kept between requests."""

TURNS_REMEMBERED: Final = 32_768
"""Turns whose JSON text a dialect keeps: a session sends the same ones in request after request."""


class Use(msgspec.Struct, frozen=True):
    """One block of a response. `sent_id` is the tool use's id in the request; "" for any other block."""

    block: Block
    sent_id: str = ""


class AssistantTurn(msgspec.Struct, frozen=True, cache_hash=True):
    """What the model said between two user turns."""

    uses: tuple[Use, ...]


class UserTurn(msgspec.Struct, frozen=True, cache_hash=True):
    """What the model is told next: results as (id in the request, result), then texts; never nothing."""

    results: tuple[tuple[str, Resulted], ...]
    texts: tuple[str, ...]


Turn = AssistantTurn | UserTurn


class _Kept(msgspec.Struct, frozen=True):
    """The beginning of a transcript, already cut: `taken` are the ids that its tool uses were sent with."""

    items: tuple[TranscriptItem, ...] = ()
    turns: tuple[Turn, ...] = ()
    taken: frozenset[str] = frozenset()


_kept: Final[dict[tuple[re.Pattern[str], TranscriptItem], _Kept]] = {}


def turns(items: Sequence[TranscriptItem], usable_id: re.Pattern[str]) -> list[Turn]:
    """Alternating turns. Asserts the contract of ModelRequest: each tool use has exactly one result, next to it.

    An id that matches `usable_id` is sent as it is. One that does not, or that an earlier response used already
    (some servers count from zero in each), is replaced by one made from where it stands: `muse_SEQ_INDEX`.

    A transcript only grows, so what stands before its last response is kept for the next request: the same turns,
    which a dialect may know again. Equal items give equal turns whether any were kept or not.
    """
    whole = tuple(items)
    if not whole:
        return []
    settled = _start_of_last_response(whole)
    key = (usable_id, whole[0])
    kept = _kept.pop(key, _Kept())
    if len(kept.items) > settled or whole[: len(kept.items)] != kept.items:
        kept = _Kept()
    taken = set(kept.taken)
    before = (*kept.turns, *_cut(whole[len(kept.items) : settled], taken, usable_id))
    _kept[key] = _Kept(whole[:settled], before, frozenset(taken))
    if len(_kept) > TRANSCRIPTS_KEPT_MAX:
        _kept.pop(next(iter(_kept)), None)
    return [*before, *_cut(whole[settled:], taken, usable_id)]


def _start_of_last_response(items: tuple[TranscriptItem, ...]) -> int:
    """Where the last assistant turn begins: nothing before it changes any more. 0 if there is none."""
    at = len(items)
    while at > 0 and not isinstance(items[at - 1], Answered):
        at -= 1
    while at > 0 and isinstance(items[at - 1], Answered):
        at -= 1
    return at


def _cut(items: tuple[TranscriptItem, ...], taken: set[str], usable_id: re.Pattern[str]) -> list[Turn]:
    """The turns of a part of a transcript that begins where a turn does; adds to `taken`."""
    found: list[Turn] = []
    at = 0
    while at < len(items):
        uses: list[Use] = []
        while at < len(items) and isinstance(answered := items[at], Answered):
            uses.extend(_uses(answered, taken, usable_id))
            at += 1
        if uses:
            found.append(AssistantTurn(tuple(uses)))
        start = at
        while at < len(items) and not isinstance(items[at], Answered):
            at += 1
        found.extend(_user_turn(items[start:at], [use for use in uses if use.sent_id]))
    return found


def distinct(blocks: Sequence[Block], response_id: str) -> tuple[Block, ...]:
    """The blocks of one response, each tool use with an id of its own.

    A missing id, or one that an earlier tool use of the response has, is replaced by one made from the response and
    the place in it, so that decoding the same bytes again gives the same id.
    """
    seen: set[str] = set()
    found: list[Block] = []
    for index, block in enumerate(blocks):
        if block.kind == "tool_use" and (not block.id or block.id in seen):
            made = f"{response_id}\0{index}\0{block.name}\0{block.args}".encode()
            block = msgspec.structs.replace(block, id=f"call_{hashlib.sha256(made).hexdigest()[:24]}")
        seen.add(block.id)
        found.append(block)
    return tuple(found)


def _uses(answered: Answered, taken: set[str], usable_id: re.Pattern[str]) -> list[Use]:
    uses: list[Use] = []
    for index, block in enumerate(answered.blocks):
        sent = ""
        if block.kind == "tool_use":
            sent = (
                block.id if usable_id.fullmatch(block.id) and block.id not in taken else f"muse_{answered.seq}_{index}"
            )
            taken.add(sent)
        uses.append(Use(block, sent))
    return uses


def _user_turn(items: Sequence[TranscriptItem], uses: list[Use]) -> list[Turn]:
    waiting: dict[str, list[Resulted]] = {}
    texts: list[str] = []
    for item in items:
        if isinstance(item, Resulted):
            waiting.setdefault(item.use, []).append(item)
        elif isinstance(item, Said) and item.text.strip():
            texts.append(item.text)
    results: list[tuple[str, Resulted]] = []
    for use in uses:
        answers = waiting.get(use.block.id)
        assert answers, f"the tool use {use.block.id!r} has no result"
        results.append((use.sent_id, answers.pop(0)))
    assert not any(waiting.values()), "a result answers no tool use of the response before it"
    if items and not results and not texts:
        texts.append(EMPTY_TEXT)
    return [UserTurn(tuple(results), tuple(texts))] if items else []
