"""`muse redact`: what was taken out is in no file any more, in no form, and the rest still verifies (field bug B58)."""

import base64
import json
import shlex
import signal
import subprocess
import sys
import urllib.parse
from contextlib import closing
from pathlib import Path

import pytest

from muse.event.kinds import COMMANDS, NoteAdded
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal
from tests.ui.driving import MUSE, Done, World, eventually, shell

ROOT = Path(__file__).resolve().parents[2]
SECRET = 'hunter2/correct+horse "battery"\\staple'
WRITTEN = {
    "raw": SECRET,
    "json": json.dumps(SECRET)[1:-1],
    "json in json": json.dumps(json.dumps(SECRET))[3:-3],
    "url": urllib.parse.quote(SECRET, safe=""),
    "form": urllib.parse.quote_plus(SECRET),
    "hex": SECRET.encode().hex(),
    "HEX": SECRET.encode().hex().upper(),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 one on": base64.b64encode(b"x" + SECRET.encode()).decode(),
    "base64 two on": base64.urlsafe_b64encode(b"xy" + SECRET.encode() + b"z").decode(),
}
"""The secret as other programs write it."""
ENCODED = {name: form[4:-4] if "base64" in name else form for name, form in WRITTEN.items()}
"""What of it the secret alone decides, whatever stands before and after."""


def found_in(folder: Path) -> list[str]:
    """The forms of the secret that `grep` finds in any file below a folder."""
    found = []
    for name, form in ENCODED.items():
        done = subprocess.run(["grep", "-raFq", "-e", form, str(folder)], check=False)
        assert done.returncode in (0, 1)
        if done.returncode == 0:
            found.append(name)
    return found


def with_secret(world: World) -> Path:
    """A session that met the secret in a prompt, commands, outputs, files and a model's words; its log."""
    (world.work / "keys.env").write_text(f"KEY={SECRET}\nfine\n")
    echo = " ; ".join(f"printf '%s\\n' {shlex.quote(form)}" for form in WRITTEN.values())
    many = f"cat keys.env; for i in $(seq 5000); do echo line $i; done; printf '%s' {shlex.quote(SECRET)} | base64 -w0"
    model = world.script(
        {"text": "I look.", "uses": [["read", {"path": "keys.env"}], shell(echo)]},
        {"uses": [["write", {"path": "copy.env", "content": f"a\nKEY={SECRET}\nb\n"}], shell(many)]},
        {"uses": [["edit", {"path": "copy.env", "edits": [{"old": "b", "new": "c"}]}]]},
        {"text": f"The key is {SECRET}, I wrote it down."},
    )
    done = world.run("exec", "--yolo", "-q", "-m", model, f"Use the key\n{SECRET}\nplease")
    assert done.code == 0, done
    return world.files()[-1]


def redact(world: World, *args: str, text: str = SECRET) -> Done:
    return world.run("redact", *args, stdin=text)


def checked_by_a_stranger(world: World, session: str) -> int:
    """The exit code of the independent verifier on an export."""
    export = world.root / "export.jsonl"
    assert world.run("export", session, "-o", str(export), "--force").code == 0
    tool = [sys.executable, str(ROOT / "tools" / "verify_export.py"), str(export)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert found_in(world.root / "export.jsonl") == []
    return done.returncode


def test_no_form_of_a_secret_is_left_in_any_file_and_the_log_verifies(world: World) -> None:
    path = with_secret(world)
    name = path.stem
    before = world.events()
    hashes = chain_of(path)
    world.run("ls")
    (world.home / "chat_history").write_text(f"\n# 2026-01-01\n+fine\n\n# 2026-01-02\n+say\n+{SECRET}\n")
    assert {"raw", "json", "base64", "url"} <= set(found_in(world.home))
    done = redact(world, name, "--text", "-", "--yes", "--reason", "a slip")
    assert done.code == 0, done
    assert "still stands" not in done.err
    assert found_in(world.home) == []
    assert SECRET not in done.out + done.err
    assert (world.home / "chat_history").read_text() == "\n# 2026-01-01\n+fine\n"
    verdict = world.run("verify", name)
    assert verdict.code == 0, verdict
    assert "mismatch" not in verdict.out
    assert "hidden by redaction" in verdict.out
    assert "failed" not in verdict.out
    assert checked_by_a_stranger(world, name) == 0
    assert chain_of(path)[:-1] == hashes
    last = world.events()[-1]
    assert (last["type"], last["body"]["reason"]) == ("log.redacted", "a slip")
    assert last["body"]["origin"]["user"] == "ada"
    after = world.events()[:-1]
    assert [(one["seq"], one["type"]) for one in after] == [(one["seq"], one["type"]) for one in before]
    assert (world.work / "keys.env").read_text() == f"KEY={SECRET}\nfine\n"  # the user's files are theirs
    for command in ("log", "replay", "show", "ls"):
        assert world.run(command).code == 0
    assert redact(world, name, "--text", "-", "--yes").code == 2  # nothing holds it any more


def chain_of(path: Path) -> list[bytes]:
    with closing(SqliteLog.open(path, commands=COMMANDS, read_only=True)) as log:
        return [event.hash for event in log.read()]


def hidden_of(world: World, name: str, *args: str, text: str = SECRET) -> dict[str, set[str]]:
    """type → fields that would be hidden."""
    done = redact(world, name, *args, "--dry-run", "--json", text=text)
    assert done.code == 0, done
    found: dict[str, set[str]] = {}
    for event in json.loads(done.out)["events"]:
        found.setdefault(event["type"], set()).update(event["fields"])
    return found


def test_what_would_go_is_the_closure_and_only_that(world: World) -> None:
    path = with_secret(world)
    data = path.read_bytes()
    found = hidden_of(world, path.stem, "--text", "-")
    assert found["user.prompted"] == {"text"}
    assert found["model.requested"] == {"request_sha256"}
    assert {"blocks.0.args", "blocks.1.args"} & found["model.responded"]
    assert {"observed.after_sha256", "args"} <= found["tool.started"]
    assert "text" in found["tool.finished"]
    assert not {"session.opened", "agent.spawned", "session.closed"} & set(found)
    assert path.read_bytes() == data
    before = [
        json.loads(line)["body"] for line in world.run("log", "--json", "--type", "user.prompted").out.splitlines()
    ]
    assert before[0]["text"].endswith("please")
    assert redact(world, path.stem, "--text", "-", "--yes").code == 0
    prompt = world.run("export", path.stem).out.splitlines()[2]
    assert "Use the key" in prompt  # other lines stay
    assert "please" in prompt


def test_a_request_before_the_secret_keeps_its_digest(world: World) -> None:
    model = world.script({"uses": [shell(f"echo {shlex.quote(SECRET)} | tee x")]}, {"text": "Fine."})
    assert world.run("exec", "--yolo", "-q", "-m", model, "go").code == 0
    requests = [event["seq"] for event in world.events() if event["type"] == "model.requested"]
    done = redact(world, "last", "--text", "-", "--dry-run", "--json")
    concerned = [one["seq"] for one in json.loads(done.out)["events"] if one["type"] == "model.requested"]
    assert concerned == requests[1:]


def test_whole_events_go_with_what_they_say_elsewhere(world: World) -> None:
    words = "The launch is on the second of May, at noon."
    model = world.script({"uses": [["write", {"path": "plan", "content": words}]]}, {"text": f"Noted: {words}"})
    assert world.run("exec", "--yolo", "-q", "-m", model, words).code == 0
    name = world.files()[0].stem
    prompt = next(event["seq"] for event in world.events() if event["type"] == "user.prompted")
    done = world.run("redact", f"{name}@{prompt}", "--yes", "--json")
    assert done.code == 0, done
    types = {event["type"] for event in json.loads(done.out)["events"]}
    assert {"user.prompted", "model.requested", "model.responded", "tool.started"} <= types
    assert subprocess.run(["grep", "-raFq", words, str(world.home)], check=False).returncode == 1
    assert world.run("verify", name).code == 0
    assert world.run("resume", name, "go on").code == 2


def test_a_note_can_go_and_the_session_goes_on(world: World) -> None:
    model = world.script({"text": "Hello."})
    assert world.run("exec", "-q", "-m", model, "hello there").code == 0
    with closing(SqliteLog.open(world.files()[0], commands=COMMANDS)) as log:
        log.submit(seal(NoteAdded(text=SECRET), "main", 0))
    assert redact(world, "last", "--text", "-", "--yes").code == 0
    assert found_in(world.home) == []
    assert [json.loads(line)["state"] for line in world.run("ls", "--json").out.splitlines()] == ["closed"]
    assert world.run("resume", "last", "more", "-q", "-m", world.script({"text": "x"}, {"text": "Well."})).code == 0
    opened = [event for event in world.events() if event["type"] == "session.opened"][-1]
    assert not opened["body"].get("crashed", False)
    assert world.run("verify").code == 0


def test_it_is_asked_first_and_a_running_session_is_left_alone(world: World) -> None:
    path = with_secret(world)
    terminal = world.terminal("redact", path.stem, "--text", "-")
    terminal.expect("not shown")
    terminal.send(f"{SECRET}\n")
    terminal.expect("for good?")
    terminal.send("n\n")
    code, shown = terminal.end()
    assert (code, SECRET in shown) == (1, False)
    assert "raw" in found_in(world.home)
    for args in (
        (path.stem, "--text", SECRET),
        (path.stem,),
        (f"{path.stem}@2", "--text", "-"),
        (f"{path.stem}@9999",),
    ):
        assert redact(world, *args, "--yes").code == 2
    assert redact(world, path.stem, "--text", "-", "--yes", text="abc").code == 2
    model = world.script({"uses": [shell("touch begun; until [ -e go ]; do sleep 0.05; done")]}, {"text": "x"})
    running = world.start("exec", "--yolo", "-m", model, SECRET)
    eventually((world.work / "begun").exists)
    assert redact(world, world.files()[-1].stem, "--text", "-", "--yes").code == 7
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert redact(world, world.files()[-1].stem, "--text", "-", "--yes").code == 7  # its command still runs


@pytest.mark.parametrize("point", ["before_commit:1", "after_commit:1"])
def test_killed_in_the_middle_it_is_done_or_it_is_not(world: World, point: str) -> None:
    path = with_secret(world)
    env = {"MUSE_FAILPOINT": point}
    done = world.run("redact", path.stem, "--text", "-", "--yes", stdin=SECRET, env=env)
    assert done.code == -signal.SIGKILL
    assert world.run("verify", path.stem).code == 0
    recorded = world.types()[-1] == "log.redacted"
    assert recorded is (point == "after_commit:1")
    again = redact(world, path.stem, "--text", "-", "--yes")
    assert again.code == 0, again
    assert found_in(world.home) == []


def test_what_an_agent_starts_may_neither_redact_nor_delete(world: World) -> None:
    name = with_secret(world).stem
    tries = [f"rm {name} --yes", f"archive {name} --yes", f"redact {name} --text - --yes", "gc"]
    script = "; ".join(f"printf %s {shlex.quote(SECRET)} | {MUSE} {one}; echo code $?" for one in tries)
    model = world.script({"uses": [shell(f"export MUSE_HOME={world.home}; {script}")]}, {"text": "I tried."})
    assert world.run("exec", "--yolo", "--sandbox", "off", "-q", "-m", model, "clean up").code == 0
    output = next(event for event in world.events() if event["type"] == "tool.finished")["body"]["text"]
    assert output.count("code 2") == len(tries), output
    assert output.count("an agent may not") == len(tries), output
    assert world.files()[0].stem == name
    notes = [event["body"]["text"] for event in world.events(name) if event["type"] == "note.added"]
    assert [note.partition("tried: ")[2].split()[0] for note in notes] == ["rm", "archive", "redact"]
    assert not any(SECRET in note for note in notes)
