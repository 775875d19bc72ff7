"""Memory of a process, put or added into memory of this one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from weft.collectives.live.job import KINDS, PUT
from weft.collectives.live.reading import CopyWorkers, read_word

_BYTES = (1 << 20) + 4096 * 5 + 8  # parts of several lengths, and the last block is short


@pytest.fixture(params=[0, 3], ids=["alone", "with helpers"])
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[CopyWorkers]:
    cores = set(range(2 * (1 + request.param)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: cores)
    made = CopyWorkers(ranks=2)
    assert len(made._calls) == request.param
    yield made
    made.close()


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_numbers_of_each_kind_are_put_and_added(workers: CopyWorkers, dtype: np.dtype[np.generic]) -> None:
    random = np.random.default_rng(3)
    there, here = (random.integers(0, 256, _BYTES, np.uint8).view(dtype) for _ in range(2))
    if dtype.kind == "f":  # any bits may be no numbers
        there, here = (random.standard_normal(len(there)).astype(dtype) for _ in range(2))
    wanted = here.copy()
    for _ in range(3):  # helpers are called, and are there
        np.add(wanted, there, out=wanted)
        assert workers.take(os.getpid(), there.ctypes.data, here.ctypes.data, _BYTES, KINDS[dtype])
    np.testing.assert_array_equal(here, wanted)
    assert workers.take(os.getpid(), there.ctypes.data, here.ctypes.data, _BYTES, PUT)
    np.testing.assert_array_equal(here, there)


def test_memory_that_is_not_there_is_no_crash(workers: CopyWorkers) -> None:
    """Nor is a part of it that a helper should read."""
    here = np.zeros(_BYTES, np.uint8)
    for _ in range(3):
        assert not workers.take(os.getpid(), 1 << 12, here.ctypes.data, _BYTES, PUT)
    assert read_word(os.getpid(), 1 << 12) is None
