"""An independent InfiniBand simulator in plain Python with one heap: slow, short, and not derived from the kernels.

It knows RC, UC and UD, forwarding tables, service levels, virtual lanes and their arbitration, credits, cut-through and
store-and-forward, round-robin queue pairs, dependencies, and detours by Valiant, UGAL and PAR; no losses, adaptive
routing, congestion control or RDMA reads. Every finish time must equal the packet engine's, to the picosecond.

Order of events at one instant: ports become free, credits arrive, packets arrive, acknowledgements and then messages
become ready, shorter delays first, then in the order of their causes; events without a fixed delay come last.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from weft.fabric import catalog
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.rates import Technology, parse_label, speeds
from weft.fabric.timing import timings
from weft.sim.traffic import PATH_SL, Operation, Transport

FREE, CREDIT, ARRIVAL, CONTROL, READY, ODD = range(6)
HEADERS, RETH, AETH, DETH = 8 + 12 + 4 + 2, 16, 4, 8  # LRH, BTH, ICRC and VCRC on every packet
UNKNOWN_LENGTH_M = 5.0


def whole_blocks(size_bytes):
    return -(-size_bytes // 64) * 64


@dataclass(eq=False)
class Port:
    slot: int
    node: int
    number: int
    is_switch: bool
    rate_gbit_s: float
    cable_ps: int
    fec_ps: int
    model: str
    busy: bool = False
    load_bytes: int = 0  # queued or being sent
    stands: list[list[int]] = field(default_factory=lambda: [[0, 0], [0, 0]])  # low, high: entry, blocks left
    high_spent_bytes: int = 0

    def serial_ps(self, size_bytes):
        return round(size_bytes * 8_000 / self.rate_gbit_s)

    @property
    def cost(self):
        return timings().of_adapter(self.model, Technology.INFINIBAND)

    def memory_ps_per_kib(self, part):
        """Return the time at a part of PCIe's rate: `stream` for packet after packet, `lone` for a single one."""
        speed, width = parse_label(
            next(adapter.pcie_per_port for adapter in catalog.adapters() if adapter.name == self.model)
        )
        return round(1024 * 8_000 / (speed.rate_gbit_s(width) * getattr(timings().pcie, part)))


@dataclass(eq=False)
class Qp:
    port: Port
    dst: Port
    sl: int
    back_sl: int  # SL of the acknowledgements, which may differ on their path
    reliable: bool
    todo: deque[Message] = field(default_factory=deque)
    resting: bool = True
    clock_ps: int = 0
    posted_ps: int = 0
    unacknowledged: int = 0


@dataclass(eq=False)
class Message:
    qp: Qp
    payload_bytes: int
    sizes: list[int]  # bytes on the wire of each packet
    start_ps: int
    delay_ps: int
    waits_for: int
    followers: list[Message] = field(default_factory=list)
    ready_ps: int = 0
    sent: int = 0
    received: int = 0
    finish_ps: int = -1


@dataclass(eq=False)
class Packet:
    message: Message
    size_bytes: int
    target: Port
    sl: int
    part: int = 0  # 0 undecided, 1 on the way to `via`, 2 on the way to the destination
    via: int = 0  # LID of an intermediate switch
    buffer: tuple[Port, int] | None = None  # its input buffer, by port and VL


class Oracle:
    def __init__(
        self, fabric, traffic, *, mtu_bytes=4096, buffer_bytes=0, store_and_forward=False, paths="table", seed=1
    ):
        self.fabric, self.tables, self.traffic = fabric, fabric.tables, traffic
        self.mtu_bytes, self.cut_through = mtu_bytes, not store_and_forward
        self.heap, self.order, self.now_ps = [], count(), 0
        self.ports = {port.slot: port for link in range(len(fabric.links)) for port in self._link_ends(link)}
        qps = {}
        self.messages = [self._message(i, qps) for i in range(len(traffic))]
        levels = {level for message in self.messages for level in (message.qp.sl, message.qp.back_sl)}
        if paths != "table" and "path_sl" in vars(self.tables):
            levels |= set(self.tables.path_sl.ravel().tolist())
        vls = self.tables.sl2vl[:, sorted(levels)] if "sl2vl" in vars(self.tables) else None
        self.vls_per_part = 1 if vls is None else int(vls.max()) + 1
        self.paths, self.random = paths, 1 + (seed * 7_919 + 12_345) % 2_147_483_646
        self.n_vls = self.vls_per_part * {"table": 1, "par": 3}.get(paths, 2)
        self.bias_bytes = 2 * max(HEADERS + AETH, *(max(message.sizes) for message in self.messages))
        for i, message in enumerate(self.messages):
            for before in traffic.after[traffic.after_first[i] : traffic.after_first[i + 1]]:
                self.messages[before].followers.append(message)
        largest_bytes = whole_blocks(max(HEADERS + AETH, *(max(message.sizes) for message in self.messages)))
        for port in self.ports.values():
            self._equip(port, buffer_bytes, largest_bytes)

    def _link_ends(self, link):
        """Return the two ports of a link."""
        fabric, links, speed = self.fabric, self.fabric.links, speeds()[self.fabric.links.speed[link]]
        line = timings().of_line(speed.name)
        medium = Medium.DAC if links.medium[link] in (Medium.DAC, Medium.ACC) else Medium.AOC
        ns_per_m = next(cable.delay_ns_per_m for cable in catalog.cables() if cable.medium == medium)
        cable_ps = round((float(links.length_m[link]) or UNKNOWN_LENGTH_M) * ns_per_m) * 1000
        rate_gbit_s = speed.lane_gbit_s * int(links.width[link]) * (1 - line.overhead)
        for slot in (int(links.a[link]), int(links.b[link])):
            node, number = int(fabric.ports.node[slot]), int(fabric.ports.number[slot])
            is_switch, model = fabric.nodes.kind[node] == NodeKind.SWITCH, int(fabric.nodes.model[node])
            name = fabric.models[model] if model >= 0 else ""
            yield Port(slot, node, number, is_switch, rate_gbit_s, cable_ps, round(line.fec_ns * 1000), name)

    def _service_level(self, sl, src, dst):
        """Return the given service level, or that of the path."""
        leaf = self.tables.switch_row[self.fabric.ports.node[self.fabric.ports.peer[src]]]
        if sl != PATH_SL or leaf < 0 or "path_sl" not in vars(self.tables):
            return max(sl, 0)
        return int(self.tables.path_sl[leaf, self.tables.lid[dst]])

    def _message(self, i, qps):
        traffic = self.traffic
        src, dst = int(traffic.src[i]), int(traffic.dst[i])
        sl, back_sl = (self._service_level(int(traffic.sl[i]), *way) for way in ((src, dst), (dst, src)))
        transport, payload_bytes = Transport(int(traffic.transport[i])), int(traffic.size_bytes[i])
        new = Qp(self.ports[src], self.ports[dst], sl, back_sl, transport is Transport.RC)
        qp = qps.setdefault((src, dst, sl, transport, int(traffic.qp[i])), new)
        more = DETH if transport is Transport.UD else RETH if traffic.operation[i] == Operation.WRITE else 0
        begins = range(0, max(payload_bytes, 1), self.mtu_bytes)
        sizes = [-(-min(self.mtu_bytes, payload_bytes - at) // 4) * 4 + HEADERS + (0 if at else more) for at in begins]
        waits_for = int(traffic.after_first[i + 1] - traffic.after_first[i])
        return Message(qp, payload_bytes, sizes, int(traffic.start_ps[i]), int(traffic.delay_ps[i]), waits_for)

    def _vl(self, port, out_number, sl):
        """Return the VL: an adapter has a row for each port, a switch one for each pair of ports."""
        if "sl2vl" not in vars(self.tables):
            return 0
        row = int(self.tables.first_pair[port.node]) + port.number
        if out_number is not None:
            row += port.number * int(self.fabric.nodes.n_ports[port.node]) + out_number
        return int(self.tables.sl2vl[row, sl])

    def _equip(self, port, buffer_bytes, largest_bytes):
        """Set a port's delays, credits and arbitration tables."""
        port.peer = self.ports[int(self.fabric.ports.peer[port.slot])]
        switch_ps = round(timings().switch_ns(port.peer.model, Technology.INFINIBAND) * 1000)  # error correction too
        port.arrival_ps = port.cable_ps + (switch_ps if port.peer.is_switch else port.fec_ps)
        loop_ps = port.arrival_ps + port.cable_ps + port.fec_ps
        usual_bytes = math.ceil(2 * (loop_ps * port.rate_gbit_s / 8_000)) + 4 * largest_bytes
        room_bytes = whole_blocks(max(buffer_bytes, largest_bytes) if buffer_bytes else usual_bytes)
        port.waiting, port.ring = ([deque() for _ in range(self.n_vls)] for _ in range(2))
        port.credits_bytes = [room_bytes] * self.n_vls
        port.tables = [[(vl, largest_bytes // 64) for vl in range(self.n_vls)], []]
        port.high_limit_bytes = 0
        if "vl_arbitration" in vars(self.tables) and self.tables.vl_arbitration[port.slot, ..., 1].any():
            arguments = self.tables.vl_arbitration[port.slot].tolist()
            port.tables = [[(vl, weight) for vl, weight in side if weight and vl < self.n_vls] for side in arguments]
            limit = int(self.tables.vl_high_limit[port.slot])
            port.high_limit_bytes = math.inf if limit == 255 else limit * 4096

    def at(self, time_ps, rank, what, *arguments):
        heapq.heappush(self.heap, (time_ps, rank, next(self.order), what, arguments))

    def after(self, delay_ps, kind, what, *arguments):
        self.at(self.now_ps + delay_ps, (kind, delay_ps), what, *arguments)

    def run(self):
        """Run the simulation and return the delivery time of each message."""
        for message in sorted(self.messages, key=lambda message: message.start_ps):
            if not message.waits_for:
                self.on_started(message, READY)
        while self.heap:
            self.now_ps, _, _, kind, arguments = heapq.heappop(self.heap)
            port = kind(*arguments)
            if port is not None and not port.busy:
                self.send_next(port)
        return [message.finish_ps for message in self.messages]

    def on_started(self, message, kind):
        """Start a message. Small payloads are in the doorbell; the first packet of others is read and written alone."""
        src, dst, payload_bytes = message.qp.port, message.qp.dst, message.payload_bytes
        fetch_ps = payload_bytes * round(src.cost.inline_ns * 1000)
        if payload_bytes > src.cost.inline_bytes:
            both_ps_per_kib = src.memory_ps_per_kib("lone") + dst.memory_ps_per_kib("lone")
            lone_ps = min(payload_bytes, self.mtu_bytes) * both_ps_per_kib >> 10
            fetch_ps = round(src.cost.read_ns * 1000) + lone_ps
        lead_ps = round(src.cost.post_ns * 1000) + fetch_ps
        message.qp.posted_ps = max(message.qp.posted_ps, message.start_ps + lead_ps)  # none overtakes another
        self.at(message.qp.posted_ps, (kind, 0), self.on_ready, message)

    def next_bytes(self, port, vl):
        """Return the bytes of the next packet in a buffer; 0 without one. An adapter's own responses go first."""
        if port.waiting[vl]:
            return whole_blocks(port.waiting[vl][0].size_bytes)
        message = port.ring[vl][0].todo[0] if port.ring[vl] else None
        return whole_blocks(message.sizes[message.sent]) if message else 0

    def can_send(self, port, vl):
        return 0 < self.next_bytes(port, vl) <= port.credits_bytes[vl]

    def first_ready(self, port, side):
        """Return the next entry of the arbiter's table whose VL can send, and its remaining blocks."""
        table, (at, left) = port.tables[side], port.stands[side]
        for _ in range(len(table) + 1 if table else 0):
            if left > 0 and self.can_send(port, table[at][0]):
                return at, left
            at = (at + 1) % len(table)
            left = table[at][1]
        return None

    def arbitrate(self, port):
        """Return the VL that sends: high priority up to its limit, or while low priority has no packet."""
        low, high = (self.first_ready(port, side) for side in (0, 1))
        side = int(high is not None and (low is None or port.high_spent_bytes <= port.high_limit_bytes))
        at, left = (low, high)[side] or (0, 0)
        if not left:
            return None
        vl = port.tables[side][at][0]
        port.stands[side] = [at, left - self.next_bytes(port, vl) // 64]
        port.high_spent_bytes = port.high_spent_bytes + self.next_bytes(port, vl) if side else 0
        return vl

    def send_next(self, port):
        vl = self.arbitrate(port) if self.n_vls > 1 else 0 if self.can_send(port, 0) else None
        if vl is None:
            return
        packet = port.waiting[vl].popleft() if port.waiting[vl] else self.take_turn(port.ring[vl])
        left, packet.buffer = packet.buffer, (port.peer, vl)
        port.credits_bytes[vl] -= whole_blocks(packet.size_bytes)
        port.busy = True
        early = self.cut_through and port.peer.is_switch
        if early:
            self.after(port.arrival_ps, ARRIVAL, self.on_arrival, packet)
        self.after(port.serial_ps(packet.size_bytes), FREE, self.on_free, port, packet, left, early)

    def on_free(self, port, packet, left, early):
        port.busy = False
        port.load_bytes -= packet.size_bytes
        if not early:
            self.after(port.arrival_ps, ARRIVAL, self.on_arrival, packet)
        if left:
            self.give_credits(left, packet)
        return port

    def give_credits(self, buffer, packet):
        port, vl = buffer
        self.after(port.cable_ps + port.fec_ps, CREDIT, self.on_credits, port.peer, vl, whole_blocks(packet.size_bytes))

    def on_credits(self, port, vl, freed_bytes):
        port.credits_bytes[vl] += freed_bytes
        return port

    def on_arrival(self, packet):
        port = packet.buffer[0]
        if not port.is_switch:
            return self.on_host(port, packet)
        begins = self.paths != "table" and self.choose_path(port, packet)
        number = self._number(port.node, packet.via or self.tables.lid[packet.target.slot])
        out = self.ports[port.slot - port.number + number]
        vl = self._vl(replace(port, number=0) if begins else port, number, packet.sl) + self._first_lane(packet.part)
        late_ps = port.serial_ps(packet.size_bytes) - out.serial_ps(packet.size_bytes)
        if self.cut_through and late_ps > 0:  # its last byte must not leave before it has arrived
            return self.at(self.now_ps + late_ps, (ODD, 0), self.enqueue, out, vl, packet)
        return self.enqueue(out, vl, packet)

    # -- detours --------------------------------------------------------------------------------------------------

    def _first_lane(self, part):
        return self.vls_per_part * (part if self.paths == "par" else max(part - 1, 0))

    def _number(self, node, lid):
        return int(self.tables.lft[self.tables.switch_row[node], lid])

    def _switch_of(self, lid):
        """Return the node of the switch with this LID, or of the host's switch."""
        slot = int(np.flatnonzero(self.tables.lid == lid)[0])
        node = int(self.fabric.ports.node[slot])
        if self.fabric.nodes.kind[node] == NodeKind.SWITCH:
            return node
        return int(self.fabric.ports.node[self.fabric.ports.peer[slot]])

    def _group(self, node):
        """Return the group in the name of a dragonfly's switch, g2s3; in other fabrics each switch is its own group."""
        return re.match(r"g\d+|.*", self.fabric.nodes.name[node]).group()

    def _has_groups(self):
        return self.fabric.spec.startswith("dragonfly")

    def _ends(self, node, via):
        if self.fabric.spec.startswith("dragonfly:"):
            return self._group(node) == self._group(self._switch_of(via))
        return node == self._switch_of(via)

    def _begin_part(self, node, packet, part, via):
        packet.part, packet.via = part, via
        if "path_sl" in vars(self.tables):
            lid = via or self.tables.lid[packet.target.slot]
            packet.sl = int(self.tables.path_sl[self.tables.switch_row[node], lid])
        return True

    def choose_path(self, port, packet):
        """Start the next part of the path if it begins at this switch, and return whether it does."""
        node, lid = port.node, int(self.tables.lid[packet.target.slot])
        if packet.part == 1 and self._ends(node, packet.via):
            return self._begin_part(node, packet, 2, 0)
        if packet.part != 0:
            return False
        came_from = port.peer.node
        asks = not port.peer.is_switch or not self._has_groups() or self._group(came_from) == self._group(node)
        if asks and self._group(node) != self._group(self._switch_of(lid)):
            via = self._draw(node, lid)
            if self.paths == "valiant" or self._is_better(port, packet, lid, via):
                return self._begin_part(node, packet, 1, via)
        return self.paths != "par" and self._begin_part(node, packet, 2, 0)

    def _draw(self, node, lid):
        switches = [node for node in self.fabric.of_kind(NodeKind.SWITCH).tolist() if self._has_hosts(node)]
        while True:
            self.random = (self.random * 1_103_515_245 + 12_345) % (1 << 31)
            drawn = switches[(self.random >> 8) * len(switches) >> 23]
            if self._group(drawn) not in (self._group(node), self._group(self._switch_of(lid))):
                return int(self.tables.lid[self.fabric.first_port[drawn]])

    def _has_hosts(self, node):
        return any(port.node == node and not port.peer.is_switch for port in self.ports.values())

    def _is_better(self, port, packet, lid, via):
        """Return whether the queue towards `via`, times its hops, is shorter than that of the minimal path."""
        outs = [self.ports[port.slot - port.number + self._number(port.node, to)] for to in (lid, via)]
        loads = [out.load_bytes for out in outs]
        if outs[0] is outs[1]:
            direct = 0 if self.paths == "par" else 2
            loads = [self._lane_bytes(port, packet, part, to) for part, to in ((direct, lid), (1, via))]
        hops = self._hops(port.node, [lid]), self._hops(port.node, [via, lid])
        return loads[0] * hops[0] > loads[1] * hops[1] + self.bias_bytes

    def _lane_bytes(self, port, packet, part, lid):
        sl, number = packet.sl, self._number(port.node, lid)
        if "path_sl" in vars(self.tables):
            sl = int(self.tables.path_sl[self.tables.switch_row[port.node], lid])
        vl = self._vl(replace(port, number=0), number, sl) + self._first_lane(part)
        return sum(packet.size_bytes for packet in self.ports[port.slot - port.number + number].waiting[vl])

    def _hops(self, node, lids):
        """Return the number of links between switches to the LIDs in turn."""
        for hops in range(64):
            if len(lids) > 1 and self._ends(node, lids[0]):
                lids = lids[1:]
            out = self.ports[int(self.fabric.first_port[node]) + self._number(node, lids[0])]
            if not out.peer.is_switch:
                return hops
            node = out.peer.node
        raise AssertionError

    def enqueue(self, port, vl, packet):
        port.waiting[vl].append(packet)
        port.load_bytes += packet.size_bytes
        return port

    def on_ready(self, message):
        message.ready_ps = self.now_ps
        message.qp.todo.append(message)
        return self.wake(message.qp)

    def wake(self, qp):
        """Queue an idle queue pair at its port, now or at its next send time."""
        limit = self.traffic.outstanding
        if qp.resting and qp.todo and not 0 < limit <= qp.unacknowledged:
            qp.resting = False
            if qp.todo[0].sent or qp.clock_ps <= self.now_ps:
                qp.port.ring[self._vl(qp.port, None, qp.sl)].append(qp)
            else:
                self.at(qp.clock_ps, (ODD, 0), self.wake_again, qp)
        return qp.port

    def wake_again(self, qp):
        qp.resting = True
        return self.wake(qp)

    def take_turn(self, ring):
        """Return the next packet of the first queue pair in the ring, and move that queue pair to the end."""
        qp = ring.popleft()
        message = qp.todo[0]
        if message.sent == 0:  # the next message waits for the gap, or until this one is read
            stream_ps = message.payload_bytes * qp.port.memory_ps_per_kib("stream") >> 10
            read_ps = round(qp.port.cost.setup_ns * 1000) + stream_ps
            qp.clock_ps = max(qp.clock_ps, message.ready_ps) + max(round(qp.port.cost.gap_ns * 1000), read_ps)
        message.sent += 1
        if message.sent == len(message.sizes):
            qp.todo.popleft()
            qp.unacknowledged += 1
        self.wake_again(qp)
        return Packet(message, message.sizes[message.sent - 1], qp.dst, qp.sl)

    def on_host(self, port, packet):
        """Receive a complete packet; its buffer space is free at once."""
        self.give_credits(packet.buffer, packet)
        message = packet.message
        if packet.target is message.qp.port:  # an acknowledgement
            message.qp.unacknowledged -= 1
            return self.wake(message.qp)
        message.received += 1
        if message.received == len(message.sizes):
            self.on_complete(port, message)
        return None

    def on_complete(self, port, message):
        message.finish_ps = self.now_ps + round(port.cost.receive_ns * 1000)
        if message.qp.reliable:
            ack = Packet(message, HEADERS + AETH, message.qp.port, message.qp.back_sl)
            vl = self._vl(port, None, ack.sl)
            self.after(round(port.cost.ack_ns * 1000), CONTROL, self.enqueue, port, vl, ack)
        for later in message.followers:
            later.waits_for -= 1
            later.start_ps = max(later.start_ps, message.finish_ps + later.delay_ps)
            if later.waits_for == 0:
                self.on_started(later, ODD)
