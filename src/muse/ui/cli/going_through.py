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
from muse.ui.cli.address import Address
from muse.ui.cli.answering import decided, replied
from muse.ui.cli.asking import LOOKS, NOTE_CHARS_MAX, option_lines, shown_lines
from muse.ui.cli.change import change_lines
from muse.ui.cli.finding import is_here, short_id, tilde
from muse.ui.cli.inbox import Waiting, asked_ago
from muse.ui.cli.live import Live
from muse.ui.cli.person import Terminal
from muse.ui.cli.speaking import CLIENT, Listener, listening
from muse.view.amounts import age
from muse.view.visible import one_line

LOOK_SECONDS: Final = 0.5
"""How often to look whether somebody else has answered."""
KEYS: Final = "n no  c cancel the turn  s later  q leave > "

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
                    self._live.say(f"{error}", "31")
                if not to.pid and one.address not in self.later:
                    self._live.say(f"  nobody runs this session: it takes effect at muse resume {to.name}", "2")

    def _show(self, one: Waiting, place: str) -> None:
        live, where = self._live, "" if is_here(one.workspace) else f"  in {tilde(one.workspace)}"
        live.say()
        what = "asks" if one.question is not None else "asks: may this run?"
        rule = f"  {one_line(one.request.rule)}" if one.question is None else ""
        live.say(f"? {one.agent} {what}   {one.address}{where}  {age(asked_ago(one))}  ({place}){rule}", "33")
        if one.question is not None:
            shown_lines(live, one.question.text)
            for line in option_lines(one.question.options):
                live.say(line)
            return
        shown_lines(live, one.request.shown)
        for change in change_lines(one.request.tool, one.args, one.workspace):
            live.say(f"  {change.text}", LOOKS.get(change.look, ""))

    async def _request(self, to: Listener, one: Waiting) -> None:
        always = f"a always: {one_line(one.request.remember)}  " if one.request.remember else ""
        with self._terminal.keys():
            await self._terminal.quiet()
            self._live.ask(f"  y once  {always}{KEYS}")
            while True:
                key = await self._while_open(to, one, self._terminal.key)
                if key in ("eof", "q", "s"):
                    self._leave_it(one, "left" if key != "s" else "later", goes_on=key == "s")
                elif key == "c":
                    self._live.answered("cancel the turn")
                    why = "the user cancelled the turn"
                    app.submit(to.log, CancelRequested(why=why, origin=app.origin(CLIENT)), one.event.agent)
                elif key == "y" or (key == "a" and one.request.remember):
                    self._live.answered("yes" + (", always" if key == "a" else ""))
                    decided(to, one, allow=True, always=key == "a")
                elif key == "n":
                    self._live.answered("no")
                    self._live.ask("  what should it know? (Enter for nothing) ")
                    note = await self._while_open(to, one, self._terminal.line) or ""
                    self._live.answered()
                    decided(to, one, allow=False, note=note.strip()[:NOTE_CHARS_MAX])
                else:
                    self._live.say(f"  that is none of the keys: y, {'a, ' if always else ''}n, c, s, q", "2")
                    continue
                return

    async def _question(self, to: Listener, one: Waiting) -> None:
        with self._terminal.keys():
            await self._terminal.quiet()
        number = "a number or " if one.question is not None and one.question.options else ""
        while True:
            self._live.ask(f"  {number}your words (Enter alone: later, Ctrl-D: leave) > ")
            text = await self._while_open(to, one, self._terminal.line)
            self._live.answered()
            if text is None or not text.strip():
                self._leave_it(one, "" if text is not None else "left", goes_on=text is not None)
                return
            try:
                _, said = replied(to, one, text)
            except UsageError as error:
                if not self._is_open(to, one):
                    raise
                self._live.say(f"  {error}: {error.hint}", "2")  # there is no such option
                continue
            self._live.say(f"  {said}", "2")
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
