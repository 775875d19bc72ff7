"""Slurm itself reads the topology.conf that weft writes: `slurmctld` loads it, `scontrol` shows the result."""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.patience import wait_until

from weft.fabric.files import slurm
from weft.fabric.files.hostlist import compress
from weft.fabric.spec import load

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def _programs(peer: Callable[[str], str]) -> None:
    peer("slurmctld")
    peer("scontrol")


CONFIGURATION = """\
ClusterName=weft
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
StateSaveLocation={folder}
SlurmctldPidFile={folder}/pid
ProctrackType=proctrack/linuxproc
TopologyPlugin=topology/tree
NodeName={nodes} NodeAddr=127.0.0.1 CPUs=1
PartitionName=all Nodes=ALL Default=YES
"""


class Slurm:
    """A cluster of nodes that are never contacted, with a controller if one is started."""

    def __init__(self, folder: Path, nodes: str) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        facts = {"host": socket.gethostname(), "user": getpass.getuser(), "folder": folder, "port": port}
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**facts, nodes=nodes))

    def scontrol(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        return subprocess.run(["scontrol", *arguments], env=environment, capture_output=True, text=True)

    def hostnames(self, hostlist: str) -> set[str]:
        """Return the hosts of a hostlist, expanded by Slurm itself."""
        return set(self.scontrol("show", "hostnames", hostlist).stdout.split())

    def topology(self, text: str) -> dict[str, tuple[int, set[str]]]:
        """Return a controller's reading of a topology.conf: switch -> level and nodes."""
        (self.folder / "topology.conf").write_text(text)
        log = self.folder / "log"
        command = ["slurmctld", "-D", "-c", "-f", str(self.folder / "slurm.conf")]
        with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as controller:
            try:
                requests = wait_until(
                    lambda: (done := self.scontrol("show", "topology")).returncode == 0 and done,
                    lambda: f"{log.read_text()}\nan answer",
                    lambda: controller.poll() is None,
                )
            finally:
                controller.terminate()
        assert not re.search(r"error.*(switch|topolog|node)", log.read_text(), re.IGNORECASE)
        result = re.findall(r"SwitchName=(\S+) Level=(\d+) LinkSpeed=\d+ Nodes=(\S+)", requests.stdout)
        return {name: (int(level), self.hostnames(inside)) for name, level, inside in result}


def test_slurm_expands_a_hostlist_to_the_same_names(tmp_path):
    names = {"h1", "h2", "h3", "h12", "n008", "n009", "n010", "rack1-n9", "rack1-n10", "login", "a7b"}
    assert Slurm(tmp_path, "h1").hostnames(compress(names)) == names


@pytest.mark.parametrize(
    ("spec", "top_level", "switches"),
    [
        ("star:4", 0, 1),
        ("fat-tree:hosts=24,radix=8", 1, 7),  # 6 leaves and the spines as one
        ("fat-tree:hosts=64,radix=8", 2, 16 + 4 + 1),  # leaves, one for the spines of each pod, the cores as one
        ("superpod:su=3", 1, 4),
        ("dragonfly:p=2,a=4,h=1", 2, 20 + 5 + 1),
        ("torus:3x3", 1, 10),
    ],
)
def test_slurm_understands_the_tree(tmp_path, spec, top_level, switches):
    fabric = load(spec)
    tree = Slurm(tmp_path, compress(fabric.servers)).topology(slurm.to_text(fabric))
    leaves = [nodes for level, nodes in tree.values() if level == 0]
    assert len(tree) == switches
    assert max(level for level, _ in tree.values()) == top_level
    assert sorted(name for nodes in leaves for name in nodes) == sorted(fabric.servers)  # each once
    assert [nodes for level, nodes in tree.values() if level == top_level] == [set(fabric.servers)]
