"""A damaged session on a user's machine: listed, refused with what to do, saved, read, and gone on with."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from tests.ui.driving import WAITS, World, shell

LOST = 9


def session(world: World) -> Path:
    """A finished session of three commands."""
    steps = [{"uses": [shell(f"echo {n} >> done.txt")]} for n in range(3)]
    done = world.run("exec", "--yolo", "-m", world.script(*steps, {"text": "all done"}, {"text": "more"}), "go")
    assert done.code == 0, done.err
    return world.files()[-1]


def damage(path: Path, seq: int = LOST) -> None:
    """Change the body of one event, as a bad disk would."""
    db = sqlite3.connect(path)
    with db:
        assert db.execute("UPDATE events SET body = CAST(body || ' ' AS BLOB) WHERE seq = ?", (seq,)).rowcount == 1
    db.close()


def break_chain(path: Path, seq: int = LOST) -> None:
    """Damage that shows in the chain of stored roots, and so at every opening."""
    db = sqlite3.connect(path)
    with db:
        assert db.execute("UPDATE events SET header = CAST(header || ' ' AS BLOB) WHERE seq = ?", (seq,)).rowcount == 1
    db.close()


def test_a_damaged_session_is_listed_refused_and_stops_no_other_b4_b11(world: World) -> None:
    bad = session(world)
    break_chain(bad)
    other = session(world)
    (entry,) = [one for one in map(json.loads, world.run("ls", "--json").out.splitlines()) if one["file"] == str(bad)]
    assert entry["state"] == "damaged"
    assert f"event {LOST}" in entry["problem"]
    assert "damaged" in world.run("ls").out
    findings = [json.loads(line) for line in world.run("doctor", "--json").out.splitlines()]
    (finding,) = [one for one in findings if one["name"] == "damaged"]
    assert (finding["status"], bad.stem[-8:] in finding["says"]) == ("warn", True)
    assert f"muse recover {bad.stem[-8:]}" in finding["advice"]
    refused = world.run("resume", bad.stem, "go on")
    assert refused.code == 6
    assert "muse recover" in refused.err
    verdict = world.run("verify", bad.stem)
    assert verdict.code == 6
    assert f"first bad event is #{LOST}" in verdict.out
    read = world.run("log", bad.stem, "--json")
    assert read.code == 6
    assert [json.loads(line)["seq"] for line in read.out.splitlines()] == list(range(1, LOST))
    assert "muse recover" in read.err
    assert world.run("verify", other.stem).code == 0
    assert world.run("resume", other.stem, "go on").code == 0


def test_recover_saves_both_sides_into_a_new_session_that_is_read_and_not_continued(world: World) -> None:
    bad = session(world)
    damage(bad)
    before = bad.read_bytes()
    done = world.run("recover", bad.stem, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["damaged"], told["lost"], told["source"]) == (True, [{"first": LOST, "last": LOST}], bad.stem)
    assert bad.read_bytes() == before
    new = Path(told["file"])
    assert new in world.files()
    seqs = [json.loads(line) for line in world.run("log", told["session"], "--json").out.splitlines()]
    assert [one["seq"] for one in seqs] == list(range(1, len(seqs) + 1))
    assert [one["seq"] for one in seqs if one["type"] == "log.recovered"] == [LOST, len(seqs)]
    verdict = world.run("verify", told["session"])
    assert verdict.code == 0
    assert f"(#{LOST})" in verdict.out
    assert f"#{LOST} of {bad.stem} is lost" in world.run("replay", told["session"]).out
    refused = world.run("resume", told["session"], "go on")
    assert refused.code == 6
    assert "--before-damage" in refused.err
    assert world.run("export", told["session"], "-o", str(world.root / "new.jsonl")).code == 0
    assert world.run("verify", str(world.root / "new.jsonl")).code == 0


def test_what_is_before_the_damage_goes_on_by_an_explicit_word_and_its_model_is_told(world: World) -> None:
    bad = session(world)
    damage(bad)
    done = world.run("recover", bad.stem, "--before-damage", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["saved"], told["is_cut"]) == (LOST - 1, True)
    refused = world.run("resume", told["session"])
    assert refused.code == 6
    assert "--recovered" in refused.err
    again = world.run("resume", told["session"], "--recovered")
    assert again.code == 0, again.err
    events = [json.loads(line) for line in world.run("log", told["session"], "--json").out.splitlines()]
    assert [one["type"] for one in events[LOST - 1 : LOST + 1]] == ["log.recovered", "session.opened"]
    assert events[-1]["type"] == "session.closed"
    assert world.run("verify", told["session"]).code == 0
    assert world.run("resume", told["session"], "once more").code == 0, "said once, the word holds"


def test_a_command_whose_result_is_lost_is_in_doubt_and_not_run_again(world: World) -> None:
    bad = session(world)
    types = world.types()
    damage(bad, types.index("tool.finished") + 1)
    told = json.loads(world.run("recover", bad.stem, "--before-damage", "--json").out)
    assert (world.work / "done.txt").read_text() == "0\n1\n2\n"
    again = world.run(
        "resume", told["session"], "--recovered", "--yolo", "-m", world.script({"text": "a"}, {"text": "b"})
    )
    assert again.code == 0, again.err
    assert (world.work / "done.txt").read_text() == "0\n1\n2\n"
    bodies = {event["type"]: event["body"] for event in world.events(told["session"])}
    assert bodies["effect.reconciled"]["verdict"] == "unknown"
    assert "may or may not have happened" in bodies["tool.finished"]["text"]


def test_recover_into_a_file_says_so_and_takes_no_name_that_is_there(world: World) -> None:
    bad = session(world)
    damage(bad)
    target = world.root / "saved.muse"
    done = world.run("recover", bad.stem, "-o", str(target))
    assert done.code == 0, done.err
    assert str(target) in done.out
    assert f"event {LOST} is lost" in done.out
    assert world.run("verify", str(target)).code == 0
    taken = world.run("recover", bad.stem, "-o", str(target))
    assert taken.code == 2
    assert "already" in taken.err
    assert not list(world.root.glob(".saved*"))


def test_a_whole_session_is_not_copied(world: World) -> None:
    path = session(world)
    done = world.run("recover", path.stem)
    assert (done.code, done.out) == (0, "")
    assert "not damaged" in done.err
    assert json.loads(world.run("recover", "--json").out)["damaged"] is False
    assert world.files() == [path]


@pytest.mark.parametrize("command", ["verify", "resume", "recover"])
def test_an_empty_file_a_picture_and_another_database_are_refused_with_what_to_do_b6(
    world: World, command: str
) -> None:
    folder = world.home / "sessions" / "2026" / "01" / "02"
    folder.mkdir(parents=True)
    for name, content in (("empty", b""), ("picture", b"\x89PNG\r\n\x1a\n" + bytes(9_000))):
        path = folder / f"{name}.muse"
        path.write_bytes(content)
        done = world.run(command, str(path))
        assert done.code == 6, (name, done)
        first, hint = done.err.splitlines()[:2]
        assert str(path) in first
        assert hint.startswith("      ")
        assert done.out == ""
    other = world.root / "bookmarks.sqlite"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.close()
    done = world.run(command, str(other))
    assert done.code in (2, 6), done
    assert done.err.splitlines()[1].strip()


def test_a_log_whose_header_is_destroyed_is_named_and_saved_whole(world: World) -> None:
    path = session(world)
    data = bytearray(path.read_bytes())
    data[:100] = bytes(100)
    path.write_bytes(data)
    refused = world.run("resume", path.stem)
    assert refused.code == 6
    assert "muse recover" in refused.err
    assert json.loads(world.run("ls", "--json").out)["state"] == "damaged"
    told = json.loads(world.run("recover", path.stem, "--json").out)
    assert (told["lost"], told["source"]) == ([], path.stem)
    assert world.run("verify", told["session"]).code == 0
    again = world.run("resume", told["session"], "go on")
    assert again.code == 0, "nothing is lost, so it goes on: " + again.err
    assert not list(folder_leftovers(path))


def test_an_append_that_was_cut_off_is_said_and_the_session_goes_on_after_the_last_whole_one_b1(world: World) -> None:
    process = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, {"text": "done"}), "go")
    world.begun()
    process.kill()
    process.wait()
    (world.work / "go").touch()
    path = world.files()[0]
    wal = Path(f"{path}-wal")
    assert wal.stat().st_size > 5_000
    os.truncate(wal, wal.stat().st_size - 1)
    verdict = world.run("verify")
    assert verdict.code == 0, verdict.out
    assert "not whole" in verdict.out
    first = world.run("resume")
    assert "not whole" in first.err
    assert first.code == 8, "the runner knows that the command had been started: " + first.err
    assert "not whole" not in world.run("verify").out
    again = world.run("resume", "--recovered")
    assert again.code == 0, again.err
    assert (world.work / "count").read_text().split()[:2] == ["start", "end"]


def folder_leftovers(path: Path) -> list[Path]:
    """Drafts that a recovery forgot."""
    return [one for one in path.parent.iterdir() if one.name.endswith(".new")]
