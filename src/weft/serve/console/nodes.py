"""A node with its ports, their counters and rates; and the path between two hosts."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from weft.diags.ibnetdiscover import Hop, trace
from weft.diags.query import HERE, Target, get_smp
from weft.errors import ConfigError, SubnetError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.views import Node
from weft.mad.administrator import NoAnswer, ask_paths
from weft.mad.carrier import Carrier
from weft.monitor.cables import CableEnd, milliwatts_to_dbm, read_end
from weft.monitor.columns import Column
from weft.monitor.ports import Ports
from weft.sim.traffic import find_host_port
from weft.wire.port_info import PortInfo, PortState
from weft.wire.sa import PathRecord
from weft.wire.smp import PKeyTable, SLtoVLMappingTable, SmpAttribute

if TYPE_CHECKING:
    from weft.serve.console.monitor import FabricMonitor, Snapshot


class PortOut(msgspec.Struct, kw_only=True):
    """A port of a node."""

    number: int
    state: str
    rate: str  # 4xNDR; "": no link
    peer: str
    lid: int
    pkeys: list[str]  # adapters only
    counters: dict[str, int]  # known counters
    rates: dict[str, float]  # per second; known counters that changed


class NodeOut(msgspec.Struct, kw_only=True):
    """A node with its ports."""

    name: str
    kind: str
    guid: str
    model: str
    ports: list[PortOut]


def show_node(monitor: FabricMonitor, name: str) -> NodeOut:
    latest = monitor.latest()
    ports = latest.reading.ports
    node = ports.fabric[name]
    if not isinstance(node, Node):
        raise ConfigError(f"{name} is not a node: give the name of a switch or an adapter")
    with monitor.ask() as carrier:
        port_rows = [_port(carrier, latest, port.slot) for port in node.ports]
    return NodeOut(
        name=node.name,
        kind=node.kind.name.lower(),
        guid=str(node.guid),
        model=node.model or "",
        ports=port_rows,
    )


def _port(carrier: Carrier, latest: Snapshot, slot: int) -> PortOut:
    ports, reading, change = latest.reading.ports, latest.reading, latest.change
    port = ports.fabric.port(slot)
    lid, is_switch = int(ports.lid[slot]), port.node.kind == NodeKind.SWITCH
    counters = {
        column.name.lower(): int(reading.counters[slot, column]) for column in Column if reading.known[slot, column]
    }
    rates: dict[str, float] = {}
    if change is not None and change.ports is ports and change.seconds:
        moved = np.flatnonzero(change.known[slot] & (change.delta[slot] != 0)).tolist()
        rates = {
            Column(counter).name.lower(): round(float(change.delta[slot, counter]) / change.seconds, 3)
            for counter in moved
        }
    return PortOut(
        number=port.number,
        state=PortState(int(ports.state[slot])).name.title(),
        rate=port.link.label if port.link else "",
        peer=port.peer.name if port.peer else "",
        lid=lid,
        pkeys=[] if is_switch or not lid else _p_keys(carrier, lid),
        counters=counters,
        rates=rates,
    )


def _p_keys(carrier: Carrier, lid: int) -> list[str]:
    with suppress(SubnetError):
        table = PKeyTable.unpack(get_smp(carrier, Target(lid), SmpAttribute.P_KEY_TABLE))
        return [f"{key:#06x}" for key in table.p_key if key]
    return []


class CableEndOut(msgspec.Struct, kw_only=True):
    """One end of a cable, as its module says by CableInfo."""

    port: str
    reason: str  # why it cannot be read; "": it was
    form: str = ""
    vendor: str = ""
    part: str = ""
    serial: str = ""
    technology: str = ""
    length_m: float | None = None  # None: a transceiver
    temperature_c: float | None = None
    supply_v: float | None = None
    receive_dbm: list[float | None] = []  # each lane; None: no light
    transmit_dbm: list[float | None] = []
    bias_ma: list[float] = []


def show_cable(monitor: FabricMonitor, port: str) -> list[CableEndOut]:
    """Read the modules at both ends of the cable in a port."""
    ports = monitor.latest().reading.ports
    slot = ports.fabric.find_port(port).slot
    with monitor.ask() as carrier:
        return [_cable_end(read_end(carrier, ports, end)) for end in (slot, int(ports.peer[slot])) if end >= 0]


def _cable_end(end: CableEnd) -> CableEndOut:
    module = end.module
    if module is None:
        return CableEndOut(port=end.port, reason=end.reason)
    return CableEndOut(
        port=end.port,
        reason="",
        form=module.form,
        vendor=module.vendor,
        part=module.part,
        serial=module.serial,
        technology=module.technology,
        length_m=module.length_m,
        temperature_c=module.temperature_c,
        supply_v=module.supply_v,
        receive_dbm=[milliwatts_to_dbm(power) for power in module.receive_mw],
        transmit_dbm=[milliwatts_to_dbm(power) for power in module.transmit_mw],
        bias_ma=list(module.bias_ma),
    )


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
