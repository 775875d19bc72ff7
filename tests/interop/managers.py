"""Weft's subnet manager as a separate process, on the subnet that its options and its environment select."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.patience import PATIENCE_S, wait_until

from weft.fabric.files import opensm as files
from weft.fabric.files.opensm_tables import read_tables
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.sm.status import Status, read_status


class Manager:
    """A `weft sm` with its log, its state and its dumps in a folder."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self.folder, self.dumps = folder, folder / "dumps"
        self.dumps.mkdir(parents=True)
        words = [sys.executable, "-m", "weft", "sm", *options, "--dump", str(self.dumps), "--state", "state.json"]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                words,
                cwd=folder,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def wait_for(self, happened: Callable[[], bool], what: str) -> None:
        wait_until(happened, lambda: f"{self.log()[-3000:]}\n{what}", lambda: self.process.poll() is None)

    def wait_until_up(self) -> None:
        """Wait until the first sweep and the files that it writes are complete."""
        self.wait_for(lambda: self.status is not None and self.status.sweeps > 0, "SUBNET UP")

    @property
    def status(self) -> Status | None:
        return read_status(self.folder / "state.json")

    def fabric(self) -> Fabric:
        """Return the dumped fabric."""
        result = files.read(self.dumps / "opensm-subnet.lst")
        read_tables(self.dumps, result)
        return result

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=PATIENCE_S)


def graph(fabric: Fabric) -> set[str]:
    """Return the cables with their rates and the nodes with their GUIDs."""
    cables = {f"{link.label} {sorted(map(str, (link.a, link.b)))}" for link in fabric.all_links()}
    return cables | {f"{node.name} {node.guid}" for node in (*fabric.switches, *fabric.hcas)}


def lids(fabric: Fabric) -> dict[str, int]:
    return {node.name: int(node.lid) for node in (*fabric.switches, *fabric.hcas)}


def way(fabric: Fabric, source: str, target: str) -> list[str]:
    """Return the output ports, node after node, on the path between two adapters by the tables."""
    lid = int(fabric.find_node(target).lid)
    left = fabric[f"{source}/1"]
    used = [str(left)]
    while left.peer.node.kind == NodeKind.SWITCH:
        switch = left.peer.node
        left = fabric[f"{switch.name}/{fabric.tables.lft[fabric.tables.switch_row[switch.index], lid]}"]
        used.append(str(left))
    assert left.peer.node.name == target
    return used
