"""How transcripts that near a model's window get shorter: how large they are, what could leave them, and what they are
after a `context.compacted`. Used by `evolve`, and by the rules that decide it.

Sizes are tokens as the provider counted them where it did, and a share of the bytes where it did not. What is folded
of them never depends on the items themselves, so that states without transcripts fold on like whole ones.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from muse.event.content import Usage
from muse.event.conversation import Answered, Resulted, Said, TranscriptItem, bytes_of
from muse.event.envelope import Event
from muse.event.kinds import ContextCompacted, ModelResponded
from muse.event.text import cut
from muse.fold.models import facts_of, fallback_of, may_retry, model_ref
from muse.fold.state import Agent, Session
from muse.fold.turns import MOVED

COMPACTED_SINCE: Final = 3
"""The first version of the rules under which transcripts get shorter."""
BYTES_A_TOKEN: Final = 4
"""Where no provider has counted."""
BULKY_BYTES_MIN: Final = 2_000
"""Results below this stay."""
RESULTS_KEPT_MAX: Final = 6
"""So many of the newest bulky results stay as they are, within `TAIL_SHARE`."""
TAIL_SHARE: Final = 4
"""The newest quarter of what a request may hold stays as it is."""
RECALLED_BYTES: Final = 30_000
"""So much the tool `recall` gives at once, unless it is asked for less (`effect/tool/output.py`)."""
WORDS_SHARE: Final = 8
"""What people said has an eighth of it, the summary another."""
WORDS_BYTES_MAX: Final = 16_000
SUMMARY_BYTES_MAX: Final = 24_000
HEAD_BYTES_MAX: Final = 1_000
"""What stands around a summary."""
GAIN_SHARE: Final = 20
"""A compaction frees at least a twentieth of what a request may hold, for it costs the provider's cache."""
REFUSED_PERMILLE: Final = 700
"""Of the size of a request that was too large, the share that the next may have."""
LEFT_OUT_NAMED_MAX: Final = 50
NO_SUMMARY_NEEDED: Final = frozenset({"auth", "rate_limited", "overloaded", "network"})
"""Failures that say that the provider cannot be asked at all: nothing is given up for them."""

HEAD: Final = (
    "[To make room, this part of the conversation was replaced by a summary: {answers} of your answers and what their"
    " calls returned, events #{first} to #{last}.{words} {recall}]\n\n"
)
WORDS: Final = " What people said stands above it in their own words, as far as there is room.{left_out}"
LEFT_OUT: Final = " Left out of that: {seqs}."
CUT_WORDS: Final = "\n[The rest of this message is left out; read it with recall(from={seq}, to={seq}).]"
RECALL: Final = "Nothing is lost: recall(from={first}, to={last}) reads it again, with query=… only what holds a text."
NO_RECALL: Final = "What is left out stays in the log of the session."


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What can be done next to make a transcript shorter: the results of `calls` leave it, each
    for a `line`, or the items before `cut` are summarised. `gain` is the bytes that this frees, at least."""

    method: Literal["results", "summary"]
    gain: int
    calls: tuple[str, ...] = ()
    line: str = ""
    first: int = 0
    last: int = 0
    cut: int = 0


# -- sizes -------------------------------------------------------------------------------------------------------------


def tokens(agent: Agent) -> int:
    """About how large the agent's next request is."""
    waiting = sum(bytes_of(said) for said in agent.steers)
    if agent.context_tokens:
        return agent.context_tokens + (agent.added_bytes + waiting) // BYTES_A_TOKEN
    return (_fixed_bytes(agent) + agent.items_bytes + waiting) // BYTES_A_TOKEN


def limit(state: Session, agent: Agent) -> int:
    """How large it may be, in tokens; 0 where that is not known. What the model's window leaves for the answer counts,
    and that a smaller request was too large before."""
    settings = state.settings
    if settings is None:
        return 0
    window = facts_of(settings, model_ref(state, agent)).context_tokens if settings.compact_permille else 0
    most = min(window * settings.compact_permille // 1000, max(window - settings.output_tokens_max, window // 2))
    refused = agent.refused_tokens * REFUSED_PERMILLE // 1000
    return min(most, refused) if most and refused else most or refused


def _fixed_bytes(agent: Agent) -> int:
    """What every request of the agent begins with."""
    return len(agent.system) + sum(len(spec.description) + len(spec.schema) for spec in agent.tools)


def _share(most: int, share: int, bytes_max: int) -> int:
    return min(most * BYTES_A_TOKEN // share, bytes_max) if most else bytes_max


def summary_bytes_max(state: Session, agent: Agent) -> int:
    """How long a summary may be."""
    return _share(limit(state, agent), WORDS_SHARE, SUMMARY_BYTES_MAX)


# -- what could be done ------------------------------------------------------------------------------------------------


def next_step(state: Session, agent: Agent) -> Step | None:
    """What to do before the agent's next request, if it would be too large and something helps. Old bulky results
    leave first, where that is enough; then older turns are summarised; results that the model has not seen yet leave
    last. Constant time while there is room."""
    most = limit(state, agent)
    if state.rules < COMPACTED_SINCE or state.imported or not most:
        return None
    excess = tokens(agent) - most
    if excess <= 0:
        return None
    least = most * BYTES_A_TOKEN // GAIN_SHARE
    old = _results(agent, most, least, fresh=False)
    if old is not None and (agent.refused_tokens or old.gain >= excess * BYTES_A_TOKEN):
        return old
    return _summary(agent, most, least) or old or _results(agent, most, least, fresh=True)


def _results(agent: Agent, most: int, least: int, *, fresh: bool) -> Step | None:
    """The bulky results that may leave; with `fresh` also those that the model has not answered to yet."""
    items, kept, room = agent.items, 0, most * BYTES_A_TOKEN // TAIL_SHARE
    seen_before = _last_answer(items)
    found: list[Resulted] = []
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if not isinstance(item, Resulted) or (size := bytes_of(item)) < BULKY_BYTES_MIN:
            continue
        if not fresh and (at > seen_before or (kept < RESULTS_KEPT_MAX and size <= room)):
            kept, room = kept + 1, room - size
        else:
            found.append(item)
    line = _line(agent, most, max(map(bytes_of, found), default=0))
    gain = sum(bytes_of(item) - bytes_of(_short(item, line)) for item in found)
    if not found or gain < least:
        return None
    seqs = [item.seq for item in found]
    calls = tuple(item.call for item in reversed(found))
    return Step(method="results", gain=gain, calls=calls, first=min(seqs), last=max(seqs), line=line)


def _summary(agent: Agent, most: int, least: int) -> Step | None:
    at = cut_at(agent.items, most)
    head = agent.items[:at]
    gone = sum(map(bytes_of, head)) - sum(map(bytes_of, _words(head, _words_room(most))[0]))
    gain = gone - _share(most, WORDS_SHARE, SUMMARY_BYTES_MAX) - HEAD_BYTES_MAX
    if at == 0 or gain < least:
        return None
    return Step(method="summary", gain=gain, cut=at)


def scope(state: Session, agent: Agent) -> int:
    """How many items the request for a summary holds: all, which the provider has in its cache, where they fit."""
    if not agent.refused_tokens and _fits(state, agent):
        return len(agent.items)
    return cut_at(agent.items, limit(state, agent)) or len(agent.items)


def _fits(state: Session, agent: Agent) -> bool:
    settings = state.settings
    assert settings is not None
    window = facts_of(settings, model_ref(state, agent)).context_tokens
    return tokens(agent) < window - min(settings.output_tokens_max, window // TAIL_SHARE)


def cut_at(items: Sequence[TranscriptItem], most: int) -> int:
    """Where the items that stay as they are begin: the newest ones that fill `TAIL_SHARE`, in any case the last answer
    with all that followed it. Never between a tool use and its result. 0: nothing would be before them."""
    last = _last_answer(items)
    room = most * BYTES_A_TOKEN // TAIL_SHARE - sum(map(bytes_of, items[max(last, 0) :]))
    at = group = max(last, 0)
    while group > 0 and room > 0:
        group -= 1
        room -= bytes_of(items[group])
        if room >= 0 and not isinstance(items[group], Resulted):
            at = group
    return at


def _last_answer(items: Sequence[TranscriptItem]) -> int:
    """Where the model last answered; -1 if it never did."""
    return next((at for at in range(len(items) - 1, -1, -1) if isinstance(items[at], Answered)), -1)


def _line(agent: Agent, most: int, largest: int) -> str:
    """The line that stands for a result that left: `{bytes}` and `{call}` are filled in. Where a request of `most`
    tokens has no room for the `largest` of them, or what `recall` gives of it at once, it says how much to ask for:
    what is too large leaves again before the model has seen it."""
    room = most * BYTES_A_TOKEN // TAIL_SHARE
    part = f", limit={room}" if room < min(largest, RECALLED_BYTES) else ""
    again = f' Read it again with recall(call="{{call}}"{part}).' if has_recall(agent) else ""
    return f"[To make room, this result of {{bytes}} bytes has left the conversation.{again}]"


def has_recall(agent: Agent) -> bool:
    """Whether the agent can read again what left."""
    return any(spec.name == "recall" for spec in agent.tools)


# -- what it is afterwards ---------------------------------------------------------------------------------------------


def compacted(state: Session, event: Event, body: ContextCompacted) -> set[str]:
    """The transcript is another list from here on. A call that was too large, or that waited for the summary, is asked
    again."""
    agent = state.agents.get(event.agent)
    if agent is None or state.imported:
        return set()
    agent.items = shortened(state, agent, body, event.seq)
    fixed = _fixed_bytes(agent)
    if agent.context_tokens:
        whole = agent.context_tokens + agent.added_bytes // BYTES_A_TOKEN
        agent.context_tokens = max(1, whole * (body.bytes_after + fixed) // max(1, agent.items_bytes + fixed))
    agent.items_bytes, agent.added_bytes, agent.cause = body.bytes_after, 0, event.seq
    if body.method != "results":
        agent.summary, agent.summary_call, agent.summary_upto = "", "", 0
        agent.compacted_from = agent.compacted_from or body.first
        if agent.aside is not None:
            agent.call, agent.aside = msgspec.structs.replace(agent.aside, phase="retry"), None
    if agent.call is not None:
        agent.call.cause = event.seq
    return {event.agent}


def shortened(state: Session, agent: Agent, body: ContextCompacted, seq: int) -> list[TranscriptItem]:
    """The agent's items after this compaction."""
    if body.method == "results":
        calls = frozenset(body.calls)
        return [
            _short(item, body.text) if isinstance(item, Resulted) and item.call in calls else item
            for item in agent.items
        ]
    at = max(len(agent.items) - body.kept, 0)
    head, tail = agent.items[:at], agent.items[at:]
    words, left_out = _words(head, _words_room(limit(state, agent)))
    answers = sum(1 if isinstance(item, Answered) else item.answers for item in head if not isinstance(item, Resulted))
    text = _around(agent, body, answers, bool(words), left_out) + body.text
    return [*words, Said(seq=seq, text=text, source="summary", answers=answers), *tail]


def _short(item: Resulted, line: str) -> Resulted:
    text = line.replace("{bytes}", f"{bytes_of(item):,}").replace("{call}", item.call)
    return msgspec.structs.replace(item, text=text)


def _around(agent: Agent, body: ContextCompacted, answers: int, words: bool, left_out: Sequence[int]) -> str:
    named = ", ".join(f"#{one}" for one in left_out[:LEFT_OUT_NAMED_MAX])
    more = f" and {len(left_out) - LEFT_OUT_NAMED_MAX} more" if len(left_out) > LEFT_OUT_NAMED_MAX else ""
    said = WORDS.format(left_out=LEFT_OUT.format(seqs=named + more) if left_out else "") if words else ""
    recall = RECALL.format(first=body.first, last=body.last) if has_recall(agent) else NO_RECALL
    return HEAD.format(answers=answers, first=body.first, last=body.last, words=said, recall=recall)


def _words_room(most: int) -> int:
    return _share(most, WORDS_SHARE, WORDS_BYTES_MAX)


def _words(head: Sequence[TranscriptItem], room: int) -> tuple[list[TranscriptItem], list[int]]:
    """What people said in this part, in their own words: the first message, then the newest ones for which there is
    room, cut where they are long; and the events of those that are left out. Where the agent works is told among them.
    """
    begun = next((at for at, item in enumerate(head) if isinstance(item, Answered)), len(head))
    said = [item for at, item in enumerate(head) if isinstance(item, Said) and _stays(item, early=at < begun)]
    if not said:
        return [], []
    first = _cut_words(said[0], room // 2)
    room -= bytes_of(first)
    kept: list[TranscriptItem] = []
    at = len(said) - 1
    while at > 0 and room > 0:
        one = _cut_words(said[at], room // 2)
        room -= bytes_of(one)
        if room >= 0:
            kept.append(one)
            at -= 1
    return [first, *reversed(kept)], [one.seq for one in said[1 : at + 1]]


def _stays(said: Said, *, early: bool) -> bool:
    if said.source == "notice":
        return early or said.text.startswith(MOVED.partition("{")[0])
    return said.source in ("prompt", "steer")


def _cut_words(said: Said, room: int) -> Said:
    if bytes_of(said) <= room:
        return said
    note = CUT_WORDS.format(seq=said.seq)
    return msgspec.structs.replace(said, text=cut(said.text, max(room - len(note) - 60, 200), 0).text + note)


# -- the calls that bring it about -------------------------------------------------------------------------------------


def responded(agent: Agent, body: ModelResponded) -> None:
    """The summary is written; it enters no transcript by itself. One without words counts as none."""
    agent.summary = "\n\n".join(block.text.strip() for block in body.blocks if block.kind == "text").strip()
    agent.summary_call = body.call


def measured(agent: Agent, usage: Usage) -> None:
    """How large the transcript is, as the provider counted it with the answer that it just gave."""
    asked = usage.input + usage.cache_read + usage.cache_write
    agent.context_tokens = asked + usage.output if asked else 0
    agent.added_bytes = 0


def failed(state: Session, agent: Agent) -> None:
    """What a failure of the open call means here. A summary that cannot be had is done without; a request that is too
    large is asked again when it has got shorter: at once, and for good when that did not help."""
    call = agent.call
    if call is None or call.phase != "failed" or state.rules < COMPACTED_SINCE or state.imported:
        return
    if call.purpose == "summary":
        goes_on = may_retry(state, call) or fallback_of(state, agent) is not None
        if not goes_on and call.failure not in NO_SUMMARY_NEEDED:
            agent.summary, agent.summary_call, agent.call = "", call.key, None
    elif call.failure == "too_large":
        size = tokens(agent)
        agent.refused_tokens = min(agent.refused_tokens or size, size)
        if call.items > 2 and call.request_bytes < (call.refused_bytes or call.request_bytes + 1):
            call.phase = "retry"
        call.refused_bytes = call.request_bytes
