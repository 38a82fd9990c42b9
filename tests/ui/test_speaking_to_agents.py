"""Speaking to the agents of a session: steer, cancel, pause, continue, answer, and the one inbox.

The session is written event by event, and nobody acts on what is said: what counts is the command that stands in the
log, its acknowledgement, and what is refused before anything is submitted.
"""

import getpass
import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muse import app
from muse.errors import UsageError
from muse.event.content import Block, ToolSpec
from muse.event.kinds import (
    AgentFinished,
    AgentSpawned,
    ApprovalRequested,
    CancelRequested,
    CommandRefused,
    ModelRequested,
    ModelResponded,
    SessionOpened,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)
from muse.event.kinds import QuestionAnswered as Answered
from muse.event.kinds import QuestionAsked as Asked
from muse.ui.cli import completing
from muse.ui.cli.address import Address
from muse.ui.cli.answering import replied
from muse.ui.cli.chat import _so_far
from muse.ui.cli.inbox import waiting_in
from muse.ui.cli.speaking import listening
from muse.view.lines import json_line
from tests.ui.asking import Answer, ask
from tests.ui.told import SETTINGS, Telling

NAME = "00aaaaaa"
SPEC = ToolSpec(name="ask", description="", schema="{}", recovery="derived")
SHELL = ToolSpec(name="shell", description="", schema="{}", recovery="opaque")


def requested(call: str) -> ModelRequested:
    return ModelRequested(
        call=call, attempt=1, provider="p", model="m", builder="b/1", items=1, request_sha256="", request_bytes=1
    )


def uses(call: str, *names: str) -> ModelResponded:
    blocks = tuple(Block(kind="tool_use", id=f"u{n}", name=name, args="{}") for n, name in enumerate(names))
    return ModelResponded(call=call, attempt=1, blocks=blocks, stop="tool_use")


def started(call: str) -> ToolStarted:
    return ToolStarted(call=call, attempt=1, tool="ask", args="{}", recovery="derived")


class Fan:
    """A session of which `main` waits for main.1, which asks, main.2, which is busy, and the finished main.3."""

    def __init__(self, home: Path) -> None:
        self.home, self.telling = home, Telling(home)
        say = self.telling.say
        host = app.event_at(self.telling.log, 1).body.host  # type: ignore[union-attr]
        tools = ("ask", "shell")
        say(SessionOpened(format=1, rules=2, workspace="/", host=host, settings=SETTINGS, tools=(SPEC, SHELL)))
        say(AgentSpawned(tools=tools), UserPrompted(text="go"), requested("main/1"), uses("main/1", "ask"))
        say(started("main/2"))
        for index in range(4):
            background = index == 2
            child = AgentSpawned(
                task=f"task {index}", tools=tools, parent="main", call="main/2", index=index, background=background,
                name="docs" if index == 1 else "",
            )  # fmt: skip
            say(child, agent=f"main.{index + 1}")
        say(requested("main.1/1"), uses("main.1/1", "ask"), started("main.1/2"), agent="main.1")
        self.question = say(Asked(call="main.1/2", text="Which \x1b[2J?", options=("red", "blue")), agent="main.1")
        say(requested("main.2/1"), agent="main.2")
        say(AgentFinished(outcome="done", text="ok"), agent="main.3")

    def ask(self, *args: str) -> Answer:
        return ask(self.home, *args)

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        with closing(app.open_log(self.telling.path)) as log:
            return [json.loads(json_line(event)) for event in app.events(log, after)]

    @property
    def state(self) -> app.Session:
        with closing(app.open_log(self.telling.path)) as log:
            return app.state_of(log)

    def said(self, *args: str) -> dict[str, Any]:
        """The one event that a command wrote, which it acknowledged with its seq."""
        before = self.events()[-1]["seq"]
        done = self.ask(*args)
        assert done.code == 0, done
        (event,) = self.events(before)
        assert done.out == f"#{event['seq']}\n"
        return event | {"told": done.err}

    def refused(self, *args: str) -> str:
        """What is said of a command that is refused, and of which nothing is written."""
        before = self.events()[-1]["seq"]
        done = self.ask(*args)
        assert (done.code, done.out) == (2, ""), done
        assert self.events(before) == []
        return done.err


@pytest.fixture
def fan(tmp_path: Path) -> Iterator[Fan]:
    made = Fan(tmp_path)
    with closing(made.telling):
        yield made


# -- steer -------------------------------------------------------------------------------------------------------------


def test_words_for_a_finished_child_that_is_paused_say_what_it_waits_for(fan: Fan) -> None:
    assert fan.ask("pause", f"{NAME}:main.4").code == 0
    fan.telling.head = fan.events()[-1]["seq"]
    fan.telling.say(AgentFinished(outcome="done", text="ok"), agent="main.4")
    assert (
        f"goes on with this, after muse continue {NAME}:main.4" in fan.said("steer", f"{NAME}:main.4", "more")["told"]
    )


def test_a_chat_goes_on_after_what_was_said_to_main(fan: Fan) -> None:
    assert fan.state.agents["main.4"].items
    assert _so_far(fan.state, left=False) == 'goes on with your next prompt after "go"'


@pytest.mark.parametrize("verb", ["steer", "spawn", "answer"])
def test_two_words_without_quotes_are_told_how_to_be_one_text(fan: Fan, verb: str) -> None:
    told = fan.refused(verb, "hello", "there")
    assert "there is no session 'hello'" in told
    assert f'quote what is said: muse {verb} "hello there"' in told


def test_words_for_a_child_stand_in_its_lane(fan: Fan) -> None:
    event = fan.said("steer", f"{NAME}:main.2", "mind the tests")
    assert (event["type"], event["agent"], event["body"]["text"]) == ("agent.steered", "main.2", "mind the tests")
    assert "next model request" in event["told"]
    assert [said.text for said in fan.state.agents["main.2"].steers] == ["mind the tests"]
    assert not fan.state.agents["main"].steers


def test_the_address_of_an_event_means_its_agent(fan: Fan) -> None:
    assert fan.said("steer", f"{NAME}@{fan.question}", "hurry")["agent"] == "main.1"
    assert fan.said("pause", f"{NAME}@{fan.question}")["agent"] == "main.1"
    for command in (["steer", f"{NAME}@9999", "x"], ["cancel", f"{NAME}@9999"], ["answer", f"{NAME}@9999", "x"]):
        assert "there is no event 9999" in fan.refused(*command)


def test_a_child_that_has_finished_is_woken_and_the_sender_is_told_so(fan: Fan) -> None:
    event = fan.said("steer", f"{NAME}:main.3", "one thing more")
    assert "had finished" in event["told"]
    assert fan.state.agents["main.3"].turn


def test_a_cancelled_child_hears_nothing_more(fan: Fan) -> None:
    fan.said("cancel", f"{NAME}:main.2", "--agent")
    told = fan.refused("steer", f"{NAME}:main.2", "go on")
    assert "was cancelled, and stays so" in told
    assert f"muse steer {NAME} " in told


def test_an_agent_that_is_not_there_cannot_be_spoken_to(fan: Fan) -> None:
    for command in (["steer", f"{NAME}:main.9", "x"], ["pause", f"{NAME}:main.9"], ["cancel", f"{NAME}:main.9"]):
        told = fan.refused(*command)
        assert "there is no agent main.9" in told
        assert "main, main.1, main.2" in told


# -- what is queued ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [["--queue"], []])
def test_words_that_wait_are_taken_back_once(fan: Fan, flag: list[str]) -> None:
    seq = fan.said("steer", f"{NAME}:main.2", "and this", *flag)["seq"]
    event = fan.said("cancel", f"{NAME}@{seq}", "--why", "no")
    assert (event["agent"], event["body"]["target"], event["body"]["prompt"]) == ("main.2", "prompt", seq)
    assert "taken back" in event["told"]
    agent = fan.state.agents["main.2"]
    assert (agent.queue, agent.steers, agent.turn) == ([], [], True)
    assert "too late" in fan.refused("cancel", f"{NAME}@{seq}")


def test_a_turn_that_has_begun_is_not_taken_back(fan: Fan) -> None:
    first = next(event["seq"] for event in fan.events() if event["type"] == "user.prompted")
    told = fan.refused("cancel", f"{NAME}@{first}")
    assert "does not wait any more" in told
    assert f"muse cancel {NAME}" in told


def test_the_acknowledgement_says_whether_the_words_still_waited(fan: Fan) -> None:
    """The same command with its id a second time is the same event, and what was true then is said again."""
    seq = fan.said("steer", NAME, "and this", "--queue")["seq"]
    both = [fan.ask("cancel", f"{NAME}@{seq}", "--id", "mine", "--json") for _ in range(2)]
    assert [json.loads(done.out)["taken_back"] for done in both] == [True, True]
    assert both[0].out == both[1].out
    late = CancelRequested(target="prompt", prompt=seq)
    fan.telling.head = fan.events()[-1]["seq"]
    with closing(app.open_log(fan.telling.path, read_only=False)) as log:  # a client that saw it wait a moment ago
        app.submit(log, late, "main", cause=seq, client_id="another")
    done = fan.ask("cancel", f"{NAME}@{seq}", "--id", "another")
    assert (done.code, "nothing is changed" in done.err) == (1, True)


# -- cancel ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flag", "target"), [([], "turn"), (["--agent"], "agent"), (["--tree"], "tree")])
def test_what_is_cancelled_is_what_was_asked_for(fan: Fan, flag: list[str], target: str) -> None:
    event = fan.said("cancel", NAME, *flag, "--why", "enough")
    assert (event["agent"], event["body"].get("target", "turn"), event["body"]["why"]) == ("main", target, "enough")
    cancelled = {agent.id for agent in fan.state.agents.values() if agent.cancelled}
    assert cancelled == ({"main.1", "main.2", "main.4"} if target == "tree" else set())


def test_what_a_cancel_leaves_is_said(fan: Fan) -> None:
    fan.said("steer", NAME, "then this", "--queue")
    fan.said("steer", f"{NAME}:main.3", "again")  # it is in the background
    told = fan.said("cancel", NAME)["told"]
    assert "1 prompt; --agent drops it too" in told
    assert "1 background agent below it: --tree stops all" in told


def test_an_agent_in_no_turn_has_nothing_to_cancel(fan: Fan) -> None:
    assert "is in no turn" in fan.refused("cancel", f"{NAME}:main.3")
    fan.said("cancel", f"{NAME}:main.2", "--agent")
    fan.telling.head = fan.events()[-1]["seq"]
    fan.telling.say(AgentFinished(outcome="cancelled"), agent="main.2")
    assert "was cancelled before" in fan.refused("cancel", f"{NAME}:main.2")


# -- pause and continue ------------------------------------------------------------------------------------------------


def test_a_pause_holds_until_it_is_over(fan: Fan) -> None:
    event = fan.said("pause", f"{NAME}:main.2", "--why", "lunch")
    assert (event["type"], event["agent"], event["body"]["why"]) == ("agent.paused", "main.2", "lunch")
    assert f"muse continue {NAME}:main.2" in event["told"]
    assert "was paused before" in fan.said("pause", f"{NAME}:main.2")["told"]
    assert [agent.id for agent in fan.state.agents.values() if agent.paused] == ["main.2"]
    assert f"muse continue {NAME} --tree" in fan.refused("continue", NAME)
    fan.said("continue", f"{NAME}:main.2")
    assert "is not paused" in fan.refused("continue", f"{NAME}:main.2")


def test_who_watches_is_told_what_waits_and_who_is_paused(fan: Fan) -> None:
    fan.said("pause", f"{NAME}:main.4")
    fan.said("pause", f"{NAME}:main.2")
    fan.telling.close()
    told = fan.ask("attach", NAME).err
    assert f'muse answer {NAME}@{fan.question} "…"' in told
    assert "    2  blue" in told
    assert f"paused: main.2, main.4; go on: muse continue {NAME}:main.2   muse continue {NAME} --tree" in told
    fan.said("answer", f"{NAME}@{fan.question}", "red")
    fan.said("continue", NAME, "--tree")
    fan.said("pause", NAME)
    told = fan.ask("attach", NAME).err
    assert "muse answer" not in told
    assert told.count("paused: ") == 1
    assert f"paused: nothing new starts; go on: muse continue {NAME}\n" in told


def test_a_tree_is_paused_and_goes_on_as_one(fan: Fan) -> None:
    fan.said("pause", NAME, "--tree")
    assert {agent.paused for agent in fan.state.agents.values()} == {True}
    assert "paused (" in fan.ask("ls", "--all").out or "waiting for" in fan.ask("ls", "--all").out
    fan.said("continue", NAME, "--tree")
    assert {agent.paused for agent in fan.state.agents.values()} == {False}


def test_what_has_ended_is_not_paused(fan: Fan) -> None:
    assert "has ended" in fan.refused("pause", f"{NAME}:main.3")


# -- questions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "text"), [("2", "blue"), (" 1 ", "red"), ("neither", "neither")])
def test_an_option_is_chosen_by_its_number_or_in_words(fan: Fan, word: str, text: str) -> None:
    event = fan.said("answer", f"{NAME}@{fan.question}", word)
    assert (event["type"], event["agent"], event["cause"]) == ("question.answered", "main.1", fan.question)
    assert (event["body"]["question"], event["body"]["text"]) == (fan.question, text)
    assert fan.state.questions == {}


@pytest.mark.parametrize("number", ["0", "3", "99999999999999999999"])
def test_a_number_of_no_option_is_no_answer(fan: Fan, number: str) -> None:
    assert "there is no option" in fan.refused("answer", f"{NAME}@{fan.question}", number)


def test_of_several_questions_one_must_be_named(fan: Fan) -> None:
    assert fan.said("answer", f"{NAME}:main.1", "red")["agent"] == "main.1"
    told = fan.refused("answer", NAME, "it is red")
    assert "nothing waits" in told
    assert f"muse steer {NAME} 'it is red'" in told
    fan.telling.head = fan.events()[-1]["seq"]
    seqs = []
    for lane in ("main.2", "main.4"):
        if lane == "main.4":
            fan.telling.say(requested(f"{lane}/1"), agent=lane)
        fan.telling.say(uses(f"{lane}/1", "ask"), started(f"{lane}/2"), agent=lane)
        seqs.append(fan.telling.say(Asked(call=f"{lane}/2", text=f"of {lane}?"), agent=lane))
    told = fan.refused("answer", NAME, "red")
    assert "2 questions wait" in told
    assert all(f"{NAME}@{seq}" in told for seq in seqs)
    assert "main.2 (docs) asks" in told


def test_of_two_answers_the_first_counts_and_the_other_is_late(fan: Fan) -> None:
    first = fan.said("answer", f"{NAME}@{fan.question}", "red")["seq"]
    told = fan.refused("answer", f"{NAME}@{fan.question}", "it's blue,\n  I'd say")
    assert f"too late: #{fan.question} was answered " in told
    assert f" by {getpass.getuser()}" in told
    assert f": “red” (#{first})" in told
    command = next(line.partition("muse ")[2] for line in told.splitlines() if "to say it still" in line)
    told_again = subprocess.run(["bash", "-c", f"printf '%s|' {command}"], capture_output=True, text=True, check=True)
    assert told_again.stdout.split("|")[:-1] == ["steer", f"{NAME}:main.1", "it's blue,\n  I'd say"]
    assert "what you said, too" in fan.refused("answer", f"{NAME}@{fan.question}", "red")


def test_an_answer_that_another_one_overtakes_is_late_as_well(fan: Fan) -> None:
    address = Address(NAME, "main.1", fan.question)
    with listening(fan.telling.path, address, "test") as to:
        (one,) = waiting_in(to.log, to.state, to.path)
        first = fan.said("answer", f"{NAME}@{fan.question}", "red")["seq"]
        with pytest.raises(UsageError, match=f"“red” \\(#{first}\\)") as late:
            replied(to, one, "2")
    assert late.value.hint == f"to say it still: muse steer {NAME}:main.1 blue"
    assert [event["body"]["text"] for event in fan.events(first)] == ["blue"], "it is kept"


def test_an_answer_that_was_not_followed_leaves_the_question_open(fan: Fan) -> None:
    seq = fan.telling.say(Answered(question=fan.question, text="forged"), agent="main.1")
    fan.telling.say(CommandRefused(command=seq, why="no_origin"), agent="main.1")
    fan.said("answer", f"{NAME}@{fan.question}", "red")
    assert fan.state.run("main.1/2").answer_text == "red"  # type: ignore[union-attr]


def test_a_question_is_not_approved_and_a_request_is_not_answered(fan: Fan) -> None:
    asks = uses("main.2/1", "shell")
    request = ApprovalRequested(call="main.2/2", tool="shell", shown="$ rm x", shown_sha256="0" * 64, rule="r")
    fan.telling.say(asks, agent="main.2")
    seq = fan.telling.say(request, agent="main.2")
    assert f"muse answer {NAME}@{fan.question}" in fan.refused("approve", f"{NAME}@{fan.question}")
    assert f"muse approve {NAME}@{seq}" in fan.refused("answer", f"{NAME}@{seq}", "yes")
    assert "is no question" in fan.refused("answer", f"{NAME}@2", "yes")


def test_a_call_that_has_ended_needs_no_answer(fan: Fan) -> None:
    fan.telling.say(ToolFinished(call="main.1/2", attempt=1, status="error", text="nobody answered"), agent="main.1")
    told = fan.refused("answer", f"{NAME}@{fan.question}", "2")
    assert "needs no answer any more, its call ended" in told
    assert "nobody answered" in told
    assert f"to say it still: muse steer {NAME}:main.1 blue" in told


def test_the_words_for_who_was_cancelled_go_to_its_parent(fan: Fan) -> None:
    fan.said("cancel", f"{NAME}:main.1", "--agent")
    fan.telling.head = fan.events()[-1]["seq"]
    fan.telling.say(ToolFinished(call="main.1/2", attempt=1, status="cancelled", text="cancelled"), agent="main.1")
    told = fan.refused("answer", f"{NAME}@{fan.question}", "red")
    assert "main.1 was cancelled and hears nobody" in told
    assert f"muse steer {NAME} red" in told


def test_a_lone_address_is_no_answer(fan: Fan) -> None:
    assert "what is to be said" in fan.refused("answer", f"{NAME}@{fan.question}")


# -- the inbox ---------------------------------------------------------------------------------------------------------


def test_requests_and_questions_of_all_agents_stand_in_one_inbox(fan: Fan) -> None:
    request = ApprovalRequested(
        call="main.2/2", tool="shell", shown="$ rm \x1b]0;x\x07", shown_sha256="0" * 64, rule="mode default",
        remember="shell(rm *)",
    )  # fmt: skip
    fan.telling.say(uses("main.2/1", "shell"), agent="main.2")
    seq = fan.telling.say(request, agent="main.2")
    found = [json.loads(line) for line in fan.ask("approvals", "--json").out.splitlines()]
    assert [(one["kind"], one["seq"], one["agent"], one["name"]) for one in found] == [
        ("question", fan.question, "main.1", ""), ("approval", seq, "main.2", "docs"),
    ]  # fmt: skip
    assert found[0]["options"] == ["red", "blue"]
    assert (found[1]["rule"], found[1]["remember"], found[1]["running"]) == ("mode default", "shell(rm *)", True)
    shown = fan.ask("approvals").out
    for words in ("  Which \\x1b[2J?", "    2  blue", "main.2 (docs) asks", "$ rm \\x1b]0;x\\x07", "mode default"):
        assert words in shown
    assert f"muse answer {NAME}@{fan.question}" in shown
    assert "\x1b" not in shown


def test_a_question_of_a_session_that_nobody_runs_is_kept_and_can_be_answered(fan: Fan) -> None:
    fan.telling.close()
    shown = fan.ask("approvals").out
    assert f"{NAME}@{fan.question}" in shown
    assert "nobody runs this session" in shown
    assert f"waits for answer @{fan.question} (resume)" in fan.ask("ls", "--all").out
    assert f"muse resume {NAME}" in fan.said("answer", f"{NAME}@{fan.question}", "1")["told"]
    assert fan.ask("approvals").out == ""


def test_the_inbox_of_one_session_or_agent_or_event(fan: Fan) -> None:
    fan.telling.say(uses("main.2/1", "shell"), agent="main.2")
    request = ApprovalRequested(call="main.2/2", tool="shell", shown="$ ls", shown_sha256="0" * 64, rule="mode default")
    seq = fan.telling.say(request, agent="main.2")

    def seqs(address: str) -> list[int]:
        done = fan.ask("approvals", address, "--json")
        assert done.code == 0, done
        return [json.loads(line)["seq"] for line in done.out.splitlines()]

    assert seqs(NAME) == [fan.question, seq]
    assert seqs(f"{NAME}:main.1") == [fan.question]
    assert seqs(f"{NAME}:main.2") == [seq]
    assert seqs(f"{NAME}@{seq}") == [seq]
    assert seqs(f"{NAME}:main.3") == []
    assert (
        f"nothing waits in {NAME}:main.3; in all sessions: muse approvals" in fan.ask("approvals", f"{NAME}:main.3").err
    )
    assert f"{NAME}@{seq}" not in fan.ask("approvals", f"{NAME}:main.1").out
    assert "there is no event 999" in fan.refused("approvals", f"{NAME}@999")
    assert "no session" in fan.refused("approvals", "nobody")


def test_a_program_gets_the_exact_command_and_the_change_that_is_shown(fan: Fan, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    folder = str(tmp_path)
    command = "printf '\x1b[2J' |\n  rm -r $HOME"
    host = app.event_at(fan.telling.log, 1).body.host  # type: ignore[union-attr]
    tools = (SPEC, SHELL, *(msgspec.structs.replace(SHELL, name=name) for name in ("edit", "write")))
    say = fan.telling.say
    say(SessionOpened(format=1, rules=2, workspace=folder, host=host, settings=SETTINGS, tools=tools))
    given = (
        ("shell", {"command": command}),
        ("edit", {"path": "a.txt", "edits": [{"old": "two", "new": "2"}]}),
        ("write", {"path": "b.txt", "content": "new\n"}),
        ("edit", {"path": "a.txt", "edits": [{"old": "nine", "new": "9"}]}),
    )
    blocks = tuple(Block(kind="tool_use", id=f"u{n}", name=tool, args=json.dumps(args)) for n, (tool, args) in
                   enumerate(given))  # fmt: skip
    say(
        requested("main.4/1"),
        ModelResponded(call="main.4/1", attempt=1, blocks=blocks, stop="tool_use"),
        agent="main.4",
    )
    for n, (tool, _) in enumerate(given, 2):
        asks = ApprovalRequested(call=f"main.4/{n}", tool=tool, shown=tool, shown_sha256="0" * 64, rule="mode default")
        say(asks, agent="main.4")
    found = [json.loads(line) for line in fan.ask("approvals", f"{NAME}:main.4", "--json").out.splitlines()]
    assert [one["command"] for one in found] == [command, "", "", ""]
    assert [json.loads(one["args"]) for one in found] == [args for _, args in given]
    diff = ["--- a/a.txt", "+++ b/a.txt", "@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"]
    shell, edit, write, failing = (one["change"] for one in found)
    assert shell is None
    assert edit == {"path": "a.txt", "new_file": False, "problem": "", "cut": False, "diff": "\n".join(diff) + "\n"}
    assert (write["path"], write["new_file"], write["diff"].endswith("@@ -0,0 +1 @@\n+new\n")) == ("b.txt", True, True)
    assert (failing["path"], failing["diff"]) == ("", "")
    assert "not found" in failing["problem"]
    shown = fan.ask("approvals", f"{NAME}:main.4").out.splitlines()
    at = shown.index("  --- a/a.txt")
    assert [line[2:] for line in shown[at : at + len(diff)]] == diff


def test_going_through_them_needs_a_terminal(fan: Fan) -> None:
    assert "needs a terminal" in fan.refused("approvals", "-i")


# -- every command -----------------------------------------------------------------------------------------------------


COMMANDS = [
    ["steer", f"{NAME}:main.2", "words"],
    ["steer", f"{NAME}:main.2", "words", "--queue"],
    ["steer", f"{NAME}:main.2", "words", "--replace"],
    ["cancel", f"{NAME}:main.2"],
    ["cancel", NAME, "--tree"],
    ["pause", f"{NAME}:main.2"],
    ["continue", f"{NAME}:main.1"],
    ["answer", f"{NAME}:main.1", "red"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command))
def test_a_command_twice_with_one_id_is_one_event(fan: Fan, command: list[str]) -> None:
    fan.said("pause", f"{NAME}:main.1")
    before = fan.events()[-1]["seq"]
    first, second = (fan.ask(*command, "--id", "mine", "--json") for _ in range(2))
    assert (first.code, second.code) == (0, 0), (first, second)
    assert first.out == second.out
    (event,) = fan.events(before)
    kept = json.loads(first.out)
    assert (kept["seq"], kept["session"], kept["running"]) == (event["seq"], fan.telling.log.session, True)
    assert event["body"]["origin"]["client"] == "cli"
    other = fan.ask("steer", NAME, "something else", "--id", "mine")
    assert (other.code, "another command" in other.err) == (2, True)


@pytest.mark.parametrize("command", ["agents", "approvals", "attach", "show", "why"])
def test_an_agent_that_is_not_there_is_not_waited_for(fan: Fan, command: str) -> None:
    assert "there is no agent main.9" in fan.refused(command, f"{NAME}:main.9")


def test_the_shell_offers_the_agents_and_questions_that_there_are(fan: Fan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSE_HOME", str(fan.home))
    fan.said("cancel", f"{NAME}:main.2", "--agent")

    def offered(complete: Any, typed: str) -> list[str]:
        return [item.value for item in complete(None, None, typed)]

    assert offered(completing.lanes, f"{NAME}:main.") == [f"{NAME}:main.{n}" for n in (1, 3, 4)]
    assert offered(completing.agents, f"{NAME}:main.") == [f"{NAME}:main.{n}" for n in (1, 2, 3, 4)]
    assert offered(completing.lanes, NAME[:4]) == [NAME]
    assert offered(completing.lanes, "nobody:main") == []
    assert offered(completing.questions, "") == [f"{NAME}@{fan.question}"]
    assert offered(completing.requests, "") == []
