"""Port GUIDs from the DHCP client-id or the MAC address of an adapter, which clouds know.

client-id   ff:00:00:00:00:00:02:00:00:02:c9:00:| 08:c0:eb:03:00:12:34:56   as found by Ironic
                                             20:| 08:c0:eb:03:00:12:34:56   as sent by newer adapters
MAC                                               08:c0:eb:      12:34:56   without the middle bytes
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
            f"the client-id {client_id!r} must be ff:00:00:00:00:00:02:00:00:02:c9:00: or 20: followed by the eight "
            "bytes of a port GUID"
        )
    return Guid.parse(match[1])


def mac_of_guid(guid: int) -> str:
    """Return the MAC that Ironic uses for an InfiniBand port: its GUID without the two middle bytes."""
    octets = guid.to_bytes(8, "big")
    return (octets[:3] + octets[5:]).hex(":")


def guid_of_mac(mac: str, ports: Iterable[int] = ()) -> int:
    """Return the port whose GUID contains the MAC, else the GUID of a virtual function with this MAC.

    networking-mlnx derives the GUID of a virtual function from its MAC, with two zero bytes in the middle.
    """
    if not _MAC.fullmatch(mac.lower()):
        raise ConfigError(f"the MAC address {mac!r} must be six bytes, such as 08:c0:eb:12:34:56")
    octets = bytes.fromhex(mac.replace(":", ""))
    matches = sorted({guid for guid in ports if mac_of_guid(guid) == mac.lower()})
    if len(matches) > 1:
        raise ConfigError(f"the MAC address {mac} fits several ports: {', '.join(str(Guid(guid)) for guid in matches)}")
    return matches[0] if matches else int.from_bytes(octets[:3] + b"\0\0" + octets[3:], "big")
