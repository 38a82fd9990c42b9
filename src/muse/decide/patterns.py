"""The language of permission rules: `shell(git log *)`, `edit(src/**)`, `read(docs/*)`, `mcp__files__*`.

Parses a rule's text and answers whether its pattern fits words or a path. It does not know what follows from a match.
"""

import difflib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from muse.decide.shelltext import Word
from muse.errors import ConfigError

RULE_CHARS_MAX: Final = 4096

_TOOLS: Final = {
    "shell": "shell",
    "bash": "shell",
    "edit": "edit",
    "multiedit": "edit",
    "write": "write",
    "read": "read",
    "glob": "glob",
    "grep": "grep",
}
_RULE: Final = re.compile(r"(?P<tool>[A-Za-z_*][A-Za-z0-9_*.-]*)(?:\((?P<body>.*)\))?", re.DOTALL)
_WITH_BODY: Final = frozenset({"shell", "edit", "write", "read"})
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class Rule(msgspec.Struct, frozen=True):
    """One permission rule. `text` is what the person wrote; `pattern` is "" for a bare tool name."""

    text: str
    tool: str
    pattern: str = ""


class Token(msgspec.Struct, frozen=True):
    """One word of a shell pattern: alternating literal text and `*` (None)."""

    parts: tuple[str | None, ...]

    @property
    def star(self) -> bool:
        return self.parts == (None,)


_STAR: Final = Token((None,))


def parse_rule(text: object) -> Rule:
    """The rule that `text` writes. Raises ConfigError with a line that says what is wrong with it."""
    if not isinstance(text, str):
        raise ConfigError(f"a permission rule must be text, not {type(text).__name__}", hint='write "shell(git log *)"')
    written = text.strip()
    match = _RULE.fullmatch(written)
    if match is None or len(written) > RULE_CHARS_MAX or _UNPRINTABLE.search(written):
        raise ConfigError(
            f"not a permission rule: {_shown(written)}",
            hint="write TOOL or TOOL(PATTERN), such as shell(git log *) or edit(src/**)",
        )
    name, body = match["tool"], match["body"]
    tool = _TOOLS.get(name.casefold(), name)
    if body is not None and not body.strip():
        raise ConfigError(f"{_shown(written)}: the pattern is empty", hint=f"write {tool} for every use of it")
    if body is None or body.strip() == ("*" if tool == "shell" else "**"):
        _check_bare(tool, written)
        return Rule(written, tool)
    if tool not in _WITH_BODY:
        _check_bare(tool, written)
        raise ConfigError(
            f"{_shown(written)}: only shell, edit, write and read take a pattern", hint=f"write {tool} without (...)"
        )
    pattern = _shell_body(body, written) if tool == "shell" else _file_body(body, written)
    return Rule(written, tool, pattern)


def _check_bare(tool: str, written: str) -> None:
    """Refuse a likely misspelling; any other name may be a tool that a server adds."""
    if tool in _TOOLS.values() or "__" in tool or "*" in tool:
        return
    close = difflib.get_close_matches(tool.casefold(), _TOOLS, n=1, cutoff=0.75)
    if close:
        raise ConfigError(f"unknown tool in rule {_shown(written)}", hint=f"did you mean {_TOOLS[close[0]]}?")


def _shown(text: str) -> str:
    short = text if len(text) <= 80 else text[:77] + "..."
    return repr(short.encode("utf-8", "backslashreplace").decode())


def _shell_body(body: str, written: str) -> str:
    pattern = body.strip()
    if pattern.endswith(":*"):
        # the prefix form of other agents
        pattern = pattern[:-2] + " *"
    if not _tokens(pattern):
        raise ConfigError(f"{_shown(written)}: the quotes do not match", hint="close each ' and \" in the pattern")
    return pattern


def _file_body(body: str, written: str) -> str:
    pattern = body.strip()
    if pattern.startswith(("/", "~")) or re.match(r"[A-Za-z]:[\\/]", pattern):
        raise ConfigError(
            f"{_shown(written)}: file patterns are relative to the workspace",
            hint="files outside the workspace always ask (but for yolo), so no rule is needed for them",
        )
    pattern = pattern.removeprefix("./")
    if ".." in pattern.split("/"):
        raise ConfigError(f"{_shown(written)}: a file pattern cannot leave the workspace", hint="remove the ..")
    if not pattern or pattern.endswith("/"):
        pattern += "**"
    return pattern


# -- shell patterns ----------------------------------------------------------------------------------------------------


_PIECE: Final = re.compile(
    r"""'(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)" | \\(?P<escaped>.) | (?P<star>\*+) | (?P<gap>[ \t\n]+)
    | (?P<open>['"]) | (?P<plain>[^'"\\* \t\n]+ | \\)""",
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=1024)
def _tokens(pattern: str) -> tuple[Token, ...]:
    """The words of a shell pattern; quotes and backslashes make `*` literal. () when a quote is left open."""
    words: list[list[str | None]] = [[]]
    for match in _PIECE.finditer(pattern):
        kind, text = match.lastgroup, match[match.lastgroup or 0]
        if kind == "open":
            return ()
        if kind == "gap":
            words.append([])
        elif kind == "star":
            words[-1].append(None)
        elif kind == "double":
            _literal(words[-1], re.sub(r'\\(["\\$`])', r"\1", text))
        else:
            _literal(words[-1], text)
    return tuple(Token(tuple(parts)) for parts in words if parts)


def _literal(parts: list[str | None], text: str) -> None:
    last = parts[-1] if parts else None
    if last is None:
        parts.append(text)
    else:
        parts[-1] = last + text


def is_exact(rule: Rule) -> bool:
    """Whether a shell rule names one command with all its arguments, without `*`."""
    return bool(rule.pattern) and all(None not in token.parts for token in _tokens(rule.pattern))


def fits_words(
    rule: Rule, words: Sequence[Word], *, strict: bool = False, maybe: bool = False, anywhere: bool = False
) -> bool:
    """Whether a shell rule's pattern fits a command's words.

    A `*` alone stands for any number of words, elsewhere for characters in one static word that has no `..` in it.
    `strict` is for rules that forbid: /bin/rm is rm, whatever the case; a pattern of one word is that command with any
    arguments; a `*` at the end of the last word also takes the words that follow. `maybe`: words known only at run time
    fit any number of words. `anywhere`: the pattern may begin at any word.
    """
    tokens = _tokens(rule.pattern)
    if not tokens:
        return True
    if strict and (len(tokens) == 1 or tokens[-1].parts[-1] is None):
        tokens = (*tokens, _STAR)
    if anywhere:
        tokens = (_STAR, *tokens)
    # reachable[i]: the words so far fit the first i tokens; no backtracking, so no pattern is slow
    reachable = _past_stars(tokens, [True] + [False] * len(tokens))
    for position, word in enumerate(words):
        if maybe and (word.dynamic or word.glob):
            first = reachable.index(True)
            reachable = [False] * first + [True] * (len(reachable) - first)
            continue
        spellings = _spellings(word.text) if strict and (anywhere or not position) else (word.text,)
        wild = strict or not (word.dynamic or ".." in word.text.split("/"))
        reachable = _past_stars(tokens, _past_word(tokens, reachable, spellings, wild=wild))
        if True not in reachable:
            return False
        if reachable[-1] and tokens[-1].star:
            return True
    return reachable[-1]


def _past_word(tokens: Sequence[Token], reachable: list[bool], spellings: tuple[str, ...], *, wild: bool) -> list[bool]:
    """What is reachable after a word, given in its possible spellings; without `wild` no `*` fits a part of it."""
    following = [False] * len(reachable)
    for index, token in enumerate(tokens):
        if reachable[index] and token.star:
            following[index] = True
        elif reachable[index] and (wild or None not in token.parts):
            following[index + 1] = following[index + 1] or any(_fits(token.parts, text) for text in spellings)
    return following


def _past_stars(tokens: Sequence[Token], reachable: list[bool]) -> list[bool]:
    """A `*` may stand for no word at all."""
    for index, token in enumerate(tokens):
        if token.star and reachable[index]:
            reachable[index + 1] = True
    return reachable


def _spellings(text: str) -> tuple[str, ...]:
    last = text.rsplit("/", 1)[-1]
    return (text, last, text.casefold(), last.casefold())


def _fits(parts: Sequence[str | None], text: str) -> bool:
    """Whether literal parts occur in order, the first at the start and the last at the end."""
    if None not in parts:
        return "".join(part or "" for part in parts) == text
    head = parts[0] or ""
    tail = parts[-1] or ""
    if len(text) < len(head) + len(tail) or not text.startswith(head) or not text.endswith(tail):
        return False
    position, end = len(head), len(text) - len(tail)
    for part in parts[1:-1]:
        if part is not None:
            found = text.find(part, position, end)
            if found < 0:
                return False
            position = found + len(part)
    return True


# -- file patterns -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _segments(pattern: str) -> tuple[str, ...]:
    return tuple(part for part in pattern.split("/") if part not in {"", "."})


def fits_path(rule: Rule, path: str, *, strict: bool = False) -> bool:
    """Whether a file rule's pattern fits a workspace-relative path; "" (outside) fits only a bare rule.

    `*` stays within one segment, `**` crosses them. `strict` is for rules that forbid: letter case does not matter, and
    a folder's pattern fits what is in it.
    """
    if not rule.pattern:
        return True
    if not path:
        return False
    segments = _segments(path.casefold() if strict else path)
    reachable = {0}
    for part in _segments(rule.pattern.casefold() if strict else rule.pattern):
        following: set[int] = set()
        for position in reachable:
            if part == "**":
                following.update(range(position, len(segments) + 1))
            elif position < len(segments) and _fits(_segment_parts(part), segments[position]):
                following.add(position + 1)
        reachable = following
    return bool(reachable - {0}) if strict else len(segments) in reachable


def may_fit_path(rule: Rule, glob: str) -> bool:
    """Whether a shell's file name pattern may become a path that the rule, read strictly, fits. When in doubt: yes."""
    for ours, theirs in zip(_segments(rule.pattern.casefold()), _segments(glob.casefold()), strict=False):
        if "*" in ours:
            if "**" in ours or any(sign in theirs for sign in "*?["):
                return True
            if not _fits(_segment_parts(ours), theirs):
                return False
        elif not _fits(_segment_parts(re.sub(r"\[.*?\]|\?", "*", theirs)), ours):
            return False
    return True


@lru_cache(maxsize=1024)
def _segment_parts(pattern: str) -> tuple[str | None, ...]:
    parts: list[str | None] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        position += 1
        if char == "*":
            if not parts or parts[-1] is not None:
                parts.append(None)
        elif char == "\\" and position < len(pattern):
            _literal(parts, pattern[position])
            position += 1
        else:
            _literal(parts, char)
    return tuple(parts)


def quoted_path(path: str) -> str:
    """A path as a pattern that fits only this path."""
    return re.sub(r"([*\\])", r"\\\1", path)


def fits_tool(rule: Rule, tool: str) -> bool:
    """Whether a bare rule's name, in which `*` stands for any characters, is this tool."""
    return _fits(_segment_parts(rule.tool), tool)


def names_segment(rule: Rule, segment: str) -> bool:
    """Whether a file rule spells out a path segment such as `.git`."""
    return segment in _segments(rule.pattern)
