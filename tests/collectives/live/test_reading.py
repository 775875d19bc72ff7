"""Memory of a process, put or added into memory of this one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from weft.collectives.live.arrays import Array
from weft.collectives.live.execution import Execution
from weft.collectives.live.job import KINDS, PUT
from weft.collectives.live.reading import CopyWorkers, read_word

_BYTES = (1 << 20) + 4096 * 5 + 8  # parts of several lengths, and the last block is short


@pytest.fixture(params=[0, 3], ids=["alone", "with helpers"])
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[CopyWorkers]:
    cores = set(range(2 * (1 + request.param)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: cores)
    result = CopyWorkers(ranks=2)
    assert len(result._calls) == request.param
    yield result
    result.close()


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_numbers_of_each_kind_are_put_and_added(workers: CopyWorkers, dtype: np.dtype[np.generic]) -> None:
    random = np.random.default_rng(3)
    present, local = (random.integers(0, 256, _BYTES, np.uint8).view(dtype) for _ in range(2))
    if dtype.kind == "f":  # any bits may be no numbers
        present, local = (random.standard_normal(len(present)).astype(dtype) for _ in range(2))
    expected = local.copy()
    for _ in range(3):  # helpers are called, and are there
        np.add(expected, present, out=expected)
        assert workers.take(os.getpid(), present.ctypes.data, local.ctypes.data, _BYTES, KINDS[dtype])
    np.testing.assert_array_equal(local, expected)
    assert workers.take(os.getpid(), present.ctypes.data, local.ctypes.data, _BYTES, PUT)
    np.testing.assert_array_equal(local, present)


def test_memory_that_is_not_there_is_no_crash(workers: CopyWorkers) -> None:
    """Nor is a part of it that a helper should read."""
    local = np.zeros(_BYTES, np.uint8)
    for _ in range(3):
        assert not workers.take(os.getpid(), 1 << 12, local.ctypes.data, _BYTES, PUT)
    assert read_word(os.getpid(), 1 << 12) is None


def test_numbers_that_only_numpy_adds_are_read_in_parts(workers: CopyWorkers) -> None:
    present, local = np.arange(1000, dtype=np.uint16), np.full(1000, 7, np.uint16)
    end = SimpleNamespace(beside=np.zeros(256, np.uint8), workers=lambda _ranks: workers)
    execution = SimpleNamespace(_rendezvous=SimpleNamespace(end=end, size=2), _memory=Array(local, reduce=np.maximum))
    link = SimpleNamespace(process=os.getpid())
    assert Execution._add_beside(execution, link, 2, present.ctypes.data + 2, 1998)
    assert local.tolist() == [7] * 7 + list(range(7, 1000))
    assert not Execution._add_beside(execution, link, 0, 1 << 12, 2000)
