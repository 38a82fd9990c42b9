"""`muse search`: what is found and how it is said; the index as a cache that keeps nothing it should not."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import apsw
import pytest
from click.shell_completion import ShellComplete

from muse.app import searching
from muse.app.indexing import index_of
from muse.event.content import Block, FileChange, Observed, Origin
from muse.event.kinds import (
    AgentSpawned,
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    FilesChanged,
    LogRedacted,
    ModelFailed,
    ModelResponded,
    NoteAdded,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)
from muse.log import schema
from muse.log.search.texts import TextKind
from muse.runtime.seal import seal
from muse.ui.cli import cli
from tests.ui.asking import Answer, ask
from tests.ui.driving import MUSE
from tests.ui.told import Telling, told

OLD, NEW = "20261129-090000-00aaaaaa", "20261130-090000-00bbbbbb"
ENDLESS = "x" * 79 + "\n"


def tell(home: Path) -> Path:
    """A session that says a thing of each kind."""
    with Telling(home, NEW, name="Nightly zeppelin") as log:
        before = log.blob(b"kept = 1\ngone_line = 2\n")
        after = log.blob(b"kept = 1\nnew_line = 3\n")
        output = log.blob(b"first\n\x1b[2Jwhole-output-needle \xff\n" + b"tail\n" * 10)
        use = Block(kind="tool_use", id="u1", name="shell", args=json.dumps({"command": 'grep "a\tb" | wc -l'}))
        write = Block(kind="tool_use", id="u2", name="write", args=json.dumps({"path": "x.py", "content": 'p("ü")\n'}))
        log.say(
            AgentSpawned(system="never searched systemword", task="the task at hand"),
            UserPrompted(text="Please find\nthe culprit", origin=Origin(user="ada")),
            ModelResponded(
                call="main/1", attempt=1, stop="tool_use",
                blocks=(Block(kind="reasoning", text="hmm-thought"), Block(kind="text", text="I look."), use, write),
            ),
            ApprovalRequested(call="main/2", tool="shell", shown="wants: rm -rf shown-thing", shown_sha256="0" * 64),
            ApprovalDecided(call="main/2", decision="deny", by="person", request=5, note="certainly-not"),
            ToolStarted(
                call="main/3", attempt=1, tool="write", args=write.args, recovery="reconcilable",
                observed=Observed(path="x.py", error="observed-error"),
            ),
            ToolFinished(call="main/3", attempt=1, status="ok", text="short", output=output, output_bytes=90),
            FilesChanged(calls=("main/3",), changes=(FileChange(path="src/deep/x.py", before=before, after=after),)),
            NoteAdded(text="a remark 错误 here"),
            ModelFailed(call="main/4", attempt=1, failure="server", message="upstream exploded"),
            CancelRequested(why="took too long"),
            UserPrompted(text="other lane"),
        )  # fmt: skip
        log.say(UserPrompted(text="for the child: culprit"), agent="main.1")
    return log.path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions; tests only read it."""
    home = tmp_path_factory.mktemp("home")
    told(home, UserPrompted(text="an older culprit, 100% a*b (c) \"q\" OR"), NoteAdded(text="x" * 500 + "farright"),
         session=OLD)  # fmt: skip
    tell(home)
    return home


def hits(home: Path, *args: str) -> list[dict[str, Any]]:
    """What is found, as JSON."""
    done = ask(home, "search", *args, "--json")
    assert done.code == (0 if done.out else 1), done
    return [json.loads(line) for line in done.out.splitlines()]


def addresses(home: Path, *args: str) -> list[str]:
    return [hit["address"] for hit in hits(home, *args)]


KINDS = {
    "zeppelin": (1, "name"), "task at hand": (2, "prompt"), "culprit please": (3, "prompt"),
    "thought": (4, "reasoning"), "I look.": (4, "answer"), 'grep "a': (4, "command"), "shown-thing": (5, "approval"),
    "certainly": (6, "note"), "observed-error": (7, "error"), "whole-output": (8, "output"), "new_line": (9, "added"),
    "gone_line": (9, "removed"), "src/deep": (9, "path"), "错误": (10, "note"), "误": (10, "note"),
    "upstream EXPLODED": (11, "error"), "took too": (12, "note"), 'p("Ü")': (7, "arguments"),
}  # fmt: skip
"""What is searched for, and where it stands: the newest event that says so, and as what."""


def test_everything_that_a_session_says_is_found_where_it_stands(home: Path) -> None:
    for text, (seq, kind) in KINDS.items():
        found = hits(home, text)
        assert (found[0]["seq"], found[0]["kind"]) == (seq, kind), text
    assert hits(home, "systemword") == []
    assert hits(home, "kept") == []


def test_nothing_in_a_query_is_syntax_but_blanks_and_quotes(home: Path) -> None:
    for text in ("100%", "a*b", "(c)", 'c) "q" OR', "older 100%", '"100% a*b"', '"q"', "older culprit OR"):
        assert addresses(home, text) == ["00aaaaaa@2"], text
    for text in ("1%0", "a%b", "a*%", "NOT culprit -", "culprit*", "100a*b", '"culprit older"'):
        assert addresses(home, text) == [], text
    assert addresses(home, "-F", ' "q" ') == ["00aaaaaa@2"]
    assert addresses(home, "-s", "Older") == []
    assert addresses(home, "Older") == ["00aaaaaa@2"]
    assert addresses(home, '"find\nthe"') == ["00bbbbbb@3"]


def test_expressions_match_within_a_line_and_a_bad_one_is_a_usage_error(home: Path) -> None:
    assert addresses(home, "-E", r"(older|remark) \S+") == ["00bbbbbb@10", "00aaaaaa@2"]
    assert addresses(home, "-E", r"find\s+the") == []
    assert addresses(home, "-E", "^the culprit$") == ["00bbbbbb@3"]
    assert addresses(home, "-E", "Please") == ["00bbbbbb@3"]
    assert addresses(home, "-E", "pleasE") == []
    assert ask(home, "search", "-E", "(").code == 2
    assert ask(home, "search", "").code == 2
    assert ask(home, "search").code == 2


def test_hits_come_newest_first_with_their_place_and_the_match_marked(home: Path) -> None:
    assert addresses(home, "culprit") == ["00bbbbbb@14", "00bbbbbb@3", "00aaaaaa@2"]
    done = ask(home, "search", "culprit", "-n", "1")
    first, second = done.out.splitlines()
    assert first.startswith("00bbbbbb@14  20")
    assert first.endswith("for the child: culprit")
    assert second == "    prompt: for the child: «culprit»"
    assert re.search(r"^and (at least )?[12] more hits?: ", done.err)
    (far,) = hits(home, "farright")
    assert [far["snippet"][begin:end] for begin, end in far["matches"]] == ["farright"]
    assert len(far["snippet"]) < 100
    nothing = ask(home, "search", "no-such-thing")
    assert (nothing.code, nothing.out) == (1, "")
    assert "no-such-thing" in nothing.err


def test_what_a_terminal_would_act_on_is_shown_and_not_sent(home: Path) -> None:
    done = ask(home, "search", "whole-output-needle")
    assert "\x1b" not in done.out
    assert "\\x1b[2J«whole-output-needle»" in done.out
    (hit,) = hits(home, "whole-output-needle")
    assert hit["snippet"] == "\x1b[2Jwhole-output-needle \ufffd"


def test_sessions_and_filters_narrow_a_search(home: Path) -> None:
    assert addresses(home, "culprit", OLD) == ["00aaaaaa@2"]
    assert addresses(home, "culprit", "00aaaaaa", NEW) == ["00bbbbbb@14", "00bbbbbb@3", "00aaaaaa@2"]
    assert addresses(home, "culprit", "00bbbbbb@5") == ["00bbbbbb@3"]
    assert addresses(home, "culprit", "00bbbbbb:main.1") == ["00bbbbbb@14"]
    assert addresses(home, "culprit", "--agent", "main") == ["00bbbbbb@3", "00aaaaaa@2"]
    assert addresses(home, "x", "--tool", "write") == ["00bbbbbb@9", "00bbbbbb@7"]
    assert addresses(home, "o", "--failed") == ["00bbbbbb@11", "00bbbbbb@6"]
    assert ask(home, "search", "culprit", "--whole-calls").code == 2
    assert ask(home, "search", "culprit", "nobody").code == 2


def test_a_hit_opens_in_replay(home: Path) -> None:
    done = ask(home, "search", "culprit", "-o", "2")
    assert done.code == 0
    assert "Please find" in done.out
    assert "other lane" not in done.out, "replay was not asked for this event"
    assert ask(home, "search", "culprit", "--open", "9").code == 1


def test_a_file_elsewhere_is_searched_without_an_index(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.muse"
    shutil.copy(tell(tmp_path), copy)
    found = hits(home, "culprit", str(copy))
    assert [hit["address"] for hit in found] == [f"{copy}@14", f"{copy}@3"]
    assert ask(home, "log", found[0]["address"]).code == 0


FOREIGN = (
    {"type": "user", "uuid": "1", "parentUuid": None, "message": {"role": "user", "content": "a foreign culprit"}},
    {"type": "assistant", "uuid": "2", "parentUuid": "1", "message": {"role": "assistant", "id": "m", "model": "x-1",
     "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "hunt it"}}],
     "usage": {"input_tokens": 5, "output_tokens": 7}}},
    {"type": "user", "uuid": "3", "parentUuid": "2", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": "the culprit ran"}]}},
)  # fmt: skip


def foreign(folder: Path) -> Path:
    """A session file of another agent's."""
    path = folder / "0b7f8a52-1c7d-4b5e-9c3a-2f6d1e8a9b10.jsonl"
    more = {"sessionId": path.stem, "timestamp": "2026-04-11T18:53:10.492Z", "version": "2.1.101", "cwd": "/x"}
    path.write_text("".join(json.dumps(line | more) + "\n" for line in FOREIGN))
    return path


def test_a_session_file_of_another_agent_is_searched(home: Path, tmp_path: Path) -> None:
    path = foreign(tmp_path)
    found = hits(home, "culprit", str(path))
    assert [(hit["kind"], hit["type"]) for hit in found] == [("output", "tool.finished"), ("prompt", "user.prompted")]
    assert {hit["kind"] for hit in hits(home, "hunt it", str(path))} == {"command"}
    assert ask(home, "show", found[0]["address"]).code == 0
    assert addresses(home, "culprit", str(path), OLD, "-n", "1") == ["00aaaaaa@2"], "the newest of all comes first"


def test_sessions_are_offered_once_there_is_a_text(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSE_HOME", str(home))
    shell = ShellComplete(cli, {}, "muse", "_MUSE_COMPLETE")
    assert shell.get_completions(["search"], "") == []
    for given in (["search", "text"], ["search", "-E", "x"], ["search", "text", "last"]):
        assert "00bbbbbb" in [offer.value for offer in shell.get_completions(given, "")]


def test_the_page_names_every_kind_of_text() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "search.md").read_text()
    table = page.partition("## What is searched")[2].partition("\n\nOf one text")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(get_args(TextKind))


# -- the index ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A home with one session of its own."""
    tell(tmp_path)
    os.umask(before := os.umask(0))
    yield tmp_path
    os.umask(before)


def indexes(home: Path) -> list[Path]:
    return sorted(path for path in (home / "cache" / "search").rglob("*") if path.is_file())


def test_the_index_is_private_and_comes_back(own: Path) -> None:
    os.umask(0)
    assert addresses(own, "culprit please") == ["00bbbbbb@3"]
    (index,) = indexes(own)
    assert index == own / "cache" / "search" / "2026" / "11" / "30" / f"{NEW}.index"
    assert index.stat().st_mode & 0o777 == 0o600
    assert index.parent.stat().st_mode & 0o777 == 0o700
    index.unlink()
    assert addresses(own, "culprit please") == ["00bbbbbb@3"]
    assert indexes(own) == [index]


def test_a_home_of_any_name_has_an_index(tmp_path: Path) -> None:
    home = tmp_path / os.fsdecode(b"100%\xff ?#")
    told(home, NoteAdded(text="needle"))
    for _ in range(2):
        done = ask(home, "search", "needle")
        assert (done.code, done.err) == (0, "")
    assert [path.name for path in indexes(home)] == [f"{OLD.replace('1129', '1130')}.index"]


def test_a_damaged_index_is_made_anew_and_that_is_said(own: Path) -> None:
    assert addresses(own, "culprit please")
    (index,) = indexes(own)
    whole = index.read_bytes()
    for damaged in (b"nonsense" * 1000, whole[: len(whole) // 2], whole[:4096] + b"\xff" * (len(whole) - 4096),
                    whole[:-4096] + b"\xff" * 4096):  # fmt: skip
        index.write_bytes(damaged)
        done = ask(own, "search", "culprit")
        assert "the «culprit»" in done.out
        assert "made anew" in done.err
        assert addresses(own, "upstream") == ["00bbbbbb@11"]
    index.write_bytes(b"")
    assert addresses(own, "upstream") == ["00bbbbbb@11"]


def test_no_flipped_bit_of_an_index_hides_a_hit(own: Path) -> None:
    assert addresses(own, "culprit please") == ["00bbbbbb@3"]
    (index,) = indexes(own)
    whole, said = index.read_bytes(), 0
    for place in random.Random(4).sample([at for at, byte in enumerate(whole) if byte], 120):
        index.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        done = ask(own, "search", "--json", "culprit please")
        said += "made anew" in done.err
        assert [json.loads(line)["address"] for line in done.out.splitlines()] == ["00bbbbbb@3"], place
    assert said > 90


KILLED = """
import os, sys, apsw
db = apsw.Connection(sys.argv[1])
db.pragma("cache_size", 1)
db.execute("BEGIN IMMEDIATE; DELETE FROM state; INSERT INTO texts (texts) VALUES ('delete-all')")
db.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", ((n, os.urandom(5000).hex()) for n in range(200)))
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_search_left_half_done_is_taken_back(own: Path) -> None:
    assert addresses(own, "culprit please")
    (index,) = indexes(own)
    assert subprocess.run([sys.executable, "-c", KILLED, str(index)], check=False).returncode == -9
    assert index.with_name(f"{index.name}-journal").stat().st_size > 0, "it was killed too early"
    done = ask(own, "search", "upstream")
    assert (done.code, done.err) == (0, "")
    assert indexes(own) == [index]


def test_without_a_place_for_an_index_the_log_is_searched(own: Path) -> None:
    (own / "cache").write_text("in the way")
    for text, (seq, kind) in KINDS.items():
        found = hits(own, text)
        assert (found[0]["seq"], found[0]["kind"]) == (seq, kind), text
    assert addresses(own, "-E", "^the culprit$") == ["00bbbbbb@3"]
    done = ask(own, "search", "culprit")
    assert "searched without an index" in done.err


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB where indexes are kept."""
    place = tmp_path / "cache" / "search"
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root and the right to mount, for a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_on_a_full_or_read_only_disk_a_search_answers(tmp_path: Path, small: Path) -> None:
    lines = (NoteAdded(text=f"needle {number} {os.urandom(400).hex()}") for number in range(100))
    told(tmp_path, *lines)
    for how in ("full", "read-only"):
        done = ask(tmp_path, "search", "-F", "needle 9", "-n", "0")
        assert (done.code, done.out.count("«needle 9»")) == (0, 11), how
        assert "1 session searched without an index" in done.err, how
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)


def test_an_index_is_read_where_it_cannot_be_written(tmp_path: Path, small: Path) -> None:
    told(tmp_path, NoteAdded(text="needle"))
    subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
    assert addresses(tmp_path, "needle") == ["00aaaaaa@2"]
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    done = ask(tmp_path, "search", "needle")
    assert (done.code, done.err) == (0, "")


def test_an_index_grows_with_a_session_that_is_being_written(tmp_path: Path) -> None:
    with Telling(tmp_path) as log:
        log.say(UserPrompted(text="the first"))
        assert addresses(tmp_path, "first") == ["00aaaaaa@2"]
        for number in range(3):
            log.say(NoteAdded(text=f"later {number}"))
            assert addresses(tmp_path, "later") == [f"00aaaaaa@{seq}" for seq in range(3 + number, 2, -1)]
        assert log.path.exists()
    assert len(addresses(tmp_path, "first")) == 1


def test_a_log_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    path = told(tmp_path, UserPrompted(text="the original"))
    assert addresses(tmp_path, "original")
    other = told(tmp_path / "other", UserPrompted(text="the changeling"))
    shutil.copy(other, path)
    assert addresses(tmp_path, "original") == []
    assert addresses(tmp_path, "changeling") == ["00aaaaaa@2"]


def test_a_session_that_is_removed_while_it_is_opened_is_left_out(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going, connect = told(own, NoteAdded(text="culprit please")), schema.connect

    def connected(path: Path, **more: Any) -> apsw.Connection:
        db = connect(path, **more)
        if path == going:
            path.unlink(missing_ok=True)
        return db

    monkeypatch.setattr(schema, "connect", connected)
    assert addresses(own, "culprit please") == ["00bbbbbb@3"]


def test_that_nothing_was_found_is_not_said_of_what_cannot_be_read(own: Path) -> None:
    told(own).write_bytes(b"no log any more" * 500)
    for _ in range(2):
        done = ask(own, "search", "nobody-said-this")
        assert (done.code, done.out) == (6, "")
        assert "is not a muse log" in done.err
    assert ask(own, "search", "culprit please").code == 0


def test_two_searches_that_index_at_once_agree(tmp_path: Path) -> None:
    for number in range(12):
        told(tmp_path, *(NoteAdded(text=f"needle {number} {one}") for one in range(20)),
             session=f"20261130-0900{number:02}-00aaaa{number:02}")  # fmt: skip
    env = os.environ | {"MUSE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    line = [MUSE, "search", "needle", "--json", "-n", "0"]
    running = [subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate() for process in running]
    assert {err for _, err in said} == {b""}
    assert {len(out.splitlines()) for out, _ in said} == {240}
    assert len({out for out, _ in said}) == 1


def test_of_a_text_without_end_the_beginning_is_searched_and_that_is_said(tmp_path: Path) -> None:
    with Telling(tmp_path) as log:
        size = 16 * 1024 * 1024 // len(ENDLESS)
        whole = b"early-needle\n" + ENDLESS.encode() * size + b"late-needle\n"
        log.say(ToolFinished(call="main/1", attempt=1, status="ok", output=log.blob(whole), output_bytes=len(whole)))
    done = ask(tmp_path, "search", "early-needle")
    assert done.out.endswith("output: «early-needle»\n")
    assert "over 16 MiB only the beginning was searched" in done.err
    assert ask(tmp_path, "search", "late-needle").code == 1


def test_what_is_before_damage_is_found(tmp_path: Path) -> None:
    with Telling(tmp_path) as log:
        log.say(NoteAdded(text="sound-needle"))
        bad = seal(NoteAdded(text="broken-needle"), "main", 0)
        log.say_drafts([bad])
        log.log._db.execute("UPDATE events SET body = ? WHERE seq = 3", (b"{}",))
    done = ask(tmp_path, "search", "needle")
    assert done.out.endswith("note: sound-«needle»\n")
    assert "event 3 cannot be read" in done.err


# -- what is taken out of a session leaves the index, too --------------------------------------------------------------

SECRET = "ЖЩЪЫЭЮ-hunter2"
PIECE = "жщъ".encode()
"""Three characters of it as the index keeps them, and nothing else has."""


def with_secret(home: Path) -> Path:
    path = told(home, UserPrompted(text=f"use {SECRET} please"), NoteAdded(text="fine remark"))
    assert addresses(home, SECRET) == ["00aaaaaa@2"]
    index = index_in(home)
    assert PIECE in index.read_bytes(), "the check below would prove nothing"
    return path


def index_in(home: Path) -> Path:
    (index,) = indexes(home)
    return index


def grep(home: Path, piece: bytes) -> list[Path]:
    return [path for path in indexes(home) if piece in path.read_bytes()]


def test_redaction_takes_it_out_of_the_index(tmp_path: Path) -> None:
    with_secret(tmp_path)
    done = ask(tmp_path, "redact", "00aaaaaa@2", "--yes")
    assert done.code == 0, done
    assert indexes(tmp_path) == []
    assert addresses(tmp_path, SECRET) == []
    assert addresses(tmp_path, "fine remark") == ["00aaaaaa@3"]
    assert index_in(tmp_path).exists()
    assert grep(tmp_path, PIECE) == []


def test_an_index_that_knows_more_than_its_log_says_is_emptied(tmp_path: Path) -> None:
    """As when whoever made it was killed before it could look at the log once more."""
    with_secret(tmp_path)
    kept = index_in(tmp_path).read_bytes()
    assert ask(tmp_path, "redact", "00aaaaaa@2", "--yes").code == 0
    index = tmp_path / "cache" / "search" / "2026" / "11" / "30" / "20261130-090000-00aaaaaa.index"
    index.write_bytes(kept)
    assert addresses(tmp_path, "fine remark") == ["00aaaaaa@3"]
    assert grep(tmp_path, PIECE) == []


def test_an_index_that_is_made_during_a_redaction_does_not_stay(tmp_path: Path) -> None:
    class Meanwhile(searching.Listener):
        def progress(self, session: str, done: int, whole: int) -> None:
            if done == whole and not said:
                said.append(log.say(LogRedacted(seqs=(2,))))

    said: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUSE_HOME", str(tmp_path))
        with Telling(tmp_path) as log:
            log.say(UserPrompted(text="needle"))
            scope = searching.Scope(log.path)
            query = searching.asked("needle")
            found = [hit.seq for hit in searching.search([scope], query, searching.Filter(), Meanwhile())]
            assert (found, said) == ([2], [3])
            index = index_of(log.path)
            assert index is not None
            assert not index.exists()
    assert addresses(tmp_path, "needle") == ["00aaaaaa@2"]


def test_an_index_of_another_log_does_not_hide_a_redaction(tmp_path: Path) -> None:
    """The log before had more events, and a later redaction, than the one that stands in its place."""
    with Telling(tmp_path) as log:
        log.say(*(NoteAdded(text=f"note {number}") for number in range(20)), LogRedacted(seqs=(3,)))
    assert len(addresses(tmp_path, "note")) == 20
    log.path.unlink()
    with_secret(tmp_path)
    kept = index_in(tmp_path).read_bytes()
    assert ask(tmp_path, "redact", "00aaaaaa@2", "--yes").code == 0
    index = tmp_path / "cache" / "search" / "2026" / "11" / "30" / "20261130-090000-00aaaaaa.index"
    index.write_bytes(kept)
    assert addresses(tmp_path, "fine remark") == ["00aaaaaa@3"]
    assert grep(tmp_path, PIECE) == []


def test_removed_and_archived_sessions_leave_no_index(tmp_path: Path) -> None:
    for command in ("rm", "archive"):
        home = tmp_path / command
        with_secret(home)
        with Telling(home, NEW) as log:
            log.say(NoteAdded(text="stays"))
        assert addresses(home, "stays")
        done = ask(home, command, "00aaaaaa", "--yes")
        assert done.code == 0, done
        assert [path.name for path in indexes(home)] == [f"{NEW}.index"]
        assert addresses(home, SECRET) == []


def test_gc_takes_the_index_of_a_session_that_has_gone(tmp_path: Path) -> None:
    path = with_secret(tmp_path)
    index = index_in(tmp_path)
    path.unlink()
    done = ask(tmp_path, "gc")
    assert done.code == 0, done
    assert not index.exists()


def test_a_search_takes_stray_indexes_away(tmp_path: Path) -> None:
    path = with_secret(tmp_path)
    path.unlink()
    told(tmp_path, NoteAdded(text="stays"), session=NEW)
    assert addresses(tmp_path, "stays") == ["00bbbbbb@2"]
    assert [one.name for one in indexes(tmp_path)] == [f"{NEW}.index"]


def test_listings_make_and_read_no_index(own: Path) -> None:
    for command in (["ls", "--all"], ["log", NEW], ["show", NEW]):
        done: Answer = ask(own, *command)
        assert done.code == 0
    assert not (own / "cache" / "search").exists()
