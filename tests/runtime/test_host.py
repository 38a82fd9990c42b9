"""What is gathered when a session opens, in folders made to do harm."""

import os
import subprocess
from pathlib import Path

import pytest

from muse.effect.tool.masking import KnownSecrets
from muse.runtime.host import INSTRUCTION_BYTES_MAX, git_state, has_commit, instructions, this_origin


def git(folder: Path, *arguments: str) -> None:
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=quiet)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "file").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    return folder


@pytest.mark.parametrize("name", ["plain", "with.dot", "a=b", "\udcff", "Upper"])
@pytest.mark.parametrize("kind", ["clean", "process"])
def test_no_filter_of_the_repository_runs_when_a_session_opens(
    repository: Path, tmp_path: Path, name: str, kind: str
) -> None:
    (repository / ".git" / "info" / "attributes").write_bytes(os.fsencode(f"* filter={name}\n"))
    section = f'[filter "{name}"]\n\t{kind} = touch {tmp_path}/ran; cat\n\trequired = true\n'
    with (repository / ".git" / "config").open("ab") as config:
        config.write(os.fsencode(section))
    (repository / "file").write_text("two\n")  # as long as before, so that its contents have to be compared
    state = git_state(repository)
    assert state is not None
    assert state.changed == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("lost", ["HEAD^{tree}", "HEAD:file"])
def test_what_is_missing_is_not_fetched_by_a_program_of_the_repository(
    repository: Path, tmp_path: Path, lost: str
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    program.chmod(0o755)
    done = subprocess.run(["git", "rev-parse", lost], cwd=repository, capture_output=True, text=True, check=True)
    for key, value in {
        "core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
        "remote.origin.url": str(tmp_path), "remote.origin.uploadpack": str(program),
    }.items():  # fmt: skip
        git(repository, "config", key, value)
    (repository / ".git" / "objects" / done.stdout[:2] / done.stdout[2:].strip()).unlink()
    (repository / "file").write_text("two\n")
    assert git_state(repository) is not None
    assert not has_commit(repository, "1" * 40)
    assert not (tmp_path / "ran").exists()


def test_a_git_that_lies_where_commands_may_write_is_not_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{repository}/bin:{tmp_path}/cache/bin:{os.environ['PATH']}")
    for folder in (repository / "bin", tmp_path / "cache" / "bin"):
        folder.mkdir(parents=True)
        (folder / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (folder / "git").chmod(0o755)
    state = git_state(repository, [str(tmp_path / "cache")])
    assert state is not None
    assert state.root == str(repository)
    assert not (tmp_path / "ran").exists()


def test_nothing_else_that_the_repository_configures_runs_either(repository: Path, tmp_path: Path) -> None:
    mark = f"touch {tmp_path}/ran"
    for key in ("core.fsmonitor", "core.sshCommand", "diff.external", "diff.d.textconv", "core.pager", "alias.status"):
        git(repository, "config", key, f"!{mark}" if key.startswith("alias") else mark)
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{mark}\n")
    hook.chmod(0o755)
    (repository / ".gitattributes").write_text("* diff=d\n")
    (repository / "file").write_text("two\n")
    state = git_state(repository)
    assert state is not None
    assert state.changed == 2
    assert not (tmp_path / "ran").exists()


def test_a_link_out_of_the_repository_brings_no_file_to_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "elsewhere").write_text("do not show this")
    (folder / "AGENTS.md").symlink_to("../elsewhere")
    (found,) = instructions(folder, None)
    assert "do not show this" not in found.text
    assert "link" in found.text


def test_a_link_to_a_file_of_secrets_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=value")
    (tmp_path / "AGENTS.md").symlink_to(".env")
    (found,) = instructions(tmp_path, None)
    assert "KEY" not in found.text


def test_a_link_inside_the_repository_is_followed(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("use tabs")
    (tmp_path / "AGENTS.md").symlink_to("CLAUDE.md")
    (found,) = instructions(tmp_path, None)
    assert found.text == "use tabs"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every file")
def test_instructions_that_may_not_be_read_are_said_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("x")
    (tmp_path / "AGENTS.md").chmod(0)
    (found,) = instructions(tmp_path, None)
    assert "ermission" in found.text


def test_a_pipe_or_a_loop_of_links_holds_no_instructions(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "AGENTS.md")
    (tmp_path / "CLAUDE.md").symlink_to("CLAUDE.md")
    assert instructions(tmp_path, None) == ()


def test_a_user_is_known_by_the_account_where_the_environment_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    expected = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert this_origin("test").user == expected


def test_a_user_name_that_is_no_text_becomes_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "caf\udce9")
    assert this_origin("test").user == "caf\ufffd"


def test_changes_that_cannot_be_counted_are_not_called_none(repository: Path) -> None:
    (repository / ".git" / "index").write_bytes(b"no index")
    found = git_state(repository)
    assert found is not None
    assert found.changed == -1


SECRET = "sk-host-0123456789"
SECRETS = KnownSecrets({"K": SECRET})


def test_instructions_hold_placeholders_in_the_place_of_known_secrets(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text(f"use {SECRET} here\n")
    (found,) = instructions(tmp_path, None, SECRETS)
    assert (found.text, found.cut) == ("use [secret K] here\n", False)


@pytest.mark.parametrize("inside", [1, 2, 10, len(SECRET) - 1, len(SECRET)])
def test_where_instructions_are_cut_no_part_of_a_known_secret_is_left(tmp_path: Path, inside: int) -> None:
    (tmp_path / "AGENTS.md").write_text("-" * (INSTRUCTION_BYTES_MAX - inside) + SECRET + "-" * 100)
    (found,) = instructions(tmp_path, None, SECRETS)
    assert found.cut
    assert found.text.startswith("-" * 1000)
    assert SECRET[:2] not in found.text
