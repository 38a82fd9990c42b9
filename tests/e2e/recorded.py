"""A session to ask questions of, and what the world outside its log knows of it.

`record` plays a release: a migration that ada allows, a deletion that grace allows, a publication that grace denies, a
provider that is busy once, an edit and tests that fail by rule, words of lin, a crash of everything in the middle of an
upload, a resume under another mode, a tagging that grace cancels. Meanwhile everything is noted where it happens: by
the server that gets the requests, in the files that the commands write, by who starts which process.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from muse.effect.model.scripted import Step
from muse.testing.wire import AnthropicServer, Received, Trouble
from tests import warm
from tests.e2e.rig import PATIENCE_SECONDS, Rig
from tests.e2e.test_same_lines import Watched, watched

NAME = "release"
PROMPT = "Ship release 2: run the migration, drop the old prices, mend the total."
SECOND = "Now tag it."
THIRD = "What is left to do?"
STEERED = "Leave the changelog alone."
NOTE = "not before Friday"
WHY = "that is the wrong tag"
OLD = "shirt;12\nhat;7\n"
BEFORE = "def total(prices):\n    return sum(prices) - 1\n"
AFTER = "def total(prices):\n    return sum(prices)\n"
RULES = ("edit(src/**)", "shell(sh test.sh)", "shell(sh upload.sh)", "shell(sh tag.sh)")
FILES = {
    "README.md": "# Shop\n\nAdds prices.\n",
    "src/shop.py": BEFORE,
    "old/prices.csv": OLD,
    "migrate.sh": "echo ran >> migrated.txt\necho 3 tables changed\n",
    "publish.sh": "touch published.txt\n",
    "test.sh": "echo ran >> tested.txt\necho 1 of 9 failed >&2\nexit 3\n",
    "upload.sh": "echo begin >> uploaded.txt\nsleep 600\necho end >> uploaded.txt\n",
    "tag.sh": "echo begin >> tagged.txt\nsleep 600\necho end >> tagged.txt\n",
}
STEPS = [
    Step(text="I read first.", uses=(("read", {"path": "README.md"}),)),
    Step(text="Now the migration.", uses=(("shell", {"command": "sh migrate.sh"}),)),
    Step(text="The old prices go.", uses=(("shell", {"command": "rm old/prices.csv"}),)),
    Step(text="I publish.", uses=(("shell", {"command": "sh publish.sh"}),)),
    Step(
        text="Then later. I mend the total.",
        uses=(("edit", {"path": "src/shop.py", "old": "sum(prices) - 1", "new": "sum(prices)"}),),
    ),
    Step(text="I test.", uses=(("shell", {"command": "sh test.sh"}),)),
    Step(text="I upload.", uses=(("shell", {"command": "sh upload.sh"}),)),
    Step(text="I note it.", uses=(("write", {"path": "notes.txt", "content": "upload: ask the server\n"}),)),
    Step(text="Release 2 is shipped, but look at the upload."),
    Step(text="I tag.", uses=(("shell", {"command": "sh tag.sh"}),)),
    Step(text="The tag is left to do."),
]
BUSY = 4
"""The step at which the provider is busy once."""


class Noted(msgspec.Struct, kw_only=True):
    """The session, and what was noted outside its log. `lines` is what each run showed with `--json` while it ran, all
    of them together; `followed` what `muse log -f --json` showed meanwhile in another process; `pids` of who said what;
    `requests` as the server got them; `left` the files of the workspace at the end."""

    rig: Rig
    log: Path
    lines: list[str]
    followed: list[str]
    pids: dict[str, int]
    requests: list[Received]
    left: dict[str, str]

    def bodies(self) -> list[dict[str, Any]]:
        """The requests as the server read them."""
        return [json.loads(received.body) for received in self.requests]


def say(rig: Rig, user: str, *arguments: str) -> int:
    """A person's word from a process of its own; its pid."""
    process = warm.Popen(
        [warm.MUSE, *arguments], cwd=rig.workspace, env=rig.environment | {"USER": user}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    return process.pid


def first_life(rig: Rig, run: Watched, pids: dict[str, int]) -> None:
    """From the prompt to the crash."""
    asked = run.until("approval.requested")["seq"]
    pids["migration"] = say(rig, "ada", "approve", f"last@{asked}")
    asked = run.until("approval.requested")["seq"]
    pids["deletion"] = say(rig, "grace", "approve", f"last@{asked}")
    asked = run.until("approval.requested")["seq"]
    pids["publication"] = say(rig, "grace", "deny", f"last@{asked}", "--note", NOTE)
    rig.wait_for(lambda: (rig.workspace / "uploaded.txt").exists())
    pids["steer"] = say(rig, "lin", "steer", "last", STEERED)
    run.until("agent.steered")
    rig.kill_all()
    assert run.end() == -9


@contextmanager
def record(folder: Path) -> Iterator[Noted]:
    """Play it, and note."""
    pids: dict[str, int] = {}
    lines: list[str] = []
    with (
        AnthropicServer(STEPS, faults={BUSY: [Trouble("status", status=429, error="rate_limit_error")]}) as server,
        Rig(folder, FILES) as rig,
    ):
        rig.provider("anthropic", server.base_url)
        rig.environment["USER"] = "ada"
        allow = [word for rule in RULES for word in ("--allow", rule)]
        with watched(rig, "exec", "--json", "--name", NAME, *allow, PROMPT) as run:
            pids["prompt"] = run.process.pid
            first_life(rig, run, pids)
            lines += run.lines
        with watched(rig, "log", NAME, "-f", "--json") as follower:
            resume = ["resume", NAME, "--json", "--after"]
            with watched(rig, *resume, str(len(lines)), "--permission-mode", "accept-edits") as run:
                pids["resume"] = run.process.pid
                assert run.end() == 0, run.errors
                lines += run.lines
            with watched(rig, *resume, str(len(lines)), SECOND) as run:
                rig.wait_for(lambda: (rig.workspace / "tagged.txt").exists())
                pids["cancel"] = say(rig, "grace", "cancel", NAME, "--why", WHY)
                assert run.end() == 130, run.errors
                lines += run.lines
            with watched(rig, *resume, str(len(lines)), THIRD) as run:
                assert run.end() == 0, run.errors
                lines += run.lines
            while len(follower.lines) < len(lines):
                follower.until("session.closed")
        assert server.violations == []
        left = {
            str(path.relative_to(rig.workspace)): path.read_text()
            for path in sorted(rig.workspace.rglob("*")) if path.is_file() and ".git" not in path.parts
        }  # fmt: skip
        yield Noted(
            rig=rig, log=rig.path(), lines=lines, followed=follower.lines, pids=pids, requests=server.requests,
            left=left,
        )  # fmt: skip
