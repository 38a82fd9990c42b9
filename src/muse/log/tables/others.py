"""The views about sessions as wholes: sessions, events, prompts, files, agents, costs. See `rows`."""

from collections.abc import Collection, Iterable
from typing import Any, Final

from muse.event.content import BlobRef
from muse.log.tables.rows import Contents, Fact, Row, lines_changed
from muse.log.tables.steps import TOKENS, tokens


class Sessions:
    """`sessions`."""

    types: frozenset[str] | None = None
    bodies: frozenset[str] | None = frozenset({"session.opened", "session.closed", "session.forked", "log.imported"})

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._row: Row = {"events": 0, "openings": 0, "crashes": 0, "outcome": ""}

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        row = self._row
        row.setdefault("began", fact.time)
        row["ended"] = fact.time
        row["events"] += 1
        match fact.type:
            case "session.opened":
                self._opened(fact)
            case "session.closed":
                row |= {"outcome": fact.text("outcome"), "reason": fact.text("reason")}
            case "session.forked":
                row["parent"] = fact.text("parent")
            case "log.imported":
                self._imported(fact)
            case "note.added" | "head.signed" | "log.redacted" | "log.recovered":
                pass
            case _:
                row |= {"outcome": "", "reason": None}

    def _imported(self, fact: Fact) -> None:
        """The first one is of the session itself; others are of files that belong to it."""
        if "source" not in self._row:
            self._row |= {
                name: fact.text(name) for name in ("source", "program", "workspace", "name", "model", "branch")
            }

    def _opened(self, fact: Fact) -> None:
        row, settings, git = self._row, fact.part("settings"), fact.part("git")
        row |= {"outcome": "", "reason": None}
        row["openings"] += 1
        row["crashes"] += fact.number("crashed") or 0
        row["name"] = fact.text("name") or row.get("name", "")
        row.setdefault("workspace", fact.text("workspace"))
        row |= {name: settings.get(name) for name in ("provider", "model", "mode")}
        row |= {"sandbox": fact.text("sandbox") or settings.get("sandbox"), "muse": fact.part("host").get("muse")}
        row |= {"branch": git.get("branch"), "git_head": git.get("head")}

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return [self._row] if self._row["events"] else []


class Events:
    """`events`: each row is given out once."""

    types: frozenset[str] | None = None

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._used = used
        self._rows: list[Row] = []
        self.bodies: frozenset[str] | None = None if "call" in used else frozenset()

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        head = fact.head
        row: Row = {
            "seq": fact.seq, "address": fact.address, "time": fact.time, "type": fact.type, "agent": fact.agent,
            "cause": head.cause, "v": head.v, "epoch": head.epoch, "id": head.id, "call": fact.text("call") or None,
            "hidden": int(fact.stored.body is None),
        }  # fmt: skip
        if "body" in self._used and fact.stored.body is not None:
            row["body"] = fact.stored.body.decode(errors="replace")
        self._rows.append(row)

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        found, self._rows = self._rows, []
        return found


class Prompts:
    """`prompts`."""

    types: frozenset[str] | None = frozenset({"user.prompted", "agent.steered", "agent.wanted", "question.answered"})
    bodies = types
    _HOW: Final = {
        "user.prompted": "prompt", "agent.steered": "steer", "agent.wanted": "spawn", "question.answered": "answer",
    }  # fmt: skip

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._rows: list[Row] = []

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        origin = fact.part("origin")
        self._rows.append(
            {
                "seq": fact.seq, "address": fact.address, "time": fact.time, "agent": fact.agent,
                "how": self._HOW[fact.type], "text": fact.text("task" if fact.type == "agent.wanted" else "text"),
                "delivery": (fact.text("delivery") or "queue") if fact.type == "user.prompted" else None,
                "person": origin.get("user") or "", "terminal": origin.get("terminal") or "",
                "client": origin.get("client") or "",
            }
        )  # fmt: skip

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._rows


class Files:
    """`files`."""

    types: frozenset[str] | None = frozenset({"files.changed"})
    bodies = types

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._used = used
        self._contents = contents
        self._rows: list[Row] = []

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        calls = " ".join(map(str, fact.parts("calls")))
        for change in fact.parts("changes"):
            row: Row = {
                "seq": fact.seq, "address": fact.address, "time": fact.time, "agent": fact.agent, "calls": calls,
                "external": fact.number("external") or 0, **self._change(change),
            }  # fmt: skip
            self._rows.append(row)

    def _change(self, change: dict[str, Any]) -> Row:
        before, after = change.get("before"), change.get("after")
        was, there = (bool(side or change.get(mode)) for side, mode in ((before, "before_mode"), (after, "after_mode")))
        row: Row = {
            "path": change.get("path"), "note": change.get("note") or None,
            "change": "changed" if was and there else "created" if there else "deleted",
        }  # fmt: skip
        for name, side in (("before", before), ("after", after)):
            ref = side if isinstance(side, BlobRef) else None
            row[f"{name}_bytes"] = ref.length if ref else None
            row[f"{name}_mode"] = f"{change[f'{name}_mode']:o}" if change.get(f"{name}_mode") else None
            if f"{name}_sha256" in self._used:
                row[f"{name}_sha256"] = self._contents.sha256(ref)
        if {"added", "removed"} & set(self._used):
            row["added"], row["removed"] = lines_changed(change, self._contents) or (None, None)
        return row

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._rows


class Costs:
    """`costs`; agents get their sums from it, too."""

    types: frozenset[str] | None = frozenset({"model.requested", "model.responded", "model.failed"})
    bodies = types

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._rows: dict[tuple[str, str, str], Row] = {}
        self._of_call: dict[str, Row] = {}

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        call = fact.text("call")
        if fact.type == "model.requested":
            self._of_call[call] = self._requested(call, fact)
            return
        row = self._of_call.get(call)
        if row is None:  # an imported session: requests were not recorded
            row = self._requested(call, fact)
        row["duration_ms"] += fact.number("duration_ms") or 0
        if fact.type == "model.failed":
            row["failed"] += 1
        for name, number in tokens(fact).items():
            row[name] += number

    def _requested(self, call: str, fact: Fact) -> Row:
        """The row that a request counts for, with it counted."""
        key = (call.rpartition("/")[0], fact.text("provider"), fact.text("model"))
        blank: Row = dict.fromkeys((*TOKENS, "requests", "failed", "duration_ms"), 0)
        row = self._rows.setdefault(key, blank | {"agent": key[0], "provider": key[1], "model": key[2]})
        row["requests"] += 1
        return row

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        return self._rows.values()


class Agents:
    """`agents`."""

    types: frozenset[str] | None = frozenset(
        {
            "session.opened",
            "agent.spawned",
            "agent.finished",
            "tool.started",
            "policy.changed",
            "worktree.prepared",
            *(Costs.types or ()),
        }
    )
    bodies = types
    _TEXTS: Final = ("parent", "call", "name", "role", "task", "model", "mode", "workspace")

    def __init__(self, used: Collection[str], contents: Contents) -> None:
        self._rows: dict[str, Row] = {}
        self._costs = Costs((), contents)
        self._calls: set[str] = set()
        self._mode: str | None = None

    def take(self, fact: Fact) -> None:
        """See `Gatherer`."""
        if fact.type in (Costs.types or ()):
            self._costs.take(fact)
            if fact.type == "model.requested":
                self._goes_on(fact.agent)
            return
        if fact.type in ("session.opened", "policy.changed"):
            self._mode = fact.part("settings").get("mode") or fact.text("mode") or self._mode
            return
        row = self._rows.setdefault(fact.agent, {"agent": fact.agent, "calls": 0, "outcome": ""})
        if fact.type == "agent.spawned":
            row |= {name: fact.text(name) or None for name in self._TEXTS}
            row |= {"address": fact.address, "began": fact.time, "background": fact.number("background") or 0}
            row |= {"place": fact.number("index") or 0, "isolation": fact.text("isolation") or "shared"}
        elif fact.type == "worktree.prepared":
            row["workspace"] = fact.text("path") or None
        elif fact.type == "agent.finished":
            row |= {"finished": fact.seq, "finished_at": fact.time, "outcome": fact.text("outcome")}
            row["answer"] = fact.text("text")
        elif (call := fact.text("call")) not in self._calls:
            self._calls.add(call)
            row["calls"] += 1

    def _goes_on(self, agent: str) -> None:
        """Words to an agent that had finished begin another turn: its end is still to come."""
        row = self._rows.get(agent, {})
        if row.get("finished"):
            row |= {"finished": None, "finished_at": None, "outcome": "", "answer": None}

    def rows(self) -> Iterable[Row]:
        """See `Gatherer`."""
        for cost in self._costs.rows():
            row = self._rows.setdefault(cost["agent"], {"agent": cost["agent"], "calls": 0, "outcome": ""})
            row["model"] = row.get("model") or cost["model"]
            sums = {"input": cost["input"] + cost["cache_read"] + cost["cache_write"], "requests": cost["requests"]}
            for name, number in (sums | {"output": cost["output"], "cost_microusd": cost["cost_microusd"]}).items():
                row[name] = row.get(name, 0) + number
        for row in self._rows.values():
            row["mode"] = row.get("mode") or self._mode
        return self._rows.values()
