"""The lines of a Codex rollout before they are read: the two families told apart, items of one response put together,
what stands twice told from what stands once.

One pass takes down what is needed; it must not make events.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from muse.event.content import Usage
from muse.ingest.lines import Line, Lines, Value, at, moment, number, objects, text

ENVELOPES: Final = frozenset(
    {
        "session_meta",
        "turn_context",
        "response_item",
        "event_msg",
        "compacted",
        "world_state",
        "inter_agent_communication",
    }
)
ITEMS: Final = frozenset({"message", "reasoning", "function_call", "custom_tool_call", "local_shell_call"})
"""What a response is made of, with the calls that the provider makes itself (`…_call`)."""
CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
PARTS: Final = frozenset(
    {
        "input_text", "output_text", "text", "input_image", "input_file", "input_audio", "refusal", "reasoning_text",
        "summary_text", "encrypted_content",
    }
)  # fmt: skip
"""The kinds of parts that a content or an output is made of, those too that become no words."""
ENDS: Final = frozenset({"exec_command_end", "patch_apply_end", "mcp_tool_call_end"})
BY_PROGRAM: Final = re.compile(
    r"\s*(?:<(?:user_instructions|environment_context|turn_aborted|permissions[ _]instructions|collaboration_mode|"
    r"skills?(?:_instructions)?|apps_instructions|plugins_instructions|multi_agent_mode|user_shell_command|"
    r"subagent_notification|INSTRUCTIONS|system-reminder|hook_context|model_switch)\b[^>]*>|"
    r"# AGENTS\.md instructions for )"
)
"""How text begins that stands in a person's place and is the program's."""

_uuid7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


class Fact(msgspec.Struct, kw_only=True):
    """What is known of a line: its envelope (`line` where it is none), the type inside it, and what ties it to others.
    `twice`: it says again, for display, what another line says."""

    index: int
    envelope: str = ""
    kind: str = ""
    time: str = ""
    call: str = ""
    role: str = ""
    words: str = ""
    id: str = ""
    turn: str = ""
    usage: Usage | None = None
    totals: tuple[int, ...] = ()
    twice: bool = False
    repeated: bool = False

    @property
    def is_item(self) -> bool:
        """Whether it is a part of a response."""
        if self.envelope == "event_msg":
            return self.kind in ("agent_message", "agent_reasoning", "AgentMessage") and not self.twice
        if self.envelope != "response_item":
            return False
        return self.role == "assistant" if self.kind == "message" else self.kind in ITEMS or self.kind.endswith("_call")

    @property
    def ends_response(self) -> bool:
        """Whether what follows belongs to another response."""
        if self.envelope == "response_item":
            return self.kind in OUTPUTS or (self.kind == "message" and self.role != "assistant")
        ends = ("task_started", "task_complete", "turn_started", "turn_complete", "turn_aborted", "user_message")
        return self.envelope in ("compacted", "session_meta") or (self.envelope == "event_msg" and self.kind in ends)


class Group(msgspec.Struct):
    """The lines of one response, and the tokens that were counted for it."""

    indexes: list[int]
    usage: Usage = Usage()


def payload_of(line: Line) -> tuple[str, Value]:
    """The envelope and what is in it; lines of the old family have none around them."""
    value = line.value or {}
    kind, inside = text(value, "type"), at(value, "payload")
    if isinstance(inside, dict):
        return kind or "no type", inside
    if kind in ENVELOPES:
        return kind, {}
    if kind in ITEMS or kind in OUTPUTS or kind.endswith("_call"):
        return "response_item", value
    if not kind and text(value, "id") and ("instructions" in value or "git" in value or "timestamp" in value):
        return "session_meta", value
    return "", value


def facts_of(lines: Lines) -> list[Fact]:
    """A fact for each line."""
    found = [_fact(index, line) for index, line in enumerate(lines)]
    _mark_twice(found)
    _mark_repeated(found, lines)
    return found


def _fact(index: int, line: Line) -> Fact:
    envelope, inside = payload_of(line)
    kind = text(inside, "type")
    item = at(inside, "item")
    if kind == "item_completed" and isinstance(item, dict):
        kind, source = text(item, "type"), item
    else:
        source = inside
    fact = Fact(
        index=index, envelope=envelope, kind=kind, time=moment(at(line.value, "timestamp")),
        call=text(inside, "call_id"), role=text(source, "role"), id=text(source, "id"), turn=text(inside, "turn_id"),
    )  # fmt: skip
    if kind in ("message", "user_message", "agent_message", "agent_reasoning", "UserMessage", "AgentMessage"):
        fact.words = words_of(source)
    if kind == "token_count":
        fact.totals, fact.usage = _tokens(inside)
    return fact


def unknown_parts(item: Value) -> Iterator[str]:
    """The kind of each part of a message's content, or of an output, that is none of `PARTS`."""
    for name in ("content", "output"):
        found = item.get(name)
        for part in found if isinstance(found, list) else []:
            if isinstance(part, dict) and text(part, "type") not in PARTS:
                yield text(part, "type") or "no type"


def words_of(source: Value) -> str:
    """The words of a message, whichever way it is written down."""
    for name in ("message", "text"):
        if isinstance(source.get(name), str):
            return str(source[name])
    content = source.get("content")
    if isinstance(content, str):
        return content
    parts = []
    for part in content if isinstance(content, list) else []:
        if words := text(part, "text"):
            parts.append(words)
        elif "image" in text(part, "type").lower():
            parts.append("[image]")
    return "\n".join(parts)


def _tokens(inside: Value) -> tuple[tuple[int, ...], Usage | None]:
    """The running totals, and what is said of the last request alone."""
    total, last = at(inside, "info", "total_token_usage"), at(inside, "info", "last_token_usage")
    if not isinstance(total, dict):
        return (), None
    return _five(total), _usage(_five(last))


def _five(counts: object) -> tuple[int, ...]:
    names = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens",
             "reasoning_output_tokens")  # fmt: skip
    return tuple(number(counts, name) for name in names)


def _usage(counts: Sequence[int]) -> Usage:
    """Codex counts cached tokens among those that went in."""
    whole, cached, written, out, reasoning = counts
    fresh = max(whole - cached - written, 0)
    return Usage(input=fresh, output=out, cache_read=cached, cache_write=written, reasoning=reasoning)


def _mark_twice(facts: Sequence[Fact]) -> None:
    """`event_msg` lines that say what a `response_item` says: by id, or by their words, as often as those stand."""
    items = [fact for fact in facts if fact.envelope == "response_item"]
    ids = {fact.id for fact in items if fact.id}
    said = {role: Counter(fact.words for fact in items if fact.role == role) for role in ("user", "assistant")}
    reasons = any(fact.kind == "reasoning" for fact in items)
    for fact in facts:
        if fact.envelope != "event_msg":
            continue
        if fact.kind in ("user_message", "UserMessage"):
            fact.twice = _taken(said["user"], fact)
        elif fact.kind in ("agent_message", "AgentMessage"):
            fact.twice = _taken(said["assistant"], fact)
        elif fact.kind in ("agent_reasoning", "agent_reasoning_raw_content", "Reasoning"):
            fact.twice = reasons or fact.id in ids


def _taken(said: Counter[str], fact: Fact) -> bool:
    if said[fact.words] > 0:
        said[fact.words] -= 1
        return True
    return False


def _mark_repeated(facts: Sequence[Fact], lines: Lines) -> None:
    """A fork begins with its own meta and then repeats its parent's lines, the parent's meta first. What is its own
    begins with the first turn whose id is younger than its own (both hold the time that they were made at), or, without
    such ids, with the first line that is later than its own meta."""
    metas = [fact for fact in facts if fact.envelope == "session_meta"]
    if len(metas) < 2:
        return
    own, has_turns = metas[0], any(_uuid7.fullmatch(fact.turn) for fact in facts)
    for fact in facts[metas[1].index :]:
        if _uuid7.fullmatch(own.id) and _uuid7.fullmatch(fact.turn):
            if fact.turn > own.id:
                return
        elif not has_turns and fact.time > own.time:
            return
        fact.repeated = True


def groups_of(facts: Sequence[Fact]) -> dict[int, Group]:
    """Responses, by their first line. Tokens are counted by what the running totals grew by since the last count."""
    found: dict[int, Group] = {}
    current: Group | None = None
    last: Group | None = None
    before: tuple[int, ...] = ()
    for fact in facts:
        if fact.is_item:
            if current is None:
                current = last = Group([])
                found[fact.index] = current
            current.indexes.append(fact.index)
        elif fact.ends_response:
            current = None
        elif fact.totals:
            grown = _grown(before, fact)
            before = fact.totals
            if last is not None and not fact.repeated:
                last.usage = _added(last.usage, grown)
    return found


def _grown(before: tuple[int, ...], fact: Fact) -> Usage:
    if not before:
        before = (0,) * len(fact.totals)
    steps = [now - then for now, then in zip(fact.totals, before, strict=True)]
    if any(step < 0 for step in steps):  # the totals began anew
        return fact.usage or Usage()
    return _usage(steps)


def _added(a: Usage, b: Usage) -> Usage:
    return Usage(**{name: min(getattr(a, name) + getattr(b, name), 2**53) for name in Usage.__struct_fields__})


def calls_in(facts: Sequence[Fact]) -> set[str]:
    """The ids of all calls that the model made."""
    return {fact.call for fact in facts if fact.envelope == "response_item" and fact.kind in CALLS and fact.call}


def summary_words(inside: Value) -> str:
    """What a reasoning item shows of itself."""
    parts = [text(part, "text") for name in ("summary", "content") for part in objects(inside, name)]
    return "\n\n".join(part for part in parts if part)
