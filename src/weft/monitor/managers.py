"""Who manages the subnet: the master that our port knows, as it says itself."""

from __future__ import annotations

from dataclasses import dataclass

from weft.mad.carrier import Address, Carrier, ask
from weft.mad.discover import directed_get
from weft.mad.walk import DATA
from weft.monitor.poll import Reading
from weft.wire.mad import MadHeader, Method
from weft.wire.port_info import PortInfo
from weft.wire.smp import SMInfo, Smp, SmpAttribute


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
    here = ask(carrier, directed_get(b"", SmpAttribute.PORT_INFO))
    lid = PortInfo.master_sm_lid.get(here, DATA) if here else 0
    asked = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.SM_INFO)
    answer = ask(carrier, asked, Address(lid)) if lid else None
    if answer is None or MadHeader.status.get(answer):
        return None
    said = SMInfo.unpack(answer, DATA)
    ports = reading.ports
    slots = (ports.lid == lid).nonzero()[0]
    node = ports.fabric.nodes.name[ports.fabric.ports.node[slots[0]]] if len(slots) else ""
    return Manager(
        node=node, guid=said.guid, lid=lid, priority=said.priority, state=int(said.sm_state), activity=said.act_count
    )
