"""People at other terminals who say anything at any moment, to any agent of a session, while its host is killed.

What they say is drawn at random: words, prompts, wishes for agents, pauses, cancellations, answers, modes. Whatever it
was, the session comes to its end, nothing ran twice, and the log is what the rules make of it.
"""

import json
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from muse import app
from muse.errors import MuseError
from muse.event.kinds import (
    AgentContinued,
    AgentPaused,
    AgentSteered,
    AgentWanted,
    ApprovalDecided,
    CancelRequested,
    PolicyChanged,
    QuestionAnswered,
    UserPrompted,
)  # fmt: skip
from tests.e2e.rig import Rig

TAGS: Final = ("alpha", "beta", "gamma", "delta", "omega", "kappa", "sigma")
RESUMES_MAX: Final = 12
"""Openings within which a session comes to its end, once nobody says anything any more but answers."""


def _steps(tag: str, dice: random.Random) -> list[dict[str, Any]]:
    """A lane of a few steps; each command adds its own name to the file `count` at home."""

    def step(n: int) -> dict[str, Any]:
        count = ["shell", {"command": f"echo {tag}{n} >> ~/count; sleep 0.0{dice.randint(1, 9)}"}]
        kinds: list[list[Any]] = [
            [count], [["read", {"path": "README.md"}], count], [["write", {"path": f"{tag}{n}.txt", "content": "x\n"}]],
            [["ask", {"question": f"{tag}{n}?", "options": ["a", "b"]}]], [["message", {"to": "parent", "text": "hi"}]],
        ]  # fmt: skip
        return {"text": f"{tag} {n}", "uses": dice.choice(kinds), "delay_ms": dice.choice([0, 0, 10, 40])}

    return [step(n) for n in range(dice.randint(3, 6))] + [{"text": f"{tag} is done"}]


def _script(dice: random.Random) -> dict[str, Any]:
    def spawn(*tags: str, **more: Any) -> list[Any]:
        agents = [{"task": f"the {tag} part"} | more for tag in tags]
        return ["spawn", {"agents": agents, "background": dice.random() < 0.5}]

    lanes = {tag: _steps(tag, dice) for tag in TAGS}
    lanes["gamma"].insert(1, {"uses": [spawn("kappa", "sigma")]})
    steps = [
        {"uses": [spawn("alpha", "beta", isolation="worktree")]},
        {"uses": [spawn("gamma", "delta", isolation="shared"), ["wait", {"seconds": 1, "until": "any"}]]},
        {"uses": [["apply", {"agent": "main.1"}], ["cancel", {"agent": "main.4", "why": "enough"}]]},
        {"uses": [spawn("omega")]},
        {"text": "All done."},
    ]
    extra = [{"uses": [["glob", {"pattern": "*"}]]}, {"text": "seen"}]
    whens = [{"when": f"the {tag} part", "steps": lane} for tag, lane in lanes.items()]
    return {"steps": steps, "lanes": [*whens, {"when": "one more", "steps": extra}]}


class Storm:
    """One such session, played to its end."""

    def __init__(self, rig: Rig, seed: int, *, words: int = 120, kills: int = 3, yolo: bool = True) -> None:
        self.rig, self.dice, self.words, self.yolo = rig, random.Random(seed), words, yolo
        self.kills = kills
        self.said: Counter[str] = Counter()
        path = rig.folder / "script.json"
        path.write_text(json.dumps(_script(self.dice)))
        self._begin = ["exec", "-m", f"scripted/{path}", "--approval-timeout", "0", *["--yolo"] * yolo, "do it"]
        self._host: subprocess.Popen[bytes] | None = None

    def play(self) -> None:
        """The storm, then answers until nobody has anything left to do."""
        self._host = self.rig.start(*self._begin)
        self.rig.wait_for(self._is_open)
        moments = set(self.dice.sample(range(self.words), self.kills))
        for n in range(self.words):
            if self._host.poll() is not None:
                self._host = self.rig.start("resume", "last")
            with app.open_log(self.rig.path(), read_only=False) as log:
                self._say(log, app.state_of(log))
            if n in moments:
                self._host.send_signal(signal.SIGKILL)
                self._host.wait()
        self._calm()

    def _is_open(self) -> bool:
        """Whether it can be killed and resumed: before its opening nothing is there yet."""
        try:
            return bool(self.rig.logs() and self.rig.of_type("session.opened"))
        except MuseError:
            return False

    def _say(self, log: app.Log, state: app.Session) -> None:
        draw = self.dice.choice(self._choices(state))
        if draw is not None and (drawn := draw(log, state)) is not None:
            agent, body = drawn
            self.said[type(body).__name__] += 1
            app.submit(log, msgspec.structs.replace(body, origin=app.origin("cli")), agent)

    def _choices(self, state: app.Session) -> list[Callable[..., tuple[str, Any] | None]]:
        often = [self._words, self._hold, self._go, self._go, self._wish, self._answer]
        return [*often, *often, *often, self._cancel, self._mode] if state.agents else [self._words]

    def _words(self, log: app.Log, state: app.Session) -> tuple[str, Any]:
        text = f"said {self.dice.random()}"
        body = UserPrompted(text=text, delivery=self.dice.choice(["queue", "steer", "replace"]))
        return self._whom(state), self.dice.choice([AgentSteered(text=text), AgentSteered(text=text), body])

    def _hold(self, log: app.Log, state: app.Session) -> tuple[str, Any]:
        return self._whom(state), AgentPaused(target=self.dice.choice(["agent", "tree"]))

    def _go(self, log: app.Log, state: app.Session) -> tuple[str, Any]:
        return self._whom(state), AgentContinued(target=self.dice.choice(["agent", "tree"]))

    def _wish(self, log: app.Log, state: app.Session) -> tuple[str, Any]:
        return self._whom(state), AgentWanted(task="one more", isolation=self.dice.choice(["shared", "worktree"]))

    def _mode(self, log: app.Log, state: app.Session) -> tuple[str, Any]:
        return "main", PolicyChanged(mode=self.dice.choice(["default", "accept-edits", "yolo", "yolo", "plan"]))

    def _cancel(self, log: app.Log, state: app.Session) -> tuple[str, Any] | None:
        runs = [run.key for agent in state.agents.values() for run in agent.batch if run.phase != "done"]
        if runs and self.dice.random() < 0.5:
            key = self.dice.choice(runs)
            return key.partition("/")[0], CancelRequested(target="call", call=key)
        children = [name for name in state.agents if name != "main"]
        target = self.dice.choice(["turn", "turn", "agent", "tree"])
        return (self.dice.choice(children), CancelRequested(target=target, why="a storm")) if children else None

    def _answer(self, log: app.Log, state: app.Session) -> tuple[str, Any] | None:
        waiting = [*_answers(log, state, self.dice.choice(["allow", "allow", "deny"]))]
        return self.dice.choice(waiting) if waiting else None

    def _whom(self, state: app.Session) -> str:
        return self.dice.choice(list(state.agents) or ["main"])

    def _calm(self) -> None:
        """Everything is answered and continued, and the session resumed, until all of it has ended."""
        resumes = 0
        while resumes < RESUMES_MAX:
            assert self._host is not None
            with app.open_log(self.rig.path(), read_only=False) as log:
                state = app.state_of(log)
                if self._host.poll() is not None and resumes and not _open(state):
                    return
                for agent, body in _answers(log, state, "allow"):
                    app.submit(log, msgspec.structs.replace(body, origin=app.origin("cli")), agent)
                if any(agent.paused for agent in state.agents.values()):
                    app.submit(log, AgentContinued(target="tree", origin=app.origin("cli")), "main")
            if self._host.poll() is not None:
                resumes += 1
                self._host = self.rig.start("resume", "last")
            try:
                self._host.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError(f"{_open(state)} came to no end; {self.rig.said()}")

    def findings(self) -> list[str]:
        """What went wrong, in words; the log itself is verified."""
        self.rig.verify()
        events = self.rig.events()
        found = []
        for kind, key in (("tool.started", "attempt"), ("tool.finished", ""), ("agent.spawned", "")):
            seen = Counter(
                (e["agent"] if kind == "agent.spawned" else e["body"]["call"], e["body"].get(key, 0))
                for e in events
                if e["type"] == kind
            )
            found += [f"{kind} of {which} {n} times" for which, n in seen.items() if n > 1]
        count = self.rig.home / "count"
        counted = Counter(count.read_text().split() if count.exists() else ())
        found += [f"{name} happened {n} times" for name, n in counted.items() if n > 1]
        ended = {e["body"]["call"] for e in events if e["type"] == "tool.finished" and e["body"]["status"] == "ok"}
        for event in events:
            if event["type"] == "tool.started" and event["body"]["tool"] == "shell" and event["body"]["call"] in ended:
                name = json.loads(event["body"]["args"])["command"].split()[1]
                found += [f"{name} has ended and did not happen"] * (name not in counted)
        said = (self.rig.folder / "out.err").read_text().splitlines()
        wrong = ("Traceback", "fault of muse", "was rewritten while", "was put into")
        return found + [line for line in said if any(what in line for what in wrong)]


def _answers(log: app.Log, state: app.Session, decision: Any) -> list[tuple[str, Any]]:
    """An answer to each open question and request."""
    said: list[tuple[str, Any]] = []
    for seq, key in state.questions.items():
        said.append((key.partition("/")[0], QuestionAnswered(question=seq, text="a")))
    for seq, key in state.approvals.items():
        event = app.event_at(log, seq)
        assert event is not None
        body = ApprovalDecided(
            call=key, decision=decision, by="person", request=seq, shown_sha256=event.body.shown_sha256
        )
        said.append((key.partition("/")[0], body))
    return said


def _open(state: app.Session) -> list[str]:
    """Who has something left to do."""
    return [agent.id for agent in state.agents.values() if agent.turn or (agent.parent and not agent.finished)]
