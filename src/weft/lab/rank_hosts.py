"""For jobs whose ranks are programs on hosts: which there are, with which adapters, and what their ports count."""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass

from weft.collectives.ranks import adapters_by_host
from weft.fabric import counters
from weft.fabric.kinds import NodeKind
from weft.lab.adapters import first_adapters, local_name
from weft.lab.planes import leading_port
from weft.mad.devices import Devices
from weft.wire.port_info import PortInfo, PortState

_BEFORE_FIRST = ipaddress.IPv4Address("127.1.0.0")  # as programs for rdma_cm reach hosts; TCP too
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RankHost:
    """A host, and for each rank that it takes its adapter and the state of that one's port."""

    name: str
    address: str
    adapters: tuple[str, ...]
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortCounts:
    port: str
    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int


def rank_hosts(devices: Devices) -> list[RankHost]:
    """Return a rank for each GPU, or for each adapter without GPUs, in the fabric's order."""
    numbers = {_owner(devices, node): number for number, node in enumerate(first_adapters(devices), 1)}
    local_names = _local_names(devices)
    hosts = []
    for host, nodes in adapters_by_host(devices.fabric).items():
        states = (PortInfo.port_state.get(devices.info(leading_port(devices, devices.slot(node, 1)))) for node in nodes)
        hosts.append(
            RankHost(
                name=host,
                address=str(_BEFORE_FIRST + numbers[host]),
                adapters=tuple(local_names[node] for node in nodes),
                states=tuple(PortState(state).name.capitalize() for state in states),
            )
        )
    return hosts


def _hcas(devices: Devices) -> list[int]:
    return [node for node in devices.nodes if devices.fabric.nodes.kind[node] == NodeKind.HCA]


def _owner(devices: Devices, node: int) -> str:
    """Return the host of an adapter."""
    fabric = devices.fabric
    server = fabric.nodes.server[node]
    return fabric.servers[server] if server >= 0 else fabric.nodes.name[node]


def _local_names(devices: Devices) -> dict[int, str]:
    """Return the local names of all adapters."""
    names: dict[int, str] = {}
    so_far: Counter[str] = Counter()
    for node in _hcas(devices):
        owner = _owner(devices, node)
        names[node] = local_name(devices, node, so_far[owner])
        so_far[owner] += 1
    return names


def port_counts(devices: Devices) -> dict[str, list[PortCounts]]:
    """Return the counts of all cabled adapter ports, by host."""
    counts: dict[str, list[PortCounts]] = {}
    for node in _hcas(devices):
        ports = [slot for slot in devices.ports_of(node) if devices.cable[slot] >= 0]
        counts.setdefault(_owner(devices, node), []).extend(_counts(devices, slot) for slot in ports)
    return counts


def _counts(devices: Devices, slot: int) -> PortCounts:
    counted, column = devices.counters(slot), counters.Counter
    return PortCounts(
        port=devices.name(slot),
        sent_bytes=counted[column.PORT_XMIT_DATA_WORDS] * _WORD_BYTES,
        received_bytes=counted[column.PORT_RCV_DATA_WORDS] * _WORD_BYTES,
        sent_packets=counted[column.PORT_XMIT_PKTS],
        received_packets=counted[column.PORT_RCV_PKTS],
    )
