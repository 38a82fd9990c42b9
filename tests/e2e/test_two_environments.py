"""The same log in two environments says the same, byte for byte: to programs always, to people where lines are as wide.

Real processes; the interpreter that each is forked from was started in its environment.
"""

import json
import locale
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests import warm
from tests.e2e.recorded import Noted
from tests.e2e.rig import PATIENCE_SECONDS
from tests.ui.asking import ask

FOR_PROGRAMS = [
    ("log", "--json"), ("log", "--json", "--failed", "--whole-calls"), ("log", "--json", "--since", "2020-01-01"),
    ("replay", "--json"), ("replay", "--json", "--state"), ("show", "@51", "--json"),
    ("show", "@16", "--request"), ("show", "@16", "--request", "--diff", "--json"), ("why", "@13", "--json"),
    ("search", "changelog", "--json"), ("sql", "SELECT * FROM events ORDER BY seq", "--json"),
    ("sql", "SELECT * FROM calls", "--csv"), ("export",), ("export", "--format", "md"),
    ("replay", "--verify", "--json"), ("verify", "--json"),
]  # fmt: skip
"""Commands without the session that they are about."""
FOR_PEOPLE = [
    ("log",), ("replay", "--plain", "--detail"), ("show", "@51"), ("show", "@16", "--request", "--diff"),
    ("replay", "--state"), ("why", "@13"), ("sql", "SELECT call, command FROM calls"), ("verify",),
]  # fmt: skip


def line(words: tuple[str, ...], name: str) -> list[str]:
    """The command's words with the log in its place: after the text that it is asked for, with the seq of `words`."""
    command, *rest = words
    seq = next((word for word in rest if word.startswith("@")), "")
    rest = [word for word in rest if word != seq]
    texts = [rest.pop(0)] if command in ("search", "sql") else []
    return [command, *texts, f"{name}{seq}", *rest]


class Place(msgspec.Struct):
    """An environment: where it runs, its variables, its umask. What it prints is the same but for the path given."""

    folder: Path
    log: Path
    variables: dict[str, str]
    umask: int

    def run(self, words: tuple[str, ...]) -> bytes:
        warm.load(self.variables)
        process = warm.Popen(
            [warm.MUSE, *line(words, str(self.log))], cwd=self.folder, env=self.variables, umask=self.umask,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, (words, err.decode())
        return bytes(out).replace(os.fsencode(self.log), b"LOG")


def another_locale() -> str:
    """One of this machine that is not C and not UTF-8, or at least not the other environment's."""
    for name in ("tr_TR.UTF-8", "de_DE.UTF-8", "de_DE", "POSIX"):
        try:
            before = locale.setlocale(locale.LC_ALL)
            locale.setlocale(locale.LC_ALL, name)
            locale.setlocale(locale.LC_ALL, before)
        except locale.Error:
            continue
        return name
    raise AssertionError("POSIX is always there")


def place(root: Path, log: Path, umask: int, **variables: str) -> Place:
    """A copy of the log in a machine of its own."""
    home, elsewhere, folder = root / "home", root / "muse", root / "work"
    for each in (home, elsewhere, folder):
        each.mkdir(parents=True)
    copy = folder / log.name
    shutil.copy(log, copy)
    base = {"PATH": os.environ["PATH"], "HOME": str(home), "MUSE_HOME": str(elsewhere)}
    return Place(folder, copy, base | variables, umask)


@pytest.fixture(scope="module")
def places(release: Noted, tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Place]:
    one = place(tmp_path_factory.mktemp("a"), release.log, 0o022, LC_ALL="C.UTF-8", TZ="UTC", COLUMNS="80",
                PYTHONHASHSEED="0", TERM="dumb", USER="ada")  # fmt: skip
    other = place(tmp_path_factory.mktemp("b") / "zażółć" / "deep", release.log, 0o077, LC_ALL=another_locale(),
                  LANG="C", TZ="Asia/Kathmandu", COLUMNS="133", PYTHONHASHSEED="4242", TERM="xterm-256color",
                  USER="grace", LINES="9", PYTHONUTF8="0")  # fmt: skip
    return one, other


def of_both(places: tuple[Place, Place], words: tuple[str, ...]) -> tuple[bytes, bytes]:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda place: place.run(words), places)
    return first, second


@pytest.mark.parametrize("words", FOR_PROGRAMS, ids=" ".join)
def test_programs_read_the_same_bytes(places: tuple[Place, Place], words: tuple[str, ...]) -> None:
    first, second = of_both(places, words)
    assert first
    assert first == second


@pytest.mark.parametrize("words", FOR_PEOPLE, ids=" ".join)
def test_people_read_the_same_where_lines_are_as_wide(places: tuple[Place, Place], words: tuple[str, ...]) -> None:
    one, other = places
    again = msgspec.structs.replace(other, variables=other.variables | {"COLUMNS": "80", "LC_ALL": "C.UTF-8"})
    first, second = of_both((one, again), words)
    assert first
    assert first == second


def test_asking_changed_no_byte_of_the_log(places: tuple[Place, Place], release: Noted) -> None:
    assert [one.log.read_bytes() == release.log.read_bytes() for one in places] == [True, True]


@pytest.mark.parametrize("words", FOR_PROGRAMS, ids=" ".join)
def test_a_file_whose_name_is_no_text_is_asked_like_any_other(
    places: tuple[Place, Place], words: tuple[str, ...]
) -> None:
    odd = os.fsdecode(os.fsencode(places[0].folder) + b"/caf\xe9.muse")
    shutil.copy(places[0].log, odd)
    named, plain = (ask(places[0].folder, *line(words, name)) for name in (odd, str(places[0].log)))
    assert (named.code, named.err) == (plain.code, plain.err)
    shown = f"{places[0].folder}/caf\ufffd.muse"
    assert named.out.replace(shown, str(places[0].log)) == plain.out


def test_the_environments_differ_as_they_claim(places: tuple[Place, Place]) -> None:
    """Else all of this would compare a thing with itself."""
    told = [
        json.loads(
            subprocess.run(
                ["python3", "-c", "import json, time, sys; print(json.dumps([time.tzname[0], hash('a')]))"],
                env=one.variables, capture_output=True, check=True,
            ).stdout
        )
        for one in places
    ]  # fmt: skip
    assert told[0][0] != told[1][0]
    assert told[0][1] != told[1][1]
