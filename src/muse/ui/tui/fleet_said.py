"""What a person says to an agent from the screen of `muse agents`: the command, and the words that acknowledge it.

Commands go through the log like those of any other process. This module must not know Textual.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from muse.app.fleet import CLIENT, Fleet, say
from muse.errors import UsageError
from muse.event import kinds
from muse.event.content import Origin
from muse.event.envelope import Event
from muse.ui.cli import slash
from muse.ui.cli.asking import decide
from muse.ui.cli.change import change_lines
from muse.ui.cli.finding import short_id
from muse.view.fleet import AgentRow, SessionRows, subtree
from muse.view.line import Line
from muse.view.visible import lines_of, one_line

Target = Literal["agent", "tree"]
Answer = Literal["yes", "always", "no"]
TREE: Final = " and all below it"


class Saying(msgspec.Struct, frozen=True):
    """Something to be said: to whom, as which command, in answer to what, and what it means."""

    session: str
    path: Path
    agent: str
    body: Callable[[Origin], msgspec.Struct]
    words: str
    tried: str
    runs: bool
    cause: int = 0

    def submit(self) -> str:
        """Say it; what was said, once it is durable. Raises `MuseError`."""
        seq = say(self.path, self.agent, self.body, self.tried, cause=self.cause)
        kept = "" if self.runs else f"; nobody runs it: it takes effect at muse resume {short_id(self.session)}"
        return f"#{seq} {self.words}{kept}"


class Asked(msgspec.Struct, frozen=True):
    """Something that waits for a word of the person: how it is shown, and what each answer says. An answer of None
    says nothing. A question wants a line instead (`line`)."""

    title: str
    lines: tuple[Line, ...]
    session: str = ""
    seq: int = 0
    yes: Saying | None = None
    always: Saying | None = None
    no: Saying | None = None
    line: Callable[[str], Saying] | None = None


def _to(
    session: SessionRows, row: AgentRow, words: str, body: Callable[[Origin], msgspec.Struct], cause: int = 0
) -> Saying:
    tried = f"agents: {words}"
    return Saying(session.session, Path(session.file), row.agent, body, words, tried, bool(session.pid), cause)


def steer(session: SessionRows, row: AgentRow, text: str) -> Saying:
    """Words that join its running turn."""
    if not text.strip():
        raise UsageError("there is nothing to say")
    if row.state == "cancelled" and row.parent:
        raise UsageError(f"{row.agent} was cancelled, and stays so")
    return _to(session, row, f"said to {row.agent}", lambda origin: kinds.AgentSteered(text=text, origin=origin))


def pause(session: SessionRows, row: AgentRow, target: Target) -> Saying:
    """Nothing new starts; or it goes on, where it is paused."""
    below = TREE if target == "tree" else ""
    rows = [*subtree(session.agents, row.agent)] if target == "tree" else [row]
    if any(one.state == "paused" for one in rows):
        words = f"{row.agent}{below} may go on"
        return _to(session, row, words, lambda origin: kinds.AgentContinued(target=target, origin=origin))
    words = f"{row.agent}{below}: paused"
    return _to(session, row, words, lambda origin: kinds.AgentPaused(target=target, origin=origin))


def cancel(session: SessionRows, row: AgentRow, target: Target) -> Asked:
    """Ask first. Of `main` alone it is the turn that ends: the session stays."""
    many = [one for one in subtree(session.agents, row.agent) if one.agent != row.agent]
    wanted: Literal["turn", "agent", "tree"] = "turn" if target == "agent" and not row.parent else target
    what = f"the turn of {row.agent}" if wanted == "turn" else f"{row.agent}{TREE if target == 'tree' else ''}"
    lines = [Line(f"Cancel {what}?", "head"), Line(f"{row.words}  {row.step}".rstrip())]
    if target == "tree":
        lines += [Line(f"  {one.agent}  {one.words}  {one.step}".rstrip()) for one in many]
    elif row.children:
        lines.append(Line("what is below it goes on; C cancels that too", "dim"))
    if row.parent:
        lines.append(Line("what it has done stays; it will not go on, and its parent is told", "dim"))
    saying = _to(session, row, f"cancel: {what}", lambda origin: kinds.CancelRequested(target=wanted, origin=origin))
    return Asked(f"cancel {what}", tuple(lines), yes=saying)


def asked(fleet: Fleet, session: SessionRows, row: AgentRow) -> Asked | None:
    """What an agent asks, or the first that one below it does; None where nothing is."""
    watched = fleet.watched(session.file)
    for one in subtree(session.agents, row.agent):
        for seq in sorted((*one.approvals, *one.questions)):
            event = watched.event(seq) if watched is not None else None
            if event is not None and watched is not None:
                if isinstance(event.body, kinds.ApprovalRequested):
                    return _approval(session, one, event, event.body, watched.args(event.body.call))
                if isinstance(event.body, kinds.QuestionAsked):
                    return _question(session, one, event, event.body)
    return None


def _approval(session: SessionRows, row: AgentRow, event: Event, body: kinds.ApprovalRequested, args: str) -> Asked:
    folder = row.workspace or session.workspace
    lines = [Line(line, _LOOKS.get(line[:1], "plain")) for line in lines_of(body.shown)]
    lines += change_lines(body.tool, args, folder)
    lines.append(Line(f"asked because: {one_line(body.rule)}", "dim"))
    if body.remember:
        lines.append(Line(f"A allows from now on: {one_line(body.remember)}", "dim"))

    def answer(words: str, *, allow: bool, remember: str = "") -> Saying:
        return _to(
            session, row, f"{words}: {body.tool} of {row.agent}",
            lambda _origin: decide(event.seq, body, allow=allow, remember=remember, client=CLIENT), event.seq,
        )  # fmt: skip

    return Asked(
        f"may this run? {row.agent} #{event.seq}", tuple(lines), session.session, event.seq,
        yes=answer("allowed", allow=True), no=answer("denied", allow=False),
        always=answer("allowed from now on", allow=True, remember=body.remember) if body.remember else None,
    )  # fmt: skip


_LOOKS: Final[dict[str, Literal["add", "remove"]]] = {"+": "add", "-": "remove"}


def _question(session: SessionRows, row: AgentRow, event: Event, body: kinds.QuestionAsked) -> Asked:
    options = [f"{at}  {one_line(option)}" for at, option in enumerate(body.options, 1)]

    def line(text: str) -> Saying:
        if (word := slash.ours(text)) is not None:
            raise UsageError(slash.is_none(word))
        text = slash.meant(text)
        at = int(text) if text.strip().isascii() and text.strip().isdecimal() and len(text) < 4 else 0
        said = body.options[at - 1] if 0 < at <= len(body.options) else text
        if not said.strip():
            raise UsageError("there is nothing to say")
        return _to(
            session, row, f"answered #{event.seq} of {row.agent}",
            lambda origin: kinds.QuestionAnswered(question=event.seq, text=said, origin=origin), event.seq,
        )  # fmt: skip

    lines = [*map(Line, lines_of(body.text)), *map(Line, options)]
    return Asked(f"{row.agent} asks you, #{event.seq}", tuple(lines), session.session, event.seq, line=line)


def still_open(sessions: tuple[SessionRows, ...], one: Asked) -> bool:
    """Whether it waits still; what was not asked by an agent does."""
    if not one.seq:
        return True
    rows: Iterator[AgentRow] = (row for session in sessions if session.session == one.session for row in session.agents)
    return any(one.seq in row.approvals or one.seq in row.questions for row in rows)
