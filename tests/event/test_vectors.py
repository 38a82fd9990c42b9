"""The published vectors (docs/vectors): made by the independent implementation, met by the code under test."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muse.errors import InvalidEvent
from muse.event import codec, commitment, envelope
from muse.event.kinds import KINDS, required_clear
from muse.log.schema import TABLES
from tests.event import independent, make_vectors, vector_inputs

DOCS = Path(__file__).parents[2] / "docs"


def vectors(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DOCS / "vectors" / f"{name}.json").read_text())
    return loaded


def named(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def test_the_files_are_what_the_independent_implementation_makes() -> None:
    made = make_vectors.all_files()
    assert {path.name: path.read_text() for path in (DOCS / "vectors").glob("*.json")} == made


BODIES = vectors("bodies")


@named(BODIES["valid"])
def test_a_valid_body(case: dict[str, Any]) -> None:
    data, key = case["body"].encode(), bytes.fromhex(BODIES["key"])
    body = codec.parse(data)
    assert codec.encode(body) == data
    found = commitment.leaves(body)
    assert [(leaf.kind, leaf.path.decode(), leaf.piece, leaf.text.hex()) for leaf in found] == [
        (leaf["kind"], leaf["path"], leaf["piece"], leaf["text"]) for leaf in case["leaves"]
    ]
    hashes = [commitment.leaf_hash(commitment.salt(key, i), leaf).hex() for i, leaf in enumerate(found)]
    assert hashes == [leaf["hash"] for leaf in case["leaves"]]
    root = commitment.commit(data, key)
    assert (root.count, root.root.hex()) == (case["count"], case["root"])


def test_bodies_that_look_alike_have_different_roots() -> None:
    roots = {case["name"]: case["root"] for case in BODIES["valid"]}
    assert len(set(roots.values())) == len(roots)
    assert all(roots[one] != roots[two] for one, two in BODIES["different"])


@named(BODIES["invalid"])
def test_an_invalid_body(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent):
        codec.parse(bytes.fromhex(case["bytes"]))


def test_a_very_deep_body_is_refused() -> None:
    with pytest.raises(InvalidEvent):
        codec.parse(vector_inputs.INVALID_BODIES["100000 levels"])


@named(vectors("headers")["valid"])
def test_a_valid_header(case: dict[str, Any]) -> None:
    header = codec.parse_header(case["header"].encode())
    assert msgspec.structs.asdict(header) == json.loads(case["header"])
    assert codec.encode_header(**msgspec.structs.asdict(header)) == case["header"].encode()


@named(vectors("headers")["invalid"])
def test_an_invalid_header(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent):
        codec.parse_header(case["header"].encode())


@named(vectors("blobs")["blobs"])
def test_a_blob(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["repeat"]) * case["times"]
    root = commitment.commit_blob([data[:70_001], data[70_001:]], bytes.fromhex(vectors("blobs")["key"]))
    assert (root.count, root.root.hex(), len(data)) == (case["count"], case["root"], case["length"])


def test_the_chain_and_the_session_tree() -> None:
    expected = vectors("chain")
    previous = commitment.genesis(expected["session"])
    assert previous.hex() == expected["hash_0"]
    assert commitment.session_tree([]).hex() == expected["session_tree_of_none"]
    hashes = []
    for event in expected["events"]:
        root = commitment.commit(event["body"].encode(), bytes.fromhex(event["key"]))
        assert (root.count, root.root.hex()) == (event["count"], event["root"])
        previous = commitment.chain(previous, event["header"].encode(), root.count, root.root)
        hashes.append(previous)
        assert previous.hex() == event["hash"]
        assert commitment.session_tree(hashes).hex() == event["session_tree"]


REDACTED = vectors("redacted")


@named(REDACTED["valid"])
def test_a_redacted_body(case: dict[str, Any]) -> None:
    disclosed = commitment.parse_disclosed(case["leaves"])
    root = commitment.check_disclosed(disclosed)
    assert (root.count, root.root.hex()) == (REDACTED["count"], REDACTED["root"])
    assert json.loads(commitment.encode_disclosed(disclosed)) == case["leaves"]
    assert commitment.commit(REDACTED["body"].encode(), bytes.fromhex(REDACTED["key"])) == root


def test_collapsed_leaves_have_another_count() -> None:
    root = commitment.check_disclosed(commitment.parse_disclosed(REDACTED["collapsed"]["leaves"]))
    assert root.root.hex() == REDACTED["root"]
    assert root.count == REDACTED["collapsed"]["count"] != REDACTED["count"]


@named(REDACTED["changed"])
def test_a_changed_redacted_body_has_another_root(case: dict[str, Any]) -> None:
    root = commitment.check_disclosed(commitment.parse_disclosed(json.dumps(case["leaves"])))
    assert root.root.hex() == case["root"] != REDACTED["root"]


@named(REDACTED["invalid"])
def test_an_invalid_redacted_body(case: dict[str, Any]) -> None:
    for given_as in (case["leaves"], json.dumps(case["leaves"])):
        with pytest.raises(InvalidEvent):
            commitment.parse_disclosed(given_as)


def exported(text: str) -> list[tuple[str, str]]:
    """(hash as stated, hash as computed by the code under test) of each event of an export that is intact."""
    previous, found = b"", []
    for line in map(json.loads, text.removesuffix("\n").split("\n")):
        if "muse_export" in line:
            previous = commitment.genesis(line["session"])
        elif "header" in line:
            header = line["header"].encode()
            codec.parse_header(header)
            if "leaves" in line:
                root = commitment.check_disclosed(commitment.parse_disclosed(line["leaves"]))
            else:
                root = commitment.commit(line["body"].encode(), bytes.fromhex(line["key"]))
            previous = commitment.chain(previous, header, root.count, root.root)
            found.append((line.get("hash", previous.hex()), previous.hex()))
        elif "end" in line:
            found.append((line["hash"], previous.hex()))
    return found


@named([case for case in vectors("exports")["exports"] if case["exit"] == 0])
def test_the_events_of_an_intact_export_have_the_hashes_that_it_states(case: dict[str, Any]) -> None:
    for stated, computed in exported(case["text"]):
        assert stated == computed


def test_the_bodies_of_the_exports_are_those_of_their_types() -> None:
    text = next(case["text"] for case in vectors("exports")["exports"] if case["name"] == "whole")
    for line in map(json.loads, text.splitlines()):
        if "header" in line:
            event = envelope.decode(line["header"].encode(), line["body"].encode())
            assert not isinstance(event.body, envelope.Unknown)


def test_every_byte_of_an_export_counts() -> None:
    text = next(case["text"] for case in vectors("exports")["exports"] if case["name"] == "whole").encode()
    for at in range(0, len(text) - 1, 7):
        changed = bytearray(text)
        changed[at] ^= 1
        assert independent.verify(bytes(changed))[0] == 6, at


def test_the_tables_in_the_prose_are_those_of_the_store() -> None:
    section = (DOCS / "format.md").read_text().split("## 6.")[1].split("## 7.")[0]
    stated = {
        name: re.findall(r"`([a-z_]+)` \(|`(value)`|`(header|key|root|hash|body|leaves|data)`", columns)
        for name, columns in re.findall(r"^\| `([a-z]+)` \| ([^|]*) \|$", section, re.MULTILINE)
    }
    db = sqlite3.connect(":memory:")
    db.executescript(TABLES)
    for name, columns in stated.items():
        real = {row[1] for row in db.execute(f"PRAGMA table_info({name})")}
        assert real <= {"".join(column) for column in columns}, name
    assert stated.keys() == {"meta", "events", "hidden", "blobs", "chunks"}
    db.close()


def test_the_clear_keys_in_the_prose_are_those_of_the_kinds() -> None:
    stated = independent.clear_keys((DOCS / "format.md").read_text())
    kinds = {}
    for name, kind in KINDS.items():
        if required_clear(name):
            kinds[name, kind.version] = required_clear(name, kind.version)
    assert stated == kinds, "docs/format.md section 7 lists what a verifier may rely on: bring it up to date"


def test_of_a_type_or_version_that_is_not_known_no_key_must_be_shown() -> None:
    assert required_clear("tool.finished", 1) == {"attempt", "call", "status"}
    assert required_clear("tool.finished", 2) == frozenset()
    assert required_clear("tool.invented") == frozenset()
