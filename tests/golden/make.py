"""Makes the golden log of a release: `python tests/golden/make.py VERSION`. Run once a release and never again for it.

A real session through the installed command: prompts, every built-in tool, an approval from elsewhere, a refusal with a
note, a provider that fails and is asked again, a steer, a host killed in the middle of a command, a cancelled turn.
Writes VERSION.muse and VERSION.jsonl (what `replay --json` said that day) beside this file.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MUSE = Path(sys.executable).with_name("muse")
WAIT_SECONDS_MAX = 60

SCRIPT = {
    "steps": [
        {
            "text": "I look around first.",
            "reasoning": "two files",
            "uses": [["glob", {"pattern": "*"}], ["read", {"path": "a.txt"}], ["grep", {"pattern": "o"}]],
        },
        {
            "failure": {"failure": "overloaded", "times": 1, "message": "busy"},
            "text": "Now I change.",
            "uses": [
                ["edit", {"path": "a.txt", "edits": [{"old": "one", "new": "eins"}]}],
                ["write", {"path": "b.txt", "content": "zwei\n\u00e4\U0001f642\n"}],
                ["shell", {"command": "rm c.txt"}],
            ],
        },
        {
            "text": "And a slow one.",
            "uses": [["shell", {"command": "echo began; until [ -e go ]; do sleep 0.1; done; seq 9000"}]],
        },
        {
            "text": "Reading the rest.",
            "uses": [
                ["output", {"call": "main/10", "offset": 100, "limit": 20}],
                ["nothing", {}],
                ["shell", "{broken"],
            ],
        },
        {"text": "All done."},
        {"text": "This takes long.", "uses": [["shell", {"command": "sleep 60"}]]},
        {"text": "Not reached."},
    ]
}


def lines_of(path: Path) -> list[dict[str, object]]:
    """The whole JSON lines that were captured so far."""
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def main(version: str) -> None:
    """Play the session and store it."""
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    work, home = folder / "work", folder / "home"
    work.mkdir()
    (work / "a.txt").write_text("one\ntwo\n")
    (work / "c.txt").write_text("three\n")
    (work / "AGENTS.md").write_text("Be brief.\n")
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "MUSE_HOME": str(home),
        "LANG": "C.UTF-8",
        "USER": "golden",
    }

    def muse(*arguments: str) -> str:
        done = subprocess.run(
            [MUSE, *arguments], cwd=work, env=environment, capture_output=True, text=True, check=False
        )
        print(arguments, done.returncode, done.stderr[-300:])
        return done.stdout

    captured = folder / "live.jsonl"

    def begin(*arguments: str) -> subprocess.Popen[bytes]:
        with captured.open("ab") as out:
            return subprocess.Popen(
                [MUSE, *arguments, "--json"], cwd=work, env=environment, stdout=out, stdin=subprocess.DEVNULL
            )

    def wait(type_name: str, count: int = 1) -> int:
        end = time.monotonic() + WAIT_SECONDS_MAX
        while time.monotonic() < end:
            found = [int(str(line["seq"])) for line in lines_of(captured) if line["type"] == type_name]
            if len(found) >= count:
                return found[count - 1]
            time.sleep(0.05)
        raise SystemExit(f"no {type_name} {count}")

    model = f"scripted/{folder / 'script.json'}"
    host = begin(
        "exec", "-m", model, "--allow", "shell(echo *)", "-c", "retry_base_ms=10", "--name", "golden", "Tidy up."
    )
    for number, answer in enumerate(("approve", "approve", "deny"), 1):
        seq = wait("approval.requested", number)
        muse(answer, f"golden@{seq}", *(["--note", "keep it"] if answer == "deny" else []))
    wait("tool.started", 6)
    muse("steer", "golden", "mind the umlauts")
    wait("agent.steered")
    time.sleep(0.5)
    host.send_signal(signal.SIGKILL)
    host.wait()
    (work / "go").touch()
    seen = lines_of(captured)[-1]["seq"]
    begin("resume", "golden", "--after", str(seen)).wait()
    seen = lines_of(captured)[-1]["seq"]
    again = begin("resume", "golden", "One more thing.", "--after", str(seen), "--allow", "shell(sleep *)")
    wait("tool.started", 10)
    muse("cancel", "golden", "--why", "too slow")
    again.wait()
    found = next((home / "sessions").rglob("*.muse"))
    (HERE / f"{version}.jsonl").write_text(muse("replay", "golden", "--json"))
    assert (HERE / f"{version}.jsonl").read_text() == captured.read_text(), "live and replay differ"
    shutil.copy(found, HERE / f"{version}.muse")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1])
