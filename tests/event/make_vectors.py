"""Writes docs/vectors/ from the independent implementation: `python tests/event/make_vectors.py`.

Everything is fixed (no randomness, no clock), so a test can make the vectors again and compare.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.event import independent as reference
from tests.event.vector_exports import export_cases
from tests.event.vector_inputs import (
    DIFFERENT,
    INVALID_BODIES,
    INVALID_HEADERS,
    KEY,
    SESSION,
    VALID_BODIES,
    VALID_HEADERS,
    header_text,
    key,
)
from tests.event.vector_probes import probes
from tests.event.vector_redacted import redacted

FOLDER = Path(__file__).parents[2] / "docs" / "vectors"


def bodies():
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
        assert reference.refuses(reference.body_of, data), name
    return {
        "about": "Bodies (format.md 1.1) and their commitment under `key` (2.1, 2.2). "
        "`text` of a leaf and `bytes` are hex. The pairs in `different` must not have the same root. "
        "Each of `invalid` must be refused.",
        "key": KEY.hex(),
        "valid": valid,
        "different": DIFFERENT,
        "invalid": [{"name": name, "bytes": data.hex()} for name, data in INVALID_BODIES.items() if len(data) < 5000],
    }


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
        assert reference.refuses(reference.header_of, text.encode()), name
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


def exports():
    cases = []
    clear = reference.clear_keys((FOLDER.parent / "format.md").read_text())
    for name, text, known in [*export_cases(), *probes()]:
        data = text if isinstance(text, bytes) else text.encode()
        code, bad = reference.verify(data, known, clear)
        case = {"name": name, "exit": code}
        case |= {"bytes": data.hex()} if isinstance(text, bytes) else {"text": text}
        if known:
            case["known"] = known
        if bad is not None:
            case["first_bad"] = bad
        cases.append(case)
    assert len({case["name"] for case in cases}) == len(cases)
    return {
        "about": "Exports (format.md 5, 8): `text`, or `bytes` in hex, is the file, `known` a head [seq, hash] kept "
        "elsewhere, `exit` the verifier's exit code, `first_bad` the seq that it names. "
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
