"""Ids of sessions: unique, and in the order in which sessions were made."""

import re

from muse.app import new_session_id


def test_ids_sort_by_the_time_of_their_making_to_the_millisecond() -> None:
    made = [new_session_id() for _ in range(2_000)]
    to_the_millisecond = [name[: len("20260102-030405-xx")] for name in made]
    assert to_the_millisecond == sorted(to_the_millisecond)
    assert len(set(to_the_millisecond)) > 1


def test_the_last_eight_characters_name_a_session() -> None:
    made = {new_session_id()[-8:] for _ in range(2_000)}
    assert len(made) == 2_000
    assert all(re.fullmatch(r"[0-9a-z]{8}", tail) for tail in made)
