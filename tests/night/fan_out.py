"""One prompt, eight children, a person who steers, cancels and answers, and a host that is killed all the time.

`Fire` plays it: children 1 to 6 in the foreground, 7 and 8 in the background; 1 writes to its parent, 2 to a place that
is not its own, 3 is steered, 4 cancelled while its command runs, 5 asks; 2 and 7 work in trees of their own. Kills come
when the work has got to places that are drawn, and a drawn moment later.
"""

import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from muse.effect.model.scripted import Lane, Script, Step
from muse.testing.wire import WireServer
from tests.crash.matrix.checks import Finding
from tests.e2e.rig import Event, Rig
from tests.night import checks, work
from tests.night.hosts import Session
from tests.night.person import Deed, Person

CHILDREN = 8
FOREGROUND, BACKGROUND = range(1, 7), range(7, 9)
ISOLATED = (2, 7)
STEERED, CANCELLED, ASKING, WRITING, LAST = 3, 4, 5, 1, 2
PROMPT = "Have all eight parts done."
STEER = "Mind the TOPAZ gap, said the steward."
WHY = "the AMBER part is no longer wanted"
QUESTION, ANSWER = "Which GARNET colour?", "The BERYL one."
MESSAGE = "The PEARL part is half done."
END = "All eight are done."
OUTSIDE = "../notes-1.txt"
PAUSE_SECONDS = 0.03
SHARE = 0.6
"""Of the work; by then all kills have come."""
ENDED = ("tool.finished", "model.responded", "agent.spawned", "agent.finished")


def script(calls: int, isolated: Sequence[int] = ISOLATED) -> Script:
    """Lanes of the children, and what main does: hand out, wait for the rest, say the end."""

    def wanted(children: Sequence[int]) -> list[dict[str, object]]:
        place = {True: "worktree", False: "shared"}
        return [{"task": work.task(n), "name": f"c{n}", "isolation": place[n in isolated]} for n in children]

    behind: dict[str, object] = {"agents": wanted(BACKGROUND), "background": True}
    main = (
        Step(uses=(("spawn", behind), ("spawn", {"agents": wanted(FOREGROUND)}))),
        Step(text="Six have ended.", uses=(("wait", {}),)),
        Step(text=END),
    )  # fmt: skip
    lanes = [Lane(when=work.task(n), steps=steps) for n, steps in scripts(calls).items()]
    return Script(steps=main, lanes=tuple(lanes))


def scripts(calls: int) -> dict[int, tuple[Step, ...]]:
    """What each child says and does."""
    made = {n: [*work.labour(n, calls), work.the_end(n)] for n in (*FOREGROUND, *BACKGROUND)}
    made[STEERED].insert(1, Step(text="I wait.", uses=(_until(STEERED, "said"),)))
    made[LAST].insert(-1, Step(text="I wait.", uses=(_until(LAST, "over"),)))  # the session outlives the last kill
    made[LAST].insert(0, Step(text="Elsewhere.", uses=(("write", {"path": OUTSIDE, "content": "not mine\n"}),)))
    made[CANCELLED] = [*work.labour(CANCELLED, 2), Step(text="Long.", uses=(work.shell(CANCELLED, 90, 300.0),))]
    made[ASKING].insert(2, Step(text="One thing.", uses=(("ask", {"question": QUESTION}),)))
    made[WRITING].insert(1, Step(text="I write.", uses=(("message", {"to": "parent", "text": MESSAGE}),)))
    for n in ISOLATED:
        made[n].insert(-1, Step(text="I keep.", uses=(work.keep(n),)))
    return {n: tuple(steps) for n, steps in made.items()}


def _until(child: int, file: str) -> work.Use:
    name, place = f"c{child}s91", f"~/{work.COUNT}/c{child}.txt"
    command = (
        f'echo "{name} start" >> {place}; until [ -e ~/{file} ]; do sleep 0.02; done; echo "{name} end" >> {place}'
    )
    return ("shell", {"command": command})


class Fire:
    """The session under fire. `play` runs it to its end; `findings` says what may not be."""

    def __init__(self, rig: Rig, server: WireServer, calls: int, kills: int, rng: random.Random) -> None:
        self.rig, self.server, self.calls, self.rng = rig, server, calls, rng
        (rig.home / work.COUNT).mkdir()
        self.session = Session(rig, PROMPT, "--yolo")
        self.scripts = scripts(calls)
        works = sum(2 + 2 * len(steps) + sum(len(step.uses) for step in steps) for steps in self.scripts.values())
        self.places = [SHARE * works * (n + rng.random()) / kills for n in range(kills)]
        self.person = Person(self.session, self._deeds(), rng)
        self.unverified: list[Finding] = []

    def _deeds(self) -> list[Deed]:
        def of(child: int) -> str:
            return f"SESSION:{checks.numbers_of(self.session.events)[child]}"

        said = self.rig.home / "said"
        return [
            Deed("steer", _runs("c3s91"), lambda _: ("steer", of(STEERED), STEER), then=(said,)),
            Deed("cancel", _runs("c4s90"), lambda _: ("cancel", of(CANCELLED), "--agent", "--why", WHY)),
            Deed("answer", _asks, lambda e: ("answer", f"SESSION@{e['seq']}", ANSWER), ready=self._half_over),
        ]

    def _half_over(self) -> bool:
        return self.session.kills >= len(self.places) // 2

    def play(self) -> None:
        """All kills, then to its end."""
        for place in self.places:
            self._life(place)
            self.person.after_a_death()
            self.unverified += checks.log_holds(self.rig.path()) if self.session.lives % 5 == 0 else []
        (self.rig.home / "over").touch()
        self.session.start()
        self.person.must_speak()
        code = self.session.to_the_end(self.person.hears)
        assert code == 0, (code, self.session.errors())

    def _life(self, place: float) -> None:
        session = self.session
        session.start()
        shown = len(session.events)
        session.until(lambda: len(session.events) > shown and (session.count(*ENDED) >= place or session.quiet(0.5)),
                      self.person.hears)  # fmt: skip
        deadline = session.shown_at + self.rng.uniform(0, PAUSE_SECONDS)
        session.until(lambda: deadline <= time.monotonic(), self.person.hears)
        assert session.kill(), f"it ended by itself after {session.kills} kills: {session.errors()}"

    def findings(self) -> list[Finding]:
        """Everything that may not be."""
        session, events = self.session, self.session.events
        agents = checks.numbers_of(events)
        logged = self.rig.events(session.rig.session())
        found = [] if events == logged else [Finding("lost", "what was shown is not what the log holds")]
        last = events[-1]
        if (last["type"], last["body"].get("outcome")) != ("session.closed", "done"):
            found.append(Finding("lost", f"it ends with {last}"))
        found += checks.born_and_ended_once(events, [*FOREGROUND, *BACKGROUND])
        found += checks.calls_once(events) + checks.silent(events)
        found += checks.effects(self.rig, events, self.scripts, session.doubtful, {CANCELLED}, ISOLATED)
        found += checks.requests(events, self.server.requests, self.words(agents))
        found += [Finding("invalid", fault) for fault in self.server.violations]
        return found + self.told(agents) + self.borders(agents) + checks.log_holds(self.rig.path()) + self.unverified

    def words(self, agents: dict[int, str]) -> dict[str, tuple[str, ...]]:
        """Who may be sent what."""
        found = work.words(dict.fromkeys(agents, "main"), agents)
        steered, cancelled, asking = agents[STEERED], agents[CANCELLED], agents[ASKING]
        own = {"TOPAZ": (steered,), "AMBER": (cancelled, "main"), "GARNET": (asking,), "BERYL": (asking,)}
        return found | own | {"PEARL": (agents[WRITING], "main")}

    def borders(self, agents: dict[int, str]) -> list[Finding]:
        """Who works in a tree of its own changes nothing outside of it; to try is refused, and logged (B50)."""
        found = []
        for child, root in self.roots(agents).items():
            if self.rig.read(work.notes(child)) != work.files(CHILDREN)[work.notes(child)]:
                found.append(Finding("lost", f"{agents[child]} changed a file outside of its tree {root}"))
        agent = agents[LAST]
        refused = [e for e in self.session.events if e["agent"] == agent and e["type"] == "approval.decided"]
        if [(e["body"]["decision"], "notes-1.txt is outside" in e["body"].get("rule", "")) for e in refused] != [
            ("deny", True)
        ]:
            found.append(Finding("silent", f"writing outside of its tree was not refused: {refused}"))
        if (self.roots(agents)[LAST] / OUTSIDE).exists():
            found.append(Finding("lost", "a file was written outside of a tree"))
        return found

    def roots(self, agents: dict[int, str]) -> dict[int, Path]:
        """Where children with a working tree of their own work."""
        trees = {e["agent"]: e["body"]["path"] for e in self.session.events if e["type"] == "worktree.prepared"}
        return {number: Path(trees[agent]) for number, agent in agents.items() if agent in trees}

    def told(self, agents: dict[int, str]) -> list[Finding]:
        """Main is told each result once and that one was cancelled; the words of people reach whom they are for."""
        said = {agent: self._last_request(agent) for agent in ("main", *agents.values())}
        wanted = [("main", work.last_word(n), 1) for n in agents if n != CANCELLED]
        wanted += [("main", "AMBER", 1), ("main", "PEARL", 1), (agents[STEERED], STEER, 1), (agents[ASKING], ANSWER, 1)]
        return [
            Finding("lost" if said[agent].count(text) < n else "run again",
                    f"{agent} was told {text!r} {said[agent].count(text)} times")
            for agent, text, n in wanted if said[agent].count(text) != n
        ]  # fmt: skip

    def _last_request(self, agent: str) -> str:
        digests = [e["body"]["request_sha256"] for e in self.session.events
                   if e["type"] == "model.requested" and e["agent"] == agent]  # fmt: skip
        return checks.body_of(digests[-1], self.server.requests)


def _asks(event: Event) -> bool:
    return event["type"] == "question.asked"


def _runs(name: str) -> Callable[[Event], bool]:
    word = re.compile(rf"\b{name}\b")
    return lambda event: event["type"] == "tool.started" and bool(word.search(event["body"]["args"]))
