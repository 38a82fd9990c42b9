"""The screen without a terminal: a session opened, keys pressed, what is shown looked at."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot

from muse import app
from muse.ui.cli.address import Place, parse
from muse.ui.tui.opening import ReplayApp, opened
from muse.ui.tui.screen import ReplayScreen
from muse.view.filters import Filter

TRIES_MAX = 2_000


class Reader:
    """Somebody at the screen."""

    def __init__(self, pilot: Pilot[int]) -> None:
        self._pilot = pilot
        screen = pilot.app.screen
        assert isinstance(screen, ReplayScreen)
        self.screen = screen

    async def press(self, *keys: str) -> None:
        """Press keys, and wait until the panes have followed."""
        await self._pilot.press(*keys)
        await self.settled()

    async def type(self, text: str) -> None:
        """Type a line, and Enter."""
        await self._pilot.press(*text, "enter")
        await self.settled()

    async def settled(self) -> None:
        """Wait until the panes show what the list stands at."""
        await self._pilot.pause()
        await self.until(lambda: self.screen.filled == self.screen.list.seq or not self.screen.list.seq)

    async def until(self, what: Callable[[], object]) -> None:
        """Wait for something."""
        for _ in range(TRIES_MAX):
            if what():
                return
            await self._pilot.pause(0.01)
        raise AssertionError("it did not come")

    async def resize(self, width: int, height: int) -> None:
        """Another size."""
        await self._pilot.resize_terminal(width, height)

    async def click(self, widget: str, x: int, y: int) -> None:
        """Click into a widget."""
        await self._pilot.click(widget, offset=(x, y))
        await self.settled()

    @property
    def seq(self) -> int:
        """Where the reader stands."""
        return self.screen.list.seq

    @property
    def status(self) -> str:
        """The last line."""
        return self.screen.status.render_line(0).text.strip()

    @property
    def rows(self) -> list[str]:
        """The list as it is drawn."""
        shown = self.screen.list
        return [shown.render_line(y).text.rstrip() for y in range(shown.size.height)]

    def pane(self, name: str) -> list[str]:
        """A pane as it is drawn, its title first."""
        shown = {"detail": self.screen.detail, "state": self.screen.state}[name]
        return [shown.render_line(y).text.rstrip() for y in range(shown.size.height)]


def reads(
    path: Path, story: Callable[[Reader], Awaitable[None]], *, seq: int = 0, size: tuple[int, int] = (100, 30),
    wanted: Filter | None = None, opens: Callable[[], app.Reading] | None = None,
) -> int | None:  # fmt: skip
    """Open the session in this file (or that reading), let the story happen, and leave. The exit code, None if the
    story did not end."""

    async def run() -> int | None:
        place = Place(parse(f"{path}@{seq}" if seq else str(path), lambda name: name == str(path)), path)
        with opens() if opens else app.read_session(path, check=False) as reading:
            shown = ReplayApp(opened(place, reading, wanted=wanted or Filter()))
            async with shown.run_test(size=size) as pilot:
                reader = Reader(pilot)
                await reader.settled()
                await story(reader)
            return shown.return_value

    return asyncio.run(run())
