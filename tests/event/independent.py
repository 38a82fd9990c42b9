"""A second implementation of docs/format.md, written from its prose with the standard library alone.

It knows nothing of muse and is slow and plain on purpose: the vectors' expected values come from here, and the code
under test is compared with it.
"""

import base64
import datetime
import hashlib
import hmac
import json
import re
import struct

LIMIT = 2**53
LEVELS = 200


class Refused(Exception):
    """The input is not of the format."""


class Cut(Refused):
    """No whole object stands at the beginning of a line."""


def refuses(function, *arguments):
    try:
        function(*arguments)
    except Refused:
        return True
    return False


def sha(data):
    return hashlib.sha256(data).digest()


def no_duplicates(members):
    if len({key for key, _ in members}) != len(members):
        raise Refused("duplicate key")
    return dict(members)


def no_number(text):
    raise Refused("a number that is no integer: " + text)


def load(data):
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        return json.loads(
            text, object_pairs_hook=no_duplicates, parse_float=no_number, parse_constant=no_number, parse_int=whole
        )
    except (ValueError, RecursionError) as error:
        raise Refused(str(error)) from error


def whole(text):
    if len(text) > 20 or text == "-0" or abs(int(text)) > LIMIT:
        raise Refused("number")
    return int(text)


def depth(data):
    """How many brackets outside strings are open at once, at most."""
    level, most, in_string, escaped = 0, 0, False, False
    for char in data.decode("latin-1"):
        if in_string:
            in_string, escaped = escaped or char != '"', not escaped and char == "\\"
        elif char == '"':
            in_string = True
        else:
            level += {"{": 1, "[": 1, "}": -1, "]": -1}.get(char, 0)
            most = max(most, level)
    return most


def line_of(data):
    """The object of a line that is given without its newline."""
    if depth(data) > LEVELS:
        raise Refused("deep")
    text = data.decode("utf-8", "surrogateescape")  # each byte that is not UTF-8 becomes a surrogate
    bare = text.lstrip("\ufeff \t\r")
    try:
        value, end = json.JSONDecoder(parse_constant=no_json, parse_int=str).raw_decode(bare)
    except ValueError as error:
        raise Cut(str(error)) from error
    if not isinstance(value, dict) or any(0xD800 <= ord(char) <= 0xDFFF for char in bare[:end]):
        raise Cut("no object")
    if (bare, len(bare)) != (text, end):
        raise Refused("something beside the object")
    return load(text)


def no_json(text):
    raise ValueError(text)


def write_string(text):
    out = ['"']
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    for char in text:
        if 0xD800 <= ord(char) <= 0xDFFF:
            raise Refused("surrogate")
        out.append(short.get(char) or (f"\\u{ord(char):04x}" if ord(char) < 0x20 else char))
    return "".join(out) + '"'


def write(value):
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        if abs(value) > LIMIT:
            raise Refused("big integer")
        return str(value)
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, list):
        return "[" + ",".join(write(item) for item in value) + "]"
    if isinstance(value, dict):
        for key in value:
            if not re.fullmatch("[a-z0-9_]+", key, re.ASCII):
                raise Refused("key")
        return "{" + ",".join(write_string(key) + ":" + write(value[key]) for key in sorted(value)) + "}"
    raise Refused("value")


def shape(value, level):
    """Depth and blob references."""
    if not isinstance(value, dict | list):
        return
    if level > 64:
        raise Refused("deep")
    if isinstance(value, dict) and "blob" in value:
        root, length = value["blob"], value.get("length")
        good = level > 1 and set(value) == {"blob", "length"} and isinstance(root, str)
        if not good or not re.fullmatch("[0-9a-f]{64}", root) or type(length) is not int or not 0 <= length <= LIMIT:
            raise Refused("blob reference")
        return
    for item in value.values() if isinstance(value, dict) else value:
        shape(item, level + 1)


def body_of(data):
    value = load(data)
    if not isinstance(value, dict):
        raise Refused("no object")
    shape(value, 1)
    if write(value).encode() != data:
        raise Refused("not canonical")
    return value


def header_of(data):
    head = body_of(data)
    forms = {
        "agent": r"main(\.[1-9][0-9]*)*",
        "id": "[0-9a-f]{32}",
        "time": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z",
        "type": r"[a-z]+\.[a-z_]+",
    }
    if set(head) != {*forms, "cause", "epoch", "seq", "v"}:
        raise Refused("header keys")
    for key, form in forms.items():
        if not isinstance(head[key], str) or not re.fullmatch(form, head[key], re.ASCII):
            raise Refused("header " + key)
    try:
        datetime.datetime.strptime(head["time"], "%Y-%m-%dT%H:%M:%S.%fZ")
    except ValueError as error:
        raise Refused("time") from error
    if int(head["time"][17:19]) > 59:
        raise Refused("leap second")
    for key in ("cause", "epoch", "seq", "v"):
        if type(head[key]) is not int:
            raise Refused("header " + key)
    if head["seq"] < 1 or head["v"] < 1 or head["epoch"] < 0 or not 0 <= head["cause"] < head["seq"]:
        raise Refused("header numbers")
    return head


def pieces(text):
    """Code point by code point, as the prose says it."""
    found, piece, size = [], [], 0
    for char in text:
        width = len(char.encode())
        if size + width > 4096:
            found.append("".join(piece))
            piece, size = [], 0
        piece.append(char)
        size += width
        if char == "\n":
            found.append("".join(piece))
            piece, size = [], 0
    if piece or not found:
        found.append("".join(piece))
    return found


def leaves(value, steps=()):
    path = json.dumps(list(steps), separators=(",", ":")).encode()
    if isinstance(value, str):
        return [(4, path, i, piece.encode()) for i, piece in enumerate(pieces(value))]
    if value is None or isinstance(value, bool):
        return [({None: 0, False: 1, True: 2}[value], path, 0, b"")]
    if isinstance(value, int):
        return [(3, path, 0, str(value).encode())]
    if not value:
        return [(5 if isinstance(value, dict) else 6, path, 0, b"")]
    if isinstance(value, dict) and "blob" in value:
        return [(7, path, 0, bytes.fromhex(value["blob"]) + struct.pack(">Q", value["length"]))]
    inside = sorted(value.items()) if isinstance(value, dict) else enumerate(value)
    return [leaf for step, item in inside for leaf in leaves(item, (*steps, step))]


def salt(key, i):
    return hmac.new(key, struct.pack(">I", i), hashlib.sha256).digest()[:16]


def leaf_hash(leaf_salt, kind, path, piece, text):
    return sha(b"\0" + leaf_salt + struct.pack(">BI", kind, len(path)) + path + struct.pack(">I", piece) + text)


def tree(hashes):
    """The recursion of RFC 6962 §2.1."""
    if not hashes:
        return sha(b"")
    if len(hashes) == 1:
        return hashes[0]
    k = 1
    while k * 2 < len(hashes):
        k *= 2
    return sha(b"\1" + tree(hashes[:k]) + tree(hashes[k:]))


def commit(body, key):
    hashes = [leaf_hash(salt(key, i), *leaf) for i, leaf in enumerate(leaves(body))]
    return len(hashes), tree(hashes)


def commit_blob(data, key):
    chunks = [data[i : i + 65536] for i in range(0, len(data), 65536)] or [b""]
    return len(chunks), tree([leaf_hash(salt(key, i), 8, b"", i, chunk) for i, chunk in enumerate(chunks)])


def genesis(session):
    return sha(b"\x03muse-log-1" + session.encode())


def chain(previous, header, count, root):
    return sha(b"\x02" + previous + sha(header) + struct.pack(">I", count) + root)


def session_tree(hashes):
    return tree([sha(b"\0muse-event-1\n" + each) for each in hashes])


def redact(body, key, hidden):
    """The array of §4, the leaves at these (path, piece) hidden."""
    out = []
    for i, (kind, path, piece, text) in enumerate(leaves(body)):
        if (path.decode(), piece) in hidden:
            out.append({"hash": leaf_hash(salt(key, i), kind, path, piece, text).hex()})
            continue
        entry = {"kind": kind, "path": path.decode(), "piece": piece, "salt": salt(key, i).hex()}
        if kind in (3, 4):
            entry["text"] = text.decode()
        if kind == 7:
            entry |= {"blob": text[:32].hex(), "length": int.from_bytes(text[32:], "big")}
        out.append(entry)
    return out


def unhex(text, size):
    if not isinstance(text, str) or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", text):
        raise Refused("hex")
    return bytes.fromhex(text)


def integer(value, top=LIMIT):
    if type(value) is not int or not 0 <= value <= top:
        raise Refused("integer")
    return value


def string(value):
    if not isinstance(value, str):
        raise Refused("string")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise Refused("surrogate") from error


def shown_leaf(entry):
    kind = integer(entry.get("kind"), 7)
    wanted = {"kind", "path", "piece", "salt"} | {3: {"text"}, 4: {"text"}, 7: {"blob", "length"}}.get(kind, set())
    if set(entry) != wanted:
        raise Refused("members of a leaf")
    path, piece = string(entry["path"]), integer(entry["piece"], 2**32 - 1)
    found = load(path)
    if not isinstance(found, list) or json.dumps(found, separators=(",", ":")).encode() != path:
        raise Refused("path")
    for step in found:
        if not (isinstance(step, str) and re.fullmatch("[a-z0-9_]+", step) and step != "blob"):
            integer(step, 2**32 - 1)
    if not (isinstance(found[0], str) if found else kind == 5):
        raise Refused("a place that no body has")
    if len(found) + (kind in (5, 6, 7)) > 64:
        raise Refused("deep")
    text = string(entry["text"]) if "text" in entry else b""
    if kind == 7:
        text = unhex(entry["blob"], 32) + struct.pack(">Q", integer(entry["length"]))
    if kind != 4 and piece != 0:
        raise Refused("piece")
    if kind == 3 and (not re.fullmatch(b"0|-?[1-9][0-9]{0,15}", text) or abs(int(text)) > LIMIT):
        raise Refused("integer")
    if kind == 4 and (len(text) > 4096 or b"\n" in text[:-1] or (text == b"" and piece != 0)):
        raise Refused("piece")
    return kind, path, piece, text, unhex(entry["salt"], 16)


def read_redacted(entries):
    """(count, root), blobs named, pieces shown under each top-level key."""
    if not isinstance(entries, list) or not entries:
        raise Refused("leaves")
    hashes, named, keys = [], [], {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise Refused("leaf")
        if set(entry) == {"hash"}:
            hashes.append(unhex(entry["hash"], 32))
            continue
        kind, path, piece, text, leaf_salt = shown_leaf(entry)
        hashes.append(leaf_hash(leaf_salt, kind, path, piece, text))
        for key in json.loads(path)[:1]:
            keys.setdefault(key, set()).add((path, piece))
        if kind == 7:
            named.append((entry["blob"], entry["length"]))
    return (len(hashes), tree(hashes)), named, keys


class Export:
    """Reads an export line by line; `seq` and `hash` are the head so far."""

    def __init__(self, clear):
        self.clear = clear
        self.seq, self.hash, self.session = 0, b"", None
        self.ids, self.blobs, self.named, self.hashes = set(), {}, set(), []
        self.ended = False

    def line(self, value):
        if not isinstance(value, dict) or self.ended:
            raise Refused("line")
        keys = set(value)
        if self.session is None:
            self.first(value)
        elif keys - {"hash"} in ({"header", "body", "key"}, {"header", "leaves"}):
            self.event(value)
        elif keys in ({"blob", "length", "key", "data"}, {"blob", "length", "hidden"}):
            self.blob(value)
        elif keys == {"end", "events", "hash"}:
            self.end(value)
        else:
            raise Refused("keys of a line")

    def first(self, value):
        if set(value) != {"muse_export", "session", "head", "hash"} or value["muse_export"] != 1:
            raise Refused("first line")
        if value["muse_export"] is True or not string(value["session"]):
            raise Refused("first line")
        self.head, self.hash = (integer(value["head"]), unhex(value["hash"], 32)), genesis(value["session"])
        self.check_head(0, self.hash)
        self.session = value["session"]

    def check_head(self, seq, event_hash):
        if seq > self.head[0] or (seq == self.head[0] and event_hash != self.head[1]):
            raise Refused("the head of the first line")

    def event(self, value):
        header = string(value["header"])
        head = header_of(header)
        if head["seq"] != self.seq + 1 or head["id"] in self.ids:
            raise Refused("seq or id")
        if "leaves" in value:
            (count, root), named, keys = read_redacted(value["leaves"])
            for key in self.clear.get((head["type"], head["v"]), ()):
                shown = keys.get(key, set())
                if not shown or any(piece and (path, piece - 1) not in shown for path, piece in shown):
                    raise Refused("a clear key is hidden")
        else:
            body = body_of(string(value["body"]))
            count, root = commit(body, unhex(value["key"], 32))
            found = [text for kind, _, _, text in leaves(body) if kind == 7]
            named = [(text[:32].hex(), int.from_bytes(text[32:], "big")) for text in found]
        for blob, length in named:
            if self.blobs.get(blob) != length:
                raise Refused("a blob is missing")
            self.named.add(blob)
        event_hash = chain(self.hash, header, count, root)
        if "hash" in value and unhex(value["hash"], 32) != event_hash:
            raise Refused("chain")
        self.check_head(self.seq + 1, event_hash)
        self.ids.add(head["id"])
        self.hash = event_hash
        self.hashes.append(event_hash)
        self.seq += 1

    def blob(self, value):
        root, length = value["blob"], integer(value["length"])
        unhex(root, 32)
        if root in self.blobs:
            raise Refused("a blob stands twice")
        if "hidden" in value:
            if value["hidden"] is not True:
                raise Refused("hidden")
        else:
            try:
                data = base64.b64decode(string(value["data"]), validate=True)
            except ValueError as error:
                raise Refused("base64") from error
            if base64.b64encode(data) != string(value["data"]):
                raise Refused("base64")
            if len(data) != length or commit_blob(data, unhex(value["key"], 32))[1].hex() != root:
                raise Refused("blob")
        self.blobs[root] = length

    def end(self, value):
        if value["end"] is not True or (integer(value["events"]), unhex(value["hash"], 32)) != (self.seq, self.hash):
            raise Refused("last line")
        if self.seq != self.head[0] or set(self.blobs) != self.named:
            raise Refused("last line")
        self.ended = True


def clear_keys(prose):
    """{(type, v): keys} from the table of §7."""
    rows = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \| ([0-9]+) \| ([a-z0-9_` ]+) \|$", prose, re.MULTILINE)
    return {(name, int(v)): set(re.findall("`([a-z0-9_]+)`", keys)) for name, v, keys in rows}


def verify(data, known=None, clear=None):
    """(exit code, first bad seq or None) of an export; `known` is (seq, hash in hex) kept elsewhere."""
    export = Export(clear or {})
    try:
        if data and data[:1] != b"{":
            raise Refused("no export")
        *lines, rest = data.split(b"\n")
        for line in lines:
            export.line(line_of(line))
        if rest and export.ended:
            raise Refused("something after the last line")
        try:
            if rest:
                export.line(line_of(rest))
        except Cut:
            pass
        if known and export.session is not None and export.seq >= known[0]:
            reached = export.hashes[known[0] - 1] if known[0] else genesis(export.session)
            if reached.hex() != known[1]:
                return 6, known[0]
    except Refused:
        return 6, 0 if export.session is None else export.seq + 1
    if not export.ended or (known and export.seq < known[0]):
        return 8, None
    return 0, None
