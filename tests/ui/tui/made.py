"""A session for looking at: three agents, every kind of mark, the same bytes of text wherever and whenever it is made.

Put together through the store, with times of its own; the model requests are those that the fold gives, so that they
can be rebuilt.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from muse import app
from muse.decide.context import next_request
from muse.event import kinds
from muse.event.content import BlobRef, Block, FileChange, Git, Host, Observed, Origin, Settings, ToolSpec, Usage
from muse.event.envelope import decode
from muse.fold.evolve import evolve
from muse.fold.state import Session
from muse.log.protocol import Draft
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal

SESSION = "20260309-090000-checkout"
ADA = Origin(pid=4100, terminal="/dev/pts/3", user="ada", client="terminal")
HOST = Host(name="desk", pid=4242, system="Linux 6.18", python="3.12", muse="0.1.0")
SETTINGS = Settings(provider="scripted", dialect="scripted", model="story", mode="default")
TOOLS = tuple(
    ToolSpec(name=name, description=f"{name} something.", schema='{"type":"object"}', recovery="opaque")
    for name in ("read", "grep", "edit", "shell", "spawn")
)
BEFORE = """\
def total(items):
    return sum(round(item.price, 2) for item in items)


def count(items):
    return len(items)
"""
AFTER = BEFORE.replace("sum(round(item.price, 2) for item in items)", "round(sum(item.price for item in items), 2)")
HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \u202eright to left\u202c "
    "e\u0301 漢字 \U0001f642 [bold]no markup[/bold]"
)
"""What a command prints that would rather be obeyed than read."""


PEOPLE = (kinds.UserPrompted, kinds.AgentSteered, kinds.CancelRequested)
"""What nothing in the log led to."""


class Story:
    """Tells events into a log, one after another, at a clock that goes on by `seconds` for each."""

    def __init__(self, log: SqliteLog) -> None:
        self._log = log
        self._now = datetime(2026, 3, 9, 9, 0, 0, 250_000, tzinfo=UTC)
        self.state = Session(session=log.session)
        self._rules = app.rules()
        self._ownership = log.claim(lambda _claim: self._sealed(self._opening(), "main", 0))
        self._fold()

    def _opening(self, *, crashed: bool = False) -> kinds.SessionOpened:
        return kinds.SessionOpened(
            format=1, rules=self._rules.version, workspace="/home/ada/shop", host=HOST, settings=SETTINGS,
            session=SESSION, name="checkout", date="2026-03-09", tools=TOOLS, crashed=crashed,
            git=Git(root="/home/ada/shop", head="5d1c0de0" * 5, branch="main"),
            commands=tuple(kinds.CommandVersion(type=name, v=v) for name, v in sorted(kinds.COMMANDS.items())),
        )  # fmt: skip

    def _sealed(self, body: msgspec.Struct, agent: str, cause: int) -> Draft:
        when = self._now.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
        return seal(body, agent, cause, clock=lambda: when)

    def _fold(self) -> None:
        for stored in self._log.read(after=self.state.seq):
            evolve(self.state, decode(stored.header, stored.body, stored.hidden))

    def say(self, body: msgspec.Struct, agent: str = "main", *, cause: int = 0, seconds: float = 0.4) -> int:
        """One event, and its seq. Without a `cause` it is what the agent does next."""
        self._now += timedelta(seconds=seconds)
        head = self.state.seq
        lane = self.state.agents.get(agent)
        led = cause or (lane.cause if lane is not None and type(body) not in PEOPLE else 0)
        self._log.append([self._sealed(body, agent, led)], [], head, self._ownership.epoch)
        self._fold()
        return self.state.seq

    def reopen(self) -> None:
        """The host is gone, and another one opens the session."""
        self._now += timedelta(minutes=12)
        self._ownership.release()
        self._ownership = self._log.claim(lambda _claim: self._sealed(self._opening(crashed=True), "main", 0))
        self._fold()

    def blob(self, text: str) -> BlobRef:
        """A content, kept."""
        ((root, length),) = self._log.put_blobs([(text.encode(), bytes(32))])
        return BlobRef(root, length)

    def ask(self, agent: str = "main", attempt: int = 1) -> str:
        """A model request; its call."""
        lane = self.state.agents[agent]
        call = lane.call.key if lane.call else f"{agent}/{lane.next_n}"
        built = next_request(self.state, lane, self._rules)
        self.say(
            kinds.ModelRequested(
                call=call, attempt=attempt, provider="scripted", model="story", builder=built.builder,
                items=built.items, request_sha256=built.sha256, request_bytes=len(built.body),
            ), agent, seconds=0.02,
        )  # fmt: skip
        return call

    def answer(self, text: str, *uses: tuple[str, str], agent: str = "main", seconds: float = 2.1) -> list[str]:
        """A request and its answer; the calls of the uses."""
        call = self.ask(agent)
        number = int(call.rpartition("/")[2])
        asked = (
            Block(kind="tool_use", id=f"u{number}_{at}", name=name, args=args) for at, (name, args) in enumerate(uses)
        )
        blocks = (Block(kind="text", text=text), *asked)
        usage = Usage(input=1_200, output=85, cache_read=900 * number, cost_microusd=4_100 + 10 * number)
        self.say(
            kinds.ModelResponded(
                call=call, attempt=1, blocks=blocks, stop="tool_use" if uses else "end_turn", usage=usage,
                duration_ms=int(seconds * 1000),
            ), agent, cause=self.state.seq, seconds=seconds,
        )  # fmt: skip
        return [f"{agent}/{number + at}" for at in range(1, len(uses) + 1)]

    def start(self, call: str, *, approval: int = 0) -> int:
        """A call starts; its intent."""
        run = self.state.run(call)
        assert run is not None
        by = "" if approval else "mode default: plainly harmless"
        started = kinds.ToolStarted(
            call=call, attempt=1, tool=run.tool, args=run.args, recovery="opaque", allowed_by=by, approval=approval,
            observed=Observed(folder="/home/ada/shop"),
        )  # fmt: skip
        return self.say(started, call.partition("/")[0], cause=approval or run.cause, seconds=0.01)

    def derive(self, call: str) -> int:
        """A call that touches nothing but the log starts."""
        run = self.state.run(call)
        assert run is not None
        body = kinds.ToolStarted(
            call=call, attempt=1, tool=run.tool, args=run.args, recovery="derived", allowed_by="plainly harmless"
        )
        return self.say(body, call.partition("/")[0], cause=run.cause, seconds=0.01)

    def finish(self, agent: str, text: str, outcome: Literal["done", "failed", "cancelled"] = "done") -> int:
        """A child has ended."""
        return self.say(kinds.AgentFinished(outcome=outcome, text=text), agent, seconds=0.01)

    def end(self, call: str, text: str, *, status: str = "ok", code: int | None = None, seconds: float = 0.3) -> int:
        """A call ends."""
        done = kinds.ToolFinished(
            call=call,
            attempt=1,
            status=status,
            text=text,
            exit_code=code,
            duration_ms=int(seconds * 1000),  # type: ignore[arg-type]  # a literal
        )
        run = self.state.run(call)
        assert run is not None
        return self.say(done, call.partition("/")[0], cause=run.cause, seconds=seconds)

    def approve(self, call: str, shown: str, rule: str, *, decision: str = "allow", note: str = "") -> int:
        """A person is asked, thinks, and answers."""
        run = self.state.run(call)
        assert run is not None
        request = kinds.ApprovalRequested(call=call, tool=run.tool, shown=shown, shown_sha256="0" * 64, rule=rule)
        asked = self.say(request, cause=run.cause, seconds=0.01)
        decided = kinds.ApprovalDecided(call=call, decision=decision, by="person", request=asked, note=note, origin=ADA)  # type: ignore[arg-type]  # a literal
        return self.say(decided, cause=asked, seconds=14)


def write_session(path: Path) -> None:
    """The whole story, into a new file."""
    with closing(SqliteLog.create(path, SESSION, commands=kinds.COMMANDS)) as log:
        story = Story(log)
        _first_turn(story)
        _second_turn(story)


def _first_turn(story: Story) -> None:
    story.say(
        kinds.UserPrompted(text="The checkout test fails since yesterday.\nFind out why and mend it.", origin=ADA)
    )
    story.say(
        kinds.AgentSpawned(task="", system="You mend things in /home/ada/shop.", tools=tuple(t.name for t in TOOLS))
    )
    read, log = story.answer(
        "I look at the test, and at what changed.", ("read", '{"path":"tests/test_checkout.py"}'),
        ("shell", '{"command":"git log --oneline -3"}'),
    )  # fmt: skip
    story.start(read)
    story.start(log)
    story.end(read, "def test_total():\n    assert total(three_at(0.105)) == 0.32\n")
    story.end(log, "5d1c0de round prices one by one\n91ab2f0 calendar in UTC\n", code=0)
    first, second = story.answer(
        "Two suspects. Two agents look at the same time.",
        ("spawn", '{"task":"Look at the rounding in shop/cart.py."}'),
        ("spawn", '{"task":"Run the calendar tests; is it the time zone?"}'),
    )  # fmt: skip
    story.start(first)
    story.start(second)
    _spawn(story, "main.1", "Look at the rounding in shop/cart.py.", first)
    _spawn(story, "main.2", "Run the calendar tests; is it the time zone?", second)
    for _ in _children(story):
        pass
    story.end(first, "total() rounds each price before it adds them.", seconds=0.1)
    story.end(second, "The calendar is innocent: one test fails for want of a network.", seconds=0.1)
    _mend(story)


def _spawn(story: Story, agent: str, task: str, call: str) -> None:
    story.say(kinds.AgentSpawned(
        task=task, system="You look, and change nothing.", tools=("read", "grep", "shell"), parent="main", call=call
    ), agent, seconds=0.01)  # fmt: skip
    story.say(kinds.UserPrompted(text=task), agent, seconds=0.01)


def _children(story: Story) -> Iterator[None]:
    """Both at once, their events between each other."""
    call = story.ask("main.2")
    (grep,) = story.answer("I search for round.", ("grep", '{"pattern":"round(","path":"shop"}'), agent="main.1")
    busy = kinds.ModelFailed(
        call=call, attempt=1, failure="overloaded", message="busy, come back", status=529, duration_ms=900
    )
    story.say(busy, "main.2")
    story.say(kinds.TimerSet(key=f"retry:{call}", duration_ms=1500), "main.2", seconds=0.01)
    story.start(grep)
    story.end(grep, "shop/cart.py:2:    return sum(round(item.price, 2) for item in items)\n")
    story.say(kinds.TimerFired(key=f"retry:{call}"), "main.2", seconds=1.5)
    story.ask("main.2", attempt=2)
    yield
    use = Block(kind="tool_use", id="use_c", name="shell", args='{"command":"pytest -q tests/test_calendar.py"}')
    story.say(
        kinds.ModelResponded(call=call, attempt=2, blocks=(use,), stop="tool_use", duration_ms=1200),
        "main.2",
        seconds=1.2,
    )
    test = f"main.2/{int(call.rpartition('/')[2]) + 1}"
    story.start(test)
    story.answer("total() rounds each price before it adds them.", agent="main.1")
    story.say(kinds.AgentFinished(outcome="done", text="total() rounds each price before it adds them."), "main.1")
    story.end(test, f"{HOSTILE}\n1 failed, 12 passed\n", status="error", code=1, seconds=9)
    story.answer("One test wants a network; the rest holds.", agent="main.2")
    story.say(kinds.AgentFinished(outcome="failed", text="one test wants a network"), "main.2")
    yield


def _mend(story: Story) -> None:
    old, new = "sum(round(item.price, 2) for item in items)", "round(sum(item.price for item in items), 2)"
    args = json.dumps({"path": "shop/cart.py", "old": old, "new": new})
    (edit,) = story.answer("It is the rounding. I mend total().", ("edit", args))
    approval = story.approve(edit, "edit shop/cart.py", "mode default: edits ask")
    started = story.start(edit, approval=approval)
    change = FileChange(path="shop/cart.py", before=story.blob(BEFORE), after=story.blob(AFTER))
    story.say(kinds.FilesChanged(changes=(change,), calls=(edit,), tree="ab" * 20), cause=started, seconds=0.05)
    story.end(edit, "edited shop/cart.py: 1 replacement at line 2 (+1 -1 lines)", seconds=0.02)
    story.say(kinds.AgentSteered(text="Mind the old prices too.", origin=ADA), seconds=3)
    run, clean = story.answer(
        "Now the tests, and I clean up.", ("shell", '{"command":"pytest -q"}'), ("shell", '{"command":"rm -rf build"}')
    )
    story.start(run)
    story.approve(
        clean, "rm -rf build", "mode default: rm -rf build is not plainly harmless", decision="deny", note="keep it"
    )
    story.end(
        run,
        "\n".join(f"tests/test_{n}.py ....... [{n * 5}%]" for n in range(1, 21)) + "\n140 passed\n",
        code=0,
        seconds=6,
    )
    story.answer("Mended: the sum is rounded, not each price.\n\nAll 140 tests pass.")


def _second_turn(story: Story) -> None:
    story.say(kinds.UserPrompted(text="Now deploy it to the test shop.", origin=ADA), seconds=95)
    (deploy,) = story.answer("I deploy.", ("shell", '{"command":"make deploy SHOP=test"}'))
    approval = story.approve(deploy, "make deploy SHOP=test", "mode default: make is not plainly harmless")
    started = story.start(deploy, approval=approval)
    story.reopen()
    doubt = kinds.EffectDoubted(call=deploy, attempt=1, recovery="opaque")
    doubted = story.say(doubt, cause=started, seconds=0.01)
    story.say(
        kinds.EffectReconciled(call=deploy, attempt=1, verdict="unknown", evidence="its host is gone"),
        cause=doubted,
        seconds=0.01,
    )
    story.end(deploy, "It may or may not have happened: look first.", status="unknown", seconds=0.01)
    (look,) = story.answer(
        "I look whether it arrived.", ("shell", '{"command":"curl -s https://test.shop.example/version"}')
    )
    approval = story.approve(
        look, "curl -s https://test.shop.example/version", "mode default: curl reaches the network"
    )
    story.start(look, approval=approval)
    story.say(kinds.CancelRequested(target="turn", why="I look myself", origin=ADA), seconds=21)
    story.end(look, "Cancelled.", status="cancelled", seconds=0.2)
    story.say(kinds.SessionClosed(outcome="cancelled", reason="I look myself"), seconds=0.1)
