"""The reason that packets of a program no longer arrive, in names of ports and cables."""

from __future__ import annotations

from weft.fabric.forwarding import ACTIVE, HEADERS_BYTES, NONE, STATE, Path, Reason, matching_key, walk
from weft.mad.devices import Devices
from weft.mad.routers import next_subnet
from weft.wire.port_info import PortState

_PARTITION = 0x7FFF  # P_Key without the full-member bit
_P_KEY_REASONS = (Reason.INBOUND, Reason.OUTBOUND, Reason.P_KEY)


def why_lost(
    devices: Devices,
    slot: int,
    *,
    lid: int,
    sl: int,
    p_key: int,
    mtu_bytes: int,
    dgid: int = NONE,
    hop_limit: int = 0,
) -> str:
    """Explain why packets from a port do not reach the adapter that has, or last had, this LID; empty if they do.

    If that is a port of a router, explain why they do not reach the DGID behind it.
    """
    end = next((port for port in _adapter_ports(devices, slot) if devices.has_lid(port, lid)), NONE)
    if end == NONE:
        return f"no adapter has LID {lid}"
    why = _why_lost_in_subnet(devices, slot, end, lid, sl, p_key, mtu_bytes)
    node = devices.node_of[end]
    if why or dgid == NONE or node not in devices.routers.nodes or devices.routers.owns(node, dgid):
        return why
    hop = next_subnet(devices, end, dgid=dgid, hop_limit=hop_limit, p_key=p_key)
    if hop.reason:
        return f"at {devices.name(hop.slot)} a packet comes no further: {hop.reason.text}"
    rest = {"dgid": dgid, "hop_limit": hop_limit - 1}
    return why_lost(devices, hop.slot, lid=hop.dlid, sl=hop.sl, p_key=p_key, mtu_bytes=mtu_bytes, **rest)


def _why_lost_in_subnet(devices: Devices, slot: int, end: int, lid: int, sl: int, p_key: int, mtu_bytes: int) -> str:
    """Explain why packets do not go from a port to another of its subnet and back; empty if they do."""
    ends = f"from {devices.name(slot)} to {devices.name(end)}"
    reached = _reached(devices, slot)
    if devices.node_of[end] not in reached:
        pulled = [_cable(devices, port) for port in sorted(devices.broken) if _leads_out(devices, port, reached)]
        cables = f"pulled {'is' if len(pulled) == 1 else 'are'} {', '.join(pulled)}"
        return f"no way {ends}: {cables if pulled else 'links are down'}"
    for port in (slot, end):
        if devices.info(port)[STATE] & 0x0F != ACTIVE:
            state = PortState(devices.info(port)[STATE] & 0x0F).name.capitalize()
            return f"no way {ends}: {devices.name(port)} is {state}, no subnet manager has brought it up"
    for port in (slot, end):
        if all(key & _PARTITION != p_key & _PARTITION for key in devices.keys(port)):
            return f"no way {ends}: {devices.name(port)} is not in partition {p_key & _PARTITION:#06x} any more"
    forth = walk(devices, slot, dlid=lid, sl=sl, p_key=p_key, size_bytes=mtu_bytes + HEADERS_BYTES)
    if forth.reason is not Reason.ARRIVED:
        return _stopped(devices, forth, p_key)
    answer_key = devices.keys(end)[matching_key(devices.keys(end), p_key)]
    back = walk(devices, end, dlid=devices.lid(slot), sl=sl, p_key=answer_key, size_bytes=HEADERS_BYTES)
    if back.reason is not Reason.ARRIVED:
        return _stopped(devices, back, p_key)
    bad = [_cable(devices, port) for port in (*forth.out, *back.out) if port in devices.erring]
    return f"the way {ends} errs: {', '.join(dict.fromkeys(bad))}" if bad else ""


def _adapter_ports(devices: Devices, slot: int) -> list[int]:
    """Return the ports of adapters and routers in the subnet of a port."""
    nodes = (node for node in devices.nodes if not devices.is_switch[node])
    subnet = devices.subnet_of[slot]
    return [port for node in nodes for port in devices.ports_of(node) if devices.subnet_of[port] == subnet]


def _reached(devices: Devices, slot: int) -> set[int]:
    """Return the nodes that active links lead to, whatever the tables say."""
    reached, left = {devices.node_of[slot]}, [slot]
    while left:
        far = devices.peer(left.pop())
        node = devices.node_of[far] if far != NONE else NONE
        if node != NONE and node not in reached:
            reached.add(node)
            left += devices.ports_of(node) if devices.is_switch[node] else ()
    return reached


def _leads_out(devices: Devices, slot: int, reached: set[int]) -> bool:
    return (devices.node_of[slot] in reached) != (devices.node_of[devices.cable[slot]] in reached)


def _cable(devices: Devices, slot: int) -> str:
    return " - ".join(devices.name(end) for end in sorted((slot, devices.cable[slot])))


def _stopped(devices: Devices, path: Path, p_key: int) -> str:
    way = ", ".join(devices.name(slot) for slot in dict.fromkeys((*path.out, path.end)))
    key = f", {p_key:#06x}" if path.reason in _P_KEY_REASONS else ""
    return f"by {way} a packet comes no further: {path.reason.text}{key}"
