"""The way between two hosts as the fabric's tables lead, asked hop by hop over any carrier."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import msgspec

from weft.diags.ask import HERE, Target, get_smp
from weft.diags.ibtracert import Hop, trace
from weft.errors import SubnetError
from weft.fabric.model import Fabric
from weft.mad.administrator import NoAnswer
from weft.mad.carrier import Carrier
from weft.mad.host_paths import ask_paths
from weft.monitor.ports import Ports
from weft.sim.traffic import find_host_port
from weft.wire.port_info import PortInfo
from weft.wire.sa import PathRecord
from weft.wire.smp import SLtoVLMappingTable, SmpAttribute


class PathHop(msgspec.Struct, kw_only=True):
    node: str
    in_port: int  # 0 at the first
    out_port: int  # 0 at the last
    vl: int | None  # of the link that it leaves by


class PathOut(msgspec.Struct, kw_only=True):
    reaches: bool
    reason: str  # why not; "": it does
    sl: int | None = None  # as the subnet administrator says; None: it has no path for them
    pkey: str = ""
    hops: list[PathHop] = []


def find_path(carrier: Carrier, ports: Ports, source: str, target: str) -> PathOut:
    """`carrier` is best that of the source: the subnet administrator tells who asks of its own partitions alone."""
    fabric = ports.fabric
    ends = [find_host_port(fabric, name) for name in (source, target)]
    here = PortInfo.unpack(get_smp(carrier, HERE, SmpAttribute.PORT_INFO))
    lids = ports.lid[ends].tolist()
    for name, lid in zip((source, target), lids, strict=True):
        if not lid:
            return PathOut(reaches=False, reason=f"{name} has no LID: a subnet manager has not configured it")
    record = _record(carrier, here, [int(fabric.ports.guid[slot]) for slot in ends])
    try:
        hops = trace(carrier, Target(lids[0]), Target(lids[1]))
    except SubnetError as error:
        return PathOut(reaches=False, reason=str(error))
    shown = _shown(carrier, fabric, hops, record.sl if record else 0)
    if record is None:
        reason = (
            f"tables lead there, but the subnet administrator has no path: {source} and {target} share no partition"
        )
        return PathOut(reaches=False, reason=reason, hops=shown)
    return PathOut(reaches=True, reason="", sl=record.sl, pkey=f"{record.p_key:#06x}", hops=shown)


def _record(carrier: Carrier, here: PortInfo, guids: list[int]) -> PathRecord | None:
    gids = [here.gid_prefix << 64 | guid for guid in guids]
    with suppress(NoAnswer):
        for row in ask_paths(carrier, *gids):
            return PathRecord.unpack(row.tobytes())
    return None


def _shown(carrier: Carrier, fabric: Fabric, hops: list[Hop], sl: int) -> list[PathHop]:
    names = dict(zip(fabric.nodes.guid.tolist(), fabric.nodes.name, strict=True))
    came_by = [0, *(after.number for _, after in pairwise(hops))]
    return [
        PathHop(
            node=names.get(hop.node.node_guid, hop.name),
            in_port=in_port,
            out_port=hop.left_by,
            vl=_vl(carrier, hop, in_port, sl) if hop.left_by else None,
        )
        for hop, in_port in zip(hops, came_by, strict=True)
    ]


def _vl(carrier: Carrier, hop: Hop, in_port: int, sl: int) -> int:
    ports = in_port << 8 | hop.left_by if hop.is_switch else 0
    table = get_smp(carrier, hop.at, SmpAttribute.SL_TO_VL_MAPPING_TABLE, ports)
    return SLtoVLMappingTable.unpack(table[: SLtoVLMappingTable.size]).vl[sl]
