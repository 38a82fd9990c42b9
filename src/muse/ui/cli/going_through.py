"""`muse approvals -i`: what waits, one after the other, with the keys of the question at a session's own terminal.

The session may be run by another process or by nobody; an answer goes through its log like any other. What is answered
elsewhere meanwhile goes away. This module must not know the rules that led to a request.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from muse import app
from muse.errors import UsageError
from muse.event.kinds import CancelRequested
from muse.ui.cli import slash
from muse.ui.cli.address import Address
from muse.ui.cli.answering import decided, replied
from muse.ui.cli.asking import (
    LOOKS,
    approval_help,
    begun_line,
    denial,
    offered,
    option_lines,
    question_help,
    shown_lines,
)
from muse.ui.cli.change import change_lines
from muse.ui.cli.finding import short_id
from muse.ui.cli.inbox import Waiting, when_and_where
from muse.ui.cli.live import Live
from muse.ui.cli.person import Terminal
from muse.ui.cli.speaking import CLIENT, Listener, listening
from muse.view.visible import one_line

LOOK_SECONDS: Final = 0.5
"""How often to look whether somebody else has answered."""
KEYS: Final = "n no  c cancel the turn  s later  q leave > "
KEYS_HELP: Final = "c: cancel the turn; s: leave it for later; q: leave all"

_T = TypeVar("_T")


class _Elsewhere(Exception):
    """It needs no answer any more."""


class GoingThrough:
    """`later` names what was left as it is; `goes_on` until the person leaves."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live = Live(as_json=False, quiet=False)
        self.goes_on = True
        self.later: list[str] = []

    async def through(self, found: list[Waiting]) -> None:
        """Ask about one after the other."""
        for at, one in enumerate(found, 1):
            if not self.goes_on:
                self.later.append(one.address)
                continue
            address = Address(short_id(one.session), one.event.agent, one.event.seq)
            with listening(one.path, address, f"approvals -i {one.address}") as to:
                try:
                    if not self._is_open(to, one):
                        raise _Elsewhere
                    self._show(one, f"{at} of {len(found)}")
                    await (self._request(to, one) if one.question is None else self._question(to, one))
                except _Elsewhere:
                    self._live.answered("(it needs no answer any more)")
                except UsageError as error:
                    self._live.say(f"{error}{f'; {error.hint}' if error.hint else ''}", "31")
                if not to.pid and one.address not in self.later:
                    self._live.say(f"  nobody runs this session: it takes effect at muse resume {to.name}", "2")

    def _show(self, one: Waiting, place: str) -> None:
        live = self._live
        live.say()
        what = "asks" if one.question is not None else "asks: may this run?"
        rule = f"  {one_line(one.request.rule)}" if one.question is None else ""
        live.say(f"? {one.agent} {what}   {one.address}  {when_and_where(one)}  ({place}){rule}", "33")
        if one.question is not None:
            shown_lines(live, one.question.text)
            for line in option_lines(one.question.options):
                live.say(line)
            return
        shown_lines(live, one.request.shown)
        for change in change_lines(one.request.tool, one.args, one.workspace):
            live.say(f"  {change.text}", LOOKS.get(change.look, ""))

    async def _request(self, to: Listener, one: Waiting) -> None:
        remember = one.request.remember
        rule, keys = offered(self._live, remember, KEYS)
        if rule:
            self._live.say(rule)
        with self._terminal.keys():
            await self._terminal.quiet()
            while not await self._key(to, one, keys):
                pass

    async def _key(self, to: Listener, one: Waiting, keys: str) -> bool:
        """A key for a request: whether that is all for it."""
        if self._live.asked != keys:
            self._live.ask(keys)
        key, remember = await self._while_open(to, one, self._terminal.key), one.request.remember
        if key in ("eof", "q", "s"):
            self._leave_it(one, "left" if key != "s" else "later", goes_on=key == "s")
        elif key == "c":
            self._live.answered("cancel the turn")
            why = "the user cancelled the turn"
            seq = app.submit(to.log, CancelRequested(why=why, origin=app.origin(CLIENT)), one.event.agent)
            self._say(seq, f"cancel: the turn of {one.agent}")
        elif key == "y" or (key == "a" and remember):
            self._live.answered("yes" + (", always" if key == "a" else ""))
            self._say(*decided(to, one, allow=True, always=key == "a"))
        elif key == "n":
            self._live.answered("no")
            note = await denial(self._live, lambda: self._while_open(to, one, self._terminal.line), self._is_word)
            self._say(*decided(to, one, allow=False, note=note))
        elif key.startswith("/"):
            return await self._line(to, one, key)
        else:
            self._live.say(f"  that is none of the keys: y, {'a, ' if remember else ''}n, c, s, q", "2")
            return False
        return True

    async def _line(self, to: Listener, one: Waiting, begun: str) -> bool:
        """A line that began with a slash where a key was wanted: it answers nothing. Whether the person leaves."""

        async def rest(typed: str) -> str | None:
            return await self._while_open(to, one, lambda: self._terminal.rest(typed))

        text = await begun_line(self._live, rest, begun)
        word = slash.ours(text or "")
        if text is None or (word is not None and word.name in slash.LEAVES):
            self._leave_it(one, "left", goes_on=False)
            return True
        if not self._is_word(text, approval_help(one.request.remember, KEYS_HELP)):
            self._live.say("  that answers nothing; /help says what does", "2")
        return False

    def _is_word(self, text: str, how: str) -> bool:
        word = slash.ours(text)
        if word is not None:
            self._live.say(f"  {how if word.name == '/help' else slash.is_none(word)}", "2")
        return word is not None

    def _say(self, seq: int, said: str) -> None:
        self._live.say(f"  #{seq} {said}", "2")

    async def _question(self, to: Listener, one: Waiting) -> None:
        with self._terminal.keys():
            await self._terminal.quiet()
        question = one.question
        assert question is not None
        while True:
            number = "a number or " if question.options else ""
            self._live.ask(f"  {number}your words (Enter alone: later, Ctrl-D: leave) > ")
            text = await self._while_open(to, one, self._terminal.line)
            self._live.answered()
            word = slash.ours(text or "")
            if text is None or not text.strip() or (word is not None and word.name in slash.LEAVES):
                goes_on = text is not None and word is None
                self._leave_it(one, "" if goes_on else "left", goes_on=goes_on)
                return
            if self._is_word(text, question_help(question)):
                continue
            try:
                self._say(*replied(to, one, slash.meant(text)))
            except UsageError as error:
                if not self._is_open(to, one):
                    raise
                self._live.say(f"  {error}: {error.hint}", "2")  # there is no such option
                continue
            return

    def _leave_it(self, one: Waiting, said: str, *, goes_on: bool) -> None:
        self._live.answered(said)
        self.later.append(one.address)
        self.goes_on = goes_on

    def _is_open(self, to: Listener, one: Waiting) -> bool:
        if to.log.head().seq != to.state.seq:
            to.state = app.state_of(to.log)
        return one.event.seq in to.state.approvals or one.event.seq in to.state.questions

    async def _while_open(self, to: Listener, one: Waiting, read: Callable[[], Awaitable[_T]]) -> _T:
        """What is typed next. Raises `_Elsewhere` when it needs no answer any more."""
        while True:
            with anyio.move_on_after(LOOK_SECONDS):
                return await read()
            if not self._is_open(to, one):
                raise _Elsewhere
