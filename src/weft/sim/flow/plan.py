"""Translate a fabric and its traffic into flows over classes of links.

Messages, queue pairs, their costs and the checks of the input are those of the packet engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.sim.adaptive import POLICIES
from weft.sim.engine import Crossbar, Options
from weft.sim.flow.paths import list_hops, list_nodes, sign_links
from weft.sim.flow.state import CLASS, END, FLOW, PART, RUN, Net, State, make_nodes
from weft.sim.layout.paths import check_paths
from weft.sim.layout.posting import Posting, post
from weft.sim.layout.records import NONE, Records, Selection, distinct_rows, fill, records
from weft.sim.layout.rules import OVERTAKING, fill_in
from weft.sim.layout.wiring import Wiring, make_wiring
from weft.sim.packet.state import ENTRY
from weft.sim.traffic import Traffic

# A rate that would change by a smaller part stays. Measured on uniform traffic at load 0.8: latencies within 0.4 %,
# their mean within 0.003 %, in a third of the time (`benchmarks/flow.py`).
RATE_TOLERANCE = 0.005


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowPlan:
    """The state of a run, and the meaning of its indices."""

    options: Options  # with the defaults filled in
    wiring: Wiring
    posting: Posting
    net: Net
    state: State


def plan(fabric: Fabric, traffic: Traffic, options: Options) -> FlowPlan:
    """Check the input and return the initial state."""
    refused = find_packet_option(fabric, options)
    if refused:
        raise ConfigError(f"{refused} has no effect on flows: leave it out, or use --engine packet")
    options, rules = fill_in(fabric, options)
    if options.watch:
        raise ConfigError(f"{options.watch[0]} cannot be watched: the flow engine has no queues. Use --engine packet")
    picks = POLICIES[str(options.paths)].selection
    if picks is Selection.DETOUR:
        raise ConfigError(f"--paths {options.paths} depends on queues of packets: use --engine packet")
    if options.in_order and picks in OVERTAKING:
        raise ConfigError("--in-order with several paths is about packets that overtake: use weft sim --engine packet")
    if options.faults:
        raise ConfigError(f"--fault {options.faults[0]} is about packets: use --engine packet")
    if traffic.mlid.any() or traffic.reduction.any():
        raise ConfigError("the flow engine has no multicast and no reduction in switches: use --engine packet")
    if options.capture or options.crossbar is not Crossbar.OUTPUT_QUEUED:
        raise ConfigError("the flow engine has no packets to capture and no crossbar: use --engine packet")
    wiring = make_wiring(fabric, rules, options.switching)
    posting = post(wiring, traffic, options, rules)
    first_of_qp = np.empty(len(posting.qps), np.int64)
    first_of_qp[posting.messages.qp[::-1]] = np.arange(len(posting.messages))[::-1]
    check_paths(wiring, posting, options, first_of_qp)  # all messages of a queue pair take the same path
    net, capacity = _net(wiring, posting, picks, options.mtu_bytes + rules.header_bytes)
    nodes = _Nodes(wiring, net, capacity)
    state = _state(wiring, posting, net, nodes)
    return FlowPlan(options=options, wiring=wiring, posting=posting, net=net, state=state)


def find_packet_option(fabric: Fabric, options: Options) -> str:
    """Return the name of an option that changes packets only and is not at its default; empty if there is none."""
    for name in (
        "buffer_bytes",
        "skip_tolerance",
        "ack_timeout_exponent",
        "threads",
        "full_queue",
        "link_retry",
        "ack_every_bytes",
    ):
        if getattr(options, name) != getattr(Options(), name):
            return name
    if options.congestion_control is None:
        return ""
    usual = fill_in(fabric, replace(options, congestion_control=None))[0].congestion_control
    return "" if options.congestion_control == usual else "congestion_control"


def _net(wiring: Wiring, posting: Posting, picks: Selection, full_bytes: int) -> tuple[Net, NDArray[np.float64]]:
    """Return the tables for following a path, and the capacity of each link in bytes per picosecond.

    After the ports come more links: from each host's memory, to it, and the cores of each TCP connection.
    """
    tables, ports, qps, hosts = wiring.fabric.tables, wiring.ports, posting.qps, posting.hosts
    n_ports, n_hosts, n_flows = len(ports), len(hosts), len(qps)
    src, dst = hosts.port[qps.host], qps.dst
    far = wiring.host[dst]
    # For a full packet
    core_ps = np.maximum.reduce((qps.packet_ps, (full_bytes * qps.pace_ps_per_kib) >> 10, qps.receive_packet_ps))
    extra = np.column_stack(
        (
            np.where(hosts.ps_per_kib[qps.host] > 0, n_ports + qps.host, NONE),
            np.where(hosts.receive_ps_per_kib[far] > 0, n_ports + n_hosts + far, NONE),
            np.where(core_ps > 0, n_ports + 2 * n_hosts + np.arange(n_flows), NONE),
        )
    )
    per_host = (1024 / np.maximum(column, 1) for column in (hosts.ps_per_kib, hosts.receive_ps_per_kib))
    capacity = np.concatenate((wiring.port_rate_gbit_s / 8_000, *per_host, full_bytes / np.maximum(core_ps, 1)))
    switch_ports = np.flatnonzero(ports.owner >= 0)
    n_switches = int(ports.owner.max(initial=0)) + 1
    first = np.zeros(n_switches, np.int64)
    first[ports.owner[switch_ports]] = wiring.first[switch_ports]
    chooses = picks is not Selection.TABLE
    groups = tables.ar_ports if chooses else np.zeros((1, 1), np.bool_)
    lid = tables.lid[wiring.slot].astype(np.int32)
    return Net(
        selection=int(picks),
        peer=np.ascontiguousarray(ports.peer),
        owner=np.ascontiguousarray(ports.owner),
        first=first,
        lft=tables.lft if "lft" in vars(tables) else np.zeros((1, 1), np.uint8),
        group=tables.ar_group if chooses else np.zeros((1, 1), np.int32),
        group_first=np.concatenate(([0], np.cumsum(groups.sum(axis=1)))).astype(np.int64),
        group_ports=np.nonzero(groups)[1].astype(np.int32),
        src=src.astype(np.int32),
        dst=dst.astype(np.int32),
        slid=lid[src],
        dlid=lid[dst],
        hashed=qps.flow.astype(np.int64),
        extra=extra.astype(np.int32),
        links=np.zeros(len(capacity), np.int32),
        share=np.zeros(len(capacity)),
        mass=np.zeros((2, n_switches)),
        front=np.zeros((2, n_switches), np.int32),
    ), capacity


class _Nodes:
    """The classes of links with equal flows, and the lists of flows on them."""

    def __init__(self, wiring: Wiring, net: Net, capacity: NDArray[np.float64]) -> None:
        n_flows = len(net.src)
        signs = np.zeros((len(capacity), 2))
        lost = sign_links(net, np.random.default_rng(0).random((n_flows, 2)) + 0.5, signs)
        if lost >= 0:
            src, dst = (wiring.name(int(ends[lost])) for ends in (net.src, net.dst))
            raise ConfigError(
                f"no route: the port groups from {src} to {dst} do not all lead to it. Route the fabric again"
            )
        used = np.flatnonzero(signs[:, 0] > 0)
        _refuse_losses(wiring, used)
        unique, of = distinct_rows(signs[used])
        class_of = np.full(len(capacity), NONE, np.int32)
        class_of[used] = of
        self.classes = records(len(unique), CLASS)
        self.classes.capacity = np.inf
        np.minimum.at(self.classes.capacity, of, capacity[used])
        self.classes.head = self.classes.place = NONE
        self.first = np.zeros(n_flows + 1, np.int64)
        self.of, self.share = np.zeros(0, np.int32), np.zeros(0)
        for writes in (False, True):
            last_flow = np.full(len(unique), NONE, np.int32)
            list_nodes(net, class_of, last_flow, self.first, self.of, self.share, writes)
            if not writes:
                self.of, self.share = np.zeros(self.first[-1], np.int32), np.zeros(self.first[-1])

    def alone(self) -> NDArray[np.float64]:
        """Return the rate of each flow on an idle network ([flow])."""
        slowest: NDArray[np.float64] = np.minimum.reduceat(self.classes.capacity[self.of] / self.share, self.first[:-1])
        return slowest


def _refuse_losses(wiring: Wiring, used: NDArray[np.int64]) -> None:
    bad = used[used < len(wiring.ports)]
    bad = bad[wiring.ports.bytes_per_error[wiring.ports.peer[bad]] > 0]
    if len(bad):
        raise ConfigError(
            f"the cable of {wiring.name(int(bad[0]))} has bit errors, which the flow engine "
            f"does not model: use --engine packet"
        )


def _hops(net: Net, src: NDArray[np.int32], dst: NDArray[np.int32], lid: NDArray[np.int32]) -> tuple[Records, Records]:
    """Return the index where the hops of each flow begin ([flow + 1]), and the port of each hop."""
    first, port = np.zeros(len(src) + 1, np.int64), np.zeros(0, np.int32)
    for writes in (False, True):
        list_hops(net, src, dst, lid, first, port, writes)
        if not writes:
            port = np.zeros(first[-1], np.int32)
    return first, port


def _state(wiring: Wiring, posting: Posting, net: Net, nodes: _Nodes) -> State:
    messages, n_flows = posting.messages, len(posting.qps)
    serial_ps = np.rint(posting.size_bytes * 8_000 / wiring.rate_gbit_s[:, None]).astype(np.int64)
    hop_first, hop_port = _hops(net, net.src, net.dst, net.dlid)
    free = np.flatnonzero(messages.waits_for == 0)
    ready_ps = messages.start_ps[free] + messages.lead_ps[free]
    order = np.argsort(ready_ps, kind="stable")
    run = records(1, RUN)
    run.left, run.tolerance, run.slots = len(messages), RATE_TOLERANCE, NONE
    run.batch_ps = serial_ps[:, posting.size_bytes.argmax()].min()
    return State(
        run=run,
        messages=messages,
        qps=posting.qps,
        flows=_flows(wiring, posting, net, nodes, serial_ps[:, posting.ack_size]),
        classes=nodes.classes,
        agenda=records(len(messages) + n_flows + 1, ENTRY),
        ready=free[order].astype(np.int32),
        ready_ps=ready_ps[order],
        ends=records(n_flows, END),
        changed=np.zeros(n_flows, np.int32),
        started=np.zeros(n_flows, np.int32),
        chosen=np.zeros(n_flows, np.int32),
        touched=np.zeros(len(nodes.classes), np.int32),
        levels=np.zeros(len(nodes.classes), np.int32),
        node_first=nodes.first,
        **make_nodes(nodes.first, nodes.of, nodes.share),
        parts=records(len(nodes.classes), PART),
        part_rate=np.zeros(len(nodes.classes)),
        part_least=np.zeros(len(nodes.classes)),
        open_flow=np.zeros(n_flows, np.int32),
        open_node=np.zeros(n_flows, np.int64),
        open_first=np.zeros(n_flows + 1, np.int64),
        open_link=np.zeros(len(nodes.of), np.uint32),
        open_share=np.zeros(len(nodes.of)),
        open_rate=np.zeros(n_flows),
        open_held=np.zeros(n_flows, np.int64),
        hop_first=hop_first,
        hop_rate=wiring.ports.rate[hop_port].astype(np.int32),
        hop_ps=wiring.arrival_ps[hop_port],
        hop_cut=wiring.ports.cut_through[hop_port],
        free_ps=np.zeros(int(np.diff(hop_first).max()), np.int64),
        serial_ps=serial_ps,
        size_bytes=posting.size_bytes.astype(np.int64),
        spreads=net.selection == Selection.BY_PACKET,
        successor_first=posting.successor_first,
        successors=posting.successors,
    )


def _flows(wiring: Wiring, posting: Posting, net: Net, nodes: _Nodes, ack_serial_ps: NDArray[np.int64]) -> Records:
    """Return the FLOW records with the costs at both ends."""
    qps, hosts = posting.qps, posting.hosts
    far = wiring.host[net.dst]
    flows = records(len(qps), FLOW)
    first, port = _hops(net, net.dst, net.src, net.slid)
    serial_ps = ack_serial_ps[wiring.ports.rate[port]]
    behind_ps = np.where(wiring.ports.cut_through[port], np.maximum(serial_ps - np.roll(serial_ps, -1), 0), serial_ps)
    ack_bytes = int(posting.size_bytes[posting.ack_size])
    back_ps = np.add.reduceat(wiring.arrival_ps[port] + behind_ps, first[:-1])
    taken_ps = (ack_bytes * hosts.receive_ps_per_kib[qps.host]) >> 10
    fill(
        flows,
        message=NONE,
        place=NONE,
        bottleneck=NONE,
        alone=nodes.alone(),
        pace_ps_per_kib=np.maximum(hosts.ps_per_kib[qps.host], qps.pace_ps_per_kib),
        packet_ps=qps.packet_ps,
        receive_packet_ps=qps.receive_packet_ps,
        take_ps_per_kib=hosts.receive_ps_per_kib[far],
        receive_ps=hosts.receive_ps[far],
        ack_ps=posting.ack_ps[far] + back_ps + taken_ps + qps.receive_packet_ps,
    )
    return flows
