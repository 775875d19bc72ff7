"""CXL memory against RDMA; docs/scenarios.md runs the whole comparison."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.fabric.timing import timings
from weft.scenarios import cxl_or_rdma
from weft.scenarios.cxl_or_rdma import SIZES, USES, _cxl, _range, devices
from weft.sim.engine import Memory

LAUNCH_US = timings().memory[Memory.STAGED].latency_ns / 1000


def test_a_read_of_cxl_memory_is_its_latency_and_its_bytes_and_to_a_gpu_a_copy_over_its_slot():
    device = devices()["expander-fast"]
    assert _cxl(device, 1, None)(52_000) == pytest.approx(0.239 + 1)
    assert _cxl(device, 4, None)(208_000) == pytest.approx(0.239 + 1)
    assert _cxl(device, 4, 55.0)(55_000) == pytest.approx(LAUNCH_US + 0.239 + 1)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (SIZES, "at all sizes"),
        ((), "at no size"),
        (SIZES[:5], "up to 1 KiB"),
        (SIZES[14:], "from 1 MiB"),
        (SIZES[:1], "up to 64 B"),
    ],
)
def test_ranges_of_sizes_are_named_by_their_ends(sizes, words):
    assert _range(sizes) == words


def test_devices_are_ordered_as_their_latencies_and_have_sources():
    fast, slow, pool = devices().values()
    assert fast.latency_ns < slow.latency_ns < pool.latency_ns
    assert all("ASPLOS" in device.source for device in (fast, slow, pool))


def test_more_devices_win_where_one_is_slower_and_the_crossing_is_at_equal_times():
    """The slowest device has 18 GB/s and an adapter 49: four interleaved are faster again at all sizes."""
    figures = cxl_or_rdma.run(expanders=1).figures
    wins = figures["cxl_wins"]
    assert (wins["expander-slow of processor"], wins["expander-fast of GPU"]) == ("up to 64 KiB", "from 8 MiB")
    cxl, rdma = figures["cxl_us"]["expander-slow of processor"], figures["rdma_us"]["processor"]
    assert cxl[64 << 10] <= rdma[64 << 10]
    assert cxl[128 << 10] > rdma[128 << 10]
    used_us = _cxl(devices()["expander-slow"], 1, None)
    assert figures["uses_ms"]["expander-slow of processor"] == {use: used_us(size) / 1000 for use, size in USES.items()}
    assert cxl_or_rdma.run(expanders=4).figures["cxl_wins"]["expander-slow of processor"] == "at all sizes"


@pytest.mark.parametrize(
    ("arguments", "reason"), [({"expanders": 0}, "--devices must be 1 to 16"), ({"server": "host"}, "has no GPUs")]
)
def test_no_devices_and_servers_without_gpus_are_refused(arguments, reason):
    with pytest.raises(ConfigError, match=reason):
        cxl_or_rdma.run(**arguments)
