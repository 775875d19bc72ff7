"""Translate a fabric and its traffic into the state that the kernels run, and check the input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.jit.references import address_by_reference
from weft.routing.detours import part_lanes
from weft.sim.adaptive import POLICIES
from weft.sim.congestion import CONTROLS, NEVER_BYTES, Parameters, Ports
from weft.sim.engine import FullQueue, Options
from weft.sim.layout.detours import NO_DETOURS, check_lanes, plan_detours
from weft.sim.layout.paths import arbitration, check_paths, count_vls, host_vls
from weft.sim.layout.posting import Posting, can_lose, post
from weft.sim.layout.records import (
    NONE,
    FlowControl,
    Records,
    Selection,
    distinct_rows,
    records,
)
from weft.sim.layout.rules import OVERTAKING, Rules, control, fill_in
from weft.sim.layout.wiring import Wiring, make_wiring, rate_under
from weft.sim.link_faults import LinkFault, parse_link_fault
from weft.sim.packet.aggregation import build_aggregation
from weft.sim.packet.extras import OWN_RECEIVER_FIELDS, add_extras
from weft.sim.packet.hooks import addresses, choice_address
from weft.sim.packet.loop import BATCH_EVENTS
from weft.sim.packet.ports import make_buffers, make_ports, pause_bytes
from weft.sim.packet.state import (
    CHUNK_EVENTS,
    DELAY_LINE,
    DELAY_LINE_BITS,
    EMPTY,
    ENTRY,
    EVENT,
    HOP,
    LOAD,
    MOST_HOPS,
    PACKET,
    ROOM,
    RUN,
    TRACE,
    PacketEvent,
    State,
)
from weft.sim.packet.trees import Trees, build_trees
from weft.sim.packet.uet.rules import obey
from weft.sim.packet.uet.setup import network_rtt_ps, no_uet, set_up_uet, thresholds
from weft.sim.traffic import Traffic
from weft.units import transfer_ps

SERIAL_LINES = 256  # limit; rarer packet sizes use the agenda
WIRE_LINES = 256  # limit; more delays are rounded
BIAS_PACKETS = 2  # queue difference below which UGAL stays on the minimal path
TCP_PROBE_PS = 8_000_000_000  # Linux: two jiffies at 250 Hz; round trips are far shorter


@dataclass(frozen=True, kw_only=True, eq=False)
class PacketPlan:
    """The state of a run, and the meaning of its indices."""

    options: Options  # with the defaults filled in
    wiring: Wiring
    posting: Posting
    trees: Trees
    state: State
    faults: list[LinkFault]
    fault_gbit_s: list[float]  # rate of the link under each fault


def plan(fabric: Fabric, traffic: Traffic, options: Options) -> PacketPlan:
    """Check the input and return the initial state."""
    options, rules = fill_in(fabric, options)
    faults = [parse_link_fault(text) for text in options.faults]
    fault_gbit_s = [rate_under(fabric, fault) for fault in faults]
    wiring = make_wiring(fabric, rules, options.switching, fault_gbit_s)
    posting = post(wiring, traffic, options, rules)
    check_paths(wiring, posting, options)
    policy = POLICIES[str(options.paths)]
    detours = plan_detours(wiring) if policy.detour else NO_DETOURS
    levels = (posting.messages.sl, posting.messages.back_sl, np.unique(detours.path_sl))
    vls = count_vls(wiring, np.concatenate(levels))
    n_vls = vls * policy.detour.parts
    if policy.detour:
        check_lanes(wiring, policy.detour, vls)
    queues_of_port = 1 << (n_vls - 1).bit_length()
    trees = build_trees(wiring, posting, queues_of_port)
    aggregation = build_aggregation(wiring, posting, traffic, queues_of_port)
    full_bytes = int(posting.size_bytes.max())
    buffers, held, drop_above, pause_above = make_buffers(wiring, options, rules, queues_of_port, full_bytes)
    arbitration_row, vl, weight, limit = arbitration(wiring, n_vls, full_bytes)
    host_vl = host_vls(wiring, n_vls)
    _assign_vls(posting, host_vl, queues_of_port)
    in_order = options.in_order or policy.selection not in OVERTAKING
    posting.qps.ordered = in_order and not rules.uet and rules.flow is not FlowControl.DROP
    run = _run(wiring, posting, options, rules, queues_of_port)
    rtt_ps = network_rtt_ps(wiring, posting, options) if rules.uet else 0
    parameters = _set_up_control(wiring, posting.qps, options, run, int(buffers.room.max()), rtt_ps)
    marks = parameters.marks
    n_packets = 4096 + 8 * len(wiring.ports)  # a few packets in each buffer
    uet = no_uet()
    if rules.uet:
        own = CONTROLS[str(options.congestion_control)]
        uet = set_up_uet(wiring, posting, options, own, run, rtt_ps, n_packets)
        drop_above, marks = thresholds(wiring, options, own, rtt_ps, full_bytes)
        run.plain_bytes = min(int(marks[:, 0].min()), int(drop_above.min()))
        drop_above = np.repeat(drop_above, queues_of_port)
    run.selection, run.policy = Selection.BY_FLOW if policy.entropy else policy.selection, choice_address(policy)
    run.detour, run.bias_bytes = policy.detour, BIAS_PACKETS * full_bytes
    run.ends_in_group, run.in_first_group = detours.ends_in_group, detours.in_first_group
    widest = max(trees.widest, aggregation.widest)
    run.room = ROOM + BATCH_EVENTS * 2 * widest
    run.agenda_room += BATCH_EVENTS * 2 * widest
    lines = _DelayLines(wiring, posting, buffers)
    ports, queues, stuck_ps = make_ports(wiring, posting.hosts, buffers, rules, queues_of_port)
    if n_vls > 1:
        ports.arbitration = arbitration_row
    inputs, frames = add_extras(wiring, options, run, buffers, queues_of_port, trees, aggregation)
    choices = _choices(fabric, policy.selection, widest > 0)
    first_pair, sl2vl, pair_row = _vl_tables(wiring, n_vls, part_lanes(policy.detour, vls))
    traced = bool(run.traced[0])
    state = State(
        run=run,
        ports=ports,
        plugs=wiring.ports,
        queues=queues,
        buffers=buffers,
        held=held,
        loads=records(len(ports), LOAD),
        drop_above=drop_above.astype(np.int32),
        pause_above=pause_above.astype(np.int32),
        port_group=np.zeros(len(ports), np.int16),
        stuck_ps=stuck_ps,
        marks=marks if marks is not None else np.zeros((1, 4), np.int64),
        control_table=parameters.table,
        host_fields=np.zeros((len(posting.hosts), OWN_RECEIVER_FIELDS + parameters.receiver_fields)),
        control_fields=np.zeros((len(posting.qps), max(parameters.fields, 1)) if run.on_packet[0] else (1, 1)),
        traces=records(n_packets if traced else 1, TRACE),
        hops=make_hops(n_packets if traced else 1),
        packets=_pool(n_packets),
        **uet._asdict(),
        messages=posting.messages,
        branches=aggregation.branches if aggregation.widest else trees.branches,
        inputs=inputs,
        frames=frames,
        reductions=aggregation.reductions,
        vertex_of_switch=aggregation.vertex_of_switch,
        vertices=aggregation.vertices,
        sums=aggregation.sums,
        members=aggregation.members,
        qps=posting.qps,
        hosts=posting.hosts,
        lines=lines.lines,
        tree=lines.tree,
        events=lines.events,
        next_chunk=lines.next_chunk,
        agenda=records(4096, ENTRY),
        serial_ps=lines.serial_ps,
        serial_line=lines.serial_line,
        size_bytes=posting.size_bytes,
        lft=choices[0],
        first_choice=choices[1],
        choice_first=choices[2],
        choice_ports=choices[3],
        intermediate_lid=detours.lid,
        switch_group=detours.group,
        lid_group=detours.lid_group,
        switch_first=detours.switch_first,
        path_sl=detours.path_sl,
        slots=fabric.nodes.n_ports[wiring.switch_nodes].astype(np.int64) + 1,
        first_pair=first_pair,
        pair_row=pair_row,
        sl2vl=sl2vl,
        host_vl=host_vl,
        successor_first=posting.successor_first,
        successors=posting.successors,
        arbitration_vl=vl,
        arbitration_weight=weight,
        high_limit_bytes=limit,
        in_turns=_in_turns(vl, weight, n_vls),
    )
    if rules.uet:
        run.uet = address_by_reference(obey, state, 0)
    run.free_chunk, run.free_chunks = lines.free_chunk, lines.free_chunks
    run.free_packet, run.free_packets = 0, len(state.packets)
    return PacketPlan(
        options=options,
        wiring=wiring,
        posting=posting,
        trees=trees,
        state=state,
        faults=faults,
        fault_gbit_s=fault_gbit_s,
    )


def _assign_vls(posting: Posting, host_vl: NDArray[np.int32], n_vls: int) -> None:
    """Assign each queue pair the VL of its service level, which all its messages share."""
    qps, messages = posting.qps, posting.messages
    level = np.zeros(len(qps), np.int64)
    level[messages.qp] = messages.sl
    qps.queue = posting.hosts.port[qps.host].astype(np.int64) * n_vls + host_vl[qps.host, level]


def _in_turns(vl: NDArray[np.int32], weight: NDArray[np.int32], n_vls: int) -> NDArray[np.bool_]:
    """Return whether the arbitration is one entry for each VL, in order, of low priority ([row])."""
    orders = (vl[:, 0, :n_vls] == np.arange(n_vls)).all(axis=1) & ((weight[:, 0] > 0).sum(axis=1) == n_vls)
    in_turns: NDArray[np.bool_] = orders & (weight[:, 1] == 0).all(axis=1)
    return in_turns


def _vl_tables(
    wiring: Wiring, n_vls: int, part_lanes: tuple[int, ...]
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint16]]:
    """Return [switch] -> its first pair of ports; the distinct rows of SL to VL; [pair] -> its row.

    The columns of the rows are the service levels of each part of a path, whose lanes begin at `part_lanes`.
    """
    if n_vls == 1:
        return np.zeros(1, np.int64), np.zeros((1, 16), np.uint8), np.zeros(1, np.uint16)
    tables = wiring.fabric.tables
    rows, row_of_pair = distinct_rows(np.ascontiguousarray(tables.sl2vl).view(np.uint64))
    if len(rows) > np.iinfo(np.uint16).max:
        raise ConfigError(f"the switches have {len(rows):,} different SL2VL tables (limit 65,535)")
    vls = rows.view(np.uint8)
    parts = np.concatenate([vls + np.uint8(lane) for lane in part_lanes], axis=1)
    return tables.first_pair[wiring.switch_nodes], parts, row_of_pair.astype(np.uint16)


def _set_up_control(
    wiring: Wiring, qps: Records, options: Options, run: Records, room_bytes: int, rtt_ps: int
) -> Parameters:
    """Prepare the congestion control for the network, and register its hooks in the run."""
    assert options.congestion_control is not None
    assert options.network is not None
    chosen = control(options.congestion_control, options.network)
    ports = Ports(
        fabric=wiring.fabric,
        slot=wiring.slot,
        rate_gbit_s=wiring.port_rate_gbit_s,
        pause_bytes=pause_bytes(options, wiring.port_rate_gbit_s),
        room_bytes=room_bytes,
        network_rtt_ps=rtt_ps,
        trims=options.full_queue is not FullQueue.DROP,
    )
    parameters = chosen.prepare(ports, qps)
    run.notify_ps = parameters.notify_ps
    if parameters.marks is not None and (least_bytes := int(parameters.marks[:, 0].min())) < NEVER_BYTES:
        run.mark_least_bytes = least_bytes
    for name, address in addresses(chosen).items():
        run[name] = address
    run.traced = (run.on_packet != 0) & (rtt_ps == 0)
    run.checks_data = run.losses | (run.on_packet != 0)
    return parameters


def _run(wiring: Wiring, posting: Posting, options: Options, rules: Rules, n_vls: int) -> Records:
    run = records(1, RUN)
    ports = wiring.ports
    run.n_vls, run.vl_bits, run.flow, run.groups = n_vls, n_vls.bit_length() - 1, rules.flow, 1
    run.losses = can_lose(wiring, options, rules)
    run.random = 1 + (options.seed * 7_919 + 12_345) % 2_147_483_646
    ports.clean_bytes = np.random.default_rng(options.seed).exponential(ports.bytes_per_error)
    run.left, run.no_route = len(posting.messages), wiring.fabric.tables.no_route
    run.ack_every, run.ack_size = 2, posting.ack_size
    run.agenda_room = ROOM * (1 + int(np.diff(posting.successor_first).max(initial=0)))
    rc_timeout_ps = 4_096_000 << options.ack_timeout_exponent
    run.timeout_ps = TCP_PROBE_PS if rules.flow is FlowControl.DROP else rc_timeout_ps
    return run


def _choices(
    fabric: Fabric, picks: Selection, copies: bool
) -> tuple[Records, NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Return [switch, lid] -> port number or choice; [switch] -> its first choice; [choice + 1] -> first port; ports.

    One byte per destination, since every packet reads this table; two with more ports. Multicast packets have LID 0 and
    find port 0 there, which leads nowhere.
    """
    tables = fabric.tables
    nothing = np.zeros(1, np.int32)
    if picks <= Selection.DETOUR and copies:
        lft = tables.lft.copy()
        lft[:, 0] = 0
        return lft, nothing, nothing, nothing
    if picks <= Selection.DETOUR:
        return tables.lft if "lft" in vars(tables) else np.zeros((1, 1), np.uint8), nothing, nothing, nothing
    n_groups = len(tables.ar_ports)
    numbers = np.arange(tables.port_numbers + (tables.no_route != NO_ROUTE))
    numbers[-1] = tables.no_route
    group, number = np.nonzero(tables.ar_ports)
    # including single ports
    size = np.concatenate((np.bincount(group, minlength=n_groups), np.ones(len(numbers), np.int64)))
    members = np.concatenate((number, numbers)).astype(np.int32)
    single = np.minimum(tables.lft.astype(np.int32), len(numbers) - 1)
    leads_to = np.where(tables.ar_group >= 0, tables.ar_group, n_groups + single)
    leads_to[:, 0] = n_groups
    table = np.empty(leads_to.shape, np.int16)
    chosen = []
    for row, coded in zip(leads_to, table, strict=True):
        chosen.append(np.flatnonzero(np.bincount(row, minlength=len(size))))
        code = np.zeros(len(size), np.int16)
        code[chosen[-1]] = np.arange(len(chosen[-1]))
        coded[:] = code[row]
    first = np.concatenate(([0], np.cumsum([len(codes) for codes in chosen])))
    choices = np.concatenate(chosen)
    begins = np.concatenate(([0], np.cumsum(size[choices])))
    begins_of_group = np.cumsum(size) - size
    place = np.repeat(begins_of_group[choices] - begins[:-1], size[choices]) + np.arange(begins[-1])
    if table.max(initial=0) < 256:
        table = table.astype(np.uint8)
    return table, first.astype(np.int32), begins.astype(np.int32), members[place]


def make_hops(n_packets: int) -> Records:
    """Return empty telemetry of packets, HOP[packet, hop]."""
    return records(n_packets * MOST_HOPS, HOP).reshape(n_packets, MOST_HOPS)


def _pool(n: int) -> Records:
    packets = records(n, PACKET)
    packets.next = np.arange(1, n + 1)
    return packets


class _DelayLines:
    """The delay lines: one for each kind and delay, numbered in the order in which they are served at one instant."""

    def __init__(self, wiring: Wiring, posting: Posting, buffers: Records) -> None:
        ports = wiring.ports
        plugged = ports.peer >= 0
        kinds: list[tuple[PacketEvent, int]] = []
        self.serial_ps = np.array(
            [[transfer_ps(int(size), rate) for size in posting.size_bytes] for rate in wiring.rate_gbit_s], np.int64
        )
        popular = np.sort(np.argsort(-posting.size_packets, kind="stable")[: SERIAL_LINES // len(wiring.rate_gbit_s)])
        serial = self._lines_of(kinds, PacketEvent.LINK_FREE, self.serial_ps[:, popular])
        self.serial_line = np.full(self.serial_ps.shape, NONE, np.int32)
        self.serial_line[:, popular] = serial
        credit_ps, arrival_ps = _rounded(wiring.credit_ps, plugged), _rounded(wiring.arrival_ps, plugged)
        buffers.credit_line = self._lines_of(kinds, PacketEvent.CREDIT, credit_ps)
        ports.wire_line = self._lines_of(kinds, PacketEvent.ARRIVAL, arrival_ps)
        posting.hosts.ack_line = self._lines_of(kinds, PacketEvent.CONTROL, posting.ack_ps)
        self.ready_line = len(kinds)
        kinds.append((PacketEvent.READY, 0))
        self.lines = records(len(kinds), DELAY_LINE)
        self.lines.kind, self.lines.delay_ps = [kind for kind, _ in kinds], [delay for _, delay in kinds]
        self._fill(posting.messages)

    @staticmethod
    def _lines_of(
        kinds: list[tuple[PacketEvent, int]], kind: PacketEvent, delays_ps: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Add a line for each delay and return the line of each."""
        unique, line = np.unique(delays_ps, return_inverse=True)
        begin = len(kinds)
        kinds.extend((kind, int(delay)) for delay in unique)
        return begin + line.reshape(delays_ps.shape)

    def _fill(self, messages: Records) -> None:
        """Give every line a chunk, and put the messages without dependencies in the last line, by time."""
        ready_ps = messages.start_ps + messages.lead_ps
        free = np.flatnonzero(messages.waits_for == 0)
        free = free[np.argsort(ready_ps[free], kind="stable")]
        n_lines = len(self.lines)
        used = n_lines + len(free) // CHUNK_EVENTS
        total = used + 8 * ROOM
        self.events = records(total * CHUNK_EVENTS, EVENT)
        self.next_chunk = np.arange(1, total + 1, dtype=np.int32)
        self.free_chunk, self.free_chunks = used, total - used
        self.lines.head = self.lines.tail = np.arange(n_lines) * CHUNK_EVENTS
        begin = (n_lines - 1) * CHUNK_EVENTS
        self.events.time_ps[begin : begin + len(free)] = ready_ps[free]
        self.events.a[begin : begin + len(free)] = free
        self.lines.tail[self.ready_line] += len(free)
        width = 1 << (n_lines - 1).bit_length()
        self.tree = np.full(2 * width, EMPTY, np.int64)
        if len(free):  # the only busy line wins at every level
            node = width + self.ready_line
            while node:
                self.tree[node] = (int(ready_ps[free[0]]) << DELAY_LINE_BITS) | self.ready_line
                node >>= 1


def _rounded(delays_ps: NDArray[np.int64], plugged: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Round delays only as far as needed to fit all lines."""
    step, rounded = 1, delays_ps
    while len(np.unique(rounded[plugged])) > WIRE_LINES:
        step = 1000 if step == 1 else 2 * step
        rounded = np.rint(delays_ps / step).astype(np.int64) * step
    return rounded
