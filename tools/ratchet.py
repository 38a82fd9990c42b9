"""The size ratchet: no module over 600 lines, no function over 70, except those recorded, which may only shrink.

The record is `tools/ratchet.json`. `python tools/ratchet.py --record` writes smaller numbers into it and drops entries
that are no longer needed; it never adds or raises one.
"""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tools" / "ratchet.json"
FOLDERS = ("src", "tests", "tools", "bench")


def sizes(path: Path) -> Iterator[tuple[str, int, int]]:
    """(name, lines, limit) of a module and of each function in it."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    yield name, len(text.splitlines()), MODULE_LINES_MAX
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{name}::{node.name}", node.end_lineno - node.lineno + 1, FUNCTION_LINES_MAX


def oversized() -> dict[str, int]:
    """Everything that is over its limit, with its lines."""
    found: dict[str, int] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name, lines, limit in sizes(path):
                if lines > limit:
                    found[name] = max(lines, found.get(name, 0))
    return found


def main() -> int:
    """0 if nothing grew."""
    recorded: dict[str, int] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    found = oversized()
    grown = {name: lines for name, lines in found.items() if lines > recorded.get(name, 0)}
    if "--record" in sys.argv:
        kept = {name: min(lines, recorded[name]) for name, lines in found.items() if name in recorded}
        RECORD.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
    for name, lines in sorted(grown.items()):
        limit = recorded.get(name) or (FUNCTION_LINES_MAX if "::" in name else MODULE_LINES_MAX)
        print(f"ratchet: {name} has {lines} lines, allowed are {limit}: split it by subject")
    print(f"ratchet: {len(found)} recorded exceptions, {len(grown)} grown")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
