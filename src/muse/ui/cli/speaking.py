"""What all commands to a session share (`steer`, `spawn`, `cancel`, `pause`, `continue`, `approve`, `deny`, `answer`):
the session to speak to, and the acknowledgement.

A command is durable before it is acknowledged, whether or not somebody runs the session; where nobody does, it is kept
and takes effect at the next resume. This module must not know what the commands mean.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from muse import app
from muse.errors import UsageError
from muse.event.text import clean
from muse.ui.cli.address import Address, resolve
from muse.ui.cli.finding import short_id
from muse.ui.cli.options import words
from muse.ui.cli.output import note as say

CLIENT: Final = "cli"
TEXT_BYTES_MAX: Final = 1024 * 1024
NUMBER_DIGITS_MAX: Final = 2
"""A lone word of so many digits is the number of an option, no part of a session's id."""


class Listener(msgspec.Struct):
    """A session that can be spoken to: its log, its state, and the pid of who runs it (0: nobody). `lane` is the agent
    that is meant: the one that is named, or that of the event at SEQ, or `main`."""

    log: app.Log
    state: app.Session
    path: Path
    address: Address
    pid: int
    lane: str = "main"

    @property
    def name(self) -> str:
        """What names the session to a person."""
        return short_id(self.log.session)

    def of(self, lane: str) -> str:
        """The address of an agent."""
        return self.name if lane == "main" else f"{self.name}:{lane}"

    def said_before(self, client_id: str) -> bool:
        """Whether a command with this id of a client's is in the log: then it is only acknowledged again."""
        return bool(client_id) and app.command_with(self.log, client_id) is not None

    def agent(self) -> app.Agent | None:
        """The agent that is meant; None for a `main` that has not begun. Raises UsageError for one that is not
        there."""
        found = self.state.agents.get(self.lane)
        if found is None and self.lane != "main":
            raise app.no_agent(self.lane, self.name, self.state.agents)
        return found

    def below(self, lane: str) -> list[app.Agent]:
        """All agents below one, at any depth."""
        return [agent for name, agent in self.state.agents.items() if name.startswith(f"{lane}.")]


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
    with listening(place.path, place.address, tried) as to:
        yield to


@contextmanager
def listening(path: Path, address: Address, tried: str) -> Iterator[Listener]:
    """As `listener`, of a session's file."""
    log = app.open_log(path, read_only=False)
    try:
        app.refuse_agents(log, CLIENT, tried)
        state = app.state_of(log)
        yield Listener(log, state, path, address, app.owner_pid(path), address.agent or _lane_of(log, address.seq))
    finally:
        log.close()


def _lane_of(log: app.Log, seq: int) -> str:
    """The agent of an event; `main` where none is meant."""
    event = app.event_at(log, seq) if seq else None
    if seq and event is None:
        raise UsageError(f"there is no event {seq}", hint=f"muse log {short_id(log.session)} lists them")
    return event.agent if event is not None else "main"


def acknowledge(to: Listener, seq: int, said: str, *, as_json: bool, answer: str = "", **more: object) -> None:
    """Say that the command is durable: its seq, or an `answer` that says more, on standard output, what it means on
    standard error. `more` is for programs only."""
    if as_json:
        kept = {"session": to.log.session, "seq": seq, "running": bool(to.pid), **more}
        click.echo(msgspec.json.encode(kept).decode())
        return
    click.echo(answer or f"#{seq}")
    say(said)
    if to.state.redacted or to.state.recovered:
        say("this session cannot go on: it is kept, and nobody will follow it")
    elif not to.pid:
        say(f"nobody runs this session: it is kept, and takes effect at muse resume {to.name}")


def text_of(text: str, usage: str = 'muse steer ADDRESS "…"') -> str:
    """Words for an agent; "-" reads them from standard input. Raises UsageError when there are none, or too many."""
    said = clean(sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)).text if text == "-" else words(text)
    if not said.strip():
        raise UsageError("there is nothing to say", hint=usage)
    if len(said.encode()) > TEXT_BYTES_MAX:
        raise UsageError("that is over 1 MiB", hint="put it in a file of the workspace and name the file")
    return said


def apart(given: tuple[str, ...], verb: str) -> tuple[str, str]:
    """The address, "" for none, and the text of `muse VERB [ADDRESS] TEXT`. Raises UsageError for too many words, for
    a blank one alone, and for a lone address."""
    if len(given) > 2:
        raise UsageError("the text is one argument", hint=f'quote it: muse {verb} "{" ".join(given)}"')
    if len(given) == 2:
        _require_no_words(given[0], f'quote what is said: muse {verb} "{" ".join(given)}"')
        return given[0], given[1]
    if not given[0].strip():
        raise UsageError("there is nothing to say", hint=f'muse {verb} "…"')
    if not any(character.isspace() for character in given[0]) and _is_address(given[0]):
        raise UsageError(f"what is to be said to {given[0]}?", hint=f'muse {verb} {given[0]} "…"')
    return "", given[0]


def _require_no_words(address: str, hint: str) -> None:
    """Raises UsageError for an address that may well be the first of two words."""
    try:
        resolve(address, running=True)
    except UsageError as error:
        if any(character in address for character in ":@/") or not address:
            raise
        raise UsageError(str(error), hint=f"{error.hint}; or {hint}") from error


def _is_address(word: str) -> bool:
    if word == "last" or word[0] in ":@":
        return True
    if word.isdecimal() and len(word) <= NUMBER_DIGITS_MAX:
        return False
    try:
        resolve(word)
    except UsageError:
        return False
    return True
