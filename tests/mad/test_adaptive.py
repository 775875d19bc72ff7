"""Adaptive routing: settings of a switch become the fabric's tables."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.mad import faults
from weft.mad.sma_adaptive import GROUP_CAP
from weft.routing.engine import Options
from weft.routing.route import route
from weft.wire.adaptive import (
    AdaptiveRoutingEntry,
    AdaptiveRoutingGroupTable,
    AdaptiveRoutingInfo,
    AdaptiveRoutingLinearForwardingTable,
    LidState,
)
from weft.wire.mad import Method, Status
from weft.wire.smp import LinearForwardingTable, SmpAttribute

GET, SET = Method.GET, Method.SET
INFO = SmpAttribute.ADAPTIVE_ROUTING_INFO
GROUPS = SmpAttribute.ADAPTIVE_ROUTING_GROUP_TABLE
LFT = SmpAttribute.ADAPTIVE_ROUTING_LINEAR_FORWARDING_TABLE
LEAF = [1]  # from h1 out by its port: leaf1
STATIC = AdaptiveRoutingEntry(state=LidState.STATIC, port=1, group=1)


def mask(*ports: int) -> bytes:
    return sum(1 << port for port in ports).to_bytes(32, "big")


def tell(bench, attribute, record, modifier=0):
    return bench.ask(LEAF, SET, attribute, modifier, record.raw)[0]


def turn(bench, on: int, **more: int) -> int:
    return tell(bench, INFO, AdaptiveRoutingInfo(enabled=on, **({"group_top": 9} | more)))


def entries(**by_lid: AdaptiveRoutingEntry) -> AdaptiveRoutingLinearForwardingTable:
    """Return a block with these entries, `l7=...` at index 7; the others are static."""
    return AdaptiveRoutingLinearForwardingTable(entry=[by_lid.get(f"l{at}", STATIC) for at in range(16)])


def ports_to(bench, lid: int) -> list[int]:
    """Return the ports of leaf1 to a LID; empty if only its forwarding table applies."""
    tables = bench.devices.tables
    row = tables.ar_group[tables.switch_row[bench.node("leaf1")], lid]
    return np.flatnonzero(tables.ar_ports[row]).tolist() if row >= 0 else []


@pytest.fixture
def told(running):
    """The bench with adaptive routing on leaf1: two groups, one for LID 5 and one for LID 6."""
    assert tell(running, GROUPS, AdaptiveRoutingGroupTable(group_0=mask(3, 4), group_1=mask(2, 3, 4))) == 0
    free, bound = (AdaptiveRoutingEntry(state=how, port=3, group=at) for at, how in enumerate((1, 0)))
    assert tell(running, LFT, entries(l5=free, l6=bound)) == 0
    assert turn(running, 1) == 0
    return running


def test_a_switch_is_off_and_empty_when_it_is_switched_on(bench):
    status, data = bench.ask(LEAF, GET, INFO)
    info = AdaptiveRoutingInfo.unpack(data)
    assert (status, info.enabled, info.group_cap, info.group_top) == (0, 0, GROUP_CAP, 0)
    assert bench.ask(LEAF, GET, GROUPS, 7) == (0, bytes(64))
    entry = AdaptiveRoutingLinearForwardingTable.unpack(bench.ask(LEAF, GET, LFT)[1]).entry[1]
    assert (entry.state, entry.port) == (LidState.STATIC, 255)


def test_groups_and_lids_come_into_the_tables_that_the_engines_run(told):
    assert [ports_to(told, lid) for lid in (4, 5, 6, 7)] == [[], [3, 4], [2, 3, 4], []]
    tables = told.devices.tables
    assert tables.lft[tables.switch_row[told.node("leaf1")], [4, 5, 6]].tolist() == [1, 3, 3]
    other = tables.switch_row[told.node("leaf2")]
    assert (tables.ar_group[other] == -1).all()


def test_written_groups_are_read_back(told):
    assert told.ask(LEAF, GET, GROUPS)[1] == mask(3, 4) + mask(2, 3, 4)
    read = AdaptiveRoutingLinearForwardingTable.unpack(told.ask(LEAF, GET, LFT)[1]).entry
    assert [(item.state, item.port, item.group) for item in read[4:7]] == [(2, 1, 1), (1, 3, 0), (0, 3, 1)]
    info = AdaptiveRoutingInfo.unpack(told.ask(LEAF, GET, INFO)[1])
    assert (info.enabled, info.group_top, info.group_cap) == (1, 9, GROUP_CAP)


def test_switched_off_the_forwarding_table_decides_and_on_again_the_groups(told):
    turn(told, 0)
    assert ports_to(told, 5) == []
    turn(told, 1)
    assert ports_to(told, 5) == [3, 4]
    turn(told, 1, group_top=0)
    assert (ports_to(told, 5), ports_to(told, 6)) == ([3, 4], [])


def test_a_group_that_changes_changes_all_its_lids(told):
    tell(told, GROUPS, AdaptiveRoutingGroupTable(group_0=mask(4), group_1=mask(2, 3, 4)))
    assert [ports_to(told, lid) for lid in (5, 6)] == [[4], [2, 3, 4]]
    tell(told, GROUPS, AdaptiveRoutingGroupTable(group_0=bytes(32), group_1=mask(2, 200, 0)))
    assert [ports_to(told, lid) for lid in (5, 6)] == [[], [2]]


def test_the_plain_forwarding_table_turns_it_off_or_is_refused(told):
    """`no_fallback` decides which."""
    plain = LinearForwardingTable(port=[3] * 64)
    turn(told, 1, no_fallback=1)
    before = told.devices.tables.lft.copy()
    assert told.put(LEAF, plain) == Status.INVALID_FIELD
    assert (told.devices.tables.lft == before).all()
    assert ports_to(told, 5) == [3, 4]
    turn(told, 1)
    assert told.put(LEAF, plain) == 0
    assert AdaptiveRoutingInfo.unpack(told.ask(LEAF, GET, INFO)[1]).enabled == 0
    assert (told.devices.tables.ar_group == -1).all()
    turn(told, 1)
    assert (ports_to(told, 5), ports_to(told, 6)) == ([], [])


def test_lids_beyond_the_table_make_it_longer(told):
    entry = AdaptiveRoutingEntry(state=LidState.FREE, port=3, group=0)
    assert tell(told, LFT, entries(l9=entry), 100) == 0
    assert [ports_to(told, lid) for lid in (5, 1609)] == [[3, 4], [3, 4]]
    assert told.devices.tables.ar_group.shape == told.devices.tables.lft.shape


@pytest.mark.parametrize(
    ("attribute", "modifier"), [(GROUPS, GROUP_CAP // 2), (GROUPS, 1 << 16), (LFT, 0xC000 // 16), (LFT, 1 << 24)]
)
def test_blocks_and_tables_that_are_not_there_are_refused(bench, attribute, modifier):
    assert {bench.ask(LEAF, method, attribute, modifier)[0] for method in (GET, SET)} == {Status.INVALID_FIELD}
    assert turn(bench, 1, group_top=GROUP_CAP) == Status.INVALID_FIELD


@pytest.mark.parametrize("attribute", [INFO, GROUPS, LFT])
def test_adapters_and_switches_that_the_catalog_does_not_know_do_not_support_it(make_bench, attribute):
    fabric = weft.load("fat-tree:hosts=8,radix=4")
    device_id = fabric.nodes.device_id.copy()
    device_id[fabric.find_node("leaf1").index] = 0xBD36  # InfiniScale IV
    object.__setattr__(fabric.nodes, "device_id", device_id)
    bench = make_bench(fabric)
    for path in ([], LEAF):
        for method in (GET, SET):
            assert bench.ask(path, method, attribute)[0] == Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    assert bench.ask([1, 3], GET, attribute)[0] == 0


@pytest.mark.parametrize("model", ["SX6036", "SB7800", "QM8700", "QM9700", "Q3400"])
def test_every_infiniband_switch_of_the_catalog_has_it(make_bench, model):
    assert make_bench(f"star:4,switch={model}").ask(LEAF, GET, INFO)[0] == 0


def test_a_switch_that_lost_power_has_forgotten(told):
    faults.kill(told.devices, told.node("leaf1"))
    faults.revive(told.devices, told.node("leaf1"))
    assert (told.devices.tables.ar_group == -1).all()
    assert AdaptiveRoutingInfo.unpack(told.ask(LEAF, GET, INFO)[1]).enabled == 0


def test_groups_that_a_routing_engine_wrote_are_read_as_groups(make_bench):
    """The fabric was routed before the first request: the switch is enabled, and its groups are numbered."""
    bench = make_bench(route(weft.load("fat-tree:hosts=8,radix=4"), Options(adaptive=True)).fabric)
    tables = bench.devices.tables
    info = AdaptiveRoutingInfo.unpack(bench.ask(LEAF, GET, INFO)[1])
    assert info.enabled == 1
    lid = int(bench.devices.fabric["h8/1"].lid)
    block = AdaptiveRoutingLinearForwardingTable.unpack(bench.ask(LEAF, GET, LFT, lid // 16)[1])
    entry = block.entry[lid % 16]
    assert entry.state == LidState.FREE
    pair = bench.ask(LEAF, GET, GROUPS, entry.group // 2)[1]
    assert pair[32 * (entry.group % 2) :][:32] == mask(*ports_to(bench, lid))
    assert len(ports_to(bench, lid)) > 1
    before = tables.ar_group.copy()
    assert tell(bench, INFO, info) == 0
    assert (tables.ar_group == before).all()
