"""Known secrets stay out of what models and the log get: a stable placeholder stands for each.

Known are values that the host itself was given under the name of a secret; what a repository holds is not known to be
one. What a tool is given and what it writes into files is never changed. A content that goes to the log as bytes and
holds a secret is replaced (output of commands) or withheld (files). This module must not know any single tool.
"""

import os
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from muse.effect.protocol import Keep, KeepFile, Show, Tool, ToolCall, ToolResult, Verdict, Workspace
from muse.effect.tool.environment import is_secret_name
from muse.event.content import Observed, ToolSpec

VALUE_CHARS_MIN: Final = 8
"""Shorter values are not looked for: they would be found in what is no secret."""

NO_WORDS: Final = frozenset(
    {
        "by", "call", "dialect", "head", "limit", "mode", "model", "parent", "path", "provider", "remember", "root",
        "rule", "shown_sha256",
    }
)  # fmt: skip
"""Fields of bodies whose text is an id, a path, a choice or a rule, which would mean something else with a placeholder;
what a rule is made from stands in the input of the call anyway."""

Body = TypeVar("Body", bound=msgspec.Struct)

CHUNK_BYTES: Final = 1 << 20
"""How much of a file is in memory at once."""


def placeholder(name: str) -> str:
    """What stands in the place of the value of `name`."""
    return f"[secret {name}]"


class KnownSecrets:
    """Values to keep out, by name. Where one value holds another, the longer one counts."""

    def __init__(self, values: Mapping[str, str]) -> None:
        found = {value: name for name, value in sorted(values.items(), reverse=True) if _can_be_known(value)}
        self._masks = [
            (value.encode(), placeholder(found[value]).encode()) for value in sorted(found, key=len, reverse=True)
        ]
        self._longest = max((len(value) for value, _ in self._masks), default=0)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str], names: Container[str] = ()) -> "KnownSecrets":
        """The values of all variables that are named like secrets, and of those in `names`."""
        return cls({name: value for name, value in environment.items() if name in names or is_secret_name(name)})

    def is_in(self, data: bytes) -> bool:
        """Whether any known secret is in `data`."""
        return any(value in data for value, _ in self._masks)

    def mask_bytes(self, data: bytes) -> bytes:
        """`data` with placeholders."""
        for value, mask in self._masks:
            data = data.replace(value, mask)
        return data

    def mask(self, text: str) -> str:
        """`text` with placeholders."""
        return self.mask_bytes(text.encode()).decode() if self._masks else text

    def masked(self, body: Body) -> Body:
        """A body with placeholders in its words: every field that is text and not in `NO_WORDS`."""
        words = [field.name for field in msgspec.structs.fields(body) if field.type is str]
        changes = {name: self.mask(getattr(body, name)) for name in words if name not in NO_WORDS}
        return msgspec.structs.replace(body, **changes)

    def restored(self, text: str, held: bytes) -> str:
        """`text` with the values in the place of the placeholders, of those secrets that `held` holds already.

        A model that was shown a file with placeholders gives them back when it changes the file.
        """
        for value, mask in self._masks:
            if value in held:
                text = text.replace(mask.decode(), value.decode())
        return text

    def without_part_at_end(self, data: bytes) -> bytes:
        """`data` without the beginning of a secret that its end may be."""
        lengths = [_overlap(data, value) for value, _ in self._masks]
        return data[: len(data) - max(lengths, default=0)]

    def without_part_at_start(self, data: bytes) -> bytes:
        """`data` without the rest of a secret that its start may be."""
        lengths = [_overlap(data[::-1], value[::-1]) for value, _ in self._masks]
        return data[max(lengths, default=0) :]

    def is_in_file(self, path: Path, limit: int, chunk_bytes: int = CHUNK_BYTES) -> bool:
        """Whether any known secret is in the first `limit` bytes of the file; chunk by chunk. Raises OSError."""
        rest = b""
        with path.open("rb") as file:
            for part in _chunks(file, limit if self._masks else 0, chunk_bytes):
                if self.is_in(rest + part):
                    return True
                rest = (rest + part)[-self._longest :]
        return False

    def copy_masked(self, source: Path, target: Path, limit: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Write a copy of the first `limit` bytes with placeholders, for the owner only. Raises OSError."""
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with source.open("rb") as file, open(descriptor, "wb") as copy:
            rest = b""
            for part in _chunks(file, limit, chunk_bytes):
                data = self.mask_bytes(rest + part)
                ready = self.without_part_at_end(data)
                copy.write(ready)
                rest = data[len(ready) :]
            copy.write(rest)


def _chunks(file: BinaryIO, limit: int, chunk_bytes: int) -> Iterator[bytes]:
    while limit > 0 and (part := file.read(min(limit, chunk_bytes))):
        limit -= len(part)
        yield part


NO_SECRETS: Final = KnownSecrets({})
"""Nothing is known to be a secret."""


def _can_be_known(value: str) -> bool:
    """Long enough, and no path: some variables named like secrets hold the place of one."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return len(value) >= VALUE_CHARS_MIN and not value.startswith(("/", "~"))


def _overlap(data: bytes, value: bytes) -> int:
    """How much of the beginning of `value`, not all of it, the end of `data` is."""
    tail = data[-(len(value) - 1) :]
    return next((len(tail) - at for at in range(len(tail)) if value.startswith(tail[at:])), 0)


class MaskedTool:
    """A tool whose words to the model hold no known secret."""

    def __init__(self, tool: Tool, secrets: KnownSecrets) -> None:
        self.spec: ToolSpec = tool.spec
        self._tool = tool
        self._secrets = secrets

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """As the tool says."""
        return self._tool.paths(workspace, args)

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Keep) -> Observed:
        """As the tool says, with placeholders in its messages."""
        seen = await self._tool.observe(call, workspace, keep)
        mask = self._secrets.mask
        return msgspec.structs.replace(seen, error=mask(seen.error), summary=mask(seen.summary))

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Keep, keep_file: KeepFile, show: Show,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        """As the tool does, with placeholders in its text and in what is shown meanwhile."""

        def show_masked(text: str) -> None:
            show(self._secrets.mask(text))

        result = await self._tool.run(call, observed, workspace, keep, keep_file, show_masked, attach)
        return self._masked(result)

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        """As the tool says, with placeholders in its text."""
        verdict = await self._tool.reconcile(call, observed, workspace)
        evidence = self._secrets.mask(verdict.evidence)
        if verdict.result is None:
            return msgspec.structs.replace(verdict, evidence=evidence)
        return msgspec.structs.replace(verdict, evidence=evidence, result=self._masked(verdict.result))

    def _masked(self, result: ToolResult) -> ToolResult:
        mask = self._secrets.mask
        named = tuple(msgspec.structs.replace(one, command=mask(one.command)) for one in result.processes)
        return msgspec.structs.replace(result, text=mask(result.text), processes=named)
