"""Results of `check`, compared with closed forms and with a slow walk in plain Python."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fabric.running import configured

import weft
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.fabric.views import Node, Port
from weft.routing.basic_engines import MinHop, UpDown
from weft.routing.check import check
from weft.routing.engine import Options, Subnet
from weft.routing.lids import assign_lids
from weft.wire.port_info import PortInfo, PortState

# -- fabrics -----------------------------------------------------------------------------------------------------------


def with_lids(fabric: Fabric) -> Fabric:
    fabric.tables.lid[:] = assign_lids(fabric)[0]
    return fabric


def ring(n: int) -> Fabric:
    """Build switches sw1, sw2, ... that send everything clockwise, out of port 2, and have a host each on port 1."""
    builder = FabricBuilder(f"ring of {n}")
    switches = builder.add_nodes(NodeKind.SWITCH, [f"sw{i}" for i in range(1, n + 1)], n_ports=4)
    hosts = builder.add_nodes(NodeKind.HCA, [f"h{i}" for i in range(1, n + 1)], n_ports=1)
    builder.add_links(switches, 2, np.roll(switches, -1), 3, "EDR")
    builder.add_links(hosts, 1, switches, 1, "EDR")
    fabric = with_lids(builder.build())
    for local in range(1, n + 1):
        for neighbour in range(1, n + 1):
            entry(fabric, f"sw{local}", f"h{neighbour}", 1 if local == neighbour else 2)
            entry(fabric, f"sw{local}", f"sw{neighbour}", 0 if local == neighbour else 2)
    return fabric


def entry(fabric: Fabric, switch: str, to: str, port: int) -> None:
    fabric.tables.lft[fabric.tables.switch_row[fabric.find_node(switch).index], fabric.find_node(to).lid] = port


def routed(spec: str, engine: MinHop | UpDown, lmc: int = 0) -> Fabric:
    fabric = weft.load(spec)
    lid, lmcs = assign_lids(fabric, lmc)
    return fabric.configured(engine.route(Subnet(fabric=fabric, lid=lid, lmc=lmcs), Options()))


# -- closed forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 4, 7])
def test_a_ring_that_sends_all_one_way_has_the_loop_of_all_its_links(n):
    verdict = check(ring(n), hosts_only=True)
    assert verdict.arrived == verdict.pairs == n * (n - 1)
    assert verdict.hops == dict.fromkeys(range(1, n), n)
    begin = verdict.credit_loop.index("sw1/2")
    assert verdict.credit_loop[begin:] + verdict.credit_loop[:begin] == tuple(f"sw{i}/2" for i in range(1, n + 1))
    assert not verdict.ok


def test_the_loop_is_explained_with_ports_and_waiting_paths():
    text = check(ring(4), hosts_only=True).explain()
    assert "ring of 4: 12 of 12 pairs arrive (host to host)" in text
    assert "credit loop of 4 buffers: sw1/2 -> sw2/2 -> sw3/2 -> sw4/2 -> sw1/2" in text
    assert "h3/1 to h2/1 (LID 2) holds sw4/2 and waits for sw1/2" in text
    assert 'engine="auto"' in text


def test_a_ring_of_two_has_no_loop():
    """No path has two links."""
    assert check(ring(2)).ok


@pytest.mark.parametrize("spec", ["star:5", "fat-tree:hosts=16,radix=8", "fat-tree:hosts=54,radix=6"])
def test_shortest_paths_between_the_hosts_of_a_tree_have_no_loop(spec):
    fabric = routed(spec, MinHop())
    hosts = len(fabric.hcas)
    verdict = check(fabric, hosts_only=True)
    assert verdict.ok
    assert verdict.pairs == hosts * (hosts - 1)
    assert verdict.vls == 1


def test_hops_of_a_full_tree_are_those_of_its_levels():
    """radix 8, 3 levels: 4 hosts on a leaf, 16 in a pod, 128 in all."""
    verdict = check(routed("fat-tree:hosts=128,radix=8", MinHop()), hosts_only=True)
    assert verdict.hops == {0: 128 * 3, 2: 128 * 12, 4: 128 * 112}


def test_a_mesh_by_up_down_is_proved_and_by_min_hop_is_not():
    assert check(routed("torus:5x5", UpDown())).ok
    assert check(routed("torus:5x5", MinHop())).credit_loop


def test_every_lid_of_a_port_is_walked_to_and_its_own_are_not():
    fabric = routed("star:5", MinHop(), lmc=2)
    verdict = check(fabric)
    assert verdict.pairs == 5 * (4 * 4 + 1) + 5 * 4  # from each host to 4 LIDs of 4 others and 1 switch; and back
    assert verdict.ok


def test_switches_count_unless_only_hosts_are_asked_for():
    fabric = ring(4)
    entry(fabric, "sw1", "sw3", NO_ROUTE)
    assert check(fabric, hosts_only=True).missing == 0
    assert check(fabric).failures == {"no entry": 2 + 2}  # from sw1 and h1, and from sw4 and h4 through it


def test_aggregation_nodes_are_hosts_too():
    """ibdmchk counts every channel adapter."""
    builder = FabricBuilder("one switch")
    leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=8)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
    sharp = builder.add_nodes(NodeKind.AGGREGATION, ["leaf1/sharp"], n_ports=1)
    builder.add_links(hosts, 1, leaf, [1, 2], "EDR")
    builder.add_links(sharp, 1, leaf, 8, "EDR")
    fabric = with_lids(builder.build())
    for name, port in (("h1", 1), ("h2", 2), ("leaf1/sharp", 8)):
        entry(fabric, "leaf1", name, port)
    assert check(fabric, hosts_only=True).pairs == 3 * 2


# -- what is wrong is named --------------------------------------------------------------------------------------------


def test_a_missing_entry_is_named():
    fabric = ring(4)
    entry(fabric, "sw2", "h4", NO_ROUTE)
    verdict = check(fabric, hosts_only=True)
    assert verdict.failures == {"no entry": 2}  # h1 and h2 cannot reach h4, h3 can
    assert verdict.first_failure == "h1/1 to h4/1 (LID 4): sw1/2 -> sw2 has no entry for LID 4"
    assert "2 pairs are missing (2 no entry)" in verdict.explain()


@pytest.mark.parametrize(
    ("port", "why"),
    [
        (1, "sends it to port 1, where h2/1 is"),
        (4, "sends it to port 4, where nothing is plugged in"),
        (77, "sends it to port 77; it has ports 1 to 4"),
        (0, "keeps it: the entry is port 0"),
    ],
)
def test_a_misdirected_entry_is_named(port, why):
    fabric = ring(4)
    entry(fabric, "sw2", "h4", port)
    verdict = check(fabric, hosts_only=True)
    assert verdict.failures == {"astray": 2}
    assert verdict.first_failure == f"h1/1 to h4/1 (LID 4): sw1/2 -> sw2 {why}"


def test_a_forwarding_loop_is_named_and_is_a_credit_loop_too():
    fabric = ring(4)
    entry(fabric, "sw3", "h4", 3)  # back to sw2, which sends it here
    verdict = check(fabric, hosts_only=True)
    assert verdict.failures == {"forwarding loop": 3}
    assert verdict.first_failure == "h1/1 to h4/1 (LID 4): sw1/2 -> sw2/2 -> sw3/3 -> sw2 closes a forwarding loop"
    assert sorted(verdict.credit_loop) == ["sw2/2", "sw3/3"]


def test_a_service_level_that_is_dropped_is_named():
    fabric = ring(4)
    tables = fabric.tables
    first = tables.first_pair[fabric.find_node("sw2").index]
    tables.sl2vl[first + 3 * 5 + 2, 0] = 15  # from port 3 to port 2
    verdict = check(fabric, hosts_only=True)
    assert verdict.failures == {"dropped: no VL, or a port that is not Active": 3}  # h1 to h3 and h4, h4 to h3
    assert verdict.first_failure.endswith("sw1/2 -> sw2 drops it: SL 0 from port 3 to port 2 has no VL")


def test_a_port_without_a_lid_is_named():
    fabric = routed("star:3", MinHop())
    fabric.tables.lid[fabric.find_port("h2/1").slot] = 0
    verdict = check(fabric)
    assert verdict.no_lid == ("h2/1",)
    assert not verdict.ok
    assert "without a LID: h2/1" in verdict.explain()
    three, four = (replace(verdict, no_lid=tuple(f"h{i}/1" for i in range(count))) for count in (3, 4))
    assert "without a LID: h0/1, h1/1, h2/1" in three.explain().splitlines()
    assert "without a LID: h0/1, h1/1, h2/1 and 1 more" in four.explain().splitlines()


@pytest.mark.parametrize("hosts_only", [False, True])
def test_an_unconfigured_fabric_is_not_ok(hosts_only):
    verdict = check(weft.load("star:3"), hosts_only=hosts_only)
    assert verdict.pairs == 0
    assert not verdict.ok
    assert "fewer than two ports with LIDs" in verdict.explain()


def test_a_fabric_with_one_host_is_not_ok():
    verdict = check(routed("star:1", MinHop()), hosts_only=True)
    assert (verdict.pairs, verdict.missing, verdict.no_lid) == (0, 0, ())
    assert not verdict.ok


def test_lids_without_tables_are_missing_pairs():
    verdict = check(with_lids(weft.load("star:3")), hosts_only=True)
    assert verdict.failures == {"no entry": 6}


def test_tables_that_end_before_the_last_lid_are_incomplete():
    fabric = ring(4)
    fabric.tables.lft = fabric.tables.lft[:, :4]  # LID 4 is h4's
    assert check(fabric, hosts_only=True).failures == {"no entry": 3}


def test_two_hosts_without_a_switch_have_no_pairs():
    builder = FabricBuilder("back to back")
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
    builder.add_links(hosts[0], 1, hosts[1], 1, "EDR")
    assert check(with_lids(builder.build())).pairs == 0


# -- lanes -------------------------------------------------------------------------------------------------------------


def ring_on_two_lanes() -> Fabric:
    """Build a ring in which paths through sw1 have SL 1; the two classes each leave one turn of the ring unused."""
    fabric = ring(4)
    for local in range(1, 5):
        for neighbour in range(2, local):
            row = fabric.tables.switch_row[fabric.find_node(f"sw{local}").index]
            fabric.tables.path_sl[row, [fabric.find_node(f"{kind}{neighbour}").lid for kind in ("h", "sw")]] = 1
    return fabric


def test_two_lanes_break_the_loop_of_a_ring():
    fabric = ring_on_two_lanes()
    fabric.tables.sl2vl[:] = np.arange(16)
    verdict = check(fabric)
    assert verdict.ok
    assert verdict.vls == 2


def test_a_lane_changed_at_a_dateline_breaks_it_as_well():
    """SL 1 goes up to VL 1 where it enters sw1, and stays there."""
    fabric = ring_on_two_lanes()
    for name in ("sw1", "sw2"):
        first = fabric.tables.first_pair[fabric.find_node(name).index]
        fabric.tables.sl2vl[first + 3 * 5 : first + 4 * 5, 1] = 1
    verdict = check(fabric)
    assert verdict.ok
    assert verdict.vls == 2


def test_service_levels_that_share_a_lane_do_not():
    fabric = ring_on_two_lanes()
    fabric.tables.sl2vl[:] = 3
    verdict = check(fabric)
    assert verdict.vls == 1
    assert len(verdict.credit_loop) == 4
    assert verdict.credit_loop_vls == (3, 3, 3, 3)


def test_a_loop_over_several_lanes_names_them():
    fabric = ring_on_two_lanes()
    first = fabric.tables.first_pair[fabric.find_node("sw1").index]
    fabric.tables.sl2vl[first + 3 * 5 : first + 4 * 5, 1] = 1  # up at sw1, and down again at sw2
    verdict = check(fabric)
    assert sorted(zip(verdict.credit_loop, verdict.credit_loop_vls, strict=True)) == [
        ("sw1/2", 1),
        ("sw2/2", 0),
        ("sw3/2", 0),
        ("sw4/2", 0),
    ]
    assert "sw4/2 VL0 -> sw1/2 VL1 -> sw2/2 VL0" in f"{verdict.explain()}"


# -- replies -----------------------------------------------------------------------------------------------------------


def test_replies_that_would_close_a_loop_are_named():
    """A ring of four whose two lanes hold for requests; a reply on the lane of its request passes sw1 on either."""
    fabric = ring_on_two_lanes()
    fabric.tables.sl2vl[:] = np.arange(16)
    verdict = check(fabric, hosts_only=True)
    assert verdict.ok
    assert verdict.one_way == 6  # h4 to h3 and h2, h3 to h2: SL 1; back SL 0
    assert {name[:5] for name in verdict.reply_loop} == {"sw1/2", "sw2/2", "sw3/2", "sw4/2"}
    assert "6 pairs of LIDs have a different service level back: their paths are not reversible" in verdict.explain()
    assert "would close a credit loop: sw" in verdict.explain()


def test_replies_on_other_levels_may_close_no_loop():
    """Two switches: whatever the service levels, no path has two links."""
    fabric = ring(2)
    fabric.tables.sl2vl[:] = np.arange(16)
    fabric.tables.path_sl[0, fabric.find_node("h2").lid] = 1
    verdict = check(fabric, hosts_only=True)
    assert verdict.one_way == 2
    assert verdict.reply_loop == ()
    assert "replies on the service level of the request close no credit loop" in verdict.explain()


@pytest.mark.parametrize("spec", ["star:5", "torus:5x5"])
def test_one_service_level_is_the_same_in_both_directions(spec):
    verdict = check(routed(spec, UpDown()))
    assert verdict.one_way == 0
    assert verdict.reply_loop == ()


def test_a_loop_on_unknown_lanes_is_called_neither_free_nor_a_deadlock():
    verdict = check(ring(4), lanes_known=False)
    assert not verdict.ok
    assert "lanes unknown, a credit loop if all share one" in verdict.explain()
    assert "can deadlock" not in verdict.explain()
    assert "opensm.psl and opensm.slvl" in verdict.explain()


def test_no_loop_on_one_lane_proves_any_assignment_of_lanes():
    verdict = check(routed("torus:5x5", UpDown()), lanes_known=False)
    assert verdict.ok
    assert "lanes unknown, no credit loop even if all share one" in verdict.explain()


# -- the slow walk -----------------------------------------------------------------------------------------------------


class Oracle:
    """The same questions answered by following cables, one packet at a time."""

    def __init__(self, fabric: Fabric, *, hosts_only: bool) -> None:
        self.fabric = fabric
        self.failures: Counter[str] = Counter()
        self.hops: Counter[int] = Counter()
        self.vls: set[int] = set()
        self.waits = networkx.DiGraph()  # (port name, VL) -> (port name, VL)
        self.reasons: set[str] = set()
        ports = [port for port in map(fabric.port, range(len(fabric.ports))) if port.lid]
        if hosts_only:
            ports = [port for port in ports if port.node.kind != NodeKind.SWITCH]
        for source in ports:
            for target in ports:
                if source != target:
                    self.send(source, target)

    def send(self, source: Port, target: Port) -> None:
        local, in_port = (source.node, 0) if source.node.kind == NodeKind.SWITCH else self.other_end(source)
        tables = self.fabric.tables
        sl = int(tables.path_sl[tables.switch_row[local.index], target.lid])
        held: list[tuple[str, int]] = []
        end = ""
        is_adapter = source.node.kind != NodeKind.SWITCH
        sent = not is_adapter or tables.sl2vl[tables.first_pair[source.node.index] + source.number, sl] != 15
        while not end:
            port = int(tables.lft[tables.switch_row[local.index], target.lid])
            width = int(self.fabric.nodes.n_ports[local.index]) + 1
            if port == NO_ROUTE:
                end = "no entry"
            elif port >= width:
                end = "astray"
            elif port == 0:
                end = "arrived" if target == local.port(0) else "astray"
            else:
                vl = int(tables.sl2vl[tables.first_pair[local.index] + in_port * width + port, sl])
                peer = local.port(port).peer
                if vl == 15 or not sent:
                    end = "dropped: no VL, or a port that is not Active"
                elif peer is None or peer.node.kind != NodeKind.SWITCH:
                    self.vls.add(vl)
                    end = "arrived" if peer == target else "astray"
                else:
                    self.vls.add(vl)
                    held.append((f"{local.name}/{port}", vl))
                    end = "forwarding loop" if held[-1] in held[:-1] else ""
                    local, in_port = peer.node, peer.number
        for first, second in itertools.pairwise(held):
            self.waits.add_edge(first, second)
            self.reasons.add(f"{self.said(source)} to {self.said(target)} (LID {target.lid}) {first} {second}")
        if end == "arrived":
            self.hops[len(held)] += 1
        else:
            self.failures[end] += 1

    @staticmethod
    def other_end(port: Port) -> tuple[Node, int]:
        assert port.peer is not None
        return port.peer.node, port.peer.number

    @staticmethod
    def said(port: Port) -> str:
        return port.node.name if port.node.kind == NodeKind.SWITCH else port.name


@st.composite
def damaged(draw: st.DrawFn) -> Fabric:
    """Draw a few switches cabled at random, tables of shortest paths with some entries overwritten, lanes at random."""
    n = draw(st.integers(2, 5))
    builder = FabricBuilder("at random")
    switches = builder.add_nodes(NodeKind.SWITCH, [f"sw{i}" for i in range(n)], n_ports=8)
    free = {i: list(range(3, 9)) for i in range(n)}
    cables = [(i, i - 1) for i in range(1, n)] + draw(
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=5)
    )
    for a, b in cables:
        if a != b and free[a] and free[b]:
            builder.add_links(switches[a], free[a].pop(), switches[b], free[b].pop(), "EDR")
    n_hosts = draw(st.integers(1, 2 * n))
    hosts = builder.add_nodes(NodeKind.HCA, [f"h{i}" for i in range(n_hosts)], n_ports=1)
    for host in range(n_hosts):
        builder.add_links(hosts[host], 1, switches[host % n], 1 + host // n, "EDR")
    fabric = builder.build()
    lid, lmc = assign_lids(fabric)
    fabric = fabric.configured(MinHop().route(Subnet(fabric=fabric, lid=lid, lmc=lmc), Options()))
    tables = fabric.tables
    ports = st.one_of(st.integers(3, 8), st.integers(0, 10), st.just(NO_ROUTE))
    for row, column, port in draw(
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, tables.lft.shape[1] - 1), ports), max_size=8)
    ):
        tables.lft[row, column] = port
    chance = np.random.default_rng(draw(st.integers(0, 99)))
    if lanes := draw(st.integers(0, 3)):
        tables.path_sl[:] = chance.integers(0, draw(st.integers(1, 3)), tables.path_sl.shape)
        tables.sl2vl[:] = chance.integers(0, lanes, tables.sl2vl.shape)
        if draw(st.booleans()):
            tables.sl2vl[chance.random(tables.sl2vl.shape) < 0.02] = 15
    return fabric


@settings(max_examples=80)
@given(fabric=damaged(), hosts_only=st.booleans())
def test_check_agrees_with_a_slow_walk_on_any_tables(fabric, hosts_only):
    verdict, oracle = check(fabric, hosts_only=hosts_only), Oracle(fabric, hosts_only=hosts_only)
    assert verdict.failures == dict(oracle.failures)
    assert verdict.hops == dict(oracle.hops)
    assert verdict.arrived == oracle.hops.total()
    assert verdict.pairs == oracle.hops.total() + oracle.failures.total()
    assert verdict.vls == len(oracle.vls)
    assert bool(verdict.credit_loop) == (not networkx.is_directed_acyclic_graph(oracle.waits))
    loop = list(zip(verdict.credit_loop, verdict.credit_loop_vls, strict=True))
    for first, second, words in zip(loop, loop[1:] + loop[:1], verdict.credit_loop_paths, strict=True):
        assert oracle.waits.has_edge(first, second)
        pair, _, wait = words.partition(" holds ")
        assert f"{pair} {first} {second}" in oracle.reasons
        assert wait.split(" ")[0] == first[0]


def test_a_port_that_is_not_active_is_named():
    devices = configured("fat-tree:hosts=4,radix=4")
    slot = devices.fabric.find_port("leaf1/3").slot
    PortInfo.port_state.set(devices.info(slot), PortState.ARMED)
    for hosts_only in (True, False):
        verdict = check(devices.fabric, hosts_only=hosts_only)
        assert set(verdict.failures) == {"dropped: no VL, or a port that is not Active"}
    assert "leaf1 drops it: port 3 is Armed, not Active" in verdict.first_failure
