"""The command itself: help, slips, faults, the chat through a pipe, doctor, completion."""

import inspect
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from muse.ui.cli import COMMANDS, cli
from muse.view.visible import columns
from tests.ui.driving import World

HELLO = {"text": "All is well."}

HEAVY = ("anyio", "apsw", "httpx2", "msgspec", "asyncio", "muse.app", "muse.log", "muse.runtime", "rich", "textual")


def test_help_imports_nothing_heavy() -> None:
    code = "import sys\nfrom muse.ui.cli import main\nsys.argv = ['muse', '--help']\ntry: main()\n"
    code += "except SystemExit: print('LOADED', *sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stderr.partition("LOADED")[2].split()
    assert "muse.ui.cli" in loaded
    assert [name for name in HEAVY if name in loaded] == []
    assert "Go on where a session stopped." in done.stdout


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("resum", "resume"),
        ("lgo", "log"),
        ("exce", "exec"),
        ("aprove", "approve"),
        ("grep", "search"),
        ("sessions", "ls"),
    ],
)
def test_a_slip_is_never_a_paid_prompt(world: World, word: str, meant: str) -> None:
    done = world.run(word, env={"MUSE_MODEL": world.script(HELLO)})
    assert (done.code, world.files()) == (2, [])
    assert f"did you mean {meant}?" in done.err


def test_a_slip_with_more_words_keeps_all_of_them(world: World) -> None:
    done = world.run("fix", "the", "tests", env={"MUSE_MODEL": world.script(HELLO)})
    assert (done.code, world.files()) == (2, [])
    assert '"fix the tests"' in done.err
    done = world.run("resum", "the", "work")
    assert 'muse exec "resum the work"' in done.err


def test_help_is_a_word_as_well(world: World) -> None:
    assert world.run("help").out == world.run("--help").out
    assert world.run("help", "import").out == world.run("import", "--help").out
    done = world.run("help", "me", env={"MUSE_MODEL": world.script(HELLO)})
    assert (done.code, world.files()) == (2, [])


def test_commands_of_later_versions_and_unquoted_prompts_are_no_prompts(world: World) -> None:
    env = {"MUSE_MODEL": world.script(HELLO)}
    for args in (["diff"], ["rewind"], ["write", "the", "tests"]):
        done = world.run(*args, env=env)
        assert (done.code, world.files()) == (2, [])


def test_a_fault_of_muse_is_a_line_and_a_traceback_only_when_asked_for(world: World) -> None:
    code = "import muse.ui.cli as c\ndef broken(**_): raise KeyError('x')\nc.cli.main = broken\nc.main()"
    for debug, traceback in (("", False), ("1", True)):
        env = {**world.env, "MUSE_DEBUG": debug}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert ("Traceback" in done.stderr) is traceback
        assert ("MUSE_DEBUG=1" in done.stderr) is not traceback


def test_prompts_through_a_pipe_are_turns_of_one_session(world: World) -> None:
    model = world.script(HELLO, {"text": "And again."})
    done = world.run("-m", model, "-q", stdin="do it\n\n/help\nonce more\n")
    assert (done.code, done.out) == (0, "All is well.\nAnd again.\n")
    assert len(world.files()) == 1
    assert world.types().count("session.opened") == 1
    assert world.run("-m", model, stdin="/quit\n").code == 0
    assert len(world.files()) == 1


def test_doctor_never_shows_a_key(world: World) -> None:
    done = world.run("doctor", "--json", env={"ANTHROPIC_API_KEY": "sk-very-secret"})
    assert "sk-very-secret" not in done.out + done.err
    found = {each["name"]: each for each in map(json.loads, done.out.splitlines())}
    assert "anthropic" in found["providers"]["says"]
    assert {each["status"] for each in found.values()} <= {"ok", "warn", "fail"}
    assert all(each["advice"] for each in found.values() if each["status"] != "ok")


def test_doctor_says_when_the_home_cannot_be_used(world: World) -> None:
    (world.root / "file").write_text("")
    done = world.run("doctor", env={"MUSE_HOME": str(world.root / "file" / "home")})
    assert done.code == 1
    assert "set MUSE_HOME" in done.out


def test_doctor_says_which_role_files_name_a_model_that_cannot_be_asked(world: World) -> None:
    for name, model in (("a", "sonnet"), ("b", "nobody/m"), ("c", "openai/gpt"), ("d", "ollama/m"), ("e", "own-name")):
        path = world.work / ".muse" / "agents" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nmodel: {model}\n---\nLook.\n")
    lines = [json.loads(line) for line in world.run("doctor", "--json").out.splitlines()]
    said = {Path(one["says"]).name: one["advice"] for one in lines if one["name"] == "role file"}
    assert sorted(said) == ["a.md", "b.md", "c.md"]
    assert "another program" in said["a.md"]
    assert "no such provider" in said["b.md"]
    assert "OPENAI_API_KEY is not set" in said["c.md"]


def found_by_doctor(world: World, *flags: str) -> dict[str, dict[str, str]]:
    done = world.run("doctor", "--json", *flags)
    return {each["name"]: each for each in map(json.loads, done.out.splitlines())}


def test_doctor_says_what_there_is_for_a_sandbox_and_which_one_commands_get(world: World) -> None:
    found = found_by_doctor(world)
    assert {"sandbox", "landlock", "namespaces", "bubblewrap"} <= set(found)
    confined = found["sandbox"]["says"].startswith("workspace-write by ")
    assert confined or "commands run with your own rights" in found["sandbox"]["says"]
    if shutil.which("bwrap") is None:
        assert found["bubblewrap"]["says"] == "not installed"


def test_a_sandbox_that_was_asked_for_and_cannot_be_had_begins_no_session(world: World) -> None:
    model = world.script(HELLO)
    nothing = {"MUSE_SANDBOX": "", "PATH": "/nowhere", "MUSE_SANDBOX_ENFORCER": "bubblewrap"}
    for flag in (["--sandbox", "read-only"], ["--sandbox", "workspace-write"], ["--no-network"]):
        done = world.run("exec", *flag, "-m", model, "do it", env=nothing)
        assert (done.code, "not installed" in done.err, "--sandbox off" in done.err) == (2, True, True)
        assert world.files() == []
    done = world.run("exec", "-m", model, "do it", env=nothing)
    assert (done.code, done.err.count("without a sandbox")) == (0, 1)
    assert "ran with all rights of their user" in world.run("verify").out.replace("\n", " ")
    done = world.run("exec", "--sandbox", "on", "-m", model, "do it")
    assert (done.code, "known modes: read-only, workspace-write, off" in done.err) == (2, True)


def test_doctor_looks_at_the_model_that_is_named_and_whether_its_server_listens(world: World) -> None:
    assert found_by_doctor(world)["model"]["says"] == "none is chosen"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        flags = ["-m", "ollama/some", "-c", f"providers.ollama.base_url=http://127.0.0.1:{port}/v1"]
        found = found_by_doctor(world, *flags)
        assert (found["server"]["status"], found["providers"]["status"]) == ("ok", "ok")
    found = found_by_doctor(world, *flags)
    assert found["server"]["says"] == f"nothing listens on 127.0.0.1:{port}"
    assert "ollama serve" in found["server"]["advice"]
    assert found_by_doctor(world, "-m", "openai/some")["model"]["status"] == "fail"
    assert "server" not in found_by_doctor(world, "-m", world.script(HELLO))
    assert found_by_doctor(world, "-c", "max_model_calls=x")["settings"]["status"] == "fail"


def test_completion_is_a_script_that_the_shell_takes(world: World) -> None:
    done = world.run("completion", "bash")
    assert done.code == 0
    subprocess.run(["bash", "-n"], input=done.out, text=True, check=True)
    env = {"_MUSE_COMPLETE": "bash_complete", "COMP_WORDS": "muse res", "COMP_CWORD": "1"}
    assert "resume" in world.run(env=env).out


def offered(world: World, *words: str) -> list[str]:
    """What bash is offered for the last of the words."""
    env = {
        "_MUSE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["muse", *words]), "COMP_CWORD": str(len(words)),
    }  # fmt: skip
    return [line.partition(",")[2] for line in world.run(env=env).out.splitlines()]


def test_sessions_and_the_values_of_options_are_completed(world: World) -> None:
    assert world.run("exec", "-m", world.script(HELLO), "do it").code == 0
    session = world.files()[0].stem[-8:]
    for command in ("resume", "replay", "log", "show", "export", "verify", "cancel", "steer"):
        assert offered(world, command, session[:3]) == [session]
    assert world.run("exec", "--name", "nightly", "-m", world.script(HELLO), "do it").code == 0
    assert offered(world, "replay", "night") == ["nightly"]
    assert offered(world, "replay", "./roll") == ["./roll"]
    assert offered(world, "exec", "--permission-mode", "a") == ["accept-edits"]
    assert offered(world, "exec", "-m", "oll") == ["ollama/"]
    assert offered(world, "log", "--type", "session.c") == ["session.closed"]
    assert offered(world, "exec", "-c", "max_par") == ["max_parallel_tools="]
    assert offered(world, "export", "--format", "m") == ["md"]


def test_who_has_no_model_is_told_that_the_projects_file_names_one_in_vain(world: World) -> None:
    (world.work / ".muse").mkdir()
    provider = '[providers.theirs]\ndialect = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n'
    (world.work / ".muse" / "config.toml").write_text(f'model = "theirs/x"\n{provider}')
    for args in (["exec", "go"], []):
        done = world.run(*args)
        assert done.code == 2
        assert "no model is chosen" in done.err
        assert "not trusted" in " ".join(done.err.split())
    assert world.files() == []


def examples(name: str) -> list[str]:
    """The command lines that the help of a command gives."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    told = inspect.cleandoc(command.help or "")
    meant = re.findall(r"(?:For\s+example|always)[^:]*:\s+(muse\s(?:[^;\n]|\n(?!\n))+)", told)
    inline = [" ".join(found.split()) for found in meant]
    return [*re.findall(r"^ *(muse [^\n]+)$", told, re.M), *inline]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_has_an_example_with_names_that_there_are(name: str) -> None:
    found = examples(name)
    assert any(line.split()[1] == name for line in found), found
    for line in found:
        for part in re.split(r" && | \| | > ", line):
            words = shlex.split(part)
            if words[0] != "muse":
                continue
            command = cli.get_command(click.Context(cli), words[1])
            assert command is not None, words[1]
            command.make_context(words[1], words[2:])  # an option that there is not, or one word too many, raises


def test_every_help_fits_into_80_columns() -> None:
    with click.Context(cli, info_name="muse") as top:
        for name in cli.list_commands(top):
            command = cli.get_command(top, name)
            assert command is not None
            with click.Context(command, parent=top, info_name=name, terminal_width=80) as inner:
                assert [line for line in command.get_help(inner).splitlines() if columns(line) > 80] == []


def test_a_choice_names_only_what_can_be_chosen(world: World) -> None:
    assert "'own' is not one of 'shared', 'worktree'" in world.run("spawn", "look", "--isolation", "own").err
