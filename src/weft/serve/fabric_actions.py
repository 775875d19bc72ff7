"""Actions on the fabric of a service: disable and enable ports, disconnect and reconnect cables.

Ports are set with MADs, as `ibportstate` does it. Cables can be disconnected in labs only.
"""

from __future__ import annotations

import threading
from typing import Protocol

from weft.diags.port_actions import set_physical_state
from weft.lab import control, registry
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.keyed import KeyedCarrier, KeyFile
from weft.wire.port_info import PortPhysicalState


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
