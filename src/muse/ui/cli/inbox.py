"""What waits for a person's word in all sessions: requests for approval, and questions, each with its address.

A request is shown as it is recorded, with what it would change in a file as the file is now. This module must not know
how an answer is given.
"""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from muse import app
from muse.errors import MuseError, UsageError
from muse.event.envelope import Event
from muse.event.kinds import ApprovalRequested, QuestionAsked
from muse.ui.cli.address import Address, Place
from muse.ui.cli.asking import called, option_lines, works_in
from muse.ui.cli.change import change_fields, change_lines
from muse.ui.cli.finding import all_sessions, here, is_here, project_folders, short_id, tilde
from muse.ui.cli.output import note
from muse.view.amounts import age
from muse.view.titles import command_of
from muse.view.visible import lines_of, one_line


class Waiting(msgspec.Struct, frozen=True):
    """One open request or question: its address, and the event. `folder` is the session's, `workspace` the agent's;
    `name` is what the agent was called by its parent, `args` are those of the call that asks."""

    address: str
    session: str
    path: Path
    event: Event
    folder: str = ""
    workspace: str = ""
    args: str = ""
    name: str = ""
    running: bool = True

    @property
    def request(self) -> ApprovalRequested:
        """What is to be allowed. Only of a request."""
        assert isinstance(self.event.body, ApprovalRequested)
        return self.event.body

    @property
    def question(self) -> QuestionAsked | None:
        """What is asked, None of a request."""
        return self.event.body if isinstance(self.event.body, QuestionAsked) else None

    @property
    def shown(self) -> str:
        """What the person is asked about, as it is recorded."""
        return self.question.text if self.question is not None else self.request.shown

    @property
    def agent(self) -> str:
        """The agent that asks, with its name."""
        return called(self.event.agent, self.name)

    @property
    def ways(self) -> tuple[str, ...]:
        """The commands that answer it."""
        if self.question is not None:
            return (f'muse answer {self.address} "…"',)
        return f"muse approve {self.address}", f'muse deny {self.address} --note "…"'

    @property
    def how(self) -> str:
        """The same on one line."""
        return "   ".join(self.ways)


def waiting() -> list[Waiting]:
    """All that waits in sessions that somebody runs, oldest session first."""
    return _of([path for path in reversed(app.session_files()) if app.owner_pid(path)], running=True)


def left_waiting() -> list[Waiting]:
    """What waits in sessions that were left without closing and that nobody runs, oldest session first. An answer is
    kept in the log and holds when somebody resumes them."""
    entries = reversed(all_sessions()[0])
    left = [entry for entry in entries if entry.state == "stopped" and (entry.approvals or entry.questions)]
    return _of([Path(entry.file) for entry in left], running=False)


def waiting_at(place: Place) -> list[Waiting]:
    """What waits at an address: in a session, of one agent, or at one event. Raises `MuseError` for a log that cannot
    be read, UsageError for an agent and an event that it has not."""
    address, running = place.address, bool(app.owner_pid(place.path))
    with closing(app.open_log(place.path, check=False)) as log:
        state = app.state_of(log)
        require_there(state, address)
        found = waiting_in(log, state, place.path, running=running)
    return [one for one in found if address.agent in ("", one.event.agent) and address.seq in (0, one.event.seq)]


def require_there(state: app.Session, address: Address) -> None:
    """Raises UsageError when a session has no such agent, or no such event."""
    name = short_id(state.session)
    if address.agent not in ("", "main", *state.agents):
        raise app.no_agent(address.agent, name, state.agents)
    if address.seq > state.seq:
        raise UsageError(f"there is no event {address.seq}: {name} has {state.seq}", hint=f"muse log {name} lists them")


def _of(paths: list[Path], *, running: bool) -> list[Waiting]:
    found: list[Waiting] = []
    for path in paths:
        try:
            with closing(app.open_log(path, check=False)) as log:
                found += waiting_in(log, app.state_of(log), path, running=running)
        except MuseError as error:  # one that cannot be read hides no other
            note(f"{short_id(path.stem)}: {error}")
    return found


def waiting_in(log: app.Log, state: app.Session, path: Path, *, running: bool = True) -> list[Waiting]:
    """What waits in one session, in the order in which it was asked."""
    found = []
    for seq in sorted((*state.approvals, *state.questions)):
        event = app.event_at(log, seq)
        if event is None or not isinstance(event.body, ApprovalRequested | QuestionAsked):
            continue
        run, agent = state.run(event.body.call), state.agents.get(event.agent)
        found.append(
            Waiting(
                address=f"{short_id(log.session)}@{seq}",
                session=log.session,
                path=path,
                event=event,
                folder=state.workspace,
                workspace=works_in(state, event.agent),
                args=run.args if run is not None else "",
                name=agent.name if agent is not None else "",
                running=running,
            )
        )
    return found


def asked_ago(one: Waiting) -> int:
    """For how many seconds it has waited; 0 where its time cannot be read."""
    try:
        return max(int((datetime.now(UTC) - datetime.fromisoformat(one.event.time)).total_seconds()), 0)
    except (ValueError, TypeError):
        return 0


def when_and_where(one: Waiting) -> str:
    """How long it has waited, and in which folder where that is not this one. The path of an agent's own working tree
    tells a person nothing: that it has one does."""
    folder = "" if is_here(one.folder) else f"  in {tilde(one.folder)}"
    tree = "" if one.workspace == one.folder else "  in a working tree of its own"
    return f"{age(asked_ago(one))}{folder}{tree}"


def describe(one: Waiting) -> list[str]:
    """What waits, for a person: who asks since when, the exact text, what it would change, the rule that asks."""
    head = f"{one.address}  {one.agent} asks  {when_and_where(one)}"
    if one.question is not None:
        return [head, *(f"  {line}" for line in lines_of(one.question.text)), *option_lines(one.question.options)]
    change = change_lines(one.request.tool, one.args, one.workspace)
    shown = [f"  {line}" for line in lines_of(one.request.shown)]
    return [f"{head}  {one_line(one.request.rule)}", *shown, *(f"  {line.text}" for line in change)]


def fields(one: Waiting) -> dict[str, object]:
    """What waits, for a program; of a call its exact arguments and command, and what it would change in its file."""
    common: dict[str, object] = {
        "kind": "approval" if one.question is None else "question",
        "address": one.address, "session": one.session, "seq": one.event.seq, "agent": one.event.agent,
        "name": one.name, "time": one.event.time, "age_seconds": asked_ago(one), "workspace": one.workspace,
        "running": one.running,
    }  # fmt: skip
    if one.question is not None:
        return common | {"shown": one.shown, "options": one.question.options}
    body = one.request
    return common | {
        "tool": body.tool, "shown": body.shown, "rule": body.rule, "remember": body.remember, "args": one.args,
        "command": command_of(body.tool, one.args),
        "change": change_fields(body.tool, one.args, one.workspace),
    }  # fmt: skip


def of_this_folder(found: list[Waiting]) -> list[Waiting]:
    """Those of this folder, or of the nearest above in which something waits. Raises UsageError when all are of other
    folders."""
    places = project_folders(here())
    for place in places:
        if near := [one for one in found if one.folder == place]:
            return near
    if found:
        newest = found[-1]
        raise UsageError(
            f"nothing waits in {tilde(places[0])}",
            hint=f"{newest.address} waits in {tilde(newest.folder)}: {newest.how}",
        )
    return found


def only(found: list[Waiting], what: str, instead: str = "") -> Waiting:
    """The only one of them, each a `what`. Raises UsageError when there is none (`instead` is the command that says the
    words all the same), and when there are more, which it lists."""
    if not found:
        lists = "muse approvals lists what waits"
        raise UsageError(
            "nothing waits for an answer", hint=f"{lists}; to say it all the same: {instead}" if instead else lists
        )
    if len(found) > 1:
        note("\n".join(line for one in found for line in describe(one)))
        raise UsageError(f"{len(found)} {what}s wait", hint=f"say which: {found[0].how}")
    return found[0]
