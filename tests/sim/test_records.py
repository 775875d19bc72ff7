"""Arrays of records, aligned to cache lines and huge pages."""

from __future__ import annotations

import numpy as np
import pytest

from weft.sim.layout.records import LARGE_BYTES, LINE_BYTES, MESSAGE, QP, records, records_in_rows, rows_of_bytes


@pytest.mark.parametrize("n", [1, LARGE_BYTES // LINE_BYTES])
def test_small_and_large_arrays_are_zeroed_aligned_and_writable(n):
    rows = rows_of_bytes(n, LINE_BYTES)
    assert rows.shape == (n, LINE_BYTES)
    assert rows.ctypes.data % LINE_BYTES == 0
    assert not rows.any()
    rows[-1] = 1
    assert rows.sum() == LINE_BYTES


def test_records_in_rows_share_the_memory_of_their_rows():
    rows = rows_of_bytes(3, 16)
    pairs = records_in_rows(rows, 4, np.dtype([("a", np.int32), ("b", np.int32)]))
    pairs.b[2] = -1
    assert rows[2].tolist() == [0] * 8 + [255] * 4 + [0] * 4
    assert pairs.strides == (16,)


def test_queue_pairs_and_messages_fill_whole_cache_lines():
    assert QP.itemsize % LINE_BYTES == MESSAGE.itemsize % LINE_BYTES == 0
    assert records(2, QP).ctypes.data % LINE_BYTES == 0
