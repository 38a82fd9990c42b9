"""Exports before both verifiers: ours, and the one that was written from the format page alone."""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muse.errors import UsageError
from muse.event.kinds import COMMANDS
from muse.log.export_check import lines_of, verify_export
from muse.log.sqlite import SqliteLog
from tests.log.test_export import exported, redacted

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "verify_export.py"
VECTORS = json.loads((ROOT / "docs" / "vectors" / "exports.json").read_text(encoding="utf-8"))
OTHER_FILES = ("bodies", "headers", "blobs", "chain", "redacted")


def content(case: dict[str, Any]) -> bytes:
    return bytes.fromhex(case["bytes"]) if "bytes" in case else case["text"].encode()


def verdict(data: bytes, known: list[Any] | None = None) -> tuple[int, int | None]:
    """Our exit code and, for damage, the first bad event."""
    head = (known[0], bytes.fromhex(known[1])) if known else None
    report = verify_export(lines_of(io.BytesIO(data)), head=head)
    failed = [row.seq for row in report.rows if row.state == "failed"]
    return report.exit_code, min(failed) if report.exit_code == 6 else None


def run_tool(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Any]]:
    """The export of a stored log with blobs, of which some content was taken out; and its head."""
    path = tmp_path_factory.mktemp("real") / "s.muse"
    seq, hash_ = redacted(path)
    with SqliteLog.open(path, commands=COMMANDS, read_only=True) as log:
        return exported(log), [seq, hash_.hex()]


def damaged(data: bytes) -> list[tuple[str, bytes]]:
    """Every 50th byte changed, once to another letter and once to no UTF-8, and cuts at 40 lengths."""
    found = []
    for mask in (0x01, 0x80):
        for at in range(0, len(data), 50):
            changed = bytearray(data)
            changed[at] ^= mask
            found.append((f"byte {at} changed by {mask}", bytes(changed)))
    found += [(f"cut at {len(data) * i // 40}", data[: len(data) * i // 40]) for i in range(40)]
    return found


@pytest.mark.parametrize("case", VECTORS["exports"], ids=lambda case: case["name"])
def test_an_export_is_judged_as_the_format_page_says(case: dict[str, Any]) -> None:
    assert verdict(content(case), case.get("known")) == (case["exit"], case.get("first_bad"))


def test_the_independent_verifier_agrees_with_every_vector() -> None:
    done = run_tool("--vectors", ROOT / "docs" / "vectors")
    assert done.returncode == 0, done.stdout


def test_both_verifiers_say_the_same_of_damage(real: tuple[bytes, list[Any]], tmp_path: Path) -> None:
    data, head = real
    cases = []
    for name, text in [("whole", data), *damaged(data)]:
        for known in (None, head):
            code, bad = verdict(text, known)
            assert (code == 0) == (name == "whole"), name
            assert (code == 8) if name.startswith("cut") else (code in (0, 6)), name
            case = {"name": name, "bytes": text.hex(), "exit": code, "first_bad": bad, "known": known}
            cases.append(case)
    assert len(cases) > 200
    for name in OTHER_FILES:
        shutil.copy(ROOT / "docs" / "vectors" / f"{name}.json", tmp_path)
    (tmp_path / "exports.json").write_text(json.dumps({"exports": cases}))
    done = run_tool("--vectors", tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"{len(cases)} of {len(cases):>4} agree" in done.stdout


@pytest.mark.parametrize("what", ["whole", "byte 500 changed by 1", "cut at 0", "not there", "a long line"])
def test_the_independent_verifier_says_it_by_its_exit_code(
    real: tuple[bytes, list[Any]], tmp_path: Path, what: str
) -> None:
    file = tmp_path / "s.jsonl"
    data = dict(damaged(real[0])).get(what, real[0])
    if what != "not there":
        file.write_bytes(data)
    limit = ["--line-limit", "100"] if what == "a long line" else []
    done = run_tool(file, "--json", *limit)
    if what in ("not there", "a long line"):
        assert (done.returncode, done.stdout) == (2, "")
    else:
        found = json.loads(done.stdout)
        assert (done.returncode, found["first_bad"]) == (found["exit"], found["first_bad"]) == verdict(data)


def test_a_line_over_the_limit_is_not_judged() -> None:
    with pytest.raises(UsageError, match="more than 10 bytes"):
        list(lines_of(io.BytesIO(b"{}\n" + b"x" * 11), 10))
    assert list(lines_of(io.BytesIO(b"{}\n" + b"x" * 10), 10)) == [b"{}\n", b"x" * 10]


def test_without_a_known_head_nothing_is_said_to_be_proven_against_rebuilding() -> None:
    whole = next(case for case in VECTORS["exports"] if case["name"] == "whole")
    report = verify_export(io.BytesIO(whole["text"].encode()))
    assert next(row.state for row in report.rows if row.what == "rebuilt chain, cut tail") == "not proven"


@pytest.mark.parametrize("data", [b"", b'{"muse_export":1,', b"x"])
def test_of_an_export_without_its_first_line_nothing_is_proven(data: bytes) -> None:
    assert "proven" not in [row.state for row in verify_export([data] if data else []).rows]
