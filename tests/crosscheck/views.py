"""A random managed subnet by a seed, and the comparison of all views of its packets' paths, for the same pairs."""

from __future__ import annotations

from functools import cache
from pathlib import Path as File
from random import Random

import numpy as np

import weft
from weft.errors import ConfigError
from weft.fabric.build import FabricBuilder
from weft.fabric.counters import Counter
from weft.fabric.forwarding import ANY, Path, Reason, walk
from weft.fabric.kernels.forwarding import arrays, walk_all
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import speed
from weft.fabric.tables import HostPaths
from weft.lab.metered_paths import clean_path
from weft.mad.administrator import Rows, known, path_request, path_rows
from weft.mad.carrier import Address
from weft.mad.devices import Devices
from weft.mad.local import LocalCarrier
from weft.mad.packets import carry
from weft.routing.check import check
from weft.scenarios.managed import ManagedSubnet
from weft.sim.engine import Options as RunOptions
from weft.sim.engine import Paths
from weft.sim.engines import find_engine
from weft.sim.packet.engine import _Run
from weft.sim.packet.plan import plan
from weft.sim.traffic import Traffic, Transport
from weft.sm.conf.options import Options
from weft.wire.headers import BTH, LRH, RETH, Opcode
from weft.wire.mad import Method
from weft.wire.packet import Packet
from weft.wire.port_info import LANES, LinkSpeed, PortInfo
from weft.wire.sa import SA_HEADER_BYTES, PathRecord, Rate, SaAttribute, SaMad
from weft.wire.sa_query import component_mask

SIZE_BYTES = 600
WORDS, PACKETS = Counter.PORT_XMIT_DATA_WORDS, Counter.PORT_XMIT_PKTS
Pair = tuple[int, int]  # slots of the present fabric


# -- fabrics ----------------------------------------------------------------------------------------------------------


@cache
def fabric_called(name: str, folder: File | None = None) -> Fabric:
    """Return the fabric of a spec, of `random:SEED`, or of `slice of DUMP:SEED`, for a dump in the folder."""
    kind, _, seed = name.rpartition(":")
    if kind == "random":
        return random_fabric(int(seed))
    if kind.startswith("slice of "):
        assert folder is not None
        return slice_of(weft.load(str(folder / kind.removeprefix("slice of "))), int(seed))
    return weft.load(name)


def random_fabric(seed: int, switches: int = 9, hosts: int = 14, more: int = 9) -> Fabric:
    """Return a tree of switches with `more` additional cables, some of them in parallel, of three speeds."""
    random, builder = Random(seed), FabricBuilder(f"random:{seed}")
    nodes = builder.add_nodes(NodeKind.SWITCH, [f"s{n}" for n in range(1, switches + 1)], n_ports=36)
    ends = builder.add_nodes(NodeKind.HCA, [f"h{n}" for n in range(1, hosts + 1)], n_ports=1)
    pairs = [(random.randrange(n), n) for n in range(1, switches)]
    pairs += [tuple(random.sample(range(switches), 2)) for _ in range(more)]
    used = dict.fromkeys(range(switches), 0)
    for a, b in pairs:
        used[a], used[b] = used[a] + 1, used[b] + 1
        label = random.choice(["HDR", "EDR", "NDR"])
        builder.add_links([nodes[a]], [used[a]], [nodes[b]], [used[b]], label)
    for number in range(hosts):
        at = random.randrange(switches)
        used[at] += 1
        builder.add_links([ends[number]], [1], [nodes[at]], [used[at]], "HDR")
    return builder.build()


def slice_of(fabric: Fabric, seed: int, leaves: int = 4, hosts: int = 5, cores: int = 12) -> Fabric:
    """Return a part of a fabric: a few leaves, some of their hosts, the switches above and some of the next tier."""
    random, ports = Random(seed), fabric.ports
    plugged = ports.peer >= 0

    def next_to(nodes: list[int], kind: NodeKind) -> list[int]:
        far = ports.node[ports.peer[plugged & np.isin(ports.node, nodes)]]
        return np.unique(far[fabric.nodes.kind[far] == kind]).tolist()

    bottom = next_to(fabric.of_kind(NodeKind.HCA).tolist(), NodeKind.SWITCH)
    remaining = random.sample(bottom, leaves)
    for leaf in remaining[:]:
        below = next_to([leaf], NodeKind.HCA)
        remaining += random.sample(below, min(hosts, len(below)))
    above = next_to(remaining[:leaves], NodeKind.SWITCH)
    top = sorted(set(next_to(above, NodeKind.SWITCH)) - set(bottom))
    remaining += above + random.sample(top, min(cores, len(top)))
    return fabric.subset(keep_nodes=np.isin(np.arange(len(fabric.nodes)), remaining))


# -- a running subnet --------------------------------------------------------------------------------------------------


def is_host(fabric: Fabric, slot: int) -> bool:
    return bool(fabric.tables.switch_row[fabric.ports.node[slot]] < 0)


def hosts_of(fabric: Fabric) -> list[int]:
    return [slot for slot in np.flatnonzero(fabric.ports.peer >= 0).tolist() if is_host(fabric, slot)]


def between_switches(devices: Devices) -> list[int]:
    """Return the slot at one end of each cable between two switches."""
    fabric, cable = devices.fabric, devices.cable
    ends = [slot for slot, far in enumerate(cable) if slot < far and not is_host(fabric, slot)]
    return [slot for slot in ends if not is_host(fabric, cable[slot])]


def write_partitions(fabric: Fabric, random: Random, conf: File) -> None:
    """Write up to three tenants and the default partition, where all ports or only the manager's are full members."""
    hosts, lines = hosts_of(fabric), [f"Default=0x7fff, ipoib : {random.choice(['ALL=full', 'ALL, SELF=full'])} ;"]
    for number in range(random.randint(0, 3)):
        members = random.sample(hosts, random.randint(1, len(hosts)))
        guids = [f"0x{int(fabric.ports.guid[member]):016x}" for member in members]
        named = ", ".join(f"{guid}={random.choice(['full', 'limited'])}" for guid in guids)
        lines.append(f"tenant{number}=0x{0x10 + number:x}, sl={random.randint(0, 3)} : {named} ;")
    conf.write_text("\n".join(lines) + "\n")


class Running:
    """A managed subnet, its connected part, and the path records that each host receives."""

    left: Fabric
    slots: list[int]  # [slot of `left`] -> slot of the devices
    place: dict[int, int]  # the inverse
    rows: dict[int, Rows]  # slot of a host -> its PathRecords
    row: dict[Pair, int]  # row of `paths`, for pairs with a path record

    def __init__(self, fabric: Fabric, random: Random, folder: File, *, most_pairs: int = 200, **options) -> None:
        write_partitions(fabric, random, folder / "partitions.conf")
        drawn = {
            "part_enforce": random.choice(["both", "in", "out", "off"]),
            "qos": random.random() < 0.5,
            "partition_config_file": folder / "partitions.conf",
        }
        fabric = fabric.subset()  # this run has its own tables and counters
        self.net, self.random, self.most_pairs = ManagedSubnet(fabric, Options(**drawn | options)), random, most_pairs
        self.devices = self.net.devices

    def look(self) -> None:
        """Discover the present fabric and the hosts' path records."""
        self.left, remaining = self.net.connected()
        self.slots = np.flatnonzero(remaining[self.net.fabric.ports.node]).tolist()
        self.place = {slot: at for at, slot in enumerate(self.slots)}
        hosts = hosts_of(self.left)
        self.rows = {slot: self._ask(self.slots[slot]) for slot in hosts}
        self.left.tables.paths = self.paths = paths = self.paths_at(hosts)
        some = [(a, b) for a in hosts for b in hosts if a < b]
        some = self.random.sample(some, min(len(some), self.most_pairs // 2))
        self.pairs = [*some, *((b, a) for a, b in some)]
        lid = self.left.tables.lid
        row = {pair: int(paths.find(pair[0], lid[pair[1]])) for pair in self.pairs}
        self.row = {pair: result for pair, result in row.items() if result >= 0}

    def paths_at(self, slots: list[int]) -> HostPaths:
        """Return the path records of the hosts at these slots."""
        count = [len(rows) for rows in self.rows.values()]
        return known(np.repeat(slots, count), np.concatenate(list(self.rows.values())))

    def _ask(self, slot: int) -> Rows:
        info = self.devices.info(slot)
        sgid = PortInfo.gid_prefix.get(info) << 64 | int(self.net.fabric.ports.guid[slot])
        carrier = LocalCarrier(self.net.subnet, slot, sleep=self.net.clock.sleep)
        token = carrier.send(path_request(sgid), Address(PortInfo.master_sm_lid.get(info)), timeout_ms=2000)
        while not (result := carrier.poll(only=token)):
            self.net.manager.step()
        carrier.close()
        return path_rows(result[0][1])

    def packet(self, pair: Pair, size_bytes: int = SIZE_BYTES) -> tuple[int, dict[str, int]]:
        """Return the sending slot and the arguments of forwarding for a packet by the host's path record."""
        row, lid = self.row[pair], self.left.tables.lid
        arguments = {"dlid": int(lid[pair[1]]), "sl": int(self.paths.sl[row]), "p_key": int(self.paths.p_key[row])}
        return self.slots[pair[0]], arguments | {"size_bytes": len(self.raw(pair, size_bytes)) - 2}

    def raw(self, pair: Pair, size_bytes: int = SIZE_BYTES) -> bytes:
        row, devices, lid = self.row[pair], self.devices, self.left.tables.lid
        lrh = LRH(slid=devices.lid(self.slots[pair[0]]), dlid=int(lid[pair[1]]), sl=int(self.paths.sl[row]))
        bth = BTH(opcode=Opcode.UC_RDMA_WRITE_ONLY, dest_qp=0x48, p_key=int(self.paths.p_key[row]))
        return Packet((lrh, bth, RETH(dma_len=size_bytes)), bytes(size_bytes)).pack()

    def way(self, pair: Pair) -> Path:
        slot, arguments = self.packet(pair)
        return walk(self.devices, slot, **arguments)

    def has_errors(self, way: Path) -> bool:
        return not self.devices.erring.isdisjoint(way.out)


# -- views -------------------------------------------------------------------------------------------------------------


def assert_same(running: Running) -> None:
    """Compare reachability, VLs and counters of all views."""
    ways = ways_of_packets(running)
    assert_adapters_agree(running, ways)
    assert_administrator_agrees(running, ways)
    assert_nobody_else_is_reached(running)
    assert_engines_agree(running, ways)
    assert_check_agrees(running.left)


def ways_of_packets(running: Running) -> dict[Pair, Path]:
    """Send packets hop by hop and return their paths; counters, the walk and its kernel must agree."""
    devices, ways = running.devices, {}
    for pair in running.row:
        slot, arguments = running.packet(pair)
        before = devices.fabric.counters[:, PACKETS].copy()
        fate = carry(devices, slot, running.raw(pair))
        assert fate.delivered == (running.slots[pair[1]],)
        way = walk(devices, slot, **arguments)
        assert sorted(way.out) == np.flatnonzero(devices.fabric.counters[:, PACKETS] - before).tolist()
        assert (way.end, way.vls[-1]) == (fate.delivered[0], fate.vls[0])
        ways[pair] = way
    packets = [(pair[0], *running.packet(pair)[1].values()) for pair in ways]
    if packets:
        walks = walk_all(arrays(running.left), np.array(packets))
        for row, way in enumerate(ways.values()):
            out, vls = walks.out[row, : walks.hops[row]].tolist(), walks.vls[row, : walks.hops[row]].tolist()
            assert ([running.slots[item] for item in out], vls) == (list(way.out), list(way.vls))
    return ways


def assert_adapters_agree(running: Running, ways: dict[Pair, Path]) -> None:
    """Assert that an adapter's shared-memory writes use the same path, or none if a cable on it has bit errors."""
    for pair, way in ways.items():
        slot, arguments = running.packet(pair)
        mtu_bytes = int(running.paths.mtu_bytes[running.row[pair]])
        result = clean_path(running.devices, slot, arguments["dlid"], arguments["sl"], arguments["p_key"], mtu_bytes)
        assert (result and result.path) == (None if running.has_errors(way) else way)


def assert_administrator_agrees(running: Running, ways: dict[Pair, Path]) -> None:
    """Assert that the MTU and rate of path records are the minimum of the ports on the path."""
    devices = running.devices
    records = {(slot, PathRecord.dlid.get(raw)): raw for slot, rows in running.rows.items() for raw in map(bytes, rows)}
    for pair, way in ways.items():
        record = records[pair[0], running.left.tables.lid[pair[1]]]
        ends = [devices.info(slot) for out in way.out for slot in (out, devices.cable[out])]
        assert PathRecord.mtu.get(record) == min(map(PortInfo.neighbor_mtu.get, ends))
        signals = [_signal_gbit_s(devices, slot) for slot in way.out]
        assert Rate(PathRecord.rate.get(record)).gbit_s == max(
            rate.gbit_s for rate in Rate if rate.gbit_s <= min(signals)
        )
        cabled = [running.left.port(running.place[slot]).link.rate_gbit_s for slot in way.out]
        assert min(cabled) == min(_rate_gbit_s(devices, slot) for slot in way.out)


def _line(devices: Devices, slot: int):
    info = devices.info(slot)
    named = LinkSpeed.active(info, devices.tables.fdr10.item(slot, 2)).name
    return speed(str(named)), LANES[PortInfo.link_width_active.get(info)]


def _signal_gbit_s(devices: Devices, slot: int) -> float:
    line, lanes = _line(devices, slot)
    return line.lane_signal_gbit_s * lanes


def _rate_gbit_s(devices: Devices, slot: int) -> float:
    line, lanes = _line(devices, slot)
    return line.rate_gbit_s(lanes)


def assert_nobody_else_is_reached(running: Running) -> None:
    """Assert that without a path record no key of the sender reaches a host, and the engines refuse."""
    devices, lid = running.devices, running.left.tables.lid
    rest = [pair for pair in running.pairs if pair not in running.row]
    for a, b in rest:
        for p_key in {key for key in devices.keys(running.slots[a]) if key}:
            path = walk(devices, running.slots[a], dlid=int(lid[b]), sl=0, p_key=p_key, size_bytes=256)
            assert path.reason is not Reason.ARRIVED
    for pair in rest[:3]:
        assert all("has no path record" in refusal for refusal in refusals(running.left, pair).values())


def refusals(fabric: Fabric, pair: Pair) -> dict[str, str]:
    """Return the engines' refusals before they run; empty if they would run."""
    output = {}
    traffic = Traffic.make(np.array(pair[:1]), np.array(pair[1:]), SIZE_BYTES, transport=Transport.UC)
    for name in ("packet", "flow"):
        try:
            find_engine(name).run(fabric, traffic)
            output[name] = ""
        except ConfigError as error:
            output[name] = str(error)
    return output


def assert_engines_agree(running: Running, ways: dict[Pair, Path]) -> None:
    """Assert that the engines count at the packets' ports, and that the buffers at the far ends fill."""
    left, both = running.left, [pair for pair in ways if pair[::-1] in ways]
    if not both:
        return
    src, dst = np.array(both).T
    traffic = Traffic.make(src, dst, SIZE_BYTES, transport=Transport.UC)
    created = plan(left, traffic, RunOptions())
    row = [running.row[pair] for pair in both]
    assert created.posting.messages.sl.tolist() == running.paths.sl[row].tolist()
    expected, filled = np.zeros(len(left.ports), np.int64), set()
    for pair in both:
        for slot in ways[pair].out:
            expected[running.place[slot]] += 1
            filled.add(running.place[running.devices.cable[slot]])
    assert ports_filled(created) == filled
    words = LRH.size + BTH.size + RETH.size + SIZE_BYTES + 4
    for name in ("packet", "flow"):
        if name == "flow" and any(running.has_errors(ways[pair]) for pair in both):
            bad = next(pair for pair in both if running.has_errors(ways[pair]))
            assert "has bit errors" in refusals(left, bad)[name]
            continue
        left.counters[:] = 0
        result = find_engine(name).run(left, traffic)
        assert result.report()["delivered"] == len(both), name
        result.write_counters()
        assert left.counters[:, PACKETS].tolist() == expected.tolist(), name
        assert left.counters[:, WORDS].tolist() == (expected * (words // 4)).tolist(), name


def ports_filled(made) -> set[int]:
    """Run the engine; return the slots of ports whose input buffers held a packet, on any VL."""
    run = _Run(made)
    run.finish(None)
    return set(made.wiring.slot[np.flatnonzero(run.state.buffers.held_peak)].tolist())


def assert_check_agrees(left: Fabric) -> None:
    """Assert the same reachability, link counts and VLs of switches by `weft check`, for all hosts and LIDs."""
    tables, verdict = left.tables, check(left, hosts_only=True)
    hosts = hosts_of(left)
    row = {slot: tables.switch_row[left.ports.node[left.ports.peer[slot]]] for slot in hosts}
    lids = [(b, int(tables.lid[b]) + path) for b in hosts for path in range(1 << int(tables.lmc[b]))]
    every = [(a, lid, int(tables.path_sl[row[a], lid]), ANY, 64) for a in hosts for b, lid in lids if a != b]
    walks = walk_all(arrays(left), np.array(every))
    arrived = walks.reason == Reason.ARRIVED
    assert (verdict.pairs, verdict.arrived) == (len(every), arrived.sum())
    count = np.bincount(np.maximum(walks.hops[arrived] - 2, 0))
    assert verdict.hops == {hops: int(count[hops]) for hops in np.flatnonzero(count).tolist()}
    vls = {vl for item, hops in zip(walks.vls, walks.hops, strict=True) for vl in item[1:hops].tolist()}
    assert verdict.vls == len(vls)


def assert_every_lid_leads_there(running: Running) -> None:
    """Assert that the administrator returns a path for each LID of a port with an LMC, and that it arrives."""
    devices, administrator = running.devices, running.net.manager.administrator
    lid, lmc = running.left.tables.lid, running.left.tables.lmc
    for pair in running.row:
        slot, end = running.slots[pair[0]], running.slots[pair[1]]
        gids = [
            PortInfo.gid_prefix.get(devices.info(item)) << 64 | int(devices.fabric.ports.guid[item])
            for item in (slot, end)
        ]
        for dlid in range(int(lid[pair[1]]), int(lid[pair[1]]) + (1 << int(lmc[pair[1]]))):
            arguments = {"sgid": gids[0], "dgid": gids[1], "dlid": dlid, "numb_path": 1}
            mad = SaMad.pack(
                method=Method.GET,
                attribute_id=SaAttribute.PATH_RECORD,
                component_mask=component_mask(PathRecord, *arguments),
                data=PathRecord(**arguments).raw,
            )
            record = PathRecord.unpack(administrator.answer(mad, Address(devices.lid(slot))), SA_HEADER_BYTES)
            assert record.dlid == dlid
            lrh = LRH(slid=record.slid, dlid=dlid, sl=record.sl)
            bth = BTH(opcode=Opcode.UC_RDMA_WRITE_ONLY, dest_qp=0x48, p_key=record.p_key)
            assert carry(devices, slot, Packet((lrh, bth, RETH()), b"").pack()).delivered == (end,)


# -- adaptive routing --------------------------------------------------------------------------------------------------


def assert_choices_are_allowed(running: Running, pairs: list[Pair]) -> int:
    """Assert that adaptively routed packets use only ports of the groups; return the number of pairs with a choice."""
    left, chosen = running.left, 0
    for pair in pairs:
        src, dst = np.array(pair[:1]), np.array(pair[1:])
        traffic = Traffic.make(src, dst, 100_000, transport=Transport.UC)
        allowed = allowed_ports(left, *pair)
        for name, how in (
            ("packet", Paths.ADAPTIVE),
            ("packet", Paths.SPRAY),
            ("packet", Paths.ECMP),
            ("flow", Paths.SPRAY),
        ):
            result = find_engine(name).run(left, traffic, RunOptions(paths=how))
            assert result.report()["delivered"] == 1
            used = set(np.flatnonzero(result.use.xmit_packets).tolist())
            assert used <= allowed, (name, how)
            if name == "flow":  # flows spread over all ports
                assert used == allowed
        way = walk_all(arrays(left), np.array([(pair[0], int(left.tables.lid[pair[1]]), 0, ANY, 64)]))
        chosen += len(allowed) > int(way.hops[0])
    return chosen


def allowed_ports(left: Fabric, a: int, b: int) -> set[int]:
    """Return all slots that a packet may leave by, if every switch may use any port of the group."""
    tables, result, todo = left.tables, {a}, [int(left.ports.peer[a])]
    lid = int(tables.lid[b])
    for at in todo:
        if at == b:
            continue
        node = left.ports.node[at]
        row = tables.switch_row[node]
        group = int(tables.ar_group[row, lid])
        ports = np.flatnonzero(tables.ar_ports[group]).tolist() if group >= 0 else [int(tables.lft[row, lid])]
        for slot in (int(left.first_port[node]) + port for port in ports):
            if slot not in result:
                result.add(slot)
                todo.append(int(left.ports.peer[slot]))
    return result
