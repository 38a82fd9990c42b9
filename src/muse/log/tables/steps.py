"""The views about steps: calls, requests to models, approvals, doubts, processes. See `rows`."""

from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from muse.event.calls import number_of
from muse.event.shells import command_in
from muse.log.tables.rows import Contents, Fact, Row, milliseconds


class Calls:
    """`calls`."""

    types: frozenset[str] | None = frozenset(
        {"model.responded", "tool.started", "tool.finished", "approval.decided", "approval.requested",
         "cancel.requested"}
    )  # fmt: skip
    bodies = types

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._used = used
        self._contents = contents
        self._calls: dict[str, Row] = {}
        self._asked: dict[str, int] = {}
        self._people: dict[int, str] = {}

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        match fact.type:
            case "model.responded":
                self._responded(fact)
            case "approval.requested":
                self._asked[fact.text("call")] = fact.seq
            case "approval.decided":
                self._decided(fact)
            case "cancel.requested":
                self._cancelled(fact)
            case "tool.started":
                self._started(fact)
            case _:
                self._finished(fact)

    def _at(self, fact: Fact) -> Row:
        call = fact.text("call")
        blank: Row = {"call": call, "agent": call.rpartition("/")[0], "attempts": 0, "status": "waiting", "approval": 0}
        return self._calls.setdefault(call, blank)

    def _responded(self, fact: Fact) -> None:
        call = fact.text("call")
        lane = call.rpartition("/")[0]
        uses = [block for block in fact.parts("blocks") if block.get("kind") == "tool_use"]
        for key, use in enumerate(uses, number_of(call) + 1):
            tool = str(use.get("name", ""))
            self._calls[f"{lane}/{key}"] = {
                "call": f"{lane}/{key}", "agent": lane, "tool": tool, "asked": fact.seq, "attempts": 0, "approval": 0,
                "address": fact.address, "status": "waiting", **self._arguments(tool, use.get("args")),
            }  # fmt: skip

    def _arguments(self, tool: str, args: Any) -> Row:
        """The exact text, and what is in it, as far as it is asked for."""
        if not {"args", "command", "path"} & set(self._used):
            return {}
        text = self._contents.text(args) if "args" in self._used or isinstance(args, str) else None
        try:
            value = msgspec.json.decode(text or "{}")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            value = {}
        value = value if isinstance(value, dict) else {}
        path = next((value[name] for name in ("path", "file_path") if isinstance(value.get(name), str)), None)
        return {"args": text, "path": path, "command": command_in(tool, value) or None}

    def _decided(self, fact: Fact) -> None:
        call = fact.text("call")
        self._people[fact.seq] = str(fact.part("origin").get("user") or "")
        row = self._at(fact)
        if self._asked.get(call, 0) != (fact.number("request") or 0) or row["status"] != "waiting":
            return
        if fact.text("decision") == "deny":
            row |= {"status": "denied", "finished": fact.seq, "finished_at": fact.time}
            row["approval"] = fact.seq if fact.text("by") == "person" else 0

    def _cancelled(self, fact: Fact) -> None:
        """What had not begun never will."""
        call, target = fact.text("call"), fact.text("target") or "turn"
        for row in self._calls.values():
            below = target == "tree" and row["agent"].startswith(f"{fact.agent}.")
            meant = row["call"] == call if target == "call" else row["agent"] == fact.agent or below
            if meant and row["status"] == "waiting":
                row |= {"status": "cancelled", "finished": fact.seq, "finished_at": fact.time}

    def _started(self, fact: Fact) -> None:
        row = self._at(fact)
        approval = fact.number("approval") or 0
        row |= {
            "tool": fact.text("tool"), "recovery": fact.text("recovery"), "started": fact.seq, "started_at": fact.time,
            "status": "running", "attempts": row["attempts"] + 1, "approval": approval, "address": fact.address,
            "allowed_by": self._people.get(approval) if approval else fact.text("allowed_by"), "finished": None,
            "finished_at": None,
        }  # fmt: skip
        row |= {name: value for name, value in self._arguments(row["tool"], fact.get("args")).items() if value}
        row["path"] = fact.part("observed").get("path") or row.get("path")

    def _finished(self, fact: Fact) -> None:
        row = self._at(fact)
        row |= {
            "status": "denied" if row["status"] == "denied" else fact.text("status"),
            "exit_code": fact.number("exit_code"), "finished": fact.seq,
            "timed_out": fact.number("timed_out") or 0, "finished_at": fact.time,
            "duration_ms": fact.number("duration_ms"), "output_bytes": fact.number("output_bytes"),
            "output": self._contents.text(fact.get("text")) if "output" in self._used else None,
        }  # fmt: skip
        row.setdefault("address", fact.address)

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._calls.values()


class ModelRequests:
    """`model_requests`."""

    types: frozenset[str] | None = frozenset({"model.requested", "model.responded", "model.failed"})
    bodies = types

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._used = used
        self._rows: dict[tuple[str, int], Row] = {}

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        call, attempt = fact.text("call"), fact.number("attempt") or 0
        lane = call.rpartition("/")[0]
        blank: Row = {"call": call, "attempt": attempt, "agent": lane, "outcome": "open", "address": fact.address}
        row = self._rows.setdefault((call, attempt), blank)
        if fact.type == "model.requested":
            row |= {name: fact.text(name) for name in ("provider", "model", "builder", "request_sha256")}
            row |= {name: fact.number(name) for name in ("items", "request_bytes")}
            row |= {"requested": fact.seq, "requested_at": fact.time, "purpose": fact.text("purpose") or "turn"}
            return
        row |= {"ended": fact.seq, "ended_at": fact.time, "duration_ms": fact.number("duration_ms")}
        if fact.type == "model.failed":
            row |= {"outcome": "failed", "failure": fact.text("failure"), "message": fact.text("message")}
            row |= {"http_status": fact.number("status"), "retry_until": fact.text("retry_until") or None}
            row |= {name: number for name, number in tokens(fact).items() if number}
            return
        row |= {"outcome": "responded", "stop": fact.text("stop"), **tokens(fact)}
        row.setdefault("model", fact.text("model"))  # of an imported session requests were not recorded
        blocks = fact.parts("blocks")
        row["tool_uses"] = sum(block.get("kind") == "tool_use" for block in blocks)
        if "text" in self._used:
            row["text"] = "\n".join(str(block.get("text", "")) for block in blocks if block.get("kind") == "text")

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._rows.values()


TOKENS: Final = ("input", "output", "cache_read", "cache_write", "reasoning", "cost_microusd")


def tokens(fact: Fact) -> dict[str, int]:
    """What a response used."""
    usage = fact.part("usage")
    return {name: int(usage.get(name) or 0) for name in TOKENS}


class Approvals:
    """`approvals`."""

    types: frozenset[str] | None = frozenset(
        {"approval.requested", "approval.decided", "model.responded", "tool.started"}
    )
    bodies = types

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._by_seq: dict[int, Row] = {}
        self._tools: dict[str, Any] = {}

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        call = fact.text("call")
        if fact.type == "model.responded":
            lane = call.rpartition("/")[0]
            uses = [block for block in fact.parts("blocks") if block.get("kind") == "tool_use"]
            for key, use in enumerate(uses, number_of(call) + 1):
                self._tools[f"{lane}/{key}"] = use.get("name")
        elif fact.type == "approval.requested":
            self._by_seq[fact.seq] = {
                "address": fact.address, "agent": call.rpartition("/")[0], "call": call, "tool": fact.text("tool"),
                "request": fact.seq, "requested_at": fact.time, "decision": "",
                **{name: fact.text(name) for name in ("shown", "rule", "remember")},
            }  # fmt: skip
        elif fact.type == "approval.decided":
            self._decided(fact, call)

    def _decided(self, fact: Fact, call: str) -> None:
        request = fact.number("request") or 0
        unasked = {
            "address": fact.address, "agent": call.rpartition("/")[0], "call": call, "tool": self._tools.get(call),
            "request": 0, "decision": "",
        }  # fmt: skip
        row = self._by_seq.setdefault(request or fact.seq, unasked)
        if row["decision"]:  # the first answer counts
            return
        origin = fact.part("origin")
        row |= {
            "decided": fact.seq, "decided_at": fact.time, "decision": fact.text("decision"),
            "decided_by": fact.text("by"), "decided_rule": fact.text("rule"), "note": fact.text("note"),
            "person": origin.get("user") or "", "terminal": origin.get("terminal") or "",
            "waited_ms": milliseconds(row.get("requested_at"), fact.time),
        }  # fmt: skip

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._by_seq.values()


class Doubts:
    """`doubts`."""

    types: frozenset[str] | None = frozenset({"effect.doubted", "effect.reconciled"})
    bodies = types

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._rows: list[Row] = []
        self._open: dict[tuple[str, int | None], Row] = {}

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        call, attempt = fact.text("call"), fact.number("attempt")
        if fact.type == "effect.doubted":
            row: Row = {
                "address": fact.address, "agent": call.rpartition("/")[0], "call": call, "attempt": attempt,
                "recovery": fact.text("recovery"), "doubted": fact.seq, "doubted_at": fact.time, "verdict": "",
            }  # fmt: skip
            self._rows.append(row)
            self._open[call, attempt] = row
        elif (found := self._open.pop((call, attempt), None)) is not None:
            found |= {"reconciled": fact.seq, "reconciled_at": fact.time, "verdict": fact.text("verdict")}
            found["evidence"] = fact.text("evidence")

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._rows


class Processes:
    """`processes`."""

    types: frozenset[str] | None = frozenset({"process.started", "process.adopted", "process.reaped"})
    bodies = types

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._rows: dict[tuple[str, int | None, int | None], Row] = {}

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        key = (fact.text("call"), fact.number("pid"), fact.number("started"))
        blank: Row = {"address": fact.address, "call": key[0], "pid": key[1], "adopted": 0}
        row = self._rows.setdefault(key, blank)
        if fact.type == "process.started":
            row |= {"command": fact.text("command"), "process_group": fact.number("group")}
            row |= {"started": fact.seq, "started_at": fact.time}
        elif fact.type == "process.adopted":
            row["adopted"] += 1
        else:
            row |= {"gone": fact.seq, "gone_at": fact.time, "how": fact.text("how")}

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._rows.values()
