"""Change a port by MADs: switch it off and on as `ibportstate` does, clear its counters as `perfquery -R` does."""

from __future__ import annotations

from weft.diags.query import RETRIES, TIMEOUT_MS, Target, get_smp
from weft.errors import SubnetError
from weft.mad.carrier import Address, Carrier, ask
from weft.wire.mad import MadHeader, Method, MgmtClass, PlainMad
from weft.wire.perf import PerfAttribute, PortCounters, PortCountersExtended
from weft.wire.port_info import PortInfo, PortPhysicalState, PortState
from weft.wire.smp import Smp, SmpAttribute

_ALL16, _ALL32, _ALL8 = 0xFFFF, 0xFFFF_FFFF, 0xFF  # bits of counters


def set_physical_state(carrier: Carrier, lid: int, number: int, state: PortPhysicalState) -> None:
    """Set the physical state of a switch port, as `ibportstate LID NUMBER disable` and `enable` do."""
    port_info = bytearray(get_smp(carrier, Target(lid), SmpAttribute.PORT_INFO, number))
    PortInfo.port_state.set(port_info, PortState.DOWN)
    PortInfo.port_physical_state.set(port_info, state)
    smp = Smp.pack(
        method=Method.SET, attribute_id=SmpAttribute.PORT_INFO, attribute_modifier=number, data=bytes(port_info)
    )
    answer = ask(carrier, smp, Address(lid=lid), timeout_ms=TIMEOUT_MS, retries=RETRIES)
    status = None if answer is None else MadHeader.status.get(answer) & 0x7FFF
    if status != 0:
        reason = "does not answer" if status is None else f"refuses with status {status:#x}"
        raise SubnetError(f"cannot set port {number} of the switch with LID {lid} to {state.word}: it {reason}")


def clear_counters(carrier: Carrier, lid: int, number: int) -> None:
    """Set the counters of a port to zero, those of 32 bits and those of 64; number 255: of all ports of a switch."""
    basic = PortCounters.pack(port_select=number, counter_select=_ALL16, counter_select2=_ALL8)
    extended = PortCountersExtended.pack(port_select=number, counter_select=_ALL16, counter_select2=_ALL32)
    for attribute, data in (
        (PerfAttribute.PORT_COUNTERS, basic),
        (PerfAttribute.PORT_COUNTERS_EXTENDED, extended),
    ):
        mad = PlainMad.pack(mgmt_class=MgmtClass.PERF, method=Method.SET, attribute_id=attribute, data=data)
        answer = ask(carrier, mad, Address(lid=lid), timeout_ms=TIMEOUT_MS, retries=RETRIES)
        status = None if answer is None else MadHeader.status.get(answer)
        if status != 0:
            reason = "does not answer" if status is None else f"refuses with status {status:#x}"
            raise SubnetError(f"cannot clear the counters of Lid {lid} port {number}: it {reason}")
