"""A node for who clicks on it: its ports, what they count, and what that is in a second."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from weft.diags.ask import Target, get_smp
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
    number: int
    state: str
    rate: str  # 4xNDR; "": no link
    peer: str
    lid: int
    pkeys: list[str]  # of an adapter's port
    counters: dict[str, int]  # those that are known
    rates: dict[str, float]  # per second, those that are known and not 0


class NodeOut(msgspec.Struct, kw_only=True):
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
        raise ConfigError(f"{name} is no node: give the name of a switch or an adapter")
    with monitor.ask() as carrier:
        shown = [_port(carrier, latest, port.slot) for port in node.ports]
    return NodeOut(
        name=node.name,
        kind=node.kind.name.lower(),
        guid=str(node.guid),
        model=node.model or "",
        ports=shown,
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
        rates = {Column(one).name.lower(): round(float(change.delta[slot, one]) / change.seconds, 3) for one in moved}
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
