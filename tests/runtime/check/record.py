"""Makes the sessions that `test_mutations.py` changes: `python -m tests.runtime.check.record`.

Real sessions of the installed command, played once and kept in `recorded/` as exports: all event types that exist in
practice, both wire dialects, approvals by a rule, a person and a time-out, a doubt of each kind, processes that outlive
their host, limits, refused commands. They are data: they need not be made again when muse changes, and must verify for
ever.
"""

import json
import os
import shutil
import signal
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

from muse import app
from muse.effect.model.scripted import Step
from muse.event.content import Origin
from muse.event.kinds import (
    AgentContinued,
    AgentPaused,
    AgentSteered,
    AgentWanted,
    BudgetRaised,
    CancelRequested,
    ModelChanged,
    NoteAdded,
    PolicyChanged,
    QuestionAnswered,
    UserPrompted,
)  # fmt: skip
from muse.log.export import write_export
from muse.runtime.seal import seal
from muse.testing.wire import AnthropicServer, OpenAIServer, Trouble
from tests.e2e.rig import Rig
from tests.runtime.rig import Rig as InProcess
from tests.runtime.rig import steps

RULES = ("--allow", "shell(echo *)", "--allow", "shell(mkdir *)", "--deny", "shell(ln *)")
KEPT = Path(__file__).with_name("recorded")
DONE = {"text": "Done."}
GATE = "echo x >> ~/starts; until test -e gate; do sleep 0.02; done; "
WIRE = [
    Step(
        text="I look around.",
        reasoning="two files and a check",
        uses=(
            ("glob", {"pattern": "**/*.py"}),
            ("read", {"path": "src/shop.py"}),
            ("shell", {"command": "echo hello"}),
        ),
    ),
    Step(
        text="One line is wrong.",
        uses=(
            ("edit", {"path": "src/shop.py", "edits": [{"old": "sum(prices) - 1", "new": "sum(prices)"}]}),
            ("write", {"path": "docs/notes.md", "content": "Zażółć 🦊\n"}),
            ("shell", {"command": "rm README.md"}),
        ),
    ),
    Step(
        text="A long one.",
        uses=(("shell", {"command": "seq 9000; echo; echo end"}), ("nothing", {}), ("shell", "{")),
    ),
    Step(text="The sum is right now."),
    Step(text="And once more."),
]  # fmt: skip


def shell(command: str, **more: Any) -> dict[str, Any]:
    return {"uses": [["shell", {"command": command, **more}]]}


def keep(rig: Rig, name: str) -> None:
    """The only session of a rig, as an export."""
    done = rig.muse("verify", "last")
    assert done.returncode == 0, done.stdout
    target = KEPT / f"{name}.jsonl"
    done = rig.muse("export", "last", "--format", "jsonl", "-o", str(target))
    assert done.returncode == 0, done.stderr


def say(rig: Rig, body: Any, agent: str = "main") -> None:
    with closing(app.open_log(rig.path(), read_only=False, check=False)) as log:
        log.submit(seal(body, agent, 0))


def asked(rig: Rig, count: int) -> int:
    found = rig.wait_for(lambda: rig.logs() and rig.of_type("approval.requested")[count - 1 :])
    return int(found[0]["seq"])


def wire(rig: Rig, dialect: str) -> None:
    """Approvals by people, failures of the provider that are told in its bytes, output of which a model gets a part."""
    servers = {"anthropic": AnthropicServer, "openai": OpenAIServer}
    faults = {
        1: [Trouble("status", status=529, error="overloaded_error", headers=(("retry-after-ms", "7"),))],
        2: [Trouble("error_event", error="overloaded_error"), Trouble("cut")],
    }
    with servers[dialect](WIRE, faults) as server:
        rig.provider(dialect, server.base_url)
        (rig.workspace / "AGENTS.md").write_text("Be brief.\n")
        host = rig.start("exec", "--allow", "shell(echo *)", "--allow", "shell(seq *)", "--deny", "shell(curl *)", "go")
        assert rig.muse("approve", f"last@{asked(rig, 1)}").returncode == 0
        assert rig.muse("approve", f"last@{asked(rig, 2)}", "--always").returncode == 0
        say(rig, ModelChanged(provider="shop", dialect=dialect, model="another-model"))
        assert rig.muse("deny", f"last@{asked(rig, 3)}", "--note", "keep it").returncode == 0
        assert host.wait(60) == 0, rig.said()
        again = rig.muse("resume", "last", "Once more.", "--allow", "shell(ls)")
        assert again.returncode == 0, again.stderr


def crashes(rig: Rig) -> None:
    """A host killed again and again: before and after effects of each class, while a model answers, while it looks."""

    def write(name: str) -> dict[str, Any]:
        return {"uses": [["write", {"path": name, "content": f"{name}\n"}]]}

    steps = [
        shell(f"{GATE}echo over"), write("a.txt"), write("b.txt"), write("c.txt"),
        {"uses": [["read", {"path": "src/tax.py"}], ["read", {"path": "a.txt"}]]},
        {"text": "A long answer, in pieces that come one by one.", "uses": [["shell", {"command": "exit 3"}]]},
        {"text": "All is there now."},
    ]  # fmt: skip
    host = rig.start("exec", "--yolo", "-m", rig.script(steps), "go on")
    rig.wait_for((rig.home / "starts").exists)
    host.kill()
    host.wait()
    (rig.workspace / "gate").touch()

    def killed(point: str) -> None:
        done = rig.muse("resume", "last", extra={"MUSE_FAILPOINT": point})
        assert done.returncode == -signal.SIGKILL, (point, done.returncode, done.stderr)

    killed("file_synced:1")
    killed("file_renamed:2")
    killed("before_recovery:1")
    killed("file_synced:1")
    (rig.workspace / "c.txt").write_text("by somebody else\n")
    killed("before_recovery:1")
    killed("before_effect:2")
    killed("in_stream:1")
    killed("after_effect:2")
    done = rig.muse("resume", "last")
    assert done.returncode == 0, done.stderr


def processes(rig: Rig) -> None:
    """Processes that outlive their command and their host, a session that is taken over, a command that is lost."""
    steps = [shell("sleep 1000 & sleep 1001 & echo left"), shell(f"{GATE}echo over"), shell("sleep 60"), DONE]
    model = rig.script(steps)
    first = rig.start("exec", "--yolo", "--name", "left", "-m", model, "go on")
    rig.wait_for((rig.home / "starts").exists)
    second = rig.start("resume", "last", "--take-over", out="second")
    rig.wait_for(lambda: len(rig.of_type("session.opened")) == 2)
    first.wait(60)
    rig.wait_for(lambda: rig.of_type("process.adopted"))
    pid = int(rig.of_type("process.started")[0]["body"]["pid"])
    os.kill(pid, signal.SIGKILL)
    rig.wait_for(lambda: rig.of_type("process.reaped"))
    (rig.workspace / "gate").touch()
    rig.wait_for(lambda: len(rig.of_type("tool.started")) == 3)
    for pid, line in rig.command_lines().items():
        if b"supervisor" in line or b"keeper" in line or line.startswith(b"sleep\x0060"):
            os.kill(pid, signal.SIGKILL)
    second.wait(60)
    rig.kill_all()
    rig.muse("resume", "last")


def limits(rig: Rig) -> None:
    """Words of people at all times, rules that change, limits, refused commands, an approval that nobody answers."""
    steps = [
        shell("echo one"), shell(f"{GATE}echo two"), shell("echo three"), shell("echo four"), {"text": "Enough."},
        shell("echo five"), {"text": "Steered.", "piece_delay_ms": 2}, shell("rm x"), DONE, DONE,
    ]  # fmt: skip
    model = rig.script(steps)
    host = rig.start(
        "exec", "-m", model, "--allow", "shell(echo *)", "-c", "max_model_calls=3", "--approval-timeout", "0", "first"
    )
    asked(rig, 1)
    say(rig, NoteAdded(text="a remark", origin=Origin(pid=os.getpid(), user="t")))
    say(rig, PolicyChanged(allow=("shell(rm *)",)))
    say(
        rig,
        PolicyChanged(
            allow=(f"shell({GATE}*)", "shell(until *)", "shell(sleep *)", "shell(test *)"),
            origin=Origin(pid=os.getpid()),
        ),
    )
    seq = asked(rig, 1)
    rig.muse("approve", f"last@{seq}")
    rig.wait_for((rig.home / "starts").exists)
    rig.muse("steer", "last", "mind the gap")
    say(rig, UserPrompted(text="second", origin=Origin(pid=os.getpid())))
    say(rig, UserPrompted(text="not heard", delivery="steer"))
    (rig.workspace / "gate").touch()
    host.wait(60)
    say(rig, BudgetRaised(limit="model_calls", value=50))
    say(rig, ModelChanged(provider="scripted", dialect="scripted", model=model.removeprefix("scripted/")))
    say(rig, AgentSteered(text="and now on", origin=Origin(pid=os.getpid())))
    rig.muse("resume", "last", "--approval-timeout", "1")
    say(rig, AgentPaused(why="a while"))
    say(rig, AgentContinued())
    rig.muse("resume", "last", "third", "--approval-timeout", "1", "--permission-mode", "accept-edits")


def stops(rig: Rig) -> None:
    """Turns that people cancel, prompts that wait, replace and join."""
    steps = [
        shell(f"{GATE}echo one"),
        {
            "text": "A long answer that is cut off by a word.", "piece_delay_ms": 300,
            "uses": [["shell", {"command": "sleep 60"}], ["shell", {"command": "sleep 61"}]],
        },
        {"text": "After that.", "piece_delay_ms": 400}, DONE, DONE, DONE, DONE,
    ]  # fmt: skip
    host = rig.start("exec", "--yolo", "-m", rig.script(steps), "-c", "max_parallel_tools=1", "first")
    rig.wait_for((rig.home / "starts").exists)
    rig.muse("steer", "last", "be quick")
    (rig.workspace / "gate").touch()
    rig.wait_for(lambda: len(rig.of_type("model.requested")) == 2)
    say(rig, UserPrompted(text="instead of that", delivery="replace", origin=Origin(pid=os.getpid())))
    rig.wait_for(lambda: len(rig.of_type("tool.started")) == 2)
    call = rig.of_type("tool.started")[-1]["body"]["call"]
    rig.muse("cancel", f"last@{rig.of_type('tool.started')[-1]['seq']}", "--why", f"no {call}")
    rig.wait_for(lambda: len(rig.of_type("tool.started")) == 3)
    say(rig, UserPrompted(text="and then", origin=Origin(pid=os.getpid())))
    rig.muse("cancel", "last", "--why", "too slow")
    host.wait(60)
    assert rig.events()[-1]["type"] == "session.closed"


def rules(rig: Rig) -> None:
    """Rules and modes that change while a request waits, and decide it and what comes after."""
    commands = ("mkdir k", "ln l m", "rm a", "rm b", "mv c d", "echo x", "mv e f", "touch g")
    steps = [*map(shell, commands), {"uses": [["write", {"path": "h.txt", "content": "h"}]]}, DONE]
    here = Origin(pid=os.getpid(), user="t")
    host = rig.start("exec", "-m", rig.script(steps), *RULES, "--approval-timeout", "0", "go on")
    asked(rig, 1)
    say(rig, PolicyChanged(allow=("shell(rm *)",), origin=here))
    seq = asked(rig, 2)
    say(rig, PolicyChanged(ask=("shell(echo *)",), deny=("shell(mv *)",), origin=here))
    assert rig.muse("deny", f"last@{seq}").returncode == 0
    assert rig.muse("approve", f"last@{asked(rig, 3)}").returncode == 0
    asked(rig, 4)
    say(rig, PolicyChanged(mode="yolo", origin=here))
    assert host.wait(60) == 0, rig.said()


def opaque(folder: Path) -> None:
    """A call of class opaque whose host goes in the middle: the one doubt that stays. In this process, for no tool that
    muse brings is of that class."""
    rig = InProcess(folder, steps(2))
    rig.submit(UserPrompted(text="go there", origin=Origin(pid=1)))

    async def left_alone() -> None:
        running = rig.open()
        rig.tally.hold = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.run)
            await rig.tally.started.wait()
            running.stop()
        running.release()

    anyio.run(left_alone)
    rig.tally.hold = None
    rig.run()
    with closing(rig.handle()) as log, (KEPT / "opaque.jsonl").open("wb") as file:
        write_export(log, file.write)


def unknown(rig: Rig) -> None:
    """Without snapshots it is not known what a command changed."""
    steps = [shell("echo x > x.txt"), {"uses": [["write", {"path": "y.txt", "content": "y"}]]}, DONE]
    done = rig.muse("exec", "--yolo", "-m", rig.script(steps), "-c", "snapshots=false", "go on")
    assert done.returncode == 0, done.stderr
    assert rig.of_type("files.unknown")


def use(name: str, **arguments: Any) -> list[Any]:
    return [name, arguments]


AGENTS = {
    "steps": [
        {"text": "Two of you, side by side.", "uses": [use("spawn", agents=[
            {"task": "mend the shop", "name": "Ann", "role": "smith"},
            {"task": "read the tax", "tools": ["read"]}])]},
        {"uses": [use("spawn", task="count slowly", background=True, isolation="shared"),
                  use("spawn", task="dig deep", background=True, isolation="shared", mode="plan")]},
        {"uses": [use("message", to="main.3", text="count faster"), use("message", to="main.9", text="lost"),
                  use("wait", agents=["main.3"], until="any", seconds=1)]},
        {"uses": [use("ask", question="Which colour?", options=["red", "blue"]), use("result", agent="main.3"),
                  use("ask", question="And which size?")]},
        {"uses": [use("cancel", agent="main.4", why="dug deep enough"), use("cancel", agent="main.1")]},
        {"uses": [use("wait"), use("spawn", task="nothing", role="nobody"), use("diff", agent="main.1")]},
        {"uses": [use("apply", agent="main.1"), use("read", path="src/shop.py")]},
        {"text": "All is done."}, {"text": "So it is."},
    ],
    "lanes": [
        {"when": "mend the shop", "steps": [
            {"uses": [use("write", path="src/shop.py", content="TOTAL = 1\n"), use("message", to="parent", text="half"),
                      use("shell", command="echo x > made.txt")]},
            {"uses": [use("edit", path="src/shop.py", edits=[{"old": "1", "new": "2"}])]}, {"text": "Mended."}]},
        {"when": "read the tax", "steps": [{"uses": [use("read", path="src/tax.py")]}, {"text": "It is 19."}]},
        {"when": "count slowly", "steps": [
            shell(f"{GATE}echo counted"), shell("echo and counted"), {"text": "Three."}, {"text": "Three again."}]},
        {"when": "dig deeper", "steps": [{"text": "Deep.", "piece_delay_ms": 20_000}]},
        {"when": "dig deep", "steps": [
            {"uses": [use("spawn", task="dig deeper", tools=["read"])]}, {"text": "Found nothing."}]},
    ],
}  # fmt: skip


def agents(rig: Rig) -> None:
    """A fan-out in the foreground, with a working tree and a role; two in the background, one of which has a child;
    messages, questions, waits and a cancelling by agents; people who steer, pause, continue and cancel them."""
    here = Origin(pid=os.getpid(), user="t")
    role = rig.workspace / ".muse" / "agents" / "smith.md"
    role.parent.mkdir(parents=True)
    role.write_text("---\nname: smith\ndescription: mends\nisolation: worktree\n---\nYou mend things.\n")
    path = rig.folder / "agents.json"
    path.write_text(json.dumps(AGENTS))
    host = rig.start("exec", "--yolo", "-m", f"scripted/{path}", "go on")
    rig.wait_for((rig.home / "starts").exists)
    questions = rig.wait_for(lambda: rig.of_type("question.asked")[1:] and rig.of_type("question.asked"))
    say(rig, AgentSteered(text="mind your head", origin=here), "main.4")
    say(rig, UserPrompted(text="and then that", origin=here), "main.3")
    queued = rig.of_type("user.prompted")[-1]["seq"]
    say(rig, AgentPaused(target="tree", why="a while", origin=here))
    say(rig, CancelRequested(target="prompt", prompt=queued, origin=here), "main.3")
    for question, text in zip(questions, ("blue", "large"), strict=True):
        say(rig, QuestionAnswered(question=question["seq"], text=text, origin=here))
    say(rig, QuestionAnswered(question=questions[0]["seq"], text="red", origin=here))
    (rig.workspace / "gate").touch()
    rig.wait_for(lambda: [one for one in rig.of_type("tool.finished") if one["agent"] == "main.3"])
    say(rig, AgentContinued(target="tree", origin=here))
    assert host.wait(60) == 0, rig.said()
    say(rig, AgentSteered(text="once more", origin=here), "main.3")
    say(rig, CancelRequested(target="tree", why="and no further", origin=here), "main.2")
    assert rig.muse("resume", "last").returncode == 0, rig.said()


def shorter(rig: Rig) -> None:
    """A conversation near its model's window: results leave it, older turns are summed up, twice, once in vain; what
    left is read again."""
    (rig.workspace / "long.txt").write_text("".join(f"{number}: {'x' * 50}\n" for number in range(1, 200)))
    read = {"text": "I read it. " + "Hm. " * 300, "uses": [use("read", path="long.txt")]}
    path = rig.folder / "long.json"
    steps = [*([read] * 5), {"uses": [use("recall", call="main/2")]}, *([read] * 2), {"text": "Read."}]
    failing = {"failure": "too_large", "times": 9}
    path.write_text(json.dumps({"steps": steps, "summary": {"text": "All is x.", "failure": failing}}))
    rig.settings(f'retry_base_ms = 1\nmax_model_attempts = 2\n[models."scripted/{path}"]\ncontext = 9000\n')
    done = rig.muse("exec", "--yolo", "-m", f"scripted/{path}", "-c", "max_output_tokens=500", "go on")
    assert done.returncode == 0, done.stderr
    path.write_text(json.dumps({"steps": [*steps, *([read] * 4), {"text": "Again."}], "summary": {"text": "All x."}}))
    done = rig.muse("resume", "last", "once more")
    assert done.returncode == 0, done.stderr


def halts(rig: Rig) -> None:
    """Budgets of a session, of agents and of a tree that are reached and raised; a provider that wants a long wait."""
    path, second = rig.folder / "first.json", rig.folder / "second.json"
    wait = {"failure": "rate_limited", "retry_after_ms": 1_500}
    steps = [
        {"text": "One.", "failure": wait},
        {"uses": [use("spawn", agents=[{"task": "help", "isolation": "shared"}], background=True)]},
        {"uses": [use("read", path="src/tax.py")]}, {"uses": [use("wait")]}, {"text": "Enough."}, {"text": "More."},
    ]  # fmt: skip
    steps[0]["uses"] = [use("read", path="src/shop.py")]
    lane = [{"uses": [use("read", path="src/tax.py")]}] * 3 + [{"text": "Helped."}]
    path.write_text(json.dumps({"steps": steps, "lanes": [{"when": "help", "steps": lane}]}))
    shutil.copy(path, second)
    rig.settings("retry_base_ms = 1\npark_after = 1\n")
    budgets = ("--budget", "calls=4,agent.calls=3,tree.tokens=9k,time=1h")
    done = rig.muse("exec", "--yolo", "-m", f"scripted/{path}", *budgets, "go on")
    assert done.returncode == 5, (done.returncode, done.stderr)
    done = rig.muse("resume", "last", "--budget", "calls=30,agent.calls=20", "and on")
    assert done.returncode == 0, (done.returncode, done.stderr)


def fallen(rig: Rig) -> None:
    """Models that cannot be had: an agent goes on with the next one of its fallbacks; another asks another provider."""
    first, second = (rig.folder / f"{name}.json" for name in ("first", "second"))
    steps = [{"uses": [use("spawn", task="help", model="shop/some-model", isolation="shared")]}, {"text": "Done."}]
    busy = {"failure": "overloaded", "times": 9}
    first.write_text(json.dumps({"steps": [{**steps[0], "failure": busy}, steps[1]]}))
    second.write_text(json.dumps({"steps": steps}))
    with OpenAIServer([Step(text="Helped.")]) as server:
        rig.provider("openai", server.base_url, "max_model_attempts = 2")
        more = ("--fallback-model", f"scripted/{second}")
        done = rig.muse("exec", "--yolo", "-m", f"scripted/{first}", *more, "go on")
        assert done.returncode == 0, (done.returncode, done.stderr)


def crowd(rig: Rig) -> None:
    """More children than may work at once, and one below the other as deep as it goes."""
    stand = [{"task": f"stand {number}", "tools": ["read"], "mode": "plan"} for number in range(9)]
    lanes = [
        {"when": "stand", "steps": [{"text": "Here.", "delay_ms": 200}]},
        *({"when": f"go down {at}", "steps": [{"uses": [use("spawn", task=f"go down {at + 1}", isolation="shared")]}]}
          for at in (1, 2)),
        {"when": "go down 3", "steps": [{"uses": [use("spawn", task="go down 4")]}, {"text": "Deep enough."}]},
    ]  # fmt: skip
    steps = [{"uses": [use("spawn", agents=stand), use("spawn", task="go down 1", isolation="shared")]}]
    path = rig.folder / "crowd.json"
    path.write_text(json.dumps({"steps": steps, "lanes": lanes}))
    done = rig.muse("exec", "--yolo", "-m", f"scripted/{path}", "go on")
    assert done.returncode == 0, (done.returncode, done.stderr)


def wanted(rig: Rig) -> None:
    """Agents that people want: beside what main does, below another one, where nobody runs the session; one that
    cannot be, one that is taken back."""
    here = Origin(pid=os.getpid(), user="t")
    role = rig.workspace / ".muse" / "agents" / "smith.md"
    role.parent.mkdir(parents=True)
    role.write_text("---\nname: smith\ndescription: mends\nmode: accept-edits\n---\nYou mend things.\n")
    lanes = [
        {"when": "look here", "steps": [
            {"uses": [use("read", path="src/tax.py"), use("message", to="parent", text="so far")]},
            shell("until test -e gate2; do sleep 0.02; done"), {"text": "Seen."}]},
        {"when": "look closer", "steps": [{"text": "Nothing there."}]},
        {"when": "mend the shop", "steps": [
            {"uses": [use("write", path="src/shop.py", content="TOTAL = 1\n")]}, {"text": "Mended."}]},
    ]  # fmt: skip
    path = rig.folder / "wanted.json"
    steps = [shell(f"{GATE}echo over"), {"uses": [use("wait"), use("result", agent="main.1")]}, *([DONE] * 4)]
    path.write_text(json.dumps({"steps": steps, "lanes": lanes}))
    host = rig.start("exec", "--yolo", "-m", f"scripted/{path}", "go on")
    rig.wait_for((rig.home / "starts").exists)
    asked = ("look here", "--name", "scout", "--tools", "read,shell,message", "--isolation", "shared")
    assert rig.muse("spawn", "last", *asked).returncode == 0
    say(rig, AgentWanted(task="build it", role="nobody", origin=here))
    rig.wait_for(lambda: [one for one in rig.of_type("tool.started") if one["agent"] == "main.1"][1:])
    say(rig, AgentPaused(origin=here))
    say(rig, AgentWanted(task="not after all", origin=here))
    back = rig.of_type("agent.wanted")[-1]["seq"]
    say(rig, CancelRequested(target="prompt", prompt=back, origin=here))
    say(rig, AgentContinued(origin=here))
    assert rig.muse("spawn", "last:main.1", "look closer", "--mode", "plan", "--isolation", "shared").returncode == 0
    (rig.workspace / "gate").touch()
    (rig.workspace / "gate2").touch()
    assert host.wait(60) == 0, rig.said()
    assert rig.muse("spawn", "last", "mend the shop", "--role", "smith").returncode == 0
    say(rig, AgentWanted(task="look here", model=f"scripted/{path}", isolation="worktree", origin=here))
    assert rig.muse("resume", "last").returncode == 0, rig.said()


SESSIONS = {
    "anthropic": lambda rig: wire(rig, "anthropic"), "openai": lambda rig: wire(rig, "openai"), "crashes": crashes,
    "processes": processes, "limits": limits, "stops": stops, "rules": rules, "unknown": unknown, "agents": agents,
    "shorter": shorter, "halts": halts, "fallen": fallen, "crowd": crowd, "wanted": wanted,
}  # fmt: skip


def main() -> None:
    KEPT.mkdir(exist_ok=True)
    if not (KEPT / "opaque.jsonl").exists():
        opaque(Path(tempfile.mkdtemp(prefix="recorded-")))
    for name, play in SESSIONS.items():
        if (KEPT / f"{name}.jsonl").exists():
            continue
        folder = Path(tempfile.mkdtemp(prefix="recorded-"))
        with Rig(folder / "x") as rig:
            play(rig)
            rig.kill_all()
            keep(rig, name)
            types = [event["type"] for event in rig.events()]
            print(name, len(types), {kind: types.count(kind) for kind in sorted(set(types))})
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
