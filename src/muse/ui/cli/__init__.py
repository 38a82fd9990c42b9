"""The command `muse`. This module imports next to nothing: a command's module is loaded when the command is used."""

import os
import sys
from importlib import import_module
from typing import TextIO

import click

from muse import __version__
from muse.errors import MuseError, UsageError

COMMANDS: dict[str, str] = {
    "exec": "Run one task to its end.",
    "resume": "Go on where a session stopped.",
    "up": "Go on with every open session, in the background.",
    "attach": "Watch a running session, live; touches nothing.",
    "agents": "What agents do, live: steer, pause, cancel, answer.",
    "wait": "Until sessions or agents have nothing left to do.",
    "result": "The last words of an agent that has ended.",
    "approvals": "What waits for your word.",
    "approve": "Allow what a session asks.",
    "deny": "Refuse it, with a note for the agent.",
    "answer": "Answer what an agent asked.",
    "steer": "Say something to a running agent.",
    "spawn": "Give a task to an agent of its own, in the background.",
    "cancel": "Stop a call, a turn, an agent; take queued words back.",
    "pause": "Start nothing new.",
    "continue": "Go on after a pause.",
    "processes": "What sessions left running.",
    "replay": "Step through what happened.",
    "log": "List events; -f follows a running session.",
    "show": "One event in full; what a model was sent.",
    "why": "From an event back to a person's words.",
    "ls": "List sessions.",
    "search": "Find what was said, run or changed, in all sessions.",
    "sql": "Ask sessions in SQL: calls, files, approvals, costs.",
    "export": "Write a session for others: verifiable jsonl, or md to read.",
    "import": "Keep session files of Claude Code and Codex.",
    "verify": "Check what a log proves, and what it does not.",
    "redact": "Take a secret out of a session; the rest still verifies.",
    "archive": "Put sessions away, small and still readable.",
    "rm": "Remove sessions for good; says what first.",
    "gc": "Take away what no session needs.",
    "recover": "Save what a damaged session still holds.",
    "demo": "Kill -9 in mid-work, told in thirty seconds; no key needed.",
    "doctor": "Check this machine and the settings.",
    "completion": "Tab completion for bash, zsh or fish.",
}
"""Name → one line of help; the code of NAME is `command` in `muse.ui.cli.NAME` (`exec_`, `import_`, `continue_`)."""

LATER = frozenset(
    {
        "acp", "config", "diff", "files", "fork",
        "init", "login", "logout", "mcp", "review", "rewind",
        "run", "serve", "start", "summary", "update", "version",
    }
)  # fmt: skip
"""Words that people take for commands, and that are none (yet): they must never become a paid prompt by accident."""

ELSEWHERE = {
    "blame": "why", "cat": "show", "find": "search", "grep": "search", "history": "ls", "list": "ls", "ps": "ls",
    "sessions": "ls", "status": "ls", "tail": "log", "view": "replay",
}  # fmt: skip
"""What other programs call it → our command."""

CHAT = "chat"
"""What `muse` alone and `muse PROMPT` run; it has no name on the command line."""


class LazyGroup(click.Group):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module, or None for a name that is none."""
        if cmd_name not in COMMANDS and cmd_name != CHAT:
            return None
        word = f"{cmd_name}_" if cmd_name in ("exec", "import", "continue") else cmd_name
        module = import_module(f"muse.ui.cli.{word}")
        command: click.Command = module.command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What begins with no command's name is a chat; a word close to one is a slip, never a paid prompt."""
        if args[:1] == ["help"] and (len(args) == 1 or args[1] in COMMANDS):
            args = [*args[1:2], "--help"]
        first = args[0] if args else ""
        own = ("-h", "--help", "--version")
        if first not in COMMANDS and first not in (CHAT, *own) and not ctx.resilient_parsing:
            refuse_slip(first, args)
            args = [CHAT, *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def refuse_slip(word: str, args: list[str]) -> None:
    """Raises UsageError when the first of the words is a command's name elsewhere, or looks like a mistyped one of
    ours."""
    if not word.isprintable() or " " in word or word.startswith("-"):
        return
    given = " ".join(args) if all(arg.isprintable() and not arg.startswith("-") for arg in args) else word
    prompt = f'as a prompt it needs the long form: muse exec "{given}"'
    if word in LATER:
        raise UsageError(f"there is no command {word!r} in this version", hint=f"muse --help lists them; {prompt}")
    import difflib

    ours = ELSEWHERE.get(word.lower())
    close = [ours] if ours else difflib.get_close_matches(word.lower(), COMMANDS, n=1, cutoff=0.6)
    if close:
        raise UsageError(f"there is no command {word!r}; did you mean {close[0]}?", hint=prompt)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="muse")
def cli() -> None:
    """A coding agent with one append-only log: kill it anywhere, nothing runs twice, nothing is lost.

    `muse` alone, or with a PROMPT in quotes, is a chat in the current folder; `muse --continue` goes on with the last
    one there, `muse --resume SESSION` with another.
    """


def show_error(error: MuseError) -> None:
    """What happened, and what to do about it, on standard error."""
    from muse.ui.cli.output import note
    from muse.view.visible import HANG

    note(f"muse: {error}")
    if error.hint:
        note(f"{' ' * HANG}{error.hint}")


def main() -> None:
    """The entry point: every error becomes a line on stderr, one that says what to do, and an exit code."""
    _stand_on_something()
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, and so has the use of an answer
        code = _let_go(sys.stdout, 0)
    except OSError as error:
        show_error(MuseError(f"standard output could not be written: {error.strerror or error}"))
        code = _let_go(sys.stdout, 1)
    try:
        sys.stderr.flush()
    except OSError:  # nobody can be told, and the exit code is to stay what it is
        code = _let_go(sys.stderr, code)
    sys.exit(code)


def _let_go(stream: TextIO, code: int) -> int:
    """Write a stream no more, so that the interpreter does not fail over it at the end; the exit code as given."""
    from muse.ui.cli.output import to_nowhere

    to_nowhere(stream)
    return code


def _stand_on_something() -> None:
    """Open what the caller closed of the three standard streams, so that no log's file takes their number; and see to
    it that there is a home folder."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - open to the end
    if not os.environ.get("HOME"):
        _live_somewhere()


def _live_somewhere() -> None:
    """Without HOME the account's home counts; a container may run under a number that no account has, and then it is
    the root folder, as elsewhere."""
    import pwd

    os.environ.pop("HOME", None)
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        os.environ["HOME"] = "/"


def _run() -> int:
    try:
        code = cli.main(standalone_mode=False)
    except MuseError as error:
        show_error(error)
        return error.exit_code
    except click.UsageError as error:
        error.show()
        return 2
    except click.ClickException as error:
        error.show()
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:  # the front door: a person gets a line, and MUSE_DEBUG=1 gives the traceback
        if isinstance(error, OSError):
            sys.stdout.flush()  # if that is what failed, it fails again, and `main` says so
        if os.environ.get("MUSE_DEBUG"):
            raise
        show_error(
            MuseError(
                f"this is a fault of muse: {type(error).__name__}: {error}",
                hint="the log is safe; for a report: MUSE_DEBUG=1 shows where it happened",
            )
        )
        return 1
    return code if isinstance(code, int) else 0
