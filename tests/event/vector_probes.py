"""Exports at the edges of the format: what a body can have, what a line may look like, where a file breaks off."""

from tests.event import independent as reference
from tests.event.vector_exports import line
from tests.event.vector_inputs import header_text

SESSION = "s"
SALT = bytes(16)
HASH_0 = reference.genesis(SESSION).hex()
FIRST = line({"muse_export": 1, "session": SESSION, "head": 0, "hash": HASH_0})
EMPTY = FIRST + line({"end": True, "events": 0, "hash": HASH_0})
BLOB = line({"blob": "0" * 64, "length": 3, "hidden": True})


def probes():
    """(name, text or bytes, known head or None)."""
    texts = leaf_cases() | clear_cases() | line_cases() | first_line_cases() | tail_cases() | after_the_last_line()
    return [*((name, text, None) for name, text in texts.items()), *known_cases()]


def entry(kind, path, piece=0, text=b"", hide=False):
    """(leaf hash, entry of a redacted event)."""
    hashed = reference.leaf_hash(SALT, kind, path.encode(), piece % 2**32, text)
    shown = {"kind": kind, "path": path, "piece": piece, "salt": SALT.hex()}
    if kind in (3, 4):
        shown["text"] = text.decode()
    if kind == 7:
        shown |= {"blob": text[:32].hex(), "length": int.from_bytes(text[32:], "big")}
    return hashed, {"hash": hashed.hex()} if hide else shown


def redacted(*entries, type="log.not_known", before=""):
    """An export of one event that has these leaves, every hash as it should be."""
    header = header_text({"seq": 1, "cause": 0, "id": f"{1:032x}", "type": type})
    root = reference.tree([hashed for hashed, _ in entries])
    chained = reference.chain(reference.genesis(SESSION), header.encode(), len(entries), root).hex()
    event = {"header": header, "leaves": [each for _, each in entries], "hash": chained}
    first = {"muse_export": 1, "session": SESSION, "head": 1, "hash": chained}
    return line(first) + before + line(event) + line({"end": True, "events": 1, "hash": chained})


def nested(steps):
    return '["a"' + ",0" * (steps - 1) + "]"


def leaf_cases():
    reference_text = bytes(32) + (3).to_bytes(8, "big")
    true = entry(2, '["a"]')
    return {
        "a shown leaf": redacted(entry(4, '["a"]', 0, b"x")),
        "path [] of a string": redacted(entry(4, "[]", 0, b"x")),
        "path [] of the empty array": redacted(entry(6, "[]")),
        "path [] of the empty body": redacted(entry(5, "[]")),
        "path [] beside another leaf": redacted(entry(5, "[]"), true),
        "path that begins with an index": redacted(entry(4, "[0]", 0, b"x")),
        "path with the key blob below the top": redacted(entry(4, '["a","blob"]', 0, b"x")),
        "path with the key blob at the top": redacted(entry(4, '["blob"]', 0, b"x")),
        "path of 64 steps, scalar": redacted(entry(2, nested(64))),
        "path of 65 steps, scalar": redacted(entry(2, nested(65))),
        "path of 63 steps, empty array": redacted(entry(6, nested(63))),
        "path of 64 steps, empty array": redacted(entry(6, nested(64))),
        "path of 63 steps, empty object": redacted(entry(5, nested(63))),
        "path of 64 steps, empty object": redacted(entry(5, nested(64))),
        "path of 63 steps, blob": redacted(entry(7, nested(63), 0, reference_text), before=BLOB),
        "path of 64 steps, blob": redacted(entry(7, nested(64), 0, reference_text), before=BLOB),
        "shown blob of an earlier line": redacted(entry(7, '["a"]', 0, reference_text), before=BLOB),
        "shown blob of no line": redacted(entry(7, '["a"]', 0, reference_text)),
        "index 2^32-1": redacted(entry(2, '["a",4294967295]')),
        "index 2^32": redacted(entry(2, '["a",4294967296]')),
        "piece 2^32-1": redacted(entry(4, '["a"]', 2**32 - 1, b"x")),
        "piece 2^32": redacted(entry(4, '["a"]', 2**32, b"x")),
        "piece 1 of a null": redacted(entry(0, '["a"]', 1)),
        "path with an escaped key": redacted(entry(2, '["\\u0061"]')),
        "the same shown leaf twice": redacted(true, true),
        "leaves out of document order": redacted(entry(2, '["b"]'), true),
        "pieces out of order": redacted(entry(4, '["a"]', 1, b"x"), entry(4, '["a"]', 0, b"y\n")),
    }


def clear_cases():
    """`outcome` is a clear key of session.closed."""

    def closed(*entries):
        return redacted(*entries, type="session.closed")

    first, second, third = (entry(4, '["outcome"]', i, text) for i, text in enumerate((b"x\n", b"y\n", b"z")))
    hidden_first = entry(4, '["outcome"]', 0, b"x\n", hide=True)
    hidden_second = entry(4, '["outcome"]', 1, b"y\n", hide=True)
    return {
        "clear key: all its pieces shown": closed(first, second, third),
        "clear key: pieces hidden at its end": closed(first, hidden_second),
        "clear key: its first piece hidden": closed(hidden_first, second),
        "clear key: a piece hidden between": closed(first, hidden_second, third),
        "clear key: its pieces shown out of order": closed(second, first),
        "clear key: a leaf below it": closed(entry(4, '["outcome","x"]', 0, b"x")),
        "clear key: pieces of different strings below it": closed(
            entry(4, '["outcome","x"]', 0, b"x\n"), entry(4, '["outcome","y"]', 1, b"y")
        ),
        "clear key: only a key of that name deeper": closed(entry(4, '["a","outcome"]', 0, b"x")),
        "clear key missing, all shown": closed(entry(4, '["a"]', 0, b"x")),
        "another key: its first piece hidden": closed(
            first, entry(4, '["a"]', 0, b"x\n", True), entry(4, '["a"]', 1, b"y")
        ),
    }


def line_cases():
    return {
        "number -0": EMPTY.replace('"head":0', '"head":-0'),
        "number 0e0": EMPTY.replace('"head":0', '"head":0e0'),
        "number 0.0": EMPTY.replace('"head":0', '"head":0.0'),
        "number 00": EMPTY.replace('"head":0', '"head":00'),
        "number 2^53+1": EMPTY.replace('"head":0', '"head":9007199254740993'),
        "number of 5000 digits": EMPTY.replace('"head":0', '"head":' + "1" * 5000),
        "last line: number -0": EMPTY.replace('"events":0', '"events":-0'),
        "last line: end is false": EMPTY.replace('"end":true', '"end":false'),
        "white space between tokens": EMPTY.replace(":", " :\t\r").replace(",", " , ").replace("}", " }"),
        "white space before a line": EMPTY.replace('{"end"', ' {"end"'),
        "white space after a line": EMPTY.replace("}\n", "} \n", 1),
        "a carriage return after each line": EMPTY.replace("\n", "\r\n"),
        "a form feed after each line": EMPTY.replace("\n", "\f\n"),
        "a byte order mark before a line": EMPTY.replace('{"end"', '\ufeff{"end"'),
        "two objects in a line": EMPTY.replace("}\n{", "}{"),
        "keys of a line escaped": EMPTY.replace('"head"', '"\\u0068ead"'),
        "a line with the keys of two kinds": FIRST + '{"header":"x","blob":"y"}\n',
        "a line nested 500 deep": FIRST + '{"a":' * 500 + "1" + "}" * 500 + "\n",
        "a line that is an array": FIRST + "[]\n",
        "a line that is not UTF-8": FIRST.encode() + b'{"end":"\xff"}\n',
        "half an object with its newline": FIRST + '{"end":\n',
    }


def first_line_cases():
    return {
        "a byte order mark before all": "\ufeff" + EMPTY,
        "white space before all": " " + EMPTY,
        "no export: x": "x",
        "no export: x and a newline": "x\n",
        "no export: a newline": "\n",
        "no export: NUL bytes": "\0" * 100,
        "no export: an array": "[]",
        "no export: bytes that are not UTF-8": b"\xff\xfe{",
        "another object": "{}\n",
        "another object without newline": "{}",
        "the first line broken off": FIRST[:40],
        "an opening brace alone": "{",
        "the first line without its newline": FIRST[:-1],
        "version 2 with other keys": '{"muse_export":2,"x":1}\n',
        "version true": EMPTY.replace("1", "true", 1),
        "version 0": EMPTY.replace("1", "0", 1),
        "version 1.0": EMPTY.replace("1", "1.0", 1),
        "session with U+0000": EMPTY.replace('"s"', '"\\u0000"'),
        "session with a lone surrogate": EMPTY.replace('"s"', '"\\ud800"'),
    }


def tail_cases():
    """What follows the last newline, and is no last line."""
    return {
        "tail: spaces": FIRST + "  ",
        "tail: a whole array": FIRST + "[]",
        "tail: a whole number": FIRST + "1",
        "tail: x": FIRST + "x",
        "tail: NUL bytes": FIRST + "\0\0\0",
        "tail: a whole object": FIRST + "{}",
        "tail: an object and x": FIRST + "{}x",
        "tail: white space and an object": FIRST + " {}",
        "tail: a byte order mark and an object": FIRST + "\ufeff{}",
        "tail: a repeated key": FIRST + '{"a":1,"a":1}',
        "tail: a repeated key, cut": FIRST + '{"a":1,"a":1',
        "tail: a lone surrogate": FIRST + '{"a":"\\ud800"}',
        "tail: a lone surrogate, cut": FIRST + '{"a":"\\ud800"',
        "tail: NaN": FIRST + '{"a":NaN}',
        "tail: number -0": FIRST + '{"a":-0}',
        "tail: number 1.5": FIRST + '{"a":1.5}',
        "tail: number 01, which is no JSON": FIRST + '{"a":01}',
        "tail: 5000 digits": FIRST + '{"a":' + "1" * 5000 + "}",
        "tail: a control character in a string": FIRST + '{"a":"\x01"}',
        "tail: cut inside a character": FIRST.encode() + b'{"a":"\xe2\x82',
        "tail: not UTF-8 in an object": FIRST.encode() + b'{"a":"\xff"}',
        "tail: not UTF-8 after an object": FIRST.encode() + b"{}\xff",
        "tail: 200 levels, cut": FIRST + '{"a":' * 200,
        "tail: 201 levels, cut": FIRST + '{"a":' * 201,
        "tail: 500 levels": FIRST + '{"a":' * 500 + "1" + "}" * 500,
        "tail: 300 brackets in a string, cut": FIRST + '{"a":"\\"' + "[" * 300,
        "tail: 300 brackets after a string, cut": FIRST + '{"a":"\\\\",' + "[" * 300,
        "tail: 300 brackets closed each, cut": FIRST + '{"a":[' + "[]," * 300,
    }


def after_the_last_line():
    return {
        "after the last line: a space": EMPTY + " ",
        "after the last line: x": EMPTY + "x",
        "after the last line: half an object": EMPTY + '{"a":',
        "after the last line: an empty line": EMPTY + "\n",
        "after the last line: a NUL": EMPTY + "\0",
        "after the last line: not UTF-8": EMPTY.encode() + b"\xff",
        "after the last line: another export": EMPTY + EMPTY,
        "in the last line: x": EMPTY[:-1] + "x",
        "in the last line: x and a newline": EMPTY[:-1] + "x\n",
        "in the last line: a space": EMPTY[:-1] + " ",
        "in the last line: half an object": EMPTY[:-1] + "{",
        "in the last line: not UTF-8": EMPTY[:-1].encode() + b"\xff",
        "the last line without its newline": EMPTY[:-1],
    }


def known_cases():
    other = "0" * 64
    return [
        ("empty file, known head 0 of another session", "", [0, other]),
        ("first line only, known head 0", FIRST, [0, HASH_0]),
        ("first line only, wrong known head 0", FIRST, [0, other]),
        ("first line only, known head 1", FIRST, [1, other]),
        ("no session, wrong known head 0", EMPTY, [0, other]),
        ("no export, known head", "x", [0, HASH_0]),
        ("broken off, wrong known head 0", FIRST + '{"end":', [0, other]),
    ]
