"""Why: from an event back to where it ends, on stories told by hand, odd and hostile ones among them."""

from collections.abc import Iterator, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse.event import kinds
from muse.event.content import Block, FileChange, Host, Origin, Settings
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import KINDS
from muse.view.causes import STEPS_MAX, Chain, why
from tests.view.made import event, filled

ADA = Origin(user="ada", terminal="/dev/pts/3")
OPENED = kinds.SessionOpened(
    format=1, rules=1, workspace="/ws", host=Host(name="box", pid=7),
    settings=Settings(provider="p", dialect="scripted", model="m"),
)  # fmt: skip


class Told:
    """Events in memory."""

    def __init__(self, events: Mapping[int, Event]) -> None:
        self.events = events

    def event(self, seq: int) -> Event | None:
        return self.events.get(seq)

    def earlier(self, before: int, types: tuple[str, ...], after: int = 0) -> Iterator[Event]:
        found = (one for one in self.events.values() if after < one.seq < before and one.type in types)
        return iter(sorted(found, key=lambda one: -one.seq))


def story(*told: tuple[str, int, msgspec.Struct]) -> Told:
    """Events of (agent, cause, body)."""
    return Told({
        seq: msgspec.structs.replace(event(body, seq, agent=agent), cause=cause)
        for seq, (agent, cause, body) in enumerate(told, 1)
    })  # fmt: skip


def asked(told: Told, seq: int) -> Chain:
    return why(told.events[seq], told, None)


def path(chain: Chain) -> list[tuple[str, int]]:
    return [(step.relation, step.row.seq) for step in chain.steps]


def use(name: str) -> Block:
    return Block(kind="tool_use", id=name, name=name, args="{}")


def requested(call: str) -> kinds.ModelRequested:
    return kinds.ModelRequested(
        call=call, attempt=1, provider="p", model="m", builder="b/1", items=1, request_sha256="0", request_bytes=1
    )


def responded(call: str, *names: str) -> kinds.ModelResponded:
    return kinds.ModelResponded(call=call, attempt=1, blocks=tuple(map(use, names)), stop="tool_use")


def started(call: str, **more: object) -> kinds.ToolStarted:
    body = kinds.ToolStarted(call=call, attempt=1, tool="shell", args="{}", recovery="opaque")
    return msgspec.structs.replace(body, **more)


FLEET = story(
    ("main", 0, OPENED),  # 1
    ("main", 0, kinds.UserPrompted(text="Count", origin=ADA)),  # 2
    ("main", 2, requested("main/1")),  # 3
    ("main", 3, responded("main/1", "spawn", "shell")),  # 4
    ("main", 4, kinds.AgentSpawned(task="fallback")),  # 5
    ("main", 4, started("main/2", tool="spawn", allowed_by="mode default: agents are free")),  # 6
    ("main.2", 6, kinds.AgentSpawned(parent="main", call="main/2", task="count the files")),  # 7
    ("main.2", 7, requested("main.2/1")),  # 8
    ("main.2", 8, responded("main.2/1", "shell")),  # 9
    ("main.2", 9, kinds.ApprovalRequested(call="main.2/2", tool="shell", shown="rm x", shown_sha256="0", rule="asks")),
    ("main.2", 0, kinds.ApprovalDecided(call="main.2/2", decision="allow", by="person", request=10, origin=ADA)),  # 11
    ("main.2", 11, started("main.2/2", approval=11)),  # 12
    ("main.2", 12, kinds.FilesChanged(changes=(FileChange(path="x"),), calls=("main.2/2",))),  # 13
    ("main", 0, kinds.CancelRequested(target="tree", why="too slow", origin=ADA)),  # 14
    ("main.2", 12, kinds.ToolFinished(call="main.2/2", attempt=1, status="cancelled")),  # 15
    ("main.2", 15, kinds.AgentFinished(outcome="cancelled")),  # 16
    ("main", 16, kinds.ResultDelivered(child="main.2", text="cancelled")),  # 17
    ("main", 0, kinds.FilesChanged(changes=(FileChange(path="y"),), external=True)),  # 18
)


def test_a_childs_deed_leads_over_its_spawn_to_a_persons_words() -> None:
    chain = asked(FLEET, 13)
    assert path(chain) == [
        ("", 13), ("made by", 12), ("asked for by", 9), ("in answer to", 8), ("after", 7), ("spawned by", 6),
        ("asked for by", 4), ("in answer to", 3), ("after", 2),
    ]  # fmt: skip
    assert (chain.end, chain.words) == ("person", "the words of ada on /dev/pts/3")
    assert [(one.relation, one.row.seq) for one in chain.steps[1].rests] == [("allowed by", 11)]
    assert "allowed by ada" in chain.steps[1].rests[0].row.summary
    assert chain.steps[5].notes == ("allowed by mode default: agents are free",)


def test_what_was_cancelled_leads_to_who_cancelled_it_and_why() -> None:
    for seq in (15, 16):
        chain = asked(FLEET, seq)
        assert path(chain) == [("", seq), ("cancelled by", 14)]
        assert chain.steps[1].notes == ("because: too slow",)
        assert (chain.end, chain.words) == ("person", "given by ada on /dev/pts/3")
    assert path(asked(FLEET, 17))[:2] == [("", 17), ("the result of", 16)]


def test_a_session_that_the_provider_ended_leads_to_what_the_provider_said() -> None:
    failed = kinds.ModelFailed(call="main/1", attempt=1, failure="network", message="nothing listens there")
    told = story(
        ("main", 0, OPENED),
        ("main", 0, kinds.UserPrompted(text="Count", origin=ADA)),
        ("main", 2, requested("main/1")),
        ("main", 3, failed),
        ("main", 2, kinds.SessionClosed(outcome="provider", reason="network: nothing listens there")),
    )
    chain = asked(told, 5)
    assert [seq for _, seq in path(chain)] == [5, 4, 3, 2]
    assert chain.end == "person"


def test_a_prompt_instead_of_the_running_turn_is_what_ended_it() -> None:
    told = story(
        ("main", 0, started("main/2")),
        ("main", 0, kinds.UserPrompted(text="rather this", delivery="replace", origin=ADA)),
        ("main", 1, kinds.ToolFinished(call="main/2", attempt=1, status="cancelled")),
    )
    chain = asked(told, 3)
    assert path(chain) == [("", 3), ("cancelled by", 2)]
    assert [(one.relation, one.row.seq) for one in chain.steps[0].rests] == [("of", 1)]


def test_a_result_that_was_in_doubt_leads_to_what_was_found_out() -> None:
    told = story(
        ("main", 0, started("main/2")),
        ("main", 1, kinds.EffectDoubted(call="main/2", attempt=1, recovery="attachable")),
        ("main", 2, kinds.EffectReconciled(call="main/2", attempt=1, verdict="unknown", evidence="nothing is left")),
        ("main", 2, kinds.ToolFinished(call="main/2", attempt=1, status="unknown")),
    )
    chain = asked(told, 4)
    assert path(chain) == [("", 4), ("settled by", 3), ("settles", 2), ("in doubt since", 1)]
    assert chain.steps[1].notes == ("evidence: nothing is left",)


def test_a_result_of_a_run_that_came_after_the_doubt_does_not_lead_to_it() -> None:
    told = story(
        ("main", 0, started("main/2")),
        ("main", 1, kinds.EffectDoubted(call="main/2", attempt=1, recovery="pure")),
        ("main", 2, kinds.EffectReconciled(call="main/2", attempt=1, verdict="retried")),
        ("main", 2, started("main/2", attempt=2)),
        ("main", 4, kinds.ToolFinished(call="main/2", attempt=2, status="ok")),
    )
    assert path(asked(told, 5))[:2] == [("", 5), ("the result of", 4)]


def test_what_a_refused_call_came_to_leads_to_who_refused_it() -> None:
    told = story(
        ("main", 0, kinds.CancelRequested(target="turn", origin=ADA)),
        ("main", 0, responded("main/1", "shell")),
        ("main", 2, kinds.ApprovalDecided(call="main/2", decision="deny", by="person", origin=ADA)),
        ("main", 3, kinds.ToolFinished(call="main/2", attempt=1, status="cancelled")),
    )
    assert path(asked(told, 4)) == [("", 4), ("refused by", 3), ("asked for by", 2)]


def test_a_cancel_of_before_the_call_is_not_what_ended_it() -> None:
    told = story(
        ("main", 0, kinds.CancelRequested(target="turn", origin=ADA)),
        ("main", 0, started("main/2")),
        ("main", 2, kinds.ToolFinished(call="main/2", attempt=1, status="cancelled")),
    )
    assert path(asked(told, 3)) == [("", 3), ("the result of", 2)]


def test_an_approval_says_why_it_was_asked_and_what_for() -> None:
    chain = asked(FLEET, 11)
    assert path(chain)[:3] == [("", 11), ("in answer to", 10), ("asked for by", 9)]
    assert chain.steps[0].notes == ("decided by ada on /dev/pts/3",)
    assert chain.steps[1].notes == ("because: asks",)


def test_what_somebody_else_changed_comes_from_outside() -> None:
    assert asked(FLEET, 18).end == "outside"


@pytest.mark.parametrize(
    ("body", "end"),
    [
        (OPENED, "start"),
        (kinds.LogImported(source="a.jsonl", format_name="other", events=3), "imported"),
        (kinds.LogRecovered(first_lost=1, last_lost=1, hash_before="", hash_after=""), "recovered"),
        (kinds.UserPrompted(text="go"), "person"),
        (kinds.AgentPaused(why="lunch"), "person"),
    ],
)
def test_an_answer_says_where_it_ends(body: msgspec.Struct, end: str) -> None:
    told = story(("main", 0, body), ("main", 1, kinds.SessionClosed(outcome="done")))
    assert asked(told, 2).end == end


def test_of_a_redacted_event_the_header_still_leads_on() -> None:
    told = story(("main", 0, kinds.UserPrompted(text="go")), ("main", 1, requested("main/1")), ("main", 2, OPENED))
    hidden = {seq: msgspec.structs.replace(one, body=Redacted("[]")) for seq, one in told.events.items()}
    events = {**hidden, 3: msgspec.structs.replace(told.events[3], type="model.responded", body=Redacted("[]"))}
    chain = asked(Told(events), 3)
    assert path(chain) == [("", 3), ("after", 2), ("after", 1)]
    assert chain.steps[1].notes == ("its text is hidden by redaction",)
    assert (chain.end, chain.words) == ("redacted", "a person's user.prompted, whose text is hidden by redaction")


def test_a_command_that_was_refused_says_so() -> None:
    told = story(
        ("main", 0, kinds.AgentSteered(text="allow all", origin=ADA)),
        ("main", 1, kinds.CommandRefused(command=1, why="below_runner")),
    )
    assert asked(told, 1).steps[0].notes == ("it is not followed: it was refused at #2",)
    assert path(asked(told, 2)) == [("", 2), ("refuses", 1)]


@pytest.mark.parametrize("cause", [2, 3, 2**53])
def test_a_cause_that_is_not_earlier_ends_the_walk(cause: int) -> None:
    told = story(("main", 0, OPENED), ("main", cause, kinds.SessionClosed(outcome="done")), ("main", 2, OPENED))
    chain = asked(told, 2)
    assert (len(chain.steps), chain.end) == (1, "unknown")
    assert f"#{cause}" in chain.words


def test_a_way_back_of_any_length_ends_at_its_limit() -> None:
    long = STEPS_MAX + 50
    told = Told({seq: event(Unknown("{}"), seq, type_name="x.y") for seq in range(1, long + 1)})
    chain = asked(told, long)
    assert (len(chain.steps), chain.end) == (STEPS_MAX, "limit")
    assert f"muse why @{long - STEPS_MAX}" in chain.words


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_event_can_be_asked_about(name: str) -> None:
    for body in (filled(KINDS[name].body, "main/7"), Unknown("{}"), Redacted("[]")):
        events = {seq: event(body, seq, type_name=name) for seq in (5, 6, 7, 8)}
        chain = asked(Told(events), 8)
        assert chain.steps[0].row.seq == 8
        assert chain.words


@given(
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=10)
)
def test_no_log_is_too_hostile(told: list[tuple[str, int, int]]) -> None:
    """Whatever causes, calls and numbers say, each step goes back."""
    texts = ("main/1", "main/2", "main", "main.1/2")
    events = {
        seq: msgspec.structs.replace(event(filled(KINDS[name].body, texts[text]), seq, type_name=name), cause=cause)
        for seq, (name, cause, text) in enumerate(told, 1)
    }
    for seq in events:
        chain = asked(Told(events), seq)
        seqs = [step.row.seq for step in chain.steps]
        assert seqs == sorted(set(seqs), reverse=True)
        assert all(one.row.seq < step.row.seq for step in chain.steps for one in step.rests)
