"""Leaves, tree, chain, blobs and redaction, against published vectors and the independent implementation."""

import contextlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse.errors import InvalidEvent
from muse.event import codec, commitment
from muse.event.commitment import Hidden, Leaf, Shown
from tests.event import independent, strategies

KEY = bytes(range(32))
keys = st.binary(min_size=32, max_size=32)

# The roots that the Certificate Transparency project publishes for its tree hasher (RFC 6962), for 1 to 8 leaves.
CT_LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
CT_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
SHA256_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_tree_is_that_of_rfc_6962() -> None:
    hashes = [independent.sha(b"\0" + bytes.fromhex(leaf)) for leaf in CT_LEAVES]
    assert commitment.tree([]).hex() == SHA256_OF_NOTHING
    assert [commitment.tree(hashes[:n]).hex() for n in range(1, 9)] == CT_ROOTS


@strategies.unhurried
@given(st.lists(keys, max_size=70))
def test_the_tree_is_the_recursion_of_the_rfc(hashes: list[bytes]) -> None:
    assert commitment.tree(hashes) == independent.tree(hashes)


def test_leaves_worked_by_hand() -> None:
    body = {"argv": ["a\nb", 7, [], {}], "ok": True, "no": None, "f": {"0": False}}
    assert commitment.leaves(body) == [
        Leaf(4, b'["argv",0]', 0, b"a\n"),
        Leaf(4, b'["argv",0]', 1, b"b"),
        Leaf(3, b'["argv",1]', 0, b"7"),
        Leaf(6, b'["argv",2]', 0, b""),
        Leaf(5, b'["argv",3]', 0, b""),
        Leaf(1, b'["f","0"]', 0, b""),
        Leaf(0, b'["no"]', 0, b""),
        Leaf(2, b'["ok"]', 0, b""),
    ]
    assert commitment.leaves({}) == [Leaf(5, b"[]", 0, b"")]


@strategies.unhurried
@given(strategies.texts)
def test_the_pieces_of_a_string_are_the_string(text: str) -> None:
    found = [leaf.text for leaf in commitment.leaves({"a": text})]
    assert b"".join(found).decode() == text
    assert found == [piece.encode() for piece in independent.pieces(text)]
    assert all(len(piece) <= 4096 and b"\n" not in piece[:-1] for piece in found)
    assert [piece.decode() for piece in found]


@strategies.unhurried
@given(strategies.bodies(), keys)
def test_the_commitment_is_that_of_the_independent_implementation(body: dict[str, Any], key: bytes) -> None:
    expected = independent.commit(body, key)
    for given_as in (body, codec.encode(body)):
        root = commitment.commit(given_as, key)
        assert (root.count, root.root) == expected
    assert [(leaf.kind, leaf.path, leaf.piece, leaf.text) for leaf in commitment.leaves(body)] == (
        independent.leaves(body)
    )


@strategies.unhurried
@given(strategies.bodies(), strategies.bodies())
def test_two_bodies_have_the_same_leaves_only_if_they_are_the_same(one: dict[str, Any], two: dict[str, Any]) -> None:
    same = codec.encode(one) == codec.encode(two)
    assert (commitment.leaves(one) == commitment.leaves(two)) == same


@strategies.unhurried
@given(strategies.bodies(), st.integers(0), st.integers(1, 255))
def test_a_flipped_byte_of_a_body_is_refused_or_changes_the_root(body: dict[str, Any], at: int, flip: int) -> None:
    data = bytearray(codec.encode(body))
    root = commitment.commit(bytes(data), KEY)
    data[at % len(data)] ^= flip
    with contextlib.suppress(InvalidEvent):
        assert commitment.commit(bytes(data), KEY) != root


@strategies.unhurried
@given(strategies.bodies(), st.integers(0, 31), st.integers(1, 255))
def test_a_flipped_byte_of_the_key_changes_the_root(body: dict[str, Any], at: int, flip: int) -> None:
    other = bytearray(KEY)
    other[at] ^= flip
    assert commitment.commit(body, bytes(other)).root != commitment.commit(body, KEY).root


def test_bytes_that_are_no_body_are_refused() -> None:
    with pytest.raises(InvalidEvent):
        commitment.commit(b'{"a": 1}', KEY)


def test_a_value_that_no_body_holds_is_refused() -> None:
    with pytest.raises(InvalidEvent):
        commitment.commit({"a": 1.5}, KEY)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_key_of_another_size_is_refused(size: int) -> None:
    for use in (lambda key: commitment.commit({}, key), lambda key: commitment.salt(key, 0), commitment.BlobCommitment):
        with pytest.raises(InvalidEvent):
            use(bytes(size))


def test_a_salt_is_half_an_hmac() -> None:
    assert commitment.salt(KEY, 258) == hmac.new(KEY, b"\0\0\1\2", "sha256").digest()[:16]


def test_every_part_of_the_chain_counts() -> None:
    parts: dict[str, Any] = {"previous": bytes(32), "header": b"{}", "count": 1, "root": b"r" * 32}
    hashes = {commitment.chain(**parts)}
    for change in ({"previous": b"p" * 32}, {"header": b"{ }"}, {"count": 2}, {"root": b"s" * 32}):
        hashes.add(commitment.chain(**(parts | change)))
    assert len(hashes) == 5
    assert commitment.genesis("a") == independent.sha(b"\x03muse-log-1a")
    assert commitment.chain(**parts) == independent.chain(bytes(32), b"{}", 1, b"r" * 32)


@strategies.unhurried
@given(st.lists(keys, max_size=20))
def test_the_session_tree_is_that_of_the_independent_implementation(hashes: list[bytes]) -> None:
    assert commitment.session_tree(hashes) == independent.session_tree(hashes)


@strategies.unhurried
@given(st.lists(st.sampled_from([0, 1, 30_000, 65_535, 65_536, 70_000]), max_size=4), keys)
def test_a_blob_has_one_root_however_it_is_fed(sizes: list[int], key: bytes) -> None:
    parts = [bytes([i % 256]) * size for i, size in enumerate(sizes)]
    root = commitment.commit_blob(parts, key)
    assert (root.count, root.root) == independent.commit_blob(b"".join(parts), key)


def test_a_blob_is_held_a_chunk_at_a_time() -> None:
    blob = commitment.BlobCommitment(KEY)
    for _ in range(5):
        blob.add(b"x" * 40_000)
    assert blob.length == 200_000
    root = blob.finish()
    assert (root.count, root.root) == independent.commit_blob(b"x" * 200_000, KEY)


BODY: dict[str, Any] = {
    "call": "main/3",
    "exit_code": 1,
    "output": "first\nsecret\nlast",
    "report": {"blob": "cd" * 32, "length": 9},
    "more": [True, None, {}, [], -5],
}


@strategies.unhurried
@given(strategies.bodies(), keys, st.sets(st.integers(0, 20)))
def test_what_is_left_of_a_body_has_its_root(body: dict[str, Any], key: bytes, picked: set[int]) -> None:
    paths = sorted({leaf.path for leaf in commitment.leaves(body)})
    gone = {commitment.steps(path) for i, path in enumerate(paths) if i in picked}
    disclosed = commitment.disclose(body, key, lambda path: path in gone)
    root = commitment.check_disclosed(disclosed)
    assert (root.count, root.root) == independent.commit(body, key)
    written = commitment.encode_disclosed(disclosed)
    assert commitment.parse_disclosed(written) == disclosed
    assert independent.read_redacted(independent.load(written))[0] == independent.commit(body, key)


def test_a_hidden_text_leaves_no_trace_of_it_or_its_salt() -> None:
    disclosed = commitment.disclose(BODY, KEY, lambda path: path == ("output",), {"call", "exit_code"})
    written = commitment.encode_disclosed(disclosed)
    for word in (b"first", b"secret", b"output"):
        assert word not in written
    hidden = [i for i, leaf in enumerate(disclosed.leaves) if isinstance(leaf, Hidden)]
    assert hidden == [7, 8, 9]
    assert all(commitment.salt(KEY, i).hex().encode() not in written for i in hidden)


def test_one_line_of_a_text_can_be_hidden() -> None:
    disclosed = commitment.disclose(
        BODY, KEY, lambda path: False, hide_piece=lambda path, piece: path == ("output",) and piece == 1
    )
    shown = [leaf.leaf.text for leaf in disclosed.leaves if isinstance(leaf, Shown) and leaf.leaf.path == b'["output"]']
    assert shown == [b"first\n", b"last"]
    assert commitment.check_disclosed(disclosed) == commitment.commit(BODY, KEY)


def test_more_can_be_hidden_later_without_the_key() -> None:
    once = commitment.disclose(BODY, KEY, lambda path: path == ("output",))
    twice = commitment.hide_more(once, lambda path: path[0] == "more", {"call"})
    assert twice == commitment.disclose(BODY, KEY, lambda path: path[0] in ("output", "more"))


def test_a_clear_field_cannot_be_hidden() -> None:
    with pytest.raises(InvalidEvent, match="exit_code"):
        commitment.disclose(BODY, KEY, lambda path: path == ("exit_code",), {"call", "exit_code"})
    with pytest.raises(InvalidEvent, match="more"):
        commitment.disclose(BODY, KEY, lambda path: path == ("more", 1), {"more"})


def test_a_clear_field_that_is_hidden_is_found_out() -> None:
    disclosed = commitment.disclose(BODY, KEY, lambda path: path == ("exit_code",))
    commitment.check_disclosed(disclosed, {"call"})
    with pytest.raises(InvalidEvent, match="exit_code"):
        commitment.check_disclosed(disclosed, {"call", "exit_code"})


@pytest.mark.parametrize("data", [b"", b"null", b"[1]", b"[{}]", b'[{"hash":1}]', b"[" * 10**5, b"\xff", "[\ud800]"])
def test_what_is_no_redacted_body_is_refused(data: bytes | str) -> None:
    with pytest.raises(InvalidEvent):
        commitment.parse_disclosed(data)


def test_a_repeated_key_in_a_redacted_body_is_refused() -> None:
    twice = '[{"hash":"' + "0" * 64 + '","hash":"' + "1" * 64 + '"}]'
    with pytest.raises(InvalidEvent):
        commitment.parse_disclosed(twice)
