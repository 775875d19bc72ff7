"""A UFM that fails, refuses, or is older than we need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.conformance.drivers import Bench
from tests.tenants.drivers.small_ufm import SmallUfm, running
from tests.tenants.drivers.test_killed import two

from weft.errors import ConfigError, SubnetError
from weft.sm.conf.qos_options import QosOptions
from weft.tenants.drivers.ufm import UfmDriver, _end_ports
from weft.tenants.drivers.ufm_rest import UfmClient
from weft.tenants.drivers.ufm_shapes import UfmPort, UfmQos
from weft.tenants.partitions import Allocation, Member, Partition

GUIDS = {f"h{number}": 0x1000 + number for number in range(2, 6)}


@pytest.fixture
def ufm() -> Iterator[SmallUfm]:
    with running(SmallUfm(GUIDS)) as result:
        result.pkeys.clear()
        yield result


@pytest.fixture
def bench(ufm) -> Bench:
    driver = UfmDriver(UfmClient(ufm.url, token="t"))
    return Bench(driver=driver, guids=GUIDS, held=ufm.held, taken=0x200, sets_default=False)


def test_calls_before_a_failed_one_are_reverted(ufm, bench):
    local, present = two(bench)
    bench.put(local)
    before = ufm.changes
    bench.put(present)
    calls = ufm.changes - before
    assert calls >= 5
    for call in range(1, calls + 1):
        bench.put(local)
        ufm.fail_at = {ufm.changes + call}
        with pytest.raises(SubnetError, match="no luck today"):
            bench.put(present)
        bench.expect(local)


def test_a_failed_revert_is_reported_and_the_next_write_continues(ufm, bench):
    local, present = two(bench)
    bench.put(local)
    ufm.fail_at = set(range(ufm.changes + 3, ufm.changes + 99))
    with pytest.raises(
        SubnetError,
        match=r"no luck today\n  The earlier calls could not be reverted: UFM at .*; apply the intent again",
    ):
        bench.put(present)
    ufm.fail_at = set()
    bench.put(present)
    bench.expect(present)


def test_a_ufm_without_partition_names_is_left_unchanged(ufm, bench):
    ufm.keeps_names = False
    with pytest.raises(SubnetError, match=r"red=0x0101.* differ\n.*6.22"):
        bench.put(two(bench)[0])
    assert ufm.pkeys == {}


@pytest.mark.parametrize("membership", ["full", None])
def test_full_membership_in_default_is_refused_with_a_hint(ufm, bench, membership):
    ufm.membership = membership
    assert bench.driver.read().allocation.default_is_full
    with pytest.raises(SubnetError, match=r"default_membership = limited in its gv\.cfg"):
        bench.put(two(bench)[0])
    assert ufm.pkeys == {}
    ufm.membership = "limited"
    bench.put(two(bench)[0])
    ufm.membership, before = membership, ufm.changes
    with pytest.raises(SubnetError, match=r"default_membership = limited in its gv\.cfg"):
        bench.put(two(bench)[1])
    assert ufm.changes == before


def test_an_mtu_that_ufm_does_not_support_is_refused(ufm, bench):
    with pytest.raises(ConfigError, match="acme=0x0101 must be 2048 or 4096 bytes for UFM, got 1024"):
        bench.put(bench.allocation(Partition(name="acme", p_key=0x101, mtu_bytes=1024)))
    limits = bench.allocation(Partition(name="acme", p_key=0x101, mtu_bytes=4096, rate_gbit_s=100.0, sl=3))
    bench.put(limits)
    bench.expect(limits)
    renamed = bench.allocation(Partition(name="other", p_key=0x101, ipoib=True, sl=2))
    bench.put(renamed)
    bench.expect(renamed)
    assert ufm.pkeys["0x101"]["qos_conf"]["service_level"] == 2


def test_ports_of_a_host_with_several_adapters_have_adapter_names():
    hosts = {"dgx1/mlx5_0": 0x11, "dgx1/mlx5_3": 0x21, "h1": 0x31}
    with running(SmallUfm(hosts)) as ufm:
        present = UfmDriver(UfmClient(ufm.url, token="t")).inventory()
    assert [(port.name, port.host) for port in present.ports] == [
        ("dgx1/mlx5_0/1", "dgx1"),
        ("dgx1/mlx5_3/1", "dgx1"),
        ("h1/1", "h1"),
    ]


def test_a_port_that_ufm_describes_partly_is_named_by_its_node():
    """Two adapters without a description have their GUIDs as names."""
    ports = [UfmPort(guid=f"{guid:016x}", name=f"{guid - 1:016x}_1", system_name="h1") for guid in (0x11, 0x21)]
    ports.append(UfmPort(guid="31", lid=7, number=2, logical_state="Down"))
    assert [(port.name, port.host, port.number, port.lid, port.is_active) for port in _end_ports(ports)] == [
        ("h1/0000000000000010/1", "h1", 1, 0, False),
        ("h1/0000000000000020/1", "h1", 1, 0, False),
        ("H-0000000000000031/2", "H-0000000000000031", 2, 7, False),
    ]


def test_a_p_key_that_another_owner_has_is_refused(ufm):
    driver = UfmDriver(UfmClient(ufm.url, token="t"), range(0x100, 0x200))
    for p_key in (0x0FF, 0x200):
        with pytest.raises(ConfigError, match="is not managed by weft"):
            driver.write(
                Allocation(partitions={p_key: Partition(name="a", p_key=p_key)}, default_is_full=False),
                over=driver.read(),
            )
    assert ufm.changes == 0


def test_p_keys_outside_the_pool_are_foreign(ufm):
    everything = UfmDriver(UfmClient(ufm.url, token="t"))
    everything.write(
        Allocation(partitions={0x300: Partition(name="theirs", p_key=0x300)}, default_is_full=False),
        over=everything.read(),
    )
    ours = UfmDriver(UfmClient(ufm.url, token="t"), range(0x100, 0x200))
    assert (ours.read().allocation.partitions, ours.read().foreign_p_keys) == ({}, {0x300})
    ours.write(Allocation(default_is_full=False), over=ours.read())
    assert "0x300" in ufm.pkeys


class Calls:
    """A UFM that records changes."""

    def __init__(self) -> None:
        self.made: list[tuple[object, ...]] = []

    def __getattr__(self, name: str):
        return lambda *words, **more: self.made.append((name, *words, *more.values()))


FULL, LIMITED = Member(), Member(full=False)
ACME = Partition(name="acme", p_key=0x101, members={1: FULL, 2: FULL})
CREATE, ADD, REMOVE, DELETE, LIMIT = "create_pkey", "add_guids", "remove_guids", "delete_pkey", "set_qos_conf"


@pytest.mark.parametrize(
    ("before", "after", "calls"),
    [
        (ACME, ACME, []),
        (None, ACME, [(CREATE, 0x101, "acme", False, UfmQos()), (ADD, 0x101, ACME.members, False)]),
        (None, replace(ACME, members={}), [(CREATE, 0x101, "acme", False, UfmQos())]),
        (ACME, None, [(DELETE, 0x101)]),
        (ACME, replace(ACME, members={2: FULL, 3: LIMITED}), [(REMOVE, 0x101, [1]), (ADD, 0x101, {3: LIMITED}, False)]),
        (ACME, replace(ACME, members={1: FULL, 2: LIMITED}), [(ADD, 0x101, {2: LIMITED}, False)]),
        (ACME, replace(ACME, sl=3), [(LIMIT, 0x101, UfmQos(sl=3))]),
        (ACME, replace(ACME, mtu_bytes=2048), []),
        (ACME, replace(ACME, rate_gbit_s=2.5), []),
        (ACME, replace(ACME, rate_gbit_s=10.0), [(LIMIT, 0x101, UfmQos(rate_gbit_s=10.0))]),
        (ACME, replace(ACME, ipoib=True), [(ADD, 0x101, ACME.members, True)]),
        (
            ACME,
            replace(ACME, ipoib=True, members={}),
            [(DELETE, 0x101), (CREATE, 0x101, "acme", True, UfmQos())],
        ),
        (
            ACME,
            replace(ACME, name="other"),
            [(DELETE, 0x101), (CREATE, 0x101, "other", False, UfmQos()), (ADD, 0x101, ACME.members, False)],
        ),
    ],
)
def test_a_change_takes_only_the_calls_that_it_needs(before, after, calls):
    ufm = Calls()
    driver = UfmDriver(ufm)  # type: ignore[arg-type]
    driver._change(*(Allocation(partitions={0x101: item} if item else {}) for item in (before, after)))
    assert ufm.made == calls


def test_lanes_are_refused_with_a_hint(ufm, bench):
    with pytest.raises(SubnetError, match="lanes cannot be set over REST"):
        bench.put(replace(bench.allocation(), lanes=QosOptions()))
    assert ufm.changes == 0


def test_a_driver_compares_no_tables_of_ports(bench, ufm):
    assert bench.driver.check(repair=True).differences == ()
    assert bench.driver.title == f"UFM at {ufm.url}"


def test_ufms_limits_may_be_given(bench, ufm):
    """An MTU of 2,048 bytes is UFM's default, and 0x7ffe the last P_Key."""
    last = Partition(name="last", p_key=0x7FFE, mtu_bytes=2048)
    bench.put(bench.allocation(last))
    bench.expect(bench.allocation(replace(last, mtu_bytes=None)))
    assert bench.driver.read().foreign_p_keys == frozenset()
