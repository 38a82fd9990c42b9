"""A child calls a tool that others have and it was not given, while its siblings work."""

import json
from pathlib import Path

from tests.e2e.rig import Rig


def test_a_tool_that_a_child_was_not_given_is_refused_without_a_look_at_files_and_the_session_verifies(
    tmp_path: Path,
) -> None:
    reads, edits = ("read", {"path": "README.md"}), ("write", {"path": "x.txt", "content": "x"})
    lanes = [
        {"when": "without", "steps": [{"uses": [edits]}, {"text": "I may not."}]},
        {"when": "beside", "steps": [{"uses": [reads]}, {"text": "Read."}]},
    ]
    agents = [
        {"task": "without", "tools": ["read"], "isolation": "shared"},
        {"task": "beside", "tools": ["read"], "isolation": "shared"},
    ]
    with Rig(tmp_path) as rig:
        script = tmp_path / "script.json"
        script.write_text(
            json.dumps({"steps": [{"uses": [("spawn", {"agents": agents})]}, {"text": "End."}], "lanes": lanes})
        )
        done = rig.muse("exec", "-m", f"scripted/{script}", "--permission-mode", "yolo", "go")
        assert done.returncode == 0, done.stderr
        (started,) = [e for e in rig.of_type("tool.started") if e["body"]["tool"] == "write"]
        assert not started["body"].get("observed")
        (finished,) = [e for e in rig.of_type("tool.finished") if e["body"]["call"] == started["body"]["call"]]
        assert finished["body"]["text"].startswith("There is no tool named 'write'")
        rig.verify()
        assert not (rig.workspace / "x.txt").exists()
