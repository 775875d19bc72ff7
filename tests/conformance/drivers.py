"""The conformance suite of tenant drivers (weft.tenants.drivers.driver).

    for check in CHECKS.values():
        check(bench)            a driver, hosts that it may use, and a function that reads their ports' tables

A check removes its own partitions at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from weft.errors import WeftError
from weft.sm.conf.qos_options import QosOptions
from weft.tenants.drivers.driver import Driver, FabricChangedError
from weft.tenants.partitions import Allocation, Member, Partition

DEFAULT, FULL = 0x7FFF, 0x8000
LANES = QosOptions(
    max_vls=2, high_limit=4, vlarb_high=((1, 64),), vlarb_low=((0, 64), (1, 64)), sl2vl=(0, 1, *(0,) * 14)
)


@dataclass(frozen=True, kw_only=True)
class Bench:
    driver: Driver
    guids: dict[str, int]  # port GUIDs by host: at least four, without the subnet manager's
    held: Callable[[int], list[int]]  # the true P_Key table of the port with a GUID
    taken: int  # a P_Key of another owner
    sets_default: bool = True  # False: it was limited before, and the driver cannot change it
    sets_lanes: bool = True
    keeps: Callable[[Partition], Partition] = field(default=lambda one: one)  # a partition as it is read back

    def allocation(self, *partitions: Partition, **words: object) -> Allocation:
        return Allocation(
            partitions={partition.p_key: partition for partition in partitions}, default_is_full=False, **words
        )

    def put(self, wanted: Allocation) -> None:
        self.driver.write(wanted, over=self.driver.read())

    def empty(self) -> None:
        self.put(Allocation(default_is_full=self.sets_default))

    def expect(self, wanted: Allocation) -> None:
        """Check that the driver reports an allocation, and that the ports hold exactly its P_Keys."""
        present = self.driver.read().allocation
        assert present == replace(wanted, partitions={key: self.keeps(item) for key, item in wanted.partitions.items()})
        for host, guid in self.guids.items():
            mine = {item.p_key: item.members[guid] for item in wanted.partitions.values() if guid in item.members}
            keys = {key | FULL * member.full for key, member in mine.items()} | {
                DEFAULT | FULL * wanted.default_is_full
            }
            table = self.held(guid)
            assert {key for key in table if key and key & DEFAULT != self.taken} == keys, host
            first = next((key for key, member in mine.items() if member.index0), DEFAULT)
            assert table[0] & DEFAULT == first, host


def partition_of(bench: Bench, name: str, p_key: int, hosts: str, **words: object) -> Partition:
    """Return a partition; `hosts` is a list such as `h2 h3=limited h4=first`."""
    words_of = [word.partition("=") for word in hosts.split()]
    members = {bench.guids[host]: Member(full=kind != "limited", index0=kind == "first") for host, _, kind in words_of}
    return Partition(name=name, p_key=p_key, members=members, **words)


def inventory(bench: Bench) -> None:
    """Check that every host is listed with its port GUID, a LID and room for P_Keys."""
    present = bench.driver.inventory().by_guid()
    for host, guid in bench.guids.items():
        assert (present[guid].host, present[guid].name, present[guid].number) == (host, f"{host}/1", 1)
        assert present[guid].is_active
        assert present[guid].lid > 0
    assert bench.driver.title


def partitions_are_created_changed_and_deleted(bench: Bench) -> None:
    red = partition_of(bench, "red", 0x101, "h2 h3")
    blue = partition_of(bench, "blue", 0x102, "h4 h5=limited", ipoib=True)
    bench.put(bench.allocation(red, blue))
    bench.expect(bench.allocation(red, blue))
    green = partition_of(bench, "green", 0x103, "h2=limited h5")
    blue = partition_of(bench, "blue", 0x102, "h4=limited h5 h3", ipoib=True)
    bench.put(bench.allocation(blue, green))
    bench.expect(bench.allocation(blue, green))
    bench.empty()
    bench.expect(Allocation(default_is_full=bench.sets_default))


def index_0_is_set_and_reset(bench: Bench) -> None:
    red, blue = partition_of(bench, "red", 0x101, "h2=first h3=first"), partition_of(bench, "blue", 0x102, "h2")
    bench.put(bench.allocation(red, blue))
    bench.expect(bench.allocation(red, blue))
    red, blue = partition_of(bench, "red", 0x101, "h2 h3=first"), partition_of(bench, "blue", 0x102, "h2=first")
    bench.put(bench.allocation(red, blue))
    bench.expect(bench.allocation(red, blue))
    bench.empty()


def a_partition_may_be_empty_and_have_absent_ports(bench: Bench) -> None:
    empty = Partition(name="empty", p_key=0x104)
    absent = Partition(name="absent", p_key=0x105, members={0xDEAD_BEEF: Member(full=False)})
    bench.put(bench.allocation(empty, absent))
    bench.expect(bench.allocation(empty, absent))
    bench.empty()


def writing_twice_changes_nothing(bench: Bench) -> None:
    red = bench.allocation(partition_of(bench, "red", 0x101, "h2 h3", ipoib=True))
    bench.put(red)
    first = bench.driver.read()
    bench.put(red)
    assert bench.driver.read() == first
    bench.empty()


def an_outdated_write_is_refused(bench: Bench) -> None:
    before = bench.driver.read()
    red = bench.allocation(partition_of(bench, "red", 0x101, "h2"))
    bench.put(red)
    with pytest.raises(FabricChangedError):
        bench.driver.write(bench.allocation(partition_of(bench, "blue", 0x102, "h3")), over=before)
    bench.expect(red)
    bench.empty()


def invalid_allocations_are_refused_completely(bench: Bench) -> None:
    """Check a foreign P_Key, an invalid name, and two P_Keys at index 0: none of the change is applied."""
    red = partition_of(bench, "red", 0x101, "h2")
    bench.put(bench.allocation(red))
    for bad, why in (
        ([partition_of(bench, "mine", bench.taken, "h3")], f"{bench.taken:#06x}"),
        ([partition_of(bench, "a,b", 0x103, "h3")], "a,b"),
        ([partition_of(bench, "a", 0x103, "h3=first"), partition_of(bench, "b", 0x104, "h3=first")], "index 0"),
    ):
        with pytest.raises(WeftError, match=why):
            bench.put(bench.allocation(*bad))
        bench.expect(bench.allocation(red))
    bench.empty()


def lanes_are_set_and_removed_with_service_levels(bench: Bench) -> None:
    if not bench.sets_lanes:
        with pytest.raises(WeftError, match="lanes"):
            bench.put(bench.allocation(lanes=LANES))
        bench.expect(bench.allocation())
        return
    fast = partition_of(bench, "fast", 0x101, "h2 h3", sl=1)
    bench.put(bench.allocation(fast, lanes=LANES))
    bench.expect(bench.allocation(fast, lanes=LANES))
    bench.empty()
    bench.expect(Allocation(default_is_full=bench.sets_default))


CHECKS: dict[str, Callable[[Bench], None]] = {
    check.__name__: check
    for check in (
        inventory,
        partitions_are_created_changed_and_deleted,
        index_0_is_set_and_reset,
        a_partition_may_be_empty_and_have_absent_ports,
        writing_twice_changes_nothing,
        an_outdated_write_is_refused,
        invalid_allocations_are_refused_completely,
        lanes_are_set_and_removed_with_service_levels,
    )
}
