"""Arrays of records, aligned to cache lines and huge pages."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from weft.sim.layout.records import (
    FILL_RECORDS,
    LARGE_BYTES,
    LINE_BYTES,
    MESSAGE,
    QP,
    distinct_rows,
    fill,
    records,
    records_in_rows,
    rows_of_bytes,
)


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_large_arrays_ask_for_huge_pages_in_private_memory():
    """Linux ignores the request for shared memory, unless an administrator has changed `shmem_enabled`."""
    rows = rows_of_bytes(LARGE_BYTES // LINE_BYTES, LINE_BYTES)
    flags: list[str] = []
    mapped = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            mapped = begin <= rows.ctypes.data < end
        elif mapped and first == "VmFlags:":
            flags = rest
    assert "sh" not in flags
    assert not Path("/sys/kernel/mm/transparent_hugepage").exists() or "hg" in flags


@pytest.mark.parametrize(
    "columns",
    [
        [np.int64([5, -3, 5, 9, -3]), np.int64([1, 2, 1, 2, 0])],
        [np.int64([0, -1, 0, 1]), np.int64([-(1 << 62), 1 << 62, -(1 << 62), 7])],  # need more than 63 bits together
        [np.uint64([1 << 63, 3, 1 << 63, (1 << 64) - 1])],
        [np.int16([-32768, 32767, -32768]), np.int16([1, 1, 1])],
        [np.array([0.5, -0.25, 0.5]), np.array([1.0, 2.0, 1.0])],
        [np.zeros(0, np.int64), np.zeros(0, np.int64)],
    ],
)
def test_distinct_rows_are_those_of_numpy(columns):
    rows = np.column_stack(columns)
    unique, index = distinct_rows(rows)
    expected, inverse = np.unique(rows, axis=0, return_inverse=True)
    assert unique.tolist() == expected.tolist()
    assert index.tolist() == inverse.ravel().tolist()


def test_distinct_rows_of_many_columns_are_in_their_order():
    rows = np.random.default_rng(1).integers(-3, 4, (5000, 6))
    unique, index = distinct_rows(rows)
    assert unique.tolist() == np.unique(rows, axis=0).tolist()
    assert (unique[index] == rows).all()


def test_fill_sets_columns_and_numbers_of_all_records():
    n = 2 * FILL_RECORDS + 5
    messages = records(n, MESSAGE)
    fill(messages, next=-1, bytes=np.arange(n), full=np.arange(n) % 7)
    assert (messages.next == -1).all()
    assert (messages.bytes == np.arange(n)).all()
    assert (messages.full == np.arange(n) % 7).all()
    assert not messages.qp.any()
