"""What the command loads before it does anything: nothing heavy, and for help nothing of the runtime either."""

import subprocess
import sys

import pytest

LOADED = """
import sys
from muse.ui.cli import cli
try:
    cli.main(sys.argv[1:], standalone_mode=False)
except SystemExit:
    pass
print("\\n".join(sorted(sys.modules)), file=sys.stderr)
"""

HEAVY = {
    "apsw", "msgspec", "httpx2", "httpcore2", "anyio", "asyncio", "sqlite3", "ssl", "rich", "textual",
    "prompt_toolkit", "multiprocessing", "backports.zstd", "anthropic", "openai",
}  # fmt: skip


def loaded(*arguments: str) -> set[str]:
    """The modules that a process has loaded after this command."""
    ran = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True)
    return set(ran.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_loads_nothing_heavy_and_no_room_of_the_runtime(arguments: list[str]) -> None:
    modules = loaded(*arguments)
    assert not modules & HEAVY
    ours = {name for name in modules if name.startswith("muse")}
    assert ours == {"muse", "muse.errors", "muse.ui", "muse.ui.cli"}


@pytest.mark.parametrize("command", ["exec", "resume", "ls", "verify", "approve", "doctor"])
def test_help_of_a_command_opens_no_network_and_no_screen(command: str) -> None:
    assert not loaded(command, "--help") & {"httpx2", "httpcore2", "ssl", "rich", "textual", "prompt_toolkit"}
