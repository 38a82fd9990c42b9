"""The chat's prompt on a terminal that can do more than lines: editing, history, pastes of several lines.

It stands below what is shown of the running turn, and gives way to questions; what was being typed stays. The only
module that loads prompt_toolkit, so it is imported when a chat begins and nowhere else. It must not know what is done
with a prompt.
"""

import os
import select
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.data_structures import Size
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.vt100 import Vt100_Output

from muse import app
from muse.ui.cli.live import Live, Put
from muse.ui.cli.person import QUIET_SECONDS, Terminal
from muse.ui.cli.prompts import MARK
from muse.view.visible import columns

HISTORY_BYTES_MAX: Final = 1024 * 1024
HISTORY_PROMPT_CHARS_MAX: Final = 10_000
"""A longer prompt is pasted material and not kept for the arrow keys."""


class _Paused(Exception):
    """The prompt gives way to a question."""


class Editor:
    """See `Prompts` and `Reader`. `interrupt` is called at a Ctrl-C."""

    def __init__(self, live: Live, terminal: Terminal, history: Path, interrupt: Callable[[], None]) -> None:
        self._live, self._terminal, self._interrupt = live, terminal, interrupt
        self._running = self._over = self._drawn = False
        self._draft = self._pending = ""
        self._stopped, self._typed, self._free = anyio.Event(), anyio.Event(), anyio.Event()
        self._free.set()
        # Questions to the terminal about its cursor are left out: an answer that comes late would look like typing.
        self._output = Vt100_Output(sys.stderr, _screen, term=os.environ.get("TERM"), enable_cpr=False)
        self._session: PromptSession[str] = PromptSession(
            message=self._message, multiline=True, prompt_continuation="  ", key_bindings=self._keys(),
            history=kept_history(history), input=Vt100Input(sys.stdin), output=self._output, enable_suspend=True,
            reserve_space_for_menu=0,
        )  # fmt: skip
        self._session.default_buffer.on_text_changed += lambda _: self._typed.set()
        terminal.reader = self
        live.err.around = live.out.around = self._above

    async def next(self) -> str | None:
        """See `Prompts`."""
        while await self._may_read():
            if self._terminal.kept:
                return self._terminal.kept.pop(0)
            try:
                return await self._prompt()
            except _Paused:
                continue
            except EOFError:
                return None
        return None

    async def _may_read(self) -> bool:
        """Wait until no question has the keyboard; whether a prompt is wanted still."""
        while not self._free.is_set():  # the next question may have come before this task woke
            await self._free.wait()
        return not self._over

    async def _prompt(self) -> str:
        draft, self._draft = self._draft, ""
        self._live.ask("")  # the prompt begins on a line of its own
        self._live.answered()
        self._stopped = anyio.Event()
        self._drawn = True
        try:
            return await self._session.prompt_async(default=draft, handle_sigint=False, set_exception_handler=False)
        finally:
            self._drawn = False
            pending, self._pending = self._pending, ""
            if pending:
                self._live.err.write(pending)
            self._typed.set()
            self._stopped.set()

    def turn(self, running: bool) -> None:
        """See `Prompts`."""
        self._running = running

    def close(self) -> None:
        """See `Prompts`."""
        self._over = True
        self._free.set()
        self._exit(EOFError())

    async def pause(self) -> None:
        """See `Reader`. Who is in the middle of a line may end it, or pause."""
        self._free = anyio.Event()
        while self._drawn and self._session.default_buffer.text:  # they are typing: no key may hit the question
            self._typed = anyio.Event()
            with anyio.move_on_after(QUIET_SECONDS) as quiet:
                await self._typed.wait()
            if quiet.cancelled_caught:
                break
        if self._drawn:
            self._draft = self._session.default_buffer.text
            self._exit(_Paused())
            await self._stopped.wait()

    def go_on(self) -> None:
        """See `Reader`."""
        self._free.set()

    def restore(self) -> None:
        """See `Reader`."""
        if self._drawn:
            self._drawn = False
            with suppress(OSError, ValueError):
                self._session.app.renderer.erase()
                self._output.flush()
            self._terminal.usual()

    # -- the screen --------------------------------------------------------------------------------------------------

    def _message(self) -> ANSI:
        """The mark, below the unfinished line of what is shown."""
        return ANSI(f"{self._pending}\n{MARK}" if self._pending else MARK)

    def _above(self, put: Put, text: str) -> None:
        """Write whole lines above the prompt; an unfinished one stands between."""
        if not self._drawn:
            put(text)
            return
        whole, end, rest = (self._pending + text).rpartition("\n")
        lines, self._pending = _broken(rest, shutil.get_terminal_size().columns - 1)
        if end or lines:
            self._session.app.renderer.erase()
            put(whole + end + lines)
        self._session.app.invalidate()

    def _exit(self, why: Exception) -> None:
        running = self._session.app
        if self._drawn and running.is_running and not running.is_done:
            running.erase_when_done = True
            running.exit(exception=why)

    # -- the keys ----------------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("enter")(self._enter)
        keys.add("c-j")(self._enter)
        keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        keys.add("c-c")(self._ctrl_c)
        keys.add("c-d")(self._ctrl_d)
        return keys

    def _enter(self, event: KeyPressEvent) -> None:
        """Send, unless more lines arrive together with this one: then it is a paste."""
        if event.app.key_processor.input_queue or select.select([sys.stdin], [], [], 0)[0]:
            event.current_buffer.insert_text("\n")
        elif event.current_buffer.text.strip():
            event.app.erase_when_done = self._running
            event.current_buffer.validate_and_handle()

    def _ctrl_c(self, event: KeyPressEvent) -> None:
        """Stop the turn; between turns take back what was typed, or say how to leave."""
        if event.current_buffer.text and not self._running:
            event.current_buffer.reset()
        else:
            self._interrupt()

    def _ctrl_d(self, event: KeyPressEvent) -> None:
        if not event.current_buffer.text:
            event.app.erase_when_done = False
            event.app.exit(exception=EOFError())
        else:
            event.current_buffer.delete()


def _screen() -> Size:
    found = shutil.get_terminal_size()
    return Size(rows=found.lines, columns=found.columns)


def _broken(text: str, width: int) -> tuple[str, str]:
    """Whole screen lines at the beginning of a text that is wider than the screen, and the rest."""
    lines = ""
    while width > 0 and columns(text) > width:
        at = width
        while columns(text[:at]) > width:
            at -= 1
        at = text.rfind(" ", 1, at) + 1 or max(at, 1)
        lines, text = lines + text[:at].rstrip(" ") + "\n", text[at:]
    return lines, text


class _Kept(FileHistory):
    """Earlier prompts, readable for the user only. One that holds a secret of the environment is not kept."""

    def append_string(self, string: str) -> None:
        if len(string) <= HISTORY_PROMPT_CHARS_MAX and not app.holds_secret(string):
            with suppress(OSError):  # a history that cannot be written stops nobody
                super().append_string(string)


def kept_history(path: Path) -> History:
    """The history in a file, which is made when it is missing and begun again when it has grown too large."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            if os.fstat(descriptor).st_size > HISTORY_BYTES_MAX:
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
    except OSError:
        return InMemoryHistory()
    return _Kept(path)
