"""`mlx5_0`: the device of a program outside of labs, which reaches others of its machine.

Its port looks like one of RoCE v2 on the adapters that most programs are written for: by the name, and the places of
GIDs, that they have in their text.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from weft.verbs.attributes.address import GID_TABLE_LEN, NODE_GUID, AHAttr
from weft.verbs.carriers.processes.adapter import open_adapter
from weft.verbs.enums import IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2
from weft.verbs.hca.adapter import Adapter

if TYPE_CHECKING:
    from weft.verbs.attributes.device import DeviceAttr, PortAttr

NAME = "mlx5_0"
FORMER_NAME = "weft0"  # opens it too
_LINK_LOCAL = b"\xfe\x80" + bytes(6) + NODE_GUID.to_bytes(8, "big")
_IPV4 = bytes(10) + b"\xff\xff" + bytes((127, 0, 0, 1))  # mapped
# As Linux fills the table of an mlx5 port: each address twice, for RoCE v1 and, at odd indices, for v2.
GIDS = (_LINK_LOCAL, _LINK_LOCAL, _IPV4, _IPV4)
_SPEED_100_MBPS = 1000
LOOPBACK = (int.from_bytes(_IPV4, "big"), 1)  # as both versions of IP have it


class Mlx5Device:
    """The device outside of labs. Its GIDs and its port never change."""

    name, guid = NAME, NODE_GUID

    def adapter(self) -> Adapter:
        return open_adapter(tuple(int.from_bytes(gid, "big") for gid in dict.fromkeys(GIDS)), NAME)

    def watch(self, watcher: object) -> None:
        """Do nothing: the port never changes."""

    def device_attr(self) -> DeviceAttr:
        from weft.verbs.attributes.device import DeviceAttr  # many programs open a device and ask nothing

        return DeviceAttr()

    def port_attr(self) -> PortAttr:
        from weft.verbs.attributes.device import PortAttr

        adapter = self.adapter()
        return PortAttr(
            bad_pkey_cntr=adapter.counters["pkey_violations"] & 0xFFFF,
            qkey_viol_cntr=adapter.counters["qkey_violations"] & 0xFFFF,
            pkey_tbl_len=len(adapter.p_keys),
        )

    def speed_100_mbps(self) -> int:
        return _SPEED_100_MBPS

    def gids(self) -> tuple[bytes, ...]:
        return GIDS + (bytes(16),) * (GID_TABLE_LEN - len(GIDS))

    def gid_type(self, index: int) -> int:
        return IBV_GID_TYPE_ROCE_V2 if index % 2 else IBV_GID_TYPE_ROCE_V1

    def wrong_address(self, address: AHAttr) -> str:
        if not address.is_global:
            return "the port is Ethernet, where an address needs a global route (is_global=1, gr=...)"
        there = address.route.sgid_index < len(GIDS)
        return "" if there else f"sgid_index {address.route.sgid_index}: the port has no such GID"

    def gid_at(self, address: int) -> int:
        """Return the device's GID for any address: it reaches processes of this machine only."""
        return LOOPBACK[0] if address in LOOPBACK or _is_of_this_machine(address) else address

    def address_of(self, gid: int) -> int:
        return gid

    def gid_of_host(self, name: str) -> int | None:
        return None

    def address_vector(self, address: AHAttr) -> tuple[int, int]:
        """Return (peer's GID, own GID), which is also the source of packets from there."""
        own = self.gids()[address.route.sgid_index]
        return int.from_bytes(address.route.raw_dgid, "big"), int.from_bytes(own, "big")


def _is_of_this_machine(address: int) -> bool:
    long_one = ipaddress.IPv6Address(address)
    plain = long_one.ipv4_mapped or long_one
    if plain.is_multicast or plain.is_unspecified or plain.is_link_local:
        return False
    family = socket.AF_INET if plain.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind((str(plain), 0))
    except OSError:
        return False
    return True
