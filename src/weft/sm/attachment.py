"""The port that a subnet manager speaks through: what it asks for there, and what it asks it."""

from __future__ import annotations

from weft.errors import SubnetError
from weft.mad.carrier import SMP_CLASSES, Carrier, ask
from weft.mad.walk import DATA
from weft.wire.mad import Method, MgmtClass
from weft.wire.smp import DirectedSmp, NodeInfo, SmpAttribute

_SA_METHODS = (Method.GET, Method.SET, Method.GET_TABLE, Method.GET_MULTI, Method.DELETE, Method.GET_TRACE_TABLE)
_SMP_METHODS = (Method.GET, Method.SET, Method.TRAP)
_OWN_MS, _OWN_RETRIES = 1000, 59  # a lab that has just begun looks at its fabric first


def attach(carrier: Carrier, m_key: int) -> int:
    """Ask for all that is a manager's; returns the GUID of the port."""
    for mgmt_class in SMP_CLASSES:
        carrier.register(mgmt_class, _SMP_METHODS)
    carrier.register(MgmtClass.SUBN_ADM, _SA_METHODS, class_version=2)
    answer = ask(carrier, get_own(SmpAttribute.NODE_INFO, m_key), timeout_ms=_OWN_MS, retries=_OWN_RETRIES)
    if answer is None:
        raise SubnetError(
            "the node of this port does not answer NodeInfo: is it up? If another subnet manager has set an M_Key, "
            "give that one: m_key or m_key_file in opensm.conf"
        )
    return int(NodeInfo.unpack(answer, DATA).port_guid)


def get_own(attribute: SmpAttribute, m_key: int) -> bytes:
    """Return a query to our own port, which needs no LID."""
    return DirectedSmp.pack(method=Method.GET, attribute_id=attribute, m_key=m_key)
