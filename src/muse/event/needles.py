"""Where a text stands in other texts: as it is, or as programs write it when they quote, escape or encode it.

For taking a secret out of a log: what is looked for is the secret in every form that tools and providers are likely to
have left of it. Pure. This module must not know what is done with what it finds.
"""

import base64
import html
import json
import re
import urllib.parse
from collections.abc import Iterable
from typing import Final

import msgspec

from muse.event.commitment import Path, steps
from muse.event.leaves import BLOB, INTEGER, STRING, Leaf

SECRET_BYTES_MIN: Final = 4
"""A shorter text stands nearly everywhere by chance."""
ENCODED_CHARS_MIN: Final = 6
"""A shorter piece of base64 does."""
JSON_LEVELS: Final = 3
"""JSON text inside JSON text: arguments in a provider's block, a block in a recorded line."""

_HTML_QUOTES: Final = tuple((one, two) for one in ("&#x27;", "&#39;", "&apos;") for two in ("&quot;", "&#34;"))
"""How programs write the two quotes."""
_SHELL_SPECIAL: Final = (r"""\s'"\\|&;()<>!{}*\[\]?^$`,""", r"""\s'"\\|&;()<>!{}*\[\]?^$`,~#=%@:""", r"""\s'"\\$`!""")
"""What shells put a backslash before (bash's `printf %q`, others' completion, double quotes)."""

Place = tuple[Path, int]
"""A piece of a body: the path of its value, and which piece of it."""


class Needles:
    """Texts to look for, in all their forms. `exact` are looked for as they are only (digests)."""

    def __init__(self, texts: Iterable[bytes], exact: Iterable[bytes] = ()) -> None:
        found = {form for text in texts for form in forms(text)} | set(exact)
        self._forms = sorted(found, key=len, reverse=True)
        self.longest = max((len(form) for form in self._forms), default=0)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def is_in(self, data: bytes) -> bool:
        """Whether any form stands in `data`."""
        return any(form in data for form in self._forms)

    def is_in_parts(self, parts: Iterable[bytes]) -> bool:
        """Whether any form stands in what the parts are when they are joined."""
        rest = b""
        for part in parts:
            data = rest + part
            if self.is_in(data):
                return True
            rest = data[-(self.longest - 1) :] if self.longest > 1 else b""
        return False

    def is_cut_at_end(self, data: bytes) -> bool:
        """Whether `data` ends with the beginning of a form, at least `SECRET_BYTES_MIN` of it."""
        return any(data.endswith(form[:n]) for form in self._forms for n in _parts(form, data))

    def is_cut_at_start(self, data: bytes) -> bool:
        """Whether `data` begins with the end of a form, at least `SECRET_BYTES_MIN` of it."""
        return any(data.startswith(form[-n:]) for form in self._forms for n in _parts(form, data))

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where forms stand in `data`: begin and end of each, also of those that overlap."""
        found = []
        for form in self._forms:
            at = data.find(form)
            while at >= 0:
                found.append((at, at + len(form)))
                at = data.find(form, at + 1)
        return found

    def places(self, leaves: Iterable[Leaf]) -> set[Place]:
        """The pieces that hold a form, or a part of one that goes on in the next piece; and numbers that do. `leaves`
        are those of one body in document order; where a piece is missing, what is before and after it is not joined."""
        found: set[Place] = set()
        run: list[Leaf] = []
        for leaf in leaves:
            if leaf.kind == INTEGER and self.is_in(leaf.text):
                found.add((steps(leaf.path), 0))
            if run and not (leaf.kind == STRING and leaf.path == run[-1].path and leaf.piece == run[-1].piece + 1):
                self._in_run(run, found)
                run = []
            if leaf.kind == STRING:
                run.append(leaf)
        if run:
            self._in_run(run, found)
        return found

    def _in_run(self, run: list[Leaf], found: set[Place]) -> None:
        text = b"".join(leaf.text for leaf in run)
        spans = self.spans(text)
        if not spans:
            return
        path, begin = steps(run[0].path), 0
        for leaf in run:
            end = begin + len(leaf.text)
            if any(first < end and last > begin for first, last in spans):
                found.add((path, leaf.piece))
            begin = end


def _parts(form: bytes, data: bytes) -> range:
    """How long a part of a form may be that stands at an end of `data`."""
    return range(SECRET_BYTES_MIN, min(len(form), len(data) + 1))


class Named(msgspec.Struct, frozen=True):
    """A blob that a leaf names."""

    path: Path
    root: str


def named_in(leaves: Iterable[Leaf]) -> list[Named]:
    """The blobs that these leaves name."""
    return [Named(steps(leaf.path), leaf.text[:32].hex()) for leaf in leaves if leaf.kind == BLOB]


def forms(secret: bytes) -> set[bytes]:
    """A secret as it may stand in a text: as it is, escaped for JSON (nested, too), HTML, URLs and shells, in hex, and
    in base64 wherever it begins in what was encoded."""
    found = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    found |= _base64_forms(secret)
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        return {form for form in found if form}
    found |= _json_forms(text)
    found |= {form.replace(b"/", b"\\/") for form in [secret, *found] if b"/" in form and b"\\/" not in form}
    found |= {re.sub(rb"\\u[0-9a-f]{4}", lambda match: b"\\u" + match[0][2:].upper(), form) for form in [*found]}
    for escaped in (html.escape(text), html.escape(text, quote=False)):
        found |= {escaped.replace("&#x27;", one).replace("&quot;", two).encode() for one, two in _HTML_QUOTES}
    found |= {text.replace("'", quoted).encode() for quoted in ("'\"'\"'", "'\\''")}
    found |= {re.sub(rf"([{special}])", r"\\\1", text).encode() for special in _SHELL_SPECIAL}
    urls = {urllib.parse.quote(text, safe=""), urllib.parse.quote(text), urllib.parse.quote_plus(text)}
    urls.add("".join(f"%{byte:02X}" for byte in secret))
    urls |= {re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), url) for url in urls}
    return {form for form in found | {url.encode() for url in urls} if form}


def _json_forms(text: str) -> set[bytes]:
    """Inside a JSON string, at each level with or without letters beyond ASCII."""
    found: set[str] = set()
    level = {text}
    for _ in range(JSON_LEVELS):
        level = {json.dumps(one, ensure_ascii=ascii_only)[1:-1] for one in level for ascii_only in (True, False)}
        found |= level
    return {form.encode() for form in found}


def _base64_forms(secret: bytes) -> set[bytes]:
    """The characters of base64 that the secret alone decides, for each of the three places where it may begin in a
    group of three bytes; in both alphabets (RFC 4648 §4 and §5)."""
    found = set()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret + bytes(2))
        first, last = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        core = encoded[first:last]
        if len(core) >= ENCODED_CHARS_MIN:
            found |= {core, core.translate(bytes.maketrans(b"+/", b"-_"))}
    return found
