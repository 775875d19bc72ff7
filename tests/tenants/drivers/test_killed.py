"""A killed `apply` can be repeated at any moment, with the same result."""

from __future__ import annotations

import time
from dataclasses import replace

from tests.conformance.drivers import Bench, partition_of
from tests.lab.rdma import managed
from tests.tenants.drivers import killed
from tests.tenants.drivers.small_ufm import SmallUfm, running

import weft
from weft.lab.lab import Lab
from weft.sm.control import socket_of
from weft.tenants.drivers.driver import FabricChangedError
from weft.tenants.partitions import Allocation


def two(bench: Bench) -> tuple[Allocation, Allocation]:
    """Return two allocations that differ by created, deleted and changed partitions."""
    red, blue = (
        partition_of(bench, "red", 0x101, "h2 h3=first"),
        partition_of(bench, "blue", 0x102, "h4 h5", ipoib=True),
    )
    green = partition_of(bench, "green", 0x103, "h2 h5")
    changed = replace(red, members=partition_of(bench, "", 0x101, "h2=limited h4").members)
    return bench.allocation(red, blue), bench.allocation(changed, green)


def kill_everywhere(bench: Bench, make, *given: object) -> int:
    """Apply and revert, with a kill at every moment; return the number of moments."""
    local, present = two(bench)
    done, moment = False, 0
    while not done:
        moment += 1
        put(bench, local)
        done = killed.apply(make, given, present, moment)
        again = local if make is not killed.of_manager and moment % 2 else present
        put(bench, again)
        bench.expect(again)
    return moment - 1


def put(bench: Bench, wanted: Allocation) -> None:
    """Write until it succeeds: the manager may still apply an order of the killed process."""
    try:
        bench.put(wanted)
    except FabricChangedError:
        bench.put(wanted)


def test_with_weft_s_subnet_manager(tmp_path):
    fabric = weft.load("star:hosts=5")
    with Lab(fabric, f"k{time.monotonic_ns() % 10**12}") as lab, managed(lab, state_file=tmp_path / "sm.json"):
        path = socket_of(tmp_path / "sm.json")
        guids = {f"h{number}": int(fabric[f"h{number}/1"].guid) for number in range(2, 6)}
        slots = {int(fabric[f"{host}/1"].guid): fabric[f"{host}/1"].slot for host in guids}
        bench = Bench(
            driver=killed.of_manager(path),
            guids=guids,
            held=lambda guid: lab.fabric.tables.pkey[slots[guid]].tolist(),
            taken=0x200,
        )
        assert kill_everywhere(bench, killed.of_manager, path) >= 2


def test_with_a_ufm():
    guids = {f"h{number}": 0x100 + number for number in range(2, 6)}
    with running(SmallUfm(guids)) as ufm:
        ufm.pkeys.clear()
        driver = killed.of_ufm(ufm.url)
        bench = Bench(driver=driver, guids=guids, held=ufm.held, taken=0x200, sets_default=False)
        assert kill_everywhere(bench, killed.of_ufm, ufm.url) >= 10
