"""Approvals of a session that this process runs: asked at the terminal, or announced for an answer from elsewhere.

An answer is a command like any other: submitted to the log, first in seq counts. When somebody answers from another
place, the question at the terminal goes away. This module must not know the rules that led to a question.
"""

from itertools import islice
from typing import Final

import anyio

from muse import app
from muse.event.envelope import Event
from muse.event.kinds import ApprovalDecided, ApprovalRequested, CancelRequested, CommandRefused
from muse.ui.cli.live import Live
from muse.ui.cli.person import Terminal
from muse.view.diff import contents_diff
from muse.view.line import Line
from muse.view.visible import lines_of, one_line

CLIENT: Final = "terminal"
NOTE_CHARS_MAX: Final = 10_000
CHANGE_LINES_MAX: Final = 200
LOOKS: Final = {"add": "32", "remove": "31", "dim": "2", "bad": "31", "head": "1"}


class Asking:
    """The open approvals of one owned session; `noticed` gets every event, `run` is a task beside the session's."""

    def __init__(self, live: Live, terminal: Terminal | None, name: str) -> None:
        self._live, self._terminal, self._name = live, terminal, name
        self._waiting: dict[int, Event] = {}
        self._wake = anyio.Event()
        self._asked = 0
        self._scope: anyio.CancelScope | None = None
        self.owned: app.Owned | None = None

    @property
    def _state(self) -> app.Session:
        assert self.owned is not None, "set before the session runs"
        return self.owned.running.state

    def noticed(self, event: Event) -> None:
        """Look at an event that is durable: a question, or what makes one go away."""
        if isinstance(event.body, ApprovalRequested) and event.seq in self._state.approvals:
            self._take(event)
        elif isinstance(event.body, CommandRefused) and self.owned is not None:  # what it answered is open again
            for seq in self._state.approvals.keys() - self._waiting.keys():
                if (asked := self.owned.event(seq)) is not None:
                    self._take(asked)
        if self._scope is not None and self._asked not in self._state.approvals:
            self._scope.cancel()

    async def run(self) -> None:
        """Ask one question after the other. Without a terminal: say how to answer, once each."""
        for seq in sorted(self._state.approvals):
            assert self.owned is not None
            if seq not in self._waiting and (event := self.owned.event(seq)) is not None:
                self._take(event)
        while self._terminal is not None:
            self._wake = anyio.Event()
            event = self._next()
            if event is None:
                await self._wake.wait()
            elif not self._terminal.here or not await self._ask(event, self._terminal):
                self._terminal = None
                for waiting in self._waiting.values():
                    self._announce(waiting)

    def _take(self, event: Event) -> None:
        if self._terminal is None:
            self._announce(event)
        else:
            self._waiting[event.seq] = event
            self._wake.set()

    def _next(self) -> Event | None:
        for seq in [seq for seq in self._waiting if seq not in self._state.approvals]:
            del self._waiting[seq]
        return next(iter(self._waiting.values()), None)

    # -- at the terminal ---------------------------------------------------------------------------------------------

    async def _ask(self, event: Event, terminal: Terminal) -> bool:
        """One question until it is answered, here or elsewhere. False when there is no terminal any more."""
        body = event.body
        assert isinstance(body, ApprovalRequested)
        self._asked = event.seq
        answered = gone = False
        async with terminal.alone():
            self._show(event, body)
            with anyio.CancelScope() as scope, terminal.keys():
                self._scope = scope
                if event.seq not in self._state.approvals:
                    scope.cancel()  # answered while the keyboard was being freed
                await terminal.quiet()
                self._live.ask(_keys(body))
                while not answered and not gone:
                    key = await terminal.key()
                    gone = key == "eof"
                    answered = await self._answer(key, event, body, terminal)
            self._scope = None
            if gone or not answered:
                self._live.answered("" if gone else "(answered from elsewhere)")
        if not gone:
            self._waiting.pop(event.seq, None)
        return not gone

    def _show(self, event: Event, body: ApprovalRequested) -> None:
        live = self._live
        live.say()
        live.say(f"? {event.agent} asks: may this run?   #{event.seq}  {one_line(body.rule)}", "33")
        _show_lines(live, body.shown)
        self._show_change(body)

    def _show_change(self, body: ApprovalRequested) -> None:
        run = self._state.run(body.call)
        for line in change_lines(body.tool, run.args if run else "", self._state.workspace):
            self._live.say(f"  {line.text}", LOOKS.get(line.look, ""))

    async def _answer(self, key: str, event: Event, body: ApprovalRequested, terminal: Terminal) -> bool:
        if key == "y" or (key == "a" and body.remember):
            remember = body.remember if key == "a" else ""
            self._live.answered("yes" + (f", always: {one_line(remember)}" if remember else ""))
            self._submit(event, body, "allow", remember=remember)
        elif key == "n":
            self._live.answered("no")
            self._live.ask("  what should it know? (Enter for nothing) ")
            note = await terminal.line() or ""
            self._live.answered()
            self._submit(event, body, "deny", note=note.strip()[:NOTE_CHARS_MAX])
        elif key == "q":
            self._live.answered("cancel the turn")
            assert self.owned is not None
            why = "the user cancelled the turn"
            self.owned.submit(CancelRequested(why=why, origin=app.origin(CLIENT)), event.agent, event.seq)
        else:
            if key != "eof":
                self._live.say(f"  that is none of the keys: y, {'a, ' if body.remember else ''}n, q", "2")
            return False
        return True

    def _submit(
        self, event: Event, body: ApprovalRequested, decision: str, *, remember: str = "", note: str = ""
    ) -> None:
        assert self.owned is not None
        decided = decide(event.seq, body, allow=decision == "allow", remember=remember, note=note, client=CLIENT)
        self.owned.submit(decided, event.agent, event.seq)

    # -- from elsewhere ----------------------------------------------------------------------------------------------

    def _announce(self, event: Event) -> None:
        body = event.body
        assert isinstance(body, ApprovalRequested)
        address = f"{self._name}@{event.seq}"
        self._live.say(f"? {event.agent} asks: may this run?   #{event.seq}  {one_line(body.rule)}", "33")
        _show_lines(self._live, body.shown)
        self._show_change(body)
        self._live.say(f"  muse approve {address}")
        self._live.say(f'  muse deny {address} --note "…"')
        settings = self._state.settings
        seconds = settings.approval_timeout_seconds if settings else 0
        self._live.say(
            f"  waits {seconds} s, then it is denied and the run ends" if seconds else "  waits without limit"
        )


def decide(
    seq: int, body: ApprovalRequested, *, allow: bool, remember: str = "", note: str = "", client: str
) -> ApprovalDecided:
    """A person's answer to the request at `seq`, bound to exactly what was shown."""
    return ApprovalDecided(
        call=body.call,
        decision="allow" if allow else "deny",
        by="person",
        request=seq,
        note=note,
        remember=remember,
        shown_sha256=body.shown_sha256,
        origin=app.origin(client),
    )


def change_lines(tool: str, args: str, workspace: str) -> list[Line]:
    """What a call would change in its file as the file is now: below the text that is recorded as shown, for the
    person only. Empty for a call that changes no file."""
    found = app.preview(tool, args, workspace) if args else None
    if found is None:
        return []
    if found.problem:
        return [Line(f"as the file is now, this cannot be done: {one_line(found.problem)}", "bad")]
    if found.before is None:
        return [Line("there is no such file yet", "dim")]  # all of it stands above
    lines = list(islice(contents_diff(found.path, found.before, found.after), CHANGE_LINES_MAX + 1))
    if len(lines) > CHANGE_LINES_MAX:
        lines[CHANGE_LINES_MAX:] = [Line("… and more", "dim")]
    return [Line("what it changes in the file as it is now:", "dim"), *lines]


def _keys(body: ApprovalRequested) -> str:
    always = f"  a always: {one_line(body.remember)}" if body.remember else ""
    return f"  y once{always}  n no  q cancel the turn > "


def _show_lines(live: Live, text: str) -> None:
    for line in lines_of(text):
        look = {"+": "32", "-": "31"}.get(line[:1], "")
        live.say(f"  {line}", look)
