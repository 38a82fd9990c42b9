"""The tree of `muse agents` as a list of places: sessions and their agents, folded, filtered, and the one that is
chosen.

A chosen agent stays chosen while others come and go. This module must not know Textual.
"""

from collections.abc import Iterable, Iterator

import msgspec

from muse.view.fleet import AgentRow, SessionRows

Name = tuple[str, str]
"""A session and an agent of it, "" for the session's own line."""


class Place(msgspec.Struct, frozen=True):
    """A line: an agent, or (`row` None) a session above its agents. `folded` counts the agents that it hides."""

    session: SessionRows
    row: AgentRow | None
    folded: int = 0

    @property
    def name(self) -> Name:
        """Which it is."""
        return self.session.session, self.row.agent if self.row is not None else ""


class Tree:
    """The places, in order. `only` are words that a line must hold to be shown; those above it are shown as well."""

    def __init__(self) -> None:
        self.sessions: tuple[SessionRows, ...] = ()
        self.places: list[Place] = []
        self.folded: set[Name] = set()
        self.only = ""
        self.matching = 0
        """Agents that hold the words."""
        self._at = 0
        self._chosen: Name | None = None

    def renew(self, sessions: tuple[SessionRows, ...]) -> None:
        """These are the sessions now."""
        self.sessions = sessions
        self.matching = 0
        self.places = [place for session in sessions for place in self._of(session, alone=len(sessions) == 1)]
        names = [place.name for place in self.places]
        if self._chosen in names:
            self._at = names.index(self._chosen)
        else:
            self.go(self._at)

    def _of(self, session: SessionRows, *, alone: bool) -> Iterator[Place]:
        rows = self._wanted(session.agents)
        head = (session.session, "")
        if not alone:
            yield Place(session, None, len(rows) if head in self.folded else 0)
            if head in self.folded:
                return
        hidden_below = ""
        for row in rows:
            if hidden_below and row.agent.startswith(hidden_below):
                continue
            hidden_below = f"{row.agent}." if (session.session, row.agent) in self.folded else ""
            hides = sum(one.agent.startswith(hidden_below) for one in rows) if hidden_below else 0
            yield Place(session, row, hides)

    def _wanted(self, rows: tuple[AgentRow, ...]) -> list[AgentRow]:
        words = self.only.lower().split()
        if not words:
            return list(rows)
        found = {row.agent for row in rows if all(word in _text(row) for word in words)}
        self.matching += len(found)
        above = {name.rsplit(".", depth)[0] for name in found for depth in range(name.count(".") + 1)}
        return [row for row in rows if row.agent in above]

    # -- the chosen one ----------------------------------------------------------------------------------------------

    @property
    def at(self) -> int:
        """The place of the chosen one."""
        return self._at

    @property
    def chosen(self) -> Place | None:
        """The chosen one, None in an empty tree."""
        return self.places[self._at] if self._at < len(self.places) else None

    def go(self, at: int) -> None:
        """Choose the one at a place, as near as there is one."""
        self._at = max(min(at, len(self.places) - 1), 0)
        self._chosen = self.places[self._at].name if self.places else self._chosen

    def choose(self, session: str, agent: str) -> bool:
        """Choose an agent, if it is there."""
        for at, place in enumerate(self.places):
            if place.session.session == session and place.row is not None and place.row.agent == agent:
                self.go(at)
                return True
        return False

    def fold(self) -> None:
        """Hide what is below the chosen one; where nothing is, choose its parent."""
        place = self.chosen
        if place is None:
            return
        session, agent = place.name
        has_below = bool(place.session.agents) if place.row is None else place.row.children > 0
        if has_below and place.name not in self.folded:
            self.folded.add(place.name)
            self.renew(self.sessions)
        elif "." in agent:
            self.choose(session, agent.rpartition(".")[0])
        else:
            self.go(next((at for at, one in enumerate(self.places) if one.name == (session, "")), self._at))

    def unfold(self) -> None:
        """Show what is below the chosen one; where that is shown, choose the first of it."""
        place = self.chosen
        if place is None:
            return
        if place.name in self.folded:
            self.folded.discard(place.name)
            self.renew(self.sessions)
        elif (place.row is None or place.row.children) and self._at + 1 < len(self.places):
            self.go(self._at + 1)

    def next_waiting(self) -> bool:
        """Choose the next agent that asks a person something; False where none does."""
        count = len(self.places)
        for step in range(1, count + 1):
            place = self.places[(self._at + step) % count]
            if place.row is not None and (place.row.approvals or place.row.questions):
                self.go((self._at + step) % count)
                return True
        return False


def _text(row: AgentRow) -> str:
    parts: Iterable[str] = (row.agent, row.name, row.role, row.words, row.step, row.said, row.task)
    return " ".join(parts).lower()
