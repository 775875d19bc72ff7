"""A node with its ports, their counters and rates."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from weft.diags.query import Target, get_smp
from weft.errors import ConfigError, SubnetError
from weft.fabric.kinds import NodeKind
from weft.fabric.views import Node
from weft.mad.carrier import Carrier
from weft.monitor.columns import Column
from weft.wire.port_info import PortState
from weft.wire.smp import PKeyTable, SmpAttribute

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
