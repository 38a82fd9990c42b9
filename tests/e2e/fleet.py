"""A session of four agents, written event by event through the store: only one agent runs in practice yet, and there
are questions about several. Nothing of it ran; what it tells stands in this file."""

import json
from hashlib import sha256
from pathlib import Path

import msgspec

from muse.decide.context import next_request
from muse.event.content import Block, FileChange, Origin, Usage
from muse.event.kinds import (
    AgentFinished,
    AgentMessaged,
    AgentSpawned,
    AgentSteered,
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    FilesChanged,
    ModelRequested,
    ModelResponded,
    ResultDelivered,
    SessionClosed,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)
from muse.runtime.check.story import Story
from tests.runtime.rig import RULES
from tests.ui.told import Telling

NAME = "fleet"
SESSION = "20261130-090000-00fleet0"
PROMPT = "Tidy the shop: the documentation, the tests, the old files."
TASKS = ("Bring README.md up to date.", "Mend the tests.", "Remove what nothing uses.")
MESSAGE = "main.3 may remove what README.md does not name."
STEERED = "The prices are in the database now."
LOOKS = "grep -rl prices.csv src"
REMOVES = "rm old/prices.csv"
WHY = "the tests are being rewritten elsewhere"
OLD = "shirt;12\nhat;7\n"
ANSWERS = {"main.1": "README.md needs no change.", "main.3": "Removed old/prices.csv."}
TOKENS = {"main": 900, "main.1": 500, "main.2": 400, "main.3": 700}
"""Tokens in of each request of an agent."""


class Fleet:
    """The writing of it. Each method is one exchange, and returns the seq of its last event."""

    def __init__(self, home: Path) -> None:
        self.told = Telling(home, SESSION, name=NAME)
        self.numbers: dict[str, int] = {}

    def say(self, body: msgspec.Struct, agent: str, cause: int) -> int:
        return self.told.say(body, agent=agent, cause=cause)

    def call(self, agent: str) -> str:
        self.numbers[agent] = self.numbers.get(agent, 0) + 1
        return f"{agent}/{self.numbers[agent]}"

    def model(self, agent: str, cause: int, text: str, *uses: tuple[str, dict[str, object]]) -> int:
        """A request, as it would have been, and its answer."""
        call = self.call(agent)
        story = Story(self.told.log)
        for event in story.events():
            story.fold(event)
        built = next_request(story.state, story.state.agents[agent], RULES)
        asked = ModelRequested(
            call=call, attempt=1, provider="scripted", model="-", builder="scripted/1", items=built.items,
            request_sha256=built.sha256, request_bytes=len(built.body),
        )  # fmt: skip
        blocks = [Block(kind="text", text=text)]
        for n, (name, args) in enumerate(uses):
            blocks.append(Block(kind="tool_use", id=f"{call}-{n}", name=name, args=json.dumps(args)))
        answer = ModelResponded(
            call=call, attempt=1, blocks=tuple(blocks), stop="tool_use" if uses else "end_turn",
            usage=Usage(input=TOKENS[agent], output=10), model="-", duration_ms=1000,
        )  # fmt: skip
        return self.say(answer, agent, self.say(asked, agent, cause))

    def start(self, agent: str, cause: int, tool: str, args: dict[str, object], approval: int = 0) -> tuple[str, int]:
        call = self.call(agent)
        return self.started(agent, call, cause, tool, args, approval)

    def started(
        self, agent: str, call: str, cause: int, tool: str, args: dict[str, object], approval: int
    ) -> tuple[str, int]:
        allowed = "person" if approval else f"{tool}(*)"
        body = ToolStarted(
            call=call, attempt=1, tool=tool, args=json.dumps(args), recovery="attachable", allowed_by=allowed,
            approval=approval,
        )  # fmt: skip
        return call, self.say(body, agent, cause)

    def finish(self, agent: str, call: str, cause: int, text: str, exit_code: int | None = 0) -> int:
        status = "ok" if exit_code == 0 else "cancelled" if exit_code is None else "error"
        return self.say(ToolFinished(call=call, attempt=1, status=status, text=text, exit_code=exit_code), agent, cause)


def write(home: Path) -> Path:
    """Tell it; the file."""
    fleet = Fleet(home)
    say = fleet.say
    prompt = say(UserPrompted(text=PROMPT, origin=Origin(pid=100, user="ada", client="exec")), "main", 0)
    say(AgentSpawned(system="You lead.", model="-"), "main", 1)
    wants = [("spawn", {"task": task}) for task in TASKS]
    asked = fleet.model("main", prompt, "Three of us.", *wants)
    born: dict[str, tuple[int, str, int]] = {}
    for n, (tool, args) in enumerate(wants, 1):
        call, began = fleet.start("main", asked, tool, args)
        body = AgentSpawned(task=TASKS[n - 1], system=f"You help. {TASKS[n - 1]}", model="-", parent="main", call=call)
        born[f"main.{n}"] = say(body, f"main.{n}", began), call, began
    tests = fleet.model("main.2", born["main.2"][0], "I run them.", ("shell", {"command": "sh test.sh"}))
    call, running = fleet.start("main.2", tests, "shell", {"command": "sh test.sh"})
    looks = fleet.model("main.3", born["main.3"][0], "Who reads it?", ("shell", {"command": LOOKS}))
    looking = fleet.start("main.3", looks, "shell", {"command": LOOKS})
    looked = fleet.finish("main.3", *looking, "(no output)\nexit code 1", 1)
    say(AgentSteered(text=STEERED, origin=Origin(pid=400, user="lin", client="steer")), "main.3", 0)
    cancel = CancelRequested(target="agent", why=WHY, origin=Origin(pid=200, user="grace", client="cancel"))
    say(cancel, "main.2", 0)
    fleet.finish("main.2", call, running, "cancelled\nended by signal 15 (SIGTERM)", None)
    say(AgentFinished(outcome="cancelled", text=WHY), "main.2", fleet.told.head)
    remove(fleet, fleet.model("main.3", looked, "Then it goes.", ("shell", {"command": REMOVES})))
    for child, words in ANSWERS.items():
        last = fleet.model(child, born[child][0], words)
        if child == "main.1":
            say(AgentMessaged(to="main", text=MESSAGE), child, last)
        say(AgentFinished(outcome="done", text=words), child, last)
        fleet.finish("main", *born[child][1:], words)
        say(ResultDelivered(child=child, text=words), "main", fleet.told.head)
    fleet.finish("main", *born["main.2"][1:], WHY, None)
    say(SessionClosed(outcome="done"), "main", fleet.model("main", fleet.told.head, "Tidied, but for the tests."))
    return fleet.told.close()


def remove(fleet: Fleet, asked: int) -> None:
    """The deletion by main.3, which ada allows."""
    call, shown = fleet.call("main.3"), f"$ {REMOVES}"
    digest = sha256(shown.encode()).hexdigest()
    request = ApprovalRequested(call=call, tool="shell", shown=shown, shown_sha256=digest)
    waits = fleet.say(request, "main.3", asked)
    yes = ApprovalDecided(
        call=call, decision="allow", by="person", request=waits, shown_sha256=digest,
        origin=Origin(pid=300, user="ada", client="approve"),
    )  # fmt: skip
    approval = fleet.say(yes, "main.3", waits)
    call, began = fleet.started("main.3", call, approval, "shell", {"command": REMOVES}, approval)
    gone = FileChange(path="old/prices.csv", before=fleet.told.blob(OLD.encode()), before_mode=0o644)
    fleet.say(FilesChanged(changes=(gone,), calls=(call,)), "main.3", began)
    fleet.finish("main.3", call, began, "(no output)\nexit code 0")
