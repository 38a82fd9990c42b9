"""Which command a call runs, by whatever name its tool goes."""

import pytest

from muse.event.shells import command_in


@pytest.mark.parametrize(
    ("tool", "arguments", "command"),
    [
        ("shell", {"command": "ls -l"}, "ls -l"),
        ("Bash", {"command": "ls", "description": "List"}, "ls"),
        ("exec_command", {"cmd": "ls"}, "ls"),
        ("local_shell", {"type": "exec", "command": ["bash", "-lc", "ls | wc"]}, "ls | wc"),
        ("shell", {"command": ["/bin/zsh", "-c", "a && b"]}, "a && b"),
        ("shell", {"command": ["git", "commit", "-m", "two words"]}, "git commit -m 'two words'"),
        ("shell", {"command": ["bash", "-lc", "a", "b"]}, "bash -lc a b"),
        ("shell", {"command": []}, ""),
        ("shell", {"command": [1, 2]}, ""),
        ("shell", {"command": None}, ""),
        ("Read", {"command": "ls"}, ""),
        ("shell", None, ""),
    ],
)
def test_the_command_of_a_call(tool: str, arguments: dict[str, object] | None, command: str) -> None:
    assert command_in(tool, arguments) == command
