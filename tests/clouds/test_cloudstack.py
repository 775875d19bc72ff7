"""The executable with payload files as in CloudStack's README for extensions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.documents import find_block

from weft.clouds.cloudstack import main

NETWORK = {"network_id": "42", "vlan": "100", "zone_id": "1", "guest_type": "isolated"}
FIRST, MACHINE = 0x08C0EB0300123456, 0x0200000000000001
NIC = {**NETWORK, "mac": "08:c0:eb:12:34:56", "ip": "10.0.0.10", "nic_uuid": "a", "hostname": "vm-1"}
VIRTUAL = {**NIC, "mac": "02:00:00:00:00:01"}


@pytest.fixture
def run(server, tmp_path, monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command: exit status, stdout, stderr."""
    server.hosts = {"h1": [f"{FIRST:016x}"], "h2": ["08c0eb0300999999"]}
    (tmp_path / "token").write_text("secret\n")
    details = {"ufm_url": server.url, "ufm_token_file": str(tmp_path / "token"), "physicalnetworkname": "ib"}

    def command(name: str, payload: Any = None, *, timeout: str = "60", **given: Any) -> tuple[int, str, str]:
        envelope = {"physical-network-extension-details": details, "network-extension-details": {}, **given}
        (tmp_path / "payload").write_text(json.dumps(envelope if payload is None else {**envelope, "payload": payload}))
        monkeypatch.setattr(sys, "argv", ["weft-cloudstack", name, str(tmp_path / "payload"), timeout])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        output = capsys.readouterr()
        return status, output.out, output.err

    return command


@pytest.mark.parametrize("words", [[], ["implement-network", "file"], ["implement-network", "file", "60", "more"]])
def test_a_wrong_number_of_arguments_prints_the_usage(monkeypatch, capsys, words):
    monkeypatch.setattr(sys, "argv", ["weft-cloudstack", *words])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "usage: weft-cloudstack COMMAND PAYLOAD-FILE TIMEOUT" in capsys.readouterr().err


def test_the_documented_setup_installs_a_script_that_cloudstack_can_call(server, tmp_path, monkeypatch):
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    server.hosts = {"h1": [f"{FIRST:016x}"]}
    folder, token = tmp_path / "extensions" / "weft", tmp_path / "token"
    token.write_text("secret\n")
    (tmp_path / "cmk").symlink_to(Path(__file__).with_name("cmk.py"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CMK_FOLDER", str(folder))
    monkeypatch.setenv("CMK_LOG", str(tmp_path / "log"))
    program = f'{sys.executable} -c "from weft.clouds.cloudstack import main; main()"'
    for word in ("createExtension", "registerExtension"):
        script = find_block("docs/cloudstack.md", word).replace("/opt/weft/bin/weft-cloudstack", program)
        subprocess.run(["bash", "-eu", "-o", "pipefail", "-c", script], check=True)
    called = dict(json.loads(line) for line in (tmp_path / "log").read_text().splitlines())
    assert called["registerExtension"]["extensionid"] == "ext-1"
    assert called["registerExtension"]["resourceid"] == "net-1"
    assert called["updateNetworkServiceProvider"] == {"id": "nsp-1", "state": "Enabled"}
    details = {"ufm_url": server.url, "ufm_token_file": str(token)}
    (tmp_path / "payload").write_text(json.dumps({"physical-network-extension-details": details, "payload": NETWORK}))
    subprocess.run([folder / "weft.sh", "implement-network", tmp_path / "payload", "60"], check=True)
    assert server.partitions[100]["partition"] == "cloudstack-42"


def test_a_network_creates_fills_and_deletes_its_partition(server, run):
    assert run("implement-network", NETWORK)[:2] == (0, "")
    assert (server.partitions[100]["partition"], server.members(100)) == ("cloudstack-42", set())
    run("prepare-nic", NIC)
    run("prepare-nic", VIRTUAL)
    assert server.members(100) == {FIRST, MACHINE}
    run("release-nic", NIC)
    assert server.members(100) == {MACHINE}
    for command in ("shutdown-network", "destroy-network"):
        assert run(command, NETWORK)[:2] == (0, "")
        assert server.partitions == {}


def test_a_restarted_network_has_its_machines_and_no_others(server, run):
    run("prepare-nic", NIC)
    vms = [{"ip": "10.0.0.11", "mac": "02:00:00:00:00:01", "hostname": "vm-2", "default_nic": True, "vm_data": []}]
    assert run("restore-network", {**NETWORK, "restore_data": {"dhcp_enabled": True, "vms": vms}})[0] == 0
    assert server.members(100) == {MACHINE}
    run("restore-network", {**NETWORK, "restore_data": {"vms": []}})
    assert server.members(100) == set()


def test_extension_details_set_ipoib_and_index0(server, run):
    details = {
        "ufm_url": server.url,
        "ufm_user": "u",
        "ufm_password_file": __file__,
        "ip_over_ib": "false",
        "index0": "true",
    }
    run("prepare-nic", NIC, **{"physical-network-extension-details": details})
    assert server.partitions[100]["ip_over_ib"] is False
    assert server.partitions[100]["guids"] == {f"{FIRST:016x}": True}


def test_ensure_network_device_prints_ufm_and_its_version(server, run, monkeypatch):
    monkeypatch.setattr("weft.tenants.drivers.ufm_rest.UfmClient.version", lambda self: "6.22.1-2")
    status, out, _ = run("ensure-network-device", {**NETWORK, "current_details": "{}"})
    assert (status, json.loads(out)) == (0, {"ufm": server.url, "ufm_version": "6.22.1-2"})
    assert out.count("\n") == 1


def test_the_show_action_lists_members(run):
    run("prepare-nic", NIC)
    action = {"network_id": "42", "action": "show", "action-params": {"vlan": "100"}}
    status, out, _ = run("custom-action", **action)
    guids = ["0x08c0eb0300123456"]
    assert (status, json.loads(out)) == (0, {"p_key": "0x0064", "partition": "cloudstack-42", "guids": guids})
    assert run("custom-action", **{**action, "action": "dance"})[0] == 1
    _, out, _ = run("custom-action", network_id="42", action="show")
    assert json.loads(out) == {"p_key": "0x0000", "partition": None, "guids": []}


@pytest.mark.parametrize("vlan", [1, 4094])
def test_the_first_and_the_last_vlan_are_p_keys(server, run, vlan):
    assert run("implement-network", {**NETWORK, "vlan": str(vlan)})[0] == 0
    assert [*server.partitions] == [vlan]


def test_commands_of_other_services_are_ignored(server, run):
    for command in ("apply-fw-rules", "add-dhcp-entry", "save-vm-data", "implement-vpc", "assign-ip"):
        assert run(command, NETWORK) == (0, "", "")
    assert server.calls == []


@pytest.mark.parametrize(
    ("command", "payload", "words"),
    [
        ("implement-network", {**NETWORK, "vlan": ""}, "got ''"),
        ("implement-network", {**NETWORK, "vlan": "4095"}, "must be 1 to 4094"),
        ("implement-network", {**NETWORK, "vlan": "0"}, "must be 1 to 4094"),
        ("prepare-nic", {**NIC, "mac": "none"}, "the MAC address 'none' must be six bytes"),
        ("dance", NETWORK, "unknown command 'dance'"),
    ],
)
def test_bad_input_exits_with_1_and_changes_nothing(server, run, command, payload, words):
    status, out, err = run(command, payload)
    assert (status, out) == (1, "")
    assert words in err
    assert server.partitions == {}


def test_an_extension_without_a_ufm_says_what_to_give(run):
    status, _, err = run("implement-network", NETWORK, **{"physical-network-extension-details": {}})
    assert status == 1
    assert "no detail ufm_url" in err


def test_a_secret_that_cannot_be_read_is_named(server, run):
    details = {"ufm_url": server.url, "ufm_token_file": "/no/such/file"}
    status, _, err = run("implement-network", NETWORK, **{"physical-network-extension-details": details})
    assert status == 1
    assert "cannot read the secret file /no/such/file: No such file" in err


def test_a_ufm_in_trouble_is_status_2(server, run):
    server.status = 503
    assert run("implement-network", NETWORK)[0] == 2
    server.status = 200
    server.partitions[100] = {"partition": "theirs", "ip_over_ib": True, "guids": {}}
    status, _, err = run("prepare-nic", NIC)
    assert status == 2
    assert "taken" in err
    assert server.members(100) == set()


def test_a_payload_that_is_none_is_named(monkeypatch, tmp_path, capsys):
    (tmp_path / "bad").write_text("{")
    for path in (tmp_path / "bad", tmp_path / "absent"):
        monkeypatch.setattr(sys, "argv", ["weft-cloudstack", "prepare-nic", str(path), "60"])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 1
        assert f"cannot read the payload {path}" in capsys.readouterr().err
