"""Intrinsics that kernels of all packages use, in small kernels that are compiled here."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from weft.jit import call_kernel, kernel_address, prefetch
from weft.jit.threads import atomic_add, atomic_exchange, atomic_load, relax, yield_core


def test_a_kernel_is_called_by_its_address():
    @numba.njit
    def scale(state, budget):
        return state[0] * budget

    @numba.njit
    def subtract(state, budget):
        return state[1] - budget

    @numba.njit
    def use(address, state, budget):
        return call_kernel(address, state, budget)

    state = np.array([3, 4])
    addresses = [kernel_address(function, state, 1) for function in (scale, subtract)]
    assert [use(address, state, 5) for address in addresses] == [15, -1]


@numba.njit
def total_by_row(array):
    total = 0
    for i in range(len(array)):
        prefetch(array, i + 1)  # prefetching one item past the end is harmless
        total += array[i]
    return total


@numba.njit
def total_by_item(array):
    total = 0
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            prefetch(array, (i, j + 1))
            total += array[i, j]
    return total


@pytest.mark.parametrize(("shape", "kernel"), [(12, total_by_row), ((3, 4), total_by_item)])
def test_arrays_of_one_and_two_axes_are_prefetched(shape, kernel):
    array = np.arange(12).reshape(shape)
    assert kernel(array) == array.sum()


def test_a_word_is_changed_in_one_step_and_its_value_before_is_returned():
    @numba.njit
    def use(words):
        relax()
        yield_core()
        return atomic_add(words, 3, 5), atomic_add(words, 3, -1), atomic_exchange(words, 1, 40), atomic_load(words, 3)

    words = np.arange(100, 106)
    assert use(words) == (103, 108, 101, 107)
    assert words.tolist() == [100, 40, 102, 107, 104, 105]
