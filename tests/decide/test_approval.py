"""What a person is shown: control characters visible, and no dearer for texts that hold none."""

import sys
from types import FrameType

from muse.decide.approval import SHOWN_CHARACTERS_MAX, visible


def test_what_hides_or_turns_text_is_shown_by_its_number_and_all_else_as_it_is() -> None:
    assert visible("a\tb\nc \u00e9 \u202f \u2065 \U0001f600") == "a\tb\nc \u00e9 \u202f \u2065 \U0001f600"
    hidden = "\x00\x08\x0b\r\x1b\x1f\x7f\x85\x9f\u202a\u202e\u2066\u2069\ud800\udfff"
    told = r"\u0000\u0008\u000b\u000d\u001b\u001f\u007f\u0085\u009f\u202a\u202e\u2066\u2069\ud800\udfff"
    assert visible(hidden) == told
    assert visible("\x1b" * 30_000).count(r"\u001b") == SHOWN_CHARACTERS_MAX


def test_a_long_text_is_not_gone_through_character_by_character() -> None:
    """A verifier asks again for each event what is due: of a batch of a hundred approvals, ten thousand times."""
    calls = 0

    def count(frame: FrameType, event: str, value: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        visible("x" * SHOWN_CHARACTERS_MAX)
    finally:
        sys.setprofile(None)
    assert calls < 10
