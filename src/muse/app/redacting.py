"""Taking a text out of a session for good: out of its log, and out of everything else that muse keeps.

The log is held for as long as it takes, so nobody runs the session meanwhile. What is out of reach is said: copies,
exports, other sessions, the user's own files. This module must not know how the text was asked for.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from muse.app import snapshot_folders
from muse.app.background import HOST_LOG
from muse.app.commands import known_secrets, origin
from muse.app.indexing import forget_index
from muse.app.keeping import left_running, recorded_calls, stop_runner
from muse.app.models import rules
from muse.app.places import open_log, path_of, run_folder
from muse.config import muse_home
from muse.errors import Busy, UsageError
from muse.event.kinds import LogRedacted
from muse.event.needles import SECRET_BYTES_MIN, Needles
from muse.log.keeping import write_durable
from muse.log.protocol import Log, Ownership
from muse.runtime.redaction import Hiding, Plan, leaves_for, plan
from muse.runtime.seal import seal

__all__ = ["Hiding", "Plan", "Redaction", "stands_in", "still_there"]

CHUNK_BYTES: Final = 1 << 20
HISTORY: Final = "chat_history"
HISTORY_BYTES_MAX: Final = 64 << 20


class Redaction:
    """One session that nobody runs, held so that content can be taken out of it. Made by `opened`."""

    def __init__(self, log: Log, held: Ownership | None, texts: Iterable[bytes], whole: Iterable[int]) -> None:
        self._log = log
        self._held = held
        self._path = path_of(log)
        self.texts = tuple(texts)
        self.needles = Needles(self.texts)
        self._whole = tuple(whole)
        self.plan = plan(log, rules(), self.texts, self._whole)
        self._recorded = recorded_calls(log)

    @classmethod
    @contextmanager
    def opened(
        cls, path: Path, texts: Iterable[bytes], whole: Iterable[int], *, dry_run: bool = False
    ) -> Iterator["Redaction"]:
        """Hold the log (with `dry_run` only read it) and plan. Raises Busy for a session that runs or left processes
        running, UsageError for a text that is too short to be looked for."""
        texts = tuple(texts)
        if any(len(text) < SECRET_BYTES_MIN for text in texts):
            raise UsageError(
                f"that is shorter than {SECRET_BYTES_MIN} bytes: it would be found nearly everywhere",
                hint="redact whole events instead: muse redact SESSION@SEQ",
            )
        if left := left_running(path.stem):
            raise Busy(f"{path.stem} has left processes running: {'; '.join(left[:3])}", hint="end them first")
        with closing(open_log(path, read_only=dry_run)) as log:
            yield cls(log, None if dry_run else log.hold(), texts, whole)

    def carry_out(self, reason: str, client: str) -> list[str]:
        """Take it out; returns where else something was taken away. Nothing of it is left in the log's files when this
        returns. Raises StoreUnavailable when a reader keeps old pages alive: then it has to be said again."""
        assert self._held is not None, "a dry run changes nothing"
        if self.plan:
            seqs = tuple(sorted(seq for seq, hiding in self.plan.events.items() if hiding.places))
            body = known_secrets().masked(LogRedacted(seqs=seqs, reason=reason, origin=origin(client)))
            record = [seal(body, "main", 0)]
            self._log.redact(leaves_for(self._log, self.plan), list(self.plan.blobs), self._held.epoch, record)
        index = forget_index(self._path)
        also = index if self.plan else []
        return [*also, *self._in_run_folder(), *_in_history(self.needles), *_in_snapshots(self.needles)]

    def look_again(self) -> Plan:
        """What a fresh look at the log finds of the texts: nothing, unless somebody said it again meanwhile."""
        return plan(self._log, rules(), self.texts) if self.texts else Plan()

    def _in_run_folder(self) -> list[str]:
        """Take away what the runner of this session keeps, but for results that are not in the log yet and hold nothing
        of what has to go."""
        from muse.effect.runner import files

        folder = run_folder(self._log.session)
        if not folder.is_dir():
            return []
        stop_runner(self._log.session)
        needles = self.needles
        hidden = {hiding.call for hiding in self.plan.events.values() if hiding.places}
        for call, attempt in files.attempts(str(folder)):
            place = files.call_folder(str(folder), call, attempt)
            if attempt <= self._recorded.get(call, -1) or call in hidden or _holds(Path(place), needles):
                files.remove_attempt(place)
        if not files.attempts(str(folder)):
            shutil.rmtree(folder)
        elif _holds(folder, needles):
            (folder / files.LOG).unlink(missing_ok=True)
            (folder / HOST_LOG).unlink(missing_ok=True)
        return [str(folder)]


def _in_history(needles: Needles) -> list[str]:
    """Take prompts that hold it out of the chat's history. A prompt is a block of lines that begin with `+`."""
    path = muse_home() / HISTORY
    try:
        data = path.read_bytes() if path.stat().st_size <= HISTORY_BYTES_MAX else b""
    except OSError:
        return []
    blocks = data.rstrip(b"\n").split(b"\n\n")
    kept = [block for block in blocks if not needles.is_in(_typed(block)) and not needles.is_in(block)]
    if len(kept) == len(blocks):
        return []
    write_durable(path, b"\n\n".join(kept) + b"\n")
    return [str(path)]


def _typed(block: bytes) -> bytes:
    """The prompt that a block of the history stands for."""
    return b"\n".join(line[1:] for line in block.split(b"\n") if line.startswith(b"+"))


def _holds(folder: Path, needles: Needles) -> bool:
    """Whether a file below a folder holds it."""
    return any(needles.is_in_parts(_chunks(path)) for path in folder.rglob("*") if path.is_file())


def _in_snapshots(needles: Needles) -> list[str]:
    """Take away the folders of snapshots that hold it: caches, made anew at the next snapshot. One that a running
    session works with stays until that has ended; `still_there` names it."""
    if not needles:
        return []
    holding = [folder for folder in snapshot_folders.folders() if snapshot_folders.folder_holds(folder, needles)]
    return [str(folder) for folder in holding if snapshot_folders.take_folder_away(folder)]


def stands_in(path: Path, texts: Iterable[bytes]) -> bool:
    """Whether a log's files hold one of the texts in plain sight, old pages included. Nobody may have it open in this
    process."""
    needles = Needles(texts)
    files = (path, path.with_name(f"{path.name}-wal"))
    return bool(needles) and any(needles.is_in_parts(_chunks(file)) for file in files if file.exists())


def still_there(texts: Iterable[bytes], progress: Callable[[str], None] = lambda _: None) -> list[str]:
    """The files under MUSE_HOME that hold one of the texts in plain sight: other sessions, say. Packed contents of
    other logs and of archives are not looked into. `progress` is called with each file."""
    needles = Needles(texts)
    found = []
    for place, _, names in os.walk(muse_home()):
        for name in names:
            path = Path(place, name)
            progress(str(path))
            with suppress(OSError):
                if path.is_file() and not path.is_symlink() and needles.is_in_parts(_chunks(path)):
                    found.append(str(path))
    found += [str(folder) for folder in snapshot_folders.folders() if snapshot_folders.folder_holds(folder, needles)]
    return sorted({*found})


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(CHUNK_BYTES):
            yield part
