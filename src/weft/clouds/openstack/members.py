"""Map Neutron networks to partitions and Neutron ports to members, from Neutron's dictionaries.

network     vlan on a physical network for weft     P_Key = segmentation id
port        bound, baremetal                        GUID = client-id, set by Ironic (extra_dhcp_opts)
            bound, direct or direct-physical        GUID = binding:profile's guid, client-id, or derived from the MAC
            anything else                           no member: ports of DHCP or routers are not on the fabric
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from weft.clouds.partitions import Partition
from weft.errors import ConfigError
from weft.ids import Guid
from weft.tenants.guids import guid_of_client_id, guid_of_mac

BARE_METAL = "baremetal"
MACHINES = ("direct", "direct-physical")
_NOT_BOUND = ("unbound", "binding_failed", None)
_CLIENT_ID = ("client-id", "61")  # DHCP option, by name and by number
_DIGITS = 20  # hexadecimal digits of the network's id; OpenSM reads 31 characters of a name
LONGEST_PREFIX = 31 - 1 - _DIGITS


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings for mapping networks to partitions."""

    physical_networks: frozenset[str]  # InfiniBand networks
    prefix: str = "neutron"  # prefix of partition names; identifies the owner
    ip_over_ib: bool = True
    index0: bool = False

    def p_key(self, segments: Iterable[Mapping[str, Any]]) -> int | None:
        """Return the P_Key of a network. Raise ConfigError if several of its segments are on InfiniBand."""
        ours = [
            segment["segmentation_id"]
            for segment in segments
            if segment["network_type"] == "vlan" and segment["physical_network"] in self.physical_networks
        ]
        if len(ours) > 1:
            raise ConfigError(f"a network has {len(ours)} segments on InfiniBand, {ours}; only one can be its P_Key")
        return ours[0] if ours else None

    def partition(self, network_id: str, segments: Iterable[Mapping[str, Any]]) -> Partition | None:
        """Return the partition of a network; None if the network is not on InfiniBand."""
        p_key = self.p_key(segments)
        if p_key is None:
            return None
        name = f"{self.prefix}-{network_id.replace('-', '')[:_DIGITS]}"
        return Partition(p_key=p_key, name=name, ip_over_ib=self.ip_over_ib, index0=self.index0)

    def is_ours(self, name: str) -> bool:
        """Return whether a partition's name is of a network of this Neutron."""
        return re.fullmatch(rf"{re.escape(self.prefix)}-[0-9a-f]{{{_DIGITS}}}", name) is not None


def segments_of(network: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the segments of a network in the API's form: one in its attributes, or a list of them."""
    keys = ("network_type", "physical_network", "segmentation_id")
    return [{key: segment.get(f"provider:{key}") for key in keys} for segment in network.get("segments") or [network]]


def member_of(port: Mapping[str, Any] | None) -> int | None:
    """Return the GUID that a bound port adds to its partition; None if it adds none or its GUID is invalid."""
    if port is None or port.get("binding:vif_type") in _NOT_BOUND or not port.get("binding:host_id"):
        return None
    with suppress(ConfigError):
        return guid_of(port)
    return None


def guid_of(port: Mapping[str, Any]) -> int | None:
    """Return the GUID of a port's adapter, bound or not; None without an adapter. Raise ConfigError if invalid."""
    vnic_type = port.get("binding:vnic_type")
    if vnic_type not in (BARE_METAL, *MACHINES):
        return None
    guid = (port.get("binding:profile") or {}).get("guid")
    if guid:
        return Guid.parse(guid)
    options = port.get("extra_dhcp_opts") or []
    client_id = next((opt["opt_value"] for opt in options if opt["opt_name"] in _CLIENT_ID and opt["opt_value"]), None)
    if client_id:
        return guid_of_client_id(client_id)
    return guid_of_mac(port["mac_address"]) if vnic_type in MACHINES else None
