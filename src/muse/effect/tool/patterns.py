"""Glob patterns and `.gitignore` rules, as ripgrep reads them.

`*` and `?` stay within one path component, `**` crosses them, `{a,b}` are alternatives, `[a-z]` and `[!a-z]` sets.
Of several rules the last that matches counts. Matching takes time in proportion to pattern times path, whatever the
pattern: these come from models and from repositories. Standard library only, because the fallback of `grep` is built
from this module. It must not know the file system.
"""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

ALTERNATIVES_MAX = 256
"""How many patterns one with braces may stand for."""

_ANY_DEPTH = None
_Component = re.Pattern[str] | None


class Glob:
    """A compiled pattern for whole relative paths. `depth` is the most slashes that a match has, None for any."""

    __slots__ = ("_alternatives", "depth")

    def __init__(self, pattern: str) -> None:
        """Raises ValueError, with what is wrong, for what is no pattern."""
        self._alternatives = [[_component(part) for part in one.split("/")] for one in _expanded(pattern)]
        depths = [None if _ANY_DEPTH in one else len(one) - 1 for one in self._alternatives]
        known = [depth for depth in depths if depth is not None]
        self.depth = max(known) if len(known) == len(depths) else None

    def matches(self, path: str) -> bool:
        """Whether the whole path matches."""
        parts = path.split("/")
        return any(_matches(one, parts) for one in self._alternatives)


def _matches(pattern: Sequence[_Component], parts: Sequence[str]) -> bool:
    """Component by component; `reached` holds how many parts may be used up so far."""
    reached = {0}
    for index, component in enumerate(pattern):
        if component is _ANY_DEPTH:
            first = min(reached) + (index == len(pattern) - 1)
            reached = set(range(first, len(parts) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and component.fullmatch(parts[at])}
        if not reached:
            return False
    return len(parts) in reached


def _component(part: str) -> _Component:
    """One component, by way of `fnmatch`, whose expressions never backtrack over more than one star."""
    if part == "**":
        return _ANY_DEPTH
    out: list[str] = []
    at = 0
    while at < len(part):
        if part[at] == "\\":
            if at + 1 == len(part):
                raise ValueError("a backslash with nothing after it")
            out.append(f"[{part[at + 1]}]" if part[at + 1] in "*?[" else part[at + 1])
            at += 2
        elif part[at] == "[":
            end = part.find("]", at + 2 + (part[at + 1 : at + 2] in ("!", "^")))
            if end < 0:
                raise ValueError("[ without ]")
            out.append("[!" + part[at + 2 : end + 1] if part[at + 1] == "^" else part[at : end + 1])
            at = end + 1
        else:
            out.append(part[at])
            at += 1
    return re.compile(fnmatch.translate("".join(out)))


def _expanded(pattern: str) -> list[str]:
    """The patterns without braces that a pattern stands for."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        one = todo.pop()
        span = _innermost(one)
        if span is None:
            done.append(one)
        else:
            start, commas, end = span
            edges = [start, *commas, end]
            todo += [one[:start] + one[a + 1 : b] + one[end + 1 :] for a, b in pairwise(edges)]
        if len(done) + len(todo) > ALTERNATIVES_MAX:
            raise ValueError(f"stands for more than {ALTERNATIVES_MAX} patterns")
    return done


def _innermost(pattern: str) -> tuple[int, list[int], int] | None:
    """Where the first innermost pair of braces begins, has its commas, and ends; None when there is none."""
    start, at, in_set = -1, 0, False
    commas: list[int] = []
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif in_set:
            in_set = char != "]"
        elif char == "[" and "]" in pattern[at + 2 :]:
            in_set = True
            at += pattern[at + 1] in "!^]"
        elif char == "{":
            start, commas = at, []
        elif char == ",":
            commas.append(at)
        elif char == "}":
            if start < 0:
                raise ValueError("} without {")
            return start, commas, at
        at += 1
    if start >= 0:
        raise ValueError("{ without }")
    return None


def literal_start(pattern: str) -> tuple[str, str]:
    """The leading folders of a glob that hold no wildcard, and the rest: `src/app/*.py` is `src/app` and `*.py`."""
    parts = pattern.split("/")
    count = 0
    while count < len(parts) - 1 and parts[count + 1 :] != [""] and not set(parts[count]) & set("*?[]{}\\"):
        count += 1
    plain = "/".join(parts[:count])
    return plain or ("/" if count else ""), "/".join(parts[count:])


class Rule:
    """One line of a `.gitignore`, or one glob: what it matches, whether only folders, whether it takes back."""

    __slots__ = ("_glob", "folders_only", "negated")

    def __init__(self, line: str) -> None:
        """Raises ValueError for what is no pattern."""
        self.negated = line.startswith("!")
        line = line[1:] if self.negated or line.startswith(("\\!", "\\#")) else line
        is_anchored = line.startswith("/")
        line = line[1:] if is_anchored else line
        self.folders_only = line.endswith("/")
        line = line[:-1] if self.folders_only else line
        if not is_anchored and "/" not in line and line != "**":
            line = "**/" + line
        self._glob = Glob(line + "/*" if line.endswith("/**") else line)

    def matches(self, path: str, is_folder: bool) -> bool:
        """Whether the rule is about this path, relative to where the rule stands."""
        return (is_folder or not self.folders_only) and self._glob.matches(path)


class Rules:
    """Rules in order; the last that matches decides."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)[::-1]

    def ignores(self, path: str, is_folder: bool) -> bool | None:
        """True: ignored, False: taken back by a `!` rule, None: no rule is about it."""
        for rule in self._rules:
            if rule.matches(path, is_folder):
                return not rule.negated
        return None


def gitignore(text: str) -> Rules:
    """The rules of a `.gitignore` file; lines that are no pattern are passed over, as git does."""
    rules = []
    for line in text.removeprefix("\ufeff").split("\n"):
        line = line.removesuffix("\r")
        line = line if line.endswith("\\ ") else line.rstrip()
        if not line or line.startswith("#") or line in ("/", "!"):
            continue
        try:
            rules.append(Rule(line))
        except ValueError:
            continue
    return Rules(rules)
