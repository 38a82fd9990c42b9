"""Reads a POSIX shell command line into the simple commands it would run.

This is a safety border: it must never see fewer commands than a shell would run. So it understands little and refuses
the rest: whatever bash and dash read differently, whatever only a full shell grammar could tell, and characters that
show a person something else than they do, raise `Unclear`. It knows nothing of rules, nor of what a command does.
"""

import re
import unicodedata
from typing import Final

import msgspec

COMMAND_CHARS_MAX: Final = 65_536
DEPTH_MAX: Final = 16
STAGES_MAX: Final = 512

BLANKS: Final = " \t"
META: Final = " \t\n;&|()<>"
_OPENERS: Final = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{"})
_CLOSERS: Final = frozenset({"fi", "done", "}"})
_REFUSED: Final = frozenset({"case", "esac", "select", "function", "coproc", "[[", "]]"})
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_SUBSCRIPT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[.*=")
# only forms that neither assign nor evaluate what a variable holds: not ${!x}, ${x@P}, ${x:=y}, ${x:y}
_PARAMETER: Final = re.compile(
    r"\{#?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*?#$!-])"
    r"(?::[0-9]+(?::[0-9]+)?|:?[-+?][A-Za-z0-9_ ./:%#*?,+=@-]*|[%#/^,][A-Za-z0-9_ ./:%#*?,+=@-]*)?\}"
)
# shells and programs read no variable of such a name; PATH, HOME and IFS are set by a loop as by an assignment
_LOOP_NAME: Final = re.compile(r"[a-z][a-z0-9_]*|[A-Z]|_[a-z0-9_]+")
_SPECIAL: Final = set("|&;<>()$`\\\"'*?[]#~=%!{}")
_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS: Final = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_REDIRECTIONS: Final = ("<<<", "<<-", "<<", "<&", "<>", "<(", ">>", ">|", ">&", ">(", "<", ">")


def names(text: str) -> frozenset[str]:
    """The words of `text`, for the tables of command names."""
    return frozenset(text.split())


class Unclear(Exception):
    """The text cannot be split with certainty."""


class Word(msgspec.Struct, frozen=True):
    """One word, quotes removed; expansions stand in `text` as they were written.

    `dynamic`: what it will be is known only when it runs. `glob`: it may become several file names. `quoted`: some of
    it was quoted, so it is no keyword.
    """

    text: str
    dynamic: bool = False
    glob: bool = False
    quoted: bool = False


class Stage(msgspec.Struct, frozen=True):
    """One simple command. `writes` and `reads` are the files of its redirections.

    `parent` is the index of the wrapper that runs it, or -1. `opaque`: it runs code that the text does not show.
    `open`: more arguments come when it runs. `odd`: shells disagree about how to read it. `fed`: the line holds text
    for its standard input (a here-document or here-string).
    """

    words: tuple[Word, ...] = ()
    assignments: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    reads: tuple[Word, ...] = ()
    parent: int = -1
    opaque: bool = False
    open: bool = False
    odd: bool = False
    fed: bool = False

    @property
    def name(self) -> str:
        """The command's last path part, "" when the stage only assigns or redirects."""
        return self.words[0].text.rsplit("/", 1)[-1] if self.words else ""


class _Draft:
    """The command being read."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.assignments: list[Word] = []
        self.writes: list[Word] = []
        self.reads: list[Word] = []
        self.odd = False
        self.fed = False
        self.closed = False

    def empty(self) -> bool:
        return not (self.words or self.assignments or self.writes or self.reads or self.closed)

    def stage(self) -> Stage:
        return Stage(
            tuple(self.words),
            tuple(self.assignments),
            tuple(self.writes),
            tuple(self.reads),
            odd=self.odd,
            fed=self.fed,
        )


class _Spelling:
    """The word being read: its text, and beside it the text with quoted characters blanked out."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.plain: list[str] = []
        self.dynamic = False
        self.quoted = False
        self.odd = False

    def bare(self, char: str) -> None:
        self.text.append(char)
        self.plain.append(char)

    def literal(self, text: str) -> None:
        self.quoted = True
        self.text.append(text)
        self.plain.append("\0" * len(text))

    def expansion(self, raw: str, *, dynamic: bool = True) -> None:
        self.text.append(raw)
        self.plain.append("\0" * len(raw))
        self.dynamic = self.dynamic or dynamic

    def word(self) -> Word:
        plain = "".join(self.plain)
        braces = "{" in plain and "}" in plain and ("," in plain or ".." in plain)
        glob = "*" in plain or "?" in plain or ("[" in plain and "]" in plain and len(plain) > 1)
        return Word("".join(self.text), self.dynamic or braces, glob, self.quoted)


def read(command: str, depth: int = 0) -> list[Stage]:
    """All simple commands in `command`, those of substitutions included. Raises Unclear."""
    if len(command) > COMMAND_CHARS_MAX or depth > DEPTH_MAX:
        raise Unclear
    refuse_strange_characters(command)
    reader = _Reader(command, depth, [])
    reader.run("")
    return reader.out


def refuse_strange_characters(text: str) -> None:
    """Raises Unclear for control and invisible characters, strange spaces, and look-alikes of shell syntax."""
    if _CONTROL.search(text):
        raise Unclear
    if text.isascii():
        return
    for char in set(text):
        if char.isascii():
            continue
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Cn", "Co", "Zs", "Zl", "Zp"}:
            raise Unclear
        if not _SPECIAL.isdisjoint(unicodedata.normalize("NFKC", char)):
            raise Unclear


class _Reader:
    def __init__(self, text: str, depth: int, out: list[Stage]) -> None:
        if depth > DEPTH_MAX:
            raise Unclear
        self.text = text
        self.at = 0
        self.depth = depth
        self.out = out
        self.pending: list[tuple[str, bool, bool]] = []

    def peek(self, ahead: int = 0) -> str:
        return self.text[self.at + ahead : self.at + ahead + 1]

    def skip_blanks(self) -> None:
        while True:
            if self.peek() and self.peek() in BLANKS:
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            else:
                return

    def finish(self, draft: _Draft) -> _Draft:
        stage = draft.stage()
        if stage != Stage():
            self.out.append(stage)
        if len(self.out) > STAGES_MAX:
            raise Unclear
        return _Draft()

    def run(self, closer: str) -> None:
        """Read commands up to `closer` (")" or, for "", the end of the text)."""
        draft = _Draft()
        while True:
            self.skip_blanks()
            char = self.peek()
            if char == closer:
                self.finish(draft)
                self.at += 1
                if self.pending:
                    raise Unclear
                return
            if char in {"", ")"}:
                raise Unclear
            draft = self.step(char, draft)

    def step(self, char: str, draft: _Draft) -> _Draft:
        """Read one token."""
        if char == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
            return draft
        if char == "\n":
            self.at += 1
            draft = self.finish(draft)
            self.heredocs()
            return draft
        if char in ";&|":
            return self.operator(char, draft)
        if char == "(":
            return self.subshell(draft)
        if char in "<>":
            self.redirection(draft)
            return draft
        return self.take(draft)

    def operator(self, char: str, draft: _Draft) -> _Draft:
        two = self.text[self.at : self.at + 2]
        if two == "&>":
            # bash redirects both streams, dash runs in the background and then redirects
            self.at += 1
            draft.odd = True
            self.redirection(draft)
            return draft
        if two in {";;", ";&", "&;", "|;", "&|"}:
            raise Unclear
        self.at += 2 if two in {"&&", "||", "|&"} else 1
        if self.text.startswith("\\\n", self.at):
            raise Unclear
        return self.finish(draft)

    def subshell(self, draft: _Draft) -> _Draft:
        if not draft.empty() or self.peek(1) == "(":
            raise Unclear
        self.at += 1
        self.nested(")")
        draft.closed = True
        return draft

    def nested(self, closer: str) -> None:
        if self.pending:
            raise Unclear
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise Unclear
        self.run(closer)
        self.depth -= 1

    # -- words ------------------------------------------------------------------------------------------------------

    def take(self, draft: _Draft) -> _Draft:
        """Read a word and put it where it belongs: file descriptor, keyword, assignment or argument."""
        spelling = self.spell()
        word = spelling.word()
        plain = "".join(spelling.plain)
        draft.odd = draft.odd or spelling.odd
        if self.peek() in {"<", ">"} and plain.isdigit():
            return draft
        if draft.closed or (self.peek() in {"<", ">"} and plain.startswith("{") and plain.endswith("}")):
            raise Unclear
        if draft.empty() and not word.quoted and not word.dynamic and self.keyword(word, draft):
            # `time` stands before a command or a group; what follows is the command
            return self.finish(draft) if draft.words else draft
        if draft.words:
            draft.words.append(word)
        elif _SUBSCRIPT.match(plain):
            raise Unclear
        elif _ASSIGNMENT.match(plain):
            draft.assignments.append(word)
        elif word.text.startswith("-") or not word.text:
            raise Unclear
        else:
            draft.words.append(word)
        return draft

    def keyword(self, word: Word, draft: _Draft) -> bool:
        """Whether the first word of a command is a keyword that this reader knows; it then acts on it."""
        if word.text in _REFUSED:
            raise Unclear
        if word.text in _CLOSERS:
            draft.closed = True
        elif word.text == "for":
            self.loop_header()
        elif word.text == "time":
            draft.words.append(word)
        else:
            return word.text in _OPENERS
        return True

    def loop_header(self) -> None:
        """`for NAME [in WORD...]`, up to the separator."""
        self.skip_blanks()
        if not _LOOP_NAME.fullmatch(self.spell().word().text):
            raise Unclear
        self.skip_blanks()
        if self.text.startswith("in", self.at) and self.text[self.at + 2 : self.at + 3] in {" ", "\t"}:
            self.at += 2
            self.skip_blanks()
            while self.peek() not in {";", "\n", ""}:
                if self.peek() in META:
                    raise Unclear
                self.spell()
                self.skip_blanks()

    def spell(self) -> _Spelling:
        spelling = _Spelling()
        start = self.at
        while (char := self.peek()) and char not in META:
            if char == "\\":
                self.backslash(spelling)
            elif char == "'":
                spelling.literal(self.until_quote())
            elif char == '"':
                self.at += 1
                self.double_quoted(spelling)
            elif char == "$":
                self.dollar(spelling, quoted=False)
            elif char == "`":
                self.backtick(spelling)
            else:
                spelling.bare(char)
                self.at += 1
        if self.at == start or char == "(":
            raise Unclear
        if self.pending and "\n" in self.text[start : self.at]:
            raise Unclear
        return spelling

    def backslash(self, spelling: _Spelling) -> None:
        following = self.peek(1)
        if not following:
            raise Unclear
        self.at += 2
        if following != "\n":
            spelling.literal(following)

    def until_quote(self) -> str:
        """The text of a '...' string; `at` stands on its opening quote."""
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unclear
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside

    def double_quoted(self, spelling: _Spelling) -> None:
        spelling.quoted = True
        while (char := self.peek()) != '"':
            if not char:
                raise Unclear
            if char == "\\":
                following = self.peek(1)
                if following in set('$`"\\'):
                    spelling.literal(following)
                elif following != "\n":
                    spelling.literal(char + following)
                self.at += 2
            elif char == "$":
                self.dollar(spelling, quoted=True)
            elif char == "`":
                self.backtick(spelling)
            else:
                spelling.literal(char)
                self.at += 1
        self.at += 1

    def dollar(self, spelling: _Spelling, *, quoted: bool) -> None:
        start = self.at
        following = self.peek(1)
        if following in {"[", "\\"} and (following == "[" or self.peek(2) == "\n"):
            raise Unclear
        if following == "(":
            if self.peek(2) == "(" or self.text.startswith("\\\n", self.at + 2):
                raise Unclear
            self.at += 2
            self.nested(")")
            spelling.expansion(self.text[start : self.at])
        elif following == "{":
            match = _PARAMETER.match(self.text, self.at + 1)
            if match is None:
                raise Unclear
            self.at = match.end()
            spelling.expansion(match[0])
        elif following and following in "'\"" and not quoted:
            spelling.odd = True
            self.at += 1
            if following == "'":
                spelling.literal(_decoded(self.until_quote()))
        elif match := _NAME.match(self.text, self.at + 1):
            self.at = match.end()
            spelling.expansion(self.text[start : self.at])
        else:
            self.sign(spelling, following)

    def sign(self, spelling: _Spelling, following: str) -> None:
        """`$?`, `$#` and `$$` are always a number; `$1`, `$@` and the like can be anything; else a dollar sign."""
        if following and following in "?#$":
            self.at += 2
            spelling.expansion("$" + following, dynamic=False)
        elif following and (following in "@*!-" or following.isdigit()):
            self.at += 2
            spelling.expansion("$" + following)
        else:
            self.at += 1
            spelling.literal("$")

    def backtick(self, spelling: _Spelling) -> None:
        end = self.text.find("`", self.at + 1)
        if end < 0 or self.pending:
            raise Unclear
        inside = self.text[self.at + 1 : end]
        if "\\" in inside:
            raise Unclear
        _Reader(inside, self.depth + 1, self.out).run("")
        spelling.expansion(self.text[self.at : end + 1])
        self.at = end + 1

    # -- redirections -----------------------------------------------------------------------------------------------

    def redirection(self, draft: _Draft) -> None:
        sign = next(sign for sign in _REDIRECTIONS if self.text.startswith(sign, self.at))
        if sign in {"<(", ">("}:
            self.process_substitution(draft)
            return
        self.at += len(sign)
        if self.text.startswith("\\\n", self.at):
            raise Unclear
        self.skip_blanks()
        spelling = self.spell()
        draft.odd = draft.odd or spelling.odd
        self.aim(sign, spelling.word(), draft)

    def aim(self, sign: str, target: Word, draft: _Draft) -> None:
        """Note what a redirection reads or writes."""
        if sign in {"<<", "<<-"}:
            if target.dynamic:
                raise Unclear
            draft.fed = True
            self.pending.append((target.text, sign == "<<-", not target.quoted))
        elif sign in {"<&", ">&"} and re.fullmatch(r"[0-9]+-?|-", target.text):
            return
        elif sign == "<":
            draft.reads.append(target)
        elif sign == "<&":
            raise Unclear
        elif sign == "<<<":
            draft.fed = True
        else:
            draft.writes.append(target)

    def process_substitution(self, draft: _Draft) -> None:
        start = self.at
        if draft.closed:
            raise Unclear
        self.at += 2
        self.nested(")")
        if self.peek() and self.peek() not in META:
            raise Unclear
        draft.words.append(Word(self.text[start : self.at], dynamic=True))

    def heredocs(self) -> None:
        """Read the bodies that are due after this newline."""
        waiting, self.pending = self.pending, []
        for delimiter, strip_tabs, expands in waiting:
            lines = []
            while True:
                end = self.text.find("\n", self.at)
                if self.at >= len(self.text):
                    raise Unclear
                line = self.text[self.at : len(self.text) if end < 0 else end]
                self.at = len(self.text) if end < 0 else end + 1
                shown = line.lstrip("\t") if strip_tabs else line
                if shown == delimiter:
                    break
                if self.depth and shown.startswith(delimiter) and ")" in shown:
                    # inside $( ) bash also ends it at `EOF)`
                    raise Unclear
                lines.append(line)
            if expands:
                self.expand("\n".join(lines))

    def expand(self, body: str) -> None:
        """Find the substitutions in the body of a here-document whose delimiter was not quoted."""
        if "\\\n" in body or body.endswith("\\"):
            raise Unclear
        reader = _Reader(body, self.depth + 1, self.out)
        spelling = _Spelling()
        while char := reader.peek():
            if char == "\\":
                reader.at += 2
            elif char == "$":
                reader.dollar(spelling, quoted=True)
            elif char == "`":
                reader.backtick(spelling)
            else:
                reader.at += 1


def _decoded(text: str) -> str:
    """The string that bash makes of $'text'. A quote inside cannot occur here; a zero byte would cut the string."""

    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
        elif code[0] in "01234567":
            number = int(code, 8) & 0xFF
        elif code in _LETTERS:
            return _LETTERS[code]
        elif code in {"\\", '"', "?"}:
            return code
        else:
            raise Unclear
        if not 0 < number < 0x80:
            raise Unclear
        return chr(number)

    if text.endswith("\\"):
        # an escaped quote: bash goes on, dash ends the string here
        raise Unclear
    return _ESCAPE.sub(one, text)
