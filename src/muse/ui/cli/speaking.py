"""What `approve`, `deny`, `steer` and `cancel` share: a session to speak to, and the acknowledgement.

A command is durable before it is acknowledged, whether or not somebody runs the session; where nobody does, it is kept
and takes effect at the next resume. This module must not know what the commands mean.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from muse import app
from muse.errors import MuseError, UsageError
from muse.event.envelope import Event
from muse.event.kinds import ApprovalDecided, ApprovalRequested, CommandRefused
from muse.ui.cli.address import Address, resolve
from muse.ui.cli.asking import change_lines, decide
from muse.ui.cli.finding import all_sessions, here, is_here, project_folders, short_id, tilde
from muse.ui.cli.options import words
from muse.ui.cli.output import note as say
from muse.view.summary import decision_words
from muse.view.visible import lines_of, one_line

CLIENT: Final = "cli"
TEXT_BYTES_MAX: Final = 1024 * 1024


class Listener(msgspec.Struct):
    """A session that can be spoken to: its log, its state, and the pid of who runs it (0: nobody)."""

    log: app.Log
    state: app.Session
    path: Path
    address: Address
    pid: int

    @property
    def name(self) -> str:
        """What names the session to a person."""
        return short_id(self.log.session)


class Waiting(msgspec.Struct, frozen=True):
    """One open request: its address, and the event."""

    address: str
    session: str
    path: Path
    event: Event
    workspace: str = ""
    args: str = ""

    @property
    def request(self) -> ApprovalRequested:
        """The request."""
        assert isinstance(self.event.body, ApprovalRequested)
        return self.event.body


def told(command: Any) -> Any:
    """Add the flags that every command to a session has."""
    command = click.option("--json", "as_json", is_flag=True, help="The acknowledgement as JSON.")(command)
    return click.option(
        "--id", "client_id", default="", metavar="TEXT", help="An id of yours: the same command twice is one event."
    )(command)


@contextmanager
def listener(text: str, tried: str) -> Iterator[Listener]:
    """The session at an address, open for submitting. Raises UsageError below a runner, and the log keeps a note of
    what was `tried`."""
    place = resolve(text, running=True)
    log = app.open_log(place.path, read_only=False)
    try:
        app.refuse_agents(log, CLIENT, tried)
        state = app.state_of(log)
        yield Listener(log, state, place.path, place.address, app.owner_pid(place.path))
    finally:
        log.close()


def acknowledge(to: Listener, seq: int, said: str, *, as_json: bool) -> None:
    """Say that the command is durable: its seq on standard output, what it means on standard error."""
    if as_json:
        kept = {"session": to.log.session, "seq": seq, "running": bool(to.pid)}
        click.echo(msgspec.json.encode(kept).decode())
        return
    click.echo(f"#{seq}")
    say(said)
    if not to.pid:
        say(f"nobody runs this session: it is kept, and takes effect at muse resume {to.name}")


def text_of(text: str) -> str:
    """Words for an agent. Raises UsageError when there are none, or too many."""
    said = words(text)
    if not said.strip():
        raise UsageError("there is nothing to say", hint='muse steer ADDRESS "…"')
    if len(said.encode()) > TEXT_BYTES_MAX:
        raise UsageError("that is over 1 MiB", hint="put it in a file of the workspace and name the file")
    return said


# -- approvals ---------------------------------------------------------------------------------------------------------


def waiting() -> list[Waiting]:
    """Every open request of every session that somebody runs, oldest session first."""
    found: list[Waiting] = []
    for path in reversed(app.session_files()):
        if app.owner_pid(path):
            with closing(app.open_log(path, check=False)) as log:
                found += waiting_in(log, app.state_of(log), path)
    return found


def left_waiting() -> list[Waiting]:
    """The open requests of sessions that were left without closing and that nobody runs, oldest session first. An
    answer is kept in the log and holds when somebody resumes them."""
    left = [entry for entry in all_sessions()[0] if entry.state == "stopped" and entry.approvals]
    found: list[Waiting] = []
    for entry in reversed(left):
        path = Path(entry.file)
        try:
            with closing(app.open_log(path, check=False)) as log:
                found += waiting_in(log, app.state_of(log), path)
        except MuseError as error:  # one that cannot be read hides no other
            say(f"{short_id(entry.session)}: {error}")
    return found


def waiting_in(log: app.Log, state: app.Session, path: Path) -> list[Waiting]:
    """The open requests of one session."""
    events = (app.event_at(log, seq) for seq in sorted(state.approvals))
    name, place = short_id(log.session), state.workspace
    return [
        Waiting(f"{name}@{event.seq}", log.session, path, event, place, _args(state, event))
        for event in events
        if event is not None
    ]


def _args(state: app.Session, event: Event) -> str:
    run = state.run(getattr(event.body, "call", ""))
    return run.args if run is not None else ""


def describe(one: Waiting) -> list[str]:
    """An open request for a person."""
    where = "" if is_here(one.workspace) else f"  in {tilde(one.workspace)}"
    head = f"{one.address}  {one.event.agent} asks{where}  {one_line(one.request.rule)}"
    change = change_lines(one.request.tool, one.args, one.workspace)
    return [head, *(f"  {line}" for line in lines_of(one.request.shown)), *(f"  {line.text}" for line in change)]


def answer(text: str, *, allow: bool, always: bool, note: str, client_id: str, as_json: bool) -> int:
    """Answer the request at an address, or the only one there is. Returns the exit code."""
    tried = f"{'approve' if allow else 'deny'} {words(text)}".rstrip()
    with listener(text or _only(_of_this_folder(waiting() or left_waiting())).address, tried) as to:
        before = app.command_with(to.log, client_id) if client_id else None
        one = _open_request(to) if before is None else _answered_request(to, before)
        body = one.request
        if always and not body.remember:
            raise UsageError(
                "no rule is offered for this call: what it does cannot be told from its beginning",
                hint=f"allow it once: muse approve {one.address}",
            )
        say("\n".join(describe(one)))
        remember = body.remember if always else ""
        decided = decide(one.event.seq, body, allow=allow, remember=remember, note=words(note), client=CLIENT)
        seq = app.submit(to.log, decided, one.event.agent, cause=one.event.seq, client_id=client_id)
        _refuse_late(to.log, one.event.seq, seq)
        said = ("allowed" if allow else "denied") + (f", and from now on {one_line(remember)}" if remember else "")
        acknowledge(to, seq, said, as_json=as_json)
    return 0


def _answered_request(to: Listener, answer: Event) -> Waiting:
    """The request that an earlier command with the same client's id answered."""
    request = getattr(answer.body, "request", 0)
    event = app.event_at(to.log, request) if request else None
    if event is None or to.address.seq not in (0, request):
        raise UsageError(f"this id was used for another command (#{answer.seq})", hint="use a new id for a new command")
    return Waiting(f"{to.name}@{request}", to.log.session, to.path, event)


def _of_this_folder(found: list[Waiting]) -> list[Waiting]:
    """Those of this folder, or of the nearest above in which something waits. Raises UsageError when all are of other
    folders."""
    places = project_folders(here())
    for place in places:
        if near := [one for one in found if one.workspace == place]:
            return near
    if found:
        newest = found[-1]
        raise UsageError(
            f"nothing waits in {tilde(places[0])}",
            hint=f"{newest.address} waits in {tilde(newest.workspace)}: muse approve {newest.address}",
        )
    return found


def _only(found: list[Waiting]) -> Waiting:
    if not found:
        raise UsageError("nothing waits for an answer", hint="muse approvals lists what waits")
    if len(found) > 1:
        say("\n".join(line for one in found for line in describe(one)))
        raise UsageError(f"{len(found)} requests wait", hint=f"say which: muse approve {found[0].address}")
    return found[0]


def _open_request(to: Listener) -> Waiting:
    found = waiting_in(to.log, to.state, to.path)
    seq = to.address.seq
    if not seq:
        lane = to.address.agent
        return _only([one for one in found if not lane or one.event.agent == lane])
    for one in found:
        if one.event.seq == seq:
            return one
    event = app.event_at(to.log, seq)
    if event is None or not isinstance(event.body, ApprovalRequested):
        some = f"; {', '.join(one.address for one in found)} waits" if found else ""
        raise UsageError(f"#{seq} is no request for approval{some}", hint="muse approvals lists what waits")
    _refuse_late(to.log, seq, to.state.seq + 1)
    raise UsageError(f"#{seq} needs no answer any more: its call was cancelled", hint=f"muse log {to.name} says why")


def _refuse_late(log: app.Log, request: int, before: int) -> None:
    """Raises UsageError when an answer to the request, and one that holds, stands in the log before seq `before`."""
    answers: dict[int, ApprovalDecided] = {}
    for event in app.events(log, request, before):
        body = event.body
        if isinstance(body, ApprovalDecided) and body.request == request:
            answers[event.seq] = body
        elif isinstance(body, CommandRefused):
            answers.pop(body.command, None)
    for seq, body in answers.items():
        raise UsageError(
            f"too late: #{request} was answered before: {decision_words(body)} (#{seq})",
            hint="of several answers the first counts; later ones change nothing",
        )
