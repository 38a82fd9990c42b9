"""Checkpoints are caches: equal to a full fold, and gone without harm."""

from pathlib import Path

import msgspec
import pytest

from muse.event.kinds import NoteAdded, UserPrompted
from muse.fold.state import STATE_VERSION
from muse.runtime.checkpoint import fold, read_state, write_state
from tests.runtime.rig import Rig, steps


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path, steps(3))
    made.submit(UserPrompted(text="go"))
    made.run()
    return made


def test_a_fold_from_every_checkpoint_equals_the_full_fold(rig: Rig) -> None:
    log = rig.handle()
    head = log.head().seq
    whole = fold(log, checkpoints=False)
    for seq in range(1, head + 1):
        log.save_checkpoint(seq, STATE_VERSION, write_state(fold(log, before=seq + 1, checkpoints=False)))
        assert fold(log) == whole
    log.close()


def test_a_checkpoint_that_cannot_be_read_is_passed_over(rig: Rig) -> None:
    log = rig.handle()
    whole = fold(log, checkpoints=False)
    log.save_checkpoint(3, STATE_VERSION, b"\xc1 rubbish")
    assert fold(log) == whole
    log.save_checkpoint(4, STATE_VERSION, msgspec.msgpack.encode({"session": 5}))
    assert fold(log) == whole
    log.close()


def test_a_checkpoint_of_another_version_is_not_used(rig: Rig) -> None:
    log = rig.handle()
    wrong = fold(log, before=3, checkpoints=False)
    wrong.seq = log.head().seq
    log.save_checkpoint(wrong.seq, STATE_VERSION + 1, write_state(wrong))
    assert fold(log) == fold(log, checkpoints=False)
    log.close()


def test_a_checkpoint_of_another_session_is_not_used(rig: Rig) -> None:
    log = rig.handle()
    whole = fold(log, checkpoints=False)
    other = msgspec.structs.replace(fold(log, before=4, checkpoints=False), session="another")
    log.save_checkpoint(3, STATE_VERSION, write_state(other))
    assert fold(log) == whole
    log.close()


def test_a_state_survives_its_bytes(rig: Rig) -> None:
    log = rig.handle()
    log.close()
    state = fold(rig.handle())
    assert read_state(write_state(state)) == state
    rig.submit(NoteAdded(text="later"))
    assert fold(rig.handle()).seq == state.seq + 1
