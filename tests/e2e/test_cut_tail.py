"""A log without its end, as a copy without its write-ahead log leaves it: whoever goes on is told, if anything outside
the log knows better."""

import shutil
from pathlib import Path

from muse.effect.model.scripted import Step
from muse.testing.wire import AnthropicServer
from tests.e2e.rig import Rig
from tests.e2e.test_field_bugs import WAITS, result_text, shell

COUNTED = f"echo one >> ran.txt; {WAITS}"


def killed(rig: Rig, command: str = COUNTED) -> Path:
    """A session whose host was killed while its second command ran, without the write-ahead log; that is returned."""
    steps = [Step(uses=(shell("echo zero >> ran.txt"),)), Step(uses=(shell(command),)), Step(text="Done.")]
    with AnthropicServer(steps) as server:
        rig.provider("anthropic", server.base_url)
        process = rig.start("exec", "--yolo", "go on")
        rig.wait_for(lambda: (rig.workspace / "ran.txt").exists() and "one" in rig.read("ran.txt"))
        process.kill()
        process.wait()
    kept = rig.folder / "kept.wal"
    shutil.move(f"{rig.path()}-wal", kept)
    Path(f"{rig.path()}-shm").unlink()
    return kept


def going_on(rig: Rig, *steps: Step, more: tuple[str, ...] = ()) -> tuple[int, str]:
    with AnthropicServer([Step(uses=(shell("echo zero >> ran.txt"),)), *steps, Step(text="Done.")]) as server:
        rig.provider("anthropic", server.base_url)
        done = rig.muse("resume", rig.session(), *more)
        assert server.violations == []
        return done.returncode, done.stderr


def test_a_resume_says_that_the_end_is_missing_and_does_nothing(rig: Rig) -> None:
    kept = killed(rig)
    before = rig.path().read_bytes()
    code, said = going_on(rig, Step(uses=(shell(COUNTED),)))
    assert code == 8, said
    assert "the end of this log is missing: it stops at event 2," in said
    assert "main/4" in said
    assert "--recovered" in said
    assert rig.path().read_bytes() == before
    shutil.move(kept, f"{rig.path()}-wal")  # put back whole, nothing happened
    (rig.workspace / "go").touch()
    code, said = going_on(rig, Step(uses=(shell(COUNTED),)))
    assert code == 0, said
    assert rig.read("ran.txt").split() == ["zero", "one"]
    assert result_text(rig, "main/4") == "began\nended\nexit code 0"
    rig.verify()


def test_who_goes_on_all_the_same_gets_no_command_that_runs_a_second_time_under_its_number(rig: Rig) -> None:
    killed(rig)
    (rig.workspace / "go").touch()
    code, said = going_on(rig, Step(uses=(shell(COUNTED),)), more=("--recovered", "go on"))
    assert code == 0, said
    assert rig.read("ran.txt").split().count("one") == 1
    assert result_text(rig, "main/4") == "began\nended\nexit code 0"
    rig.verify()


def test_another_command_under_the_same_number_does_not_get_the_result_of_the_lost_one(rig: Rig) -> None:
    killed(rig)
    (rig.workspace / "go").touch()
    other = Step(uses=(shell("echo other >> ran.txt"),))
    code, said = going_on(rig, other, other, more=("--recovered", "go on"))
    assert code == 0, said
    assert "another one had the number of this call before" in result_text(rig, "main/4")
    assert result_text(rig, "main/6").endswith("exit code 0")
    assert rig.read("ran.txt").split().count("other") == 1
    rig.verify()
