"""Kernels with their own forwarding loops agree with `fabric.forwarding`, on arbitrary random tables.

The packet engine and the flow engine read the tables for every hop, `weft check` walks all pairs at once and
`routing.quality` counts flows. For pairs that arrive they use the same ports and VLs; all of them refuse other pairs.
"""

from __future__ import annotations

import hashlib
from random import Random

import numpy as np
import pytest
from tests.crosscheck import views

from weft.errors import ConfigError, SubnetError
from weft.fabric import faults
from weft.fabric.forwarding import ANY, MANAGEMENT_VL, Reason
from weft.fabric.kernels.forwarding import MOST_HOPS, arrays, walk_all
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.routing.check import check
from weft.routing.engine import Options as RoutingOptions
from weft.routing.quality import _Network
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.engines import find_engine
from weft.sim.flow import plan as flow_plan
from weft.sim.packet import plan as packet_plan
from weft.sim.packet.switch import out_queue, pick_port
from weft.sim.traffic import Traffic, Transport

SPECS = ["fat-tree:hosts=12,radix=4,levels=3", "torus:4x3", "dragonfly:p=2,a=3,h=1", "hyperx:3x3", "random:61"]
APART_PS = 1_000_000_000  # no packet waits for another
Pair = tuple[int, int]
Ways = dict[Pair, list[tuple[int, int]]]  # by pair: output slots with their VLs


def digest(ways: Ways) -> str:
    """Return a short digest of paths for failure messages, independent of the order of pairs."""
    return hashlib.sha256(repr(sorted(ways.items())).encode()).hexdigest()[:16]


# -- wild tables ------------------------------------------------------------------------------------------------------


def wild(spec: str, seed: int) -> Fabric:
    """Return a fabric whose tables use pulled cables and have random entries and VLs."""
    random, rng = Random(seed), np.random.default_rng(seed)
    fabric = route(views.fabric_called(spec), RoutingOptions(engine="min-hop")).fabric
    between = [port for port in fabric.links.a.tolist() if not views.is_host(fabric, port)]
    for slot in random.sample(between, min(2, len(between))):
        fabric = faults.remove_link(fabric, fabric.port(slot).name)
    fabric = fabric.subset()
    tables = fabric.tables
    tables.path_sl = rng.integers(0, 4, tables.lft.shape).astype(np.uint8)
    tables.sl2vl[:] = rng.choice([0, 1, 2, 3], tables.sl2vl.shape)
    for row, node in enumerate(fabric.of_kind(NodeKind.SWITCH).tolist()):  # adapters send every SL on some VL
        first, last = int(tables.first_pair[node]), int(fabric.nodes.n_ports[node])
        pairs = tables.sl2vl[first : first + (last + 1) ** 2]
        pairs[rng.random(pairs.shape) < 0.01] = MANAGEMENT_VL
        wrong = rng.random(tables.lft.shape[1]) < 0.06
        slot = int(fabric.first_port[node])
        cabled = np.flatnonzero(fabric.ports.peer[slot : slot + last + 1] >= 0).tolist()
        ports = [NO_ROUTE, 0, last, last + 1, 254, *cabled * 2]
        tables.lft[row, wrong] = rng.choice(ports, wrong.sum())
    return fabric


def walked(fabric: Fabric, *, lanes: bool = True) -> tuple[Ways, list[Pair]]:
    """Return the paths of all pairs of hosts by `fabric.forwarding`, and the pairs that do not arrive."""
    tables, hosts = fabric.tables, views.hosts_of(fabric)
    pairs = [(a, b) for a in hosts for b in hosts if a != b]
    packets = np.array([(a, tables.lid[b], level(fabric, a, b), ANY, 64) for a, b in pairs])
    recorded = arrays(fabric)
    walks = walk_all(recorded if lanes else recorded._replace(sl2vl=recorded.sl2vl[:0]), packets)
    ways, lost = {}, []
    for row, pair in enumerate(pairs):
        hops = int(walks.hops[row])
        if walks.reason[row] == Reason.ARRIVED:
            ways[pair] = list(zip(walks.out[row, :hops].tolist(), walks.vls[row, :hops].tolist(), strict=True))
        else:
            lost.append(pair)
    return ways, lost


def level(fabric: Fabric, a: int, b: int) -> int:
    leaf = fabric.tables.switch_row[fabric.ports.node[fabric.ports.peer[a]]]
    return int(fabric.tables.path_sl[leaf, fabric.tables.lid[b]])


def traffic(pairs: list[Pair]) -> Traffic:
    """Return one packet for each pair, in sequence."""
    src, dst = np.array(pairs).T
    return Traffic.make(src, dst, 64, start_ps=np.arange(len(pairs)) * APART_PS, transport=Transport.UC)


def ports_of(ways: Ways, fabric: Fabric) -> list[int]:
    """Return the number of packets that leave by each slot."""
    count = np.zeros(len(fabric.ports), np.int64)
    for way in ways.values():
        np.add.at(count, [slot for slot, _ in way], 1)
    return count.tolist()


CASES = [(spec, seed) for spec in SPECS for seed in range(70, 73)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def fabric(request) -> Fabric:
    return wild(*request.param)


# -- kernels -----------------------------------------------------------------------------------------------------------


def by_packets(fabric: Fabric, pairs: list[Pair]) -> Ways:
    """Return the paths that the packet engine's switches look up for every packet, from queue to queue."""
    result = packet_plan.plan(fabric, traffic(pairs), Options())
    s, bits, ways = result.state, int(result.state.run.vl_bits[0]), {}
    for pair, message in zip(pairs, s.messages, strict=True):
        s.packets[0].dlid, s.packets[0].sl = message.dlid, message.sl
        queue = int(s.qps[message.qp].queue)
        ways[pair] = way = []
        for _ in range(MOST_HOPS):
            port, vl = divmod(queue, 1 << bits)
            way.append((int(result.wiring.slot[port]), vl))
            came = int(s.ports[port].peer)
            switch, in_number = int(s.buffers[came].owner), int(s.buffers[came].number)
            if switch < 0:
                break
            first = came - in_number
            number = int(pick_port.py_func(s, switch, first, 0))
            queue = first + number
            if bits:
                queue = int(out_queue.py_func(s, switch, in_number, number, queue, message.sl))
    return ways


def by_flows(fabric: Fabric, pairs: list[Pair]) -> Ways:
    """Return the flow engine's list of hops. Flows have no VLs."""
    result = flow_plan.plan(fabric, traffic(pairs), Options())
    net = result.net
    first, port = flow_plan._hops(net, net.src, net.dst, net.dlid)
    slots, ends = result.wiring.slot[port].tolist(), result.wiring.slot
    return {
        (int(ends[net.src[flow]]), int(ends[net.dst[flow]])): [
            (slot, 0) for slot in slots[first[flow] : first[flow + 1]]
        ]
        for flow in range(len(net.src))
    }


def both_ways(ways: Ways) -> Ways:
    """Return the paths of pairs that also have a reverse path, which the engines need."""
    return {pair: way for pair, way in ways.items() if pair[::-1] in ways}


def on_lane_0(ways: Ways) -> Ways:
    return {pair: [(slot, 0) for slot, _ in way] for pair, way in ways.items()}


def test_packets_go_from_queue_to_queue_as_forwarding_says(fabric) -> None:
    ways = both_ways(walked(fabric)[0])
    assert digest(by_packets(fabric, list(ways))) == digest(ways)


def test_flows_go_as_forwarding_says(fabric) -> None:
    ways = both_ways(walked(fabric)[0])
    assert digest(by_flows(fabric, list(ways))) == digest(on_lane_0(ways))


@pytest.mark.parametrize("name", ["packet", "flow"])
def test_engines_count_at_the_ports_of_the_way_and_refuse_who_has_none(fabric, name) -> None:
    ways, lost = walked(fabric)
    some = both_ways(ways)
    result = find_engine(name).run(fabric, traffic(list(some)))
    assert result.report()["delivered"] == len(some)
    assert result.use.xmit_packets.tolist() == ports_of(some, fabric)
    for pair in Random(name).sample(lost, min(len(lost), 5)):
        with pytest.raises(ConfigError, match="no route"):
            find_engine(name).run(fabric, traffic([pair]))


def test_check_counts_who_arrives_and_over_how_many_links(fabric) -> None:
    ways, lost = walked(fabric)
    verdict = check(fabric, hosts_only=True)
    assert (verdict.arrived, verdict.missing) == (len(ways), len(lost))
    links = np.bincount([max(0, len(way) - 2) for way in ways.values()])
    assert verdict.hops == {hops: int(links[hops]) for hops in np.flatnonzero(links).tolist()}


def test_quality_loads_the_ports_of_the_way_and_refuses_who_has_none(fabric) -> None:
    """It considers ports only, not VLs that drop packets."""
    ways, lost = walked(fabric, lanes=False)
    network = _Network(fabric)
    number = {int(slot): at for at, slot in enumerate(network.host)}

    def load(pairs: list[Pair]) -> np.ndarray:
        return network.load(np.array([[number[a], number[b]] for a, b in pairs], np.int32))

    assert (load(list(ways)) / network.cost.clip(1e-9)).round(6).tolist() == ports_of(ways, fabric)
    for pair in Random(1).sample(lost, min(len(lost), 5)):
        with pytest.raises(SubnetError, match="do not lead from"):
            load([pair])
