"""The person outside: what is said to a session from another terminal, once each, to a living host or a dead one."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.rig import Event
from tests.night.hosts import Session


@dataclass
class Deed:
    """One word. `when` looks at an event and says whether its time has come; `words` makes the command line from it,
    SESSION standing for the session; `then` are files to make once it is acknowledged; not before `ready`."""

    name: str
    when: Callable[[Event], bool]
    words: Callable[[Event], tuple[str, ...]]
    then: tuple[Path, ...] = ()
    ready: Callable[[], bool] = lambda: True
    alive: bool = True
    event: Event | None = None
    done: bool = False


@dataclass
class Person:
    """Who says them. Drawn is which are said to a living host, and which once it is dead (`muse` then leaves them in
    the log for the next)."""

    session: Session
    deeds: list[Deed]
    rng: random.Random
    said: list[str] = field(default_factory=list)
    heard: int = 0

    def __post_init__(self) -> None:
        for deed in self.deeds:
            deed.alive = self.rng.random() < 0.6

    def hears(self) -> None:
        """Look at what the session has shown since; speak."""
        self._listen()
        for deed in self.deeds:
            if deed.event is not None and deed.alive and not deed.done and deed.ready():
                self._speak(deed)

    def after_a_death(self) -> None:
        """Speak to nobody; the log takes it."""
        self._listen()
        for deed in self.deeds:
            if deed.event is not None and not deed.done and deed.ready():
                self._speak(deed)

    def must_speak(self) -> None:
        """Nobody dies any more: all is said at once."""
        for deed in self.deeds:
            deed.alive, deed.ready = True, lambda: True
        self.hears()

    def _listen(self) -> None:
        new = self.session.events[self.heard :]
        self.heard += len(new)
        for deed in self.deeds:
            if deed.event is None:
                deed.event = next((event for event in new if deed.when(event)), None)

    def _speak(self, deed: Deed) -> None:
        assert deed.event is not None
        rig = self.session.rig
        words = [word.replace("SESSION", rig.session()) for word in deed.words(deed.event)]
        again = [rig.muse(*words, "--id", f"once-{deed.name}") for _ in range(2)]  # said twice, it counts once
        assert [done.returncode for done in again] == [0, 0], [done.stderr for done in again]
        assert again[0].stdout == again[1].stdout, "the same word has the same place in the log"
        deed.done = True
        self.said.append(deed.name)
        for path in deed.then:
            path.touch()
