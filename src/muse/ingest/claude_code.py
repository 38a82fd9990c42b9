"""Claude Code's session files (`<session>.jsonl`, and `<session>/subagents/agent-<id>.jsonl` of its agents) as events.

The format is not documented; docs/imports.md says what is known of it and what each line becomes. Events stand in the
order of the lines; between files, whose lines nothing else orders, in that of their times. This module must not know
where the files are.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from muse.event.kinds import (
    AgentFinished,
    AgentMessaged,
    AgentSpawned,
    AgentSteered,
    ContextCompacted,
    FilesChanged,
    LogImported,
    PolicyChanged,
    SessionRewound,
)
from muse.ingest import claude_blocks as blocks
from muse.ingest.claude_tree import SPAWNERS, Fact, Tree, facts_of, outcomes, result_blocks, split, tree
from muse.ingest.edits import claude_change
from muse.ingest.lines import Line, Lines, SourceFile, Value, at, number, text
from muse.ingest.writer import Import, Keep, Lane, Use, Writer

FORMAT: Final = "claude-code"
MISSING: Final = (
    "the system prompt",
    "tool schemas",
    "requests as they were sent",
    "who allowed a call",
    "what was in flight",
)
DRAIN_DEPTH_MAX: Final = 50
"""How many agents may end inside each other; where a file claims more, their lines stand in the order of time only."""
AGENTS_MAX: Final = 10_000
"""Of more agents' files the lines are kept, and no lanes made."""
PLAIN: Final = frozenset(
    {
        "progress", "summary", "file-history-snapshot", "queue-operation", "last-prompt", "mode", "ai-title",
        "custom-title", "agent-name", "agent-setting", "worktree-state", "pr-link", "tag", "task-summary",
    }
)  # fmt: skip
"""Types that are known, and have no counterpart."""
TITLES: Final = (("custom-title", "customTitle"), ("agent-name", "agentName"), ("ai-title", "aiTitle"),
                 ("summary", "summary"))  # fmt: skip
"""Where a session's title may stand, the best first."""


class Part(msgspec.Struct):
    """The lines of one agent: which of a file's, what is known of them, and how far they were read. By uuid: `places`
    of lines, `boundaries` of compactions, and which of these a summary has `told`."""

    lane: Lane
    file: str
    lines: Lines
    facts: list[Fact]
    order: list[int]
    shape: Tree
    results: dict[str, tuple[Value, Value]]
    answers: dict[tuple[str, str], list[int]]
    places: dict[str, int]
    boundaries: dict[str, Fact]
    told: set[str]
    parent: str = ""
    task_at: int = -1
    base_aside: bool = False
    next: int = 0
    now: str = ""
    begun: int = 0
    compacted: int = 0
    mode: str = ""
    children: int = 0
    seq_at: dict[int, int] = {}

    @property
    def live(self) -> bool:
        """Whether lines are left."""
        return self.next < len(self.order)

    def next_time(self) -> str:
        """The time of the next line, no earlier than those before."""
        return max(self.now, self.facts[self.order[self.next]].time)


def read(files: Sequence[SourceFile], keep: Keep) -> Import:
    """The events of a session's file, the first, and of its agents', the others."""
    return _Reader(files, keep).read()


def _part(lane: Lane, file: SourceFile, lines: Lines, facts: list[Fact], order: list[int]) -> Part:
    own = [facts[index] for index in order]
    answers: dict[tuple[str, str], list[int]] = {}
    for fact in own:
        if fact.answer is not None and not fact.repeated:
            answers.setdefault(fact.answer, []).append(fact.index)
    results = outcomes(lines, (fact for fact in own if fact.results))
    places = {fact.uuid: fact.index for fact in reversed(own)}
    boundaries = {fact.uuid: fact for fact in reversed(own) if fact.boundary}
    told = {fact.parent for fact in own if fact.summary}
    return Part(lane, file.name, lines, facts, order, tree(own), results, answers, places, boundaries, told)


class _Reader:
    def __init__(self, files: Sequence[SourceFile], keep: Keep) -> None:
        self.writer = Writer(FORMAT, keep)
        self.imports: dict[int, tuple[LogImported, str]] = {}
        self.parts: list[Part] = []
        self.waiting: dict[str, Part] = {}
        self.lanes: dict[str, Lane] = {}
        self.ended: set[str] = set()
        self._busy: set[str] = set()
        self._raw = {file.name: file for file in files}
        self._workspace = ""
        self._reads: dict[str, Callable[[Part, Line, Value, Fact], None]] = {
            "user": self._user, "assistant": self._assistant, "system": self._system, "attachment": self._attachment,
            "permission-mode": self._mode,
        }  # fmt: skip
        first, *others = files
        lines = Lines(first.data)
        facts = facts_of(lines)
        own, sides = split(facts)
        self._main = _part(Lane("main"), first, lines, facts, own)
        self._is_agents = bool(own) and all(facts[index].side for index in own if facts[index].speaks)
        for name, order in list(sides.items())[:AGENTS_MAX]:
            self.waiting[name] = _part(Lane(""), first, lines, facts, order)
        for file in others[:AGENTS_MAX]:
            its_lines = Lines(file.data)
            its_facts = facts_of(its_lines)
            name = next((fact.agent for fact in its_facts if fact.agent), file.name)
            name = file.name if name in self.waiting else name  # another file of that agent is there: both are kept
            self.waiting[name] = _part(Lane(""), file, its_lines, its_facts, list(range(len(its_facts))))

    def read(self) -> Import:
        self._begin_main()
        while True:
            live = [part for part in self.parts if part.live]
            if live:
                self._step(min(live, key=lambda part: part.next_time()))
            elif self.waiting:
                name = min(self.waiting, key=lambda one: (self._first_time(self.waiting[one]), one))
                self._spawn(self._main, self._first_time(self.waiting[name]), name, None)
            else:
                return self.writer.done(self._main.lane, self.imports)

    @staticmethod
    def _first_time(part: Part) -> str:
        return next((part.facts[index].time for index in part.order if part.facts[index].time), "")

    # ------------------------------------------------------------------ agents

    def _begin_main(self) -> None:
        main = self._main
        about = self._about(main)
        self._workspace = about.workspace
        lane = main.lane
        lane.at(self._first_time(main))
        self.imports[self.writer.add(lane, "", about, 0)] = (about, main.file)
        main.mode = next(
            (
                text(main.lines[i].value, "permissionMode")
                for i in main.order
                if main.facts[i].kind == "permission-mode"
            ),
            "",
        )
        task = self._take_task(main) if self._is_agents else ""
        body = AgentSpawned(task=task, model=about.model, mode=main.mode, workspace=about.workspace)
        main.begun = lane.cause = self.writer.add(lane, "", body, 1)
        self.parts.append(main)

    def _spawn(self, parent: Part, time: str, name: str, use: Use | None, task: str = "") -> None:
        """An agent begins: its lane, and its lines where the source has them."""
        if name in self.lanes or len(self.lanes) >= AGENTS_MAX:
            self.waiting.pop(name, None)
            return
        parent.children += 1
        part = self.waiting.pop(name, None)
        lane = part.lane if part is not None else Lane("")
        lane.agent, lane.aside = f"{parent.lane.agent}.{parent.children}", parent.lane.aside
        self.lanes[name] = lane
        lane.at(time or parent.lane.time)
        cause = (use.started if use else 0) or parent.begun
        model = ""
        if part is not None:
            part.parent, part.base_aside = parent.lane.agent, lane.aside is not None
            about = self._about(part)
            task, model = self._take_task(part) or task, about.model
            if part.file != parent.file:
                self.imports[self.writer.add(lane, "", about, cause)] = (about, part.file)
            self.parts.append(part)
        body = AgentSpawned(task=task, model=model, parent=parent.lane.agent, call=use.call if use else "")
        lane.cause = self.writer.add(lane, "", body, cause)
        if part is not None:
            part.begun = lane.cause

    def _take_task(self, part: Part) -> str:
        """The words that an agent began with: its task, and no person's prompt."""
        for index in part.order:
            fact = part.facts[index]
            if fact.kind == "assistant":
                break
            if fact.kind == "user" and not fact.results and not fact.repeated:
                part.task_at = index
                return blocks.spoken(part.lines[index].value)
        return ""

    def _end(self, name: str, outcome: str, words: str, cause: int) -> None:
        lane = self.lanes.get(name)
        if lane is None or name in self.ended:
            return
        self.ended.add(name)
        failed = AgentFinished(outcome="failed", text=words)
        ends = {
            "completed": AgentFinished(outcome="done"),
            "failed": failed,
            "killed": AgentFinished(outcome="cancelled"),
        }
        body = ends.get(outcome)
        if body is not None:
            self.writer.add(lane, "", body, cause)

    def _about(self, part: Part) -> LogImported:
        found: dict[str, str] = {}
        versions: list[str] = []
        titles: dict[str, str] = {}
        for index in part.order:
            value = part.lines[index].value
            for name in ("cwd", "sessionId", "gitBranch"):
                found[name] = found.get(name) or text(value, name)
            if (version := text(value, "version")) and version not in versions:
                versions.append(version)
            if (model := text(value, "message", "model")) and model != "<synthetic>":
                found.setdefault("model", model)
            for kind, key in TITLES:
                if text(value, "type") == kind and text(value, key):
                    titles[kind] = text(value, key)
        file = self._raw[part.file]
        spoken = f" {versions[0]}" + (f" to {versions[-1]}" if len(versions) > 1 else "") if versions else ""
        return LogImported(
            source=file.name, format_name=FORMAT, events=len(part.lines), missing=MISSING if part is self._main else (),
            raw=self.writer.blob(file.data), sha256=sha256(file.data).hexdigest(), program=f"{FORMAT}{spoken}",
            source_session=found.get("sessionId", ""), workspace=found.get("cwd", ""), model=found.get("model", ""),
            branch=found.get("gitBranch", ""), name=next((titles[kind] for kind, _ in TITLES if kind in titles), ""),
        )  # fmt: skip

    # ------------------------------------------------------------------ lines

    def _step(self, part: Part) -> None:
        index = part.order[part.next]
        part.now = part.next_time()
        part.next += 1
        fact, line, lane = part.facts[index], part.lines[index], part.lane
        lane.at(fact.time)
        lane.aside = "left" if part.base_aside or index in part.shape.left else None
        if line.value is None:
            self._keep(part, line, "", "unreadable")
        elif fact.repeated:
            self._keep(part, line, fact.kind, "repeated")
        elif index != part.task_at:
            if index in part.shape.back:
                to = part.seq_at.get(part.shape.back[index], part.begun)
                self.writer.add(lane, "", SessionRewound(to=to, origin=self.writer.origin), 0)
            for kind in blocks.unknown_kinds(line.value):
                self.writer.met(part.file, f"block {kind}")
            self._busy.add(lane.agent)
            self._reads.get(fact.kind, self._other)(part, line, line.value, fact)
            self._busy.discard(lane.agent)
        part.seq_at[index] = self.writer.head

    def _keep(self, part: Part, line: Line, what: str, why: str = "no_counterpart") -> None:
        self.writer.keep(part.lane, "", line, what, why, part.file)  # type: ignore[arg-type]  # the callers' literals

    def _other(self, part: Part, line: Line, value: Value, fact: Fact) -> None:
        if fact.kind == "queue-operation":
            self._notified(text(value, "content"), part)
        self._keep(part, line, fact.kind or "no type", "no_counterpart" if fact.kind in PLAIN else "unknown")

    def _mode(self, part: Part, line: Line, value: Value, fact: Fact) -> None:
        mode = text(value, "permissionMode")
        if not mode or mode == part.mode:
            self._keep(part, line, fact.kind, "repeated")
            return
        part.mode = mode
        self.writer.add(part.lane, "", PolicyChanged(mode=mode, origin=self.writer.origin), 0)

    def _system(self, part: Part, line: Line, value: Value, fact: Fact) -> None:
        subtype = text(value, "subtype")
        if fact.boundary and fact.uuid in part.told:
            return  # told by the summary
        if subtype == "api_error":
            failed = blocks.failed_attempt(value, f"{part.lane.agent}/{part.lane.next_n}")
            if failed is not None:
                self.writer.add(part.lane, "", failed)
                return
        self._keep(part, line, f"system/{subtype}")

    def _attachment(self, part: Part, line: Line, value: Value, fact: Fact) -> None:
        kind = text(value, "attachment", "type")
        words = blocks.words_of(at(value, "attachment", "prompt"))
        if kind == "queued_command" and words:
            self._notified(words, part)
            if text(value, "attachment", "commandMode") in ("", "prompt") and not words.startswith(blocks.BY_PROGRAM):
                body = AgentSteered(text=words, origin=self.writer.origin)
                part.lane.cause = self.writer.add(part.lane, "", body, 0)
                return
        self._keep(part, line, f"attachment/{kind}")

    # ------------------------------------------------------------------ the conversation

    def _user(self, part: Part, line: Line, value: Value, fact: Fact) -> None:
        if fact.summary:
            self._compacted(part, value, fact)
            return
        for block in result_blocks(value):
            self._result(part, line, value, block)
        words = blocks.spoken(value)
        if words.strip() in blocks.INTERRUPTED:
            self.writer.cancel(part.lane, "", words.strip())
        elif not words:
            if not fact.results:
                self._keep(part, line, "user", "misplaced")
        elif at(value, "isMeta") is True or words.lstrip().startswith(blocks.BY_PROGRAM):
            self._notified(words, part)
            self._keep(part, line, "user (by the program)")
        elif part.parent:
            body = AgentMessaged(to=part.lane.agent, text=words)
            part.lane.cause = self.writer.add(part.lane, "", body)
        else:
            self.writer.prompt(part.lane, "", words)

    def _compacted(self, part: Part, value: Value, fact: Fact) -> None:
        boundary = part.boundaries.get(fact.parent)
        where = -1 if boundary is None else part.places.get(boundary.logical, -1)
        first = max(part.compacted, part.begun) + 1
        last = max(part.seq_at.get(where, self.writer.head), first - 1)
        told = part.lines[boundary.index].value if boundary is not None else None
        trigger = text(told, "compactMetadata", "trigger")
        tokens = number(told, "compactMetadata", "preTokens")
        method = " ".join(filter(None, (FORMAT, trigger, f"of {tokens:,} tokens" if tokens else "")))
        body = ContextCompacted(first=first, last=last, text=blocks.spoken(value), method=method)
        part.compacted = self.writer.add(part.lane, "", body)

    def _assistant(self, part: Part, line: Line, value: Value, fact: Fact) -> None:
        assert fact.answer is not None, "every assistant line is a part of an answer"
        indexes = part.answers[fact.answer]
        lane = part.lane
        if at(value, "isApiErrorMessage") is True:
            failed = blocks.failure_of(line, f"{lane.agent}/{lane.next_n}")
            if failed is None:
                self._keep(part, line, "assistant (an error)", "no_counterpart")
                return
            lane.next_n += 1
            self.writer.add(lane, "", failed)
            return
        if fact.index == indexes[0]:
            answer = blocks.answer_of([part.lines[index] for index in indexes])
            self.writer.answer(lane, "", answer)
        for id_ in fact.uses:
            use = lane.uses.get(id_)
            told = part.results.get(id_)
            if use is not None and not (told is not None and blocks.is_decided(use.tool, *told)):
                self._start(part, id_, use)

    def _start(self, part: Part, id_: str, use: Use) -> None:
        if use.started:
            return
        self.writer.start(part.lane, "", use)
        told = part.results.get(id_)
        name = text(told[1], "toolUseResult", "agentId") if told else ""
        prompt = _prompt_in(use.args) if use.tool in SPAWNERS else ""
        if not name and use.tool in SPAWNERS:
            name = next((one for one, waits in self.waiting.items() if prompt and self._begins_with(waits, prompt)), "")
        if name:
            self._spawn(part, part.lane.time, name, use, prompt)

    def _begins_with(self, part: Part, prompt: str) -> bool:
        words = self._take_task(part)
        return words == prompt

    def _result(self, part: Part, line: Line, value: Value, block: Value) -> None:
        lane, id_ = part.lane, text(block, "tool_use_id")
        use = lane.uses.get(id_)
        if use is None:
            use = self.writer.stray(lane)
            lane.uses[id_] = use
        elif use.finished:
            self._keep(part, line, "user (a second result)", "repeated")
            return
        verdict = blocks.verdict_of(use, block, value, self.writer)
        if verdict is not None:
            self.writer.decide(lane, "", use, verdict)
        if use.tool and not use.started:
            self._start(part, id_, use)
        told = at(value, "toolUseResult")
        result = blocks.result_of(use, block, value)
        name = text(told, "agentId")
        if name and name in self.lanes and text(told, "status") != "async_launched":
            self._drain(name)
            failed = result.status != "ok"
            self._end(name, "failed" if failed else text(told, "status"), result.text if failed else "", use.started)
        change = claude_change(told, self._workspace, self.writer.blob) if isinstance(told, dict) else None
        if change is not None and result.status == "ok":
            self.writer.add(lane, "", FilesChanged(changes=(change,), calls=(use.call,)), use.started)
        self.writer.finish(lane, "", use, result)

    def _drain(self, name: str) -> None:
        """Read an agent's lines to their end: what its result says comes after them."""
        if len(self._busy) > DRAIN_DEPTH_MAX:
            return
        for part in self.parts:
            while part.lane is self.lanes[name] and part.live and part.lane.agent not in self._busy:
                self._step(part)

    def _notified(self, words: str, part: Part) -> None:
        name, status = blocks.finished_task(words)
        if name:
            self._end(name, status, "", self.lanes[name].cause if name in self.lanes else 0)


def _prompt_in(args: str) -> str:
    try:
        return text(msgspec.json.decode(args), "prompt")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
