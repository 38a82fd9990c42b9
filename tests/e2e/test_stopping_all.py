"""A person stops all agents at once: nothing is asked or started for it, and the log can be derived again."""

import json
from pathlib import Path

from tests.e2e.rig import Rig

SPAWN = ["spawn", {"background": True, "agents": [{"task": "dig here"}, {"task": "dig there"}]}]


def test_stopping_an_idle_main_and_all_below_it_ends_the_session_and_asks_no_model(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        path = rig.folder / "script.json"
        slow = [{"uses": [["shell", {"command": "sleep 60"}]]}, {"text": "Over."}, {"text": "Over."}]
        steps = [{"uses": [SPAWN]}, {"text": "They work."}, {"text": "Never said."}]
        path.write_text(json.dumps({"steps": steps, "lanes": [{"when": "dig", "steps": slow}]}))
        host = rig.start("exec", "--yolo", "-m", f"scripted/{path}", "go")
        rig.wait_for(rig.logs)
        rig.wait_for(lambda: len(rig.of_type("tool.started")) == 3 and len(rig.of_type("model.responded")) == 4)
        assert rig.muse("cancel", "--tree").returncode == 0
        assert host.wait(60) == 130, rig.said()
        assert len(rig.of_type("model.requested")) == 4
        assert len(rig.of_type("worktree.removed")) == 2
        rig.verify()
        for agent in (
            "main.1",
            "main.2",
        ):  # both wake when somebody goes on, in trees of their own, unless they must not
            assert rig.muse("steer", f"last:{agent}", "up").returncode == 2


def test_a_child_that_was_woken_and_cancelled_with_all_others_before_its_tree_was_made(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        path = rig.folder / "script.json"
        steps = [{"uses": [["spawn", {"agents": [{"task": "dig"}]}]]}, {"text": "Done."}, {"text": "Never said."}]
        path.write_text(json.dumps({"steps": steps, "lanes": [{"when": "dig", "steps": [{"text": "Dug."}]}]}))
        assert rig.muse("exec", "--yolo", "-m", f"scripted/{path}", "go").returncode == 0
        assert rig.muse("steer", "last:main.1", "deeper").returncode == 0
        assert rig.muse("cancel", "last", "--tree").returncode == 0
        assert rig.muse("resume", "last").returncode == 130
        assert len(rig.of_type("model.requested")) == 3
        rig.verify()
