"""Splits a shell command line into stages: every simple command it may run, wherever it stands.

The commands inside subshells, substitutions, loops and here-documents are stages, and so is the command that a wrapper
(env, sudo, xargs, `sh -c`, `find -exec` ...) runs. Whoever asks may rely on one thing: no stage is left out. Where that
cannot be had the answer is None, or a stage says so (`opaque`, `odd`).
"""

import re
from typing import Final

from msgspec.structs import replace

from muse.decide.shelltext import DEPTH_MAX, STAGES_MAX, Stage, Unclear, Word, read
from muse.decide.wrappers import Inner, inner_commands, is_wrapper

__all__ = ["Stage", "Word", "loose_stages", "quoted", "stages"]

_SEPARATORS: Final = re.compile(r"[;&|\n\r(){}`<>\0]|\$\(")
_QUOTES: Final = str.maketrans("", "", "\"'\\")
_SAFE: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
LOOSE_CHARS_MAX: Final = 262_144


def stages(command: str) -> tuple[Stage, ...] | None:
    """All stages of `command`, wrappers before what they run; None when it cannot be split with certainty."""
    try:
        out: list[Stage] = []
        for stage in read(command):
            _add(stage, out, 0)
        return tuple(out)
    except Unclear:
        return None


def loose_stages(command: str) -> tuple[Stage, ...]:
    """A rough split that ignores quoting, to find a forbidden command in text that `stages` gave up on.

    It may name commands that would not run. Never use it to allow something.
    """
    parts = _SEPARATORS.split(command[:LOOSE_CHARS_MAX].replace("\\\n", ""))
    rough = (Stage(tuple(Word(text) for text in part.translate(_QUOTES).split())) for part in parts)
    return tuple(stage for stage in rough if stage.words)


def quoted(text: str) -> str:
    """`text` as one shell word."""
    if _SAFE.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def _add(stage: Stage, out: list[Stage], depth: int) -> None:
    if depth > DEPTH_MAX or len(out) >= STAGES_MAX:
        raise Unclear
    inners = inner_commands(stage)
    # a wrapper whose command comes only when it runs, as in `xargs nice`
    opaque = any(not inner.certain for inner in inners) or (stage.open and not inners and is_wrapper(stage))
    place = len(out)
    out.append(replace(stage, opaque=opaque))
    for inner in inners:
        for child in _children(inner, depth):
            _add(
                replace(child, parent=place, odd=stage.odd or child.odd, open=stage.open or child.open), out, depth + 1
            )


def _children(inner: Inner, depth: int) -> list[Stage]:
    if inner.code:
        try:
            return read(inner.code, depth + 1)
        except Unclear:
            if inner.dynamic:
                return []
            raise
    if not inner.words:
        return []
    return [Stage(inner.words, inner.assignments, open=inner.open)]
