"""Define the operations of the join server on a lab."""

from __future__ import annotations

import socket
from dataclasses import asdict
from typing import Any

from weft.errors import ConfigError
from weft.lab.adapters import adapters_of
from weft.lab.attach import Attachments
from weft.lab.join.server import UMAD
from weft.lab.metered_paths import MeteredPaths
from weft.lab.sysfs_tree import tree_of
from weft.lab.verbs_server import VerbsServer
from weft.mad import faults


class LabHosts:
    def __init__(self, attachments: Attachments, verbs: VerbsServer, metered_paths: MeteredPaths) -> None:
        self._attachments, self._verbs, self._metered_paths = attachments, verbs, metered_paths
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

    def sysfs(self, host: str) -> dict[str, Any]:
        return asdict(tree_of(self._devices, host))
