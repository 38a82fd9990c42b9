"""Codex's session files (rollouts) as events: both families, with and without an envelope around each line.

docs/imports.md says what is known of the format and what each line becomes. Events stand in the order of the lines; a
response stands where its first item does. This module must not know where the files are.
"""

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from muse.event.content import Block
from muse.event.kinds import (
    AgentSpawned,
    ApprovalDecided,
    ContextCompacted,
    FilesChanged,
    LogImported,
    ModelChanged,
    PolicyChanged,
    SessionRewound,
)
from muse.ingest.codex_lines import (
    BY_PROGRAM,
    CALLS,
    ENDS,
    OUTPUTS,
    Fact,
    Group,
    calls_in,
    facts_of,
    groups_of,
    payload_of,
    summary_words,
    unknown_parts,
    words_of,
)
from muse.ingest.edits import codex_changes, patch_changes
from muse.ingest.lines import Line, Lines, SourceFile, Value, at, exact, number, objects, text, written
from muse.ingest.writer import Answer, Import, Keep, Lane, Result, Use, Writer

FORMAT: Final = "codex"
MISSING: Final = ("tool schemas", "requests as they were sent", "approvals asked and given", "what was in flight")
NO_SYSTEM: Final = "the system prompt"
NO_TIMES: Final = "the times of lines"
NO_TOKENS: Final = "token counts"
SHOWN_AGAIN: Final = frozenset(
    {
        "user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "UserMessage",
        "AgentMessage", "Reasoning", "exec_command_begin", "patch_apply_begin", "mcp_tool_call_begin",
        "web_search_begin", "web_search_end", "context_compacted", "view_image_tool_call",
    }
)  # fmt: skip
PLAIN: Final = frozenset(
    {
        "task_started", "task_complete", "turn_started", "turn_complete", "agent_reasoning_section_break",
        "background_event", "error", "stream_error", "warning", "turn_diff", "plan_update", "entered_review_mode",
        "exited_review_mode", "session_configured", "thread_name_updated", "item_started", "shutdown_complete",
        "thread_goal_updated", "Plan", "CommandExecution", "FileChange", "McpToolCall", "WebSearch", "TodoList",
        "ContextCompaction", "ImageView", "thread_settings_applied", "deprecation_notice",
    }
)  # fmt: skip
"""Types of display lines that are known, and have no counterpart."""
REJECTED: Final = re.compile(r"(?i)(?:\w+ )*(?:command |patch )?rejected by (?:the )?user")
ABORTED: Final = re.compile(r"(?i)(?:command was )?aborted by (?:the )?user")
_exit: Final = re.compile(r"(?m)^(?:Process exited with code|Exit code:) (-?[0-9]{1,9})\s*$")
_wall: Final = re.compile(r"(?m)^Wall time: ([0-9]{1,9})(?:\.([0-9]{1,9}))? seconds\s*$")


def read(files: Sequence[SourceFile], keep: Keep) -> Import:
    """The events of a session's file, the first of those given."""
    return _Reader(files[0], keep).read()


class _Reader:
    def __init__(self, file: SourceFile, keep: Keep) -> None:
        self.file = file
        self.writer = Writer(FORMAT, keep)
        self.lines = Lines(file.data)
        self.facts = facts_of(self.lines)
        self.groups = groups_of(self.facts)
        self.calls = calls_in(self.facts)
        self.ends = {fact.call: fact.index for fact in self.facts if fact.kind in ENDS and fact.call}
        self.outputs = {fact.call: fact.index for fact in reversed(self.facts) if fact.kind in OUTPUTS and fact.call}
        self.lane = Lane("main")
        self.prompts: list[int] = []
        self.compacted = self.begun = 0
        self.model = self.mode = self.provider = self.workspace = ""
        self._reads: dict[str, Callable[[Line, Value, Fact], None]] = {
            "response_item": self._item, "event_msg": self._display, "turn_context": self._context,
            "compacted": self._compacted, "session_meta": self._meta,
        }  # fmt: skip

    def read(self) -> Import:
        about = self._about()
        lane, writer = self.lane, self.writer
        lane.at(next((fact.time for fact in self.facts if fact.time), ""))
        writer.add(lane, "", about, 0)
        system = self._system()
        self.model, self.workspace = about.model, about.workspace
        self.mode = next((_mode(inside) for inside in self._contexts()), "")
        body = AgentSpawned(system=system, model=self.model, mode=self.mode, workspace=self.workspace)
        self.begun = lane.cause = writer.add(lane, "", body, 1)
        for fact, line in zip(self.facts, self.lines, strict=True):
            lane.at(fact.time)
            lane.aside = "repeated" if fact.repeated else None
            envelope, inside = payload_of(line)
            for kind in unknown_parts(inside) if envelope == "response_item" else ():
                self.writer.met(self.file.name, f"part {kind}")
            if line.value is None:
                self._keep(line, "", "unreadable")
            elif (group := self.groups.get(fact.index)) is not None:
                self._answer(group)
                self._started(fact)
            elif fact.is_item:
                self._started(fact)
            else:
                self._reads.get(envelope, self._other)(line, inside, fact)
        lane.aside = None
        return writer.done(lane, {1: (about, self.file.name)})

    def _keep(self, line: Line, what: str, why: str = "no_counterpart") -> None:
        self.writer.keep(self.lane, "", line, what, why, self.file.name)  # type: ignore[arg-type]  # literals above

    # ------------------------------------------------------------------ the head

    def _metas(self) -> list[Value]:
        return [payload_of(self.lines[fact.index])[1] for fact in self.facts if fact.envelope == "session_meta"]

    def _contexts(self) -> list[Value]:
        return [
            payload_of(self.lines[fact.index])[1]
            for fact in self.facts
            if fact.envelope == "turn_context" and not fact.repeated
        ]

    def _system(self) -> str:
        """The system prompt of the first meta; the old header's `instructions` are the user's, not that."""
        meta = next(iter(self._metas()), None)
        return text(meta, "base_instructions", "text") or text(meta, "base_instructions")

    def _about(self) -> LogImported:
        metas, contexts = self._metas(), self._contexts()
        meta: Value = metas[0] if metas else {}
        self.provider = text(meta, "model_provider")
        missing = [*MISSING]
        if not self._system():
            missing.insert(0, NO_SYSTEM)
        if sum(1 for fact in self.facts if fact.time) <= 1 < len(self.facts):
            missing.append(NO_TIMES)
        if not any(fact.totals for fact in self.facts):
            missing.append(NO_TOKENS)
        parent = text(meta, "forked_from_id") or (text(metas[1], "id") if len(metas) > 1 else "")
        version = text(meta, "cli_version")
        return LogImported(
            source=self.file.name, format_name=FORMAT, events=len(self.lines), missing=tuple(missing),
            raw=self.writer.blob(self.file.data), sha256=sha256(self.file.data).hexdigest(),
            program=f"{text(meta, 'originator') or FORMAT} {version}".strip(),
            source_session=text(meta, "id") or text(meta, "session_id"), source_parent=parent,
            workspace=text(meta, "cwd") or next((text(one, "cwd") for one in contexts if text(one, "cwd")), "")
            or self._told_folder(),
            model=next((text(one, "model") for one in contexts if text(one, "model")), ""),
            branch=text(meta, "git", "branch"),
        )  # fmt: skip

    def _told_folder(self) -> str:
        """The working folder as the model was told it, where no header has it."""
        for fact in self.facts:
            if found := re.search(r"<cwd>([^<]{1,4096})</cwd>", fact.words):
                return found[1]
        return ""

    # ------------------------------------------------------------------ lines

    def _other(self, line: Line, inside: Value, fact: Fact) -> None:
        known = fact.envelope in ("world_state", "inter_agent_communication") or "record_type" in inside
        what = fact.envelope or ("record" if known else fact.kind) or "no type"
        self._keep(line, what, "no_counterpart" if known else "unknown")

    def _meta(self, line: Line, inside: Value, fact: Fact) -> None:
        first = next(one.index for one in self.facts if one.envelope == "session_meta")
        self._keep(line, "session_meta", "no_counterpart" if fact.index == first else "repeated")

    def _context(self, line: Line, inside: Value, fact: Fact) -> None:
        model, mode = text(inside, "model"), _mode(inside)
        if not fact.repeated and model and model != self.model:
            self.model = model
            body = ModelChanged(provider=self.provider, dialect="", model=model, origin=self.writer.origin)
            self.writer.add(self.lane, "", body, 0)
        if not fact.repeated and mode and mode != self.mode:
            self.mode = mode
            self.writer.add(self.lane, "", PolicyChanged(mode=mode, origin=self.writer.origin), 0)
        self._keep(line, "turn_context")

    def _compacted(self, line: Line, inside: Value, fact: Fact) -> None:
        words = text(inside, "message")
        history = objects(inside, "replacement_history")
        encrypted = any("encrypted_content" in one for one in history)
        if not words:
            words = "\n\n".join(filter(None, (words_of(one) for one in history if text(one, "type") == "message")))
        first = max(self.compacted, self.begun) + 1
        last = max(self.writer.head, first - 1)
        method = f"{FORMAT}, the summary is encrypted" if encrypted else FORMAT
        self.compacted = self.writer.add(
            self.lane, "", ContextCompacted(first=first, last=last, text=words, method=method)
        )

    def _display(self, line: Line, inside: Value, fact: Fact) -> None:
        if fact.kind == "token_count" or fact.twice:
            return
        if fact.kind in ("user_message", "UserMessage"):
            self._said(fact.words)
        elif fact.kind == "turn_aborted":
            self.writer.cancel(self.lane, "", text(inside, "reason") or "aborted")
        elif fact.kind == "thread_rolled_back":
            self._rolled_back(number(inside, "num_turns"))
        elif not self._is_told(fact):
            known = fact.kind in SHOWN_AGAIN or fact.kind in PLAIN or fact.kind in ENDS
            self._keep(line, f"event_msg/{fact.kind}", "no_counterpart" if known else "unknown")

    def _is_told(self, fact: Fact) -> bool:
        """Whether another line has the same to tell, or has taken what this one tells."""
        if fact.kind == "context_compacted":
            return any(one.envelope == "compacted" for one in self.facts)
        if fact.call not in self.calls:
            return False
        return fact.kind in SHOWN_AGAIN or (fact.kind in ENDS and fact.call in self.outputs)

    def _rolled_back(self, turns: int) -> None:
        """The person went back by some turns: to before the prompt that began the first of them."""
        where = self.prompts[-turns] if 0 < turns <= len(self.prompts) else self.begun + 1
        del self.prompts[max(len(self.prompts) - turns, 0) :]
        self.writer.add(self.lane, "", SessionRewound(to=where - 1, origin=self.writer.origin), 0)

    # ------------------------------------------------------------------ the conversation

    def _said(self, words: str) -> None:
        self.prompts.append(self.writer.prompt(self.lane, "", words))

    def _item(self, line: Line, inside: Value, fact: Fact) -> None:
        if fact.kind in OUTPUTS:
            self._result(line, inside, fact)
        elif fact.kind == "message" and fact.role == "user" and fact.words and not BY_PROGRAM.match(fact.words):
            self._said(fact.words)
        elif fact.kind == "message":
            self._keep(line, f"message ({fact.role or 'nobody'})")
        else:
            self._keep(line, fact.kind or "response_item", "unknown")

    def _answer(self, group: Group) -> None:
        blocks = [self._block(self.lines[index], self.facts[index]) for index in group.indexes]
        calls = any(block.kind == "tool_use" for block in blocks)
        answer = Answer(blocks=blocks, stop="tool_use" if calls else "end_turn", usage=group.usage, model=self.model)
        self.writer.answer(self.lane, "", answer)

    def _block(self, line: Line, fact: Fact) -> Block:
        _, inside = payload_of(line)
        raw = exact(line, "payload") if isinstance(at(line.value, "payload"), dict) else exact(line)
        raw = raw or written(line.value)
        if fact.kind in ("message", "agent_message", "AgentMessage"):
            return Block(kind="text", text=fact.words, raw=raw)
        if fact.kind in ("reasoning", "agent_reasoning"):
            return Block(kind="reasoning", text=summary_words(inside) or fact.words, raw=raw)
        if fact.kind in CALLS:
            name, args = _call(inside, fact.kind)
            return Block(kind="tool_use", id=_call_id(fact), name=name, args=args, raw=raw)
        query = text(inside, "action", "query") or text(inside, "query")
        return Block(kind="other", text=f"{fact.kind}: {query}" if query else fact.kind, raw=raw)

    def _started(self, fact: Fact) -> None:
        use = self.lane.uses.get(_call_id(fact)) if fact.kind in CALLS else None
        if use is not None and not self._is_rejected(fact.call):
            self.writer.start(self.lane, "", use)

    def _is_rejected(self, call: str) -> bool:
        index = self.outputs.get(call)
        return index is not None and REJECTED.match(_output(payload_of(self.lines[index])[1])) is not None

    def _result(self, line: Line, inside: Value, fact: Fact) -> None:
        lane, writer = self.lane, self.writer
        use = lane.uses.get(fact.call)
        if use is None:
            use = lane.uses[fact.call] = writer.stray(lane)
        elif use.finished:
            self._keep(line, f"{fact.kind} (a second one)", "repeated")
            return
        told = payload_of(self.lines[self.ends[fact.call]])[1] if fact.call in self.ends else {}
        words = _output(inside)
        if REJECTED.match(words):
            verdict = ApprovalDecided(call=use.call, decision="deny", by="person", note=words, origin=writer.origin)
            writer.decide(lane, "", use, verdict)
        elif use.tool:
            writer.start(lane, "", use)
        result = _ended(words, inside, told)
        if result.status == "ok":
            self._changed(use, told)
        writer.finish(lane, "", use, result)

    def _changed(self, use: Use, told: Value) -> None:
        if text(told, "type") == "patch_apply_end":
            changes = codex_changes(at(told, "changes"), self.workspace, self.writer.blob)
        elif use.tool == "apply_patch":
            changes = patch_changes(_patch(use.args), self.workspace, self.writer.blob)
        else:
            return
        if changes:
            self.writer.add(self.lane, "", FilesChanged(changes=tuple(changes), calls=(use.call,)), use.started)


def _call_id(fact: Fact) -> str:
    return fact.call or fact.id or f"line {fact.index}"


def _call(inside: Value, kind: str) -> tuple[str, str]:
    """The name of the tool and its arguments, as the model wrote them."""
    if kind == "local_shell_call":
        return "local_shell", written(at(inside, "action"))
    args = at(inside, "arguments" if kind == "function_call" else "input")
    return text(inside, "name"), args if isinstance(args, str) else written(args) if args is not None else ""


def _patch(args: str) -> str:
    """The patch in the arguments: they are it, or an object has it as `input` or `patch`."""
    try:
        value = msgspec.json.decode(args)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return args
    return text(value, "input") or text(value, "patch") or args


def _output(inside: Value) -> str:
    """What the model read of an output: a text, texts, or an object around one."""
    found = at(inside, "output")
    if isinstance(found, dict) and isinstance(found.get("content"), str):
        return str(found["content"])
    if isinstance(found, list):
        return "\n".join(text(part, "text") or written(part) for part in found)
    return found if isinstance(found, str) else "" if found is None else written(found)


def _ended(words: str, inside: Value, told: Value) -> Result:
    code, milliseconds = _measured(words)
    if told:
        given = at(told, "exit_code")
        code = given if type(given) is int and abs(given) < 2**31 else code
        milliseconds = number(told, "duration", "secs") * 1000 + number(told, "duration", "nanos") // 10**6
    success = at(inside, "output", "success")
    success = at(told, "success") if success is None else success
    failed = bool(code) or success is False or words.startswith("Script failed")
    cancelled = REJECTED.match(words) or ABORTED.match(words)
    whole = text(told, "aggregated_output") or "\n".join(filter(None, (text(told, "stdout"), text(told, "stderr"))))
    return Result(
        text=words,
        status="cancelled" if cancelled else "error" if failed else "ok",
        whole=b"" if whole.strip() in words else whole.encode(),
        exit_code=code,
        duration_ms=min(milliseconds, 2**53),
    )


def _measured(words: str) -> tuple[int | None, int]:
    """The exit code and the milliseconds that an output's own words tell."""
    try:
        value = msgspec.json.decode(words)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        head = words.partition("\nOutput:")[0][:4096]
        code, wall = _exit.search(head), _wall.search(head)
        milliseconds = int(wall[1]) * 1000 + int((wall[2] or "0").ljust(3, "0")[:3]) if wall else 0
        return (int(code[1]) if code else None), milliseconds
    given, seconds = at(value, "metadata", "exit_code"), at(value, "metadata", "duration_seconds")
    code_told = given if type(given) is int and abs(given) < 2**31 else None
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 2**40
    return code_told, int(seconds * 1000) if is_number else 0


def _mode(inside: Value) -> str:
    """Approval and sandbox policy in one word each."""
    parts = []
    for name in ("approval_policy", "sandbox_policy"):
        found = at(inside, name)
        parts.append(found if isinstance(found, str) else text(found, "type") or text(found, "mode"))
    return ", ".join(part for part in parts if part)
