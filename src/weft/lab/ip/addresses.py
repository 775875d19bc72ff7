"""IPv4 addresses of a lab's ports: 10.1.0.1 and so on on InfiniBand, 10.2.0.1 and so on on Ethernet."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.lab.adapters import Adapter, adapters_of
from weft.mad.devices import Devices

INFINIBAND, ETHERNET = 0x0A01_0000, 0x0A02_0000
PREFIX_BITS = 16
_HOSTS = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class IpPort:
    """A port of a host with its IPv4 address. `other_network`: how packets to the other network go on; 0: not here."""

    device: str
    is_ethernet: bool
    address: int
    gateway: int = 0


def ip_ports(devices: Devices, host: str) -> list[IpPort]:
    """Return the cabled ports of a host, with addresses and the gateway between both networks."""
    adapters = adapters_of(devices, host)
    if any(devices.is_switch[adapter.node] for adapter in adapters):
        raise ConfigError(f"{host} is a switch: --ip is for hosts")
    numbers = _infiniband_numbers(devices)
    own = [port for adapter in adapters for port in _ports_of(devices, adapter, numbers)]
    if not own:
        raise ConfigError(f"{host} has no cabled port: --ip needs one")
    if len({port.is_ethernet for port in own}) == 2:
        return own  # it is a gateway itself
    gateway = _gateway(devices, numbers)
    return [
        IpPort(
            device=port.device,
            is_ethernet=port.is_ethernet,
            address=port.address,
            gateway=gateway.get(port.is_ethernet, 0),
        )
        for port in own
    ]


def _infiniband_numbers(devices: Devices) -> dict[int, int]:
    """Return the number of each InfiniBand port of an adapter, from 1, in the fabric's order."""
    hcas = [node for node in devices.nodes if devices.fabric.nodes.kind[node] == NodeKind.HCA]
    slots = [slot for node in hcas for slot in devices.ports_of(node) if devices.cable[slot] >= 0]
    if len(slots) >= _HOSTS:
        raise ConfigError(
            f"{devices.fabric.spec} has {len(slots):,} InfiniBand ports: --ip has at most 65,534 addresses"
        )
    return {slot: number for number, slot in enumerate(slots, 1)}


def _ports_of(devices: Devices, adapter: Adapter, numbers: dict[int, int]) -> list[IpPort]:
    ports = []
    for port in range(adapter.first_port, adapter.last_port + 1):
        slot = devices.slot(adapter.node, port)
        name = adapter.name if port == adapter.first_port else f"{adapter.name}.{port}"
        if slot in devices.ethernet:
            address = ETHERNET | devices.ethernet.address[slot] & _HOSTS
            ports.append(IpPort(device=name, is_ethernet=True, address=address))
        elif slot in numbers:
            ports.append(IpPort(device=name, is_ethernet=False, address=INFINIBAND | numbers[slot]))
    return ports


def _gateway(devices: Devices, numbers: dict[int, int]) -> dict[bool, int]:
    """Return the addresses of the first host with ports of both kinds: on Ethernet (True) and on InfiniBand."""
    by_owner: dict[int | str, dict[bool, int]] = {}
    nodes = devices.fabric.nodes
    for slot, number in sorted([*numbers.items(), *((slot, 0) for slot in devices.ethernet.address)]):
        node = devices.node_of[slot]
        owner = int(nodes.server[node]) if nodes.server[node] >= 0 else nodes.name[node]
        is_ethernet = slot in devices.ethernet
        address = ETHERNET | devices.ethernet.address[slot] & _HOSTS if is_ethernet else INFINIBAND | number
        by_owner.setdefault(owner, {}).setdefault(is_ethernet, address)
    return next((both for both in by_owner.values() if len(both) == 2), {})
