"""Any sequence of uses of a store, held against a plain list of what should stand in it."""

import hashlib
import shutil
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muse.errors import Busy, Conflict, Damaged, Fenced, InvalidEvent
from muse.log.memory import MemoryLog, MemoryPlace
from muse.log.protocol import Draft, Log, Ownership, Stored
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.testing.store import COMMANDS, Place, draft, header_of, opened

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
FEW = st.integers(0, 3)


class MemoryFolder:
    """The memory store as a place."""

    def __init__(self, folder: Path) -> None:
        pass

    def create(self, session: str) -> MemoryLog:
        self._place = MemoryPlace(session)
        return self.another()

    def another(self) -> MemoryLog:
        return MemoryLog(self._place, commands=COMMANDS)


class FileFolder:
    """The SQLite store as a place."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "s.muse"

    def create(self, session: str) -> SqliteLog:
        return SqliteLog.create(self._path, session, commands=COMMANDS)

    def another(self) -> SqliteLog:
        return SqliteLog.open(self._path, commands=COMMANDS)


@dataclass
class Entry:
    """What the model knows of one event."""

    id: str
    type: str
    body: bytes
    epoch: int


class StoreMachine(RuleBasedStateMachine):
    """One owner, one other process, and everything either may do."""

    make: type[MemoryFolder] | type[FileFolder]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="muse-machine-"))
        self.place: Place = self.make(self.folder)
        self.model: list[Entry] = []
        self.drafts: dict[str, Draft] = {}
        self.blobs: dict[str, bytes] = {}
        self.named: set[str] = set()
        self.ownership: Ownership | None = None
        self.epoch = 0

    @initialize()
    def begin(self) -> None:
        self.log: Log = self.place.create("s")
        self.other: Log = self.place.another()

    def teardown(self) -> None:
        if hasattr(self, "log"):
            report = verify(self.log, jobs=1)
            self.log.close()
            self.other.close()
            assert [row for row in report.rows if row.state == "failed"] == []
        shutil.rmtree(self.folder)

    # -- what is done

    @precondition(lambda self: self.ownership is None)
    @rule(by_other=st.booleans())
    def claim(self, by_other: bool) -> None:
        if by_other:
            self.log, self.other = self.other, self.log
        event = opened()
        ownership = self.log.claim(lambda claim: event)
        self.epoch += 1
        assert ownership.epoch == self.epoch
        self.ownership = ownership
        self._stands([event])

    @precondition(lambda self: self.ownership is not None)
    @rule()
    def release(self) -> None:
        assert self.ownership is not None
        self.ownership.release()
        self.ownership = None

    @precondition(lambda self: self.ownership is not None)
    @rule()
    def another_claim_is_refused(self) -> None:
        with pytest.raises(Busy):
            self.other.claim(lambda claim: opened())

    @precondition(lambda self: self.ownership is None)
    @rule()
    def an_append_without_ownership_is_refused(self) -> None:
        with pytest.raises(Fenced):
            self.log.append([draft()], [], len(self.model), self.epoch)

    @precondition(lambda self: self.ownership is not None)
    @rule(facts=FEW, decisions=FEW, behind=FEW, text=TEXT)
    def append(self, facts: int, decisions: int, behind: int, text: str) -> None:
        expected = max(len(self.model) - behind, 0)
        made = [draft("a.fact", {"text": text, "n": n}) for n in range(facts)]
        decided = [draft("a.decision", {"text": text, "n": n}) for n in range(decisions)]
        kept = expected == len(self.model)
        first = len(self.model) + 1
        done = self.log.append(made, decided, expected, self.epoch)
        self._stands(made + (decided if kept else []))
        assert (done.first, done.head.seq, done.decisions_kept) == (first, len(self.model), kept)

    @precondition(lambda self: self.ownership is not None)
    @rule(facts=FEW, decisions=FEW, behind=FEW)
    def append_deciding(self, facts: int, decisions: int, behind: int) -> None:
        expected = max(len(self.model) - behind, 0)
        made, decided = [draft("a.fact") for _ in range(facts)], [draft("a.decision") for _ in range(decisions)]
        first = len(self.model) + 1

        def derive(missed: list[Stored], at: int) -> list[Draft]:
            assert [header_of(event)["id"] for event in missed] == [entry.id for entry in self.model[expected:]]
            assert at == first
            return decided

        done = self.log.append_deciding(made, derive, expected, self.epoch)
        self._stands(made + decided)
        assert (done.first, done.head.seq, done.decisions_kept) == (first, len(self.model), True)

    @rule(by_other=st.booleans(), type_=st.sampled_from(sorted(COMMANDS)), text=TEXT)
    def submit(self, by_other: bool, type_: str, text: str) -> None:
        command = draft(type_, {"text": text})
        assert self._handle(by_other).submit(command) == len(self.model) + 1
        self._stands([command])

    @precondition(lambda self: self.model)
    @rule(by_other=st.booleans(), which=st.integers(0))
    def submit_again(self, by_other: bool, which: int) -> None:
        at = which % len(self.model)
        again = self.drafts[self.model[at].id]
        assert self._handle(by_other).submit(again) == at + 1

    @precondition(lambda self: self.model and self.ownership is not None)
    @rule(which=st.integers(0), fresh=FEW)
    def append_again(self, which: int, fresh: int) -> None:
        again = self.drafts[self.model[which % len(self.model)].id]
        new = [draft("a.fact") for _ in range(fresh)]
        self.log.append([again, *new], [], len(self.model), self.epoch)
        self._stands(new)

    @precondition(lambda self: self.model)
    @rule(which=st.integers(0))
    def the_same_id_for_another_event_is_refused(self, which: int) -> None:
        id_ = self.model[which % len(self.model)].id
        with pytest.raises(Conflict):
            self.other.submit(draft("note.added", {"other": True}, id=id_))
        if self.ownership is not None:
            with pytest.raises(Conflict):
                self.log.append([draft(), draft("a.fact", {"other": True}, id=id_)], [], len(self.model), self.epoch)

    @rule(by_other=st.booleans(), data=st.binary(max_size=200), times=st.sampled_from([1, 1_000]))
    def put_blob(self, by_other: bool, data: bytes, times: int) -> None:
        root, length = self._handle(by_other).put_blob(data * times, hashlib.sha256(data).digest())
        assert length == len(data) * times
        self.blobs[root] = data * times

    @precondition(lambda self: self.blobs)
    @rule(which=st.integers(0), wrong=st.booleans())
    def name_a_blob(self, which: int, wrong: bool) -> None:
        root = sorted(self.blobs)[which % len(self.blobs)]
        length = len(self.blobs[root])
        command = draft("note.added", {"text": "", "output": {"blob": root, "length": length + wrong}})
        if wrong:
            with pytest.raises(InvalidEvent):
                self.other.submit(command)
            return
        self.other.submit(command)
        self.named.add(root)
        self._stands([command])

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        if self.ownership is not None:
            self.ownership = None
            self.blobs = self._blobs_left()
        self.log = self.place.another()

    @rule(by_other=st.booleans())
    def reopen(self, by_other: bool) -> None:
        self._handle(by_other).reopen()

    @rule(version=st.integers(1, 2), state=st.binary(max_size=20))
    def save_and_load_a_checkpoint(self, version: int, state: bytes) -> None:
        seq = len(self.model)
        self.log.save_checkpoint(seq, version, state)
        assert self.other.load_checkpoint(version) == (seq, state)

    # -- what must hold

    @invariant()
    def both_handles_see_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        value = hashlib.sha256(b"\x03muse-log-1s").digest()
        seen = list(self.log.read())
        assert seen == list(self.other.read())
        assert [event.seq for event in seen] == list(range(1, len(self.model) + 1))
        for event, entry in zip(seen, self.model, strict=True):
            header = header_of(event)
            assert (header["id"], header["type"], header["epoch"]) == (entry.id, entry.type, entry.epoch)
            assert event.body == entry.body
            linked = hashlib.sha256(event.header).digest() + struct.pack(">I", event.count) + event.root
            value = hashlib.sha256(b"\x02" + value + linked).digest()
            assert event.hash == value
        assert self.log.head() == self.other.head()
        assert self.log.head().hash == value

    @invariant()
    def every_blob_is_there(self) -> None:
        for root, data in self.blobs.items():
            assert self.other.get_blob(root) == data

    def _handle(self, by_other: bool) -> Log:
        return self.other if by_other else self.log

    def _stands(self, drafts: list[Draft]) -> None:
        for one in drafts:
            self.model.append(Entry(one.id, one.type, one.body, self.epoch))
            self.drafts[one.id] = one

    def _blobs_left(self) -> dict[str, bytes]:
        """After a close by the owner: what is named is there; the rest may be swept, but never in part."""
        left = {}
        for root, data in self.blobs.items():
            try:
                assert self.other.get_blob(root) == data
            except Damaged:
                assert root not in self.named
            else:
                left[root] = data
        return left


class MemoryMachine(StoreMachine):
    make = MemoryFolder


class FileMachine(StoreMachine):
    make = FileFolder


_quick = settings(deadline=None, suppress_health_check=list(HealthCheck), stateful_step_count=30)


class TestMemory(MemoryMachine.TestCase):
    settings = settings(_quick, max_examples=60)


class TestFile(FileMachine.TestCase):
    settings = settings(_quick, max_examples=25)
