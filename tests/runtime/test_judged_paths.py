"""What the rules judged is what a file tool touches, whatever links stand in between."""

import os
from pathlib import Path

import anyio
import pytest

from muse.effect.model.scripted import Step
from muse.effect.runner import Runner
from muse.effect.tool import builtin_tools
from muse.event.kinds import UserPrompted
from tests.runtime.rig import Rig


@pytest.mark.parametrize("path", ["gitdir/hooks/pre-commit", "link/hooks/pre-commit", ".git/hooks/pre-commit"])
def test_a_write_that_reaches_gits_folder_by_another_name_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "gitdir" / "hooks").mkdir(parents=True)
    os.symlink("gitdir", tmp_path / ".git")
    os.symlink("gitdir", tmp_path / "link")
    rig = Rig(tmp_path, [Step(uses=(("write", {"path": path, "content": "#!/bin/sh\n"}),)), Step(text="done")])
    rig.submit(UserPrompted(text="go"))
    running = rig.open(tools=builtin_tools(Runner(tmp_path / "run", 1)))
    anyio.run(running.run)
    running.release()
    assert not (tmp_path / "gitdir" / "hooks" / "pre-commit").exists()
    result = running.state.agents["main"].items[2]
    assert "give " in result.text  # type: ignore[union-attr]


def test_a_write_by_its_own_name_is_done(tmp_path: Path) -> None:
    rig = Rig(tmp_path, [Step(uses=(("write", {"path": "./a/../b.txt", "content": "x"}),)), Step(text="done")])
    rig.submit(UserPrompted(text="go"))
    running = rig.open(tools=builtin_tools(Runner(tmp_path / "run", 1)))
    anyio.run(running.run)
    running.release()
    assert (tmp_path / "b.txt").read_text() == "x"
