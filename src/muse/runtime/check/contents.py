"""Whether what events say of contents is so: blobs there with their length, digests of them, answers decoded again.

Each blob is read at most once (of those named often), in chunks. This module must not know what may be decided.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from muse.decide import approval
from muse.decide.compaction import summary_items
from muse.decide.paths import named_path
from muse.effect.protocol import ModelFailure
from muse.errors import Damaged, Incomplete
from muse.event.codec import BlobRef
from muse.event.content import FileChange, Observed, Usage
from muse.event.conversation import Answered, Said
from muse.event.envelope import Event
from muse.event.kinds import FilesChanged, ModelFailed, ModelResponded, ToolFinished, ToolStarted
from muse.event.text import clean
from muse.fold.agents import root
from muse.fold.models import priced, session_ref
from muse.fold.state import Agent, Session
from muse.runtime.check.decoders import Decoded, decoded
from muse.runtime.check.differences import bodies, one
from muse.runtime.check.made import can_be_made, require_made
from muse.runtime.check.report import Diverged
from muse.runtime.check.story import Told

SEEN_MAX: Final = 50_000
"""Blobs of which it is remembered that they are there, with their length and digest."""

TEXT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Outputs up to this size are compared with the text that was made of them."""

PARTIAL_CHARACTERS_MAX: Final = 100_000
MASKED: Final = re.compile(r"\[(secret [^\]\n]+|api key)\]")
"""Stands where a known secret stood: there a text is not simply that of its bytes."""

REPLACED: Final = "\ufffd".encode()
"""Stands where a byte was no text."""

_digest_form: Final = re.compile(r"[0-9a-f]{64}")
_left_out: Final = re.compile(r"\n?\[\.\.\. ([0-9]+) bytes left out;[^\n]*\.\.\.\]\n")

OWN_FAILURES: Final = frozenset({"timeout", "cut", "network", "garbage", "invalid", "cancelled"})
"""What the transport says of an attempt by itself, whatever bytes had come."""


FAILURES_COUNTED_SINCE: Final = 3
"""The first version of the rules under which it is recorded what a failed attempt used."""

FAILED_HERE: Final = frozenset({"invalid", "cancelled"})
"""Failures of which it may be that nothing was taken from what came."""


class Hidden(Exception):
    """The content was hidden by redaction."""


class Contents:
    """The contents of one log, and what was found of them: how many are there, which answers were decoded again."""

    def __init__(self, log: Told) -> None:
        self._log = log
        self._seen: dict[str, tuple[int, str]] = {}
        self.checked = self.answers = 0
        self.hidden: list[int] = []
        self.undecoded: list[int] = []

    def check(self, state: Session, event: Event) -> None:
        """Raises `Diverged` where the event says of a content what is not so."""
        try:
            for ref in _refs(event.body):
                self._require(ref)
            match event.body:
                case ToolStarted():
                    self._observed(root(state, event.agent), event.body)
                case FilesChanged():
                    self._changes(event.body.changes, f"a change of {event.type}")
                case ToolFinished():
                    self._output(event.body)
                case ModelResponded() | ModelFailed():
                    self._answer(state, event, event.body)
        except Hidden:
            self.hidden.append(event.seq)

    def _require(self, ref: BlobRef) -> None:
        length, _ = self._measured(ref.blob)
        if length != ref.length:
            raise Diverged("content", f"blob {ref.blob} has another length", f"{length} bytes", f"{ref.length} bytes")

    def _measured(self, root: str) -> tuple[int, str]:
        """Length and SHA-256 of a blob. Raises `Hidden`, `Diverged` when it is not there."""
        if root not in self._seen:
            length, digest = 0, hashlib.sha256()
            try:
                for chunk in self._log.stream_blob(root):
                    length += len(chunk)
                    digest.update(chunk)
            except Incomplete as error:
                raise Hidden from error
            except Damaged as error:
                raise Diverged("content", f"{error}", "a blob of this log", root) from error
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            self._seen[root] = length, digest.hexdigest()
            self.checked += 1
        return self._seen[root]

    def _observed(self, folder: str, body: ToolStarted) -> None:
        """What was seen before a call began, of an agent that works in `folder`."""
        seen = body.observed
        if seen.folder not in ("", folder):
            raise Diverged("content", f"{body.call} was looked at in another folder", folder, seen.folder)
        if body.recovery != "reconcilable":
            plain = Observed(folder=seen.folder, error=seen.error, tree=seen.tree)
            if seen != plain:
                what = f"{body.call} replaces no file, and says of one what was seen of it"
                raise Diverged("content", what, difference=bodies(plain, seen))
            return
        _require_file(folder, body)
        self._changes(seen.changes, f"what {body.call} is about to do", planned=True)
        for when, ref, digest in (
            ("before", seen.before, seen.before_sha256), ("after", seen.after, seen.after_sha256),
        ):  # fmt: skip
            if ref is not None:
                self._require_digest(ref, digest, f"{seen.path} {when} {body.call}")
        if can_be_made(body):
            before = None if seen.before is None else self._log.get_blob(seen.before.blob)
            require_made(body, folder, before)

    def _require_digest(self, ref: BlobRef, digest: str, whose: str) -> None:
        found = self._measured(ref.blob)[1]
        if found != digest:
            raise Diverged("content", f"the digest of {whose} is not that of its content", found, digest)

    def _changes(self, changes: tuple[FileChange, ...], whose: str, *, planned: bool = False) -> None:
        """Digests are said of what is planned; what has changed names its contents alone."""
        if planned and len({change.path for change in changes}) < len(changes):
            raise Diverged("content", f"{whose} names a file twice")
        for change in changes:
            for ref, digest in ((change.before, change.before_sha256), (change.after, change.after_sha256)):
                if ref is not None and (planned or digest):
                    self._require_digest(ref, digest, f"{change.path} in {whose}")
                elif digest and not (planned and _digest_form.fullmatch(digest)):
                    what = f"a digest of {change.path} in {whose} is of no content"
                    raise Diverged("content", what, "none", digest)

    def _output(self, body: ToolFinished) -> None:
        """The text that a model read of an output of which it did not get all."""
        if not isinstance(body.text, str):
            return
        if body.output is None:
            _require_line_end(body, body.text.encode())
            return
        if body.output.length > TEXT_BYTES_MAX:
            return
        data = self._log.get_blob(body.output.blob)
        if MASKED.search(data.decode(errors="replace")):
            return  # secrets were masked in what was kept: other lengths
        if body.output.length != body.output_bytes:
            what = f"the output of {body.call} has another length than was kept of it"
            raise Diverged("content", what, body.output.length, body.output_bytes)
        if wrong := text_of_output(body.text, data):
            raise Diverged("content", f"the text of {body.call} is not made of its output: {wrong}")

    def _answer(self, state: Session, event: Event, body: ModelResponded | ModelFailed) -> None:
        settings, agent = state.settings, state.agents.get(event.agent)
        if settings is None or agent is None:
            return
        if body.raw is None:
            if isinstance(body, ModelResponded):
                self.undecoded.append(event.seq)
            elif body.usage != Usage():
                what = f"{body.call} failed, and nothing says what it used"
                raise Diverged("decoding", what, "no usage", one(body.usage))
            return
        raw = self._log.get_blob(body.raw.blob)
        status = body.status if isinstance(body, ModelFailed) else 0
        asked = agent.call.ref if agent.call is not None and agent.call.ref is not None else session_ref(settings)
        found = decoded(asked.dialect, raw, status, lambda: _answers_sent(state, agent))
        if found is None:
            self.undecoded.append(event.seq)
        elif isinstance(body, ModelResponded):
            self._responded(event, body, found, lambda usage: priced(settings, asked, usage))
        else:
            _require_told(body, found)
            if body.usage != Usage() or state.rules >= FAILURES_COUNTED_SINCE:
                _require_used(body, found, lambda usage: priced(settings, asked, usage))
            self.answers += 1

    def _responded(self, event: Event, body: ModelResponded, found: Decoded, price: Callable[[Usage], Usage]) -> None:
        if found.answer is None:
            told = found.failures[-1].failure if found.failures else "no answer"
            raise Diverged("decoding", f"the raw bytes of {body.call} hold no whole answer", told, one(body))
        again = msgspec.structs.replace(body, **found.answer)
        again = msgspec.structs.replace(again, usage=price(again.usage))
        if again == body:
            self.answers += 1
        elif MASKED.search(body.model + "".join(block.text + block.args + block.raw for block in body.blocks)):
            self.undecoded.append(event.seq)
        else:
            what = f"the answer of {body.call} is not what its raw bytes say"
            raise Diverged("decoding", what, difference=bodies(again, body))


def _answers_sent(state: Session, agent: Agent) -> int:
    """How many answers the agent's open request holds, those that summaries stand for included."""
    is_summary = agent.call is not None and agent.call.purpose == "summary"
    items = summary_items(state, agent) if is_summary else agent.items
    return sum(isinstance(item, Answered) or (item.answers if isinstance(item, Said) else 0) for item in items)


def _require_used(body: ModelFailed, found: Decoded, price: Callable[[Usage], Usage]) -> None:
    """Raises `Diverged` unless the bytes that came tell what was used by then."""
    told = [price(failure.usage) for failure in found.failures[-1:] if body.status == 0]
    if body.usage not in told and not (body.usage == Usage() and (body.status or body.failure in FAILED_HERE)):
        what = f"what {body.call} used is not what its raw bytes say"
        raise Diverged("decoding", what, one(told[0] if told else Usage()), one(body.usage))


def _require_told(body: ModelFailed, found: Decoded) -> None:
    """Raises `Diverged` unless the bytes tell this failure, or the transport may have told it by itself: with the text
    that had come by then."""
    if MASKED.search(body.message + body.partial):
        return
    if any(_is_told(body, failure) for failure in found.failures):
        return
    named = any(failure.message and failure.message == body.message for failure in found.failures)
    partials = {"", *(failure.partial[:PARTIAL_CHARACTERS_MAX] for failure in found.failures)}
    if body.status == 0 and body.failure in OWN_FAILURES and body.partial in partials and not named:
        return
    what = f"the failure of {body.call} is not the one that its raw bytes tell"
    told = [f"{failure.failure} {failure.status}: {failure.message}" for failure in found.failures]
    raise Diverged("decoding", what, " or ".join(told) or "an answer", one(body))


def _is_told(body: ModelFailed, failure: ModelFailure) -> bool:
    same = (body.failure, body.status) == (failure.failure, failure.status)
    return same and body.message.endswith(failure.message) and body.partial == failure.partial[:PARTIAL_CHARACTERS_MAX]


def _require_file(folder: str, body: ToolStarted) -> None:
    """What was seen of the file of a call is of the file that the call names."""
    seen = body.observed
    for digest in (seen.before_sha256, seen.after_sha256):
        if digest and not _digest_form.fullmatch(digest):
            raise Diverged("content", f"a digest of {body.call} is none", "64 hexadecimal digits", digest)
    if not seen.path or not isinstance(body.args, str):
        return
    named, _ = named_path(approval.parsed(body.args) or {}, folder)
    if seen.path != named:
        raise Diverged("content", f"{body.call} looked at another file than it names", named, seen.path)


def _require_line_end(body: ToolFinished, text: bytes) -> None:
    """An output that a model got whole ends where a line does, or the text; an ending of the tool's own follows. Where
    the text is not just its bytes, and all of it could not be kept, there is nothing to hold it against."""
    at = body.output_bytes
    if not at or _left_out.search(text.decode()) or MASKED.search(text.decode()) or REPLACED in text:
        return
    if at > len(text) or (at < len(text) and b"\n" not in (text[at - 1 : at], text[at : at + 1])):
        raise Diverged("content", f"the text of {body.call} holds no output of that length", len(text), at)


def text_of_output(text: str, data: bytes) -> str:
    """What is wrong with a text made of this output, "" if nothing: it has all of it, or its head and its tail with the
    number of bytes that are left out between, and then an ending of its own."""
    whole = clean(data)
    if whole.text and text.startswith(whole.text):
        return ""
    places = list(_left_out.finditer(text))
    if not places:
        return "it does not begin with all of it"
    if whole.exact is not None or any(_has_ends(text, place, data) for place in places):
        return ""
    return "head, tail and the number of bytes left out between them do not fit"


def _has_ends(text: str, place: re.Match[str], data: bytes) -> bool:
    head = text[: place.start()].encode()
    for begin in (head, head + b"\n"):
        tail = data[len(begin) + int(place[1]) :]
        if data.startswith(begin) and tail and text[place.end() :].startswith(tail.decode(errors="replace")):
            return True
    return False


def _refs(value: object) -> Iterator[BlobRef]:
    """The blobs that a decoded body names."""
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _refs(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _refs(item)
