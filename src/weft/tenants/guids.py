"""Whose port it is: the GUID behind what clouds know, which is the DHCP client-id of an adapter, or a MAC address.

client-id   ff:00:00:00:00:00:02:00:00:02:c9:00:| 08:c0:eb:03:00:12:34:56   as Ironic finds it
                                             20:| 08:c0:eb:03:00:12:34:56   as newer adapters send it
MAC                                               08:c0:eb:      12:34:56   the same without its middle
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from weft.errors import ConfigError
from weft.ids import Guid

_CLIENT_ID = re.compile(r"(?:ff:00:00:00:00:00:02:00:00:02:c9:00|20)((?::[0-9a-f]{2}){8})")
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")


def guid_of_client_id(client_id: str) -> int:
    match = _CLIENT_ID.fullmatch(client_id.strip().lower())
    if match is None:
        raise ConfigError(
            f"the client-id {client_id!r} is refused: it must be ff:00:00:00:00:00:02:00:00:02:c9:00: or 20: "
            "and the eight bytes of a port's GUID"
        )
    return Guid.parse(match[1])


def mac_of_guid(guid: int) -> str:
    """What Ironic calls the MAC of an InfiniBand port: its GUID without the two bytes in the middle."""
    octets = guid.to_bytes(8, "big")
    return (octets[:3] + octets[5:]).hex(":")


def guid_of_mac(mac: str, ports: Iterable[int] = ()) -> int:
    """The one port of those whose GUID has these bytes; else what a virtual function gets.

    A hypervisor with networking-mlnx gives a virtual function the MAC of its machine, with two zeros in the middle.
    """
    if not _MAC.fullmatch(mac.lower()):
        raise ConfigError(f"the MAC address {mac!r} is refused: write six bytes, 08:c0:eb:12:34:56")
    octets = bytes.fromhex(mac.replace(":", ""))
    found = sorted({guid for guid in ports if mac_of_guid(guid) == mac.lower()})
    if len(found) > 1:
        raise ConfigError(f"the MAC address {mac} could be of {' or of '.join(str(Guid(guid)) for guid in found)}")
    return found[0] if found else int.from_bytes(octets[:3] + b"\0\0" + octets[3:], "big")
