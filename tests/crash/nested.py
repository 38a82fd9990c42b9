"""Agents within agents, with all that they can do to each other, killed where a test says.

Main spawns in the background 1 (in a working tree of its own, paused and continued from outside), 2 (whose command
takes for ever) and 3 (steered from outside; it spawns 4 and 5, and 5 writes to it), and in the foreground 6, which
asks, and wants an approval. Then it writes to 3, waits for 2 until its patience is over, cancels it, waits for the
rest, and takes over what 1 did. Whatever is killed, each of that happens once.

`python -m tests.crash.nested PLACE FIRST LAST` kills the host at each of these hits of a failpoint, in a session each.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from muse.effect.model.scripted import Lane, Script, Step
from muse.testing.wire import AnthropicServer
from tests.crash.matrix.checks import Finding
from tests.crash.matrix.life import runner_processes
from tests.e2e.rig import Event, Rig
from tests.night import checks, work
from tests.night.hosts import Session
from tests.night.person import Deed, Person

PROMPT = "Have all parts done."
TREE, CANCELLED, NESTING, ASKING = 1, 2, 3, 6
CHILDREN = range(1, 7)
ADDRESS = {TREE: "main.1", CANCELLED: "main.2", NESTING: "main.3"}
QUESTION, ANSWER = "Which GARNET colour?", "The BERYL one."
STEER, MESSAGE, WORD, WHY = "Mind the TOPAZ gap.", "Take the PEARL route.", "The OPALINE word.", "the AMBER part is off"
PATIENCE_SECONDS = 1
LEFT_SECONDS = 10.0
"""After so long the keepers of commands that have ended are gone."""
NEW = "new.txt"


def _until(child: int, file: str) -> work.Use:
    """A command that ends when the test has made a file."""
    name, place = f"c{child}s90", f"~/{work.COUNT}/c{child}.txt"
    loop = f"until [ -e ~/{file} ]; do sleep 0.02; done"
    return ("shell", {"command": f'echo "{name} start" >> {place}; {loop}; echo "{name} end" >> {place}'})


def _says(*uses: work.Use) -> Step:
    return Step(text="", uses=uses)


def _spawn(*children: int, **more: object) -> work.Use:
    place = {True: "worktree", False: "shared"}
    mode = {True: {"mode": "default"}, False: {}}
    agents = [{"task": work.task(n), "isolation": place[n == TREE]} | mode[n == ASKING] for n in children]
    return ("spawn", {"agents": agents} | more)


SCRIPTS: dict[int, tuple[Step, ...]] = {
    TREE: (
        _says(_until(1, "on")), _says(work.edit(1, 0), work.shell(1, 1)),
        _says(("write", {"path": NEW, "content": "new\n"}), work.edit(1, 2)), _says(work.keep(1)), work.the_end(1),
    ),
    CANCELLED: (_says(work.shell(2, 0, 300.0)),),
    NESTING: (_says(_until(3, "said")), _says(_spawn(4, 5)), _says(work.shell(3, 1)), work.the_end(3)),
    4: (_says(work.shell(4, 0), work.edit(4, 1)), work.the_end(4)),
    5: (_says(("message", {"to": "parent", "text": WORD}), work.shell(5, 0, 0.2)), work.the_end(5)),
    ASKING: (_says(("ask", {"question": QUESTION})), _says(work.shell(6, 0)), work.the_end(6)),
}  # fmt: skip
MAIN = (
    _says(_spawn(TREE, CANCELLED, NESTING, background=True), _spawn(ASKING)),
    _says(("message", {"to": ADDRESS[NESTING], "text": MESSAGE}),
          ("wait", {"agents": [ADDRESS[CANCELLED]], "seconds": PATIENCE_SECONDS})),
    _says(("cancel", {"agent": ADDRESS[CANCELLED], "why": WHY})),
    _says(("wait", {})),
    _says(("diff", {"agent": ADDRESS[TREE]}), ("apply", {"agent": ADDRESS[TREE]})),
    Step(text="All parts are done."),
)  # fmt: skip
ONCE = (
    "question.asked", "question.answered", "approval.requested", "approval.decided", "agent.steered", "agent.paused",
    "agent.continued", "worktree.prepared", "worktree.removed", "timer.fired",
)  # fmt: skip


def server() -> AnthropicServer:
    """The provider that says all this."""
    lanes = tuple(Lane(when=work.task(n), steps=steps) for n, steps in SCRIPTS.items())
    return AnthropicServer(Script(steps=MAIN, lanes=lanes))


class Nested:
    """Such a session. `play` runs it to its end; `findings` says what may not be."""

    def __init__(self, rig: Rig, provider: AnthropicServer) -> None:
        self.rig, self.provider = rig, provider
        (rig.home / work.COUNT).mkdir()
        rig.provider("anthropic", provider.base_url)
        self.session = Session(rig, PROMPT, "--yolo", "--approval-timeout", "0")
        self.person = Person(self.session, self._deeds(), random.Random(0))
        self.kills = 0

    def _deeds(self) -> list[Deed]:
        def told() -> bool:
            return any(map(_is("agent.messaged", MESSAGE), self.session.events))

        home, tree, nest = self.rig.home, f"SESSION:{ADDRESS[TREE]}", f"SESSION:{ADDRESS[NESTING]}"
        return [
            Deed("pause", _is("agent.spawned", work.task(TREE)), lambda _: ("pause", tree)),
            Deed("continue", _is("agent.paused"), lambda _: ("continue", tree), then=(home / "on",)),
            Deed("steer", _is("tool.started", "c3s90"), lambda _: ("steer", nest, STEER), (home / "said",), told),
            Deed("answer", _is("question.asked"), lambda e: ("answer", f"SESSION@{e['seq']}", ANSWER)),
            Deed("approve", _is("approval.requested"), lambda e: ("approve", f"SESSION@{e['seq']}")),
        ]

    def play(self, failpoints: Sequence[str] = ()) -> None:
        """A life for each failpoint, as long as it kills, and then to the end."""
        for failpoint in (*failpoints, ""):
            for deed in self.person.deeds:
                deed.alive = True
            self.session.start(failpoint)
            code = self.session.to_the_end(self.person.hears)
            if code == 0:
                return
            assert failpoint, (code, self.session.errors())
            self.kills += 1
            self.person.after_a_death()

    def findings(self) -> list[Finding]:
        """Everything that may not be."""
        session, events = self.session, self.session.events
        agents = checks.numbers_of(events)
        found = [] if events == self.rig.events() else [Finding("lost", "what was shown is not what the log holds")]
        found += checks.born_and_ended_once(events, CHILDREN) + checks.calls_once(events) + checks.silent(events)
        found += checks.effects(self.rig, events, SCRIPTS, set(), {CANCELLED}, [TREE])
        found += checks.requests(events, self.provider.requests, self._words(agents))
        found += [Finding("invalid", fault) for fault in self.provider.violations]
        found += checks.log_holds(self.rig.path())
        found += [Finding("run again", f"{kind}: {n}") for kind in ONCE if (n := session.count(kind)) != 1]
        ends = {e["agent"]: e["body"]["outcome"] for e in events if e["type"] == "agent.finished"}
        if ends != {agent: "cancelled" if n == CANCELLED else "done" for n, agent in agents.items()}:
            found.append(Finding("lost", f"the agents ended as {ends}"))
        return found + self._told(agents) + self._left()

    def _words(self, agents: dict[int, str]) -> dict[str, tuple[str, ...]]:
        parents = {n: agents[NESTING] if n in (4, 5) else "main" for n in agents}
        own = {"TOPAZ": (agents[NESTING],), "GARNET": (agents[ASKING],), "BERYL": (agents[ASKING],)}
        own |= {"PEARL": (agents[NESTING], "main"), "OPALINE": (agents[NESTING], agents[5])}
        return work.words(parents, agents) | own | {work.secret(TREE): (agents[TREE], "main")}  # which main had shown

    def _told(self, agents: dict[int, str]) -> list[Finding]:
        """Who was told what in the end, and how often; and what main took over stands in its files."""
        wanted = [("main", work.last_word(n), 1) for n in (TREE, NESTING, ASKING)]
        wanted += [(agents[NESTING], text, 1) for text in (STEER, MESSAGE, WORD, work.last_word(4), work.last_word(5))]
        wanted += [(agents[ASKING], ANSWER, 1), ("main", work.last_word(4), 0)]
        said = {agent: self._last_request(agent) for agent, _, _ in wanted}
        found = [
            Finding("lost" if (times := said[agent].count(text)) < n else "run again",
                    f"{agent} was told {text!r} {times} times")
            for agent, text, n in wanted if said[agent].count(text) != n
        ]  # fmt: skip
        notes = f"# notes 1\nc1e0 {work.secret(1)}\nc1e2 {work.secret(1)}\n# end\n"
        if self.rig.read(work.notes(TREE)) != notes or self.rig.read(NEW) != "new\n":
            found.append(Finding("lost", "what was taken over is not in the files"))
        return found

    def _last_request(self, agent: str) -> str:
        digests = [e["body"]["request_sha256"] for e in self.session.events
                   if e["type"] == "model.requested" and e["agent"] == agent]  # fmt: skip
        return checks.body_of(digests[-1], self.provider.requests)

    def _left(self) -> list[Finding]:
        """Processes, trees and spools that should be gone. A supervisor stays for a while, for the next session."""
        rig, found = self.rig, []
        deadline = time.monotonic() + LEFT_SECONDS
        while (left := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if left:
            found.append(Finding("lost", f"processes are left: {left}"))
        kept = [*rig.muse_home.glob("worktrees/*/*"), *rig.muse_home.glob("run/*/calls/main*")]
        if kept or len(rig.git("worktree", "list").splitlines()) != 1:
            found.append(Finding("lost", f"it left {kept}, and {rig.git('worktree', 'list')}"))
        return found

    def _processes(self) -> list[bytes]:
        """What runs, but for one supervisor."""
        supervisors, _ = runner_processes(self.rig)
        lines = self.rig.command_lines()
        return [line for pid, line in lines.items() if pid not in supervisors[:1]]


def _is(kind: str, word: str = "") -> Callable[[Event], bool]:
    """Whether an event is of a kind, with a word in its text."""

    def matches(event: Event) -> bool:
        body = event["body"]
        return event["type"] == kind and (
            not word or any(word in body.get(name, "") for name in ("task", "args", "text"))
        )

    return matches


def played(folder: Path, failpoints: Sequence[str]) -> tuple[int, list[Finding]]:
    """How often the host was killed, and what is wrong."""
    with server() as provider, Rig(folder / "rig", work.files(len(CHILDREN))) as rig:
        nested = Nested(rig, provider)
        nested.play(failpoints)
        return nested.kills, nested.findings()


def main() -> int:
    """Kill at each hit of a place; 1 when anything was found."""
    place, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    wrong = 0
    for hit in range(first, last + 1):
        with tempfile.TemporaryDirectory(prefix="muse-nested-") as folder:
            kills, findings = played(Path(folder), [f"{place}:{hit}"])
        print(f"{place}:{hit}", f"{kills} kills", *findings, sep="\n  " if findings else " ", flush=True)
        wrong += bool(findings)
        if not kills:
            break
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
