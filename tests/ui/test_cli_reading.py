"""The commands that read sessions, as a user runs them, on a session that a real run made."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from muse.config import OWN_TOKENS
from tests.ui.conftest import FAILS
from tests.ui.driving import MUSE, WAITS, World, eventually, shell, stop


def name(world: World) -> str:
    return world.files()[0].stem


def head_of(world: World) -> str:
    """The head to keep, as `muse verify` prints it."""
    word, head = world.run("verify").out.splitlines()[-1].split()
    assert word == "head"
    return head


# -- log and replay in a pipe ------------------------------------------------------------------------------------------


def test_log_and_replay_print_what_exec_printed_while_it_ran(past: World) -> None:
    during = (past.root / "during.jsonl").read_text()
    for command in (("log", "--json"), ("replay", "--json"), ("replay", name(past), "--json")):
        assert past.run(*command).out == during


def test_log_prints_a_row_an_event(past: World) -> None:
    done = past.run("log", "--type", "tool.*", "--type", "user.prompted", "--type", "files.changed")
    assert [re.sub(r"[0-9.]+ (ms|s)\b", "TIME", line.split(None, 1)[1]) for line in done.out.splitlines()] == [
        "main   › prompt   Mend the failing test",
        "main   … write    a.py  (main/2)",
        "main   ± files    new a.py (12 B)  by main/2",
        "main   ✓ write    a.py  TIME  (main/2)",
        f"main   … shell    {FAILS}  (main/3)",
        f"main   ✗ shell    {FAILS}  exit 3  TIME  (main/3)",
        "main   … edit     a.py  (main/5)",
        "main   ± files    a.py (12 B → 12 B)  by main/5",
        "main   ✓ edit     a.py  TIME  (main/5)",
    ]


def test_log_up_to_an_event_and_the_last_of_it(past: World) -> None:
    seqs = [json.loads(line)["seq"] for line in past.run("log", "@5", "-n", "2", "--json").out.splitlines()]
    assert seqs == [4, 5]
    assert past.run("log", "-n", "0").out == ""


def test_log_of_an_agent_that_is_not_there_is_empty(past: World) -> None:
    assert past.run("log", ":main.7").out == ""


def test_log_of_one_agent_and_of_a_type_that_is_none(past: World) -> None:
    assert past.run("log", "--agent", "main", "--json").out == past.run("log", "--json").out
    done = past.run("log", "--type", "tool.stared")
    assert (done.code, done.out) == (0, "")
    assert "no type 'tool.stared' is known" in done.err


def test_an_event_beyond_the_head_is_a_usage_error(past: World) -> None:
    for command in ("log", "replay", "show", "export"):
        done = past.run(command, "@999")
        assert done.code == 2
        assert "there is no event 999" in done.err


def test_a_reader_that_leaves_is_no_error(past: World) -> None:
    asked = ("sql", "SELECT * FROM events")
    for command in (("log",), ("replay",), ("export",), ("show",), ("why",), ("verify",), asked, ("sql", "--schema")):
        done = without_a_reader(past, *command)
        assert (done.returncode, done.stderr) == (0, b""), command


def test_what_a_command_does_it_does_without_a_reader(world: World) -> None:
    for prompt in ("hunter2 to be taken out", "to be put away", "to be removed"):
        assert world.run("exec", "-q", "-m", world.script({"text": "ok"}), prompt).code == 0
    redacted, archived, removed = (path.stem for path in sorted(world.files()))
    for command, said in (
        (("redact", redacted, "--text", "-", "--yes"), b"hunter2"),
        (("archive", archived, "--yes"), b""),
        (("rm", removed, "--yes"), b""),
    ):
        done = without_a_reader(world, *command, said=said)
        assert done.returncode == 0, done.stderr
    assert [path.stem for path in world.files()] == [redacted]
    assert b"hunter2" not in world.files()[0].read_bytes()
    assert [json.loads(line)["session"] for line in world.run("ls", "--archived", "--json").out.splitlines()] == [
        archived
    ]
    assert [json.loads(line)["session"] for line in world.run("ls", "--removed", "--json").out.splitlines()] == [
        removed
    ]


def without_a_reader(world: World, *command: str, said: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """What a command does whose standard output nobody reads."""
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            [MUSE, *command], env=world.env, cwd=world.work, stdout=write, stderr=subprocess.PIPE, input=said,
            check=False, timeout=60,
        )  # fmt: skip
    finally:
        os.close(write)


def test_json_is_utf_8_in_every_locale(past: World) -> None:
    odd = {"PYTHONIOENCODING": "ascii"}
    assert past.run("ls", "--json", env=odd).out == past.run("ls", "--json").out
    assert past.run("log", "--json", env=odd).out == (past.root / "during.jsonl").read_text()


def test_a_terminal_of_another_character_set_gets_every_line(past: World) -> None:
    done = past.run("log", env={"LANG": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"})
    assert done.code == 0
    assert len(done.out.splitlines()) == len(past.events())
    assert "\\u2713" in done.out


# -- following ---------------------------------------------------------------------------------------------------------


def test_log_follows_a_running_session_and_ends_on_ctrl_c(world: World) -> None:
    running = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, {"text": "Done."}), "go")
    eventually((world.work / "begun").exists)
    follower = world.start("log", "-f", "--json")
    assert follower.stdout is not None
    types = []
    for line in follower.stdout:
        types.append(json.loads(line)["type"])
        if types[-1] == "tool.started":
            (world.work / "go").touch()
        if types[-1] == "session.closed":
            break
    assert types == world.types()
    assert stop(follower, signal.SIGINT) == 130
    running.communicate(timeout=60)
    assert running.returncode == 0


def test_a_follower_ends_with_the_session_when_told_to_and_says_what_it_waits_for_when_not(world: World) -> None:
    running = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, {"text": "Done."}), "go")
    eventually((world.work / "begun").exists)
    follower = world.start("log", "-f", "--until-closed", "--json")
    (world.work / "go").touch()
    out, _ = follower.communicate(timeout=60)
    running.communicate(timeout=60)
    assert follower.returncode == 0
    assert [json.loads(line)["type"] for line in out.splitlines()] == world.types()
    assert world.run("log", "-f", "--until-closed").code == 0
    waiting = world.start("log", "-f")
    assert waiting.stderr is not None
    assert "the session is closed; this waits" in waiting.stderr.readline()
    assert stop(waiting, signal.SIGINT) == 130


# -- show --------------------------------------------------------------------------------------------------------------


def seq_of(world: World, type_name: str, at: int = 0) -> int:
    return [event["seq"] for event in world.events() if event["type"] == type_name][at]


def test_show_gives_the_header_the_diff_the_body_and_the_call(past: World) -> None:
    seq = seq_of(past, "files.changed", 1)
    event = past.events()[seq - 1]
    done = past.run("show", f"@{seq}")
    lines = done.out.splitlines()
    assert lines[0] == f"#{seq:<5}main   ± files    a.py (12 B → 12 B)  by main/5"
    for line in (f"  time    {event['time']}", f"  id      {event['id']}", f"  cause   #{event['cause']}"):
        assert line in lines
    at = lines.index("  -x = 1")
    assert lines[at - 1 : at + 3] == ["  @@ -1,2 +1,2 @@", "  -x = 1", "  +x = 3", "   y = 2"]


def test_show_puts_intent_and_result_of_a_call_together(past: World) -> None:
    out = past.run("show", f"@{seq_of(past, 'tool.finished', 1)}").out
    assert "… shell" in out
    assert "    $ printf 'one" in out
    assert "allowed by mode yolo" in out


def test_show_json_is_the_line_of_the_log_with_its_hash(past: World) -> None:
    shown = json.loads(past.run("show", "@4", "--json").out)
    hash_ = shown.pop("hash")
    assert shown == past.events()[3]
    exported = [json.loads(line) for line in past.run("export").out.splitlines()]
    assert hash_ == next(line["hash"] for line in exported if '"seq":4,' in line.get("header", ""))


def test_show_gives_a_blob_out_byte_for_byte(past: World, tmp_path: Path) -> None:
    seq = seq_of(past, "files.changed", 1)
    assert past.run("show", f"@{seq}", "--blob", "before").out == "x = 1\ny = 2\n"
    file = tmp_path / "after"
    assert past.run("show", f"@{seq}", "--blob", "changes.0.after", "-o", str(file)).code == 0
    assert file.read_bytes() == b"x = 3\ny = 2\n"
    again = past.run("show", f"@{seq}", "--blob", "changes.0.after", "-o", str(file))
    assert again.code == 2
    assert "--force" in again.err


def test_show_of_a_blob_that_is_not_there_names_those_that_are(past: World) -> None:
    done = past.run("show", f"@{seq_of(past, 'files.changed', 1)}", "--blob", "nothing")
    assert done.code == 2
    assert "changes.0.before, changes.0.after" in done.err


# -- replay ------------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """What was shown, each line that was overwritten on a line of its own."""
    return re.sub(r"\x1b\[[0-9;]*[mK]", "", text.replace("\r\x1b[K", "\n")).replace("\r", "")


def test_plain_prints_all_at_once_on_a_terminal_too(past: World) -> None:
    on = past.terminal("replay", "--plain")
    code, shown = on.end()
    assert code == 0
    assert len(plain(shown).splitlines()) == len(past.events())


def test_colour_is_left_out_where_it_is_not_wanted(past: World) -> None:
    assert "\x1b[" in past.terminal("log").end()[1]
    assert "\x1b[" not in past.terminal("log", "--no-color").end()[1]
    past.env["NO_COLOR"] = "1"
    try:
        assert "\x1b[" not in past.terminal("log").end()[1]
    finally:
        del past.env["NO_COLOR"]


# -- ls ----------------------------------------------------------------------------------------------------------------


def test_an_export_verifies_with_us_and_with_the_independent_verifier(past: World, tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    done = past.run("export", "-o", str(file))
    assert done.code == 0
    head = head_of(past)
    assert head in done.err
    ours = past.run("verify", str(file), "--head", head, "--json")
    assert ours.code == 0
    verdict = json.loads(ours.out)
    assert verdict["head"] == {"seq": len(past.events()), "hash": head.partition(":")[2]}
    assert {row["state"] for row in verdict["rows"] if row["what"] != "sandbox"} == {"proven"}
    tool = Path(__file__).parents[2] / "tools" / "verify_export.py"
    theirs = subprocess.run([sys.executable, str(tool), str(file)], capture_output=True, text=True, check=False)
    assert theirs.returncode == 0, theirs.stderr
    assert head in theirs.stdout


def test_every_event_and_blob_is_in_the_export(past: World) -> None:
    lines = [json.loads(line) for line in past.run("export").out.splitlines()]
    events = [line for line in lines if "header" in line]
    assert [json.loads(line["header"])["type"] for line in events] == past.types()
    for line, event in zip(events, past.events(), strict=True):
        assert json.loads(line["body"]) == event["body"]
    contents = {base64.b64decode(line["data"]) for line in lines if "data" in line}
    assert {b"x = 1\ny = 2\n", b"x = 3\ny = 2\n"} <= contents


def test_an_export_up_to_an_event_verifies_too(past: World, tmp_path: Path) -> None:
    file = tmp_path / "part.jsonl"
    assert past.run("export", "@6", "-o", str(file)).code == 0
    assert past.run("verify", str(file)).code == 0
    head = head_of(past)
    cut = past.run("verify", str(file), "--head", head)
    assert cut.code == 8
    assert "incomplete" in cut.out


def test_a_changed_export_is_found_at_its_event(past: World, tmp_path: Path) -> None:
    file = tmp_path / "changed.jsonl"
    text = past.run("export").out
    assert text.count("failing test") == 1
    file.write_text(text.replace("failing test", "passing test"))
    done = past.run("verify", str(file), "--json")
    assert (done.code, json.loads(done.out)["first_bad"]) == (6, 2)
    assert "the first bad event is #2" in past.run("verify", str(file)).out


def test_verify_says_what_is_not_proven(past: World) -> None:
    done = past.run("verify")
    assert done.code == 0
    assert [line for line in done.out.splitlines() if "not proven" in line and "no head from elsewhere" in line]
    kept = head_of(past)
    held = past.run("verify", "--head", kept).out.splitlines()
    assert [line for line in held if "not proven" in line and " sandbox " not in line] == []


def test_verify_names_the_first_bad_event_of_a_damaged_log(past: World, tmp_path: Path) -> None:
    copy = tmp_path / "copy.muse"
    data = past.files()[0].read_bytes()
    assert data.count(b'"text":"Mend the\\nfailing test"') == 1
    copy.write_bytes(data.replace(b'"text":"Mend the\\nfailing test"', b'"text":"Mend the\\npassing test"'))
    done = past.run("verify", str(copy))
    assert done.code == 6
    assert "the first bad event is #2" in done.out
    assert past.run("verify").code == 0


@pytest.mark.parametrize("head", ["", "5:xyz", "5:" + "A" * 64, "05:" + "a" * 64, "5:" + "a" * 63, "5"])
def test_verify_refuses_a_head_that_is_none(past: World, head: str) -> None:
    done = past.run("verify", name(past), "--head", head)
    assert done.code == 2
    assert "muse verify SESSION --head SEQ:HASH" in done.err


def test_verify_takes_no_session_for_a_head(past: World) -> None:
    done = past.run("verify", "--head", name(past))
    assert (done.code, done.out) == (2, "")
    assert "muse verify SESSION --head SEQ:HASH" in done.err
    bare = past.run("verify", "--head")
    assert (bare.code, bare.out) == (2, "")


def test_the_document_for_a_reader_tells_the_session(past: World, tmp_path: Path) -> None:
    file = tmp_path / "session.md"
    assert past.run("export", "-o", str(file)).code == 0
    text = file.read_text()
    parts = ["Mend the\nfailing test", "I write.", "+x = 1", FAILS, "exit code 3", "one\ntwo\n\\x1b[2J",
             "-x = 1\n+x = 3", "All is well.", "## How it ended", "- done",
             head_of(past)]  # fmt: skip
    at = -1
    for part in parts:
        assert text.find(part, at + 1) > at, part
        at = text.find(part, at + 1)
    assert past.run("export", "--format", "md").out == text


def test_an_export_never_overwrites_by_accident(past: World, tmp_path: Path) -> None:
    file = tmp_path / "there.jsonl"
    file.write_text("mine")
    done = past.run("export", "-o", str(file))
    assert done.code == 2
    assert file.read_text() == "mine"
    assert past.run("export", "-o", str(file), "--force").code == 0
    assert file.read_text().startswith('{"muse_export"')
    assert [path.name for path in tmp_path.iterdir()] == ["there.jsonl"]
    assert past.run("export", "-o", str(tmp_path / "no" / "x.jsonl")).code == 2


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["log", "replay", "show", "export", "verify"])
def test_an_unknown_session_is_a_usage_error_with_a_hint(past: World, command: str) -> None:
    done = past.run(command, "nosuchsession")
    assert (done.code, done.out) == (2, "")
    assert "muse ls" in done.err


@pytest.mark.parametrize("command", ["log", "replay", "show", "export", "verify"])
def test_a_file_that_is_no_log_is_said_to_be_none(past: World, command: str, tmp_path: Path) -> None:
    file = tmp_path / "x.muse"
    file.write_bytes(b"hello, I am no log\n" * 300)
    done = past.run(command, str(file))
    assert (done.code, done.out) == (6, "")
    assert "not a muse log" in done.err


@pytest.mark.parametrize("command", ["log", "replay", "show", "export", "verify"])
def test_a_file_of_another_kind_is_a_usage_error(past: World, command: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"hello, I am no log\n" * 300)
    done = past.run(command, str(file))
    assert (done.code, done.out) == (2, "")
    assert "not a muse log" in done.err


def test_a_folder_and_a_file_that_is_not_there_are_named_as_such(past: World) -> None:
    for command in ("log", "replay", "show", "export", "search"):
        words = ["x"] if command == "search" else []
        done = past.run(command, *words, str(past.work))
        assert (done.code, done.out) == (2, "")
        assert f"{past.work} is a folder\n      give a session's file; muse import" in done.err
        done = past.run(command, *words, "rollout.jsonl")
        assert (done.code, done.out) == (2, "")
        assert "there is no file rollout.jsonl" in done.err


@pytest.fixture
def broken(past: World, tmp_path: Path) -> Path:
    """A copy whose chain breaks at event 5."""
    file = tmp_path / "broken.muse"
    file.write_bytes(past.files()[0].read_bytes())
    with closing(apsw.Connection(str(file))) as db:
        db.execute("UPDATE events SET hash = zeroblob(32) WHERE seq = 5")
    return file


def test_a_cut_export_is_incomplete_and_nothing_about_it_failed(past: World, tmp_path: Path) -> None:
    file = tmp_path / "cut.jsonl"
    file.write_text("".join(past.run("export").out.splitlines(keepends=True)[:4]))
    done = past.run("verify", str(file))
    assert done.code == 8
    assert f"incomplete after event {len(re.findall('header', file.read_text()))}" in done.out
    assert "failed" not in done.out
    assert "first bad" not in done.out


def test_of_a_chain_that_is_broken_the_tail_is_not_said_to_be_proven(past: World, broken: Path) -> None:
    rows = {row["what"]: row for row in json.loads(past.run("verify", str(broken), "--json").out)["rows"]}
    assert rows["tail"]["state"] == "not checkable"
    assert "event 5" in rows["tail"]["detail"]
    head = head_of(past)
    rows = {r["what"]: r for r in json.loads(past.run("verify", str(broken), "--head", head, "--json").out)["rows"]}
    assert rows["rebuilt chain, cut tail"]["state"] == "not checkable"


@pytest.mark.parametrize("command", ["log", "replay"])
def test_what_is_before_damage_is_shown_and_then_the_damage(past: World, broken: Path, command: str) -> None:
    done = past.run(command, str(broken), "--json")
    assert (done.code, done.out.splitlines()) == (6, past.run(command, "--json").out.splitlines()[:4])
    assert "event 5" in done.err
    assert "muse verify" in done.err


def test_an_event_before_damage_can_be_shown_and_one_behind_it_cannot(past: World, broken: Path) -> None:
    assert past.run("show", f"{broken}@3").out == past.run("show", "@3").out
    assert past.run("show", f"{broken}@6").code == 6
    assert past.run("export", str(broken), "-o", str(broken.parent / "x.jsonl")).code == 6
    assert not (broken.parent / "x.jsonl").exists()


def test_an_event_whose_words_were_changed_is_not_shown_as_what_happened(past: World, tmp_path: Path) -> None:
    file = tmp_path / "altered.muse"
    file.write_bytes(past.files()[0].read_bytes())
    with closing(apsw.Connection(str(file))) as db:
        db.execute("UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'Mend', 'Bend') AS BLOB) WHERE seq = 2")
    for form in ((), ("--json",)):
        done = past.run("show", f"{file}@2", *form)
        assert ("Bend the" in done.out, done.code) == (True, 6)
        assert "event 2 was altered: the body is not what the chain commits to" in done.err
        assert past.run("show", f"{file}@3", *form).code == 0
    shown = past.terminal("replay", f"{file}@2")
    shown.expect("altered: the body is not what the chain commits to")
    shown.send("q")
    assert shown.end()[0] == 0


def test_no_head_to_keep_is_given_of_a_damaged_log(past: World, broken: Path) -> None:
    done = past.run("verify", str(broken))
    assert done.code == 6
    assert "the first bad event is #5" in done.out


def test_a_log_of_a_newer_version_is_said_to_be_one(past: World, tmp_path: Path) -> None:
    file = tmp_path / "newer.muse"
    data = bytearray(past.files()[0].read_bytes())
    data[60:64] = (9).to_bytes(4, "big")  # the user_version of SQLite's file header
    file.write_bytes(data)
    done = past.run("log", str(file))
    assert done.code == 6
    assert "newer muse" in done.err


def test_reading_changes_nothing_in_a_folder_that_cannot_be_written(past: World, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    file = folder / "old.muse"
    file.write_bytes(past.files()[0].read_bytes())
    file.chmod(0o400)
    folder.chmod(0o500)
    try:
        done = past.run("log", str(file), "--json")
    finally:
        folder.chmod(0o700)
    assert done.out == (past.root / "during.jsonl").read_text()


def test_help_texts_name_the_address(past: World) -> None:
    for command in ("log", "replay", "show", "export", "verify"):
        done = past.run(command, "--help")
        assert done.code == 0
        assert "ADDRESS" in done.out


def test_muse_itself_takes_about_as_much_of_each_request_as_settings_say(past: World) -> None:
    """What a model is sent before anybody has said a word: tools and system prompt, four bytes a token."""
    opened, spawned = (next(one["body"] for one in past.events() if one["type"] == name) for name in (
        "session.opened", "agent.spawned",
    ))  # fmt: skip
    tools = sum(len(one["description"]) + len(one["schema"]) for one in opened["tools"])
    assert OWN_TOKENS * 3 // 4 < (tools + len(spawned["system"])) // 4 <= OWN_TOKENS
