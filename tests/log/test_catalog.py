"""Listings: what they say follows the log, whether it was counted at once or bit by bit."""

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from muse.event.codec import parse
from muse.event.commitment import disclose, encode_disclosed
from muse.event.content import Host, Settings, Usage
from muse.event.kinds import (
    COMMANDS,
    AgentContinued,
    AgentPaused,
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    ModelResponded,
    NoteAdded,
    QuestionAnswered,
    QuestionAsked,
    SessionClosed,
    SessionOpened,
    ToolFinished,
    UserPrompted,
)  # fmt: skip
from muse.log.catalog import Catalog, Entry
from muse.log.protocol import Log
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal

SETTINGS = Settings(provider="p", dialect="scripted", model="m")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "20260102-030405-abcdefgh.muse"


def reading(path: Path) -> Log:
    return SqliteLog.open(path, commands=COMMANDS, read_only=True, check=False)


def listed(path: Path, cache: str = "cache.json") -> Entry:
    return Catalog(path.parent / cache, reading).entries([path])[0]


class Writer:
    """An owner that appends what a test wants."""

    def __init__(self, path: Path) -> None:
        self.log = SqliteLog.create(path, path.stem, commands=COMMANDS)
        host = Host(name="h", pid=1)
        opened = SessionOpened(format=1, rules=1, workspace="/work", host=host, settings=SETTINGS, name="nightly")
        self.owner = self.log.claim(lambda claim: seal(opened, "main", 0))

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()

    def add(self, *bodies: object) -> int:
        """Append and return the last seq."""
        drafts = [seal(body, "main", 0) for body in bodies]  # type: ignore[arg-type]  # bodies are structs
        return self.log.append(drafts, [], self.log.head().seq, self.owner.epoch).head.seq


def asked(call: str) -> ApprovalRequested:
    return ApprovalRequested(call=call, tool="shell", shown="$ x", shown_sha256="0" * 64)


def answered(used: Usage) -> ModelResponded:
    return ModelResponded(call="main/1", attempt=1, blocks=(), stop="end_turn", usage=used)


def test_an_entry_is_what_the_log_says(path: Path) -> None:
    with Writer(path) as writer:
        writer.add(UserPrompted(text="first words"), UserPrompted(text="later words"))
        writer.add(answered(Usage(input=10, output=3, cache_read=5, cost_microusd=7)))
        writer.add(answered(Usage(input=1, output=1, cache_write=2)), SessionClosed(outcome="done"))
    found = listed(path)
    assert (found.session, found.state, found.outcome, found.events) == (path.stem, "closed", "done", 6)
    assert (found.input, found.output, found.cached, found.cost_microusd) == (18, 4, 5, 7)
    assert (found.prompt, found.workspace, found.model, found.name) == ("first words", "/work", "p/m", "nightly")


def test_who_goes_on_with_a_session_leaves_it_its_name(path: Path) -> None:
    with Writer(path):
        pass
    with closing(SqliteLog.open(path, commands=COMMANDS)) as log:
        later = SessionOpened(format=1, rules=1, workspace="/work", host=Host(name="h", pid=2), settings=SETTINGS)
        log.claim(lambda claim: seal(later, "main", 0))
    assert (listed(path).events, listed(path).name) == (2, "nightly")


def test_counting_bit_by_bit_gives_what_counting_at_once_gives(path: Path) -> None:
    steps = [
        (UserPrompted(text="x"),),
        (asked("main/2"), asked("main/3")),
        (ApprovalDecided(call="main/2", decision="allow", by="person", request=3),),
        (answered(Usage(input=3)),),
        (CancelRequested(target="turn"),),
        (SessionClosed(outcome="cancelled"),),
        (NoteAdded(text="later"),),
        (UserPrompted(text="again"),),
    ]
    with Writer(path) as writer:
        for number, bodies in enumerate(steps):
            writer.add(*bodies)
            assert listed(path) == listed(path, f"fresh{number}.json")


def bytes_read() -> int:
    """What this process has read so far, from caches too: `rchar` of proc_pid_io(5)."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="what is read is told by /proc (Linux)")
def test_listing_a_log_again_costs_the_same_however_long_it_is(path: Path) -> None:
    """B36: the first time its chain is followed; after that only what changed is read."""
    costs = []
    for count in (10, 1_000):
        long = path.with_stem(f"{path.stem[:-4]}{count:04}")
        with Writer(long) as writer:
            writer.add(*(NoteAdded(text="x" * 2_000) for _ in range(count)))
        at = [bytes_read()]
        for _ in range(2):
            assert listed(long).events == count + 1
            at.append(bytes_read())
        costs.append([after - before for before, after in pairwise(at)])
    (_, short), (whole, again) = costs
    assert whole > 1_000 * 2_000
    assert again < short + 20_000


def test_an_owned_session_runs_and_one_that_was_let_go_has_stopped(path: Path) -> None:
    with Writer(path) as writer:
        writer.add(UserPrompted(text="x"))
        assert (listed(path).state, listed(path).pid > 0) == ("running", True)
    assert (listed(path).state, listed(path).pid) == ("stopped", 0)


@pytest.mark.parametrize(
    ("ending", "left"),
    [
        (ApprovalDecided(call="main/2", decision="deny", by="person", request=2), (3,)),
        (ApprovalDecided(call="main/2", decision="deny", by="timeout", request=2), ()),
        (CancelRequested(target="call", call="main/3"), (2,)),
        (CancelRequested(target="turn"), ()),
        (NoteAdded(text="x"), (2, 3)),
    ],
)
def test_a_request_waits_until_it_is_answered_or_its_turn_ends(
    path: Path, ending: object, left: tuple[int, ...]
) -> None:
    with Writer(path) as writer:
        writer.add(asked("main/2"), asked("main/3"))
        assert (listed(path).state, listed(path).approvals) == ("waiting", (2, 3))
        writer.add(ending)
        assert listed(path).approvals == left


def test_a_note_after_the_end_changes_nothing_and_a_prompt_does(path: Path) -> None:
    with Writer(path) as writer:
        writer.add(SessionClosed(outcome="failed"))
        writer.log.submit(seal(NoteAdded(text="pity"), "main", 0))
    assert (listed(path).state, listed(path).outcome) == ("closed", "failed")
    with SqliteLog.open(path, commands=COMMANDS) as log:
        log.submit(seal(UserPrompted(text="once more"), "main", 0))
    assert (listed(path).state, listed(path).outcome) == ("stopped", "")


def test_ending_what_a_call_left_running_changes_nothing_about_how_the_session_ended(path: Path) -> None:
    with Writer(path) as writer:
        writer.add(SessionClosed(outcome="done"))
        writer.log.submit(seal(CancelRequested(target="call", call="main/2"), "main", 0))
    assert (listed(path).state, listed(path).outcome) == ("closed", "done")
    with SqliteLog.open(path, commands=COMMANDS) as log:
        log.submit(seal(CancelRequested(target="turn"), "main", 0))
    assert (listed(path).state, listed(path).outcome) == ("stopped", "")


def test_a_cache_that_cannot_be_written_is_done_without(path: Path) -> None:
    with Writer(path) as writer:
        writer.add(UserPrompted(text="x"))
    (path.parent / "file").write_text("in the way")
    found = Catalog(path.parent / "file" / "cache.json", reading).entries([path])
    assert found[0].prompt == "x"


def test_a_session_stays_in_its_folder_when_something_else_of_its_opening_is_taken_out(path: Path) -> None:
    with Writer(path) as writer:
        (opened,) = writer.log.read()
        assert opened.body is not None
        assert opened.key is not None
        left = encode_disclosed(disclose(parse(opened.body), opened.key, lambda steps: steps == ("name",)))
        writer.log.redact({1: left}, [], writer.owner.epoch)
    assert (listed(path).workspace, listed(path).name) == ("/work", "")


ENDS = ToolFinished(call="main/2", attempt=1, status="error", text="nobody answered")


@pytest.mark.parametrize("end", [QuestionAnswered(question=2, text="yes"), ENDS])
def test_a_question_waits_until_it_is_answered_or_its_call_ends(path: Path, end: object) -> None:
    with Writer(path) as writer:
        writer.add(QuestionAsked(call="main/2", text="which?"))
        assert (listed(path).questions, listed(path).state) == ((2,), "waiting")
        writer.add(QuestionAnswered(question=9, text="yes"))
        assert listed(path).questions == (2,)
        writer.add(end)
        assert (listed(path).questions, listed(path).state) == ((), "running")


def test_a_pause_is_listed_until_it_is_over(path: Path) -> None:
    with Writer(path) as writer:
        writer.add(AgentPaused(), AgentPaused())
        assert listed(path).paused == ("main",)
        writer.add(AgentContinued())
        assert listed(path).paused == ()


def test_taking_words_back_leaves_what_waits_and_how_it_ended(path: Path) -> None:
    with Writer(path) as writer:
        writer.add(asked("main/2"), CancelRequested(target="prompt", prompt=1))
        assert listed(path).approvals == (2,)
