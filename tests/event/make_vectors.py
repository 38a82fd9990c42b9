"""Writes docs/vectors/ from the independent implementation: `python tests/event/make_vectors.py`.

Everything is fixed (no randomness, no clock), so a test can make the vectors again and compare.
"""

import base64
import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import independent as reference

FOLDER = Path(__file__).parents[2] / "docs" / "vectors"
KEY = bytes(range(32))
SESSION = "20260102-030405-0a1b2c"


def key(name):
    return hashlib.sha256(("vector key " + name).encode()).digest()


VALID_BODIES = {
    "an empty body": {},
    "every kind": {
        "a": None,
        "b": False,
        "c": True,
        "d": -17,
        "e": "text",
        "f": {},
        "g": [],
        "h": {"blob": "ab" * 32, "length": 70000},
        "i": [[], {}, [1, [2]], {"j": "k"}],
    },
    "a command": {"argv": ["git", "log", "-1"], "call": "main/7", "exit_code": 0, "output": "one\ntwo\n"},
    "an array": {"argv": ["x"]},
    "an object with the key 0": {"argv": {"0": "x"}},
    "a newline in one string": {"a": ["one\ntwo"]},
    "two strings": {"a": ["one\n", "two"]},
    "nothing but a newline": {"a": "\n"},
    "two newlines": {"a": "\n\n"},
    "the empty string": {"a": ""},
    "CRLF": {"a": "one\r\ntwo\r\n"},
    "CR alone does not cut": {"a": "one\rtwo"},
    "other line ends do not cut": {"a": "\u000b\u000c\u0085\u2028\u2029"},
    "0 as integer": {"a": 0},
    "0 as string": {"a": "0"},
    "null": {"a": None},
    "null as string": {"a": "null"},
    "the empty object": {"a": {}},
    "the empty array": {"a": []},
    "a list of the empty list": {"a": [[]]},
    "the largest integers": {"a": 2**53, "b": -(2**53)},
    "an empty blob": {"a": {"blob": "0" * 64, "length": 0}},
    "a blob of the greatest length": {"a": {"blob": "f" * 64, "length": 2**53}},
    "keys sort by bytes": {"_": 1, "0": 2, "a": 3, "10": 4, "9": 5, "a_": 6, "a0": 7, "aa": 8},
    "control characters": {"a": "".join(map(chr, range(32))) + '"\\/\x7f\x80'},
    "beyond the basic plane": {"a": "\U0001f600\U0010ffff\ud7ff\ue000\uffff\ufeff"},
    "4096 bytes are one piece": {"a": "x" * 4096},
    "4097 bytes are two": {"a": "x" * 4097},
    "the newline is the 4096th byte": {"a": "x" * 4095 + "\ny"},
    "the newline is the 4097th byte": {"a": "x" * 4096 + "\ny"},
    "two bytes across the cut": {"a": "x" * 4095 + "é" + "y"},
    "three bytes across the cut": {"a": "x" * 4094 + "€" + "y"},
    "four bytes across the cut": {"a": "x" * 4093 + "\U0001f600" + "y"},
    "four bytes up to the cut": {"a": "x" * 4092 + "\U0001f600" + "y"},
    "a long line between short ones": {"a": "s\n" + "€" * 3000 + "\nt"},
    "64 levels": None,
}

DIFFERENT = [
    ["an array", "an object with the key 0"],
    ["a newline in one string", "two strings"],
    ["0 as integer", "0 as string"],
    ["null", "null as string"],
    ["the empty object", "the empty array"],
    ["the empty array", "a list of the empty list"],
    ["nothing but a newline", "the empty string"],
    ["nothing but a newline", "two newlines"],
]

INVALID_BODIES = {
    "empty": b"",
    "an array": b"[]",
    "a string": b'"a"',
    "null": b"null",
    "a duplicate key": b'{"a":1,"a":1}',
    "a duplicate key with another value": b'{"a":1,"a":2}',
    "a duplicate key inside": b'{"a":{"b":1,"b":2}}',
    "keys out of order": b'{"b":1,"a":2}',
    "keys out of order inside": b'{"a":[{"b":1,"a":2}]}',
    "white space before": b' {"a":1}',
    "white space inside": b'{"a": 1}',
    "white space after": b'{"a":1} ',
    "a newline after": b'{"a":1}\n',
    "a byte order mark": b'\xef\xbb\xbf{"a":1}',
    "trailing bytes": b'{"a":1}{}',
    "a NUL after": b'{"a":1}\x00',
    "a trailing comma": b'{"a":1,}',
    "cut off": b'{"a":1',
    "a float": b'{"a":1.5}',
    "a float that is whole": b'{"a":1.0}',
    "an exponent": b'{"a":1e2}',
    "a big exponent": b'{"a":1e999}',
    "minus zero": b'{"a":-0}',
    "a leading zero": b'{"a":01}',
    "a plus sign": b'{"a":+1}',
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":-Infinity}',
    "2^53 + 1": b'{"a":9007199254740993}',
    "-2^53 - 1": b'{"a":-9007199254740993}',
    "2^64": b'{"a":18446744073709551616}',
    "400 digits": b'{"a":' + b"9" * 400 + b"}",
    "an escaped slash": b'{"a":"\\/"}',
    "an escaped letter": b'{"a":"\\u0061"}',
    "an escaped letter in a key": b'{"\\u0061":1}',
    "an escaped character beyond ASCII": b'{"a":"\\u00e9"}',
    "an escaped DEL": b'{"a":"\\u007f"}',
    "a long escape for a newline": b'{"a":"\\u000a"}',
    "upper-case hex": b'{"a":"\\u001F"}',
    "a raw control character": b'{"a":"\x01"}',
    "a raw newline": b'{"a":"\n"}',
    "a lone high surrogate": b'{"a":"\\ud800"}',
    "a lone low surrogate": b'{"a":"\\udc00"}',
    "surrogates in the wrong order": b'{"a":"\\ude00\\ud83d"}',
    "an escaped surrogate pair": b'{"a":"\\ud83d\\ude00"}',
    "a raw surrogate": b'{"a":"\xed\xa0\x80"}',
    "invalid UTF-8": b'{"a":"\xff"}',
    "overlong UTF-8": b'{"a":"\xc0\x80"}',
    "truncated UTF-8": b'{"a":"\xe2\x82"}',
    "beyond U+10FFFF": b'{"a":"\xf4\x90\x80\x80"}',
    "an empty key": b'{"":1}',
    "an upper-case key": b'{"A":1}',
    "a key with a dash": b'{"a-b":1}',
    "a key beyond ASCII": '{"é":1}'.encode(),
    "a key with a digit that is not ASCII": '{"\u0661":1}'.encode(),
    "a key with a newline at its end": b'{"a\\n":1}',
    "65 levels of objects": b'{"a":' * 65 + b"1" + b"}" * 65,
    "65 levels, arrays": b'{"a":' + b"[" * 64 + b"]" * 64 + b"}",
    "65 levels, a blob reference": b'{"a":'
    + b"[" * 63
    + b'{"blob":"'
    + b"0" * 64
    + b'","length":1}'
    + b"]" * 63
    + b"}",
    "100000 levels": b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}",
    "a comment": b'{"a":1/**/}',
    "single quotes": b"{'a':1}",
    "a blob reference as body": b'{"blob":"' + b"0" * 64 + b'","length":1}',
    "the key blob as body's key": b'{"blob":1}',
    "a blob without length": b'{"a":{"blob":"' + b"0" * 64 + b'"}}',
    "a blob with more keys": b'{"a":{"blob":"' + b"0" * 64 + b'","length":1,"name":"x"}}',
    "a blob with an upper-case root": b'{"a":{"blob":"' + b"A" * 64 + b'","length":1}}',
    "a blob with a short root": b'{"a":{"blob":"' + b"0" * 63 + b'","length":1}}',
    "a blob with a newline after its root": b'{"a":{"blob":"' + b"0" * 64 + b'\\n","length":1}}',
    "a blob whose root is a number": b'{"a":{"blob":1,"length":1}}',
    "a blob with a negative length": b'{"a":{"blob":"' + b"0" * 64 + b'","length":-1}}',
    "a blob whose length is true": b'{"a":{"blob":"' + b"0" * 64 + b'","length":true}}',
    "a blob whose length is text": b'{"a":{"blob":"' + b"0" * 64 + b'","length":"1"}}',
}

HEADER = {
    "agent": "main",
    "cause": 1,
    "epoch": 1,
    "id": "00112233445566778899aabbccddeeff",
    "seq": 2,
    "time": "2026-01-02T03:04:05.000006Z",
    "type": "tool.started",
    "v": 1,
}

VALID_HEADERS = {
    "plain": {},
    "no cause": {"cause": 0},
    "a child": {"agent": "main.1.20.3"},
    "an underscore in the type": {"type": "log.not_known"},
    "epoch 0": {"epoch": 0},
    "the largest numbers": {"seq": 2**53, "cause": 2**53 - 1, "epoch": 2**53, "v": 2**53},
    "a leap day": {"time": "2024-02-29T23:59:59.999999Z"},
    "year 1": {"time": "0001-01-01T00:00:00.000000Z"},
}
INVALID_HEADERS = {
    "cause is seq": {"cause": 2},
    "cause is later": {"cause": 3},
    "a negative cause": {"cause": -1},
    "seq 0": {"seq": 0, "cause": 0},
    "v 0": {"v": 0},
    "a negative epoch": {"epoch": -1},
    "seq is true": {"seq": True, "cause": 0},
    "seq is text": {"seq": "2"},
    "seq beyond 2^53": {"seq": 2**53 + 1},
    "v beyond 2^53": {"v": 2**53 + 1},
    "cause is null": {"cause": None},
    "an upper-case id": {"id": "00112233445566778899AABBCCDDEEFF"},
    "a short id": {"id": "0011"},
    "an id with a newline at its end": {"id": "00112233445566778899aabbccddeeff\n"},
    "agent 0": {"agent": "main.0"},
    "an agent with a leading zero": {"agent": "main.01"},
    "another agent": {"agent": "other"},
    "an agent with a newline at its end": {"agent": "main\n"},
    "an agent's digit that is not ASCII": {"agent": "main.1\u0661"},
    "no dot in the type": {"type": "tool"},
    "two dots in the type": {"type": "tool.started.now"},
    "an upper-case type": {"type": "Tool.started"},
    "an underscore before the dot": {"type": "my_tool.started"},
    "no microseconds": {"time": "2026-01-02T03:04:05Z"},
    "milliseconds": {"time": "2026-01-02T03:04:05.006Z"},
    "an offset": {"time": "2026-01-02T03:04:05.000006+00:00"},
    "a space": {"time": "2026-01-02 03:04:05.000006Z"},
    "month 13": {"time": "2026-13-02T03:04:05.000006Z"},
    "February 29": {"time": "2026-02-29T03:04:05.000006Z"},
    "hour 24": {"time": "2026-01-02T24:00:00.000000Z"},
    "a leap second": {"time": "2016-12-31T23:59:60.000000Z"},
    "year 0": {"time": "0000-01-01T00:00:00.000000Z"},
    "a ninth key": {"x": 1},
    "a missing key": {"v": ...},
}


def header_text(changes):
    members = {k: v for k, v in sorted((HEADER | changes).items()) if v is not ...}
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False)


def bodies():
    VALID_BODIES["64 levels"] = json.loads('{"a":' + "[" * 63 + "]" * 63 + "}")
    valid = []
    for name, body in VALID_BODIES.items():
        text = reference.write(body)
        assert reference.body_of(text.encode()) == body, name
        found = reference.leaves(body)
        count, root = reference.commit(body, KEY)
        listed = [
            {
                "kind": kind,
                "path": path.decode(),
                "piece": piece,
                "text": t.hex(),
                "hash": reference.leaf_hash(reference.salt(KEY, i), kind, path, piece, t).hex(),
            }
            for i, (kind, path, piece, t) in enumerate(found)
        ]
        valid.append({"name": name, "body": text, "count": count, "root": root.hex(), "leaves": listed})
    for name, data in INVALID_BODIES.items():
        assert refused(reference.body_of, data), name
    return {
        "about": "Bodies (format.md 1.1) and their commitment under `key` (2.1, 2.2). "
        "`text` of a leaf and `bytes` are hex. The pairs in `different` must not have the same root. "
        "Each of `invalid` must be refused.",
        "key": KEY.hex(),
        "valid": valid,
        "different": DIFFERENT,
        "invalid": [{"name": name, "bytes": data.hex()} for name, data in INVALID_BODIES.items() if len(data) < 5000],
    }


def refused(function, *arguments):
    try:
        function(*arguments)
    except reference.Refused:
        return True
    return False


def headers():
    for changes in VALID_HEADERS.values():
        reference.header_of(header_text(changes).encode())
    invalid = {name: header_text(changes) for name, changes in INVALID_HEADERS.items()}
    plain = header_text({})
    invalid |= {
        "white space": plain.replace(",", ", ", 1),
        "keys out of order": '{"v":1,' + plain[1:].replace(',"v":1', ""),
        "a duplicate key": plain[:-1] + ',"v":1}',
        "a float": plain.replace('"v":1', '"v":1.0'),
        "an escaped letter": plain.replace("main", "m\\u0061in"),
        "a newline after": plain + "\n",
        "an array": "[]",
        "empty": "",
    }
    for name, text in invalid.items():
        assert refused(reference.header_of, text.encode()), name
    return {
        "about": "Headers (format.md 1.2). Each of `invalid` must be refused.",
        "valid": [{"name": name, "header": header_text(changes)} for name, changes in VALID_HEADERS.items()],
        "invalid": [{"name": name, "header": text} for name, text in invalid.items()],
    }


def blobs():
    cases = [
        ("empty", "", 0),
        ("one byte", "61", 1),
        ("a NUL", "00", 1),
        ("one byte less than a chunk", "61", 65535),
        ("a chunk", "61", 65536),
        ("a chunk and a byte", "61", 65537),
        ("two chunks", "6162", 65536),
        ("five chunks", "000102ff", 70000),
        ("invalid UTF-8", "ff0a", 3),
    ]
    out = []
    for name, unit, times in cases:
        data = bytes.fromhex(unit) * times
        count, root = reference.commit_blob(data, KEY)
        out.append(
            {"name": name, "repeat": unit, "times": times, "length": len(data), "count": count, "root": root.hex()}
        )
    return {
        "about": "Blobs (format.md 3) under `key`: the bytes `repeat` (hex), `times` over.",
        "key": KEY.hex(),
        "blobs": out,
    }


def chains():
    steps, previous = [], reference.genesis(SESSION)
    hashes = []
    for i in range(1, 8):
        header = header_text({"seq": i, "cause": i - 1, "id": f"{i:032x}"})
        body = reference.write({"n": i, "text": "line\n" * i})
        count, root = reference.commit(reference.body_of(body.encode()), key(str(i)))
        previous = reference.chain(previous, header.encode(), count, root)
        hashes.append(previous)
        steps.append(
            {
                "header": header,
                "body": body,
                "key": key(str(i)).hex(),
                "count": count,
                "root": root.hex(),
                "hash": previous.hex(),
                "session_tree": reference.session_tree(hashes).hex(),
            }
        )
    return {
        "about": "The chain and the session tree (format.md 2.3, 2.4), after each event.",
        "session": SESSION,
        "hash_0": reference.genesis(SESSION).hex(),
        "session_tree_of_none": reference.session_tree([]).hex(),
        "events": steps,
    }


def redacted():
    body = {
        "call": "main/3",
        "exit_code": 1,
        "output": "first\nsecret\nlast",
        "report": {"blob": "cd" * 32, "length": 9},
        "more": [True, None, {}, []],
    }
    count, root = reference.commit(body, KEY)
    whole = reference.redact(body, KEY, set())
    hidden = reference.redact(body, KEY, {('["output"]', 0), ('["output"]', 1), ('["report"]', 0)})
    assert reference.read_redacted(hidden)[0] == (count, root) == reference.read_redacted(whole)[0]
    everything = [
        {"hash": reference.leaf_hash(reference.salt(KEY, i), *leaf).hex()}
        for i, leaf in enumerate(reference.leaves(body))
    ]
    valid = [("nothing hidden", whole), ("a text and a blob hidden", hidden), ("everything hidden", everything)]
    level = [bytes.fromhex(entry["hash"]) for entry in everything]
    pairs = [reference.sha(b"\1" + level[i] + level[i + 1]) for i in range(0, len(level) - 1, 2)]
    pairs += [level[-1]] if len(level) % 2 else []
    collapsed = [{"hash": each.hex()} for each in pairs]
    assert reference.tree(pairs) == root
    text = next(i for i, entry in enumerate(whole) if entry["path"] == '["output"]')

    def changed(i, **members):
        return [
            {k: v for k, v in (entry | (members if i == j else {})).items() if v is not ...}
            for j, entry in enumerate(whole)
        ]

    call, blob = 0, len(whole) - 1
    invalid = {
        "no leaves": [],
        "an object": {"hash": "00" * 32},
        "an unknown member": changed(call, x=1),
        "a missing salt": changed(call, salt=...),
        "a hidden leaf with a path": [{"hash": "00" * 32, "path": "[]"}],
        "an upper-case hash": [{"hash": "AA" * 32}],
        "a short salt": changed(call, salt="00"),
        "a path with white space": changed(text, path='[ "output"]'),
        "a path that is an array": changed(text, path=["output"]),
        "a path with a key that no body has": changed(text, path='["Output"]'),
        "a path with a negative index": changed(text, path='["a",-1]'),
        "a newline inside a piece": changed(text, text="first\nsecret\n"),
        "a piece of 4097 bytes": changed(text, text="x" * 4097),
        "an empty piece that is not the first": changed(text, text="", piece=1),
        "a piece of an integer": changed(1, piece=1),
        "an integer with a leading zero": changed(1, text="01"),
        "an integer beyond 2^53": changed(1, text="9007199254740993"),
        "an integer as number": changed(1, text=1),
        "text of true": changed(2, text=""),
        "a kind that is true": changed(call, kind=True),
        "kind 8": changed(call, kind=8),
        "a blob with text": changed(blob, text="x"),
        "a blob with a negative length": changed(blob, length=-1),
        "a blob whose length is true": changed(blob, length=True),
    }
    assert whole[1]["kind"] == 3
    assert whole[2]["kind"] == 2
    assert whole[blob]["kind"] == 7
    for name, entries in invalid.items():
        assert refused(reference.read_redacted, entries), name
    return {
        "about": "Redacted bodies (format.md 4). Each of `valid` has the count and root of `body` under `key`. "
        "`collapsed` has the root, but another count: the chain does not accept it. `changed` are well formed, "
        "with other roots. Each of `invalid` must be refused.",
        "key": KEY.hex(),
        "body": reference.write(body),
        "count": count,
        "root": root.hex(),
        "valid": [{"name": name, "leaves": entries} for name, entries in valid],
        "collapsed": {"leaves": collapsed, "count": len(collapsed)},
        "changed": [
            {"name": name, "leaves": entries, "root": reference.read_redacted(entries)[0][1].hex()}
            for name, entries in (
                ("another text", changed(text, text="First\n")),
                ("another path", changed(text, path='["output",0]')),
                ("another kind", changed(1, kind=4)),
                ("two leaves swapped", [whole[1], whole[0], *whole[2:]]),
                ("a leaf left out", whole[1:]),
            )
        ],
        "invalid": [{"name": name, "leaves": entries} for name, entries in invalid.items()],
    }


OPENED = {
    "format": 1,
    "host": {"name": "lovelace", "pid": 4711},
    "rules": 1,
    "settings": {"dialect": "scripted", "model": "demo", "provider": "scripted"},
    "workspace": "/home/ada/project",
}
STARTED = {
    "args": '{"command": "pytest -q"}',
    "attempt": 1,
    "call": "main/1",
    "recovery": "attachable",
    "tool": "shell",
}
EVENTS = [
    ("session.opened", "main", 0, OPENED),
    ("user.prompted", "main", 1, {"text": "Fix the tests.\nThe password is hunter2.\n"}),
    ("tool.started", "main", 2, STARTED),
    ("tool.finished", "main", 3, None),
    ("session.closed", "main", 0, {"outcome": "done"}),
]
CONTENT = b"1 failed\n" * 20
SECOND_LINE = {2: {('["text"]', 1)}}


def line(members):
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False) + "\n"


class Written:
    """A small export as lines, with the hash after each event."""

    def __init__(self, content=CONTENT, prompt=None, hide=None, hide_blob=False, hashes=True):
        blob_key = key("blob")
        root, length = reference.commit_blob(content, blob_key)[1].hex(), len(content)
        self.hashes, self.lines, previous = [], [], reference.genesis(SESSION)
        for seq, (kind, agent, cause, body) in enumerate(EVENTS, 1):
            if body is None:
                body = {
                    "attempt": 1,
                    "call": "main/1",
                    "exit_code": 1,
                    "output": {"blob": root, "length": length},
                    "status": "ok",
                }
                shown = (
                    {"hidden": True}
                    if hide_blob
                    else {"key": blob_key.hex(), "data": base64.b64encode(content).decode()}
                )
                self.lines.append(line({"blob": root, "length": length} | shown))
            if seq == 2 and prompt:
                body = {"text": prompt}
            header = header_text(
                {
                    "seq": seq,
                    "cause": cause,
                    "id": hashlib.sha256(b"%d" % seq).hexdigest()[:32],
                    "type": kind,
                    "agent": agent,
                    "time": f"2026-01-02T03:04:{seq:02}.000000Z",
                }
            )
            count, event_root = reference.commit(body, key(str(seq)))
            previous = reference.chain(previous, header.encode(), count, event_root)
            self.hashes.append(previous.hex())
            end = {"hash": previous.hex()} if hashes else {}
            if hide and seq in hide:
                self.lines.append(
                    line({"header": header, "leaves": reference.redact(body, key(str(seq)), hide[seq])} | end)
                )
            else:
                self.lines.append(
                    line({"header": header, "body": reference.write(body), "key": key(str(seq)).hex()} | end)
                )
        self.lines.insert(0, self.first(5))
        self.lines.append(self.last(5))

    def first(self, n):
        return line({"muse_export": 1, "session": SESSION, "head": n, "hash": self.hashes[n - 1]})

    def last(self, n):
        return line({"end": True, "events": n, "hash": self.hashes[n - 1]})

    def text(self):
        return "".join(self.lines)


def export_cases():
    """(name, text, known head or None)."""
    good, bare = Written(), Written(hashes=False)
    text, head = good.text(), [5, good.hashes[4]]
    rebuilt = Written(prompt="Fix the tests, please.\n")
    no_blob = [each for each in good.lines if '"blob":"' not in each[:9]]
    shorter = [good.first(3), *good.lines[1:4], good.last(3)]
    blob_line = good.lines[4]
    assert blob_line.startswith('{"blob"')
    later = [*good.lines[:4], good.lines[5], blob_line, *good.lines[6:]]
    cut = "".join(good.lines[:4])
    return [
        ("whole", text, None),
        ("whole, known head", text, head),
        ("whole, known head of an earlier event", text, [3, good.hashes[2]]),
        ("whole, known head 0", text, [0, reference.genesis(SESSION).hex()]),
        ("no hash in the lines of events", bare.text(), head),
        ("no newline at the end", text[:-1], head),
        ("a blob of two chunks", Written(content=CONTENT * 400).text(), None),
        ("a line of a text redacted", Written(hide=SECOND_LINE).text(), head),
        ("a blob hidden", Written(hide_blob=True).text(), head),
        (
            "an empty session",
            line({"muse_export": 1, "session": SESSION, "head": 0, "hash": reference.genesis(SESSION).hex()})
            + line({"end": True, "events": 0, "hash": reference.genesis(SESSION).hex()}),
            None,
        ),
        ("rebuilt with another prompt, no known head", rebuilt.text(), None),
        ("rebuilt with another prompt, known head", rebuilt.text(), head),
        ("cut and closed again, no known head", "".join(shorter), None),
        ("cut and closed again, known head", "".join(shorter), head),
        ("last line missing", "".join(good.lines[:-1]), None),
        ("cut after event 3", cut, None),
        ("cut after event 3, known head of event 3", cut, [3, good.hashes[2]]),
        ("cut after event 3, known head of event 5", cut, head),
        ("cut inside a line", text[: len(cut) + 100], None),
        ("cut after the blob", "".join(good.lines[:5]), None),
        ("empty file", "", None),
        ("empty file, known head", "", head),
        ("a letter of event 2 changed", text.replace("hunter2", "hunter3"), None),
        ("a letter of event 2 changed, no hash in the lines", bare.text().replace("hunter2", "hunter3"), None),
        ("a header's time changed", text.replace("03:04:03", "03:05:03"), None),
        ("a key changed", text.replace(key("3").hex(), key("4").hex(), 1), None),
        (
            "a shown leaf of a redacted event changed",
            Written(hide=SECOND_LINE).text().replace("Fix the tests.", "Fix the rests."),
            None,
        ),
        ("a clear key hidden", Written(hide={4: {('["status"]', 0)}}).text(), None),
        ("the arguments of a tool hidden", Written(hide={3: {('["args"]', 0)}}).text(), None),
        ("a hidden leaf's hash changed", flipped_hidden(), None),
        ("a byte of the blob changed", text.replace(blob_line[220:224], "AAAA", 1), None),
        ("a blob with another length", text.replace('"length":180,"key"', '"length":181,"key"'), None),
        ("a blob missing", "".join(no_blob), None),
        ("a blob after its event", "".join(later), None),
        ("a blob twice", "".join([*good.lines[:5], blob_line, *good.lines[5:]]), None),
        ("a blob that nothing names", "".join([*good.lines[:-1], line(other_blob()), good.lines[-1]]), None),
        ("events 2 and 3 swapped", "".join([*good.lines[:2], good.lines[3], good.lines[2], *good.lines[4:]]), None),
        ("event 2 left out", "".join([*good.lines[:2], *good.lines[3:]]), None),
        ("event 2 twice", "".join([*good.lines[:3], *good.lines[2:]]), None),
        ("a body with white space", text.replace('{\\"outcome\\"', '{ \\"outcome\\"'), None),
        ("a duplicate key in a line", text.replace('"muse_export":1', '"muse_export":1,"muse_export":1'), None),
        ("an unknown key in a line", text.replace('{"end":true', '{"x":1,"end":true'), None),
        ("another version", text.replace('"muse_export":1', '"muse_export":2'), None),
        ("another session", text.replace(SESSION, "other"), None),
        ("another hash in the first line", text.replace(good.hashes[4], good.hashes[3], 1), None),
        (
            "another hash in the last line",
            "".join([*good.lines[:-1], good.lines[-1].replace(good.hashes[4], good.hashes[3])]),
            None,
        ),
        ("another count in the last line", text.replace('"events":5', '"events":6'), None),
        ("a line after the last", text + good.lines[-1], None),
        ("an empty line", text.replace("\n", "\n\n", 1), None),
        ("a line that is no JSON", "".join([*good.lines[:3], "x\n", *good.lines[3:]]), None),
        ("known head with another hash", text, [4, good.hashes[4]]),
    ]


def flipped_hidden():
    lines = Written(hide=SECOND_LINE).lines
    at = lines[2].index('{"hash":"') + 9
    lines[2] = lines[2][:at] + ("1" if lines[2][at] == "0" else "0") + lines[2][at + 1 :]
    return "".join(lines)


def other_blob():
    root = reference.commit_blob(b"x", KEY)[1].hex()
    return {"blob": root, "length": 1, "key": KEY.hex(), "data": "eA=="}


def exports():
    cases = []
    clear = reference.clear_keys((FOLDER.parent / "format.md").read_text())
    for name, text, known in export_cases():
        code, bad = reference.verify(text.encode(), known, clear)
        case = {"name": name, "exit": code, "text": text}
        if known:
            case["known"] = known
        if bad is not None:
            case["first_bad"] = bad
        cases.append(case)
    return {
        "about": "Exports (format.md 5, 8): `text` is the file, `known` a head [seq, hash] kept elsewhere, "
        "`exit` the verifier's exit code, `first_bad` the seq that it names. "
        "Exit 0 without a known head still means: not proven against rebuilding and cutting.",
        "exports": cases,
    }


def all_files():
    made = {
        "bodies": bodies,
        "headers": headers,
        "blobs": blobs,
        "chain": chains,
        "redacted": redacted,
        "exports": exports,
    }
    return {f"{name}.json": json.dumps(make(), indent=1, ensure_ascii=True) + "\n" for name, make in made.items()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in all_files().items():
        (FOLDER / name).write_text(text)
