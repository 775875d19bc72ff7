"""The path between two hosts by the forwarding tables, queried hop by hop over any carrier."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import msgspec

from weft.diags.ibtracert import Hop, trace
from weft.diags.query import HERE, Target, get_smp
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
    """A node on a path."""

    node: str
    in_port: int  # 0 at the source
    out_port: int  # 0 at the destination
    vl: int | None  # virtual lane of the outgoing link


class PathOut(msgspec.Struct, kw_only=True):
    """A path between two hosts."""

    reaches: bool
    reason: str  # why it does not reach; "": it does
    sl: int | None = None  # from the subnet administrator; None: it has no path record
    pkey: str = ""
    hops: list[PathHop] = []


def find_path(carrier: Carrier, ports: Ports, source: str, target: str) -> PathOut:
    """Find a path. `carrier` should be that of the source: the subnet administrator answers only for its partitions."""
    fabric = ports.fabric
    ends = [find_host_port(fabric, name) for name in (source, target)]
    port_info = PortInfo.unpack(get_smp(carrier, HERE, SmpAttribute.PORT_INFO))
    lids = ports.lid[ends].tolist()
    for name, lid in zip((source, target), lids, strict=True):
        if not lid:
            return PathOut(reaches=False, reason=f"{name} has no LID: no subnet manager has configured it")
    record = _record(carrier, port_info, [int(fabric.ports.guid[slot]) for slot in ends])
    try:
        hops = trace(carrier, Target(lids[0]), Target(lids[1]))
    except SubnetError as error:
        return PathOut(reaches=False, reason=str(error))
    path_hops = _hops(carrier, fabric, hops, record.sl if record else 0)
    if record is None:
        reason = f"the forwarding tables have a path, but {source} and {target} share no partition"
        return PathOut(reaches=False, reason=reason, hops=path_hops)
    return PathOut(reaches=True, reason="", sl=record.sl, pkey=f"{record.p_key:#06x}", hops=path_hops)


def _record(carrier: Carrier, port_info: PortInfo, guids: list[int]) -> PathRecord | None:
    gids = [port_info.gid_prefix << 64 | guid for guid in guids]
    with suppress(NoAnswer):
        for row in ask_paths(carrier, *gids):
            return PathRecord.unpack(row.tobytes())
    return None


def _hops(carrier: Carrier, fabric: Fabric, hops: list[Hop], sl: int) -> list[PathHop]:
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
