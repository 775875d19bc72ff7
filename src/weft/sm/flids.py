"""Floating LIDs (FLIDs): a LID of no port, by which packets to the leaf switches of another subnet leave this one.

    host GID   fec0:0000:FLID:SUBNET : LID       each adapter port has the FLID of its leaf switch in its GidPrefix
    sender     DLID = FLID of the far GID        NCCL and UCX read it there; path records have it too
    switches   table[FLID] = table[router]       any router that has the FLID enabled: it floats
    router     DLID = LID in the alias GID       by the subnet in the DGID, as without FLIDs

Managers share the range of all subnets; each has a range of its own in it, whose FLIDs it gives to its leaf switches,
and writes both to its routers (`weft.wire.router`), which show them to the managers of adjacent subnets. A FLID that a
port has is kept; a new leaf switch gets the FLID that the fewest others have. Several routers share the FLIDs in turn.

Public: the place of the FLID in a GID, and that it is the DLID to other subnets (NCCL `net_ib`, UCX `ib_iface.c`); that
leaf switches have FLIDs, several the same up to `flid_compression`, and the names of the options (headers of NVIDIA's
OpenSM); the tables of routers. weft's own choice: which leaf switch gets which FLID, that all routers enable all FLIDs
of their subnet, and one router for each FLID, where NVIDIA's switches may use all in turn.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.tables import NO_ROUTE
from weft.ids import Gid, Lid
from weft.sm.conf.options import Options
from weft.sm.discovery.known import BLOCK
from weft.sm.discovery.view import View
from weft.sm.sender import Sender
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo
from weft.wire.router import LIDS_PER_BLOCK, AdjacentSubnetsRouterLidInfo, RouterInfo
from weft.wire.smp import SmpAttribute

Rows = NDArray[np.uint8]
_DATA = 64
_RANGES = ("global_router_lid_base", "global_router_lid_top", "local_router_lid_base", "local_router_lid_top")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flids:
    """The floating LIDs of a subnet."""

    own: NDArray[np.int64]  # [slot] -> FLID of an adapter's port, 0 for none
    there: dict[int, tuple[int, ...]]  # FLID of another subnet -> ports of routers, the chosen one first
    without: NDArray[np.intp]  # adapter ports that get none


def check_ranges(options: Options) -> None:
    """Refuse ranges of floating LIDs that no subnet can have."""
    first, last, own_first, own_last = options.flids
    if bool(first) != bool(last) or first > last or bool(own_first) != bool(own_last):
        raise ConfigError(
            f"floating LIDs {first} to {last} and {own_first} to {own_last} are no ranges: give global_flid_start with "
            "a global_flid_end that is not less, and local_flid_start with local_flid_end"
        )
    if own_first and not 0 < first <= own_first <= own_last <= last:
        raise ConfigError(
            f"local_flid_start {own_first} to local_flid_end {own_last} is refused: it must be a part of "
            f"global_flid_start {first} to global_flid_end {last}"
        )
    if own_first and Gid(options.subnet_prefix << 64).subnet_prefix >> 16 != Gid.SITE_LOCAL_PREFIX >> 16:
        raise ConfigError(
            f"subnet_prefix {options.subnet_prefix:#x} is refused with local_flid_start: floating LIDs need a "
            "site-local prefix, such as 0xfec0000000000001"
        )


def find_flids(sender: Sender, view: View, options: Options) -> Flids | None:
    """Choose the FLIDs of this subnet, and read those of others from the routers; None without a range."""
    if not options.global_flid_start:
        return None
    own = choose_flids(view, options)
    due = _adapter_ports(view)
    without = due[own[due] == 0] if options.local_flid_start else due[:0]
    return Flids(own=own, there=_read_foreign(sender, view, options), without=without)


def choose_flids(view: View, options: Options) -> NDArray[np.int64]:
    """Return [slot] -> the FLID of each adapter port: that of its leaf switch, 0 where the range is too small."""
    fabric = view.fabric
    slots, own = _adapter_ports(view), np.zeros(len(fabric.ports), np.int64)
    leaf = fabric.ports.node[fabric.ports.peer[slots]]
    prefixes = column(view.port_info[slots], PortInfo.gid_prefix)
    kept: dict[int, int] = {}
    users = Counter(dict.fromkeys(_lids(*options.flids[2:]), 0))
    leaves = dict.fromkeys(leaf[np.argsort(fabric.nodes.guid[leaf], kind="stable")].tolist())
    for node, prefix in zip(leaf.tolist(), prefixes.tolist(), strict=True):
        flid = Gid(prefix << 64).flid
        if node not in kept and users.get(flid, options.flid_compression) < options.flid_compression:
            kept[node] = flid
            users[flid] += 1
    for node in leaves:
        if node not in kept and users:
            flid = min(users, key=users.__getitem__)  # of several, the lowest
            if users[flid] < options.flid_compression:
                kept[node] = flid
                users[flid] += 1
    own[slots] = [kept.get(node, 0) for node in leaf.tolist()]
    return own


def _lids(first: int, last: int) -> range:
    return range(first, last + 1) if first else range(0)


def _adapter_ports(view: View) -> NDArray[np.intp]:
    """Return the slots of adapter ports that are cabled to a switch."""
    ports, peer = view.fabric.ports, view.fabric.ports.peer
    is_adapter = (view.fabric.nodes.kind == NodeKind.HCA)[ports.node] & (peer >= 0)
    return np.flatnonzero(is_adapter & view.is_switch[ports.node[peer]])


def _router_ports(view: View) -> NDArray[np.intp]:
    """Return the ports of routers in this subnet, by the GUID of the router."""
    fabric = view.fabric
    of_router = (fabric.nodes.kind == NodeKind.ROUTER)[fabric.ports.node] & (fabric.ports.peer >= 0)
    slots = np.flatnonzero(of_router)
    return slots[np.argsort(fabric.nodes.guid[fabric.ports.node[slots]], kind="stable")]


def _read_foreign(sender: Sender, view: View, options: Options) -> dict[int, tuple[int, ...]]:
    """Read which FLIDs of other subnets the routers have enabled."""
    slots = _router_ports(view)
    ranges, answered = sender.get(view.to_ports(slots), SmpAttribute.ADJACENT_SUBNETS_ROUTER_LID_INFO)
    routers: dict[int, list[int]] = {}
    for slot, row in zip(slots[answered].tolist(), ranges[answered], strict=True):
        for subnet in AdjacentSubnetsRouterLidInfo.unpack(row.tobytes()).subnet:
            first, last = max(subnet.first, options.global_flid_start), min(subnet.last, options.global_flid_end)
            for flid in _enabled(sender, view, slot, first, last) if subnet.first else ():
                routers.setdefault(flid, []).append(slot)
    own = _lids(*options.flids[2:])
    return {
        flid: tuple(ports[flid % len(ports) :] + ports[: flid % len(ports)])
        for flid, ports in routers.items()
        if flid not in own
    }


def _enabled(sender: Sender, view: View, slot: int, first: int, last: int) -> list[int]:
    """Return the enabled FLIDs of a range, as a router's port shows them."""
    blocks = np.arange(first // LIDS_PER_BLOCK, last // LIDS_PER_BLOCK + 1)
    route = view.to_ports(np.full(len(blocks), slot))
    data, answered = sender.get(route, SmpAttribute.ROUTER_LID_TABLE, blocks)
    data[~answered] = 0
    lids = blocks[0] * LIDS_PER_BLOCK + np.flatnonzero(np.unpackbits(data)) if len(blocks) else blocks
    return [int(lid) for lid in lids if first <= lid <= last]


def add_routes(view: View, flids: Flids) -> None:
    """Let FLIDs of other subnets have the routes of the routers that were chosen for them."""
    tables = view.fabric.tables
    if not flids.there or not view.is_switch.any():
        return
    width = -(-(max(flids.there) + 1) // BLOCK) * BLOCK
    more = max(0, width - tables.lft.shape[1])
    lft = np.pad(tables.lft, ((0, 0), (0, more)), constant_values=NO_ROUTE)  # a copy: others share the table
    chosen = [ports[0] for ports in flids.there.values()]
    lft[:, list(flids.there)] = lft[:, tables.lid[chosen]]
    tables.lft = lft


def upload_flids(sender: Sender, view: View, options: Options, flids: Flids) -> list[str]:
    """Write the ranges, and the FLIDs that leaf switches have, to the routers; return those that refused."""
    slots = _router_ports(view)
    infos, answered = sender.get(view.to_ports(slots), SmpAttribute.ROUTER_INFO)
    slots = slots[answered]
    refused: set[int] = set()
    for slot, row in zip(slots.tolist(), infos[answered], strict=True):
        before = RouterInfo.unpack(row[: RouterInfo.size].tobytes())
        after = before.replace(**dict(zip(_RANGES, options.flids, strict=True)))
        if after != before:
            data = np.frombuffer(after.raw.ljust(_DATA, b"\0"), np.uint8)[None]
            _, took = sender.set(view.to_ports(np.array([slot])), SmpAttribute.ROUTER_INFO, 0, data)
            refused |= set() if took.all() else {slot}
    if options.local_flid_start:
        enabled = np.zeros(Lid.FIRST_MULTICAST, bool)
        enabled[flids.own[flids.own > 0]] = True
        written = [_enable(sender, view, slot, options, enabled) for slot in slots.tolist()]
        refused |= {slot for slot, well in zip(slots.tolist(), written, strict=True) if not well}
    return [view.name(slot) for slot in sorted(refused)]


def _enable(sender: Sender, view: View, slot: int, options: Options, enabled: NDArray[np.bool_]) -> bool:
    """Write which FLIDs of this subnet are enabled, where a router's port shows others; return whether it took it."""
    _, _, first, last = options.flids
    blocks = np.arange(first // LIDS_PER_BLOCK, last // LIDS_PER_BLOCK + 1)
    before, _ = sender.get(view.to_ports(np.full(len(blocks), slot)), SmpAttribute.ROUTER_LID_TABLE, blocks)
    lids = np.arange(Lid.FIRST_MULTICAST).reshape(-1, LIDS_PER_BLOCK)[blocks]
    shown = np.unpackbits(before, axis=1).astype(bool) & (first <= lids) & (lids <= last)
    wanted = enabled[lids]
    due = np.flatnonzero((shown != wanted).any(axis=1))
    route = view.to_ports(np.full(len(due), slot))
    _, took = sender.set(route, SmpAttribute.ROUTER_LID_TABLE, blocks[due], np.packbits(wanted[due], axis=1))
    return bool(took.all())
