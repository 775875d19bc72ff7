"""The master subnet manager of the port that the monitor uses, by its own SMInfo."""

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
    """A subnet manager; `activity` increases while it runs."""

    node: str
    guid: int
    lid: int
    priority: int
    state: int  # SMState
    activity: int


def find_manager(carrier: Carrier, reading: Reading) -> Manager | None:
    """Return the master subnet manager; None if none answers."""
    port_info = ask(carrier, directed_get(b"", SmpAttribute.PORT_INFO))
    lid = PortInfo.master_sm_lid.get(port_info, DATA) if port_info else 0
    request = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.SM_INFO)
    answer = ask(carrier, request, Address(lid)) if lid else None
    if answer is None or MadHeader.status.get(answer):
        return None
    info = SMInfo.unpack(answer, DATA)
    ports = reading.ports
    slots = (ports.lid == lid).nonzero()[0]
    node = ports.fabric.nodes.name[ports.fabric.ports.node[slots[0]]] if len(slots) else ""
    return Manager(
        node=node, guid=info.guid, lid=lid, priority=info.priority, state=int(info.sm_state), activity=info.act_count
    )
