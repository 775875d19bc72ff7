"""Slurm itself runs weft's prolog and epilog: slurmctld and slurmd of a cluster of one node, and real batch jobs."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.clouds.ufm_server import UfmServer, running_ufm
from tests.documents import find_block
from tests.patience import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow]
CONFIGURATION = """\
ClusterName=weft
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
MpiDefault=none
{documented}
SchedulerParameters=sched_min_interval=0
NodeName=h1 NodeAddr=127.0.0.1 Port={ports[1]}
PartitionName=all Nodes=ALL Default=YES
"""


class Cluster:
    """A cluster with one node, h1, that runs jobs."""

    def __init__(self, folder: Path, ufm: UfmServer, peer: Callable[[str], str]) -> None:
        self.folder, self.peer = folder, peer
        with ExitStack() as result:
            free = [result.enter_context(socket.socket()) for _ in range(2)]
            for item in free:
                item.bind(("127.0.0.1", 0))
            ports = [item.getsockname()[1] for item in free]
        documented = find_block("docs/slurm.md", "PrologSlurmctld=").replace("/etc/slurm", str(folder))
        facts = {"host": socket.gethostname(), "user": getpass.getuser(), "folder": folder, "ports": ports}
        facts["documented"] = documented
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**facts))
        # slurmd requires a cgroup plugin, although no test uses cgroups.
        (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}/cgroup\n")
        for name in ("state", "spool", "cgroup"):
            (folder / name).mkdir()
        self._install(ufm)

    def _install(self, ufm: UfmServer) -> None:
        """Install as the documentation says, in this folder instead of /etc and /var/log."""
        (self.folder / "token").write_text("t\n")
        places = {
            "/etc/weft": str(self.folder),
            "/etc/slurm": str(self.folder),
            "/var/log/slurm": str(self.folder),
            "chown slurm": f"chown {getpass.getuser()}",
            "/opt/weft/bin/weft": f"{sys.executable} -m weft",  # slurmctld gives its scripts no PATH
            "https://ufm.example": ufm.url,
        }
        script, modes = (find_block("docs/slurm.md", word) for word in ("weft slurm prolog", "chmod 755"))
        for old, new in places.items():
            script, modes = script.replace(old, new), modes.replace(old, new)
        (self.folder / "weft-prolog").write_text(script)
        (self.folder / "weft-epilog").write_text(script.replace("slurm prolog", "slurm epilog"))
        subprocess.run(["sh", "-ec", modes], check=True)

    def ask(self, program: str, *words: str) -> str:
        environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        command = [self.peer(program), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.strip()

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / command[0]).open("w") as log:
            words = [self.peer(command[0]), "-D", "-f", str(self.folder / "slurm.conf"), *command[1:]]
            return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)

    def submit(self, script: str) -> int:
        answer = self.ask("sbatch", "-o", str(self.folder / "job-%A"), "--wrap", script)
        return int(answer.rpartition(" ")[2])

    def tidy(self, ufm: UfmServer) -> str:
        command = [sys.executable, "-m", "weft", "slurm", "tidy", "--ufm", ufm.url]
        environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "WEFT_UFM_TOKEN": "t"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    def logs(self) -> str:
        return "\n".join((self.folder / name).read_text()[-2000:] for name in ("slurmctld", "slurmd"))


@pytest.fixture
def ufm() -> Iterator[UfmServer]:
    with running_ufm() as server:
        server.hosts = {"h1": ["0000000000000011", "0000000000000012"]}
        yield server


@pytest.fixture
def cluster(tmp_path, ufm, peer) -> Iterator[Cluster]:
    item = Cluster(tmp_path, ufm, peer)
    daemons = [item.start("slurmctld", "-c"), item.start("slurmd", "-N", "h1")]
    try:
        wait_until(
            lambda: item.ask("sinfo", "-h", "-o", "%T") == "idle",
            lambda: f"{item.logs()}\nthat the node is idle",
            lambda: all(daemon.poll() is None for daemon in daemons),
        )
        yield item
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:  # slurmctld's threads deadlock now and then
                daemon.kill()
                daemon.wait()


def test_a_job_has_its_partition_while_it_runs_and_a_ufm_that_is_away_drains_no_node(cluster, ufm, tmp_path):
    first = cluster.submit(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done")
    wait_until(lambda: cluster.ask("squeue", "-h", "-j", str(first), "-o", "%T") == "RUNNING", cluster.logs)
    assert (ufm.partitions[first]["partition"], ufm.members(first)) == (f"slurm-{first}", {0x11, 0x12})
    ufm.partitions[999] = {**ufm.partitions[first], "partition": "slurm-999"}
    assert cluster.tidy(ufm) == "job 999: its partition is deleted"
    assert ufm.partitions.keys() == {first}
    (tmp_path / "go").touch()
    wait_until(lambda: ufm.partitions == {}, cluster.logs)

    ufm.status = 503
    second = cluster.submit(f"touch {tmp_path}/ran")
    wait_until(lambda: "answers 503" in (tmp_path / "weft.log").read_text(), cluster.logs)
    wait_until(lambda: cluster.ask("squeue", "-h", "-j", str(second), "-o", "%T") == "PENDING", cluster.logs)
    wait_until(lambda: cluster.ask("sinfo", "-h", "-o", "%T") == "idle", cluster.logs)
    assert not (tmp_path / "ran").exists()

    ufm.status = 200
    cluster.ask("scontrol", "update", f"JobId={second}", "StartTime=now")
    wait_until((tmp_path / "ran").exists, cluster.logs)
    wait_until(lambda: ufm.partitions == {}, cluster.logs)
