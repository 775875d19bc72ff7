"""Actions on the fabric of a service: disable and enable ports, disconnect and reconnect cables.

Ports are set with MADs, as `ibportstate` does it. Cables can be disconnected in labs only.
"""

from __future__ import annotations

import threading
from typing import Protocol

from weft.diags.query import RETRIES, TIMEOUT_MS, Target, get_smp
from weft.errors import SubnetError
from weft.lab import control, registry
from weft.mad.carrier import Address, Carrier, ask
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.keyed import KeyedCarrier, KeyFile
from weft.wire.mad import MadHeader, Method
from weft.wire.port_info import PortInfo, PortPhysicalState, PortState
from weft.wire.smp import Smp, SmpAttribute


class FabricActions(Protocol):
    """The actions that a service can perform on its fabric."""

    def disable(self, lid: int, number: int) -> None:
        """Disable a port of the switch with a LID."""

    def enable(self, lid: int, number: int) -> None: ...

    def disconnect(self, name: str) -> list[str]:
        """Disconnect the cables of a host, a switch or a port. Return one port of each cable."""

    def reconnect(self, name: str) -> list[str]: ...


class LabActions:
    """The actions on a lab."""

    def __init__(self, entry: registry.Entry) -> None:
        self._entry = entry
        self._lock = threading.Lock()

    def disable(self, lid: int, number: int) -> None:
        self._set_state(lid, number, PortPhysicalState.DISABLED)

    def enable(self, lid: int, number: int) -> None:
        self._set_state(lid, number, PortPhysicalState.POLLING)

    def disconnect(self, name: str) -> list[str]:
        return list(control.ask(self._entry, "break", name=name))

    def reconnect(self, name: str) -> list[str]:
        return list(control.ask(self._entry, "fix", name=name))

    def _set_state(self, lid: int, number: int, state: PortPhysicalState) -> None:
        with self._lock:  # a new connection each time: a kept one would not survive restarts of the lab
            plain = IbsimCarrier("", control.ask(self._entry, "state")["sockname"])
            carrier = KeyedCarrier(plain, KeyFile(self._entry.m_key_file))
            try:
                set_physical_state(carrier, lid, number, state)
            finally:
                carrier.close()


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
