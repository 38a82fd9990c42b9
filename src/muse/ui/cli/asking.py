"""What the agents of a session that this process runs ask: at the terminal, or announced for an answer from elsewhere.

An answer is a command like any other: submitted to the log, first in seq counts. When somebody answers from another
place, the question at the terminal goes away. This module must not know the rules that led to a question.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from muse import app
from muse.errors import UsageError
from muse.event.envelope import Event
from muse.event.kinds import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    CommandRefused,
    QuestionAnswered,
    QuestionAsked,
)  # fmt: skip
from muse.ui.cli import slash
from muse.ui.cli.change import change_lines
from muse.ui.cli.live import Live
from muse.ui.cli.person import Terminal
from muse.view.visible import columns, headline, lines_of, one_line

CLIENT: Final = "terminal"
NOTE_CHARS_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 60
OPTION_DIGITS_MAX: Final = 4
COLUMNS: Final = 80
"""Of a terminal whose width is not known."""
KEYS: Final = "n no  q cancel the turn > "
KEYS_HELP: Final = "q: cancel the turn"
LOOKS: Final = {"add": "32", "remove": "31", "dim": "2", "bad": "31", "head": "1"}


class Asking:
    """The open requests and questions of one owned session; `noticed` gets every event, `run` is a task beside the
    session's."""

    def __init__(self, live: Live, terminal: Terminal | None, name: str) -> None:
        self._live, self._terminal, self._name = live, terminal, name
        self._waiting: dict[int, Event] = {}
        self._wake = anyio.Event()
        self._asked = 0
        self._scope: anyio.CancelScope | None = None
        self.owned: app.Owned | None = None
        self.word: Callable[[slash.Word], None] | None = None
        """What does the chat's words that are typed where an answer is wanted; None where there is no chat."""

    @property
    def _state(self) -> app.Session:
        assert self.owned is not None, "set before the session runs"
        return self.owned.running.state

    def noticed(self, event: Event) -> None:
        """Look at an event that is durable: a question, or what makes one go away."""
        if isinstance(event.body, ApprovalRequested | QuestionAsked) and self._is_open(event.seq):
            self._take(event)
        elif isinstance(event.body, CommandRefused) and self.owned is not None:  # what it answered is open again
            for seq in self._open() - self._waiting.keys():
                if (asked := self.owned.event(seq)) is not None:
                    self._take(asked)
        if self._scope is not None and not self._is_open(self._asked):
            self._scope.cancel()

    async def run(self) -> None:
        """Ask one question after the other. Without a terminal: say how to answer, once each."""
        for seq in sorted(self._open()):
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

    def _open(self) -> set[int]:
        return self._state.approvals.keys() | self._state.questions.keys()

    def _is_open(self, seq: int) -> bool:
        return seq in self._state.approvals or seq in self._state.questions

    def _take(self, event: Event) -> None:
        if self._terminal is None:
            self._announce(event)
        else:
            self._waiting[event.seq] = event
            self._wake.set()

    def _next(self) -> Event | None:
        for seq in [seq for seq in self._waiting if not self._is_open(seq)]:
            del self._waiting[seq]
        return next(iter(self._waiting.values()), None)

    # -- at the terminal ---------------------------------------------------------------------------------------------

    async def _ask(self, event: Event, terminal: Terminal) -> bool:
        """One question until it is answered, here or elsewhere. False when there is no terminal any more."""
        body = event.body
        self._asked = event.seq
        answered = gone = False
        async with terminal.alone():
            self._live.say()
            self._show(event)
            with anyio.CancelScope() as scope, terminal.keys():
                self._scope = scope
                if not self._is_open(event.seq):
                    scope.cancel()  # answered while the keyboard was being freed
                await terminal.quiet()
                while not answered and not gone:
                    if isinstance(body, QuestionAsked):
                        answered, gone = await self._words(event, body, terminal)
                    else:
                        assert isinstance(body, ApprovalRequested)
                        answered, gone = await self._key(event, body, terminal)
            self._scope = None
            if gone or not answered:
                self._live.answered("" if gone else "(answered from elsewhere)")
        if not gone:
            self._waiting.pop(event.seq, None)
        return not gone

    def _show(self, event: Event) -> None:
        """What is asked, whole."""
        live, body = self._live, event.body
        if isinstance(body, QuestionAsked):
            live.say(f"? {self._who(event)} asks   #{event.seq}", "33")
            shown_lines(live, body.text)
            for option in option_lines(body.options):
                live.say(option)
            return
        assert isinstance(body, ApprovalRequested)
        live.say(f"? {self._who(event)} asks: may this run?   #{event.seq}  {one_line(body.rule)}", "33")
        shown_lines(live, body.shown)
        run = self._state.run(body.call)
        for line in change_lines(body.tool, run.args if run else "", works_in(self._state, event.agent)):
            live.say(f"  {line.text}", LOOKS.get(line.look, ""))
        if rule := offered(live, body.remember, KEYS)[0]:
            live.say(rule)

    def _who(self, event: Event) -> str:
        agent = self._state.agents.get(event.agent)
        return called(event.agent, agent.name if agent is not None else "")

    async def _words(self, event: Event, body: QuestionAsked, terminal: Terminal) -> tuple[bool, bool]:
        """A line of words for a question: whether it is answered, and whether the terminal is gone."""
        self._live.ask(f"  {'a number or ' if body.options else ''}your words (Ctrl-C cancels the turn) > ")
        text = await terminal.line()
        if text is None:
            return False, True
        self._live.answered()
        if not text.strip() or self._is_word(text, question_help(body)):
            return False, False
        try:
            answer = chosen(body, slash.meant(text))
        except UsageError as error:
            self._live.say(f"  {error}: {error.hint}", "2")
            return False, False
        assert self.owned is not None
        said = QuestionAnswered(question=event.seq, text=answer, origin=app.origin(CLIENT))
        known = self._state.seq if self._is_open(event.seq) else event.seq
        self._say_late(event, known, self.owned.submit(said, event.agent, event.seq), answer)
        return True, False

    def _say_late(self, event: Event, after: int, before: int, answer: str) -> None:
        """Tell the person when somebody was quicker, or the call ended: between these two events."""
        assert self.owned is not None
        between = (self.owned.event(seq) for seq in range(after + 1, before))
        closed = app.closed_by(event, (one for one in between if one is not None))
        if closed is not None:
            error = app.too_late(event, closed, self._state, self._name, answer)
            self._live.say(f"  {error}; {error.hint}", "33")

    async def _key(self, event: Event, body: ApprovalRequested, terminal: Terminal) -> tuple[bool, bool]:
        """A key for a request: whether it is answered, and whether the terminal is gone."""
        if self._live.asked != (keys := offered(self._live, body.remember, KEYS)[1]):
            self._live.ask(keys)
        key = await terminal.key()
        if key.startswith("/"):
            gone = await self._line(key, body, terminal) is None
            return False, gone
        return await self._answer(key, event, body, terminal), key == "eof"

    async def _line(self, begun: str, body: ApprovalRequested, terminal: Terminal) -> str | None:
        """A line that began with a slash where a key was wanted: it answers nothing. None when the terminal is gone."""
        text = await begun_line(self._live, terminal.rest, begun)
        if text is not None and not self._is_word(text, approval_help(body.remember, KEYS_HELP)):
            self._live.say("  that answers nothing; /help says what does", "2")
        return text

    def _is_word(self, text: str, how: str) -> bool:
        """Whether a text is one of the chat's words, which answers nothing: it is done, or said to be none here. `how`
        tells how to answer."""
        word = slash.ours(text)
        if word is None:
            return False
        if word.name == "/help":
            more = "; the chat's words work here: /pause, /continue, /queue, /back, /quit" if self.word else ""
            self._live.say(f"  {how}{more}", "2")
        elif self.word is not None:
            self.word(word)
        else:
            self._live.say(f"  {slash.is_none(word)}", "2")
        return True

    async def _answer(self, key: str, event: Event, body: ApprovalRequested, terminal: Terminal) -> bool:
        if key == "y" or (key == "a" and body.remember):
            remember = body.remember if key == "a" else ""
            self._live.answered("yes" + (f", always: {one_line(remember)}" if remember else ""))
            self._submit(event, body, "allow", remember=remember)
        elif key == "n":
            self._live.answered("no")
            note = await denial(self._live, terminal.line, self._is_word)
            self._submit(event, body, "deny", note=note)
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
        address = f"{self._name}@{event.seq}"
        self._show(event)
        if isinstance(body, QuestionAsked):
            self._live.say(f'  muse answer {address} "…"')
        else:
            self._live.say(f"  muse approve {address}")
            self._live.say(f'  muse deny {address} --note "…"')
        settings = self._state.settings
        seconds = settings.approval_timeout_seconds if settings else 0
        then = "goes on without an answer" if isinstance(body, QuestionAsked) else "it is denied and the run ends"
        self._live.say(f"  waits {seconds} s, then {then}" if seconds else "  waits without limit")


def called(agent: str, name: str) -> str:
    """An agent for a person, with the name that its parent gave it."""
    return f"{agent} ({headline(name, NAME_CHARS_MAX)})" if name else agent


def works_in(state: app.Session, agent_id: str) -> str:
    """The folder of an agent: its own working tree, or that of the nearest above it that has one, or the session's."""
    agent = state.agents.get(agent_id)
    while agent is not None and not agent.workspace:
        agent = state.agents.get(agent.parent)
    return agent.workspace if agent is not None else state.workspace


def chosen(question: QuestionAsked, text: str) -> str:
    """The answer that was meant: where there are options, a lone number is one of them. Raises UsageError for a number
    of none."""
    word = text.strip()
    if not question.options or not word.isdecimal():
        return text
    number = int(word) if len(word) <= OPTION_DIGITS_MAX else 0
    if not 1 <= number <= len(question.options):
        raise UsageError(
            f"there is no option {word[:20]}", hint=f"1 to {len(question.options)}, or the answer in words"
        )
    return question.options[number - 1]


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


def option_lines(options: tuple[str, ...]) -> list[str]:
    """The options of a question, numbered, for a person."""
    return [f"    {number}  {one_line(option)}" for number, option in enumerate(options, 1)]


def offered(live: Live, remember: str, keys: str) -> tuple[str, str]:
    """The keys for a request as the line that asks for one, on one line of the terminal; before it, where it would not
    stand there, what the rule is that `a` would `remember`."""
    if not remember:
        return "", f"  y once  {keys}"
    rule = one_line(remember)
    line = f"  y once  a always: {rule}  {keys}"
    if columns(line) < (live.err.width or COLUMNS):
        return "", line
    return f"  always would mean: {rule}", f"  y once  a always  {keys}"


def question_help(body: QuestionAsked) -> str:
    """How a question is answered, for who types /help there."""
    number = ", or the number of one that is offered" if body.options else ""
    return f"your words and Enter answer it{number}; //help answers /help"


def approval_help(remember: str, keys: str) -> str:
    """How a request is answered, for who types /help there."""
    always = "; a: yes, and from now on by the rule that is offered" if remember else ""
    return f"y: yes, this once{always}; n: no, with words for the agent; {keys}"


async def begun_line(live: Live, rest: Callable[[str], Awaitable[str | None]], begun: str) -> str | None:
    """The line that a person began where a key was wanted, shown as it is typed; None at end of input."""
    live.answered()
    live.ask(one_line(begun))
    text = await rest(begun)
    live.answered("" if not begun.endswith(("\r", "\n")) else " ")
    return text


async def denial(live: Live, read: Callable[[], Awaitable[str | None]], is_word: Callable[[str, str], bool]) -> str:
    """What the agent should know of a no, in words; "" for nothing. What `is_word` is none."""
    while True:
        live.ask("  what should it know? (Enter for nothing) ")
        note = await read() or ""
        live.answered()
        if not is_word(note, "words for the agent and Enter, or Enter alone; //help says /help"):
            return slash.meant(note).strip()[:NOTE_CHARS_MAX]


def shown_lines(live: Live, text: str) -> None:
    """What is asked about, line by line; a diff in its colours."""
    for line in lines_of(text):
        look = {"+": "32", "-": "31"}.get(line[:1], "")
        live.say(f"  {line}", look)
