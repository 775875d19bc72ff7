"""Define the operations of the join server on a lab."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import ConfigError
from weft.ids import Guid
from weft.lab.adapters import adapters_of
from weft.lab.attach import Attachments
from weft.lab.join.server import UMAD
from weft.lab.metered_paths import MeteredPaths
from weft.lab.sysfs_tree import tree_of
from weft.lab.verbs_server import VerbsServer
from weft.mad import faults
from weft.wire.port_info import PortInfo, PortState

_WAITING = (PortState.INITIALIZE, PortState.ARMED)


class _HeldPorts(msgspec.Struct, frozen=True):
    """The part of `weft.sm.status.Status` that is read here."""

    held_until_s: dict[str, float] = {}


class LabHosts:
    """The hosts of a lab, for its join server. `states`: the folder with the state files of its subnet managers."""

    def __init__(self, attachments: Attachments, verbs: VerbsServer, metered_paths: MeteredPaths, states: Path) -> None:
        self._attachments, self._verbs, self._metered_paths = attachments, verbs, metered_paths
        self._states = states
        self._devices = attachments.devices

    def find(self, name: str) -> tuple[str, frozenset[int]]:
        if not name:
            raise ConfigError("no host is named: join with --as h3")
        devices, slots = self._devices, set[int]()
        for adapter in adapters_of(devices, name):
            if devices.is_switch[adapter.node]:
                raise ConfigError(f"{name} is a switch: machines join as hosts")
            slots |= {devices.slot(adapter.node, port) for port in range(adapter.first_port, adapter.last_port + 1)}
        return name, frozenset(slots)

    def admit(self, door: int, host: str, connection: socket.socket) -> None:
        (self._attachments if door == UMAD else self._verbs).admit(connection, host)

    def set_elsewhere(self, slots: frozenset[int], elsewhere: bool) -> None:
        self._metered_paths.close_all()
        self._metered_paths.elsewhere = (
            self._metered_paths.elsewhere | slots if elsewhere else self._metered_paths.elsewhere - slots
        )

    def pull(self, slots: frozenset[int]) -> frozenset[int]:
        devices = self._devices
        cabled = (slot for slot in sorted(slots) if devices.cable[slot] >= 0)
        pulled = [slot for slot in cabled if not {slot, devices.cable[slot]} & devices.broken]
        self._metered_paths.close_all()
        for slot in pulled:
            faults.pull_cable(devices, slot)
        return frozenset(pulled)

    def plug(self, slots: frozenset[int]) -> None:
        self._metered_paths.close_all()
        for slot in sorted(slots):
            faults.plug_cable(self._devices, slot)

    def inactive_ports(self, slots: frozenset[int]) -> dict[str, float]:
        devices, fabric = self._devices, self._devices.fabric
        linked = (slot for slot in sorted(slots) if devices.cable[slot] >= 0)
        waiting = [slot for slot in linked if PortInfo.port_state.get(devices.info(slot)) in _WAITING]
        held = self._held_until_s() if waiting else {}
        guids = (Guid(int(fabric.nodes.guid[devices.node_of[slot]])) for slot in waiting)
        return {
            devices.name(slot): held.get(f"{guid}/{fabric.ports.number[slot]}", 0.0)
            for slot, guid in zip(waiting, guids, strict=True)
        }

    def _held_until_s(self) -> dict[str, float]:
        """Return the ports that subnet managers of this lab hold down, as their state files list them."""
        result: dict[str, float] = {}
        for path in self._states.glob("sm-*.json"):
            with suppress(OSError, msgspec.MsgspecError):  # it ends now, or is of another release
                held = msgspec.json.decode(path.read_bytes(), type=_HeldPorts).held_until_s
                result |= {end: until_s for end, until_s in held.items() if until_s > time.time()}
        return result

    def sysfs(self, host: str) -> dict[str, Any]:
        return asdict(tree_of(self._devices, host))
