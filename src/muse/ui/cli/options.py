"""The flags that `exec`, `resume` and the chat share, and what they come to: settings, a model, a terminal."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from muse import config
from muse.errors import UsageError
from muse.event.text import clean
from muse.ui.cli import completing, hosting

PROMPT_BYTES_MAX: Final = 1024 * 1024

Command = Callable[..., int]


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """The shared flags as given."""

    model: str
    permission_mode: str
    yolo: bool
    pairs: tuple[str, ...]
    as_json: bool
    quiet: bool
    folder: str
    approval_timeout: int | None
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    sandbox: str
    network: bool | None
    budget: tuple[str, ...] = ()
    fallback_model: str = ""

    @property
    def mode(self) -> str:
        """The permission mode that was asked for, "" for none. Raises UsageError for two."""
        if self.yolo and self.permission_mode:
            raise UsageError("--yolo and --permission-mode say two things", hint="give one of them")
        return "yolo" if self.yolo else self.permission_mode

    def settings(self, workspace: Path, person: bool) -> config.Loaded:
        """Settings of files, environment and `-c`. With a person at the terminal, and in the background, an approval
        waits without limit, unless a limit was asked for."""
        loaded = config.read(workspace, self.pairs)
        seconds = loaded.config.approval_timeout if self.approval_timeout is None else self.approval_timeout
        if seconds is None and (person or hosting.current() is not None):
            seconds = 0
        asked: dict[str, Any] = {"sandbox": self.sandbox} if self.sandbox else {}
        asked |= {} if self.network is None else {"network": self.network}
        changed = msgspec.structs.replace(loaded.config, approval_timeout=seconds, **asked)
        return msgspec.structs.replace(loaded, config=changed, given=(*loaded.given, *asked))


_OPTIONS: Final = (
    click.option("-m", "--model", default="", metavar="PROVIDER/MODEL", help="The model to use.",
                 shell_complete=completing.models),
    click.option("--permission-mode", default="", metavar="MODE", help="default, accept-edits, plan or yolo.",
                 shell_complete=completing.modes),
    click.option("--yolo", is_flag=True, help="Ask for nothing (deny rules still hold)."),
    click.option("--dangerously-skip-permissions", "yolo", is_flag=True, help="The same as --yolo."),
    click.option("--allow", multiple=True, metavar="RULE", help='Allow beforehand: "shell(make test)".'),
    click.option("--deny", multiple=True, metavar="RULE", help='Never allow: "shell(git push *)".'),
    click.option("--sandbox", default="", metavar="MODE", help="read-only, workspace-write or off.",
                 shell_complete=completing.sandboxes),
    click.option("--network/--no-network", default=None, help="Whether commands reach the network (default: they do)."),
    click.option("--approval-timeout", type=click.IntRange(min=0), default=None, metavar="SECONDS",
                 help="How long a request waits for an answer (0: without limit)."),
    click.option("--budget", multiple=True, metavar="KEY=AMOUNT",
                 help="Stop at so much: tokens=2M,cost=5,time=8h,turns=20,calls=500 (agent.KEY: of each agent;"
                      " tree.KEY: of each with all below it). With resume, +AMOUNT adds. wall: another name of time."),
    click.option("--fallback-model", default="", metavar="MODEL,…",
                 help="Go on with this model when the first one cannot be had."),
    click.option("-C", "--cd", "folder", default="", metavar="DIR", help="Work in this folder."),
    click.option("-c", "--config", "pairs", multiple=True, metavar="KEY=VALUE", help="Override a setting.",
                 shell_complete=completing.settings_keys),
    click.option("--json", "as_json", is_flag=True, help="One event a line on standard output."),
    click.option("-q", "--quiet", is_flag=True, help="Only the answer."),
)  # fmt: skip


in_background = click.option(
    "--background", is_flag=True,
    help="In a process of its own, which outlives this terminal; requests wait until somebody answers.",
)  # fmt: skip
"""The flag of what can run in a host of its own."""

_TAKING: Final = (
    click.option("--take-over", is_flag=True, help="End the process that runs it, and go on here."),
    click.option("--force", is_flag=True,
                 help="With --take-over: go on even if that process cannot be ended; one effect may start twice."),
)  # fmt: skip


def taking(command: Any) -> Any:
    """Add the flags that take a session from another process."""
    for option in reversed(_TAKING):
        command = option(command)
    return command


def driving(command: Any) -> Any:
    """Add the shared flags to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def flags_of(given: dict[str, object]) -> Flags:
    """The shared flags among a command's parameters."""
    return msgspec.convert(given, Flags)


def folder_of(text: str) -> Path:
    """The folder to work in. Raises UsageError when it is none."""
    try:
        place = (Path(text).expanduser() if text else Path.cwd()).resolve()
    except OSError as error:
        raise UsageError(f"the current folder is gone: {error.strerror}", hint="cd to one that exists") from error
    if not place.is_dir():
        raise UsageError(f"{place} is no folder", hint="give -C the folder to work in")
    return place


def words(text: str) -> str:
    """An argument as valid text: its bytes are read as UTF-8 whatever the locale says."""
    try:
        return clean(os.fsencode(text)).text
    except UnicodeEncodeError:  # no argument, but text that this locale cannot encode
        return clean(text).text


def prompt_of(text: str) -> str:
    """The prompt; "-" reads it from standard input. Raises UsageError when it is empty or too long."""
    given = clean(sys.stdin.buffer.read(PROMPT_BYTES_MAX + 1)).text if text == "-" else words(text)
    if not given.strip():
        raise UsageError("the prompt is empty", hint='say what is to be done: muse exec "mend the failing test"')
    if len(given.encode()) > PROMPT_BYTES_MAX:
        raise UsageError(
            "the prompt is over 1 MiB",
            hint="put the material in a file of the workspace, and let the prompt say which file to read",
        )
    return given
