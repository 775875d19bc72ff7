"""The fabric as the kernels see it: ports, queues, delays, tables. Names are translated to indices here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.faults import slow
from weft.fabric.joined import joined_links
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, speeds
from weft.fabric.timing import timings
from weft.sim.engine import Switching
from weft.sim.layout.records import BLOCK_BYTES, NONE, PLUG, Records, records
from weft.sim.layout.rules import Rules
from weft.sim.link_faults import LinkFault

UNKNOWN_LENGTH_M = 5.0  # for a cable without a recorded length
_COPPER = (Medium.DAC, Medium.ACC)


@dataclass(frozen=True, kw_only=True, eq=False)
class Wiring:
    """The ports of hosts and switches, numbered densely, with the properties of their links."""

    fabric: Fabric
    ports: Records  # PLUG records
    slot: NDArray[np.int64]  # [port] -> slot in the fabric
    first: NDArray[np.int64]  # [port] -> port 0 of the same node
    host: NDArray[np.int64]  # [port] -> host, NONE
    port_of_slot: NDArray[np.int64]  # [slot] -> port, NONE
    host_ports: NDArray[np.int64]  # [host] -> port
    switch_nodes: NDArray[np.int64]  # [switch row] -> node
    rate_gbit_s: NDArray[np.float64]  # [rate] -> for packets
    arrival_ps: NDArray[np.int64]  # [port] -> from its first byte sent until it arrives at the far end
    credit_ps: NDArray[np.int64]  # [port] -> for a credit update to the far end

    @property
    def port_rate_gbit_s(self) -> NDArray[np.float64]:
        rates: NDArray[np.float64] = self.rate_gbit_s[self.ports.rate]
        return rates

    def name(self, port: int) -> str:
        return self.fabric.port(int(self.slot[port])).name

    def by_slot(self, column: NDArray[Any]) -> NDArray[np.int64]:
        """Return a column by port as a column by slot of the fabric; 0 for slots outside the run."""
        by_slot = np.zeros(len(self.fabric.ports), np.int64)
        by_slot[self.slot] = column
        return by_slot


def make_wiring(fabric: Fabric, rules: Rules, switching: Switching, more_gbit_s: Sequence[float] = ()) -> Wiring:
    """Lay out the ports of the rules' technology, and those of GPUs connected inside their servers.

    more_gbit_s: rates that no link has at the start of the run.
    """
    kind = fabric.nodes.kind
    link_used = fabric.links_of(rules.technology) | joined_links(fabric)
    slots = _slots(fabric, link_used)
    port_of_slot = np.full(len(fabric.ports), NONE, np.int64)
    port_of_slot[slots] = np.arange(len(slots))
    ports = records(len(slots), PLUG)
    node = fabric.ports.node[slots]
    link = fabric.ports.link[slots]
    plugged = (link >= 0) & link_used[link]
    ports.peer = np.where(plugged, port_of_slot[np.where(plugged, fabric.ports.peer[slots], 0)], NONE)
    is_switch = kind[node] == NodeKind.SWITCH
    hosts = np.flatnonzero(~is_switch & plugged)
    ports.owner = fabric.tables.switch_row[node]
    ports.owner[hosts] = -1 - np.arange(len(hosts))
    link_gbit_s = packet_rates(fabric)
    _refuse_dead_links(fabric, link_used, link_gbit_s)
    rates = np.unique(np.concatenate((link_gbit_s, more_gbit_s)))
    ports.rate = np.where(plugged, np.searchsorted(rates, link_gbit_s[link]), 0)
    cable_ps, fec_ps = _cable_ps(fabric), _fec_ps(fabric)
    switch_ps = _switch_ps(fabric, rules.technology)
    peer_node = fabric.ports.node[np.where(plugged, fabric.ports.peer[slots], 0)]
    to_switch = kind[peer_node] == NodeKind.SWITCH
    processing_ps = np.where(to_switch, switch_ps[peer_node], fec_ps[link])
    ports.cut_through = (to_switch & (switching is Switching.CUT_THROUGH)).astype(np.int8)
    error_rate = np.where(plugged, fabric.receive_error_rate[slots], 0)
    ports.bytes_per_error = np.where(error_rate > 0, 1 / np.maximum(error_rate, 1e-300) / 8, 0)
    return Wiring(
        fabric=fabric,
        ports=ports,
        slot=slots,
        first=port_of_slot[fabric.first_port[node]],
        host=np.where(ports.owner < 0, -1 - ports.owner, NONE),
        port_of_slot=port_of_slot,
        host_ports=hosts,
        switch_nodes=fabric.of_kind(NodeKind.SWITCH).astype(np.int64),
        rate_gbit_s=rates,
        arrival_ps=np.where(plugged, cable_ps[link] + processing_ps, 0),
        credit_ps=np.where(plugged, cable_ps[link] + fec_ps[link], 0),
    )


def _slots(fabric: Fabric, link_used: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the port slots of all switches, and of adapters with a cable of this technology."""
    kind, port_node = fabric.nodes.kind, fabric.ports.node
    used = np.zeros(len(fabric.nodes), bool)
    for ends in (fabric.links.a, fabric.links.b):
        used[port_node[ends[link_used]]] = True
    used &= np.isin(kind, (NodeKind.SWITCH, NodeKind.HCA, NodeKind.ROUTER, NodeKind.AGGREGATION))
    return np.flatnonzero(used[port_node])


def packet_rates(fabric: Fabric) -> NDArray[np.float64]:
    """Return the rate in Gbit/s that packets with headers can use ([link])."""
    overhead = np.array([timings().of_line(speed.name).overhead for speed in speeds()])
    rates: NDArray[np.float64] = fabric.link_rate_gbit_s * (1 - overhead[fabric.links.speed])
    return rates


def rate_under(fabric: Fabric, fault: LinkFault) -> float:
    """Return the packet rate of a link under a fault; a cut cable keeps its rate."""
    port = fabric.find_port(fault.port)
    if port.link is None:
        raise ConfigError(f"--fault {fault.text}: {fault.port} has no cable")
    slowed = slow(fabric, fault.port, fault.label) if fault.label else fabric
    return float(packet_rates(slowed)[port.link.index])


def _refuse_dead_links(fabric: Fabric, used: NDArray[np.bool_], gbit_s: NDArray[np.float64]) -> None:
    dead = np.flatnonzero(used & ~(gbit_s > 0))
    if len(dead):
        raise ConfigError(f"link {fabric.link(int(dead[0]))} has a rate of 0: remove it with faults.remove_link")


def _cable_ps(fabric: Fabric) -> NDArray[np.int64]:
    """Return the propagation delay of each link, in whole nanoseconds."""
    per_m = {cable.medium: cable.delay_ns_per_m for cable in catalog.cables()}
    copper, fibre = per_m[Medium.DAC], per_m[Medium.AOC]
    ns_per_m = np.where(np.isin(fabric.links.medium, _COPPER), copper, fibre)
    known_m = fabric.links.length_m.astype(np.float64)
    length_m = np.where(known_m > 0, known_m, UNKNOWN_LENGTH_M)
    cable_ns: NDArray[np.int64] = np.rint(length_m * ns_per_m).astype(np.int64)
    return cable_ns * 1000


def _fec_ps(fabric: Fabric) -> NDArray[np.int64]:
    """Return the delay of error correction at the receiver of each link."""
    fec_ns = np.array([timings().of_line(speed.name).fec_ns for speed in speeds()])
    fec_ps: NDArray[np.int64] = np.rint(fec_ns[fabric.links.speed] * 1000).astype(np.int64)
    return fec_ps


def _switch_ps(fabric: Fabric, technology: Technology) -> NDArray[np.int64]:
    """Return the port-to-port delay of each switch ([node])."""
    by_model = [timings().switch_ns(model, technology) for model in fabric.models]
    ns = np.array([*by_model, timings().switch_ns("", technology)])  # index -1 is the unknown model
    switch_ps: NDArray[np.int64] = np.rint(ns[fabric.nodes.model] * 1000).astype(np.int64)
    return switch_ps


def whole_blocks(size_bytes: NDArray[Any]) -> NDArray[np.int64]:
    """Round up to blocks of credit."""
    return -(-np.asarray(size_bytes, np.int64) // BLOCK_BYTES) * BLOCK_BYTES
