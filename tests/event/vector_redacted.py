"""The vectors of redacted bodies."""

from tests.event import independent as reference
from tests.event.vector_inputs import KEY


def changed(whole, i, **members):
    """The leaves with members of leaf `i` replaced, or taken out with `...`."""
    return [
        {k: v for k, v in (entry | (members if i == j else {})).items() if v is not ...}
        for j, entry in enumerate(whole)
    ]


def deep_path(steps):
    return '["a"' + ",0" * (steps - 1) + "]"


def first_line(whole):
    return next(i for i, entry in enumerate(whole) if entry["path"] == '["output"]')


def invalid_leaves(whole):
    """{name: leaves} of what must be refused."""
    text = first_line(whole)
    call, array, blob = 0, 5, len(whole) - 1
    invalid = {
        "no leaves": [],
        "an object": {"hash": "00" * 32},
        "an unknown member": changed(whole, call, x=1),
        "a missing salt": changed(whole, call, salt=...),
        "a hidden leaf with a path": [{"hash": "00" * 32, "path": "[]"}],
        "an upper-case hash": [{"hash": "AA" * 32}],
        "a short salt": changed(whole, call, salt="00"),
        "a path with white space": changed(whole, text, path='[ "output"]'),
        "a path that is an array": changed(whole, text, path=["output"]),
        "a path with a key that no body has": changed(whole, text, path='["Output"]'),
        "a path that begins with an index": changed(whole, text, path="[0]"),
        "the path of the whole for a string": changed(whole, text, path="[]"),
        "the path of the whole for an array": changed(whole, array, path="[]"),
        "a path into a blob reference": changed(whole, text, path='["report","blob"]'),
        "a path to the key blob of the body": changed(whole, text, path='["blob"]'),
        "a path of 65 containers": changed(whole, text, path=deep_path(65)),
        "an empty array as the 65th container": changed(whole, array, path=deep_path(64)),
        "a blob as the 65th container": changed(whole, blob, path=deep_path(64)),
        "an index beyond 2^32-1": changed(whole, text, path='["a",4294967296]'),
        "a piece beyond 2^32-1": changed(whole, text, piece=2**32),
        "a path with a negative index": changed(whole, text, path='["a",-1]'),
        "a newline inside a piece": changed(whole, text, text="first\nsecret\n"),
        "a piece of 4097 bytes": changed(whole, text, text="x" * 4097),
        "an empty piece that is not the first": changed(whole, text, text="", piece=1),
        "a piece of an integer": changed(whole, 1, piece=1),
        "an integer with a leading zero": changed(whole, 1, text="01"),
        "an integer beyond 2^53": changed(whole, 1, text="9007199254740993"),
        "an integer as number": changed(whole, 1, text=1),
        "text of true": changed(whole, 2, text=""),
        "a kind that is true": changed(whole, call, kind=True),
        "kind 8": changed(whole, call, kind=8),
        "a blob with text": changed(whole, blob, text="x"),
        "a blob with a negative length": changed(whole, blob, length=-1),
        "a blob whose length is true": changed(whole, blob, length=True),
    }
    assert whole[1]["kind"] == 3
    assert whole[2]["kind"] == 2
    assert whole[array]["kind"] == 6
    assert whole[blob]["kind"] == 7
    for name, entries in invalid.items():
        assert reference.refuses(reference.read_redacted, entries), name
    return invalid


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
    invalid = invalid_leaves(whole)
    text = first_line(whole)
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
                ("another text", changed(whole, text, text="First\n")),
                ("another path", changed(whole, text, path='["output",0]')),
                ("an empty array as the 64th container", changed(whole, 5, path=deep_path(63))),
                ("a blob as the 64th container", changed(whole, -1 % len(whole), path=deep_path(63))),
                ("a path of 64 containers", changed(whole, text, path=deep_path(64))),
                ("the greatest index and piece", changed(whole, text, path='["a",4294967295]', piece=2**32 - 1)),
                ("another kind", changed(whole, 1, kind=4)),
                ("two leaves swapped", [whole[1], whole[0], *whole[2:]]),
                ("a leaf left out", whole[1:]),
            )
        ],
        "invalid": [{"name": name, "leaves": entries} for name, entries in invalid.items()],
    }
