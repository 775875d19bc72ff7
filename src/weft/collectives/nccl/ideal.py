"""An ideal network in closed form: every adapter at its rate, a number of switches between any two servers.

For a real fabric, with its routes and faults, `weft.collectives.nccl.measure` has the same figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.graphs import search
from weft.collectives.nccl.network import Network, Networks, Pattern
from weft.collectives.nccl.times import times
from weft.errors import ConfigError, find_named
from weft.fabric import catalog
from weft.fabric.rates import Technology, parse_label, speeds
from weft.fabric.timing import LineTiming, timings
from weft.sim import engine as sim
from weft.sim.layout.rules import RULES
from weft.units import gbyte_s

_CABLE_NS = 25  # 5 m, as the engines assume without a length
_SWITCHES = {Technology.INFINIBAND: "QM9700"}  # which stands for all; others by timing.toml


TCP = "TCP"
FABRICS = {
    sim.Network.INFINIBAND: "InfiniBand",
    sim.Network.OMNI_PATH: "Omni-Path",
    sim.Network.ROCE: "RoCE",
    sim.Network.ROCE_V1: "RoCE",
    sim.Network.TCP: TCP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpNetwork(Network):
    """A network through the kernel: NCCL's threads copy, and post to no adapter."""

    fabric: str = TCP


def ideal_networks(
    cluster: Cluster,
    *,
    network: str = "infiniband",
    speed: str = "",
    adapter: str = "",
    transport: str = "",
    switches: int = 1,
    cloud: bool = False,
) -> Networks:
    """Return the figures of an ideal network for every pattern: `infiniband`, `roce`, `tcp` or `omni-path`.

    speed: the line, `NDR` or `400GbE`, if it differs from the rate that NCCL sees.
    adapter: a card in timing.toml; by default that of the `transport` in fabrics.toml, or that of the network.
    cloud: virtual machines on Ethernet, whose steps are longer; on InfiniBand they are not.
    """
    if cluster.nodes < 2:
        raise ConfigError(f"{cluster}: a network is between two nodes or more")
    kind = find_named("network", network, {str(each): each for each in FABRICS})
    rules = RULES[kind]
    rate_gbit_s, line = _line(cluster, rules.technology, speed)
    payload = rules.mtu_bytes / (rules.mtu_bytes + rules.header_bytes)
    adapter_gbyte_s = gbyte_s(rate_gbit_s * (1 - line.overhead) * payload)
    switch_ns = timings().switch_ns(_SWITCHES.get(rules.technology, ""), rules.technology)
    between_us = (switches * switch_ns + (switches + 1) * (_CABLE_NS + line.fec_ns)) / 1000
    carried = transport or transport_of(adapter)
    if cloud and rules.technology is Technology.ETHERNET and not _is_virtual(carried):
        between_us += times().network.cloud_ethernet_us
    between: Network
    if kind is sim.Network.TCP:
        tcp, connections = timings().tcp, max(1, search(cluster).channels(cluster) // cluster.nics)
        between = TcpNetwork(
            step_us=between_us + (tcp.send_ns + tcp.receive_ns) / 1000,
            adapter_gbyte_s=min(adapter_gbyte_s, tcp_gbyte_s(connections)),
        )
    else:
        ends = timings().of_adapter(adapter or _card_of(carried), rules.technology)
        step_us = between_us + (ends.post_ns + ends.receive_ns) / 1000
        between = Network(step_us=step_us, adapter_gbyte_s=adapter_gbyte_s, fabric=FABRICS[kind], transport=carried)
    return dict.fromkeys(Pattern, between)


def _line(cluster: Cluster, technology: Technology, speed: str) -> tuple[float, LineTiming]:
    """Return the rate and the overhead of the line: of the named speed, or of the one with the adapters' rate."""
    if speed:
        line_speed, width = parse_label(speed)
        return line_speed.rate_gbit_s(width), timings().of_line(line_speed.name)
    same = [
        entry.name
        for entry in speeds()
        if entry.technology is technology and abs(entry.rate_gbit_s() / cluster.nic_gbit_s - 1) < 0.01
    ]
    return cluster.nic_gbit_s, timings().of_line(same[0] if same else "")


def tcp_gbyte_s(connections: int) -> float:
    """Return the rate in each direction with both in use: one thread copies in and out for a connection."""
    return connections * gbyte_s(timings().tcp.copy_gbit_s) / times().network.tcp_directions


def transport_of(adapter: str) -> str:
    """Return the transport of NCCL's messages over this adapter, if it is neither RDMA nor sockets."""
    return next((entry.transport for entry in catalog.interconnects() if adapter and entry.adapter == adapter), "")


def _is_virtual(transport: str) -> bool:
    """Return whether the times of a transport's adapter include the delay of virtual machines."""
    return any(entry.virtual for entry in catalog.interconnects() if entry.transport == transport)


def _card_of(transport: str) -> str:
    if not transport:
        return ""
    cards = {entry.transport: entry.adapter for entry in reversed(catalog.interconnects()) if entry.transport}
    return find_named("transport", transport, cards)
