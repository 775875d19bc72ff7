"""Routers between subnets: forward packets by their global route header.

    hop = next_subnet(devices, at, dgid=dgid, hop_limit=hop_limit, p_key=p_key)     the packet entered by `at`

The output port is the Active port whose GidPrefix is that of the DGID, without a floating LID in it. The router writes
a new LRH there: SLID of the port, DLID and SL of the destination. A DGID whose last 64 bits are a LID is an alias GID
and names its DLID (NVIDIA's rule for routers); for all others the router asks the subnet's administrator for the path,
as a host does, and packets wait for the answer. Answers are used for ever, and asked for again once they are old: while
a manager is down, traffic goes on. InfiniBand leaves open how a router finds LIDs (volume 1, "Routers").

The rules, in this order, with the port that counts a dropped packet:

    hop limit       it falls by one at each router; 0 and 1 are not forwarded       HOP_LIMIT, input port
    subnet          another port of the router is Active and has the prefix         NO_SUBNET, input port
    P_Key           the output port has a key that matches, as the input port does  P_KEY, output port
    destination     the administrator knows the path from the output port           NO_NEIGHBOR, input port

Only adjacent subnets are reached: there is no table of next hops.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.fabric.forwarding import NONE, Path, Reason, matching_key, walk
from weft.ids import Gid
from weft.mad.devices import Devices
from weft.wire.crc import VCRC_BYTES, vcrc_bytes
from weft.wire.headers import GRH, LNH, LRH


class RouterHop(NamedTuple):
    """The next hop of a packet in a router: it leaves by `slot` with a new DLID and SL, or ends there for a reason."""

    slot: int
    dlid: int = 0
    sl: int = 0
    reason: Reason = Reason.GOES_ON


class GlobalPath(NamedTuple):
    """The path of a packet through routers: all its hops, and the SLID and hop limit that it arrives with."""

    path: Path
    slid: int
    hop_limit: int


def is_routed(devices: Devices, at: int, packet: bytes) -> bool:
    """Return whether a packet that arrived at a port is for another subnet."""
    node = devices.node_of[at]
    if node not in devices.routers.nodes or LRH.lnh.get(packet) != LNH.GRH:
        return False
    return not devices.routers.owns(node, GRH.dgid.get(packet, LRH.size))


def next_subnet(devices: Devices, at: int, *, dgid: int, hop_limit: int, p_key: int) -> RouterHop:
    """Return the hop of a packet that entered a router by `at`; see the module."""
    if dgid == NONE:  # it has no global route header, and a router forwards by that alone
        return RouterHop(at, reason=Reason.NO_SUBNET)
    if hop_limit <= 1:
        return RouterHop(at, reason=Reason.HOP_LIMIT)
    routers = devices.routers
    ports = routers.ports_of(devices.node_of[at])
    prefix = Gid(dgid).subnet_prefix
    out = next((slot for slot in ports if slot != at and routers.prefix(slot) == prefix), NONE)
    if out == NONE or routers.prefix(at) == prefix:
        return RouterHop(at, reason=Reason.NO_SUBNET)
    if p_key >= 0 and matching_key(devices.keys(out), p_key) == NONE:
        return RouterHop(out, reason=Reason.P_KEY)
    neighbor = routers.find(out, dgid)
    if neighbor.dlid is None:
        return RouterHop(out, reason=Reason.NOT_RESOLVED)
    if not neighbor.dlid:
        return RouterHop(at, reason=Reason.NO_NEIGHBOR)
    return RouterHop(out, neighbor.dlid, neighbor.sl)


def readdressed(devices: Devices, hop: RouterHop, packet: bytes) -> bytes:
    """Return a packet as a router sends it on; the ICRC does not cover the fields that change."""
    changed = bytearray(packet[:-VCRC_BYTES])
    LRH.slid.set(changed, devices.lid(hop.slot))
    LRH.dlid.set(changed, hop.dlid)
    LRH.sl.set(changed, hop.sl)
    GRH.hop_lmt.set(changed, GRH.hop_lmt.get(packet, LRH.size) - 1, LRH.size)
    return bytes(changed) + vcrc_bytes(changed)


def walk_global(
    devices: Devices, slot: int, *, dlid: int, sl: int, p_key: int, size_bytes: int, dgid: int, hop_limit: int
) -> GlobalPath:
    """Follow a packet from a port to its DGID, through routers, or as far as it gets. Count nothing."""
    out: tuple[int, ...] = ()
    vls: tuple[int, ...] = ()
    slid = devices.lid(slot)
    while True:
        leg = walk(devices, slot, dlid=dlid, sl=sl, p_key=p_key, size_bytes=size_bytes)
        out, vls, node = out + leg.out, vls + leg.vls, devices.node_of[leg.end]
        if leg.reason is not Reason.ARRIVED or node not in devices.routers.nodes or devices.routers.owns(node, dgid):
            return GlobalPath(Path(out, vls, leg.end, leg.reason), slid, hop_limit)
        hop = next_subnet(devices, leg.end, dgid=dgid, hop_limit=hop_limit, p_key=p_key)
        if hop.reason:
            return GlobalPath(Path(out, vls, hop.slot, hop.reason), slid, hop_limit)
        slot, dlid, sl, hop_limit = hop.slot, hop.dlid, hop.sl, hop_limit - 1
        slid = devices.lid(slot)
