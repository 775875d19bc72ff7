"""A lab that OpenSM manages."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.patience import PATIENCE_S, wait_until

from weft.fabric.model import Fabric
from weft.lab.lab import Lab
from weft.wire.port_info import PortInfo, PortState

_NUMBER = itertools.count()


class Managed:
    """A lab, the OpenSM that manages it, and its results."""

    def __init__(self, fabric: Fabric, folder: Path) -> None:
        self.lab = Lab(fabric, f"test-{next(_NUMBER)}-{folder.name[-12:]}")
        self.fabric, self.folder = fabric, folder
        self.managers: list[subprocess.Popen[str]] = []

    def tool(self, host: str, *command: str, status: int = 0) -> str:
        done = self.lab.run(host, *command, folder=self.folder, timeout_s=PATIENCE_S)
        assert done.returncode == status, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def sweep(self, host: str, *options: str) -> str:
        """Run one sweep of OpenSM and return its log."""
        place, words = self._opensm(host)
        done = self.lab.run(host, *words, "-o", *options, folder=place, timeout_s=PATIENCE_S, **self._caches(place))
        log = (place / "log").read_text(errors="replace")
        assert "SUBNET UP" in log, f"{done.stdout[-2000:]}{log[-2000:]}"
        return log

    def manage(self, host: str, *options: str) -> subprocess.Popen[str]:
        """Start OpenSM as a daemon that sweeps only on request."""
        place, words = self._opensm(host)
        child = self.lab.start(host, *words, "-s", "0", *options, folder=place, **self._caches(place))
        self.managers.append(child)
        return child

    def log(self, host: str) -> str:
        path = self.folder / host / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, what: Callable[[], bool], why: str) -> None:
        wait_until(what, lambda: "\n".join([*(self.log(one.name)[-1500:] for one in self.folder.iterdir()), why]))

    def ups(self, host: str) -> int:
        return self.log(host).count("SUBNET UP")

    def _opensm(self, host: str) -> tuple[Path, list[str]]:
        place = self.folder / host
        place.mkdir(exist_ok=True)
        # 0x83: errors, infos and system, flushed at once
        return place, ["opensm", "-f", str(place / "log"), "-e", "-D", "0x83", "-d", "2"]

    def _caches(self, place: Path) -> dict[str, str]:
        return {"OSM_CACHE_DIR": str(place), "OSM_TMP_DIR": str(place)}

    def states(self) -> set[PortState]:
        """Return the states of all ports with a connected cable."""
        devices = self.lab.subnet.devices
        up = [slot for slot in range(len(devices.cable)) if devices.peer(slot) >= 0]
        return {PortState(PortInfo.port_state.get(devices.info(slot))) for slot in up}

    def end(self) -> None:
        for child in self.managers:
            child.kill()
            child.wait()
        self.lab.stop()
