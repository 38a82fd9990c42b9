"""muse runs no program that a command could have put where PATH leads."""

from pathlib import Path

from muse.effect.programs import search_path


def test_a_folder_of_programs_that_commands_may_write_to_is_left_out(tmp_path: Path) -> None:
    work, linked = tmp_path / "work", tmp_path / "linked"
    (work / "bin").mkdir(parents=True)
    linked.symlink_to(work / "bin")
    path = f"{work}/bin:{linked}:/usr/bin:{tmp_path}/workshop/bin:bin::.:{work}"
    assert search_path([str(work)], {"PATH": path}) == f"/usr/bin:{tmp_path}/workshop/bin"


def test_without_such_folders_only_what_depends_on_the_current_one_is_left_out() -> None:
    assert search_path([], {"PATH": "/opt/x:x/bin::/usr/bin"}) == "/opt/x:/usr/bin"
