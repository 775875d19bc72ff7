"""Hosts as the kernels see them: the costs of an adapter in a server, or of a GPU on NVLink or PCIe."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, parse_label
from weft.fabric.timing import timings
from weft.sim.engine import Memory, Options
from weft.sim.layout.records import HOST, NONE, FlowControl, Records, records
from weft.sim.layout.rules import Rules
from weft.sim.layout.wiring import Wiring

FASTEST = 1e9  # Gbit/s; no limit


def make_hosts(wiring: Wiring, options: Options, rules: Rules) -> tuple[Records, dict[str, NDArray[np.int64]]]:
    """Return the HOST records, and the costs of a queue pair by host."""
    ports = wiring.host_ports
    fabric = wiring.fabric
    nodes = fabric.ports.node[wiring.slot[ports]]
    adapter = np.column_stack((fabric.nodes.model[nodes], _template_of_server(fabric)[fabric.nodes.server[nodes]]))
    unique, kind = np.unique(adapter, axis=0, return_inverse=True)
    names = (*fabric.models, "")  # index -1 is the unknown model
    costs = [_host_cost(names[model], names[template], options, rules, fabric.planes) for model, template in unique]
    cost = {name: np.array([each[name] for each in costs], np.int64)[kind.ravel()] for name in costs[0]}
    hosts = records(len(ports), HOST)
    hosts.port = ports
    wire_ps_per_kib = 1024 * 8_000 / wiring.port_rate_gbit_s[ports]
    slower = cost["memory_ps_per_kib"] > wire_ps_per_kib
    hosts.ps_per_kib = hosts.receive_ps_per_kib = np.where(slower, cost["memory_ps_per_kib"], 0)
    return hosts, cost


def _template_of_server(fabric: Fabric) -> NDArray[np.int64]:
    """Return the template of each server, the model of its processors ([server]); the last entry is for no server."""
    templates = np.full(len(fabric.servers) + 1, NONE, np.int64)
    cpus = fabric.of_kind(NodeKind.CPU)
    templates[fabric.nodes.server[cpus]] = fabric.nodes.model[cpus]
    templates[-1] = NONE
    return templates


def _host_cost(model: str, template: str, options: Options, rules: Rules, planes: int) -> dict[str, int]:
    """Return the costs in picoseconds of an adapter model in a server type, or of a GPU on NVLink or PCIe.

    Planes share the PCIe slot of their adapter: where it is slower than all of them, each has its part.
    """
    adapter = next((card for card in catalog.adapters() if card.name == model), None)
    gpu = next((card for card in catalog.gpus() if card.name == model), None)
    is_gpu, technology = gpu is not None, rules.technology
    if gpu is not None:
        technology = Technology.NVLINK if gpu.nvlinks else Technology.PCIE
    timing = timings().of_adapter(model, technology, template)
    memory, pcie = timings().memory[Memory.HOST if is_gpu else options.memory], timings().pcie
    pcie_gbit_s = FASTEST
    if adapter is not None:
        speed, width = parse_label(_slot(adapter, template))
        pcie_gbit_s = speed.rate_gbit_s(width)
        if pcie_gbit_s * pcie.stream < adapter.rate_gbit_s:
            pcie_gbit_s /= planes
    memory_gbit_s = min(pcie_gbit_s * pcie.stream, memory.gbit_s or FASTEST)
    if rules.flow is FlowControl.DROP and not is_gpu:
        tcp = timings().tcp
        ns = {"post": tcp.send_ns, "inline": 0, "read": 0, "gap": tcp.gap_ns, "setup": 0, "receive": tcp.receive_ns}
        ns |= {"ack": 500, "respond": 0, "packet": tcp.packet_ns, "receive_packet": tcp.receive_packet_ns}
        read_gbit_s, lone_gbit_s, inline_bytes = min(tcp.copy_gbit_s, memory_gbit_s), FASTEST, 0
    else:
        ns = {"post": timing.post_ns, "read": timing.read_ns, "gap": timing.gap_ns, "setup": timing.setup_ns}
        ns |= {"receive": timing.receive_ns, "ack": timing.ack_ns, "respond": timing.respond_ns}
        ns |= {"inline": timing.inline_ns, "packet": 0, "receive_packet": 0}
        read_gbit_s, lone_gbit_s, inline_bytes = memory_gbit_s, pcie_gbit_s * pcie.lone, timing.inline_bytes
    ns["memory"] = memory.latency_ns
    ns["receive"] += memory.latency_ns
    cost = {f"{name}_ps": round(value * 1000) for name, value in ns.items()}
    for name, gbit_s in (("read", read_gbit_s), ("memory", memory_gbit_s), ("lone", lone_gbit_s)):
        cost[f"{name}_ps_per_kib"] = round(1024 * 8_000 / gbit_s)
    return cost | {"inline_bytes": inline_bytes}


def _slot(card: catalog.Adapter, template: str) -> str:
    """Return the PCIe link of the card to its server; servers outside the catalog have slots for any card."""
    return catalog.server(template).slot(card) if catalog.is_server(template) else card.pcie_per_port
