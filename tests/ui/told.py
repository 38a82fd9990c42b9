"""Sessions written event by event, for questions about what a log says where running an agent would add nothing."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec

from muse.event.content import BlobRef, Settings
from muse.event.kinds import COMMANDS
from muse.log.protocol import Draft, Ownership
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal
from muse.runtime.session import claim

SETTINGS = Settings(provider="scripted", dialect="scripted", model="-")
KEY = bytes(range(32))


class Telling:
    """A log that is being written: each `say` is durable. Its first event is a `session.opened`."""

    def __init__(self, home: Path, session: str = "20261130-090000-00aaaaaa", *, name: str = "") -> None:
        self.path = home / "sessions" / session[:4] / session[4:6] / session[6:8] / f"{session}.muse"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.log = SqliteLog.create(self.path, session, commands=COMMANDS)
        self.ownership: Ownership = claim(self.log, SETTINGS, "/", lambda _: (), name=name)
        self.head = 1

    def say(self, *bodies: msgspec.Struct, agent: str = "main", cause: int = 0) -> int:
        """Append; the seq of the last."""
        return self.say_drafts([seal(body, agent, cause) for body in bodies])

    def say_drafts(self, drafts: Iterable[Draft]) -> int:
        """As `say`, of drafts."""
        self.head = self.log.append(list(drafts), [], self.head, self.ownership.epoch).head.seq
        return self.head

    def blob(self, data: bytes) -> BlobRef:
        """Store a content."""
        return BlobRef(*self.log.put_blob(data, KEY))

    def close(self) -> Path:
        """The file, when nobody owns it any more."""
        self.ownership.release()
        self.log.close()
        return self.path

    def __enter__(self) -> "Telling":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def told(home: Path, *bodies: msgspec.Struct, session: str = "20261130-090000-00aaaaaa", name: str = "") -> Path:
    """A session that says this; its file."""
    telling = Telling(home, session, name=name)
    with closing(telling):
        telling.say(*bodies)
    return telling.path
