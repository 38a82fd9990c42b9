"""The page docs/questions.md, read and written: its questions, each with one command, and the answers under them.

`python -m tests.e2e.questions` records the sessions anew and writes what the commands say under them.
"""

import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.e2e import fleet
from tests.e2e.recorded import Noted, record
from tests.ui.asking import Answer, ask

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"
ONE = re.compile(r"^## (\d+)\. (.+?)\n\n    muse (.+?)\n\n```text\n(.*?)```\n", re.M | re.S)


class Question(msgspec.Struct, frozen=True):
    """One of the page. `words` is the command without `muse`."""

    number: int
    title: str
    words: tuple[str, ...]
    answer: str


def questions(page: str) -> list[Question]:
    """All of a page."""
    return [Question(int(n), title, tuple(shlex.split(line)), said) for n, title, line, said in ONE.findall(page)]


def filled(page: str, answer: Callable[[Question], str]) -> str:
    """The page with these answers."""

    def with_answer(found: re.Match[str]) -> str:
        number, title, line, _ = found.groups()
        said = answer(Question(int(number), title, tuple(shlex.split(line)), ""))
        return f"## {number}. {title}\n\n    muse {line}\n\n```text\n{said}```\n"

    return ONE.sub(with_answer, page)


def asked(noted: Noted, question: Question) -> Answer:
    """What the command says of the recorded sessions."""
    return ask(noted.rig.muse_home, *question.words)


def as_shown(noted: Noted, text: str) -> str:
    """An answer as the page shows it: with the folder, the id and the clock of somebody's own machine."""
    for path, place in ((noted.rig.workspace, "/home/ada/shop"), (noted.rig.folder, "/home/ada")):
        text = text.replace(str(path), place)
    text = text.replace(noted.log.stem, "20261130-090000-release0").replace(noted.log.stem[-8:], "release0")
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d\.\d+Z?)?", "2026-11-30 09:00", text)
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def without_numbers(text: str) -> str:
    """An answer without what differs from one recording to the next: counts, durations, digests, and how wide columns
    are. Numbers of events and calls stay."""
    text = re.sub(r"\b[0-9a-f]{16,}\b", "HEX", text)
    text = re.sub(r"\s+", " ", re.sub(r"(?<![#/@\w.])\d[\d,.]*", "N", text))
    return re.sub(r"N( N)+", "N", text)


def main() -> None:
    """Write the page."""
    with record(Path(tempfile.mkdtemp())) as noted:
        fleet.write(noted.rig.muse_home)
        page = filled(PAGE.read_text(), lambda question: as_shown(noted, asked(noted, question).out))
    PAGE.write_text(page)
    print(f"{len(questions(page))} questions in {PAGE}", file=sys.stderr)


if __name__ == "__main__":
    main()
