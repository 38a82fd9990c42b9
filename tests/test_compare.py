"""The comparison's counter finds what it is there to find: a runner that repeats what it had begun is caught at it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tools.compare.counted import Contestant, counted, crash, kill_below, make_task, to_the_end, without_pids

NAIVE = """
import json, pathlib, subprocess, sys
folder = pathlib.Path(sys.argv[1])
commands = json.loads((folder / "task.json").read_text())["commands"]
record = folder / "record"
done = json.loads(record.read_text()) if record.exists() else []
while len(done) < len(commands):
    done.append(subprocess.run(["bash", "-c", commands[len(done)]], capture_output=True, text=True).stdout)
    if FORGETFUL:
        pass
    else:
        record.write_text(json.dumps(done))
    (folder / "told").write_text("".join(f"{said}exit code 0\\n" for said in done))
print("Done.")
"""


class Naive(Contestant):
    """Records a step when it is done, or (`forgetful`) never."""

    name, uses = "naive", ""

    def __init__(self, *, forgetful: bool = False) -> None:
        self._script = NAIVE.replace("FORGETFUL", str(forgetful))

    def versions(self) -> str:
        return ""

    def life(self, folder: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", self._script, str(folder)], cwd=folder / "work", text=True, start_new_session=True,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def told(self, folder: Path) -> list[str]:
        path = folder / "told"
        return [path.read_text()] if path.exists() else []

    def record(self, folder: Path) -> Path:
        return folder / "record"

    def end(self, folder: Path) -> None:
        kill_below(folder)


def calm(contestant: Contestant, folder: Path, steps: int) -> str:
    make_task(folder, [0.0] * steps)
    assert to_the_end(contestant, folder) == (0, "Done.\n")
    assert [len(pids) for pids in counted(folder).ends.values()] == [1] * steps
    return contestant.told(folder)[-1]


def test_a_repeated_step_an_orphan_and_silence_about_both_are_counted(tmp_path: Path) -> None:
    naive = Naive()
    before = calm(naive, tmp_path / "calm", 3)
    make_task(tmp_path / "crash", [0.0, 2.0, 0.0])
    found = crash(naive, tmp_path / "crash", lambda steps: 1 in steps.starts, 0.0, before)
    assert (found.killed, found.killed_again, found.side_by_side, found.orphans) == (1, 1, 1, 1)
    assert (found.finished_again, found.silent, found.completed) == (0, 1, True)


def test_a_finished_step_that_runs_again_is_counted(tmp_path: Path) -> None:
    forgetful = Naive(forgetful=True)
    before = calm(forgetful, tmp_path / "calm", 3)
    make_task(tmp_path / "crash", [0.0, 0.0, 0.5])
    found = crash(forgetful, tmp_path / "crash", lambda steps: 2 in steps.starts, 0.0, before)
    assert (found.finished_again, found.killed_again, found.silent) == (2, 1, 3)


def test_a_conversation_is_compared_without_process_numbers() -> None:
    said = json.dumps(["did 0 as 17\nexit code 0", "did 1 as 18\nexit code 0"])
    assert without_pids(said) == without_pids(said.replace("17", "99"))
    assert without_pids(said) != without_pids(said.replace("exit code 0", "outcome unknown", 1))
