"""Which partition a Neutron network is, and which of its ports are members: functions of Neutron's own dictionaries.

network     vlan on a physical network of ours      P_Key = segmentation id
port        bound, baremetal                        GUID = client-id, which Ironic gives (extra_dhcp_opts)
            bound, direct or direct-physical        GUID = binding:profile's guid, client-id, or made of the MAC
            anything else                           no member: DHCP, routers and the like are not on the fabric
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
_CLIENT_ID = ("client-id", "61")  # options of DHCP, by name and by number
_DIGITS = 20  # of a network's id: a name in OpenSM's partitions.conf has 31 characters at most
LONGEST_PREFIX = 31 - 1 - _DIGITS


@dataclass(frozen=True, slots=True)
class Rules:
    """How networks become partitions."""

    physical_networks: frozenset[str]  # those that are InfiniBand
    prefix: str = "neutron"  # of names: whose partitions they are
    ip_over_ib: bool = True
    index0: bool = False

    def p_key(self, segments: Iterable[Mapping[str, Any]]) -> int | None:
        """ConfigError if several of a network's segments are on InfiniBand."""
        ours = [
            one["segmentation_id"]
            for one in segments
            if one["network_type"] == "vlan" and one["physical_network"] in self.physical_networks
        ]
        if len(ours) > 1:
            raise ConfigError(f"a network has {len(ours)} segments on InfiniBand, {ours}: it must be one, its P_Key")
        return ours[0] if ours else None

    def partition(self, network_id: str, segments: Iterable[Mapping[str, Any]]) -> Partition | None:
        """Its name says whose it is."""
        p_key = self.p_key(segments)
        if p_key is None:
            return None
        name = f"{self.prefix}-{network_id.replace('-', '')[:_DIGITS]}"
        return Partition(p_key=p_key, name=name, ip_over_ib=self.ip_over_ib, index0=self.index0)

    def is_ours(self, name: str) -> bool:
        """Is it the name of a partition of some network of this Neutron?"""
        return re.fullmatch(rf"{re.escape(self.prefix)}-[0-9a-f]{{{_DIGITS}}}", name) is not None


def segments_of(network: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of a network as the API shows it: its one segment in its attributes, or a list of them."""
    keys = ("network_type", "physical_network", "segmentation_id")
    return [{key: one.get(f"provider:{key}") for key in keys} for one in network.get("segments") or [network]]


def member_of(port: Mapping[str, Any] | None) -> int | None:
    """The GUID that is in the partition because of a port; None if none is. What cannot be read is no GUID."""
    if port is None or port.get("binding:vif_type") in _NOT_BOUND or not port.get("binding:host_id"):
        return None
    with suppress(ConfigError):
        return guid_of(port)
    return None


def guid_of(port: Mapping[str, Any]) -> int | None:
    """The GUID of a port's adapter, bound or not; ConfigError if what says it cannot be read."""
    vnic_type = port.get("binding:vnic_type")
    if vnic_type not in (BARE_METAL, *MACHINES):
        return None
    given = (port.get("binding:profile") or {}).get("guid")
    if given:
        return Guid.parse(given)
    options = port.get("extra_dhcp_opts") or []
    client_id = next((one["opt_value"] for one in options if one["opt_name"] in _CLIENT_ID and one["opt_value"]), None)
    if client_id:
        return guid_of_client_id(client_id)
    return guid_of_mac(port["mac_address"]) if vnic_type in MACHINES else None
