"""A task whose steps are counted outside, and lives of the command that works on it, each ended as a test wants.

Each shell step appends its own start and end to `counter.txt` in the home folder; each edit adds one line to
`notes.txt`, so that an edit made twice shows there too.
"""

import json
import os
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable

from muse import app
from muse.effect.model.scripted import Step
from muse.testing.wire import AnthropicServer, OpenAIServer, WireServer
from tests import warm
from tests.e2e.rig import MUSE, PATIENCE_SECONDS, Event, Rig

SERVERS: dict[str, type[WireServer]] = {"anthropic": AnthropicServer, "openai": OpenAIServer}
FILES = {"notes.txt": "# notes\n# end\n", "seen.txt": "one\ntwo\nthree\n"}
Use = tuple[str, dict[str, object]]


def shell(name: str, seconds: float = 0.0) -> Use:
    nap = f"sleep {seconds}; " if seconds else ""
    command = f'echo "{name} start" >> ~/counter.txt; {nap}echo "{name} end" >> ~/counter.txt; echo did {name}'
    return ("shell", {"command": command})


def edit(name: str) -> Use:
    return ("edit", {"path": "notes.txt", "old": "# end\n", "new": f"{name}\n# end\n"})


def write(name: str) -> Use:
    return ("write", {"path": f"made/{name}.txt", "content": f"{name}\n" * 3})


def read() -> Use:
    return ("read", {"path": "notes.txt"})


def task(calls: int) -> list[Step]:
    """A script of that many tool calls, by itself and in batches, quick and slow; then an answer."""
    made: list[list[Use]] = []
    n = 0
    while n < calls:
        size = min(1 + len(made) % 3, calls - n)
        batch: list[Use] = []
        for at in range(n, n + size):
            kinds: list[Use] = [shell(f"s{at}"), edit(f"e{at}"), shell(f"s{at}", 0.2), write(f"w{at}"), read()]
            batch.append(kinds[at % len(kinds)])
        made.append(batch)
        n += size
    return [Step(text=f"Step {k}.", uses=tuple(batch), delay_ms=5) for k, batch in enumerate(made)] + [
        Step(text="All done.")
    ]


def names_of(steps: list[Step], tool: str) -> list[str]:
    """The names of the calls of one tool, in order."""
    found = []
    for step in steps:
        for name, args in step.uses:
            if name == tool:
                match = re.search(r"\b[sew]\d+\b", json.dumps(args))
                assert match is not None
                found.append(match[0])
    return found


class Crashing:
    """One session in a rig, run life by life. `lines` is what an outside process has read of its `--json` output."""

    def __init__(self, rig: Rig, steps: list[Step], *flags: str) -> None:
        self.rig, self.steps, self.flags = rig, steps, flags or ("--yolo",)
        self.lines: list[str] = []
        self.kills = 0
        self.errors = ""

    def life(
        self,
        lines_max: int | None = None,
        pause: float = 0.0,
        kill: Callable[[subprocess.Popen[str]], None] | None = None,
        failpoint: str = "",
    ) -> int:
        """Run until it has shown `lines_max` lines and a pause is over, then kill it; None: until it ends by itself.

        Returns the exit code. The log must verify afterwards, however it ended.
        """
        arguments = ["exec", *self.flags, "--json", "do all of it"]
        if self.lines:
            arguments = ["resume", self.rig.session(), "--json", "--after", str(json.loads(self.lines[-1])["seq"])]
        environment = self.rig.environment | ({"MUSE_FAILPOINT": failpoint} if failpoint else {})
        start = subprocess.Popen if lines_max == 0 else warm.Popen  # who is killed while it starts, starts in full
        process = start(
            [MUSE, *arguments], cwd=self.rig.workspace, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        shown = 0
        while lines_max is None or shown < lines_max:
            line = process.stdout.readline()
            if not line.endswith("\n"):
                break
            shown += 1
            self.lines.append(line)
        if lines_max is not None:
            time.sleep(pause)
            (kill or subprocess.Popen.kill)(process)
        for line in process.stdout:
            if line.endswith("\n"):
                self.lines.append(line)
        self.errors = process.stderr.read()
        code = process.wait(PATIENCE_SECONDS)
        process.stdout.close()
        process.stderr.close()
        self.kills += code == -9
        if self.rig.logs():
            report = app.verify_file(self.rig.path())
            assert report.exit_code == 0, report
        return code

    @property
    def ended(self) -> bool:
        return bool(self.lines) and json.loads(self.lines[-1])["type"] == "session.closed"

    def to_the_end(self) -> None:
        code = self.life()
        assert code == 0, self.errors

    # -- what must hold ----------------------------------------------------------------------------------------------

    def started(self) -> Counter[str]:
        """Starts and ends of shell steps, as the steps themselves counted them."""
        path = self.rig.home / "counter.txt"
        return Counter(path.read_text().splitlines()) if path.exists() else Counter()

    def assert_each_step_once(self) -> None:
        names = names_of(self.steps, "shell")
        assert self.started() == Counter(f"{name} {what}" for name in names for what in ("start", "end"))
        self.assert_files()

    def assert_files(self) -> None:
        edits = names_of(self.steps, "edit")
        assert self.rig.read("notes.txt") == "".join(["# notes\n", *(f"{name}\n" for name in edits), "# end\n"])
        for name in names_of(self.steps, "write"):
            assert self.rig.read(f"made/{name}.txt") == f"{name}\n" * 3
        assert self.rig.read("seen.txt") == FILES["seen.txt"]

    def assert_log(self) -> list[Event]:
        """One intent at a time and one result for every call; what was read outside is all that the log holds."""
        events = self.rig.events()
        assert [json.loads(line) for line in self.lines] == events
        results = Counter(e["body"]["call"] for e in events if e["type"] in ("tool.finished", "model.responded"))
        asked = {e["body"]["call"] for e in events if e["type"] in ("tool.started", "model.requested")}
        assert results == Counter(asked)
        ended: set[str] = set()
        for event in events:
            call = event["body"].get("call")
            assert not (event["type"] in ("tool.started", "model.requested") and call in ended), event
            if event["type"] in ("tool.finished", "model.responded"):
                ended.add(call)
        assert events[-1]["type"] == "session.closed"
        assert events[-1]["body"]["outcome"] == "done"
        return events

    def shell_calls(self, events: list[Event]) -> dict[str, str]:
        """The call of each shell step."""
        found = {}
        for event in events:
            if event["type"] == "tool.started" and event["body"]["tool"] == "shell":
                name = re.search(r"(s\d+) start", event["body"]["args"])
                assert name is not None
                found[name[1]] = event["body"]["call"]
        return found


def last_request(server: WireServer, rig: Rig) -> str:
    """The last request of a rig's session, without what differs from one machine to another."""
    place = str(rig.workspace)
    bodies = [
        received.body.decode() for received in server.requests if f"Workspace: {place}\\n" in received.body.decode()
    ]
    return re.sub(r"Date: [0-9-]{10}", "Date: DAY", bodies[-1].replace(place, "WORKSPACE"))


def seed() -> int:
    """Of this run: MUSE_CRASH_SEED, or drawn; printed, so that a failing run can be had again."""
    found = int(os.environ.get("MUSE_CRASH_SEED") or random.SystemRandom().randrange(2**32))
    print(f"MUSE_CRASH_SEED={found}")
    return found
