"""The command line inside this process: for questions about a recorded session, where a process would add nothing."""

from pathlib import Path

import msgspec
from click.testing import CliRunner

from muse.errors import MuseError
from muse.ui.cli import cli


class Answer(msgspec.Struct, frozen=True):
    """How a command ended, and what it wrote."""

    code: int
    data: bytes
    err: str

    @property
    def out(self) -> str:
        """Standard output as text."""
        return self.data.decode()


def ask(home: Path, *args: str, stdin: str = "") -> Answer:
    """Run a command with this MUSE_HOME. An error becomes the exit code and the line that the front door gives it."""
    result = CliRunner().invoke(
        cli, args, env={"MUSE_HOME": str(home), "NO_COLOR": "1"}, standalone_mode=False, input=stdin
    )
    error = result.exception
    if isinstance(error, MuseError):
        return Answer(error.exit_code, result.stdout_bytes, f"{result.stderr}muse: {error}\n{error.hint}")
    if error is not None:
        raise error
    return Answer(result.return_value or 0, result.stdout_bytes, result.stderr)
