"""The command `muse`. This module imports next to nothing: a command's module is loaded when the command is used."""

import sys
from importlib import import_module

import click

from muse import __version__
from muse.errors import MuseError

COMMANDS: dict[str, str] = {
    "exec": "Run one task to its end.",
    "resume": "Go on where a session stopped.",
    "replay": "Step through what happened.",
    "log": "List events; -f follows a running session.",
    "show": "One event in full.",
    "ls": "List sessions.",
    "export": "Write a session for others: verifiable jsonl, or md to read.",
    "verify": "Check what a log proves, and what it does not.",
}
"""Name → one line of help; the code of NAME is `command` in `muse.ui.cli.NAME` (`exec` in `exec_`)."""


class LazyGroup(click.Group):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module, or None for a name that is none."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"muse.ui.cli.{cmd_name}_" if cmd_name in ("exec",) else f"muse.ui.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="muse")
def cli() -> None:
    """A coding agent with one append-only log: kill it anywhere, nothing runs twice, nothing is lost."""


def show_error(error: MuseError) -> None:
    """What happened, and what to do about it, on standard error."""
    click.echo(f"muse: {error}", err=True)
    if error.hint:
        click.echo(f"      {error.hint}", err=True)


def main() -> None:
    """The entry point: every error of muse becomes a line on stderr and an exit code."""
    try:
        code = cli.main(standalone_mode=False)
    except MuseError as error:
        show_error(error)
        sys.exit(error.exit_code)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)
