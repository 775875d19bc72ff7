"""Small fabrics with chosen cables, and the times of their parts, from the catalog and the links."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from weft.fabric import catalog
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.rates import Technology, parse_label, speeds
from weft.fabric.timing import timings
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic

MTU_BYTES = 4096
HEADERS = 8 + 12 + 4 + 2  # LRH, BTH, ICRC, VCRC
RETH = 16  # on the first packet of a write, and on a read's request
ACK_BYTES = HEADERS + 4  # AETH


class Arithmetic:
    """The physics of a fabric. Links are named by a port at either end, all times are picoseconds."""

    mtu_bytes, headers, reth, ack_bytes = MTU_BYTES, HEADERS, RETH, ACK_BYTES

    def __init__(self, fabric):
        self.fabric = fabric

    def _line(self, port):
        speed = speeds()[self.fabric.links.speed[self.fabric.find_port(port).link.index]]
        return speed, timings().of_line(speed.name)

    def serial_ps(self, port, wire_bytes):
        speed, line = self._line(port)
        width = int(self.fabric.links.width[self.fabric.find_port(port).link.index])
        return round(wire_bytes * 8_000 / (speed.lane_gbit_s * width * (1 - line.overhead)))

    def data_ps(self, port, payload_bytes=MTU_BYTES):
        """Return the serialisation time of a packet without extended headers."""
        return self.serial_ps(port, -(-payload_bytes // 4) * 4 + HEADERS)

    def cable_ps(self, port):
        link = self.fabric.find_port(port).link.index
        medium = Medium(int(self.fabric.links.medium[link]))
        sold = Medium.DAC if medium in (Medium.DAC, Medium.ACC) else Medium.AOC
        ns_per_m = next(cable.delay_ns_per_m for cable in catalog.cables() if cable.medium == sold)
        return round(float(self.fabric.links.length_m[link]) * ns_per_m) * 1000

    def fec_ps(self, port):
        return round(self._line(port)[1].fec_ns * 1000)

    def switch_ps(self, switch):
        return round(timings().switch_ns(self._model(switch), Technology.INFINIBAND) * 1000)

    def hop_ps(self, port):
        """Return the time from the first byte that leaves a port until the far end can handle it."""
        far = self.fabric.find_port(port).peer.node
        at_switch = far.kind is NodeKind.SWITCH
        return self.cable_ps(port) + (self.switch_ps(far.name) if at_switch else self.fec_ps(port))

    def path_ps(self, *ports):
        """Return the time of wires, switches and the last receiver's error correction, without serialisation."""
        return sum(self.hop_ps(port) for port in ports)

    def word_ps(self, port):
        """Return the time of a credit update to the other end of the link."""
        return self.cable_ps(port) + self.fec_ps(port)

    def _model(self, node):
        index = self.fabric.nodes.model[self.fabric.find_node(node).index]
        return self.fabric.models[index] if index >= 0 else ""

    def _adapter(self, host):
        return timings().of_adapter(self._model(host), Technology.INFINIBAND)

    def lead_ps(self, host, payload_bytes):
        """Return the time from the doorbell until the first byte can leave, to a host of the same kind.

        Small payloads come with the doorbell. Of others the first packet is read alone, and written alone at the far
        end; nothing in between depends on when.
        """
        cost = self._adapter(host)
        if payload_bytes <= cost.inline_bytes:
            return round(1000 * cost.post_ns) + payload_bytes * round(1000 * cost.inline_ns)
        lone_ps = min(payload_bytes, MTU_BYTES) * 2 * self._lone_ps_per_kib(host) >> 10
        return round(1000 * cost.post_ns) + round(1000 * cost.read_ns) + lone_ps

    def _lone_ps_per_kib(self, host):
        recorded = next((adapter for adapter in catalog.adapters() if adapter.name == self._model(host)), None)
        if recorded is None:
            return 0
        speed, width = parse_label(recorded.pcie_per_port)
        return round(1024 * 8_000 / (speed.rate_gbit_s(width) * timings().pcie.lone))

    def adapter_ps(self, host, name):
        return round(1000 * getattr(self._adapter(host), f"{name}_ns"))


def build_chain(switches, *, hosts=2, length_m=3.0, trunk_m=10.0, speed="NDR"):
    """Build hosts h1, h2, ... alternately at the two ends of a row of switches; adapters have no memory cost.

    Port 1 of a switch leads back to the switch before, port 2 on to the next.
    """
    builder = FabricBuilder(f"chain of {switches}")
    row = builder.add_nodes(NodeKind.SWITCH, [f"s{i + 1}" for i in range(switches)], n_ports=2 + hosts)
    ends = builder.add_nodes(NodeKind.HCA, [f"h{i + 1}" for i in range(hosts)], n_ports=1)
    for i, host in enumerate(ends):
        builder.add_links(host, 1, row[0] if i % 2 == 0 else row[-1], 3 + i, speed, length_m=length_m)
    for left, right in pairwise(row):
        builder.add_links(left, 2, right, 1, speed, length_m=trunk_m, medium=Medium.AOC)
    return route(builder.build()).fabric


def build_pair(*, length_m=3.0, speed="NDR"):
    """Build two adapters and a cable: without a switch there is no routing."""
    builder = FabricBuilder("back to back")
    ends = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
    builder.add_links(ends[0], 1, ends[1], 1, speed, length_m=length_m, medium=Medium.DAC)
    fabric = builder.build()
    fabric.tables.lid[np.flatnonzero(fabric.ports.peer >= 0)] = [1, 2]
    return fabric


def run_messages(fabric, messages, *, columns=None, **options):
    """Run (sender, receiver, bytes) triples."""
    traffic = Traffic.of(fabric, messages, **(columns or {}))
    return PacketEngine().run(fabric, traffic, Options(**options))


@pytest.fixture
def chain():
    return build_chain


@pytest.fixture
def pair():
    return build_pair


@pytest.fixture
def arithmetic():
    return Arithmetic


@pytest.fixture
def run():
    return run_messages
