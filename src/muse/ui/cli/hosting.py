"""The host of a session in the background: the same commands as at a terminal, and nobody there.

`python -P -m muse.ui.cli.hosting DESCRIPTOR exec|resume …` is started by `app.start_host` and by nothing else. It runs
the command as it stands; `drive` tells it when the session has begun. This module must not know what the command does.
"""

import signal
import sys
from typing import Final, TextIO

import click

from muse import app
from muse.errors import MuseError, UsageError
from muse.ui.cli.live import Live

SAID_BYTES_MAX: Final = 256 * 1024
"""What a host writes to its file; of a longer night the rest stands in the log only."""
LEFT_OUT: Final = frozenset({"background", "as_json", "quiet", "after"})
"""Options that are for who starts a host, and not for it."""


class Bounded:
    """A stream that takes so much and then no more."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._left = SAID_BYTES_MAX

    def write(self, text: str) -> int:
        """Write, as long as there is room."""
        if self._left > 0:
            self._left -= len(text.encode("utf-8", "replace"))
            self._file.write(text if self._left > 0 else "\n… more is not kept here; the log has it\n")
        return len(text)

    def flush(self) -> None:
        """Let it be seen."""
        self._file.flush()

    def isatty(self) -> bool:
        """Nobody is there."""
        return False

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self._file.fileno()


def current() -> app.Host | None:
    """The host that this process is, None at a terminal and in scripts."""
    context = click.get_current_context(silent=True)
    return context.find_object(app.Host) if context is not None else None


def arguments_again(context: click.Context) -> list[str]:
    """The options that this command was given, as arguments for a host."""
    given: list[str] = []
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if not isinstance(option, click.Option) or name in LEFT_OUT or source is None or source.name == "DEFAULT":
            continue
        value = context.params[name]
        long = next((one for one in option.opts if one.startswith("--")), option.opts[0])
        if option.is_flag:
            given += [long] if value else option.secondary_opts[:1]
        else:
            given += [f"{long}={one}" for one in (value if option.multiple else (value,))]
    return given


def begin(places: list[str], prompt: str, *, as_json: bool, quiet: bool) -> int:
    """Run the current command in a host of its own, with these arguments besides its options. Returns the exit code
    when the session has begun; errors are raised here, where somebody reads them."""
    import msgspec

    from muse.ui.cli.finding import short_id

    app.origin("terminal")  # what an agent started does not leave its sandbox this way
    context = click.get_current_context()
    command = context.command.name or ""
    begun = app.start_host([command, *arguments_again(context), "--quiet", "--", *places], prompt)
    live = Live(as_json=as_json, quiet=quiet)
    if isinstance(begun, app.Over):
        live.say(begun.said)
        return begun.code
    for line in begun.notes:
        live.say(f"note: {line}", "33")
    name = short_id(begun.session)
    if as_json:
        told = {"session": begun.session, "pid": begun.pid, "log": str(app.host_log_of(begun.session))}
        live.out.write(msgspec.json.encode(told).decode() + "\n")
    else:
        live.tell(
            f"process {begun.pid} runs it in the background; watch: muse attach {name}; what waits: muse approvals"
        )
        live.out.write(f"{begun.session}\n")
    return 0


def main() -> None:
    """The entry point of a host."""
    from muse.ui.cli import cli, show_error
    from muse.ui.cli.drive import pass_over

    host = app.Host(int(sys.argv[1]))
    signal.signal(signal.SIGHUP, pass_over)  # not ignored: what is started from here would inherit that
    sys.stderr = Bounded(sys.stderr)  # a stream as far as anybody here uses one
    try:
        code = cli.main(sys.argv[2:], prog_name="muse", standalone_mode=False, obj=host)
    except click.ClickException as error:
        told: MuseError = UsageError(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except MuseError as error:
        told = error
    except Exception as error:  # noqa: BLE001 - the front door of a host: who started it gets a line, or its file does
        told = MuseError(f"this is a fault of muse: {type(error).__name__}: {error}", hint="the log is safe")
    else:
        sys.exit(code if isinstance(code, int) else 0)
    show_error(told)
    host.refused(told)
    sys.exit(told.exit_code)


if __name__ == "__main__":
    main()
