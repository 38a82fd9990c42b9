"""When and how a transcript gets shorter, as decisions: which results leave it, how a summary is asked for, what stands
there where none could be had. Pure; what is large and what may leave is `fold.compaction`'s matter.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from muse.event.conversation import Answered, Resulted, Said, TranscriptItem, bytes_of
from muse.event.kinds import ContextCompacted
from muse.event.text import cut
from muse.fold import compaction
from muse.fold.state import Agent, Session

INSTRUCTION: Final = """\
[The conversation is about to become too long, so the older part of it will be replaced by a summary, which you write
now. Answer with the summary alone, and call no tools. It is for yourself: you will go on with the task with nothing
else of that part at hand but the messages of people, which stay.
Say, in this order and without padding:
- what is wanted, and what was settled on the way: decisions, constraints, what people corrected or refused;
- what was done: which files were read, made or changed, and how; which commands were run, and what came of them;
- what is known now that took effort to find out: names, places, numbers, causes of errors, word for word;
- what is not done yet, what failed, what is in doubt, and the very next step.]"""

PLAIN_HEAD: Final = "No summary could be had. This is a list of what there was:"
PLAIN_WORDS_CHARACTERS: Final = 200
PLAIN_ARGUMENTS_CHARACTERS: Final = 160
HEAD_SHARE: Final = 4
"""Of a text that is too long, its first quarter is kept, and its end."""
CUT_LINE_BYTES: Final = 60
"""Room for the line that says how much is left out."""


def before_request(state: Session, agent: Agent) -> ContextCompacted | Literal["summary", ""]:
    """What comes before the agent's next request: a compaction, a request for a `summary`, or nothing. The agent has no
    open model call, or one that is to be asked again."""
    if agent.summary_call:
        return _summarised(state, agent)
    if agent.call is not None and agent.call.purpose == "summary":
        return ""
    step = compaction.next_step(state, agent)
    if step is None:
        return ""
    if step.method == "summary":
        return "summary"
    body = ContextCompacted(first=step.first, last=step.last, method="results", calls=step.calls, text=step.line)
    return _measured(state, agent, body)


def summary_items(state: Session, agent: Agent) -> Sequence[TranscriptItem]:
    """What the request for a summary tells the model, without the wish for one."""
    return agent.items[: compaction.scope(state, agent)]


def wish(agent: Agent) -> Said:
    """The last item of such a request."""
    return Said(seq=agent.cause, text=INSTRUCTION, source="summary")


def _summarised(state: Session, agent: Agent) -> ContextCompacted:
    at = min(compaction.cut_at(agent.items, compaction.limit(state, agent)), agent.summary_upto)
    head, most = agent.items[:at], compaction.summary_bytes_max(state, agent)
    seqs = [item.seq for item in head] or [agent.cause]
    body = ContextCompacted(
        first=agent.compacted_from or min(seqs),
        last=max(seqs),
        method="summary",
        text=_bounded(agent.summary or plain(head), most),
        call=agent.summary_call if agent.summary else "",
        kept=len(agent.items) - at,
    )
    return _measured(state, agent, body)


def _measured(state: Session, agent: Agent, body: ContextCompacted) -> ContextCompacted:
    after = sum(map(bytes_of, compaction.shortened(state, agent, body, 0)))
    return msgspec.structs.replace(body, bytes_before=agent.items_bytes, bytes_after=after)


def _bounded(text: str, bytes_max: int) -> str:
    head = bytes_max // HEAD_SHARE
    return cut(text, head, max(bytes_max - head - CUT_LINE_BYTES, 0)).text


# -- where no model says it --------------------------------------------------------------------------------------------


def plain(items: Sequence[TranscriptItem]) -> str:
    """The prompts and calls of a part of a transcript, a line each."""
    return "\n".join([PLAIN_HEAD, *_plain_lines(items)])


def _plain_lines(items: Sequence[TranscriptItem]) -> Iterator[str]:
    failed = {item.call for item in items if isinstance(item, Resulted) and item.error}
    calls = _calls_of(items)
    for item in items:
        if isinstance(item, Said):
            yield f"- #{item.seq} {item.source}: {_line(item.text, PLAIN_WORDS_CHARACTERS)}"
        elif isinstance(item, Answered):
            for block in item.blocks:
                if block.kind == "text" and block.text.strip():
                    yield f"- #{item.seq} you: {_line(block.text, PLAIN_WORDS_CHARACTERS)}"
                elif block.kind == "tool_use":
                    call = calls.get((item.seq, block.id), "")
                    said = f"- {call} {block.name} {_line(block.args, PLAIN_ARGUMENTS_CHARACTERS)}"
                    yield said + (": it failed" if call in failed else "")


def _calls_of(items: Sequence[TranscriptItem]) -> dict[tuple[int, str], str]:
    """The key of each tool use, by the event of its response and its id there."""
    found: dict[tuple[int, str], str] = {}
    seq = 0
    for item in items:
        if isinstance(item, Answered):
            seq = item.seq
        elif isinstance(item, Resulted):
            found[seq, item.use] = item.call
    return found


def _line(text: str, characters_max: int) -> str:
    line = " ".join(text.split())
    return json.dumps(line if len(line) <= characters_max else line[:characters_max] + "…", ensure_ascii=False)
