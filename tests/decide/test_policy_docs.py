"""What docs/permissions.md says is what happens: its settings and tables are read and tried."""

import re
import tomllib
from pathlib import Path

import pytest

from muse.decide.policy import Policy, Request, judge, parse_mode, parse_rule

TEXT = (Path(__file__).parents[2] / "docs" / "permissions.md").read_text(encoding="utf-8")


def rows(header: str) -> list[tuple[str, str]]:
    """The rows under a table head with two columns."""
    found = []
    for block in TEXT.split(f"| {header} |\n|---|---|\n")[1:]:
        for line in block.splitlines():
            if not line.startswith("|"):
                break
            left, right = re.split(r"(?<!\\)\|", line)[1:3]
            found.append((left.strip().strip("`").replace("\\|", "|"), right.strip().strip("`")))
    return found


def documented_policy() -> Policy:
    block = re.search(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    lists = tomllib.loads(block[1])["permissions"]
    return Policy(
        "default",
        tuple(parse_rule(text) for text in lists["allow"]),
        tuple(parse_rule(text) for text in lists["ask"]),
        tuple(parse_rule(text) for text in lists["deny"]),
    )


def shell(command: str) -> Request:
    return Request("shell", "attachable", {"command": command}, writes=True)


VERDICTS = rows("command line | verdict")
OFFERS = rows("command line | always adds")


def test_the_tables_are_found() -> None:
    assert len(VERDICTS) >= 30
    assert len(OFFERS) >= 8


@pytest.mark.parametrize(("command", "verdict"), VERDICTS)
def test_a_documented_command_gets_the_documented_verdict(command: str, verdict: str) -> None:
    assert judge(shell(command), documented_policy()).decision == verdict


@pytest.mark.parametrize(("command", "pattern"), OFFERS)
def test_always_adds_what_is_documented(command: str, pattern: str) -> None:
    assert judge(shell(command), Policy()).remember == ("" if pattern == "nothing" else pattern)


def test_the_documented_spellings_of_modes_are_known() -> None:
    paragraph = TEXT.split("Other spellings are understood:")[1].split("refused")[0]
    known, refused = paragraph.split("`.", 1)[0] + "`", paragraph.split("`.", 1)[1]
    assert [parse_mode(text) for text in re.findall(r"`([^`]+)`", known)]
    for text in re.findall(r"`([^`]+)`", refused):
        with pytest.raises(Exception, match="no permission mode"):
            parse_mode(text)


def test_the_documented_commands_are_harmless() -> None:
    paragraph = TEXT.split("## Plainly harmless commands")[1].split("`, checksums")[0].strip().strip("`")
    arguments = {"sed": "-n 1p x", "sleep": "1", "hostname": "", "printf": "x", "test": "-f x", "date": "", "tree": ""}
    for name in paragraph.split():
        command = f"{name} {arguments.get(name, 'x')}".strip()
        assert judge(shell(command), Policy()).decision == "allow", command
