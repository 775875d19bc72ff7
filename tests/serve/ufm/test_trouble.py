"""A UFM for tests: inventory that comes and goes, ports that are switched off, calls that fail or take long."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from tests.patience import wait_until

from weft import runtime
from weft.errors import ConfigError, SubnetError
from weft.lab import registry
from weft.lab.subnet_manager import state_file
from weft.serve.embedded import Ufm
from weft.serve.faults import Fault, Faults
from weft.serve.ufm.health import mark
from weft.serve.ufm.shapes import Picture
from weft.sm.control import ManagerSocket, socket_of

HOSTS = ("h1", "h2", "h3", "h4", "h5", "h6")


def test_a_disconnected_host_comes_back_with_its_partitions(ufm):
    ufm.done("POST", "resources/pkeys", {"pkey": "0xb01", "guids": [ufm.guid("h5")]})
    assert ufm.ufm.disconnect("h5") == ["h5/1"]
    ufm.wait_for_hosts(*(host for host in HOSTS if host != "h5"))
    assert ufm.call("GET", f"resources/ports/{ufm.guid('h5')[:-1]}0_1").status_code == 404
    assert set(ufm.members("0xb01")) == {ufm.guid("h5")}  # it is a member, whether it is up or not
    ufm.ufm.reconnect("h5")
    ufm.wait_for_hosts(*HOSTS)
    ufm.done("DELETE", "resources/pkeys/0xb01")


def test_a_job_on_a_failed_host_can_be_removed(ufm):
    ufm.done("POST", "resources/pkeys/hosts", {"pkey": "0xb02", "hosts_names": "h[3-4]"})
    ufm.ufm.disconnect("h4")
    ufm.wait_for_hosts(*(host for host in HOSTS if host != "h4"))
    assert ufm.call("DELETE", "resources/pkeys/0xb02/hosts/h[3-4,9]").status_code == 404  # never a member
    ufm.done("DELETE", "resources/pkeys/0xb02/hosts/h[3-4]")
    assert ufm.get("resources/pkeys/0xb02") == {}
    ufm.ufm.reconnect("h4")
    ufm.wait_for_hosts(*HOSTS)


def test_hosts_are_disconnected_and_reconnected_over_rest(ufm):
    assert ufm.call("DELETE", "lab/h6", base="/api/v1").json() == {"ports": ["h6/1"]}
    ufm.wait_for_hosts(*HOSTS[:-1])
    assert ufm.call("PUT", "lab/h6", base="/api/v1").json() == {"ports": ["h6/1"]}
    ufm.wait_for_hosts(*HOSTS)
    assert ufm.call("DELETE", "lab/h99", base="/api/v1").status_code == 422


def test_an_isolated_port_is_disabled_until_it_is_marked_healthy(ufm):
    """The calls are those of the PDR plugin; marks stay after the port has disappeared."""
    (name,) = [item["name"] for item in ufm.get("resources/ports?system=h4")]
    ufm.done("PUT", "app/unhealthy_ports", {"ports": [name], "ports_policy": "UNHEALTHY", "action": "isolate"})
    ufm.wait_for_hosts(*(host for host in HOSTS if host != "h4"))
    (text,) = ufm.get("app/unhealthy_ports")
    assert (text["UnhealthyNode"], text["PeerNode"], text["Condition"]) == ("h4", "leaf2", "MANUAL")
    assert ufm.get(f"app/unhealthy_ports/{name}") == text
    assert [item["object_name"] for item in ufm.get("app/alarms")] == [name]
    at_switch = f"{text['PeerGUID']}_{text['PeerPortNumber']}"
    assert ufm.get(f"resources/ports/{at_switch}")[0]["physical_state"] == "Disabled"
    output = [[item["name"] for item in ufm.get(f"resources/ports?show_disabled={word}")] for word in ("true", "false")]
    assert set(output[0]) - set(output[1]) == {at_switch}
    ufm.done("PUT", "app/unhealthy_ports", {"ports": [at_switch], "ports_policy": "HEALTHY"})
    ufm.wait_for_hosts(*HOSTS)
    assert ufm.get("app/unhealthy_ports") == []


def test_isolating_a_device_creates_a_job(ufm):
    """The calls are those of NVIDIA's batch_isolate_devices."""
    (guid,) = [item["guid"] for item in ufm.get("resources/systems?type=host") if item["system_name"] == "h3"]
    body = {"action": "mark_device_unhealthy", "object_ids": [guid], "params": {"action": "isolate"}}
    result = ufm.call("POST", "actions", body)
    assert (result.status_code, result.headers["Location"]) == (202, result.json())
    assert ufm.get(result.headers["Location"].removeprefix("/ufmRestV3/"))["Status"] == "Completed"
    ufm.wait_for_hosts(*(host for host in HOSTS if host != "h3"))
    ufm.done("PUT", "app/unhealthy_ports", {"devices": [guid], "ports_policy": "HEALTHY"})
    ufm.wait_for_hosts(*HOSTS)


def test_a_switch_is_isolated_at_its_neighbours_and_restored(ufm):
    """The switch itself would not be reachable after its last port is disabled."""
    (guid,) = [item["guid"] for item in ufm.get("resources/systems?type=switch") if item["system_name"] == "leaf3"]
    body = {"devices": [guid], "ports_policy": "UNHEALTHY", "action": "isolate"}
    ufm.done("PUT", "app/unhealthy_ports", body)
    ufm.wait_for_hosts(*HOSTS[:4])
    assert len(ufm.get("app/unhealthy_ports")) == 4
    assert "leaf3" not in {item["system_name"] for item in ufm.get("resources/systems")}
    assert ufm.call("PUT", "app/unhealthy_ports", body).status_code == 404  # it is not seen any more
    up = next(item for item in ufm.get("app/unhealthy_ports") if item["PeerNode"] == "spine1")
    ufm.done(
        "PUT", "app/unhealthy_ports", {"ports": [f"{guid}_{up['UnhealthyPortNumber']}"], "ports_policy": "HEALTHY"}
    )
    wait_until(lambda: "leaf3" in {one["system_name"] for one in ufm.get("resources/systems")})
    ufm.wait_for_hosts(*HOSTS[:4])  # they are isolated still, though their switch is back
    ufm.done("PUT", "app/unhealthy_ports", {"devices": [guid], "ports_policy": "HEALTHY"})
    ufm.wait_for_hosts(*HOSTS)
    assert ufm.get("app/unhealthy_ports") == []


class FailingActions:
    """A `FabricActions` that fails after a number of ports."""

    def __init__(self, most: int) -> None:
        self.off: list[tuple[int, int]] = []
        self.most = most

    def disable(self, lid: int, number: int) -> None:
        if len(self.off) == self.most:
            raise SubnetError(f"port {number} does not answer")
        self.off.append((lid, number))

    def enable(self, lid: int, number: int) -> None:
        self.off.remove((lid, number))


def test_a_partly_failed_isolation_is_reverted(ufm):
    picture = Picture(ManagerSocket(socket_of(state_file(registry.find(ufm.ufm.lab), "h1"))).subnet())
    names = [port.name for port in picture.of_system("leaf1") if port.peer != "N/A"]
    actions = FailingActions(len(names) - 1)
    with pytest.raises(SubnetError, match="does not answer"):
        mark(picture, actions, names, isolate=True)
    assert actions.off == []


def test_a_port_that_is_reset_comes_back(ufm):
    (port,) = ufm.get("resources/ports?system=h2")
    body = {"action": "reset", "object_ids": [port["systemID"]], "params": {"port_id": port["name"]}}
    ufm.done("POST", "actions", body, status=202)
    ufm.wait_for_hosts(*HOSTS)
    wait_until(lambda: ufm.get("resources/ports?system=h2")[0]["logical_state"] == "Active")
    assert ufm.call("POST", "actions", {**body, "params": {}}).status_code == 404


def test_a_fault_applies_as_often_as_requested(ufm):
    ufm.ufm.fault("*/app/ufm_version", method="GET", status=503, latency_s=0.2, times=1)
    begin_s = time.monotonic()
    assert ufm.call("GET", "app/ufm_version").status_code == 503
    assert time.monotonic() - begin_s >= 0.2
    assert ufm.call("GET", "app/ufm_version").status_code == 200


def test_faults_are_injected_and_removed_over_rest(ufm):
    result = ufm.call("POST", "faults", {"path": "/ufmRest*/app/smconf", "status": 500}, base="/api/v1")
    assert result.status_code == 201
    assert [ufm.call("GET", "app/smconf").status_code for _ in range(2)] == [500, 500]
    (output,) = ufm.call("GET", "faults", base="/api/v1").json()
    assert (output["path"], output["times"]) == ("/ufmRest*/app/smconf", None)
    assert ufm.call("DELETE", f"faults/{result.json()['id']}", base="/api/v1").status_code == 204
    assert ufm.call("GET", "app/smconf").status_code == 200
    assert ufm.call("POST", "faults", {"status": 200}, base="/api/v1").status_code == 422


@pytest.mark.parametrize(
    "words", [{}, {"status": 299}, {"latency_s": -1}, {"status": 503, "times": 0}, {"status": 503, "method": "FETCH"}]
)
def test_an_invalid_fault_is_refused(words):
    with pytest.raises(ConfigError):
        Fault(**words)


def test_the_first_matching_fault_is_used_first():
    faults = Faults()
    faults.add(Fault(path="/a*", status=500, times=1))
    faults.add(Fault(status=503))
    struck = [faults.match("GET", path) for path in ("/b", "/ab", "/ab", "/api/v1/faults")]
    assert [fault and fault.status for fault in struck] == [503, 500, 503, None]


def test_a_lab_ends_with_the_test_that_was_killed():
    """It leaves nothing behind, even without a clean-up."""
    script = "import os, signal\nfrom weft.serve.embedded import Ufm\nufm = Ufm('star:hosts=2')\nufm.__enter__()\n"
    script += "print(ufm.lab, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    wait_until(registry.entry(result.stdout.strip()).is_free, "the lab's end")


def test_an_abandoned_lab_leaves_nothing_behind():
    with Ufm("star:hosts=2") as result:
        assert list(runtime.folder().glob(f"{result.lab}.*"))
    assert not list(runtime.folder().glob(f"{result.lab}.*"))
