"""The store contract, run against both stores."""

from pathlib import Path

from muse.log.memory import MemoryLog, MemoryPlace
from muse.log.sqlite import SqliteLog
from muse.testing.store import COMMANDS, StoreConformance
from muse.testing.taking import TakingConformance


class _Memory:
    def create(self, session: str) -> MemoryLog:
        self._place = MemoryPlace(session)
        return self.another()

    def another(self) -> MemoryLog:
        return MemoryLog(self._place, commands=COMMANDS)


class _File:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "s.muse"

    def create(self, session: str) -> SqliteLog:
        return SqliteLog.create(self._path, session, commands=COMMANDS)

    def another(self) -> SqliteLog:
        return SqliteLog.open(self._path, commands=COMMANDS)


class TestMemory(StoreConformance, TakingConformance):
    def place(self, folder: Path) -> _Memory:
        return _Memory()


class TestSqlite(StoreConformance, TakingConformance):
    def place(self, folder: Path) -> _File:
        return _File(folder)
