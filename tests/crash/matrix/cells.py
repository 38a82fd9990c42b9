"""What is at work when the kill comes: one scripted session for each kind of effect and of word from outside.

Every shell step appends its own start and end to `count/steps.txt` in the workspace, so that nobody has to believe the
log; edits and writes are seen in their files. Names: s shell, b shell that leaves a child in the background, e edit,
w write.
"""

import msgspec

from muse.effect.model.scripted import Step
from muse.testing.wire import Trouble

COUNTER = "count/steps.txt"
FILES = {
    ".gitignore": "count/\n",
    "count/steps.txt": "",
    "notes.txt": "# notes\n# end\n",
    "old.txt": "before\n" * 40,
    "seen.txt": "one\ntwo\n",
}
PROMPT = "do all of it"
STEERED = "Mind the gap, said the steward."
LATE_SECONDS = 0.4

Use = tuple[str, dict[str, object]]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One session. `act` is what a person does from outside meanwhile; `killed` who is ever killed in it;
    `span_seconds` how long its commands run; `slow` the answers that come slowly; `more_places` failpoints that only it
    comes to; `launch` the patches it is started with; `compared` whether its last request is always the same."""

    name: str
    steps: tuple[Step, ...]
    act: str = ""
    flags: tuple[str, ...] = ("--yolo",)
    killed: tuple[str, ...] = ("host", "host twice", "in recovery", "runner", "keeper", "tree")
    span_seconds: float = 0.03
    slow: tuple[int, ...] = ()
    more_places: tuple[str, ...] = ()
    launch: tuple[str, ...] = ()
    outcome: str = "done"
    compared: bool = True
    denied: tuple[str, ...] = ()
    timed_out: tuple[str, ...] = ()

    def uses(self) -> list[tuple[str, str, dict[str, object]]]:
        """Name, tool and arguments of every call that leaves something to be counted."""
        found = []
        for step in self.steps:
            for tool, args in step.uses:
                if name := str(args.get("description") or args.get("path") or ""):
                    found.append((name, tool, dict(args)))
        return found

    def names(self, tool: str) -> list[str]:
        """The calls of one tool: by description for shell, by path for files."""
        return [name for name, used, _ in self.uses() if used == tool]

    def faults(self) -> dict[int, list[Trouble]]:
        """Answers that come slowly, so that a kill finds the stream under way, however often it is asked for."""
        return {step: [Trouble("slow", delay_ms=12)] * 12 for step in self.slow}


def shell(name: str, seconds: float = 0.0, **more: object) -> Use:
    """A command that counts itself."""
    nap = f"sleep {seconds}; " if seconds else ""
    command = f"echo {name} start >> {COUNTER}; {nap}echo {name} end >> {COUNTER}; echo did {name}"
    return ("shell", {"command": command, "description": name, **more})


def background(name: str) -> Use:
    """One that leaves a child behind, which counts itself when it gets to its end."""
    late = f"(sleep {LATE_SECONDS}; echo {name} late >> {COUNTER}) > /dev/null 2>&1 &"
    command = f"echo {name} start >> {COUNTER}; {late} echo {name} end >> {COUNTER}; echo did {name}"
    return ("shell", {"command": command, "description": name})


def edit(name: str) -> Use:
    """One more line before the end of the notes."""
    return ("edit", {"path": "notes.txt", "old": "# end\n", "new": f"{name}\n# end\n"})


def write(path: str) -> Use:
    """A whole file."""
    return ("write", {"path": path, "content": f"{path}\n" * 30})


READ: Use = ("read", {"path": "seen.txt"})
ALONE = ("host", "host twice", "in recovery", "runner", "tree")
"""Where no command runs, and so no keeper can be killed."""


def _says(text: str, *uses: Use) -> Step:
    return Step(text=text, uses=tuple(uses))


_DONE = _says("All done.")
_LONG = "A word after the other, slowly, as if each of them had to be fetched from far away. "
CELLS = (
    Cell(name="edit", killed=ALONE, more_places=("file_temporary", "file_synced", "file_renamed"),
         steps=(_says("", shell("s0")), _says("", edit("e1")), _says("", edit("e2"), READ), _DONE)),
    Cell(name="write", killed=ALONE, more_places=("file_temporary", "file_synced", "file_renamed"),
         steps=(_says("", shell("s0")), _says("", write("new/w1.txt")), _says("", write("old.txt"), READ), _DONE)),
    Cell(name="shell, short", steps=(_says("", shell("s0")), _says("", shell("s1")), _DONE)),
    Cell(name="shell, long", span_seconds=0.6,
         steps=(_says("", shell("s0", 0.5)), _says("", shell("s1")), _DONE)),
    Cell(name="shell, background", span_seconds=0.4,
         steps=(_says("", background("b0")), _says("", shell("s1", 0.1)), _DONE)),
    Cell(name="model stream", killed=ALONE, slow=(0, 1),
         steps=(_says(_LONG, shell("s0"), READ), _says(_LONG))),
    Cell(name="approval", act="answer", flags=("--approval-timeout", "3600"), denied=("s1",),
         steps=(_says("", shell("s0"), shell("s1")), _says("", shell("s2")), _DONE)),
    Cell(name="steer", span_seconds=0.4, act="steer", compared=False,
         steps=(_says("", shell("s0", 0.3)), _says("", shell("s1", 0.1)), _DONE)),
    Cell(name="cancel", span_seconds=0.2, act="cancel", outcome="cancelled", compared=False,
         steps=(_says("", shell("s0", 30), shell("s1", 30)), _DONE)),
    Cell(name="batch of four", span_seconds=0.2, more_places=("file_temporary", "file_renamed"),
         steps=(_says("", edit("e0"), shell("s1", 0.2), write("w2.txt"), shell("s3")), _DONE)),
    Cell(name="time-out", span_seconds=1.1, timed_out=("s0",),
         steps=(_says("", shell("s0", 30, timeout_seconds=1)), _says("", shell("s1")), _DONE)),
    Cell(name="fold checkpoint", killed=ALONE, launch=("checkpoints",), compared=False,
         more_places=("before_checkpoint", "after_checkpoint", "in_tidy"),
         steps=(_says("", shell("s0")), _says("", edit("e1"), READ), _says("", write("w2.txt")), _DONE)),
)  # fmt: skip
"""The rows of the table."""


def cell_named(name: str) -> Cell:
    """A cell by its name. Raises KeyError."""
    return {cell.name: cell for cell in CELLS}[name]
