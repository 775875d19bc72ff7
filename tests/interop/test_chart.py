"""The chart for Kubernetes: helm renders it, its manifests are valid, and their containers run as in pods."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.interop.conftest import do_without, find_module, find_peer
from tests.interop.pods import IMAGE, Manifest, Network, Pod, get
from tests.interop.test_roce_namespaces import why_not
from tests.patience import PATIENCE_S, wait_until

from weft.version import __version__

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
JOIN, SERVE = "j" * 16, "s" * 32
TOKENS = ("--set", f"secret.join={JOIN},secret.serve={SERVE}")
RUN = "/run/weft/host/run"
VALUES = {
    "defaults": (),
    "served": ("--set", "serve.enabled=true", *TOKENS),
    "TLS and a claim": ("--set", "serve.enabled=true,serve.tlsSecret=cert,serve.claim=disk,secret.existing=mine"),
    "superpod": ("--set", "lab.spec=superpod:su=1\\,servers=4,hosts.prefix=dgx,hosts.replicas=0,hosts.image=mine:1"),
    "options": ("--set", "lab.options={-R,updn},hosts.options={--patience=60},hosts.command={sh,-c,id}"),
    "without files": ("--set", "hosts.sysfs=false"),
}


def helm(*words: str, status: int = 0) -> str:
    """Run helm, from PATH or from the folder of this Python, and return its output."""
    program = shutil.which("helm") or shutil.which("helm", path=str(Path(sys.executable).parent))
    if program is None:
        do_without("helm")
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def rendered(*values: str) -> list[Manifest]:
    return list(yaml.safe_load_all(helm("template", "r", str(CHART), *values)))


def of_kind(manifests: list[Manifest], kind: str) -> Manifest:
    return next(manifest for manifest in manifests if manifest["kind"] == kind)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_chart_has_no_lint_and_its_manifests_follow_the_schemas_of_kubernetes(values):
    find_module("kubernetes_validate")
    import kubernetes_validate

    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), *values)
    for manifest in rendered(*values):
        for version in ("1.29", "1.37"):
            kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("lab.spec=", "spec"),
        ("lab.spec=--sm", "spec"),
        ("lab.specs=star", "specs"),
        ("secret.join=short", "join"),
        ("secret.serve=0123456789abcdef", "serve"),
        ("hosts.replicas=-1", "replicas"),
        ("hosts.replicas=two", "replicas"),
        ("hosts.command=", "command"),
        ("hosts.sysfs=perhaps", "sysfs"),
        ("serve.enabled=perhaps", "enabled"),
        ("user=0", "user"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
    ],
)
def test_wrong_values_are_refused_by_name(value, says):
    message = helm("template", "r", str(CHART), "--set", value, status=1)
    assert "values don't meet the specifications of the schema" in message
    assert says in message


def test_the_chart_has_the_version_of_weft_and_makes_tokens_that_weft_accepts():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__
    made = of_kind(rendered(), "Secret")["data"]
    assert [len(base64.b64decode(made[name])) for name in ("join", "serve")] == [40, 40]
    given = of_kind(rendered(*TOKENS), "Secret")["data"]
    assert [base64.b64decode(given[name]).decode() for name in ("join", "serve")] == [JOIN, SERVE]


# -- as pods ----------------------------------------------------------------------------------------------------------


class Cluster:
    """The pods of the chart: one of the lab and two of hosts."""

    def __init__(self) -> None:
        manifests = rendered("--set", "serve.enabled=true", *TOKENS)
        secrets = {item["metadata"]["name"]: item["data"] for item in manifests if item["kind"] == "Secret"}
        self.network = Network()
        self.lab = Pod(of_kind(manifests, "Deployment"), self.network, secrets)
        self.network.hosts["r-lab"] = self.lab.address
        workload = of_kind(manifests, "StatefulSet")
        first = workload["spec"]["ordinals"]["start"]
        self.hosts = [Pod(workload, self.network, secrets, first + at) for at in range(workload["spec"]["replicas"])]

    def start(self) -> None:
        self.lab["lab"].start()
        self.lab["lab"].wait_for("startupProbe")
        self.lab["serve"].start(beside=self.lab["lab"])
        for pod in self.hosts:
            pod["join"].start()
            pod["join"].wait_for("startupProbe")
            pod["host"].start()

    def remove(self) -> None:
        for pod in (*self.hosts, self.lab):
            pod.remove()
        self.network.remove()


@pytest.fixture(scope="module")
def cluster(request) -> Iterator[Cluster]:
    helm("version")
    if (reason := why_not()) and os.environ.get("CI") != "true":
        pytest.skip(reason)
    assert not reason
    for program in ("unshare", "nsenter", *(() if IMAGE else ("setpriv", "ibping", "ib_write_bw", "ibv_devinfo"))):
        find_peer(program)
    if IMAGE is None:
        request.getfixturevalue("compiled")
    result = Cluster()
    try:
        result.start()
        yield result
    finally:
        result.remove()


def test_containers_are_confined_as_the_manifests_say(cluster):
    """The tests below hold for real pods only if containers here have the same isolation."""
    for container in (cluster.lab["lab"], cluster.lab["serve"], *cluster.hosts[0].containers.values()):
        assert container.run("id", "-u").strip() == "10001"
        facts = container.run("cat", "/proc/self/status")
        assert re.search(r"^CapBnd:\s0+$", facts, re.M)
        assert re.search(r"^NoNewPrivs:\s1$", facts, re.M)
        for path in ("/", "/opt/cache/weft", "/etc"):
            assert "Read-only file system" in container.run("touch", f"{path}/new", status=1)
        container.run("touch", "/tmp/new")


def test_diagnostics_of_a_pod_see_the_fabric(cluster):
    first, second = (pod["host"] for pod in cluster.hosts)
    assert "Port GUID: 0x0002c90300000101" in first.run(RUN, "ibstat")
    assert "State: Active" in second.run(RUN, "ibstat")
    found = first.run(RUN, "ibnetdiscover")
    assert all(f'"h{number}' in found for number in (1, 2, 3, 4)), found
    assert re.search(r"LinkUp/ *Active|Active/ *LinkUp", first.run(RUN, "iblinkinfo"))
    assert "SMINFO_MASTER" in second.run(RUN, "sminfo")
    for program in ("ibv_devinfo", "/usr/bin/ibv_devinfo"):  # weft's, and rdma-core's
        described = first.run(RUN, program, "-v")
        assert re.search(r"state:\s+PORT_ACTIVE \(4\)", described)
        assert re.search(r"GID\[ *0\]:\s+fe80:", described)


def test_files_of_adapters_are_where_linux_has_them_in_a_pod(cluster):
    """For programs that are not started by RUN, such as those that count the adapters of a node."""
    host = cluster.hosts[1]["host"]
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    lid = re.search(r"Base lid: (\d+)", host.run(RUN, "ibstat"))
    assert lid
    assert host.run("cat", f"{port}/gids/0", f"{port}/lid").split() == [
        "fe80:0000:0000:0000:0002:c903:0000:0201",
        hex(int(lid[1])),
    ]
    assert host.run("ls", "/sys/class/net").split() == ["eth0", "ib0", "lo"]
    assert host.run("cat", "/sys/class/net/eth0/operstate") == "up\n"
    assert host.run("ls", "/dev/infiniband").split() == ["issm0", "rdma_cm", "umad0", "uverbs0"]
    host.run("sh", "-c", "test -c /dev/infiniband/uverbs0 && : <> /dev/infiniband/uverbs0")
    for path in ("/dev/infiniband", "/sys/class", "/sys/class/infiniband"):
        assert "Read-only file system" in host.run("touch", f"{path}/new", status=1)


def test_pods_ping_each_other_both_ways(cluster):
    for near, far in (cluster.hosts, reversed(cluster.hosts)):
        lid = re.search(r"Base lid: (\d+)", far["host"].run(RUN, "ibstat"))
        assert lid
        server = far["host"].exec(RUN, "ibping", "-S")
        try:
            printed = ""
            for _ in range(20):  # until the server listens
                program = near["host"].exec(RUN, "ibping", "-c", "3", lid[1])
                printed, _ = program.communicate(timeout=PATIENCE_S)
                if "3 packets transmitted, 3 received" in printed:
                    break
            assert "3 packets transmitted, 3 received" in printed
        finally:
            near_end = far["host"].exec("sh", "-c", "kill $(grep -al ibping /proc/[0-9]*/comm | cut -d/ -f3)")
            near_end.communicate(timeout=PATIENCE_S)
            server.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("program", ["ib_write_bw", "/usr/bin/ib_write_bw"], ids=["weft's", "perftest's"])
def test_perftest_runs_between_pods(cluster, program):
    near, far = (pod["host"] for pod in cluster.hosts)
    words = [RUN, program, "-s", "4096", "-n", "20"]
    server = near.exec("sh", "-c", f"exec {' '.join(words)} {'--bind_source_ip $POD_IP' * ('/' not in program)}")
    try:

        def client() -> str:
            program = far.exec(*words, cluster.hosts[0].address)
            printed = program.communicate(timeout=PATIENCE_S)[0]
            return printed if program.returncode == 0 else ""

        assert re.search(r"^ *4096 +20 +", wait_until(client, "perftest", lambda: server.poll() is None), re.M)
    finally:
        server.kill()
        server.communicate(timeout=PATIENCE_S)


def test_a_fault_on_command_takes_the_port_of_a_pod_down(cluster):
    lab, host = cluster.lab["lab"], cluster.hosts[1]["host"]
    lab.run("weft", "break", "h2")
    assert "State: Down" in host.run(RUN, "ibstat")
    lab.run("weft", "fix")
    wait_until(lambda: "State: Active" in host.run(RUN, "ibstat"))


def test_the_service_answers_other_pods_as_ufm_does(cluster):
    cluster.lab["serve"].wait_for("startupProbe")
    assert cluster.lab["serve"].passes("readinessProbe")
    other = cluster.hosts[0].namespace
    at = f"http://{cluster.lab.address}"
    assert get(other, f"{at}:8585/ufmRest/resources/ports").startswith("401")
    ports = get(other, f"{at}:8585/ufmRest/resources/ports?sys_type=Computer", SERVE)
    assert ports.startswith("200")
    assert all(f'"h{number}' in ports for number in (1, 2, 3, 4))
    assert "PortXmitDataExtended" in get(other, f"{at}:9001/csv/metrics")


_KEYS = """
from pyverbs.device import Context
print([hex(Context(name="mlx5_0").query_pkey(1, index)) for index in range(4)])
"""


def test_calls_of_ib_kubernetes_put_pods_into_a_partition_and_out_of_it(cluster):
    """As its plugin for UFM writes them when pods of a network start and end."""
    cluster.lab["serve"].wait_for("startupProbe")
    other, at = cluster.hosts[0].namespace, f"http://{cluster.lab.address}:8585/ufmRest"
    assert get(other, f"{at}/app/ufm_version", SERVE).startswith("200")
    guids = ["0002c90300000101", "0002c90300000201"]
    member = {"pkey": "0x0101", "index0": True, "ip_over_ib": True, "membership": "full", "guids": guids}
    assert get(other, f"{at}/resources/pkeys", SERVE, json.dumps(member)).startswith("20")
    used = json.loads(get(other, f"{at}/resources/pkeys/?guids_data=true", SERVE).partition(" ")[2])
    assert [item["guid"] for item in used["0x101"]["guids"]] == guids

    def keys() -> list[bool]:
        """Return for each pod whether its port has the P_Key."""
        tables = [pod["host"].run(RUN, "python", "-c", _KEYS) for pod in cluster.hosts]
        return ["0x8101" in table for table in tables]

    wait_until(lambda: keys() == [True, True], "the P_Key in both pods")
    body = json.dumps({"pkey": "0x0101", "guids": guids[1:]})
    assert get(other, f"{at}/actions/remove_guids_from_pkey", SERVE, body).startswith("20")
    wait_until(lambda: keys() == [True, False], "one pod in the partition")
    body = json.dumps({"pkey": "0x0101", "guids": guids[:1]})
    assert get(other, f"{at}/actions/remove_guids_from_pkey", SERVE, body).startswith("20")
    wait_until(lambda: keys() == [False, False], "no pod in the partition")


def test_pods_end_cleanly_and_are_restarted_when_the_lab_ends(cluster):
    """The last test of this cluster."""
    first, second = cluster.hosts
    lab = cluster.lab["lab"]
    assert lab.passes("readinessProbe")
    assert lab.passes("livenessProbe")
    (manager,) = json.loads(lab.run("weft", "sm", "status", "--json"))
    lab.run("sh", "-c", f"kill -9 {manager['pid']}")
    wait_until(lambda: not lab.passes("livenessProbe"))
    assert first["join"].terminate() == 0
    assert not (first.volume("host") / "host" / "env").exists()
    assert second["join"].passes("readinessProbe")
    assert cluster.lab["lab"].terminate() == 0
    assert second["join"].process.wait(PATIENCE_S) == 1
    assert not (second.volume("host") / "host" / "env").exists()
