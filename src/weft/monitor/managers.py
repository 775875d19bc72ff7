"""Who manages the subnet: the master that our port knows, as it says itself."""

from __future__ import annotations

from dataclasses import dataclass

from weft.diags.ask import HERE, Target, get_smp
from weft.errors import SubnetError
from weft.mad.carrier import Carrier
from weft.monitor.poll import Reading
from weft.wire.port_info import PortInfo
from weft.wire.smp import SMInfo, SmpAttribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A subnet manager; `activity` counts on while it works."""

    node: str
    guid: int
    lid: int
    priority: int
    state: int  # SMState
    activity: int


def find_manager(carrier: Carrier, reading: Reading) -> Manager | None:
    """The subnet's master; None if none answers."""
    try:
        lid = PortInfo.master_sm_lid.get(get_smp(carrier, HERE, SmpAttribute.PORT_INFO))
        said = SMInfo.unpack(get_smp(carrier, Target(lid), SmpAttribute.SM_INFO)) if lid else None
    except SubnetError:
        return None
    if said is None:
        return None
    ports = reading.ports
    slots = (ports.lid == lid).nonzero()[0]
    node = ports.fabric.nodes.name[ports.fabric.ports.node[slots[0]]] if len(slots) else ""
    return Manager(
        node=node, guid=said.guid, lid=lid, priority=said.priority, state=int(said.sm_state), activity=said.act_count
    )
