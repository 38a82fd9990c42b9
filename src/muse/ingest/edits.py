"""What a foreign edit made of a file, from what its result says: both contents where they can be known, else why not.

This module must not guess: a content that does not follow from what is recorded is not given.
"""

import re
from typing import Final

import msgspec

from muse.event.content import BlobRef, FileChange
from muse.ingest.lines import Value, at, text
from muse.ingest.writer import Keep

NOT_RECORDED: Final = "the source has no whole content"
_patch_head: Final = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")


class _Contents(msgspec.Struct, frozen=True):
    before: str | None
    after: str | None


def claude_change(result: Value, workspace: str, keep: Keep) -> FileChange | None:
    """The change that the structured result of an Edit, Write or MultiEdit tells of; None where it tells of none."""
    path = text(result, "filePath")
    if not path or not ("originalFile" in result or "structuredPatch" in result or "oldString" in result):
        return None
    shown = below(path, workspace)
    found = _contents(result)
    if found is None:
        return FileChange(path=shown, note=NOT_RECORDED)
    return FileChange(path=shown, before=_kept(found.before, keep), after=_kept(found.after, keep))


def _kept(content: str | None, keep: Keep) -> BlobRef | None:
    return None if content is None else keep(content.encode())


def _contents(result: Value) -> _Contents | None:
    original, content = at(result, "originalFile"), at(result, "content")
    if isinstance(content, str) and text(result, "type") == "create":
        return _Contents(original if isinstance(original, str) else None, content)
    if not isinstance(original, str):
        return None
    if isinstance(content, str):
        return _Contents(original, content)
    if at(result, "userModified") is True:
        return None
    after = original
    edits = at(result, "edits")
    for edit in edits if isinstance(edits, list) else [result]:
        replaced = _replaced(after, edit)
        if replaced is None:
            return None
        after = replaced
    return _Contents(original, after)


def _replaced(before: str, edit: object) -> str | None:
    old, new = at(edit, "oldString"), at(edit, "newString")
    if old is None and new is None:
        old, new = at(edit, "old_string"), at(edit, "new_string")
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    if not old:
        return new if not before else None
    count = before.count(old)
    if at(edit, "replaceAll") is True or at(edit, "replace_all") is True:
        return before.replace(old, new) if count else None
    return before.replace(old, new) if count == 1 else None


def codex_changes(changes: object, workspace: str, keep: Keep) -> list[FileChange]:
    """The changes that a `patch_apply_end` lists, by path."""
    found = []
    for path, change in changes.items() if isinstance(changes, dict) else ():
        kind = _kind_of(change)
        content = at(change, "content") if "type" in change else at(change, kind, "content")
        target = text(change, "move_path") or text(change, kind, "move_path") or str(path)
        whole = keep(content.encode()) if isinstance(content, str) else None
        shown = below(target, workspace)
        if kind == "add" and whole is not None:
            found.append(FileChange(path=shown, after=whole))
        elif kind == "delete" and whole is not None:
            found.append(FileChange(path=shown, before=whole))
        else:
            found.append(FileChange(path=shown, note=NOT_RECORDED))
    return found


def _kind_of(change: object) -> str:
    """`{"type": "add", …}`, or as it was before: `{"add": {…}}`."""
    if not isinstance(change, dict):
        return ""
    return text(change, "type") or next((name for name in ("add", "delete", "update") if name in change), "")


def patch_changes(patch: str, workspace: str, keep: Keep) -> list[FileChange]:
    """The files that a patch in Codex's own form names: a new file has its whole content, others have not."""
    found = []
    parts = re.split(r"(?m)^(?=\*\*\* (?:Add|Update|Delete) File: )", patch)
    for part in parts:
        head, _, rest = part.partition("\n")
        named = _patch_head.fullmatch(head.rstrip("\r"))
        if named is None:
            continue
        shown = below(named[2].strip(), workspace)
        if named[1] == "Add":
            lines = [line[1:] for line in rest.split("\n") if line.startswith("+")]
            found.append(FileChange(path=shown, after=keep("".join(f"{line}\n" for line in lines).encode())))
        else:
            found.append(FileChange(path=shown, note=NOT_RECORDED))
    return found


def below(path: str, workspace: str) -> str:
    """A path as it is called from the workspace, the whole where it is not in it."""
    return path.removeprefix(f"{workspace}/") if workspace else path
