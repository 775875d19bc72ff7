"""Forwarding of MADs: by path, by LID, by both, and their counters."""

from __future__ import annotations

import pytest

from weft.fabric.counters import Counter
from weft.fabric.tables import NO_ROUTE
from weft.mad.carrier import Address, ask
from weft.wire.mad import Method, PlainMad
from weft.wire.perf import PerfAttribute, PortCounters
from weft.wire.port_info import PortState
from weft.wire.smp import DirectedSmp, LinearForwardingTable, NodeInfo, Smp, SmpAttribute, SwitchInfo

GET, INFO = Method.GET, SmpAttribute.NODE_INFO


def reached(answer: bytes | None) -> int | None:
    """Return the GUID of the node that answered."""
    return None if answer is None else NodeInfo.unpack(answer, 64).node_guid


def guid(bench, name: str) -> int:
    return int(bench.devices.fabric.nodes.guid[bench.node(name)])


def by_lid(bench, lid: int) -> int | None:
    mad = Smp.pack(method=GET, attribute_id=INFO)
    return reached(ask(bench.carrier, mad, Address(lid), timeout_ms=10, retries=0))


# -- directed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [[0], [2], [1, 0], [1, 5], [1, 255], [1, 2, 1, 1], [1] * 64],
    ids=["port 0", "no such port", "port 0 of a switch", "beyond the last", "none", "through a host", "too long"],
)
def test_a_path_that_leads_nowhere_is_not_answered(bench, path):
    mad = DirectedSmp.pack(method=GET, attribute_id=INFO, hop_count=len(path), initial_path=bytes([0, *path][:64]))
    assert ask(bench.carrier, mad, timeout_ms=10, retries=0) is None


def test_the_way_back_is_in_the_answer(bench):
    mad = DirectedSmp.pack(method=GET, attribute_id=INFO, hop_count=4, initial_path=bytes([0, 1, 3, 2, 1]))
    answer = ask(bench.carrier, mad)
    assert answer is not None
    assert answer[192:198] == bytes([1, 1, 1, 3, 1, 0])


def test_sixty_three_hops_are_a_path(bench):
    path = [1] + [3, 1] * 31
    assert bench.get(path, NodeInfo).node_guid == guid(bench, "leaf1")


# -- by LID -----------------------------------------------------------------------------------------------------------


def test_lids_lead_to_all_nodes(running):
    for name in ("h1", "h2", "h8", "leaf1", "leaf4", "spine2"):
        assert by_lid(running, running.lid(name)) == guid(running, name)


def test_all_lids_of_a_port_are_its_own(running):
    assert running.set_port([1, 3, 2, 1], lid=32, lmc=2) == 0
    for path in ([1], [1, 3], [1, 3, 2]):
        ports = list(running.get(path, LinearForwardingTable).port)
        ports[32:36] = [ports[running.lid("leaf2")] or 1] * 4 if path != [1, 3, 2] else [1] * 4
        assert running.put(path, LinearForwardingTable(port=ports)) == 0
        assert running.put(path, running.get(path, SwitchInfo).replace(linear_fdb_top=63)) == 0
    assert [by_lid(running, lid) == guid(running, "h3") for lid in (31, 32, 35, 36)] == [False, True, True, False]


def test_a_lid_above_the_top_is_dropped_and_counted(running):
    lid = running.lid("h8")
    info = running.get([1], SwitchInfo)
    assert running.put([1], info.replace(linear_fdb_top=lid - 1)) == 0
    before = running.counter("leaf1/1", Counter.PORT_RCV_SWITCH_RELAY_ERRORS)
    assert by_lid(running, lid) is None
    assert running.counter("leaf1/1", Counter.PORT_RCV_SWITCH_RELAY_ERRORS) == before + 1
    assert running.put([1], info) == 0
    assert by_lid(running, lid) == guid(running, "h8")


def test_a_table_that_is_changed_is_used_at_once(running):
    """Paths are cached, but not after a change of the table."""
    lid = running.lid("h8")
    assert by_lid(running, lid) is not None
    ports = list(running.get([1], LinearForwardingTable).port)
    ports[lid] = NO_ROUTE
    assert running.put([1], LinearForwardingTable(port=ports)) == 0
    assert by_lid(running, lid) is None
    running.devices.tables.lft[running.devices.row[running.node("leaf1")], lid] = 4
    running.devices.forget_lid_paths()
    assert by_lid(running, lid) == guid(running, "h8")


def test_a_loop_ends(running):
    lid = running.lid("h8")
    for path, port in (([1], 3), ([1, 3], 1)):
        ports = list(running.get(path, LinearForwardingTable).port)
        ports[lid] = port
        assert running.put(path, LinearForwardingTable(port=ports)) == 0
    assert by_lid(running, lid) is None
    assert running.counter("spine1/1", Counter.PORT_RCV_SWITCH_RELAY_ERRORS) == 1  # the output port is the input port
    assert running.devices.details[running.slot_of("spine1/1"), "port_looping_errors", 0] == 1


def test_packet_led_to_the_wrong_host_is_dropped(running):
    lid = running.lid("h8")
    ports = list(running.get([1], LinearForwardingTable).port)
    ports[lid] = 2  # h2
    assert running.put([1], LinearForwardingTable(port=ports)) == 0
    assert by_lid(running, lid) is None
    assert running.counter("leaf1/2", Counter.PORT_RCV_SWITCH_RELAY_ERRORS) == 0  # h2 does not return it


def test_smps_need_a_link_and_others_an_active_one(running):
    assert running.set_port([1], 1, port_state=PortState.DOWN) == 0  # h1's link is in Init now
    assert by_lid(running, running.lid("leaf1")) == guid(running, "leaf1")
    with pytest.raises(AssertionError):
        running.perf("leaf1", GET, PerfAttribute.PORT_COUNTERS, PortCounters(port_select=1))
    assert running.counter("h1/1", Counter.PORT_XMIT_DISCARDS) == 1


def test_a_gmp_has_the_p_key_at_index_0_unless_another_is_given(running):
    mad = PlainMad.pack(mgmt_class=4, method=GET, attribute_id=PerfAttribute.PORT_COUNTERS)
    answers = [running.subnet.send(running.slot, mad, running.lid("h2"), *index) for index in ((), (0,), (1,))]
    assert [answer is not None for answer in answers] == [True, True, False]


def test_a_down_link_discards_and_counts(running):
    lid = running.lid("h3")
    port = running.get([1], LinearForwardingTable).port[lid]
    assert running.set_port([1], port, port_physical_state=3) == 0
    assert by_lid(running, lid) is None
    assert running.counter(f"leaf1/{port}", Counter.PORT_XMIT_DISCARDS) == 1


# -- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "path", "dr_slid", "dr_dlid", "found"),
    [
        ("leaf2", [1], "h1", None, "h3"),
        ("spine1", [4, 2], "h1", None, "h8"),
        (None, [1, 3], None, "h5", "h5"),
        ("leaf2", [3], "h1", "h7", "h7"),
        ("leaf2", [], "h1", None, "leaf2"),
    ],
    ids=["LID then path", "two hops", "path then LID", "all three", "no hop"],
)
def test_a_combined_route_arrives_and_its_answer_returns(running, to, path, dr_slid, dr_dlid, found):
    lids = {key: running.lid(name) for key, name in (("dr_slid", dr_slid), ("dr_dlid", dr_dlid)) if name}
    mad = DirectedSmp.pack(method=GET, attribute_id=INFO, hop_count=len(path), initial_path=bytes([0, *path]), **lids)
    answer = ask(running.carrier, mad, Address(running.lid(to)) if to else Address(), timeout_ms=10, retries=0)
    assert reached(answer) == guid(running, found)


def test_the_answer_goes_to_the_lid_that_the_route_names(running):
    """A requester with another LID in DrSLID gets no answer."""
    mad = DirectedSmp.pack(method=GET, attribute_id=INFO, hop_count=1, initial_path=b"\0\1", dr_slid=running.lid("h5"))
    assert ask(running.carrier, mad, Address(running.lid("leaf2")), timeout_ms=10, retries=0) is None


# -- counted ----------------------------------------------------------------------------------------------------------


def test_packets_count_at_both_ends_in_both_directions(bench):
    for _ in range(3):
        bench.get([1, 3], NodeInfo)
    bench.devices.count_mads()
    counters = bench.devices.fabric.counters
    for port in ("h1/1", "leaf1/1", "leaf1/3", "spine1/1"):
        row = counters[bench.slot_of(port)]
        for column in (Counter.PORT_XMIT_PKTS, Counter.PORT_RCV_PKTS, Counter.PORT_UNICAST_XMIT_PKTS):
            assert row[column] == 3
        assert row[Counter.PORT_XMIT_DATA_WORDS] == row[Counter.PORT_RCV_DATA_WORDS] == 3 * 72
    assert not counters[bench.slot_of("leaf1/4")].any()


def test_packets_sent_are_packets_received_over_the_whole_fabric(running):
    for name in ("h2", "h5", "h8", "spine2"):
        by_lid(running, running.lid(name))
    running.devices.count_mads()
    total = running.devices.fabric.counters.sum(axis=0)
    assert total[Counter.PORT_XMIT_PKTS] == total[Counter.PORT_RCV_PKTS] > 0


def test_counting_twice_counts_once(bench):
    bench.get([1], NodeInfo)
    bench.devices.count_mads()
    bench.devices.count_mads()
    assert bench.counter("h1/1", Counter.PORT_XMIT_PKTS) == 1
