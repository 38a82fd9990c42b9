"""Logs of every released version load for ever: they verify, replay to the same bytes, rebuild their requests."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
MUSE = Path(sys.executable).with_name("muse")
LOGS = sorted(HERE.glob("*.muse"))


def muse(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    return subprocess.run(
        [MUSE, *arguments], env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture(params=LOGS, ids=[log.stem for log in LOGS])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    copy = tmp_path / request.param.name
    shutil.copy(request.param, copy)
    return copy


def test_there_is_a_golden_log() -> None:
    assert LOGS


def test_it_verifies_and_its_requests_are_rebuilt(golden: Path) -> None:
    done = muse(golden.parent, "verify", str(golden))
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if " requests " in line)
    assert row.split()[0] == "proven", row


def test_it_replays_to_the_bytes_of_its_day(golden: Path) -> None:
    assert (
        muse(golden.parent, "replay", str(golden), "--json").stdout == HERE.joinpath(f"{golden.stem}.jsonl").read_text()
    )


@pytest.mark.parametrize("arguments", [("replay", "--plain"), ("export", "--format", "md"), ("log",)])
def test_it_can_be_read(golden: Path, arguments: tuple[str, ...]) -> None:
    done = muse(golden.parent, *arguments, str(golden))
    assert done.returncode == 0, done.stderr
    assert "b.txt" in done.stdout


def test_its_export_satisfies_the_independent_verifier(golden: Path) -> None:
    target = golden.with_suffix(".jsonl")
    assert muse(golden.parent, "export", str(golden), "--format", "jsonl", "-o", str(target)).returncode == 0
    tool = HERE.parent.parent / "tools" / "verify_export.py"
    done = subprocess.run([sys.executable, tool, target], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
