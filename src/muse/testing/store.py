"""The contract of `muse.log.protocol.Log` as tests: subclass `StoreConformance`, say how to open your store.

    class TestMyStore(StoreConformance):
        def place(self, folder):
            return MyPlace(folder)          # see `Place`

What stands here holds for every store, in memory, in a file or on a server. Expected values are worked out by hand or
with the standard library, never with the code under test.
"""

import hashlib
import hmac
import json
import secrets
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from muse.errors import Busy, Conflict, Damaged, Fenced, InvalidEvent, StoreUnavailable
from muse.log.protocol import PAGE_EVENTS, Claim, Draft, Head, Log, Stored
from muse.testing.drafts import (
    COMMANDS as COMMANDS,
)
from muse.testing.drafts import (
    TIME as TIME,
)
from muse.testing.drafts import (
    draft as draft,
)
from muse.testing.drafts import (
    header_of as header_of,
)
from muse.testing.drafts import (
    opened as opened,
)
from muse.testing.drafts import (
    own as own,
)
from muse.testing.drafts import (
    recording as recording,
)
from muse.testing.drafts import (
    refused as refused,
)
from muse.testing.drafts import (
    types_of as types_of,
)


class Place(Protocol):
    """Where one session is kept. Handles opened on it behave as those of different processes do."""

    def create(self, session: str) -> Log:
        """Make the session, without events, and return the first handle."""
        ...

    def another(self) -> Log:
        """A further handle on the session that `create` made."""
        ...


class _Case:
    """How each test gets its place; overridden by the store under test."""

    def place(self, folder: Path) -> Place:
        """A place inside an empty folder of its own."""
        raise NotImplementedError

    def two(self, folder: Path) -> tuple[Log, Log]:
        """A claimed handle and another one, on a new session `s`."""
        place = self.place(folder)
        log = place.create("s")
        own(log)
        return log, place.another()


class OwnershipCases(_Case):
    """One owner at a time, each with a higher epoch."""

    def test_a_new_log_is_empty(self, tmp_path: Path) -> None:
        log = self.place(tmp_path).create("some-session")
        assert log.session == "some-session"
        assert list(log.read()) == []
        assert log.head() == Head(0, hashlib.sha256(b"\x03muse-log-1some-session").digest())

    def test_a_claim_appends_the_opened_event(self, tmp_path: Path) -> None:
        log = self.place(tmp_path).create("s")
        asked: list[Claim] = []
        ownership = log.claim(recording(asked))
        assert asked == [Claim(1, False, Head(0, hashlib.sha256(b"\x03muse-log-1s").digest()))]
        assert ownership.epoch == 1
        (event,) = log.read()
        assert (header_of(event)["type"], header_of(event)["epoch"], event.seq) == ("session.opened", 1, 1)

    def test_a_second_handle_is_refused_while_the_first_owns(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        with refused(Busy):
            own(other)
        assert log.head().seq == other.head().seq == 1

    def test_the_owner_itself_cannot_claim_twice(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        with refused(Busy):
            own(log)

    def test_a_released_log_can_be_claimed_with_the_next_epoch(self, tmp_path: Path) -> None:
        log = self.place(tmp_path).create("s")
        first = own(log)
        first.release()
        first.release()
        assert own(log).epoch == 2

    def test_closing_gives_the_log_back(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        log.close()
        assert own(other).epoch == 2

    def test_holding_takes_the_lock_and_opens_nothing(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        with refused(Busy):
            other.hold()
        log.close()
        assert (other.hold().epoch, other.head().seq) == (1, 1)

    def test_an_append_after_release_is_fenced(self, tmp_path: Path) -> None:
        log = self.place(tmp_path).create("s")
        own(log).release()
        with refused(Fenced):
            log.append([draft()], [], 1, 1)
        assert log.head().seq == 1

    def test_an_append_without_a_claim_is_fenced(self, tmp_path: Path) -> None:
        _, other = self.two(tmp_path)
        with refused(Fenced):
            other.append([draft()], [], 1, 1)

    def test_an_append_with_another_epoch_is_fenced(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        for epoch in (0, 2):
            with refused(Fenced):
                log.append([draft()], [], 1, epoch)
        assert log.head().seq == 1

    def test_an_owner_that_was_released_does_not_win_back_by_epoch(self, tmp_path: Path) -> None:
        place = self.place(tmp_path)
        log = place.create("s")
        own(log).release()
        other = place.another()
        own(other)
        with refused(Fenced):
            log.append([draft()], [], 2, 2)

    def test_a_claim_after_a_crash_says_so(self, tmp_path: Path) -> None:
        log = self.place(tmp_path).create("s")
        own(log).release()
        asked: list[Claim] = []
        log.claim(recording(asked))
        assert asked[0].crashed

    def test_a_claim_after_a_close_says_no_crash_even_if_a_command_came_in_since(self, tmp_path: Path) -> None:
        place = self.place(tmp_path)
        log = place.create("s")
        ownership = own(log)
        log.append([], [draft("session.closed")], 1, 1)
        ownership.release()
        place.another().submit(draft("user.prompted"))
        asked: list[Claim] = []
        log.claim(recording(asked))
        assert not asked[0].crashed

    def test_a_claim_that_fails_to_build_leaves_nothing(self, tmp_path: Path) -> None:
        log = self.place(tmp_path).create("s")

        def fails(claim: Claim) -> Draft:
            raise LookupError

        with refused(LookupError):
            log.claim(fails)
        assert log.head().seq == 0
        assert own(log).epoch == 1


class AppendCases(_Case):
    """The owner's appends: in order, chained, once."""

    def test_events_stand_in_order_facts_before_decisions(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        done = log.append([draft("a.fact"), draft("b.fact")], [draft("c.decision")], 1, 1)
        assert (done.first, done.head.seq, done.decisions_kept) == (2, 4, True)
        assert types_of(log) == ["session.opened", "a.fact", "b.fact", "c.decision"]
        assert [event.seq for event in log.read()] == [1, 2, 3, 4]

    def test_the_header_holds_the_draft_and_its_place(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        one = draft("a.fact", id="0f" * 16, agent="main.2", cause=1, v=7)
        log.append([one], [], 1, 1)
        *_, event = log.read()
        assert event.header == (
            b'{"agent":"main.2","cause":1,"epoch":1,"id":"0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f","seq":2,'
            b'"time":"2026-01-31T12:00:00.000000Z","type":"a.fact","v":7}'
        )
        assert (event.body, event.key, event.count, event.root) == (one.body, one.key, one.count, one.root)

    def test_every_event_is_chained_to_the_one_before(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        log.append([draft()], [draft(), draft()], 1, 1)
        other.submit(draft("user.prompted"))
        log.append([draft()], [], 5, 1)
        value = hashlib.sha256(b"\x03muse-log-1s").digest()
        for event in log.read():
            linked = hashlib.sha256(event.header).digest() + struct.pack(">I", event.count) + event.root
            value = hashlib.sha256(b"\x02" + value + linked).digest()
            assert event.hash == value
        assert log.head() == Head(6, value)

    def test_the_body_comes_back_byte_for_byte(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        text = 'NUL \0 newline \n quote " tab \t é \u2028 \U0001f600 \x7f'
        log.append([draft(body={"text": text, "empty": {}, "list": []})], [], 1, 1)
        *_, event = log.read()
        assert event.body is not None
        assert json.loads(event.body) == {"text": text, "empty": {}, "list": []}

    def test_a_stale_head_keeps_the_facts_and_drops_the_decisions(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        other.submit(draft("user.prompted"))
        done = log.append([draft("a.fact")], [draft("b.decision")], 1, 1)
        assert (done.first, done.head.seq, done.decisions_kept) == (3, 3, False)
        assert types_of(log) == ["session.opened", "user.prompted", "a.fact"]

    def test_a_stale_head_shows_even_without_decisions(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        other.submit(draft("user.prompted"))
        assert not log.append([draft()], [], 1, 1).decisions_kept
        assert log.append([draft()], [], 3, 1).decisions_kept

    def test_an_append_said_again_changes_nothing(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        facts, decisions = [draft("a.fact"), draft("b.fact")], [draft("c.decision")]
        first = log.append(facts, decisions, 1, 1)
        again = log.append(facts, decisions, 1, 1)
        assert again.head == first.head
        assert again.decisions_kept
        assert log.head().seq == 4

    def test_only_what_is_new_in_an_append_is_added(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        old = draft("a.fact")
        log.append([old], [], 1, 1)
        done = log.append([old, draft("b.fact")], [draft("c.decision")], 2, 1)
        assert (done.first, done.head.seq, done.decisions_kept) == (3, 4, True)
        assert types_of(log) == ["session.opened", "a.fact", "b.fact", "c.decision"]

    def test_an_id_twice_in_one_append_is_one_event(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        one = draft()
        assert log.append([one, one], [], 1, 1).head.seq == 2

    def test_an_id_with_other_content_is_a_conflict_and_nothing_is_added(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        old = draft("a.fact")
        log.append([old], [], 1, 1)
        for other in (draft("b.fact", id=old.id), draft("a.fact", {"n": 2}, id=old.id)):
            with refused(Conflict):
                log.append([draft(), other], [], 2, 1)
            assert log.head().seq == 2
        assert log.append([draft()], [], 2, 1).head.seq == 3

    def test_an_empty_append_is_allowed(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        done = log.append([], [], 1, 1)
        assert (done.head, done.decisions_kept) == (log.head(), True)
        assert log.head().seq == 1

    def test_a_malformed_draft_is_refused_and_nothing_is_added(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        for wrong in ({"type": "No Type"}, {"agent": "me"}, {"time": "today"}, {"cause": 99}, {"key": b"short"}):
            with refused(InvalidEvent):
                log.append([draft(), draft(**wrong)], [], 1, 1)
            assert log.head().seq == 1

    def test_deciding_under_the_lock_sees_what_came_in(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        other.submit(draft("user.prompted"))
        other.submit(draft("note.added"))
        seen: list[object] = []

        def derive(missed: Sequence[Stored], first: int) -> list[Draft]:
            seen.append([header_of(event)["type"] for event in missed])
            seen.append(first)
            return [draft("b.decision")]

        done = log.append_deciding([draft("a.fact")], derive, 1, 1)
        assert seen == [["user.prompted", "note.added"], 4]
        assert (done.first, done.head.seq, done.decisions_kept) == (4, 5, True)
        assert types_of(log)[3:] == ["a.fact", "b.decision"]

    def test_deciding_that_fails_leaves_nothing(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)

        def fails(missed: object, first: int) -> list[Draft]:
            raise LookupError

        with refused(LookupError):
            log.append_deciding([draft()], fails, 1, 1)
        assert log.head().seq == 1
        assert log.append([draft()], [], 1, 1).head.seq == 2


class SubmitCases(_Case):
    """Commands come from anyone, once, and only those that the owner understands."""

    def test_a_command_gets_its_seq_and_the_epoch(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        assert other.submit(draft("user.prompted", {"text": "hello"})) == 2
        *_, event = log.read()
        assert (event.body, header_of(event)["epoch"]) == (b'{"text":"hello"}', 1)

    def test_the_owner_may_submit_too(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        assert log.submit(draft("user.prompted")) == 2
        assert log.append([draft()], [], 2, 1).decisions_kept

    def test_the_owner_may_name_a_command_of_another_as_the_cause(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        assert other.submit(draft("user.prompted")) == 2
        done = log.append([], [draft("model.requested", cause=2)], 2, 1)
        assert (done.first, done.decisions_kept) == (3, True)

    def test_the_same_command_again_is_the_same_event(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        command = draft("user.prompted")
        assert other.submit(command) == 2
        log.append([draft()], [], 2, 1)
        assert other.submit(command) == log.submit(command) == 2
        assert log.head().seq == 3

    def test_the_same_id_with_other_content_is_a_conflict(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        command = draft("user.prompted")
        other.submit(command)
        for wrong in (draft("user.prompted", {"text": "2"}, id=command.id), draft("note.added", id=command.id)):
            with refused(Conflict):
                other.submit(wrong)
        assert log.head().seq == 2

    def test_what_is_no_command_or_does_not_fit_its_type_is_refused(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        for wrong in (draft("tool.finished"), draft("user.prompted", {"n": 1}), draft("user.prompted", count=9)):
            with refused(InvalidEvent):
                other.submit(wrong)
        assert log.head().seq == 1

    def test_a_version_that_the_owner_does_not_list_is_refused(self, tmp_path: Path) -> None:
        place = self.place(tmp_path)
        log = place.create("s")
        own(log, {"user.prompted": 1})
        other = place.another()
        assert other.submit(draft("user.prompted", v=1)) == 2
        for command in (draft("user.prompted", v=2), draft("note.added")):
            with refused(InvalidEvent):
                other.submit(command)
        assert log.head().seq == 2

    def test_a_new_owner_brings_a_new_list(self, tmp_path: Path) -> None:
        place = self.place(tmp_path)
        log = place.create("s")
        own(log, {"user.prompted": 1}).release()
        other = place.another()
        with refused(InvalidEvent):
            other.submit(draft("user.prompted", v=2))
        own(log, {"user.prompted": 2})
        assert other.submit(draft("user.prompted", v=2)) == 3

    def test_before_any_owner_the_handle_s_own_list_counts(self, tmp_path: Path) -> None:
        log = self.place(tmp_path).create("s")
        assert log.submit(draft("user.prompted", v=2)) == 1
        with refused(InvalidEvent):
            log.submit(draft("user.prompted", v=3))
        asked: list[Claim] = []
        log.claim(recording(asked))
        assert not asked[0].crashed


class ReadCases(_Case):
    """Reading sees what is committed, in order, and holds nothing back from writers."""

    def test_both_bounds_are_exclusive(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        log.append([draft() for _ in range(5)], [], 1, 1)
        assert [event.seq for event in log.read(2)] == [3, 4, 5, 6]
        assert [event.seq for event in log.read(2, 5)] == [3, 4]
        assert [event.seq for event in log.read(before=3)] == [1, 2]
        assert [*log.read(2, 3), *log.read(6), *log.read(9, 2)] == []

    def test_more_than_a_page_is_read_whole(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        log.append([draft() for _ in range(2 * PAGE_EVENTS + 3)], [], 1, 1)
        assert [event.seq for event in log.read()] == list(range(1, 2 * PAGE_EVENTS + 5))

    def test_a_reader_in_the_middle_does_not_stop_writers_and_sees_what_they_add(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        log.append([draft() for _ in range(PAGE_EVENTS)], [], 1, 1)
        reading = other.read()
        assert next(reading).seq == 1
        log.append([draft()], [], PAGE_EVENTS + 1, 1)
        assert [event.seq for event in reading][-1] == PAGE_EVENTS + 2

    def test_headers_are_given_alone(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        log.append([draft() for _ in range(PAGE_EVENTS + 2)], [], 1, 1)
        assert list(log.headers(3)) == [(event.seq, event.header) for event in log.read(3)]
        assert list(log.headers(PAGE_EVENTS + 3)) == []

    def test_following_goes_on_with_what_is_added(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        stop = False
        following = other.follow(0, lambda: stop)
        assert next(following).seq == 1
        log.append([draft(), draft()], [], 1, 1)
        assert [next(following).seq, next(following).seq] == [2, 3]
        stop = True
        assert list(following) == []

    def test_changed_tells_of_others_once(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        log.changed()
        assert not log.changed()
        other.submit(draft("user.prompted"))
        assert log.changed()
        assert not log.changed()
        log.append([draft()], [], 2, 1)
        assert not log.changed()
        assert other.changed()

    def test_ids_are_found(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        one, two = draft(), draft()
        log.append([one, two], [], 1, 1)
        assert log.find([two.id, one.id, "00" * 16]) == {one.id: 2, two.id: 3}
        assert log.find([]) == {}

    def test_after_reopening_all_is_there_and_still_owned(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        log.append([draft()], [], 1, 1)
        before = log.head()
        log.reopen()
        assert log.head() == before
        assert log.append([draft()], [], 2, 1).head.seq == 3
        with refused(Busy):
            own(other)

    def test_where_there_is_space_there_is_room_and_asking_changes_nothing(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        before = log.head()
        assert log.room()
        assert not other.changed()
        assert log.head() == before

    def test_a_closed_log_refuses_everything(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        log.close()
        log.close()
        for use in (
            lambda: log.append([draft()], [], 1, 1),
            lambda: log.submit(draft("user.prompted")),
            lambda: list(log.read()),
            log.head,
            log.changed,
            log.room,
            lambda: own(log),
        ):
            with refused(StoreUnavailable):
                use()


class BlobCases(_Case):
    """Large content: whole, checked, and there before it is named."""

    def test_content_of_every_size_comes_back(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        for size in (0, 1, 65_535, 65_536, 65_537, 300_000):
            for data in (secrets.token_bytes(size), b"a" * size):
                root, length = log.put_blob(data, secrets.token_bytes(32))
                assert length == size
                assert log.get_blob(root) == other.get_blob(root) == data
                assert max(len(chunk) for chunk in log.stream_blob(root)) <= 65_536

    def test_many_contents_at_once_are_what_they_are_one_by_one(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        sizes = (0, 1, 100_000, 3_000_000, 2_000_000, 5_000_000, 7, 7)
        contents = [(secrets.token_bytes(size), secrets.token_bytes(32)) for size in sizes]
        contents.append(contents[1])
        found = log.put_blobs(contents)
        assert [other.get_blob(root) for root, _ in found] == [data for data, _ in contents]
        assert found == [log.put_blob(data, key) for data, key in contents]
        assert log.put_blobs([]) == []

    def test_a_small_blob_has_the_root_that_the_format_gives(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        key = bytes(range(32))
        salt = hmac.new(key, struct.pack(">I", 0), "sha256").digest()[:16]
        leaf = hashlib.sha256(b"\0" + salt + b"\x08" + struct.pack(">II", 0, 0) + b"content").digest()
        assert log.put_blob(b"content", key) == (leaf.hex(), 7)

    def test_parts_are_the_same_content_as_the_whole(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        key, data = secrets.token_bytes(32), secrets.token_bytes(200_000)
        parts = (data[start : start + 777] for start in range(0, len(data), 777))
        assert log.put_blob(parts, key) == log.put_blob(data, key)

    def test_the_key_of_a_blob_is_given_out(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        key = secrets.token_bytes(32)
        root, _ = log.put_blob(b"content", key)
        assert other.blob_key(root) == key
        with refused(Damaged):
            log.blob_key("00" * 32)

    def test_unknown_content_is_damage_not_emptiness(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        for root in ("00" * 32, "", "no root"):
            with refused(Damaged):
                log.get_blob(root)

    def test_an_event_cannot_name_what_is_not_there(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        root, length = log.put_blob(b"content", secrets.token_bytes(32))
        for blob, size in (("00" * 32, 7), (root, length + 1)):
            named = {"output": {"blob": blob, "length": size}}
            with refused(InvalidEvent):
                log.append([draft(), draft(body=named)], [], 1, 1)
            with refused(InvalidEvent):
                other.submit(draft("user.prompted", {"text": "1", **named}))
        assert log.head().seq == 1
        log.append([draft(body={"list": [{"deep": {"blob": root, "length": length}}]})], [], 1, 1)

    def test_text_that_looks_like_a_reference_names_nothing(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        assert log.append([draft(body={"text": '{"blob":"00","length":1}'})], [], 1, 1).head.seq == 2

    def test_closing_sweeps_what_no_event_names(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        named, length = log.put_blob(b"named" * 1000, secrets.token_bytes(32))
        unnamed, _ = log.put_blob(b"unnamed" * 1000, secrets.token_bytes(32))
        foreign, _ = other.put_blob(b"about to be named", secrets.token_bytes(32))
        log.append([draft(body={"output": {"blob": named, "length": length}})], [], 1, 1)
        log.close()
        assert other.get_blob(named) == b"named" * 1000
        assert other.get_blob(foreign) == b"about to be named"
        with refused(Damaged):
            other.get_blob(unnamed)
        own(other)
        other.close()

    def test_a_key_of_another_size_is_refused(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        with refused(InvalidEvent):
            log.put_blob(b"content", b"short")


class CheckpointCases(_Case):
    """Fold checkpoints: caches, by version and seq."""

    def test_the_newest_at_or_below_is_found(self, tmp_path: Path) -> None:
        log, other = self.two(tmp_path)
        assert log.load_checkpoint(1) is None
        log.save_checkpoint(10, 1, b"ten")
        log.save_checkpoint(1000, 1, b"thousand")
        log.save_checkpoint(1000, 1, b"thousand again")
        assert other.load_checkpoint(1) == (1000, b"thousand again")
        assert other.load_checkpoint(1, 1000) == (1000, b"thousand again")
        assert other.load_checkpoint(1, 999) == (10, b"ten")
        assert other.load_checkpoint(1, 9) is None

    def test_versions_do_not_mix(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        log.save_checkpoint(10, 1, b"old rules")
        assert log.load_checkpoint(2) is None

    def test_few_are_kept(self, tmp_path: Path) -> None:
        log, _ = self.two(tmp_path)
        for seq in range(1, 200):
            log.save_checkpoint(seq, 1, b"%d" % seq)
        kept = {log.load_checkpoint(1, before) for before in range(1, 200)} - {None}
        assert (199, b"199") in kept
        assert 2 <= len(kept) <= 10


class StoreConformance(OwnershipCases, AppendCases, SubmitCases, ReadCases, BlobCases, CheckpointCases):
    """All of the contract; subclass this one and define `place`."""
