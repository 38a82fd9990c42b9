"""What models say, at its worst: lone surrogates, NULs and escapes in words, names and arguments.

Each call is answered once, each request is valid, and the log holds exactly what came (B26).
"""

import json

from muse.effect.model.scripted import Step
from tests.e2e.rig import Rig
from tests.e2e.test_wire import SERVERS

LONE = "\ud83d"
NASTY = "a\u0000b\u001b[2J\u009b\u202e\u2028\ufeff\uffff end"
SHELL = '{"command": "echo \\ud83d"}'
STEPS = [
    Step(text=f"half {LONE} a pair", uses=(("shell", {"command": "echo one"}),)),
    Step(text=NASTY, reasoning=f"{NASTY}{LONE}", uses=(("shell", {"command": "echo two"}),)),
    Step(text="names", uses=((f"sh{LONE}ell", {"command": "echo no"}), ("sh\u0000ell", {}), ("\u001b[31mshell", {}))),
    Step(text="arguments", uses=(("shell", SHELL), ("shell", {"command": "echo \u0000"}))),
    Step(text="paths", uses=(("read", '{"path": "\\ud83d"}'), ("write", '{"path": "\\udc00.txt", "content": "x"}'))),
    Step(
        text="content", uses=(("write", '{"path": "lone.txt", "content": "x\\ud83dy"}'), ("read", {"path": "a\u0000b"}))
    ),
    Step(text="raw", uses=(("shell", f'{{"command": "echo {LONE}"}}'), ("grep", '{"pattern": "\\udfff"}'))),
    Step(text="keys", uses=(("shell", '{"comm\\ud83dand": "x"}'), ("glob", {"pattern": "\u0000"}))),
    Step(text="Done."),
]


def test_b26_no_word_name_or_argument_of_a_model_poisons_its_conversation(rig: Rig, dialect: str) -> None:
    with SERVERS[dialect](STEPS) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--yolo", "go on")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("Done.\n")
        again = rig.muse("resume", "last", "and on")
        assert again.returncode == 0, again.stderr
    assert server.violations == []
    assert len(server.requests) == len(STEPS) + 1
    for request in server.requests:
        request.body.decode()
        json.loads(request.body)
    results = [event["body"]["call"] for event in rig.of_type("tool.finished", "approval.decided")]
    assert len(results) == len(set(results)) == sum(len(step.uses) for step in STEPS)
    rig.verify()
    for how in (["log", "last"], ["replay", "last"], ["show", "last@9"], ["export", "last", "--format", "md"]):
        shown = rig.muse(*how)
        assert shown.returncode == 0, shown.stderr
        assert not set(shown.stdout) & set("\x00\x1b\x9b\u2028\u202e"), how


def test_what_came_over_the_wire_is_kept_byte_for_byte(rig: Rig, dialect: str) -> None:
    """Whatever was made of it: the raw response is a blob of its event."""
    with SERVERS[dialect]([Step(text=f"half {LONE} a pair{NASTY}")]) as server:
        rig.provider(dialect, server.base_url)
        assert rig.muse("exec", "--yolo", "go on").returncode == 0
    (answered,) = rig.of_type("model.responded")
    raw = rig.folder / "raw"
    assert rig.muse("show", f"last@{answered['seq']}", "--blob", "raw", "-o", str(raw)).returncode == 0
    assert rb"\ud83d" in raw.read_bytes()
