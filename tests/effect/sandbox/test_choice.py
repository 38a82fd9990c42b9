"""Which sandbox a session gets, on machines of all kinds."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from muse.effect.sandbox import Machine, Places, choose, parse_mode, strictness
from muse.errors import ConfigError, UsageError

FULL = Machine(landlock=7, mounts=True, network=True, bubblewrap="/usr/bin/bwrap", bubblewrap_works=True,
               bubblewrap_network=True, bubblewrap_says="bubblewrap 0.8.0")  # fmt: skip
NO_MOUNTS = replace(FULL, mounts=False, network=False, why="Operation not permitted")
ONLY_LANDLOCK = Machine(landlock=7, why="Operation not permitted")
OLD_LANDLOCK = Machine(landlock=3, why="Operation not permitted")
NOTHING = Machine(why="Function not implemented")
PLACES = Places(
    workspace="/home/ada/shop", writable=("/home/ada/shop", "/tmp"), temporary=("/tmp",),
    readonly=("/home/ada/shop/.muse",), hidden=("/home/ada/.muse",), record=("/home/ada/.muse",), personal=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "enforcer"),
    [
        (FULL, "landlock"),
        (NO_MOUNTS, "bubblewrap"),
        (replace(FULL, landlock=5), "bubblewrap"),
        (replace(FULL, landlock=0, mounts=False), "bubblewrap"),
        (ONLY_LANDLOCK, "landlock-alone"),
        (OLD_LANDLOCK, "landlock-alone"),
        (NOTHING, ""),
        (Machine(landlock=2), ""),
    ],
)
def test_the_strongest_that_works_is_taken(machine: Machine, enforcer: str) -> None:
    found = choose("", True, machine, PLACES, "s")
    assert (found.enforcer, found.mode) == (enforcer, "workspace-write" if enforcer else "off")


def test_without_any_the_default_gives_way_and_says_why() -> None:
    found = choose("", True, NOTHING, PLACES, "s")
    assert not found.is_on
    assert "without a sandbox" in found.notice
    assert "version 0" in found.says
    assert "bubblewrap: not installed" in found.says


@pytest.mark.parametrize(("mode", "network"), [("workspace-write", True), ("read-only", True), ("", False)])
def test_what_was_asked_for_does_not_give_way(mode: str, network: bool) -> None:
    with pytest.raises(UsageError) as raised:
        choose(mode, network, NOTHING, PLACES, "s")
    assert "cannot be had here" in str(raised.value)
    assert "--sandbox off" in raised.value.hint


def test_off_is_off_wherever_it_is() -> None:
    found = choose("off", True, FULL, PLACES, "s")
    assert (found.is_on, found.says, found.notice, found.hint) == (False, "off, as was asked", "", "")
    assert found.command(["a"], "/") == (["a"], {})


def test_the_record_names_the_folders_that_the_user_let_commands_write_to() -> None:
    more = replace(PLACES, more=("/home/ada/.npm",))
    assert choose("", True, FULL, more, "s").says == "workspace-write by landlock 7, writable too: /home/ada/.npm"
    assert ".npm" not in choose("read-only", True, FULL, more, "s").says
    assert ".npm" not in choose("off", True, FULL, more, "s").says


def test_a_failed_command_is_told_all_that_is_refused_and_how_to_get_more() -> None:
    assert ".git/config, .git/hooks and .muse" in choose("", True, FULL, PLACES, "s").hint
    assert "sandbox_writable" in choose("", True, FULL, PLACES, "s").hint
    assert ".git/config" not in choose("", True, ONLY_LANDLOCK, PLACES, "s").hint, "it does not keep that"
    assert "--sandbox workspace-write" in choose("read-only", True, FULL, PLACES, "s").hint
    assert "no network" in choose("", False, FULL, PLACES, "s").hint


def test_the_model_is_told_of_the_sandbox_before_a_command_fails() -> None:
    told = choose("", False, FULL, PLACES, "s").told
    for part in ("can write only in the workspace", ".git/config", "has no network"):
        assert part in told
    assert "only in the temporary folder" in choose("read-only", True, FULL, PLACES, "s").told
    assert choose("off", True, FULL, PLACES, "s").told == ""


def test_the_network_is_not_taken_away_by_half() -> None:
    with pytest.raises(UsageError):
        choose("off", False, FULL, PLACES, "s")
    with pytest.raises(UsageError):
        choose("", False, OLD_LANDLOCK, PLACES, "s")


def test_what_a_weaker_one_leaves_open_is_said_each_time() -> None:
    assert choose("", True, FULL, PLACES, "s").notice == ""
    assert ".git/hooks" in choose("", True, ONLY_LANDLOCK, PLACES, "s").notice
    assert "can signal" in choose("", True, OLD_LANDLOCK, PLACES, "s").notice
    assert "only TCP" in choose("", False, ONLY_LANDLOCK, PLACES, "s").says


def test_landlock_alone_does_not_open_a_folder_that_holds_the_record() -> None:
    inside = replace(PLACES, record=("/home/ada/shop/.local/muse",))
    assert choose("", True, ONLY_LANDLOCK, inside, "s").mode == "off"
    assert choose("", True, FULL, inside, "s").enforcer == "landlock"
    temporary = replace(PLACES, record=("/tmp/muse",))
    found = choose("", True, ONLY_LANDLOCK, temporary, "s")
    _, plan = found.command(["a"], "/")
    assert "/tmp" not in plan["writable"]
    assert found.scratch in plan["writable"]
    assert found.environment({"A": "b"}) == {"A": "b", "TMPDIR": found.scratch}


def test_one_enforcer_can_be_asked_for(tmp_path: Path) -> None:
    assert choose("", True, FULL, PLACES, "s", "bubblewrap").enforcer == "bubblewrap"
    assert choose("", True, ONLY_LANDLOCK, PLACES, "s", "bubblewrap").mode == "off"
    with pytest.raises(ConfigError, match="MUSE_SANDBOX_ENFORCER"):
        choose("", True, FULL, PLACES, "s", "seatbelt")


def test_modes_are_read_as_people_write_them() -> None:
    assert [parse_mode(text) for text in ("Read_Only", " off ", "", "workspace-write")] == [
        "read-only", "off", "", "workspace-write",
    ]  # fmt: skip
    with pytest.raises(ConfigError) as raised:
        parse_mode("on")
    assert "read-only, workspace-write, off" in raised.value.hint
    assert strictness("off") < strictness("") == strictness("workspace-write") < strictness("read-only")


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".git/hooks", ".muse/config.toml"])
def test_file_tools_are_refused_what_could_run_later(path: str) -> None:
    places = replace(PLACES, readonly=("/home/ada/shop/.muse", "/home/ada/shop/.git/hooks"))
    assert "kept as it is" in choose("", True, FULL, places, "s").refusal(path)
    assert choose("off", True, FULL, places, "s").refusal(path) == ""


def test_file_tools_write_elsewhere_and_nowhere_when_read_only() -> None:
    assert choose("", True, FULL, PLACES, "s").refusal("src/a.py") == ""
    assert "read-only" in choose("read-only", True, FULL, PLACES, "s").refusal("src/a.py")


def test_a_network_that_only_half_goes_is_the_last_choice() -> None:
    no_network = replace(FULL, network=False)
    assert choose("", False, no_network, PLACES, "s").enforcer == "bubblewrap"
    found = choose("", False, replace(no_network, bubblewrap_network=False), PLACES, "s")
    assert (found.enforcer, "only TCP" in found.notice) == ("landlock-alone", True)


def test_folders_that_were_there_stay(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".muse").mkdir()
    found = choose("", True, FULL, replace(PLACES, workspace=str(tmp_path)), "s")
    found.prepare()
    assert (tmp_path / ".git" / "hooks").is_dir()
    found.close()
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".git", ".muse"]
