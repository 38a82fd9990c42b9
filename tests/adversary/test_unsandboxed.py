"""The same agent without a sandbox: what comes from below the runner is refused, and noted in the log."""

from pathlib import Path

from tests.adversary import attacks
from tests.e2e.rig import Rig


def said(rig: Rig) -> list[str]:
    return [one["body"]["text"] for one in rig.of_type("tool.finished")]


def run(rig: Rig, *commands: str) -> None:
    steps = [{"text": "I try.", "uses": [["shell", {"command": command}]]} for command in commands]
    done = rig.muse("exec", "--yolo", "-m", rig.script([*steps, {"text": "Tried."}]), "attack yourself")
    assert (done.returncode, done.stdout) == (0, "Tried.\n"), done.stderr


def test_the_runner_does_not_listen_to_its_own_commands(rig: Rig) -> None:
    marker = rig.folder / "started-outside"
    start = attacks.to_runner(rig, attacks.start_request(rig, str(marker)))
    stop = attacks.to_runner(rig, '{"do": "stop", "epoch": 1, "kill": true}')
    run(rig, start, stop, "echo still here")
    assert "still here\nexit code 0" in said(rig)[-1]
    assert not any("BROKEN" in text for text in said(rig))
    assert not marker.exists()
    rig.verify()


def test_nor_to_what_they_leave_behind(rig: Rig) -> None:
    """Orphans of a command, started by a process that is gone, in a session and a group of their own."""
    marker, heard = rig.folder / "started-outside", rig.folder / "heard"
    start = attacks.to_runner(rig, attacks.start_request(rig, str(marker)))
    run(rig, f"(setsid sh -c {attacks.quoted(f'{start} > {heard} 2>&1; touch {heard}.done')} &) ; exit 0", "sleep 0.1",
        f"while [ ! -e {heard}.done ]; do sleep 0.05; done")  # fmt: skip
    assert "BROKEN" not in heard.read_text()
    assert not marker.exists()


def test_words_of_an_agent_are_refused_and_noted(rig: Rig) -> None:
    tries = attacks.words(rig)
    run(rig, *(tries[name] for name in ("approve", "steer", "cancel", "redact")))
    assert not any("BROKEN" in text for text in said(rig))
    assert all("started by an agent" in text or "nothing" in text for text in said(rig)), said(rig)
    notes = [one["body"]["text"] for one in rig.of_type("note.added")]
    assert [note.removeprefix("refused: a command run by the agent tried: ").split()[0] for note in notes] == [
        "steer",
        "cancel",
        "redact",
    ]
    assert not {"agent.steered", "cancel.requested", "log.redacted"} & {one["type"] for one in rig.events()}
    rig.verify()


def test_a_session_outside_every_sandbox_says_so(rig: Rig) -> None:
    run(rig, "true")
    (opened,) = rig.of_type("session.opened")
    assert opened["body"]["sandbox"] == "off, as was asked"
    assert Path(rig.workspace / ".muse").exists() is False
