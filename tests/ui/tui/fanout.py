"""A fan-out for looking at: one agent with seven below it, each doing something else; the same bytes of text always.

Written through the store with times of its own, up to a moment (`write_fanout`), or many children at once
(`write_many`) for what must not get slower with them.
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Final

from muse.event import kinds
from muse.event.content import Block, FileChange, Usage
from muse.log.sqlite import SqliteLog
from tests.ui.tui.made import ADA, AFTER, BEFORE, SESSION, TOOLS, Story

CHILDREN: Final = (
    ("cart", "reviewer", "Mend the rounding in shop/cart.py."),
    ("docs", "", "Write down what changed in the checkout."),
    ("tests", "", "Run the slow tests, all of them."),
    ("release", "", "Make the release and push it."),
    ("prices", "", "Ask which prices are meant, then change them."),
    ("stock", "", "Look at the stock service."),
)


class Fanout:
    """The story, moment by moment."""

    def __init__(self, log: SqliteLog) -> None:
        self.story = Story(log)

    def begin(self, background: bool = False) -> None:
        """A prompt, and the children that it leads to."""
        say = self.story.say
        say(kinds.UserPrompted(text="Get 2.4 out: mend the checkout, and write it down.", origin=ADA))
        say(kinds.AgentSpawned(system="You mend things in /home/ada/shop.", tools=tuple(t.name for t in TOOLS)))
        wanted = [{"name": name, "task": task, **({"role": role} if role else {})} for name, role, task in CHILDREN]
        (self.spawn,) = self.story.answer("I give each part to an agent.", ("spawn", json.dumps({"agents": wanted})))
        self.story.derive(self.spawn)
        for at, (name, role, task) in enumerate(CHILDREN):
            body = kinds.AgentSpawned(
                task=task, system="You do one thing.", tools=("read", "shell", "edit", "ask"), parent="main",
                call=self.spawn, index=at, name=name, role=role, background=background,
            )  # fmt: skip
            say(body, f"main.{at + 1}", seconds=0.01)

    def work(self) -> None:
        """One has finished, one runs, one asks its model, one wants an approval, one has a question, one is paused."""
        story = self.story
        (edit,) = story.answer("It is the rounding.", ("edit", '{"path":"shop/cart.py"}'), agent="main.1")
        started = story.start(edit)
        change = FileChange(path="shop/cart.py", before=story.blob(BEFORE), after=story.blob(AFTER))
        story.say(kinds.FilesChanged(changes=(change,), calls=(edit,)), "main.1", cause=started, seconds=0.1)
        story.end(edit, "edited shop/cart.py")
        story.answer("The sum is rounded now,\nnot each price.", agent="main.1")
        story.finish("main.1", "The sum is rounded now,\nnot each price.")
        (test,) = story.answer("All of them, then.", ("shell", '{"command":"pytest -q -m slow"}'), agent="main.3")
        story.start(test)
        (self.push,) = story.answer(
            "Tagged; I push.", ("shell", '{"command":"git push origin v2.4"}'), agent="main.4", seconds=3.0
        )
        run = story.state.run(self.push)
        assert run is not None
        request = kinds.ApprovalRequested(
            call=self.push, tool="shell", shown="git push origin v2.4", shown_sha256="1" * 64,
            remember="shell(git push *)", rule="mode default: git push reaches the network",
        )  # fmt: skip
        self.request = story.say(request, "main.4", cause=run.cause, seconds=0.01)
        (self.ask,) = story.answer(
            "I do not know which.", ("ask", '{"question":"Gross or net?","options":["gross","net"]}'), agent="main.5"
        )
        story.derive(self.ask)
        question = kinds.QuestionAsked(call=self.ask, text="Gross or net?", options=("gross", "net"))
        self.question = story.say(question, "main.5", cause=story.state.seq, seconds=0.01)
        story.say(kinds.AgentPaused(origin=ADA), "main.6", seconds=0.2)
        story.ask("main.2")

    def end(self) -> None:
        """All of it comes to its end."""
        story = self.story
        decided = kinds.ApprovalDecided(call=self.push, decision="deny", by="person", request=self.request, origin=ADA)
        story.say(decided, "main.4", seconds=8)
        story.answer("Not pushed, then.", agent="main.4")
        story.finish("main.4", "Not pushed, then.", outcome="failed")
        story.say(kinds.QuestionAnswered(question=self.question, text="net", origin=ADA), "main.5", seconds=4)
        story.end(self.ask, "net")
        story.answer("Net prices it is.", agent="main.5")
        story.finish("main.5", "Net prices it is.")
        story.say(kinds.CancelRequested(target="agent", why="not today", origin=ADA), "main.6", seconds=2)
        story.finish("main.6", "", outcome="cancelled")
        call = story.state.agents["main.2"].call
        assert call is not None
        done = kinds.ModelResponded(
            call=call.key, attempt=1, blocks=(Block(kind="text", text="Written down in CHANGES.md."),), stop="end_turn",
            usage=Usage(input=2_000, output=300, cost_microusd=9_000), duration_ms=9_000,
        )  # fmt: skip
        story.say(done, "main.2", cause=story.state.seq)
        story.finish("main.2", "Written down in CHANGES.md.")
        test = next(run.key for run in story.state.agents["main.3"].batch)
        story.end(test, "212 passed", code=0, seconds=61)
        story.answer("All slow tests pass.", agent="main.3")
        story.finish("main.3", "All slow tests pass.")
        story.end(self.spawn, "All have ended.", seconds=0.01)
        story.answer("2.4 is ready; it is not pushed.")
        story.say(kinds.SessionClosed(outcome="done"), seconds=0.1)


def write_fanout(path: Path, upto: str = "end") -> None:
    """The story into a new file, up to `work` or to its `end`."""
    with closing(SqliteLog.create(path, SESSION, commands=kinds.COMMANDS)) as log:
        fanout = Fanout(log)
        fanout.begin()
        fanout.work()
        if upto == "end":
            fanout.end()
