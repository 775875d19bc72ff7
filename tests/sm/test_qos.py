"""SL to VL and VL arbitration of every port."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sm.desk import Desk

import weft
from weft.errors import ConfigError
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import Tables
from weft.routing.route import route
from weft.sm.conf.qos_options import DEFAULTS, DROP, Qos, QosOptions, read_vlarb, write_vlarb
from weft.sm.discovery.known import carried_over
from weft.sm.qos.table_upload import _room, _sl2vl_rows, upload_vl_tables
from weft.sm.qos.tables import Share, fill_qos, from_shares, weight_notes
from weft.wire.bulk import fill
from weft.wire.port_info import PortInfo
from weft.wire.smp import ALL_INPUTS, SmpAttribute, SwitchInfo

LANES = {1: 1, 2: 2, 3: 4, 4: 8, 5: 15}  # by code
LOW, HIGH = 0, 1


def filled(fabric: Fabric, qos: Qos | None, *, code: int = 4, high_cap: int = 64, low_cap: int = 64) -> Tables:
    tables = fabric.tables.like()
    vls, high, low = (np.full(len(fabric.ports), n, np.uint8) for n in (code, high_cap, low_cap))
    assert fill_qos(tables, fabric, qos, operational_vls=vls, vlarb_high_cap=high, vlarb_low_cap=low) == ()
    return tables


@pytest.mark.parametrize(("high_cap", "low_cap", "limit"), [(0, 0, 0), (8, 0, 5), (0, 8, 5)])
def test_only_ports_with_an_arbitration_table_have_a_high_limit(high_cap: int, low_cap: int, limit: int) -> None:
    qos = Qos.of(QosOptions(high_limit=5))
    tables = filled(weft.load("star:hosts=2"), qos, high_cap=high_cap, low_cap=low_cap)
    assert set(tables.vl_high_limit.tolist()) == {limit}


@pytest.fixture(scope="module")
def mixed() -> Fabric:
    """Return a fabric of two switches of different size, an adapter, an aggregation node and a router."""
    builder = FabricBuilder("mixed")
    switches = [builder.add_nodes(NodeKind.SWITCH, [f"sw{n}"], n_ports=n)[0] for n in (3, 5)]
    for number, kind in enumerate((NodeKind.HCA, NodeKind.AGGREGATION, NodeKind.ROUTER), 1):
        ends = builder.add_nodes(kind, [kind.name.lower()], n_ports=1)
        builder.add_links(ends, 1, [switches[1]], [number], "4xHDR")
    builder.add_links([switches[0]], 1, [switches[1]], [5], "4xHDR")
    return builder.build()


def row(fabric: Fabric, name: str, out: int, into: int | None = None) -> int:
    node = fabric.find_node(name).index
    ports = int(fabric.nodes.n_ports[node]) + 1
    return int(fabric.tables.first_pair[node]) + out + (0 if into is None else into * ports)


def test_with_qos_off_nothing_is_touched(mixed):
    tables = filled(mixed, None)
    assert not {"sl2vl", "vl_arbitration", "vl_high_limit"} & vars(tables).keys()


def test_every_kind_of_port_gets_its_own(mixed):
    each = {
        kind: QosOptions(sl2vl=(vl,) * 16, high_limit=10 + vl, vlarb_low=((vl, 7),), vlarb_high=((vl, 9),))
        for vl, kind in enumerate(("ca", "sw0", "swe", "rtr"))
    }
    tables = filled(mixed, Qos.of(**each))
    for vl, slot in ((0, "hca/1"), (0, "aggregation/1"), (1, "sw3/0"), (2, "sw3/3"), (2, "sw5/1"), (3, "router/1")):
        index = mixed.find_port(slot).slot
        assert tables.vl_high_limit[index] == 10 + vl
        assert tables.vl_arbitration[index, :, 0].tolist() == [[vl, 7], [vl, 9]]
        assert not tables.vl_arbitration[index, :, 1:].any()
    assert set(tables.sl2vl[[row(mixed, "hca", 1), row(mixed, "aggregation", 1)]].ravel()) == {0}
    assert set(tables.sl2vl[row(mixed, "router", 1)]) == {3}


def test_a_switch_goes_by_the_port_that_a_packet_leaves_by(mixed):
    """And, as in OpenSM, by the options of port 0 only for its own packets."""
    tables = mixed.tables.like()
    code = np.full(len(mixed.ports), 4, np.uint8)
    code[mixed.first_port[mixed.find_node("sw5").index] + 2] = 2
    caps = np.zeros(len(mixed.ports), np.uint8)
    qos = Qos.of(sw0=QosOptions(sl2vl=(6,) * 16), swe=QosOptions(sl2vl=(3,) * 16))
    fill_qos(tables, mixed, qos, operational_vls=code, vlarb_high_cap=caps, vlarb_low_cap=caps)
    for into in range(6):
        for out in range(6):
            expected = 6 if into == out == 0 else 1 if out == 2 else 3
            assert set(tables.sl2vl[row(mixed, "sw5", out, into)]) == {expected}, (into, out)


@pytest.mark.parametrize("code", LANES)
def test_lanes_that_a_port_does_not_have_come_down_to_those_that_it_has(mixed, code):
    qos = Qos.of(QosOptions(sl2vl=(*range(15), DROP), vlarb_low=tuple((vl, 1) for vl in range(15))))
    tables = filled(mixed, qos, code=code)
    expected = [vl % LANES[code] for vl in range(15)]
    assert (tables.sl2vl == [*expected, DROP]).all()
    assert (tables.vl_arbitration[:, LOW, :15, 0] == expected).all()


def test_a_port_that_never_was_up_has_lane_0(mixed):
    assert set(filled(mixed, Qos.of(), code=0).sl2vl.ravel()) == {0}


def test_arbitration_is_cut_to_the_room_that_a_port_has(mixed):
    tables = filled(mixed, Qos.of(QosOptions(high_limit=5)), high_cap=0, low_cap=3)
    assert not tables.vl_arbitration[:, HIGH].any()
    assert tables.vl_arbitration[0, LOW, :4].tolist() == [[0, 0], [1, 4], [2, 4], [0, 0]]
    assert set(tables.vl_high_limit) == {5}
    assert set(filled(mixed, Qos.of(QosOptions(high_limit=5)), high_cap=0, low_cap=0).vl_high_limit) == {0}


@pytest.mark.parametrize(
    ("low", "says"),
    [
        ("0:48,1:16", "vlarb_low: weights 48 and 16 both mean 1 packet of 4 KiB"),
        ("0:64,1:128,2:100", "vlarb_low: weights 128 and 100 both mean 2 packets of 4 KiB"),
        ("0:4,1:4,2:0", ""),
        ("0:64,1:192", ""),
    ],
)
def test_weights_that_differ_without_effect_are_named(low, says):
    notes = weight_notes(Qos.of(QosOptions(vlarb_low=read_vlarb(low))))
    assert [note.partition(",")[0] for note in notes] == [says] * bool(says)
    assert weight_notes(Qos.of()) == ()


def test_all_64_entries_are_written(mixed):
    tables = filled(mixed, Qos.of(QosOptions(vlarb_low=tuple((n % 8, n) for n in range(64)))))
    assert tables.vl_arbitration[0, LOW, :, 1].tolist() == list(range(64))


@pytest.mark.parametrize(("spec", "engine"), [("dragonfly:p=2,a=4,h=2", "dragonfly"), ("torus:5x5", "dimension-order")])
def test_lanes_that_routing_needs_stay(spec, engine):
    """A dragonfly changes VLs on the path without using service levels."""
    routing = route(weft.load(spec))
    assert routing.engine == engine
    before = routing.tables.sl2vl.copy()
    arrays = (np.full(len(routing.fabric.ports), n, np.uint8) for n in (4, 64, 64))
    named = dict(zip(("operational_vls", "vlarb_high_cap", "vlarb_low_cap"), arrays, strict=True))
    (note,) = fill_qos(routing.tables, routing.fabric, Qos.of(), **named)
    assert "its SL to VL tables stay" in note
    assert (routing.tables.sl2vl == before).all()
    assert routing.tables.vl_arbitration.any()
    starving = Qos.of(swe=QosOptions(vlarb_high=((0, 9),), vlarb_low=((1, 0),)))
    notes = fill_qos(routing.tables, routing.fabric, starving, **named)
    assert "VL 1" in notes[1]
    assert "no weight" in notes[1]


@pytest.mark.parametrize(
    ("is_enhanced", "optimized", "modifiers"),
    [
        (0, 0, {0x001, 0x002, 0x102, 0x201}),
        (1, 0, {0x001, 0x002, 0x102, 0x201, 0x000, 0x100, 0x200}),
        (0, 1, {ALL_INPUTS | 1, ALL_INPUTS | 2}),
        (1, 1, {ALL_INPUTS | 0, ALL_INPUTS | 1, ALL_INPUTS | 2}),
        (1, 2, {0x001, 0x002, 0x102, 0x201, 0x000, 0x100, 0x200}),
    ],
)
def test_a_switch_gets_a_table_for_each_pair_of_used_ports_or_for_all_inputs(is_enhanced, optimized, modifiers):
    """Port 0 has a table if it is enhanced; the switch with four ports has two hosts."""
    builder = FabricBuilder("pair")
    switch = builder.add_nodes(NodeKind.SWITCH, ["sw"], n_ports=4)
    builder.add_links(builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1), 1, switch, [1, 2], "NDR")
    desk = Desk(builder.build())
    view, contents = desk.view, carried_over(None, desk.view)
    fill(view.switch_info, SwitchInfo.enhanced_port_0, is_enhanced)
    fill(view.switch_info, SwitchInfo.optimized_sl_to_vl_mapping_programming, optimized)
    view.fabric.tables.sl2vl[:] = 1
    adapters, *of_switch = _sl2vl_rows(view, contents)
    assert sorted(view.name(slot) for slot in adapters[1].tolist()) == ["h1/1", "h2/1"]
    assert adapters[2].tolist() == [0, 0]
    assert adapters[0].tolist() == [
        view.fabric.tables.first_pair[view.fabric.ports.node[slot]] + 1 for slot in adapters[1]
    ]
    assert sorted(np.concatenate([part[2] for part in of_switch]).tolist()) == sorted(modifiers)
    contents.vl_tables[:] = True
    contents.tables.sl2vl[:] = 1
    assert sum(len(part[0]) for part in _sl2vl_rows(view, contents)) == 0, "the devices have them"


def test_sl_to_vl_tables_are_written_with_the_lane_of_an_even_service_level_first():
    """In each byte the upper four bits are the VL of the lower service level."""
    desk = Desk("star:hosts=2")
    view, contents = desk.view, carried_over(None, desk.view)
    lanes = np.arange(16, dtype=np.uint8)
    view.fabric.tables.sl2vl[:] = lanes
    view.fabric.tables.vl_arbitration[:] = 7
    assert upload_vl_tables(desk.state.sender, view, contents) == []
    rows = desk.net.fabric.tables.vl_arbitration
    assert {
        name: (rows[desk.net.fabric[name].slot] == 7).all() for name in ("h1/1", "h2/1", "leaf1/1", "leaf1/2")
    } == dict.fromkeys(("h1/1", "h2/1", "leaf1/1", "leaf1/2"), True)
    port, route = view.plugged[:1], view.to_ports(view.plugged[:1])
    data, answered = desk.state.sender.get(route, SmpAttribute.SL_TO_VL_MAPPING_TABLE)
    assert (answered.all(), len(port)) == (True, 1)
    assert data[0, :8].tolist() == [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]


@pytest.mark.parametrize(
    ("low", "high", "blocks"),
    [(0, 0, "...."), (1, 0, "x..."), (32, 1, "x.x."), (33, 32, "xxx."), (64, 33, "xxxx")],
)
def test_a_port_has_as_many_blocks_of_arbitration_as_entries_need(low, high, blocks):
    view = Desk("star:hosts=2").view
    fill(view.port_info, PortInfo.vl_arbitration_low_cap, low)
    fill(view.port_info, PortInfo.vl_arbitration_high_cap, high)
    assert _room(view, view.plugged[:1]).tolist() == [[block == "x" for block in blocks]]


# -- options -----------------------------------------------------------------------------------------------------------


def test_defaults_are_opensms():
    low = "0:0,1:4,2:4,3:4,4:4,5:4,6:4,7:4,8:4,9:4,10:4,11:4,12:4,13:4,14:4"
    assert write_vlarb(DEFAULTS.vlarb_low) == low
    assert DEFAULTS.sl2vl == (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 7)
    assert Qos.of() == Qos(ca=DEFAULTS, sw0=DEFAULTS, swe=DEFAULTS, rtr=DEFAULTS)


@pytest.mark.parametrize(
    "wrong",
    [{"max_vls": 0}, {"high_limit": 256}, {"vlarb_high": ((15, 1),)}, {"vlarb_low": ()}, {"sl2vl": (0,) * 15}],
)
def test_invalid_input_is_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        QosOptions(**wrong)


@given(st.lists(st.tuples(st.integers(0, 14), st.integers(0, 255)), min_size=1, max_size=64).map(tuple))
def test_arbitration_is_read_as_it_is_written(entries):
    assert read_vlarb(write_vlarb(entries)) == entries


# -- shares ------------------------------------------------------------------------------------------------------------


def share(sl: int, percent: float, *, high_priority: bool = False) -> Share:
    return Share(name=f"SL {sl}", sl=sl, bandwidth_percent=percent, high_priority=high_priority)


def test_shares_may_fill_the_link_and_all_lanes():
    assert from_shares([share(0, 60), share(1, 40)]).ca.high_limit == 0
    assert len(from_shares([share(sl, 6) for sl in range(1, 16)]).ca.vlarb_low) == 15
    assert from_shares([Share(name="a", sl=15, bandwidth_percent=1)]).ca.vlarb_high == ((0, 0),)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_weights_are_whole_packets_as_close_to_bandwidth_as_eight_entries_allow(percents):
    entries = from_shares([share(sl, percent) for sl, percent in enumerate(percents)]).swe.vlarb_low
    assert {units for _, units in entries} <= {64, 128, 192, 255}
    packets = dict.fromkeys(range(len(percents)), 0)
    for vl, units in entries:
        packets[vl] -= -units // 64

    def deviation(counts):
        return max(abs(n * sum(percents) / sum(counts) / each - 1) for n, each in zip(counts, percents, strict=True))

    for smallest in range(1, 25):
        counts = [round(each * smallest / min(percents)) for each in percents]
        if smallest == 1 or sum(-(-n // 3) for n in counts) <= 8:
            assert deviation(list(packets.values())) <= deviation(counts) + 1e-5
    if len(entries) > 8:
        assert min(packets.values()) == 1


@pytest.mark.parametrize(
    ("percents", "entries"),
    [
        ((20, 30), ((0, 128), (1, 192))),
        ((50, 50), ((0, 64), (1, 64))),
        ((10, 15, 25), ((0, 128), (1, 192), (2, 192), (2, 128))),
        ((1, 99), ((0, 64), *((1, 255),) * 24, (1, 192))),
    ],
)
def test_shares_in_a_simple_ratio_are_exact(percents, entries):
    assert from_shares([share(sl, percent) for sl, percent in enumerate(percents)]).ca.vlarb_low == entries


def test_a_large_share_is_spread_over_entries_after_all_have_had_one():
    qos = from_shares([share(0, 90), share(3, 10)])
    assert qos.ca.vlarb_low == ((0, 192), (1, 64), (0, 192), (0, 192))
    assert qos.ca.vlarb_high == ((0, 0),)
    assert qos.ca.high_limit == 0
    assert qos.ca.sl2vl == (0, 0, 0, 1, *(0,) * 12)


def test_high_priority_goes_first_without_limit_and_strays_do_not():
    qos = from_shares([share(1, 10, high_priority=True), share(4, 40), share(4, 10)])
    assert (qos.rtr.vlarb_high, qos.rtr.vlarb_low, qos.rtr.high_limit) == (((0, 64),), ((1, 64),), 255)
    assert qos.rtr.sl2vl == (1, 0, *(1,) * 14)


@pytest.mark.parametrize(
    "shares",
    [(), (share(16, 5),), (share(0, 0.5),), (share(0, 60), share(1, 41)), tuple(share(sl, 5) for sl in range(16))],
)
def test_shares_that_do_not_go_are_refused(shares):
    with pytest.raises(ConfigError, match="refused"):
        from_shares(shares)


# -- writing ----------------------------------------------------------------------------------------------------------


class Ports:
    """A sender that records the modifiers of writes by attribute, and refuses writes with these modifiers."""

    def __init__(self, *refused: int) -> None:
        self.refused, self.written = refused, {}

    def set(self, route, attribute, modifier, data):
        self.written.setdefault(attribute, []).extend(zip(modifier.tolist(), data[:, 0].tolist(), strict=True))
        return data, np.array([int(each) not in self.refused for each in modifier], bool)

    def modifiers(self, attribute) -> list[int]:
        return sorted(modifier for modifier, _ in self.written.get(attribute, []))


SL2VL, ARBITRATION = SmpAttribute.SL_TO_VL_MAPPING_TABLE, SmpAttribute.VL_ARBITRATION_TABLE


@pytest.fixture
def pair():
    """A switch with ports 1 and 2 to hosts; all ports have 8 arbitration entries, only in the low-priority table."""
    builder = FabricBuilder("pair")
    switch = builder.add_nodes(NodeKind.SWITCH, ["sw"], n_ports=4)
    builder.add_links(builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1), 1, switch, [1, 2], "NDR")
    view = Desk(builder.build()).view
    fill(view.port_info, PortInfo.vl_arbitration_low_cap, 8)
    fill(view.port_info, PortInfo.vl_arbitration_high_cap, 0)
    fill(view.switch_info, SwitchInfo.enhanced_port_0, 0)
    fill(view.switch_info, SwitchInfo.optimized_sl_to_vl_mapping_programming, 1)
    view.fabric.tables.sl2vl[:] = 3
    view.fabric.tables.vl_arbitration[:] = 5
    return view


def test_only_tables_that_differ_are_written_again(pair):
    contents, sender = carried_over(None, pair), Ports()
    assert upload_vl_tables(sender, pair, contents) == []
    assert sender.modifiers(SL2VL) == [0, 0, ALL_INPUTS | 1, ALL_INPUTS | 2]
    assert sender.modifiers(ARBITRATION) == [1 << 16, 1 << 16, 1 << 16 | 1, 1 << 16 | 2]
    assert {value for _, value in sender.written[SL2VL]} == {0x33}
    assert {value for _, value in sender.written[ARBITRATION]} == {5}
    assert contents.vl_tables.all()
    sender = Ports()
    assert (upload_vl_tables(sender, pair, contents), sender.modifiers(SL2VL), sender.modifiers(ARBITRATION)) == (
        [],
        [],
        [],
    )
    host, tables = pair.fabric["h2/1"], pair.fabric.tables
    tables.sl2vl[tables.first_pair[pair.fabric.node_index["h2"]] + 1, 7] = 4
    tables.vl_arbitration[host.slot, 0, 3] = 6
    assert upload_vl_tables(sender, pair, contents) == []
    assert (sender.modifiers(SL2VL), sender.modifiers(ARBITRATION)) == ([0], [1 << 16])
    fill(pair.port_info, PortInfo.vl_arbitration_high_cap, 40)
    tables.vl_arbitration[:, 1] = 9
    sender = Ports()
    upload_vl_tables(sender, pair, contents)
    assert sender.modifiers(SL2VL) == []
    assert sender.modifiers(ARBITRATION) == sorted([block << 16 | port for block in (3, 4) for port in (0, 0, 1, 2)])


@pytest.mark.parametrize("attribute", [SL2VL, ARBITRATION])
def test_a_port_that_refuses_a_table_is_named_and_its_node_is_written_whole_again(pair, attribute):
    refused = ALL_INPUTS | 2 if attribute == SL2VL else 1 << 16 | 2
    contents, sender = carried_over(None, pair), Ports(refused)
    assert upload_vl_tables(sender, pair, contents) == ["sw/2"]
    assert [pair.fabric.nodes.name[node] for node in np.flatnonzero(~contents.vl_tables)] == ["sw"]
    sender = Ports()
    assert upload_vl_tables(sender, pair, contents) == []
    assert sender.modifiers(SL2VL) == [ALL_INPUTS | 1, ALL_INPUTS | 2]
    assert sender.modifiers(ARBITRATION) == [1 << 16 | 1, 1 << 16 | 2]
    assert contents.vl_tables.all()


def test_rows_that_depend_on_the_input_are_written_one_by_one(pair):
    tables = pair.fabric.tables
    first = int(tables.first_pair[pair.fabric.node_index["sw"]])
    tables.sl2vl[first + 1 * 5 + 2] = 4  # from port 1 to port 2
    contents, sender = carried_over(None, pair), Ports()
    upload_vl_tables(sender, pair, contents)
    assert sender.modifiers(SL2VL) == [0, 0, 0x002, 0x102, ALL_INPUTS | 1]
    sender = Ports()
    tables.sl2vl[first + 0 * 5 + 2] = 6  # for packets of the switch itself
    upload_vl_tables(sender, pair, contents)
    assert sender.written[SL2VL] == [(0x002, 0x66)]


def test_without_lanes_nothing_is_written(pair):
    vars(pair.fabric.tables).pop("sl2vl")
    vars(pair.fabric.tables).pop("vl_arbitration")
    contents, sender = carried_over(None, pair), Ports()
    contents.vl_tables[:] = True
    assert (upload_vl_tables(sender, pair, contents), sender.written) == ([], {})
    assert not contents.vl_tables.any()


def test_an_enhanced_port_0_has_arbitration(pair):
    fill(pair.switch_info, SwitchInfo.enhanced_port_0, 1)
    sender = Ports()
    upload_vl_tables(sender, pair, carried_over(None, pair))
    assert sender.modifiers(ARBITRATION) == [1 << 16, 1 << 16, 1 << 16, 1 << 16 | 1, 1 << 16 | 2]
