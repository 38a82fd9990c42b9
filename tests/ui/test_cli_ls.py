"""`muse ls`: how sessions stand, on a machine that has some."""

import json
import sqlite3

from tests.ui.driving import WAITS, World, eventually, shell


def test_ls_tells_how_sessions_stand(world: World) -> None:
    assert world.run("ls").out == ""
    assert world.run("exec", "-m", world.script({"text": "x"}), "first task").code == 0
    running = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, {"text": "Done."}), "second")
    eventually((world.work / "begun").exists)
    entries = [json.loads(line) for line in world.run("ls", "--json").out.splitlines()]
    assert [(one["state"], one["prompt"], one["pid"]) for one in entries] == [
        ("running", "second", running.pid),
        ("closed", "first task", 0),
    ]
    running.kill()
    running.communicate()
    lines = world.run("ls").out.splitlines()
    assert ["stopped (resume)" in line for line in lines] == [True, False]
    assert "done" in lines[1]
    assert world.run("ls", "-n", "1").err == "and 1 older session: muse ls -n 0\n"
    (world.work / "go").touch()
    assert world.run("resume").code == 0
    assert "done" in world.run("ls").out.splitlines()[0]


def test_ls_shows_what_waits_for_a_person(world: World) -> None:
    model = world.script({"uses": [shell("rm -r build")]}, {"text": "Done."})
    world.start("exec", "-m", model, "clean")
    entry = eventually(lambda: next((one for one in listed(world) if one["state"] == "waiting"), None))
    asked = next(event for event in world.events() if event["type"] == "approval.requested")
    assert entry["approvals"] == [asked["seq"]]
    assert f"waiting for approval @{asked['seq']}" in world.run("ls").out


def listed(world: World) -> list[dict[str, object]]:
    return [json.loads(line) for line in world.run("ls", "--json").out.splitlines()]


def test_ls_gives_the_same_without_its_cache(past: World) -> None:
    first = past.run("ls", "--json").out
    cache = past.home / "cache" / "catalog.json"
    assert "Mend" not in cache.read_text()
    cache.unlink()
    assert past.run("ls", "--json").out == first
    for junk in ("", "{}", '{"version":1,"totals":{"x":3}}', "\0"):
        cache.write_text(junk)
        assert past.run("ls", "--json").out == first


def test_a_cache_of_another_log_under_the_same_name_is_not_believed(world: World) -> None:
    assert world.run("exec", "-m", world.script({"text": "x"}), "one").code == 0
    assert world.run("exec", "-m", world.script({"uses": [["read", {"path": "no"}]]}, {"text": "y"}), "two").code == 0
    world.run("ls")
    older, newer = world.files()
    right = listed(world)[0]
    older.write_bytes(newer.read_bytes())
    found = listed(world)[1]
    assert {key: found[key] for key in ("events", "output", "prompt")} == {
        key: right[key] for key in ("events", "output", "prompt")
    }


def test_damaged_and_foreign_files_are_listed_and_break_nothing(world: World) -> None:
    assert world.run("exec", "-m", world.script({"text": "x"}), "good").code == 0
    folder = world.files()[0].parent
    (folder / "20990101-000000-aaaaaaaa.muse").write_bytes(b"no log at all, " * 100)
    (folder / "20990101-000000-bbbbbbbb.muse").write_bytes(b"")
    foreign = sqlite3.connect(folder / "20990101-000000-cccccccc.muse")
    foreign.execute("CREATE TABLE x (y)")
    foreign.commit()
    foreign.close()
    data = bytearray(world.files()[0].read_bytes())
    data[4096:8192] = b"\xff" * 4096
    (folder / "20990101-000000-dddddddd.muse").write_bytes(data)
    done = world.run("ls")
    assert done.code == 0
    lines = done.out.splitlines()
    assert ["damaged" in line for line in lines] == [True, True, True, True, False]
    assert "good" in lines[-1]


# -- export and verify -------------------------------------------------------------------------------------------------
