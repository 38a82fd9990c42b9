"""What a reader of a foreign format makes: events in the order of their log, without ids and keys.

It numbers events, lanes and calls as a live session does: a response has the key of its call, and its tool uses the
keys that follow. It counts what had to be kept as it was. This module must not know any foreign format.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from muse.event.content import BlobRef, Block, Origin, Usage
from muse.event.kinds import (
    ApprovalDecided,
    Aside,
    CancelRequested,
    Counted,
    LogImported,
    ModelResponded,
    SessionClosed,
    SourceKept,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)
from muse.event.text import clean
from muse.ingest.lines import NO_TIME, Line

TEXT_BYTES_MAX: Final = 1024 * 1024
"""A longer text is a blob, where an event allows one."""

Keep = Callable[[bytes], BlobRef]
"""Keeps content and says what names it."""
AsideKind = Literal["left", "repeated"]
Why = Literal["no_counterpart", "unknown", "unreadable", "repeated", "misplaced"]
Stop = Literal["end_turn", "tool_use", "max_tokens", "refusal", "other"]


class Made(msgspec.Struct, frozen=True):
    """An event to be. `cause` is a seq: events are numbered from 1 as they stand."""

    agent: str
    time: str
    cause: int
    body: msgspec.Struct


class Import(msgspec.Struct, frozen=True):
    """A foreign session as events. The first is its `log.imported`, the last its `session.closed`."""

    events: Sequence[Made]


class Use(msgspec.Struct):
    """A tool use of a response: its call's key, and how far it has come."""

    call: str
    tool: str
    args: str
    response: int
    started: int = 0
    finished: int = 0
    approval: int = 0


class Lane(msgspec.Struct):
    """One agent while its file is read. `cause` is the event that its next response answers."""

    agent: str
    next_n: int = 1
    time: str = ""
    cause: int = 0
    aside: AsideKind | None = None
    uses: dict[str, Use] = {}

    def at(self, time: str) -> str:
        """The time of a line, that of the one before where it has none."""
        self.time = time or self.time
        return self.time or NO_TIME


class Answer(msgspec.Struct, kw_only=True):
    """A model response as a source tells it."""

    blocks: list[Block]
    stop: Stop = "other"
    stop_raw: str = ""
    usage: Usage = Usage()
    model: str = ""
    id: str = ""


class Result(msgspec.Struct, kw_only=True):
    """How a tool use ended, as a source tells it. `whole` is all that it gave out, where that is more than `text`."""

    text: str
    status: Literal["ok", "error", "cancelled", "unknown"] = "ok"
    whole: bytes = b""
    exit_code: int | None = None
    duration_ms: int = 0


class Writer:
    """The events made so far. `client` names the agent whose file it is."""

    def __init__(self, client: str, keep: Keep) -> None:
        self.events: list[Made] = []
        self.origin = Origin(client=client)
        self._keep = keep
        self._asides: list[Aside] = []
        self.kept: dict[str, Counter[str]] = {}
        self.unknown: dict[str, Counter[str]] = {}
        self.unreadable: Counter[str] = Counter()

    @property
    def head(self) -> int:
        """The seq of the last event."""
        return len(self.events)

    def blob(self, data: bytes) -> BlobRef:
        """Keep content."""
        return self._keep(data)

    def large(self, text: str) -> str | BlobRef:
        """A text as events hold it."""
        data = text.encode()
        return text if len(data) <= TEXT_BYTES_MAX else self.blob(data)

    def add(self, lane: Lane, time: str, body: msgspec.Struct, cause: int | None = None) -> int:
        """The next event, on a lane. Returns its seq."""
        because = lane.cause if cause is None else cause
        self.events.append(Made(lane.agent, lane.at(time), because, body))
        if lane.aside is not None:
            self._beside(lane.aside)
        return self.head

    def _beside(self, what: AsideKind) -> None:
        last = self._asides[-1] if self._asides else None
        if last is not None and last.what == what and last.last == self.head - 1:
            self._asides[-1] = msgspec.structs.replace(last, last=self.head)
        else:
            self._asides.append(Aside(first=self.head, last=self.head, what=what))

    # ------------------------------------------------------------------ the kinds that both formats have

    def prompt(self, lane: Lane, time: str, words: str) -> int:
        """A person's words, which no event led to."""
        lane.cause = self.add(lane, time, UserPrompted(text=words, origin=self.origin), 0)
        return lane.cause

    def cancel(self, lane: Lane, time: str, why: str) -> int:
        """The person interrupted the turn."""
        return self.add(lane, time, CancelRequested(target="turn", why=why, origin=self.origin), 0)

    def answer(self, lane: Lane, time: str, answer: Answer) -> int:
        """A response; its tool uses are open from then on."""
        call = f"{lane.agent}/{lane.next_n}"
        lane.next_n += 1
        body = ModelResponded(
            call=call, attempt=1, blocks=tuple(answer.blocks), stop=answer.stop, stop_raw=answer.stop_raw,
            usage=answer.usage, model=answer.model, response_id=answer.id,
        )  # fmt: skip
        seq = self.add(lane, time, body)
        for block in answer.blocks:
            if block.kind == "tool_use":
                use = Use(f"{lane.agent}/{lane.next_n}", block.name, block.args, seq)
                lane.next_n += 1
                if block.id not in lane.uses or lane.uses[block.id].finished:  # some providers give ids again
                    lane.uses[block.id] = use
        lane.cause = seq
        return seq

    def start(self, lane: Lane, time: str, use: Use) -> None:
        """The tool runs, unless it has been started already."""
        if use.started:
            return
        body = ToolStarted(
            call=use.call, attempt=1, tool=use.tool, args=self.large(use.args), recovery="opaque", approval=use.approval
        )
        use.started = self.add(lane, time, body, use.approval or use.response)

    def decide(self, lane: Lane, time: str, use: Use, verdict: ApprovalDecided) -> None:
        """What the source tells of who allowed or refused a call."""
        seq = self.add(lane, time, verdict, use.response)
        use.approval = seq if verdict.decision == "allow" else use.approval
        if verdict.decision == "deny":
            use.started = seq  # its result follows from that

    def finish(self, lane: Lane, time: str, use: Use, result: Result) -> None:
        """The result of a use."""
        whole = result.whole if result.whole.strip() and result.whole.strip() != result.text.encode().strip() else b""
        body = ToolFinished(
            call=use.call, attempt=1, status=result.status, text=self.large(result.text),
            output=self.blob(whole) if whole else None, output_bytes=len(whole or result.text.encode()),
            exit_code=result.exit_code, duration_ms=result.duration_ms,
        )  # fmt: skip
        use.finished = lane.cause = self.add(lane, time, body, use.started or use.response or None)

    def stray(self, lane: Lane) -> Use:
        """A use for a result whose call the source does not have."""
        use = Use(f"{lane.agent}/{lane.next_n}", "", "", 0)
        lane.next_n += 1
        return use

    # ------------------------------------------------------------------ what has no counterpart

    def keep(self, lane: Lane, time: str, line: Line, what: str, why: Why = "no_counterpart", file: str = "") -> int:
        """Keep a line as it was."""
        raw: str | BlobRef
        try:
            raw = self.large(line.data.decode())
        except UnicodeDecodeError:
            raw = self.blob(line.data)
        name = _name(what)
        if why == "unreadable":
            self.unreadable[file] += 1
        else:
            self.kept.setdefault(file, Counter())[name] += 1
            if why == "unknown":
                self.unknown.setdefault(file, Counter())[name] += 1
        return self.add(lane, time, SourceKept(what=name, line=line.number, raw=raw, why=why))

    def met(self, file: str, what: str) -> None:
        """A part of a line that is read, of a kind that is unknown here. It is kept where the line is, and counted."""
        self.unknown.setdefault(file, Counter())[_name(what)] += 1

    # ------------------------------------------------------------------ the whole

    def counts(self, about: LogImported, file: str) -> LogImported:
        """What is said of a file, with what was counted in it."""
        changes = {
            "kept": _counted(self.kept.get(file, Counter())),
            "unknown": _counted(self.unknown.get(file, Counter())),
            "unreadable": self.unreadable[file],
        }
        return msgspec.structs.replace(about, **changes)

    def done(self, lane: Lane, imports: dict[int, tuple[LogImported, str]]) -> Import:
        """Everything. `imports` are the `log.imported`, by seq, with the file that each is about."""
        last = max((made.time for made in self.events), default=NO_TIME)
        self.add(lane, last, SessionClosed(outcome="imported"), 1)
        for seq, (about, file) in imports.items():
            about = self.counts(about, file)
            if seq == 1:
                about = msgspec.structs.replace(about, asides=tuple(self._asides))
            self.events[seq - 1] = msgspec.structs.replace(self.events[seq - 1], body=about)
        return Import(self.events)


def _name(what: str) -> str:
    return clean(what).text[:200] or "line"


def _counted(counter: Counter[str]) -> tuple[Counted, ...]:
    return tuple(Counted(what=what, count=count) for what, count in sorted(counter.items()))
