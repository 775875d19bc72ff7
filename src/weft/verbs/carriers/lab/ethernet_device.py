"""Provide the Ethernet devices of a lab host: RoCE v2 at the IPv4 address that the lab has given the port.

The address is the GID, at the four indices where programs for mlx5 look for one. Addresses of the lab's Ethernet ports
are 127.2.0.1, 127.2.0.2, ...; those of hosts, 127.1.0.1 and so on, stand for the host's first port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.verbs.carriers.lab.ethernet_carrier import EthernetCarrier
from weft.verbs.carriers.lab.ethernet_facts import EthernetFacts
from weft.verbs.carriers.lab.ethernet_frames import is_ipv4
from weft.verbs.carriers.lab.host_device import HostDevice
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.enums import IBV_GID_TYPE_ROCE_V2

if TYPE_CHECKING:
    from weft.verbs.attributes.address import AHAttr


class EthernetDevice(HostDevice[EthernetCarrier]):
    """A device with one Ethernet port of a lab host's adapter."""

    def _attach(self) -> EthernetCarrier:
        return EthernetCarrier(*self._take_port(EthernetFacts.unpack))

    def gid_type(self, index: int) -> int:
        return IBV_GID_TYPE_ROCE_V2

    # -- addresses ----------------------------------------------------------------------------------------------------

    def wrong_address(self, address: AHAttr) -> str:
        if not address.is_global:
            return "the port is Ethernet, where an address needs a global route (is_global=1, gr=...)"
        if address.route.sgid_index >= len(self._facts().gids):
            return f"sgid_index {address.route.sgid_index}: the port has no such GID"
        peer = int.from_bytes(address.route.raw_dgid, "big")
        return "" if is_ipv4(peer) else f"{address.dgid} is no IPv4 address: an Ethernet port reaches Ethernet ports"

    def address_vector(self, address: AHAttr) -> AddressVector:
        route = address.route
        return AddressVector(0, self._gids(address), hop_limit=route.hop_limit, traffic_class=route.traffic_class)

    def _own_gid(self) -> int:
        return self._carrier.facts.gid
