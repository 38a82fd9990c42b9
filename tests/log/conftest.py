"""Logs in files, and processes that work on them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muse.log.sqlite import SqliteLog
from muse.testing.store import COMMANDS

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a log may be made."""
    return tmp_path / "sessions" / "s.muse"


@pytest.fixture
def log(path: Path) -> Iterator[SqliteLog]:
    """A new log in a file."""
    with SqliteLog.create(path, "s", commands=COMMANDS) as made:
        yield made


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `child.py` with a command; what still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def run(*command: object) -> "subprocess.Popen[str]":
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("child.py")), *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(child)
        return child

    yield run
    for child in running:
        child.kill()
        child.communicate()
