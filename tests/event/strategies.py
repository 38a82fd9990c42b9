"""Bodies, and texts that are nearly bodies, for the property tests of the format."""

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For every property test: a machine that is busy is no failure."""

keys = st.text("abz019_", min_size=1, max_size=4).filter(lambda key: key != "blob")
texts = st.one_of(
    st.text(max_size=20),
    st.text("a\n\r", max_size=12),
    st.builds(
        lambda unit, size, rest: unit * (size // len(unit.encode())) + rest,
        st.sampled_from(["x", "é", "€", "😀", "abc" * 500 + "\n"]),
        st.sampled_from([4090, 4096, 4097, 8192, 9000]),
        st.text("xé€😀\n", max_size=6),
    ),
)
integers = st.integers(-(2**53), 2**53)
blobs = st.fixed_dictionaries(
    {"blob": st.binary(min_size=32, max_size=32).map(bytes.hex), "length": st.integers(0, 2**53)}
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), integers, texts, blobs),
    lambda inside: st.one_of(st.lists(inside, max_size=4), st.dictionaries(keys, inside, max_size=4)),
    max_leaves=12,
)


def bodies() -> st.SearchStrategy[dict[str, Any]]:
    """Any body, as plain values."""
    return st.dictionaries(keys, values, max_size=5)


def loose_json() -> st.SearchStrategy[str]:
    """JSON texts of objects, some canonical, most not: floats, escapes, odd keys, spaces, blobs of all shapes."""
    odd_keys = st.one_of(keys, st.sampled_from(["blob", "length", "A", "é", ""]))
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**54), 2**54),
        st.floats(allow_nan=True),
        st.text(st.characters(codec=None), max_size=4),
        st.sampled_from(["0" * 64, "\ud83d\ude00", "\x7f/"]),
    )
    odd = st.recursive(
        scalars,
        lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(odd_keys, inside, max_size=3)),
        max_leaves=8,
    )
    ways = st.fixed_dictionaries(
        {
            "ensure_ascii": st.booleans(),
            "sort_keys": st.sampled_from([True, True, False]),
            "separators": st.sampled_from([(",", ":"), (",", ":"), (", ", ": ")]),
        }
    )
    return st.builds(lambda value, way: json.dumps(value, **way), st.dictionaries(odd_keys, odd, max_size=3), ways)
