"""What left a conversation is read again: a result, an event, what holds a text; and nothing of others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muse.effect.protocol import Workspace
from muse.effect.tool.kept import OutputTool
from muse.effect.tool.recall import RecallTool
from muse.event.content import Block, FileChange
from muse.event.kinds import (
    AgentMessaged,
    AgentSpawned,
    AgentSteered,
    ApprovalDecided,
    ContextCompacted,
    FilesChanged,
    ModelResponded,
    ResultDelivered,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)  # fmt: skip
from muse.log.sqlite import SqliteLog
from muse.runtime.outputs import read_output
from muse.runtime.recalling import EVENTS_MAX, read_lane
from tests.effect.tool.conftest import Harness
from tests.ui.told import Telling

pytestmark = pytest.mark.anyio

LONG = "".join(f"line {number} of the log\n" for number in range(4_000))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteLog]:
    folder = tmp_path_factory.mktemp("recall")
    with Telling(folder) as story:  # 1 is the opening
        story.say(UserPrompted(text="find the Leak"))  # 2
        story.say(
            ModelResponded(call="main/1", attempt=1, blocks=(Block(kind="text", text="I look."),), stop="end_turn")
        )
        story.say(ToolStarted(call="main/2", attempt=1, tool="shell", args='{"command":"make"}', recovery="pure"))
        story.say(ToolFinished(call="main/2", attempt=1, status="ok", text=LONG))  # 5
        story.say(AgentSpawned(parent="main", call="main/3", task="secret of the child"), agent="main.1")  # 6
        story.say(ToolFinished(call="main.1/2", attempt=1, status="ok", text="the child's own"), agent="main.1")  # 7
        story.say(AgentMessaged(to="main", text="found it", call="main.1/3"), agent="main.1")  # 8
        story.say(AgentMessaged(to="main.1", text="well done", call="main/4"))  # 9
        story.say(ResultDelivered(child="main.1", text="all done"))  # 10
        story.say(AgentSteered(text="hurry up"))  # 11
        story.say(ApprovalDecided(call="main/5", decision="deny", by="person", note="not now"))  # 12
        story.say(FilesChanged(changes=(FileChange(path="a.py"),), calls=("main/2",)))  # 13
        story.say(ContextCompacted(first=2, last=5, text="we looked", method="summary", call="main/6"))  # 14
        looks = '{"query":"no such thing"}', '{"query":"leak"}'
        for number, args in enumerate(looks, 7):
            story.say(ToolStarted(call=f"main/{number}", attempt=1, tool="recall", args=args, recovery="pure"))
        story.say(ToolFinished(call="main/8", attempt=1, status="ok", text="#2 said by a person: find the Leak"))  # 17
        yield story.log


@pytest.fixture
def recall(log: SqliteLog, tmp_path: Path) -> Harness:
    async def output(call: str, offset: int, limit: int) -> bytes | None:
        return read_output(log, call, offset, limit)

    async def lane(agent: str, first: int, last: int, query: str, bytes_max: int) -> object:
        return read_lane(log, agent, first, last, query, bytes_max)

    return Harness(RecallTool(output, lane), Workspace(tmp_path))  # type: ignore[arg-type]


async def test_a_call_gives_its_whole_result_part_by_part(recall: Harness) -> None:
    whole, offset = "", 0
    while offset < len(LONG):
        found = await recall.do(call="main/2", offset=offset)
        assert found.status == "ok"
        end = int(found.text.rpartition(" to ")[2].split()[0])
        part = found.text[: end - offset + 1]
        whole, offset = whole + part, offset + len(part)
    assert whole == LONG


async def test_events_are_told_in_lines_with_what_reads_more(recall: Harness) -> None:
    found = (await recall.do(**{"from": 2, "to": 20})).text.splitlines()
    assert found[:3] == ["#2 said by a person: find the Leak", "#3 you: I look.", '#4 main/2 shell: {"command":"make"}']
    assert found[3] == "#5 main/2 ok: line 0 of the log"
    assert ' (whole: call="main/2")' in "\n".join(found)
    assert found[-10:-3] == [
        "#8 message from main.1: found it",
        "#9 message to main.1: well done",
        "#10 result of main.1: all done",
        "#11 said by a person meanwhile: hurry up",
        "#12 main/5 denied: not now",
        "#13 files changed by main/2: a.py",
        "#14 summary of #2 to #5: we looked",
    ]
    assert [line.split(":")[0] for line in found[-3:]] == ["#15 main/7 recall", "#16 main/8 recall", "#17 main/8 ok"]


async def test_a_text_is_found_in_any_case_of_letters_and_shown_where_it_stands(recall: Harness) -> None:
    assert (await recall.do(query="LEAK")).text == "#2 said by a person: find the Leak"
    assert "line 3210 of the log" in (await recall.do(query="line 3210 of")).text
    assert (await recall.do(query="no such thing")).text == "Nothing of yours holds that text."


async def test_one_event_is_read_whole(recall: Harness) -> None:
    found = (await recall.do(**{"from": 5, "to": 5, "offset": 9, "limit": 20})).text
    assert found.startswith("#5 main/2 ok:  the log\nline 1 of t\n(bytes from 9 of ")
    assert "read on with offset 29" in found


async def test_nothing_of_another_agent_is_read(recall: Harness) -> None:
    everything = (await recall.do(**{"from": 1})).text + (await recall.do(query="child")).text
    assert "secret of the child" not in everything
    assert "own" not in everything
    refused = await recall.do(call="main.1/2")
    assert refused.status == "error"
    assert "no call of yours" in refused.text
    refused = await Harness(OutputTool(recall.tool._read_output), recall.workspace).do(call="main.1/2")  # type: ignore[attr-defined]
    assert refused.status == "error"


async def test_what_is_asked_wrongly_says_how_to_ask(recall: Harness) -> None:
    for args in ({}, {"from": 9, "to": 3}, {"call": "main/2", "query": "x"}, {"from": 1 << 60}, {"from": 1, "to": 1}):
        found = await recall.do(**args)
        assert found.status == "error", args


async def test_many_events_come_in_parts(tmp_path: Path) -> None:
    with Telling(tmp_path) as story:
        for number in range(EVENTS_MAX + 50):
            story.say(UserPrompted(text=f"wish {number}"))
        first = read_lane(story.log, "main", 1, 10_000, "", 30_000)
        assert len(first.events) == EVENTS_MAX
        rest = read_lane(story.log, "main", first.next, 10_000, "", 30_000)
        assert [one.text for one in (*first.events, *rest.events)] == [f"wish {n}" for n in range(EVENTS_MAX + 50)]
        assert rest.next == 0
        few = read_lane(story.log, "main", 1, 10_000, "", 100)
        assert 0 < len(few.events) < 20
