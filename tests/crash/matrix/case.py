"""One case: a session with its kills, played to its end, and what was found wrong with it."""

import compileall
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

import muse
from muse import app
from muse.event.content import Origin
from muse.event.envelope import Event
from muse.event.kinds import AgentSteered, ApprovalDecided, ApprovalRequested, CancelRequested
from muse.testing.wire import AnthropicServer, OpenAIServer, WireServer
from tests.crash.matrix import checks
from tests.crash.matrix.cells import FILES, LATE_SECONDS, PROMPT, STEERED, Cell, cell_named
from tests.crash.matrix.checks import Finding, Seen
from tests.crash.matrix.life import Life, Stuck, commands_begun, counted
from tests.crash.matrix.plan import Kill, Plan, plan_of
from tests.e2e.rig import MUSE, Rig

LIVES_MAX = 12
SERVERS: dict[str, type[WireServer]] = {"anthropic": AnthropicServer, "openai": OpenAIServer}
LAUNCH = Path(__file__).with_name("launch.py")
OUTSIDE = Origin(user="test", pid=1, client="test")


class Result(msgspec.Struct, kw_only=True):
    """What came of a case. `allowed` and `seen` are doubts; `killed_at` the places where a kill took place."""

    cell: str
    killed: str
    number: int
    kills: int
    allowed: int
    seen: int
    killed_at: list[str]
    reached: dict[str, int]
    zeros: dict[str, int]
    findings: list[str]
    seconds: float


class Stage:
    """Servers and calm runs, kept for all cases that one process plays. `patches` are planted in every `muse`."""

    def __init__(self, patches: tuple[str, ...] = ()) -> None:
        self.patches = patches
        self._servers: dict[tuple[str, str], WireServer] = {}
        self._calm: dict[tuple[str, str], tuple[str, dict[str, int]]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # A rig's processes write no bytecode: in a fresh clone each would compile all of muse again.
        compileall.compile_dir(muse.__path__[0], quiet=2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def server(self, cell: Cell, dialect: str) -> WireServer:
        """The provider that tells this cell's script."""
        key = (cell.name, dialect)
        if key not in self._servers:
            server = SERVERS[dialect](cell.steps, cell.faults())
            self._servers[key] = self._stack.enter_context(server)
        return self._servers[key]

    def command(self, cell: Cell) -> list[str]:
        """What starts `muse`: as it is installed, or with the cell's patches and those planted."""
        patches = (*cell.launch, *self.patches)
        return [sys.executable, str(LAUNCH), ",".join(patches)] if patches else [MUSE]

    def calm(self, cell: Cell, dialect: str) -> tuple[str, dict[str, int]]:
        """The last request of a run that nobody disturbs, and how often it came to each place."""
        key = (cell.name, dialect)
        if key not in self._calm:
            case = Case(self, cell, Plan(killed="nobody", dialect=dialect, kills=(), act_dead=False))
            with case:
                case.rig.environment["MUSE_FAILPOINT"] = f"*:0:trace:{case.rig.folder / 'trace'}"
                case.run()
                places = Counter((case.rig.folder / "trace").read_text().split())
                last = checks.normal(case.requests()[-1].body.decode(), case.rig)
            assert not case.findings or self.patches, case.findings
            self._calm[key] = (last, dict(places))
        return self._calm[key]


class Case:
    """One session. `run` plays it; afterwards `findings` says what is wrong."""

    def __init__(self, stage: Stage, cell: Cell, plan: Plan) -> None:
        self.stage, self.cell, self.plan = stage, cell, plan
        self.server = stage.server(cell, plan.dialect)
        self.lines: list[str] = []
        self.findings: list[Finding] = []
        self.doubtful: set[str] = set()
        self.kills = self.doubts_seen = 0
        self.killed_at: list[str] = []
        self.keepers_killed = False
        self.lives = 0
        self.waiting: set[int] = set()
        self.now: Kill | None = None
        self.acted = False
        self.answered: set[int] = set()
        self.looked_at = 0

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="muse-matrix-"))
        self.rig = Rig(self.folder, FILES)
        self.rig.provider(self.plan.dialect, self.server.base_url)
        self.asked_before, self.wrong_before = len(self.server.requests), len(self.server.violations)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rig.close()
        del self.server.requests[self.asked_before :]
        shutil.rmtree(self.folder)

    def requests(self) -> list[checks.Received]:
        """What the server got of this session."""
        return self.server.requests[self.asked_before :]

    # -- playing -----------------------------------------------------------------------------------------------------

    def run(self, calm: str = "") -> None:
        """Play all kills, then let it end; count what may not be."""
        try:
            for kill in self.plan.kills:
                self._live(kill)
            while not self._is_over():
                if self.lives >= LIVES_MAX:
                    raise Stuck(f"{self.lives} lives did not get to its end")
                self._live(None)
            self._settle()
        except Stuck as error:
            self.findings.append(Finding("lost", f"stuck: {error}"))
            return
        seen = Seen(
            cell=self.cell, rig=self.rig, path=self.path(), lines=self.lines, requests=self.requests(),
            doubtful=self.doubtful, keepers_killed=self.keepers_killed, acted=self.acted, calm=calm,
        )  # fmt: skip
        self.findings += checks.all_findings(seen)
        self.doubts_seen = len(seen.unknown)
        self.findings += [Finding("invalid", fault) for fault in self.server.violations[self.wrong_before :]]

    def _live(self, kill: Kill | None) -> None:
        """One process, until it is killed or ends; a runner's or keeper's kill leaves it alive."""
        if self._is_over():
            return
        self.lives += 1
        self.waiting = {event.seq for event in self._pending()} - self.answered
        life = Life(self.rig, self.lives, self._command(), kill, self.lines)
        self.now, self.life, self.looked_at = kill, life, 0
        killed, doubtful = life.until_killed(self._meanwhile)
        life.disarm()
        if killed and kill is not None:
            self.kills += 1
            self.doubtful |= doubtful
            self.keepers_killed |= kill.victim in ("keeper", "tree")
            is_place = kill.place and self.lives == 1 and not life.hurried
            self.killed_at += [f"{kill.place}:{kill.count}"] if is_place else []
        if life.status is None:
            self.now = None
            life.to_the_end(self._meanwhile)
        self.findings += checks.unverified(self.rig)
        self._check_end(life, kill)
        if life.status == -9:
            self._while_dead()

    def _check_end(self, life: Life, kill: Kill | None) -> None:
        expected = {"done": (0,), "cancelled": (130, 0)}[self.cell.outcome]
        if life.status not in (*expected, -9):
            self.findings.append(Finding("lost", f"exit code {life.status}: {life.errors()[-2000:]}"))
        if life.status == -9 and (kill is None or kill.victim in ("runner", "keeper")):
            self.findings.append(Finding("lost", "the host died although nobody killed it"))
        if life.status != -9:
            for seq in self.waiting:
                if f"#{seq} " not in life.errors():
                    self.findings.append(Finding("lost", f"the request #{seq} was not shown again"))

    def _command(self) -> list[str]:
        start = self.stage.command(self.cell)
        types = {event.type for event in self._events()}
        if not types:  # it died before the session was opened: nothing of it is there to be resumed
            return [*start, "exec", *self.cell.flags, "--json", PROMPT]
        again = [] if "user.prompted" in types else [PROMPT]
        after = str(json.loads(self.lines[-1])["seq"]) if self.lines else "0"
        return [*start, "resume", self.path().stem, *again, "--json", "--after", after]

    def path(self) -> Path:
        """The log. A process that died before it opened its session left another one, without an event."""
        return max(self.rig.logs(), key=lambda path: (_head(path), path.name))

    def _is_over(self) -> bool:
        return bool(self.lines) and json.loads(self.lines[-1])["type"] == "session.closed"

    def _events(self) -> Iterator[Event]:
        if self.rig.logs() and _head(self.path()):
            with app.read_session(self.path()) as reading:
                yield from reading.events()

    def _pending(self) -> list[Event]:
        """Approvals that wait in the log."""
        if self.cell.act != "answer" or not self.rig.logs():
            return []
        events = list(self._events())
        done = {event.body.request for event in events if isinstance(event.body, ApprovalDecided)}
        return [event for event in events if isinstance(event.body, ApprovalRequested) and event.seq not in done]

    def _settle(self) -> None:
        """Wait for what was left in the background, then see that nothing else runs."""
        deadline = time.monotonic() + 20 * LATE_SECONDS
        names = [name.split()[0] for name in counted(self.rig) if name.startswith("b") and name.endswith(" end")]
        while any(not counted(self.rig)[f"{name} late"] for name in names) and not self.keepers_killed:
            if time.monotonic() > deadline:
                break  # `checks.late` says it
            time.sleep(0.02)

    # -- the person outside ------------------------------------------------------------------------------------------

    def _meanwhile(self) -> None:
        """What a person does while the process lives. One who waits for its death helps it along when it waits, too:
        the place of the kill may lie behind the very word that it waits for."""
        if not self.cell.act or self.acted:
            return
        wants = self._pending() if self.cell.act == "answer" and self.life.is_quiet() else commands_begun(self.rig)
        if self.now is None or not self.plan.act_dead:
            self._act()
        elif wants and self.life.is_quiet():
            if self.now.victim in ("host", "tree"):
                self.life.kill_now()
            else:
                self._act()

    def _act(self) -> None:
        if self.cell.act == "answer":
            self._answer_shown()
        elif commands_begun(self.rig):
            self._say()

    def _while_dead(self) -> None:
        """What a person does while nobody runs the session."""
        if not self.plan.act_dead or not any(event.type == "model.requested" for event in self._events()):
            return
        if self.cell.act == "answer":
            self._answer()
        elif self.cell.act and not self.acted and not self._is_said():
            self._say()

    def _is_said(self) -> bool:
        """Whether the last word of the script is said already, so that nothing can be steered any more."""
        return sum(event.type == "model.requested" for event in self._events()) >= len(self.cell.steps)

    def _say(self) -> None:
        self.acted = True
        if self.cell.act == "steer":
            self._submit(AgentSteered(text=STEERED, origin=OUTSIDE))
        else:
            self._submit(CancelRequested(why="enough", origin=OUTSIDE))

    def _answer_shown(self) -> None:
        """Answer what this process shows as waiting, also what an earlier one had asked."""
        size = self.life.error_bytes()
        if size != self.looked_at:
            self.looked_at = size
            shown = self.life.errors()
            self._answer(lambda event: f"#{event.seq} " in shown)

    def _answer(self, wanted: Callable[[Event], bool] = lambda event: True) -> None:
        for event in filter(wanted, self._pending()):
            body = event.body
            assert isinstance(body, ApprovalRequested)
            if event.seq in self.answered:
                continue
            self.answered.add(event.seq)
            denied = any(f"echo {name} start" in body.shown for name in self.cell.denied)
            decision = "deny" if denied else "allow"
            self._submit(
                ApprovalDecided(
                    call=body.call, decision=decision, by="person", request=event.seq,
                    shown_sha256=body.shown_sha256, origin=OUTSIDE,
                ),
                event.seq,
            )  # fmt: skip

    def _submit(self, body: msgspec.Struct, cause: int = 0) -> None:
        log = app.open_log(self.path(), read_only=False, check=False)
        try:
            app.submit(log, body, "main", cause=cause)
        finally:
            log.close()


def _head(path: Path) -> int:
    """The number of events in a log."""
    log = app.open_log(path, check=False)
    try:
        return log.head().seq
    finally:
        log.close()


def play(stage: Stage, cell_name: str, number: int, seed: int) -> Result:
    """Play one case from its seed."""
    cell = cell_named(cell_name)
    plan = plan_of(cell, number, seed)
    begun = time.monotonic()
    last, places = stage.calm(cell, plan.dialect)
    with Case(stage, cell, plan) as case:
        case.run(last)
        zeros = Counter(finding.zero for finding in case.findings)
        return Result(
            cell=cell.name, killed=plan.killed, number=number, kills=case.kills, allowed=len(case.doubtful),
            seen=case.doubts_seen, killed_at=case.killed_at, reached=places, zeros=dict(zeros),
            findings=[f"{finding.zero}: {finding.text}" for finding in case.findings],
            seconds=time.monotonic() - begun,
        )  # fmt: skip
