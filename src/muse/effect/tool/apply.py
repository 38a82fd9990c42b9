"""The apply tool: takes what an agent below the caller changed in its working tree over into the caller's workspace.

Class `reconcilable`: the whole plan, with the content of each file before and after and their digests, is recorded
before anything is touched, and each file is written as `write` does it. After a crash each path of the plan says by
its digest what is left to do. Where the caller changed a file too, both changes are merged; where they contradict each
other nothing at all is written, and the result says where.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import ClassVar, Final, Literal

import anyio
import anyio.to_thread
import msgspec

from muse.effect.protocol import Keep, KeepFile, Show, ToolCall, ToolResult, Verdict, Workspace
from muse.effect.tool import files
from muse.effect.tool.arguments import Parameter, Refusal, schema_of, take
from muse.effect.tool.children import AGENT, LINK, PATHS, ChildChanges, Children, chosen
from muse.effect.tool.masking import NO_SECRETS, KnownSecrets
from muse.effect.tool.merging import merge
from muse.effect.tool.paths import Location, inside
from muse.event.content import BlobRef, FileChange, Observed, ToolSpec
from muse.failpoint import hit

FILES_MAX: Final = 256
"""Files that one call takes over: what one event names."""

BYTES_MAX: Final = 64 << 20
NAMED_MAX: Final = 50

_PARAMETERS: Final = (AGENT, PATHS)
_DESCRIPTION = """\
Take the changes of an agent that you spawned over from its own working tree into your workspace: new and changed \
files are written, deleted ones are deleted. Where you changed a file too, both changes are merged. If any of it \
contradicts your own changes, nothing is written and the result says where: then give only the other paths, or edit \
by hand."""


class _Now(msgspec.Struct, frozen=True):
    """What stands at a path now: its content or, of a symbolic link, where it leads."""

    data: bytes
    mode: int
    image: files.Image | None = None


class _Step(msgspec.Struct, frozen=True):
    """One path of a plan. `data` None: it is deleted."""

    path: str
    now: _Now | None
    data: bytes | None
    mode: int
    merged: bool = False


class ApplyTool:
    """Takes over what a child changed."""

    spec = ToolSpec(
        name="apply", description=_DESCRIPTION, schema=schema_of(_PARAMETERS), recovery="reconcilable", writes=True
    )
    parameters: ClassVar[tuple[Parameter, ...]] = _PARAMETERS

    def __init__(
        self,
        children: Children,
        secrets: KnownSecrets = NO_SECRETS,
        *,
        refusal: Callable[[str], str] = lambda path: "",
        git: str | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`refusal` says why a path may not be written to, "" when it may; `git` is where git is."""
        self._children = children
        self._secrets = secrets
        self._refusal = refusal
        self._git = git
        self._environment = environment

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """None by its arguments: which files it is about follows from what the child did."""
        return ()

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Keep) -> Observed:
        """The plan, with all contents."""
        folder = str(workspace.root)
        try:
            args = take(self.spec.name, self.parameters, call.args)
            found = await self._children.changes(call.call.partition("/")[0], args.text("agent"))
            wanted = chosen(found, args.texts("paths"))
            self._require_fit(found, wanted)
            contents = {ref.blob: await self._children.content(ref) for ref in _contents(found, wanted)}
            steps = await anyio.to_thread.run_sync(self._planned, found, wanted, contents, workspace)
        except Refusal as refusal:
            return Observed(folder=folder, error=str(refusal))
        changes = [await self._recorded(step, keep) for step in steps]
        return Observed(folder=folder, changes=tuple(changes), summary=_summary(found, steps, len(wanted)))

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Keep, keep_file: KeepFile, show: Show,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        """Carry the plan out. What has begun is finished even when cancelled."""
        if observed.error:
            return ToolResult(status="error", text=observed.error)
        data = {
            change.path: await self._children.content(change.after)
            for change in observed.changes
            if change.after is not None
        }
        try:
            return await anyio.to_thread.run_sync(self._carried_out, call, observed, workspace, data)
        except Refusal as refusal:
            return ToolResult(status="error", text=str(refusal))
        except anyio.get_cancelled_exc_class():
            return ToolResult(status="cancelled", text="cancelled before anything was changed")

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        """By the digests of all paths. A plan that was carried out in part is brought to its end."""
        if observed.error or not observed.changes:
            return Verdict(verdict="not_done", evidence="the call touched nothing")
        return await anyio.to_thread.run_sync(self._judged, call, observed, workspace)

    # -- the plan ----------------------------------------------------------------------------------------------------

    def _require_fit(self, found: ChildChanges, wanted: tuple[FileChange, ...]) -> None:
        if found.is_working:
            raise Refusal(f"{found.agent} has not finished: wait for it, then apply what it did")
        if not wanted:
            raise Refusal(f"{found.agent} changed no files: there is nothing to apply")
        size = sum(ref.length for change in wanted for ref in (change.after,) if ref is not None)
        if len(wanted) > FILES_MAX or size > BYTES_MAX:
            raise Refusal(
                f"{len(wanted)} files with {size:,} bytes; at most {FILES_MAX} files and {BYTES_MAX:,} bytes are taken "
                "over in one call: give some of them with paths"
            )

    def _planned(
        self,
        found: ChildChanges,
        wanted: tuple[FileChange, ...],
        contents: Mapping[str, bytes],
        workspace: Workspace,
    ) -> list[_Step]:
        """What is to be done, in the order of paths, deletions first. Raises Refusal when any of it cannot be."""
        steps: list[_Step] = []
        problems: list[str] = []
        for change in wanted:
            try:
                if step := self._step(change, found.taken.get(change.path), contents, workspace):
                    steps.append(step)
            except Refusal as refusal:
                problems.append(f"{change.path}: {refusal}")
        if problems:
            raise Refusal("\n".join(["nothing was applied, because not all of it can be:", *problems[:NAMED_MAX]]))
        return sorted(steps, key=lambda step: (step.data is not None, step.path))

    def _step(
        self, change: FileChange, taken: FileChange | None, contents: Mapping[str, bytes], workspace: Workspace
    ) -> _Step | None:
        if change.note or change.exact_path is not None:
            raise Refusal(f"its content is not in the log ({change.note or 'its name is not UTF-8'})")
        if why := self._refusal(change.path):
            raise Refusal(why)
        now = _look_for(workspace, change)
        change = _since(change, taken, now, contents)
        base = None if change.before is None else contents[change.before.blob]
        theirs = None if change.after is None else contents[change.after.blob]
        mine = None if now is None else now.data
        is_same_kind = now is None or (now.mode == LINK) == ((change.before_mode or change.after_mode) == LINK)
        merged = False
        if mine == theirs and _mode(change, now) == (now.mode if now is not None else 0):
            return None
        if mine not in (base, theirs) or not is_same_kind:
            theirs = self._merged(change, now, base, theirs)
            merged = True
        if theirs is not None and self._secrets.is_in(theirs):
            raise Refusal("it holds a known secret, and such contents are not recorded: edit it by hand")
        return _Step(change.path, now, theirs, _mode(change, now) if theirs is not None else 0, merged)

    def _merged(self, change: FileChange, now: _Now | None, base: bytes | None, theirs: bytes | None) -> bytes:
        if now is None:
            raise Refusal("it was changed there, and is deleted here")
        if theirs is None:
            raise Refusal("it was deleted there, and is changed here")
        if LINK in (now.mode, change.after_mode):
            raise Refusal("it is a symbolic link, and both sides changed it")
        made = merge(self._git, now.data, base or b"", theirs, self._environment)
        if made.data is None:
            raise Refusal("\n".join([made.why if base is not None else "it is new on both sides", *made.hunks]))
        return made.data

    async def _recorded(self, step: _Step, keep: Keep) -> FileChange:
        before = None if step.now is None or self._secrets.is_in(step.now.data) else await keep(step.now.data)
        return FileChange(
            path=step.path,
            before=before,
            after=None if step.data is None else await keep(step.data),
            before_mode=step.now.mode if step.now is not None else 0,
            after_mode=step.mode,
            note=_WITHHELD if step.now is not None and before is None else "",
            before_sha256=_digest(step.now),
            after_sha256="" if step.data is None else hashlib.sha256(step.data).hexdigest(),
        )

    # -- carrying it out ---------------------------------------------------------------------------------------------

    def _carried_out(
        self, call: ToolCall, observed: Observed, workspace: Workspace, data: Mapping[str, bytes]
    ) -> ToolResult:
        strange = [change.path for change in observed.changes if _state(workspace, change) == "other"]
        if strange:
            raise Refusal(
                f"nothing was applied: since this call was decided something else changed {', '.join(strange)}. "
                "Look at it, then repeat the call"
            )
        done: list[FileChange] = []
        for change in observed.changes:
            try:
                if _state(workspace, change) != "after":
                    _write(call, workspace, change, data.get(change.path))
                hit("apply_file")
            except (OSError, Refusal) as error:
                why = files.explain(change.path, error) if isinstance(error, OSError) else str(error)
                named = ", ".join(one.path for one in done) or "none"
                return ToolResult(
                    status="error", text=f"{why}\nThe files before it were applied: {named}.", changes=tuple(done)
                )
            done.append(_plain(change))
        return ToolResult(status="ok", text=observed.summary, changes=tuple(done))

    def _judged(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        states = {change.path: _state(workspace, change) for change in observed.changes}
        for change in observed.changes:
            _tidy(call, workspace, change)
        strange = [path for path, state in states.items() if state == "other"]
        count = sum(state == "after" for state in states.values())
        evidence = f"{count} of {len(states)} files have the new content"
        if strange:
            text = (
                f"outcome unknown: {', '.join(strange)} changed around a crash, by something else or half way, and "
                f"nothing was overwritten. {evidence}. Read them and decide what is still to be done"
            )
            done = tuple(_plain(change) for change in observed.changes if states[change.path] == "after")
            return Verdict(
                verdict="unknown", evidence=f"{evidence}; others have neither the old nor the new one",
                result=ToolResult(status="unknown", text=text, changes=done),
            )  # fmt: skip
        if not count:
            return Verdict(verdict="not_done", evidence="all files have the old content")
        return Verdict(verdict="done", evidence=f"{evidence}; the rest is done now", take_up=True)


def _contents(found: ChildChanges, wanted: tuple[FileChange, ...]) -> list[BlobRef]:
    """What has to be read for a plan."""
    changes = [change for change in wanted if not change.note]
    before = [one for change in changes if (one := found.taken.get(change.path)) is not None and not one.note]
    refs = [*(change.before for change in changes), *(one.after for one in (*changes, *before))]
    return [ref for ref in refs if ref is not None]


def _since(change: FileChange, taken: FileChange | None, now: _Now | None, contents: Mapping[str, bytes]) -> FileChange:
    """What came since it was taken over before, unless what is here is as the child found it once more."""
    if taken is None or taken.note:
        return change
    base = None if change.before is None else contents[change.before.blob]
    if base == (None if now is None else now.data):
        return change
    return msgspec.structs.replace(change, before=taken.after, before_mode=taken.after_mode)


_WITHHELD: Final = "withheld: the content holds a known secret"


def _summary(found: ChildChanges, steps: list[_Step], count: int) -> str:
    words = [f"{step.path} ({_word(step)})" for step in steps[:NAMED_MAX]]
    if len(steps) > NAMED_MAX:
        words.append(f"and {len(steps) - NAMED_MAX} more")
    same = count - len(steps)
    lines = [f"applied the changes of {found.agent}: {', '.join(words)}"] if steps else []
    if same:
        lines.append(f"{same} of its files {'is' if same == 1 else 'are'} here as it left them already")
    if not found.is_whole:
        lines.append("a look at its files failed: it may have changed more than this")
    return "\n".join(lines)


def _word(step: _Step) -> str:
    return "deleted" if step.data is None else "new" if step.now is None else "merged" if step.merged else "changed"


def _look(workspace: Workspace, path: str) -> _Now | None:
    """What stands at a path. Raises Refusal for what is neither file nor link, and for a path through a link."""
    try:
        if os.path.islink(workspace.root / path):
            inside(workspace, os.path.dirname(path) or ".")
            return _Now(os.fsencode(os.readlink(workspace.root / path)), LINK)
        image = files.read_image(workspace.root, inside(workspace, path))
    except NotADirectoryError:
        return None
    except OSError as error:
        raise Refusal(files.explain(path, error)) from error
    return None if image is None else _Now(image.data, image.mode, image)


def _look_for(workspace: Workspace, change: FileChange) -> _Now | None:
    """As `_look`. Raises Refusal with what to do where a folder stands at the path."""
    try:
        return _look(workspace, change.path)
    except Refusal:
        if not os.path.isdir(workspace.root / change.path) or os.path.islink(workspace.root / change.path):
            raise
    what = "deleted" if change.after_mode == 0 else "a symbolic link" if change.after_mode == LINK else "a file"
    raise Refusal(
        f"it is a folder here, and {what} there, and apply removes no folder. Look at what it holds; where none of that"
        f" is needed any more remove it with shell (rm -r) and repeat the call, else give the other paths only"
    )


def _digest(now: _Now | None) -> str:
    return "" if now is None else hashlib.sha256(now.data).hexdigest()


def _mode(change: FileChange, now: _Now | None) -> int:
    """The mode that a path is to have: of what is here, but for what the child changed about it."""
    if change.after_mode in (0, LINK):
        return change.after_mode
    here = now.mode if now is not None and now.mode != LINK else files.new_file_mode()
    runs, ran = bool(change.after_mode & 0o100), bool(change.before_mode & 0o100)
    if runs == ran and now is not None:
        return here
    return here | (here & 0o444) >> 2 if runs else here & ~0o111


def _state(workspace: Workspace, change: FileChange) -> Literal["before", "after", "other"]:
    """Which side of a planned change a path is on."""
    try:
        return _side(_look(workspace, change.path), change)
    except Refusal:
        return "other"


def _side(now: _Now | None, change: FileChange) -> Literal["before", "after", "other"]:
    found = _digest(now), 0 if now is None else now.mode
    if found == (change.after_sha256, change.after_mode):
        return "after"
    is_kind = now is None or (now.mode == LINK) == (change.before_mode == LINK)
    return "before" if is_kind and found[0] == change.before_sha256 else "other"


def _write(call: ToolCall, workspace: Workspace, change: FileChange, data: bytes | None) -> None:
    """One path from before to after. Raises Refusal and OSError; Refusal also when somebody was there first."""
    now = _look(workspace, change.path)
    if _side(now, change) != "before":
        raise Refusal(f"{change.path}: something else changed it just now, so it was left alone. Look at it")
    location = Location(change.path, change.path, inside=True)
    temporary = _temporary(call, change)
    if change.after_mode == LINK or data is None or (now is not None and now.mode == LINK):
        _relink(workspace, location, data, change.after_mode, temporary)
        if change.after_mode == LINK or data is None:
            return
        now = None
    files.replace(workspace.root, location, None if now is None else now.image, data, change.after_mode, temporary)


def _relink(workspace: Workspace, location: Location, data: bytes | None, mode: int, temporary: str) -> None:
    """Put a link in the place of what is there, or nothing."""
    with files.opened_folder(workspace.root, location.parts[:-1], create=mode == LINK) as folder:
        name = location.parts[-1]
        if mode == LINK and data is not None:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            os.symlink(os.fsdecode(data), temporary, dir_fd=folder)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def _tidy(call: ToolCall, workspace: Workspace, change: FileChange) -> None:
    """After a crash: no temporary file of the call is left, and what is in place is durable."""
    location = Location(change.path, change.path, inside=True)
    is_file = change.after_mode not in (0, LINK) and _state(workspace, change) == "after"
    with suppress(OSError, Refusal):
        files.settle(workspace.root, location, _temporary(call, change), written=is_file)


def _temporary(call: ToolCall, change: FileChange) -> str:
    return files.temporary_name(call.call, f"{change.path}\0{call.args_text}", change.after_sha256)


def _plain(change: FileChange) -> FileChange:
    """As `files.changed` has it: digests stand in the plan."""
    bits = {name: mode if mode == LINK else stat.S_IMODE(mode) for name, mode in _modes(change)}
    return msgspec.structs.replace(change, before_sha256="", after_sha256="", **bits)


def _modes(change: FileChange) -> tuple[tuple[str, int], ...]:
    return ("before_mode", change.before_mode), ("after_mode", change.after_mode)
