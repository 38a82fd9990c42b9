"""What write and edit have in common: one file gets new content, and a crash at any instant leaves no doubt.

Class `reconcilable`. `observe` records the digests of the content before and after; `run` replaces the file only while
it still has the one before; `reconcile` tells by the digest what happened. The text of the result is made by `observe`,
so that recovery answers word for word what an undisturbed run would have answered. A subclass says only what the new
content is.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

import anyio
import anyio.to_thread
import msgspec

from muse.effect.protocol import Keep, KeepFile, Show, ToolCall, ToolResult, Verdict, Workspace
from muse.effect.tool import files
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, quote, take
from muse.effect.tool.masking import NO_SECRETS, KnownSecrets
from muse.effect.tool.paths import Location, inside, reported
from muse.event.content import BlobRef, FileChange, Observed, ToolSpec

PATH: Final = Parameter(
    name="path",
    kind="string",
    required=True,
    description="File, relative to the workspace.",
    aliases=("file_path",),
)


class Planned(msgspec.Struct, frozen=True):
    """New content, and what the model reads when it is in place."""

    data: bytes
    summary: str


class ReplacingTool(ABC):
    """A tool that replaces the content of one file."""

    spec: ToolSpec
    parameters: ClassVar[tuple[Parameter, ...]]

    def __init__(self, secrets: KnownSecrets = NO_SECRETS) -> None:
        self._secrets = secrets

    def arguments(self, args: Mapping[str, object]) -> Arguments:
        """The arguments, checked. Raises Refusal."""
        return take(self.spec.name, self.parameters, args)

    @abstractmethod
    def plan(self, args: Arguments, workspace: Workspace, location: Location, before: bytes | None) -> Planned:
        """The new content, from arguments and old content (None: no file) alone. Raises Refusal."""

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """The one file."""
        try:
            return reported(workspace, self.arguments(args).text("path"))
        except Refusal:
            return ()

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Keep) -> Observed:
        """Digests, contents and mode, before and after."""
        folder = str(workspace.root)
        try:
            seen = await anyio.to_thread.run_sync(self._look, call, workspace)
        except Refusal as refusal:
            return Observed(folder=folder, error=str(refusal))
        location, before, planned = seen
        return Observed(
            folder=folder,
            path=location.relative,
            before_sha256=files.digest(before),
            after_sha256=hashlib.sha256(planned.data).hexdigest(),
            before=None if before is None else await self._kept(before.data, keep),
            after=await self._kept(planned.data, keep),
            file_mode=files.new_file_mode() if before is None else before.mode,
            summary=planned.summary,
        )

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Keep, keep_file: KeepFile, show: Show,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        """Replace the file, or say why not. A replacement that has begun is finished even when cancelled."""
        if observed.error or not observed.path:
            return ToolResult(status="error", text=observed.error or "the file was not looked at: repeat the call")
        try:
            return await anyio.to_thread.run_sync(self._replace, call, observed, workspace)
        except Refusal as refusal:
            return ToolResult(status="error", text=str(refusal))
        except anyio.get_cancelled_exc_class():
            return ToolResult(status="cancelled", text="cancelled before anything was changed")

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        """By the digest: done, not done, or a conflict. Removes the call's temporary file, if it left one."""
        if observed.error:
            return Verdict(verdict="not_done", evidence="the call could not be done and touched nothing")
        if not observed.path:
            return Verdict(verdict="not_done", evidence="without a record of the file the call changes nothing")
        return await anyio.to_thread.run_sync(self._judge, call, observed, workspace)

    async def _kept(self, data: bytes, keep: Keep) -> BlobRef | None:
        """The content in the log, unless it holds a known secret."""
        return None if self._secrets.is_in(data) else await keep(data)

    def _look(self, call: ToolCall, workspace: Workspace) -> tuple[Location, files.Image | None, Planned]:
        args = self.arguments(call.args)
        location = inside(workspace, args.text("path"))
        try:
            before = files.read_image(workspace.root, location)
        except OSError as error:
            raise Refusal(files.explain(location.given, error)) from error
        planned = self.plan(args, workspace, location, None if before is None else before.data)
        if len(planned.data) > files.FILE_BYTES_MAX:
            raise Refusal(
                f"{quote(location.given)} would have {len(planned.data)} bytes; "
                f"at most {files.FILE_BYTES_MAX} are written: use shell for larger files"
            )
        return location, before, planned

    def _replace(self, call: ToolCall, observed: Observed, workspace: Workspace) -> ToolResult:
        args = self.arguments(call.args)
        location = Location(args.text("path"), observed.path, inside=True)
        try:
            before = files.read_image(workspace.root, location)
            if files.digest(before) == observed.after_sha256:
                return _done(observed)
            if files.digest(before) != observed.before_sha256:
                raise Refusal(f"{quote(location.given)} changed since this call was decided: read it again")
            planned = self.plan(args, workspace, location, None if before is None else before.data)
            if hashlib.sha256(planned.data).hexdigest() != observed.after_sha256:
                raise Refusal(f"{quote(location.given)} would get other content than was recorded: repeat the call")
            temporary = files.temporary_name(call.call, call.args_text, observed.after_sha256)
            files.replace(workspace.root, location, before, planned.data, observed.file_mode, temporary)
        except OSError as error:
            raise Refusal(files.explain(location.given, error)) from error
        return _done(observed)

    def _judge(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        location = Location(observed.path, observed.path, inside=True)
        temporary = files.temporary_name(call.call, call.args_text, observed.after_sha256)
        try:
            now = files.digest(files.read_image(workspace.root, location))
            written = now == observed.after_sha256
            files.settle(workspace.root, location, temporary, written=written)
        except (OSError, Refusal) as error:
            why = files.explain(observed.path, error) if isinstance(error, OSError) else str(error)
            return _conflict(observed, f"it could not be looked at: {why}")
        if written:
            return Verdict(verdict="done", evidence=f"the file has the new content ({now})", result=_done(observed))
        if now == observed.before_sha256:
            return Verdict(verdict="not_done", evidence=f"the file has the old content ({now or 'no file'})")
        return _conflict(observed, f"it has the content {now}" if now else "there is no file")


_WITHHELD: Final = "withheld: the content holds a known secret"


def _done(observed: Observed) -> ToolResult:
    if observed.before_sha256 == observed.after_sha256:
        return ToolResult(status="ok", text=observed.summary)
    is_withheld = observed.after is None or (observed.before is None and observed.before_sha256 != "")
    change = FileChange(
        path=observed.path,
        before=observed.before,
        after=observed.after,
        before_mode=observed.file_mode if observed.before_sha256 else 0,
        after_mode=observed.file_mode,
        note=_WITHHELD if is_withheld else "",
    )
    return ToolResult(status="ok", text=observed.summary, changes=(change,))


def _conflict(observed: Observed, found: str) -> Verdict:
    before = f"the content {observed.before_sha256}" if observed.before_sha256 else "no file"
    evidence = f"{found}; before the call there was {before}, after it there would be {observed.after_sha256}"
    text = (
        f"outcome unknown: {quote(observed.path)} was changed by something else around a crash, so it was left alone. "
        "Read it and decide what is still to be done"
    )
    return Verdict(verdict="unknown", evidence=evidence, result=ToolResult(status="unknown", text=text))
