"""The part of a store's contract that is about taking a session over, and about what others did meanwhile."""

from collections.abc import Sequence
from pathlib import Path

from muse.errors import Fenced, InvalidEvent
from muse.log.protocol import Claim, Draft
from muse.testing.store import Place, draft, header_of, opened, own, refused, types_of


class TakingConformance:
    """To be inherited beside `StoreConformance`."""

    def place(self, folder: Path) -> Place:
        """A place inside an empty folder of its own."""
        raise NotImplementedError

    def test_a_claim_appends_what_belongs_to_it_in_the_same_transaction(self, tmp_path: Path) -> None:
        log = self.place(tmp_path).create("s")

        def also(claim: Claim) -> Sequence[Draft]:
            return [draft("ownership.taken", {"epoch": claim.epoch}, cause=claim.head.seq + 1)]

        log.claim(lambda _: opened(), also)
        assert types_of(log) == ["session.opened", "ownership.taken"]
        assert [header_of(event)["epoch"] for event in log.read()] == [1, 1]

    def test_who_seizes_a_session_fences_its_owner(self, tmp_path: Path) -> None:
        place = self.place(tmp_path)
        log = place.create("s")
        own(log)
        other = place.another()
        assert other.claim(lambda _: opened(), seize=True).epoch == 2
        with refused(Fenced):
            log.append([draft()], [draft()], 1, 1)
        assert other.append([draft()], [], 2, 2).head.seq == 3
        assert types_of(other) == ["session.opened", "session.opened", "tool.finished"]

    def test_what_was_missed_is_read_in_order(self, tmp_path: Path) -> None:
        place = self.place(tmp_path)
        log = place.create("s")
        own(log)
        for n in range(3):
            place.another().submit(draft("user.prompted", {"text": str(n)}))
        assert [event.seq for event in log.missed(1)] == [2, 3, 4]
        assert list(log.missed(4)) == []
        assert log.append([draft()], [draft()], 4, 1).decisions_kept

    def test_what_was_said_before_the_owner_first_read_its_log_is_no_gap(self, tmp_path: Path) -> None:
        place = self.place(tmp_path)
        log = place.create("s")
        own(log)
        for n in range(3):
            place.another().submit(draft("user.prompted", {"text": str(n)}))
        assert [event.seq for event in log.missed(3)] == [4]
        assert list(log.missed(4)) == []
        assert log.append([draft()], [draft()], 4, 1).decisions_kept

    def test_another_handle_of_this_process_writes_into_the_same_log(self, tmp_path: Path) -> None:
        log = self.place(tmp_path).create("s")
        own(log)
        second = log.another()
        assert second.submit(draft("user.prompted")) == 2
        root, _ = second.put_blob(b"some content", b"k" * 32)
        assert log.get_blob(root) == b"some content"
        second.close()
        assert log.append([draft()], [], 2, 1).head.seq == 3

    def test_a_command_without_a_right_id_is_refused(self, tmp_path: Path) -> None:
        place = self.place(tmp_path)
        log = place.create("s")
        own(log)
        for wrong in ("", "x" * 32, "A" * 32, "0" * 31):
            with refused(InvalidEvent):
                place.another().submit(draft("user.prompted", id=wrong))
        assert log.head().seq == 1
