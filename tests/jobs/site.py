"""A lab in this process, with subnet managers in processes that can be killed."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from typing import Any

from tests.lab.rdma import all_active
from tests.patience import wait_until
from tests.warm import WARM, kill

import weft
from weft.fabric.forwarding import Reason, walk
from weft.lab import registry
from weft.lab.commands import serve_commands
from weft.lab.lab import Lab
from weft.lab.subnet_manager import state_file
from weft.sm.control import ManagerSocket, socket_of
from weft.sm.status import read_status


class Site:
    """A lab with a subnet manager and optional standbys. It needs the fixture `warm`."""

    def __init__(self, opened: ExitStack) -> None:
        self.lab = Lab(weft.load("fat-tree:hosts=8,radix=4"), f"faults-{os.getpid()}")
        self.entry = opened.enter_context(registry.claim(self.lab.name))
        opened.callback(serve_commands(self.lab, self.entry).server_close)
        opened.enter_context(self.lab)
        self._opened, self.managers = opened, dict[str, subprocess.Popen[bytes]]()
        self.manage("h1")
        wait_until(lambda: all_active(self.lab), lambda: self.log("h1"))

    def manage(self, host: str) -> None:
        place = self.entry.cache / f"{host}.log"
        with place.open("wb") as log:
            words = [os.environ[WARM], "sm", "--lab", self.lab.name, "--at", host]
            self.managers[host] = subprocess.Popen(words, stdout=log, stderr=log)
        self._opened.callback(self.kill, host)

    def kill(self, host: str) -> None:
        kill(self.managers[host])

    def log(self, host: str) -> str:
        return (self.entry.cache / f"{host}.log").read_text()

    def is_manager(self, host: str, state: str) -> bool:
        status = read_status(state_file(self.entry, host))
        return status is not None and status.is_running and status.sm_state == state

    @property
    def socket(self) -> ManagerSocket:
        """The socket of the master subnet manager."""
        master = wait_until(lambda: next((host for host in self.managers if self.is_manager(host, "master")), ""))
        return ManagerSocket(socket_of(state_file(self.entry, master)))

    def way(self, source: str, to: str) -> list[int]:
        """Return the output ports on the path by the current tables; empty if a packet does not arrive."""
        devices = self.lab.subnet.devices
        begin, end = (self.lab.fabric[f"{host}/1"].slot for host in (source, to))
        path = walk(devices, begin, dlid=devices.lid(end), sl=0, p_key=0xFFFF, size_bytes=256)
        return list(path.out) if path.reason is Reason.ARRIVED else []

    def counters(self) -> Any:
        return self.lab.fabric_now().counters.copy()
