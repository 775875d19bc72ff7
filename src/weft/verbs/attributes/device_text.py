"""Translate numbers of devices, ports and events to text. In pyverbs these functions are in `device`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from weft.verbs.attributes.text import be64toh, mtu_to_str
from weft.verbs.enums import ibv_device_cap_flags, ibv_event_type, ibv_port_cap_flags, ibv_port_cap_flags2

_GID_TYPES = {0: "IB", 1: "RoCEv1", 2: "RoCEv2"}
_TRANSPORTS = {0: "IB", 1: "IWARP", 2: "USNIC", 3: "USNIC UDP"}
_NODES = {1: "CA", 2: "Switch", 3: "Router", 4: "RNIC", 5: "USNIC", 6: "USNIC UDP"}
_PORT_STATES = {0: "NOP", 1: "Down", 2: "Init", 3: "Armed", 4: "Active", 5: "Defer"}
_LINK_LAYERS = {0: "Unspecified", 1: "InfiniBand", 2: "Ethernet"}


def translate_gid_type(gid_type: int) -> str:
    return _GID_TYPES.get(gid_type, f"Unknown gid_type ({gid_type})")


def guid_format(num: int) -> str:
    """Format a GUID that is in network order."""
    return be64toh(num).to_bytes(8, "big").hex(":", -2)


def guid_to_hex(node_guid: int) -> str:
    return f"{node_guid:x}"


def translate_transport_type(transport_type: int) -> str:
    return _TRANSPORTS.get(transport_type, "Unknown")


def translate_node_type(node_type: int) -> str:
    return _NODES.get(node_type, "Unknown")


def port_state_to_str(port_state: int) -> str:
    return _numbered(_PORT_STATES, port_state, f"Invalid state ({port_state})")


def translate_mtu(mtu: int) -> str:
    size = mtu_to_str(mtu)
    return f"{size} ({int(mtu)})" if size else f"Invalid MTU ({mtu})"


def translate_link_layer(ll: int) -> str:
    return _LINK_LAYERS.get(ll, f"Invalid link layer ({ll})")


def translate_port_cap_flags(flags: int) -> str:
    return _flags(flags, ibv_port_cap_flags)


def translate_port_cap_flags2(flags: int) -> str:
    return _flags(flags, ibv_port_cap_flags2)


def translate_device_caps(flags: int) -> str:
    return _flags(flags, ibv_device_cap_flags)


def str_from_flags(flags: int, dictionary: Mapping[int, str]) -> str:
    """Return the names of the bits that are set, each on a line of its own."""
    return "\n  " + "".join(f"{name}\n  " for bit, name in dictionary.items() if flags & bit)


def phys_state_to_str(phys: int) -> str:
    from weft.wire.port_info import PortPhysicalState

    names = {int(one): one.name.replace("_", " ").capitalize() for one in PortPhysicalState if one}
    return _numbered(names, phys, "Invalid physical state")


def width_to_str(width: int) -> str:
    from weft.wire.port_info import LANES

    return _numbered({int(known): f"{lanes}X" for known, lanes in LANES.items()}, width, "Invalid width")


def speed_to_str(active_speed: int, active_speed_ex: int = 0) -> str:
    """Format the speed of a lane; `active_speed_ex`, if not 0, has the speeds that do not fit into 8 bits."""
    from weft.wire.port_info import LinkSpeed

    speed = active_speed_ex or active_speed
    known_gbps = {0: 0.0} | {int(one): one.lane_tenths / 10 for one in LinkSpeed} | {4: 5.0}  # so pyverbs has QDR
    return f"{known_gbps[speed]} Gbps ({speed})" if speed in known_gbps else "Invalid speed"


def translate_event_type(event_type: int) -> str:
    names = {int(event): event.name for event in ibv_event_type}
    return names.get(event_type, f"Unknown event_type ({event_type})")


def _numbered(names: Mapping[int, str], number: int, unknown: str) -> str:
    return f"{names[number]} ({int(number)})" if number in names else unknown


def _flags(flags: int, kind: type[IntEnum]) -> str:
    return str_from_flags(flags, {int(flag): flag.name for flag in kind})
