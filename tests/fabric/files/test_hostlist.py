"""Slurm's lists of hosts, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.fabric.files.hostlist import compress, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("h1", ["h1"]),
        ("h[1-3]", ["h1", "h2", "h3"]),
        ("h[1-2,9],gw", ["h1", "h2", "h9", "gw"]),
        ("n[008-011]", ["n008", "n009", "n010", "n011"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("h2, h1,h2", ["h2", "h1"]),
    ],
)
def test_a_list_stands_for_its_names_in_its_order(text, names):
    assert expand(text) == names


@given(st.sets(st.tuples(st.sampled_from(["h", "dgx", "rack-n"]), st.integers(0, 300)), min_size=1))
def test_compressed_lists_expand_again(pairs):
    names = {f"{prefix}{number}" for prefix, number in pairs}
    assert set(expand(compress(names))) == names


@pytest.mark.parametrize(
    "text", ["", "h[", "h1]", "h[1-", "h[]", "h[3-1]", "h[a]", "h1,,h2", "h[1-99999999]", "h[1-999][1-999]", "h 1"]
)
def test_malformed_hostlists_are_refused(text):
    with pytest.raises(ConfigError, match="hostlist"):
        expand(text)
