"""What an opening after a crash had to settle, told in one line once it is settled.

It counts what stands in the log: which effects were in doubt, what was found out about each, and whether any finished
step was started again (none may be). Pure.
"""

from muse import app
from muse.event.envelope import Event
from muse.event.kinds import EffectReconciled, ModelRequested, ModelResponded, ToolFinished, ToolStarted
from muse.view.amounts import plural

_WORDS = {
    "attached": "re-attached to {}",
    "done": "had been done: {}",
    "not_done": "had not been done, and may start again: {}",
    "retried": "asked again (no side effect): {}",
    "unknown": "may or may not have happened: {}",
}


class Recovery:
    """`before` is the state before the claim, `finished` the calls that had a result by then."""

    def __init__(self, before: app.Session, finished: set[str]) -> None:
        self._finished = finished
        self._steps = sum(agent.steps for agent in before.agents.values())
        self._open: dict[str, int] = {}
        for agent in before.agents.values():
            settling = ("running", "doubted", "settling")
            self._open |= {run.key: run.intent for run in agent.batch if run.phase in settling}
            if agent.call is not None and agent.call.phase in settling:
                self._open[agent.call.key] = agent.call.intent
        self._found: dict[str, list[str]] = {}
        self._told = before.clean
        self.again = 0

    def take(self, event: Event) -> str:
        """Look at an event of this owner; returns the line to tell when the last doubt is settled, else ""."""
        body = event.body
        if isinstance(body, ToolStarted | ModelRequested) and body.call in self._finished:
            self.again += 1
        if isinstance(body, EffectReconciled) and body.call in self._open:
            self._found.setdefault(body.verdict, []).append(f"#{self._open.pop(body.call)}")
        if self._told or self._open:
            return ""
        self._told = True
        parts = [words.format(", ".join(self._found[key])) for key, words in _WORDS.items() if key in self._found]
        parts.append(f"{plural(self._steps, 'finished step')}, {self.again} run again")
        return "; ".join(parts)


def finished_calls(log: app.Log) -> set[str]:
    """The calls that have a result in the log."""
    found = set()
    for event in app.events(log):
        if isinstance(event.body, ModelResponded | ToolFinished):
            found.add(event.body.call)
    return found
