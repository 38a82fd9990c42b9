"""What models get wrong, over the wire: the run goes on, each call is answered once, and every request is valid."""

import pytest

from muse.effect.model.scripted import Step
from tests.e2e.rig import Rig
from tests.e2e.test_wire import SERVERS

LONG = "x" * 30_000
MISTAKES = {
    "no such tool": Step(uses=(("frobnicate", {"a": 1}),)),
    "broken arguments": Step(uses=(("shell", '{"command": "echo hi'), ("read", "[1, 2]"), ("glob", "null"))),
    "wrong arguments": Step(uses=(("shell", {"cmdline": "x"}), ("edit", {"path": "README.md"}), ("read", {"path": 7}))),
    "the same id twice": Step(
        uses=(("shell", {"command": "echo a"}), ("shell", {"command": "echo b"})), ids=("i", "i")
    ),
    "an id from before": Step(uses=(("shell", {"command": "echo c"}),), ids=("i",)),
    "odd ids": Step(uses=(("shell", {"command": "echo d"}), ("shell", {"command": "echo e"})), ids=("", "a b/ü")),
    "outside": Step(uses=(("write", {"path": "../out.txt", "content": "x"}), ("read", {"path": "/etc/shadow"}))),
    "long": Step(text=LONG, uses=(("write", {"path": "long.txt", "content": LONG}),)),
    "a key twice": Step(uses=(("shell", '{"command": "echo f", "command": "echo g"}'),)),
    "deep": Step(uses=(("shell", '{"command": ' + "[" * 5000 + "]" * 5000 + "}"),)),
    "no such text": Step(uses=(("edit", {"path": "README.md", "edits": [{"old": "absent", "new": "x"}]}),)),
    "all at once": Step(text="Now:", uses=tuple(("shell", {"command": f"echo n{n}"}) for n in range(40))),
}


@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
def test_mistakes_of_a_model_are_told_to_it_and_the_run_goes_on(rig: Rig, dialect: str) -> None:
    steps = [*MISTAKES.values(), Step(text="Done.")]
    with SERVERS[dialect](steps) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--yolo", "go on")
        assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
        again = rig.muse("resume", "last", "and on")
        assert again.returncode == 0, again.stderr
    assert server.violations == []
    assert len(server.requests) == len(steps) + 1
    results = rig.of_type("tool.finished", "approval.decided")
    assert len(results) == sum(len(step.uses) for step in steps)
    assert len({event["body"]["call"] for event in results}) == len(results)
    texts = [event["body"].get("text", "") for event in results]
    for n in range(40):
        assert f"n{n}\nexit code 0" in texts
    assert not (rig.folder / "out.txt").exists()
    assert rig.read("long.txt") == LONG
    rig.verify()
