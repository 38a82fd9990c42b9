"""What waits for a person in a session that is only read: open requests and questions, and who is paused.

It knows no state, only the events as they come; so it costs nothing to watch a long session. This module must not know
who shows it.
"""

from muse.event.envelope import Event
from muse.event.kinds import (
    AgentContinued,
    AgentPaused,
    AgentSpawned,
    ApprovalDecided,
    ApprovalRequested,
    CommandRefused,
    QuestionAnswered,
    QuestionAsked,
    SessionClosed,
    ToolFinished,
)  # fmt: skip
from muse.ui.cli.asking import called, option_lines
from muse.ui.cli.live import Live
from muse.view.visible import lines_of, one_line


class Pending:
    """`waiting` holds the open requests and questions by seq, `paused` the agents that a person paused."""

    def __init__(self, name: str, live: Live) -> None:
        self._name, self._live = name, live
        self._answered: dict[int, Event] = {}
        self._names: dict[str, str] = {}
        self.waiting: dict[int, Event] = {}
        self.paused: set[str] = set()

    def take(self, event: Event) -> None:
        """Take in the next event."""
        body = event.body
        if isinstance(body, ApprovalRequested | QuestionAsked):
            self.waiting[event.seq] = event
        elif isinstance(body, ApprovalDecided):
            self._settle(event, body.request)
        elif isinstance(body, QuestionAnswered):
            self._settle(event, body.question)
        elif isinstance(body, CommandRefused) and (asked := self._answered.pop(body.command, None)):
            self.waiting[asked.seq] = asked
        elif isinstance(body, ToolFinished):
            self._ended(body.call)
        elif isinstance(body, SessionClosed):
            self.waiting.clear()
        else:
            self._take_agent(event)

    def _settle(self, answer: Event, seq: int) -> None:
        asked = self.waiting.get(seq)
        if asked is not None and asked.agent == answer.agent:
            self._answered[answer.seq] = self.waiting.pop(seq)

    def _ended(self, call: str) -> None:
        over = [seq for seq, event in self.waiting.items() if getattr(event.body, "call", "") == call]
        for seq in over:
            del self.waiting[seq]

    def _take_agent(self, event: Event) -> None:
        body = event.body
        if isinstance(body, AgentSpawned) and body.name:
            self._names[event.agent] = body.name
        elif isinstance(body, AgentPaused):
            self.paused.add(event.agent)
        elif isinstance(body, AgentContinued):
            tree = f"{event.agent}." if body.target == "tree" else "."
            self.paused = {one for one in self.paused if one != event.agent and not one.startswith(tree)}

    def announce(self, event: Event) -> None:
        """Say what waits, and how it is answered."""
        live, body, address = self._live, event.body, f"{self._name}@{event.seq}"
        who = called(event.agent, self._names.get(event.agent, ""))
        if isinstance(body, QuestionAsked):
            live.tell(f"? {who} asks   #{event.seq}", "33")
            for line in [*(f"  {line}" for line in lines_of(body.text)), *option_lines(body.options)]:
                live.tell(line)
            self._how(f'muse answer {address} "…"')
            return
        assert isinstance(body, ApprovalRequested)
        live.tell(f"? {who} asks: may this run?   #{event.seq}  {one_line(body.rule)}", "33")
        for line in lines_of(body.shown):
            live.tell(f"  {line}")
        self._how(f"muse approve {address}", f'muse deny {address} --note "…"')

    def _how(self, *commands: str) -> None:
        if not self._live.quiet:
            self._live.commands("  from another terminal:", *commands)

    def announce_paused(self) -> None:
        """Say who is paused, and how it goes on."""
        if not self._live.quiet:
            say_paused(self._live, self._name, self.paused)


def say_paused(live: Live, name: str, paused: set[str], *, chat: bool = False) -> None:
    """Say which agents of a session are paused, and how they go on; `main` alone first, the others together. In a
    `chat` its own word comes first."""
    others = sorted(paused - {"main"}, key=lambda one: [int(part) for part in one.split(".")[1:]])
    elsewhere = ", or from another terminal:"
    if "main" in paused:
        here = f" /continue{elsewhere}" if chat else ""
        live.commands(f"paused: nothing new starts; go on:{here}", f"muse continue {name}", look="33")
    if others:
        some = f"{', '.join(others[:3])}{f' and {len(others) - 3} more' if len(others) > 3 else ''}"
        here = f" /continue --tree{elsewhere}" if chat else ""
        one, all_of_them = f"muse continue {name}:{others[0]}", f"muse continue {name} --tree"
        live.commands(f"paused: {some}; go on:{here}", one, all_of_them, look="33")
