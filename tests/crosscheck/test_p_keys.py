"""All checks of P_Keys use one rule; these tests compare it with the standard's, for all 65,536 keys."""

from __future__ import annotations

import numpy as np
import pytest

from weft.fabric.forwarding import matching_key
from weft.ids import PKey, p_keys_match
from weft.jit import kernel
from weft.mad.devices import NONE
from weft.sm.pkey.tables import may_talk
from weft.sm.sa.path_tables import Directory
from weft.verbs.hca import execute

KEYS = [0x0000, 0x8000, 0x0001, 0x8001, 0x1234, 0x9234, 0x7FFF, 0xFFFF]
ALL = np.arange(1 << 16)


def by_the_standard(one: int, other: int) -> bool:
    """Match by IBA 1.5, 10.9.3: equal low 15 bits that are not all 0, and at least one of the top bits set."""
    return one % 0x8000 == other % 0x8000 and one % 0x8000 > 0 and (one >= 0x8000 or other >= 0x8000)


@kernel
def _fits(keys, other, found):  # type: ignore[no-untyped-def]
    for i in range(len(keys)):
        found[i] = execute._fit(keys[i], other)


@pytest.mark.parametrize("key", KEYS, ids=hex)
def test_numbers_arrays_and_kernels_match_alike(key):
    expected = [by_the_standard(item, key) for item in ALL.tolist()]
    assert [p_keys_match(item, key) for item in ALL.tolist()] == expected
    assert [PKey(item).matches(PKey(key)) for item in ALL.tolist()] == expected
    for kind in (np.uint16, np.int64):
        assert p_keys_match(ALL.astype(kind), key).tolist() == expected
    result = np.zeros(len(ALL), bool)
    _fits(ALL, key, result)
    assert result.tolist() == expected


@pytest.mark.parametrize("key", KEYS, ids=hex)
def test_ports_paths_and_tables_let_the_same_keys_through(key):
    """Checks: of a packet at a port, of two communicating ports, and of the subnet administrator's records."""
    for item in (*KEYS, *range(0, 1 << 16, 997), key ^ 0x8000):
        expected = by_the_standard(item, key)
        assert (matching_key([key], item) != NONE) == expected
        assert bool(may_talk([item], [key])) == expected
        directory = Directory.__new__(Directory)  # for two ports, each with one key
        directory._classes, directory._common = (np.arange(2), np.array([[item], [key]], np.uint16)), {}
        assert (directory.p_key(0, 1) == item) == expected or not item & 0x7FFF
