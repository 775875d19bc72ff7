"""Floating LIDs: their assignment to leaf switches, and the options of their ranges."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tests.sm.conftest import Net

import weft
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.tables import NO_ROUTE
from weft.ids import Gid
from weft.mad.walk import walk
from weft.sm.conf.options import Options
from weft.sm.discovery.view import View, make_view
from weft.sm.flids import (
    Flids,
    _router_ports,
    add_routes,
    check_ranges,
    choose_flids,
    find_flids,
    upload_flids,
)
from weft.sm.ucast.lids import choose_lids
from weft.wire.bulk import fill
from weft.wire.port_info import PortInfo
from weft.wire.router import AdjacentRouterLids, AdjacentSubnetsRouterLidInfo, RouterInfo
from weft.wire.smp import SmpAttribute

PREFIX = 0xFEC0_0000_0000_0001
RANGE = {"subnet_prefix": PREFIX, "global_flid_start": 1000, "global_flid_end": 1999}


def view_of(spec: str) -> SimpleNamespace:
    fabric = weft.load(spec)
    is_switch = fabric.nodes.kind == NodeKind.SWITCH
    ends = np.flatnonzero((fabric.ports.number == 0) | (fabric.ports.peer >= 0) & ~is_switch[fabric.ports.node])
    return SimpleNamespace(
        fabric=fabric,
        is_switch=is_switch,
        port_info=np.zeros((len(fabric.ports), 64), np.uint8),
        end_ports=ends,
    )


def flids_of_leaves(view: SimpleNamespace, **options: int) -> list[int]:
    """Return the FLID of each leaf switch, by the ports of its hosts, which all must have the same."""
    own, fabric = choose_flids(view, Options(**RANGE, **options)), view.fabric
    adapters = np.flatnonzero(own)
    leaf = fabric.ports.node[fabric.ports.peer[adapters]]
    sets = [set(own[adapters[leaf == node]].tolist()) for node in dict.fromkeys(leaf.tolist())]
    assert all(len(each) == 1 for each in sets)
    return [each.pop() for each in sets]


@pytest.mark.parametrize(
    ("last", "compression", "flids"),
    [
        (1003, 2, [1000, 1001, 1002, 1003]),
        (1001, 2, [1000, 1001, 1000, 1001]),
        (1002, 2, [1000, 1001, 1002, 1000]),
        (1001, 1, [1000, 1001]),
        (1000, 3, [1000, 1000, 1000]),
    ],
)
def test_leaf_switches_share_floating_lids_up_to_the_compression(last, compression, flids):
    view = view_of("fat-tree:hosts=16,radix=8")
    options = {"local_flid_start": 1000, "local_flid_end": last, "flid_compression": compression}
    assert flids_of_leaves(view, **options) == flids


def test_floating_lid_of_a_port_is_kept_and_one_outside_of_the_range_is_not():
    view = view_of("fat-tree:hosts=16,radix=8")
    slots = np.flatnonzero(choose_flids(view, Options(**RANGE, local_flid_start=1000, local_flid_end=1009)))
    before = np.repeat([1007, 1500, 0, 1000], 4)
    rows = view.port_info[slots]
    fill(rows, PortInfo.gid_prefix, np.uint64(PREFIX) | before.astype(np.uint64) << np.uint64(16))
    view.port_info[slots] = rows
    assert flids_of_leaves(view, local_flid_start=1000, local_flid_end=1009) == [1007, 1001, 1002, 1000]


def test_no_port_gets_a_lid_of_the_global_range():
    view = view_of("fat-tree:hosts=16,radix=8")
    lids = choose_lids(view, {}, floating=(3, 20)).lid[view.end_ports]
    assert sorted(lids.tolist()) == [1, 2, *range(21, 21 + len(lids) - 2)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"global_flid_start": 10}, "give global_flid_start with a global_flid_end"),
        ({**RANGE, "global_flid_start": 2000}, "give global_flid_start with a global_flid_end"),
        ({**RANGE, "local_flid_start": 1000}, "local_flid_start with local_flid_end"),
        ({**RANGE, "local_flid_start": 999, "local_flid_end": 1000}, "999 to local_flid_end 1000 is refused"),
        ({**RANGE, "local_flid_start": 1002, "local_flid_end": 1001}, "it must be a part of global_flid_start 1000"),
        ({"local_flid_start": 1, "local_flid_end": 2}, "it must be a part of global_flid_start 0"),
        (
            {**RANGE, "local_flid_start": 1000, "local_flid_end": 1001, "subnet_prefix": Gid.LINK_LOCAL_PREFIX},
            "need a site-local prefix",
        ),
        ({"flid_compression": 5}, "flid_compression 5 is refused: it must be a number from 1 to 4"),
        ({"global_flid_start": 1, "global_flid_end": 0xC000}, "global_flid_end 49152 is refused"),
    ],
)
def test_ranges_that_do_not_fit_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        check_ranges(Options(**options))


@pytest.mark.parametrize("prefix", [PREFIX, 0xFEC0_0000_0000_0000, 0xFEC0_0000_0000_FFFF, PREFIX | 1000 << 16])
def test_any_subnet_of_the_site_may_have_floating_lids(prefix):
    check_ranges(Options(**RANGE | {"subnet_prefix": prefix}, local_flid_start=1000, local_flid_end=1001))


def test_gid_shows_its_floating_lid_and_its_subnet():
    gid = Gid((PREFIX | 1234 << 16) << 64 | 5)
    assert (gid.flid, gid.subnet_prefix) == (1234, PREFIX)
    other = Gid(0x2001_0000_0005_0001 << 64 | 5)
    assert (other.flid, other.subnet_prefix) == (0, 0x2001_0000_0005_0001)


# -- routers ----------------------------------------------------------------------------------------------------------

FAR = [AdjacentRouterLids(subnet_prefix=2, first=1100, last=1600)]


class Routers:
    """A sender to routers' ports that answer from their tables, except for silent or refused attributes."""

    def __init__(self, ranges: list[AdjacentRouterLids], *enabled: int) -> None:
        self.ranges = AdjacentSubnetsRouterLidInfo(subnet=(ranges + [AdjacentRouterLids()] * 8)[:8]).raw
        self.lids = np.zeros(0xC000, bool)
        self.lids[list(enabled)] = True
        self.info = RouterInfo(router_lid_cap=7)
        self.silent: set[int] = set()  # attributes
        self.refused: set[int] = set()
        self.read: list[list[int]] = []
        self.written: list[tuple[int, list[int]]] = []

    def get(self, route, attribute, modifier=0):
        count = len(route[0])
        modifiers = np.broadcast_to(np.asarray(modifier), count).tolist()
        if attribute == SmpAttribute.ROUTER_LID_TABLE:
            self.read.append(modifiers)
            rows = np.packbits(self.lids.reshape(-1, 512)[modifiers], axis=1)
        else:
            raw = self.info.raw if attribute == SmpAttribute.ROUTER_INFO else self.ranges
            rows = np.tile(np.frombuffer(raw.ljust(64, b"\0"), np.uint8), (count, 1))
        return rows, np.full(count, attribute not in self.silent)

    def set(self, route, attribute, modifier, data):
        modifiers = np.broadcast_to(np.asarray(modifier), len(data)).tolist()
        self.written.append((int(attribute), modifiers))
        if attribute not in self.refused and attribute == SmpAttribute.ROUTER_LID_TABLE:
            self.lids.reshape(-1, 512)[modifiers] = np.unpackbits(data, axis=1).astype(bool)
        elif attribute not in self.refused:
            self.info = RouterInfo.unpack(data[0].tobytes()[: RouterInfo.size])
        return data, np.full(len(data), attribute not in self.refused)


@pytest.fixture(scope="module")
def routed() -> View:
    return make_view(walk(Net("subnets:2,routers=2,of=star:hosts=4")))


def there(sender: Routers, view: View, **options: int) -> dict[int, tuple[int, ...]]:
    found = find_flids(sender, view, Options(**{**RANGE, **options}))
    assert found is not None
    return found.there


def test_enabled_floating_lids_of_adjacent_subnets_are_read_from_the_routers(routed):
    sender = Routers(FAR, 1099, 1100, 1101, 1600, 1601)
    ports = _router_ports(routed)
    first, second = ports.tolist()
    assert [routed.name(port) for port in (first, second)] == ["router1/1", "router2/1"]
    assert there(sender, routed) == {1100: (first, second), 1101: (second, first), 1600: (first, second)}
    assert sender.read == [[2, 3]] * 2  # 1100 to 1600 in blocks of 512
    assert find_flids(sender, routed, Options()) is None


@pytest.mark.parametrize(
    ("ranges", "options", "expected"),
    [
        (FAR, {"global_flid_start": 1101}, {1101, 1600}),
        (FAR, {"global_flid_end": 1599}, {1100, 1101}),
        (FAR, {"local_flid_start": 1101, "local_flid_end": 1101}, {1100, 1600}),
        ([AdjacentRouterLids(subnet_prefix=2, first=0, last=1600)], {}, set()),
        ([AdjacentRouterLids(subnet_prefix=2, first=1101, last=1101)], {}, {1101}),
        ([AdjacentRouterLids(subnet_prefix=2, first=1101, last=1100)], {}, set()),
        ([*FAR, AdjacentRouterLids(subnet_prefix=3, first=1700, last=1700)], {}, {1100, 1101, 1600, 1700}),
    ],
)
def test_only_floating_lids_within_all_ranges_are_used(routed, ranges, options, expected):
    sender = Routers(ranges, 1099, 1100, 1101, 1600, 1601, 1700)
    assert there(sender, routed, **options).keys() == expected


@pytest.mark.parametrize("silent", [SmpAttribute.ADJACENT_SUBNETS_ROUTER_LID_INFO, SmpAttribute.ROUTER_LID_TABLE])
def test_a_router_that_does_not_answer_leads_nowhere(routed, silent):
    sender = Routers(FAR, 1100)
    sender.silent = {silent}
    assert there(sender, routed) == {}


@pytest.mark.parametrize(("last", "count"), [(1000, 6), (1002, 2), (1003, 0)])
def test_ports_without_a_floating_lid_are_named_where_the_subnet_has_a_range(last, count):
    """Four leaf switches have two hosts each."""
    view = make_view(walk(Net("fat-tree:hosts=8,radix=4")))
    options = Options(**RANGE, local_flid_start=1000, local_flid_end=last, flid_compression=1)
    found = find_flids(Routers([]), view, options)
    assert found is not None
    assert (len(found.without), np.count_nonzero(found.own)) == (count, 8 - count)
    assert not found.own[found.without].any()
    found = find_flids(Routers([]), view, Options(**RANGE))
    assert found is not None
    assert (len(found.without), found.own.any()) == (0, False)


def test_ranges_and_enabled_floating_lids_are_written_where_routers_have_others(routed):
    options = Options(**RANGE, local_flid_start=1000, local_flid_end=1100)
    sender = Routers([], 999, 1001, 1100, 1101)
    flids = find_flids(sender, routed, options)
    assert upload_flids(sender, routed, options, flids) == []
    assert sender.info == RouterInfo(
        router_lid_cap=7,
        global_router_lid_base=1000,
        global_router_lid_top=1999,
        local_router_lid_base=1000,
        local_router_lid_top=1100,
    )
    assert np.flatnonzero(sender.lids[1000:1101]).tolist() == [0]
    assert sender.written == [
        *[(SmpAttribute.ROUTER_INFO, [0])] * 2,
        (SmpAttribute.ROUTER_LID_TABLE, [1, 2]),
        (SmpAttribute.ROUTER_LID_TABLE, []),
    ]
    sender.written.clear()
    assert upload_flids(sender, routed, options, flids) == []
    assert [blocks for _, blocks in sender.written] == [[], []]


@pytest.mark.parametrize("attribute", [SmpAttribute.ROUTER_INFO, SmpAttribute.ROUTER_LID_TABLE])
def test_routers_that_refuse_are_named_and_silent_ones_are_left_alone(routed, attribute):
    options = Options(**RANGE, local_flid_start=1000, local_flid_end=1100)
    sender = Routers([])
    flids = find_flids(sender, routed, options)
    sender.refused = {attribute}
    assert upload_flids(sender, routed, options, flids) == ["router1/1", "router2/1"]
    sender.silent, sender.written = {SmpAttribute.ROUTER_INFO}, []
    assert upload_flids(sender, routed, options, flids) == []
    assert sender.written == []


def test_without_a_range_of_its_own_a_subnet_enables_no_floating_lid(routed):
    sender = Routers([], 1001)
    options = Options(**RANGE)
    upload_flids(sender, routed, options, find_flids(sender, routed, options))
    assert {attribute for attribute, _ in sender.written} == {SmpAttribute.ROUTER_INFO}


def test_tables_grow_to_the_floating_lids_of_other_subnets():
    view = view_of("star:hosts=3")
    lids = view.fabric.tables.lid
    router = view.fabric["h1/1"].slot
    lids[router] = 5
    view.fabric.tables.lft = np.full((1, 64), NO_ROUTE, np.uint8)
    view.fabric.tables.lft[0, 5] = 7
    shared = view.fabric.tables.lft
    nothing = Flids(own=np.zeros(0, np.int64), there={}, without=np.zeros(0, np.intp))
    add_routes(view, nothing)
    assert view.fabric.tables.lft is shared
    add_routes(view, Flids(own=nothing.own, there={63: (router,), 64: (router, 0)}, without=nothing.without))
    lft = view.fabric.tables.lft
    assert lft.shape == (1, 128)
    assert np.flatnonzero(lft[0] != NO_ROUTE).tolist() == [5, 63, 64]
    assert (lft[0, [63, 64]].tolist(), shared[0, 63]) == ([7, 7], NO_ROUTE)
