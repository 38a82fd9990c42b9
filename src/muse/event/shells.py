"""Which tools run a command, and which command it is: of muse, and of the agents whose session files are read.

Shared by views, the search index and the tables. This module must not know how a command is shown or judged.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Final

SHELLS: Final = frozenset(
    {"shell", "Bash", "exec_command", "local_shell", "shell_command", "container.exec", "PowerShell", "unified_exec"}
)
"""What the tool is called that runs commands; `docs/imports.md` says by whom."""
_ARGUMENTS: Final = ("command", "cmd")
_wrapper: Final = re.compile(r"(?:.*/)?(?:ba|z|da|k)?sh")


def command_in(tool: str, arguments: Mapping[str, object] | None) -> str:
    """The exact command of a shell call, "" for any other. Where it is a list of words that hands one text to a shell
    (`["bash", "-lc", "ls"]`), that text; of any other list the words, quoted where they need it."""
    if tool not in SHELLS or not arguments:
        return ""
    for name in _ARGUMENTS:
        command = arguments.get(name)
        if isinstance(command, str):
            return command
        if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
            return _joined(command)
    return ""


def _joined(words: list[str]) -> str:
    if len(words) == 3 and _wrapper.fullmatch(words[0]) and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)
