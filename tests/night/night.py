"""A night: eight agents with many calls, contexts that grow too long, a provider whose quota runs out, a clock that
goes through a day, and a machine that kills the host every hour and everything at once now and then.

`Night` plays it to its end and counts what may not be. Work is counted outside (`tests.night.work`), as are requests.
The clock is that of `tests.e2e.fake_clock`: an hour goes by at each kill of the host, and when all wait for a date that
the provider gave, the clock is set to it.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from muse import app
from muse.decide.compaction import INSTRUCTION
from muse.effect.model.scripted import Lane, Script, Step
from muse.event import codec
from muse.event.content import BlobRef
from muse.testing.wire import AnthropicServer, Trouble
from tests.crash.matrix.checks import Finding
from tests.e2e.fake_clock import FakeClock, has_compiler
from tests.e2e.rig import Event, Rig
from tests.night import checks, work
from tests.night.hosts import Session

HOUR: Final = 3600
PROMPT: Final = "All eight of you, through the night."
INTENTS: Final = ("tool.started", "model.requested")
SUMMARY: Final = "What was done so far is in the notes."
PAUSE_SECONDS: Final = 0.1
QUIET_SECONDS: Final = 1.5
SHORT_CALLS: Final = 10
RESUMES: Final = 5
"""Resumes of which the quickest counts."""
RATIO_MAX: Final = 3
GROWTH_MAX: Final = 2
WORK: Final = ("tool.finished", "model.responded")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How large a night is."""

    agents: int = 8
    calls: int = 1200
    kills: int = 24
    trees: int = 3
    hours: int = 24
    quotas: int = 3
    quota_hours: float = 1.5
    bulk: int = 6_000
    context_tokens: int = 24_000
    compactions: int = 3
    delay_ms: int = 5


SAMPLE: Final = Plan(calls=1_000, kills=20, trees=3, quotas=2, context_tokens=8_000, compactions=3, hours=24)
"""What `make test` plays of it: about a minute."""


@dataclass(kw_only=True)
class Report:
    """What came of a night. `slow`: what took longer than it may, "" for nothing; how long anything takes is a matter
    of the machine as well, and no finding of a test."""

    seed: int
    findings: list[Finding]
    events: int = 0
    calls: int = 0
    requests: int = 0
    kills: int = 0
    trees: int = 0
    compactions: int = 0
    summaries: int = 0
    parked: int = 0
    hours: float = 0.0
    content_bytes: int = 0
    raw_bytes: int = 0
    file_bytes: int = 0
    late_ms: float = 0.0
    short_ms: float = 0.0
    host_kib: int = 0
    runner_kib: int = 0
    doubts: int = 0
    seconds: float = 0.0
    slow: str = ""

    def zeros(self) -> dict[str, int]:
        """How many findings there are of each kind that may not be."""
        return {zero: sum(one.zero == zero for one in self.findings) for zero in checks.ZEROS}

    def rows(self) -> list[tuple[str, str]]:
        """What was counted and measured, for people."""
        growth = self.file_bytes / max(self.content_bytes, 1)
        ratio = self.late_ms / max(self.short_ms, 1e-9)
        return [
            ("by the agents' clock", f"{self.hours:.1f} hours, in {self.seconds:.0f} s"),
            ("done", f"{self.calls:,} tool calls, {self.requests:,} model requests, {self.events:,} events"),
            ("killed", f"the host {self.kills} times, host, runner and commands {self.trees} times"),
            ("contexts compacted", f"{self.compactions} times, {self.summaries} of them by a summary"),
            ("parked on a quota", f"{self.parked} times"),
            *((zero, str(n)) for zero, n in self.zeros().items()),
            ("doubts allowed, and seen", str(self.doubts)),
            ("the log", f"{self.file_bytes / 1e6:.2f} MB: {growth:.2f} times its content (aim: at most "
                        f"{GROWTH_MAX}) of {self.content_bytes / 1e6:.2f} MB (bodies of events, and files that they "
                        "name, each once), "
                        f"and it holds the {self.raw_bytes / 1e6:.2f} MB that the provider sent besides"),
            ("from `muse resume` to the next intent", f"{self.late_ms:.0f} ms in the last hour, {self.short_ms:.0f} ms "
             f"in a session of {SHORT_CALLS} calls: {ratio:.2f} times (aim: at most {RATIO_MAX}; the quickest of "
             f"{RESUMES} each)"),
            ("peak memory", f"host {self.host_kib / 1024:.0f} MiB, runner {self.runner_kib / 1024:.0f} MiB"),
        ]  # fmt: skip


class Night:
    """One night in a rig of its own. `play`, then look at `report`."""

    def __init__(self, plan: Plan, seed: int, say: Callable[[str], None] = lambda _line: None) -> None:
        self.plan, self.seed, self.say = plan, seed, say
        self.rng = random.Random(seed)
        each = plan.calls // plan.agents
        self.scripts = {
            n: (*work.labour(n, each, bulk=plan.bulk, delay_ms=plan.delay_ms), work.the_end(n))
            for n in range(1, plan.agents + 1)
        }
        self.report = Report(seed=seed, findings=[])
        self.shifted = 0
        self._verified_at = 0.0

    def play(self) -> Report:
        """The whole night."""
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="muse-night-") as folder, AnthropicServer(
            self._script(), self._faults(), long=True, asides={INSTRUCTION[:60]: Step(text=SUMMARY)}
        ) as server, Rig(Path(folder) / "a", work.files(self.plan.agents)) as rig:  # fmt: skip
            self.rig, self.server = rig, server
            self._equip(rig, server.base_url)
            self.session = Session(rig, PROMPT, "--yolo")
            with Rig(Path(folder) / "b", work.files(1)) as short:
                self._live(short)
            self._count()
        self.report.seconds = time.monotonic() - begun
        self._judge()
        return self.report

    def _equip(self, rig: Rig, base_url: str) -> None:
        (rig.home / work.COUNT).mkdir()
        context = f'[models."shop/some-model"]\ncontext = {self.plan.context_tokens}\n'
        rig.provider("anthropic", base_url, "max_output_tokens = 1000\nmax_model_calls = 0")
        settings = rig.home / ".config" / "muse" / "config.toml"
        settings.write_text(f"{settings.read_text()}\n{context}")
        self.clock = FakeClock(rig, "preload" if has_compiler() else "python")

    def _script(self) -> Script:
        agents = [{"task": work.task(n), "isolation": "shared"} for n in self.scripts]
        main = (Step(uses=(("spawn", {"agents": agents}),)), Step(text="The night is over."))
        lanes = [Lane(when=work.task(n), steps=steps) for n, steps in self.scripts.items()]
        short = Lane(when="A short one.", steps=tuple(work.labour(1, 60)))
        return Script(steps=main, lanes=(*lanes, short))

    def _faults(self) -> dict[int, list[Trouble]]:
        """The quota is used up at so many steps, for every agent that comes to them."""
        wait = str(int(self.plan.quota_hours * HOUR))
        quota = Trouble("status", status=429, error="rate_limit_error", headers=(("retry-after", wait),))
        steps = min(len(steps) for steps in self.scripts.values()) - 1
        return {(n + 1) * steps // (self.plan.quotas + 1): [quota] for n in range(self.plan.quotas)}

    # -- the lives ---------------------------------------------------------------------------------------------------

    def _live(self, short: Rig) -> None:
        plan, session = self.plan, self.session
        total = sum(len(steps) + sum(len(step.uses) for step in steps) for steps in self.scripts.values())
        kinds = ["host"] * plan.kills + ["tree"] * plan.trees
        self.rng.shuffle(kinds)
        for n, kind in enumerate(kinds):
            place = 0.9 * total * (n + self.rng.random()) / len(kinds)
            self._until_place(place)
            alive = self.rng.random() < 0.5
            if kind == "host" and alive:
                self._hour()
            assert session.kill(tree=kind == "tree"), f"it ended by itself: {session.status} {session.errors()}"
            if kind == "host" and not alive:
                self._hour()
            self._verify(n, kind)
        self._resume_often(session, self._short(short))
        session.start()
        code = session.to_the_end(self._park)
        assert code == 0, (code, session.errors())

    def _until_place(self, place: float) -> None:
        session = self.session
        session.start()
        shown = len(session.events)
        session.until(lambda: len(session.events) > shown and session.count(*WORK) >= place, self._park)
        at = time.monotonic() + self.rng.uniform(0, PAUSE_SECONDS)
        session.until(lambda: time.monotonic() >= at)

    def _hour(self) -> None:
        self._shift(self.shifted + -(-self.plan.hours * HOUR // self.plan.kills))

    def _shift(self, seconds: int) -> None:
        self.shifted = seconds
        self.clock.shift(seconds)

    def _park(self) -> None:
        """When all wait for a date that the provider gave, that date comes."""
        if not self.session.quiet(QUIET_SECONDS):
            return
        dates = waiting_until(self.session.events)
        if dates:
            now = datetime.now(UTC) + timedelta(seconds=self.shifted)
            ahead = int((max(dates) - now).total_seconds()) + 2
            if ahead > 0:
                self._shift(self.shifted + ahead)
                self.say(f"  parked until {max(dates):%H:%M}: the clock is set there")
            self.session.shown_at = time.monotonic()

    def _verify(self, n: int, kind: str) -> None:
        found = checks.verified(self.rig.path())
        self.report.findings += found
        done = self.session.count("tool.finished")
        self.say(f"  {n + 1}: {kind} killed after {done} calls, hour {self.shifted / HOUR:.1f}"
                 f"{'; IT DOES NOT VERIFY' if found else ''}")  # fmt: skip

    def _resume_often(self, *sessions: Session) -> None:
        """Milliseconds from the start of `muse resume` to the next intent, in turns, the quickest of several each."""
        found: list[list[float]] = [[] for _ in sessions]
        for _ in range(RESUMES):
            for session, took in zip(sessions, found, strict=True):
                took.append(self._resumed(session))
        self.report.late_ms, self.report.short_ms = map(min, found)

    def _resumed(self, session: Session) -> float:
        session.start()
        shown = len(session.events)
        session.until(lambda: any(event["type"] in INTENTS for event in session.events[shown:]), self._park)
        took = (time.monotonic() - session.begun) * 1e3
        assert session.kill()
        return took

    def _short(self, rig: Rig) -> Session:
        """A session of one agent, killed after a few calls."""
        clock = self.clock
        self._equip(rig, self.server.base_url)
        self.clock = clock
        session = Session(rig, "A short one.", "--yolo")
        session.start()
        session.until(lambda: session.count("tool.finished") >= SHORT_CALLS)
        assert session.kill()
        return session

    # -- what came of it ---------------------------------------------------------------------------------------------

    def _count(self) -> None:
        session, report = self.session, self.report
        events, path = session.events, self.rig.path()
        report.events, report.kills, report.trees = len(events), session.kills, session.trees
        report.calls = sum(e["type"] == "tool.finished" and e["agent"] != "main" for e in events)
        report.requests = session.count("model.requested")
        report.compactions = session.count("context.compacted")
        report.summaries = sum(e["type"] == "context.compacted" and e["body"]["method"] == "summary" for e in events)
        report.parked = sum(e["type"] == "model.failed" and bool(e["body"].get("retry_until")) for e in events)
        report.hours = self.shifted / HOUR
        report.content_bytes, report.raw_bytes = content_bytes(path)
        report.file_bytes = path.stat().st_size
        report.host_kib, report.runner_kib = session.memory["host"], session.memory["runner"]
        report.doubts = sum(e["type"] == "tool.finished" and e["body"]["status"] == "unknown" for e in events)
        agents = checks.numbers_of(events)
        found = checks.born_and_ended_once(events, list(self.scripts)) + checks.calls_once(events)
        found += checks.silent(events) + checks.log_holds(path)
        found += checks.effects(self.rig, events, self.scripts, session.doubtful)
        mine = [one for one in self.server.requests if str(self.rig.workspace).encode() in one.body]
        found += checks.requests(events, mine, work.words(dict.fromkeys(agents, "main"), agents))
        found += [Finding("invalid", fault) for fault in self.server.violations]
        if events != self.rig.events():
            found.append(Finding("lost", "what was shown is not what the log holds"))
        if events[-1]["body"].get("outcome") != "done":
            found.append(Finding("lost", f"it ends with {events[-1]}"))
        report.findings += found

    def _judge(self) -> None:
        """What is no zero, and was asked of the night all the same."""
        plan, report = self.plan, self.report
        wanted = {
            f"{report.calls} calls, not {plan.calls}": report.calls >= plan.calls // plan.agents * plan.agents,
            f"{report.compactions} compactions, not {plan.compactions}": report.compactions >= plan.compactions,
            f"{report.parked} times parked, not {plan.quotas}": report.parked >= plan.quotas,
            f"{report.hours:.1f} hours, not {plan.hours}": report.hours >= plan.hours,
            "the log is more than twice its content": report.file_bytes <= GROWTH_MAX * report.content_bytes,
        }  # fmt: skip
        report.findings += [Finding("night", text) for text, good in wanted.items() if not good]
        if report.late_ms > RATIO_MAX * report.short_ms:
            report.slow = f"a resume in the last hour takes more than {RATIO_MAX} times that of a short session"


def waiting_until(events: Iterable[Event]) -> list[datetime]:
    """The dates until which agents are parked: those of failed requests that were not made again."""
    dates: dict[str, datetime] = {}
    for event in events:
        call = event["body"].get("call", "")
        if event["type"] == "model.failed" and event["body"].get("retry_until"):
            dates[call] = datetime.fromisoformat(event["body"]["retry_until"])
        elif event["type"] == "model.requested":
            dates.pop(call, None)
    return list(dates.values())


def content_bytes(path: Path) -> tuple[int, int]:
    """Bytes of the bodies of a log's events and of the files that they name, each once and as they were given; and of
    what the provider sent, as it came."""
    total = 0
    files: dict[str, int] = {}
    raw: dict[str, int] = {}
    with app.read_session(path) as reading:
        for event in reading.events():
            total += len(codec.encode(event.body))
            into = raw if event.type in ("model.responded", "model.failed") else files
            into |= {one.blob: one.length for one in blobs_in(event.body)}
    return total + sum(files.values()), sum(raw.values())


def blobs_in(value: object) -> Iterable[BlobRef]:
    """Those that a body names."""
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from blobs_in(getattr(value, name))
    elif isinstance(value, tuple | list):
        for one in value:
            yield from blobs_in(one)


def progress(line: str) -> None:
    """On standard error."""
    print(line, file=sys.stderr, flush=True)
