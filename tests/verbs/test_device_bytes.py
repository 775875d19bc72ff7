"""Addresses of bytes on a GPU, computed without one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.verbs.gpudirect.cuda import Allocation
from weft.verbs.gpudirect.gpu import DeviceBytes, Part


@given(st.lists(st.integers(1, 50), min_size=1, max_size=4), st.integers(-250, 250), st.integers(-250, 250))
def test_slices_of_device_bytes_are_those_of_bytes(lengths, begin, end):
    allocations = [Allocation(None, 0, 0, 10_000 * i, 10_000) for i in range(len(lengths))]
    data = DeviceBytes(tuple(Part(b, b.start + 7, n) for b, n in zip(allocations, lengths, strict=True)))

    def addresses(some: DeviceBytes) -> list[int]:
        return [part.address + i for part in some.parts for i in range(part.length)]

    assert addresses(data[begin:end]) == addresses(data)[begin:end]
    assert len(data[begin:end]) == len(addresses(data)[begin:end])
