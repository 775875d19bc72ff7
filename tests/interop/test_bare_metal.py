"""Ironic's own agent, on a host of a lab, finds the host's adapters; ports of its inventory join partitions.

ironic_python_agent/hardware_managers/mlnx.py, unmodified, in the environment that `make peers` makes for OpenStack.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conftest import ROOT
from tests.interop.conftest import do_without
from tests.lab.mounts import need_mounts

from weft import compiler
from weft.clouds.openstack.members import member_of
from weft.lab import programs, registry
from weft.lab.control import ask
from weft.serve.embedded import Ufm
from weft.tenants.drivers.ufm_rest import UfmClient
from weft.tenants.partitions import Member

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
STORAGE = (1, 2, 7, 8)  # adapters of a DGX H100 for another network, which is not cabled here
AGENT = """
import json
from ironic_python_agent import config  # first: other modules read it while they are imported
from ironic_python_agent import errors, netutils
from ironic_python_agent.hardware import HardwareSupport
from ironic_python_agent.hardware_managers.mlnx import MellanoxDeviceHardwareManager

manager, found = MellanoxDeviceHardwareManager(), []
assert manager.evaluate_hardware_support() == HardwareSupport.MAINLINE
for name in netutils.list_interfaces():
    try:
        facts = manager.get_interface_info(name).serialize()
    except errors.IncompatibleHardwareMethodError:  # an interface of this machine
        continue
    facts["pci_address"] = netutils.get_interface_pci_address(name)
    facts["driver"] = netutils.get_interface_driver(name)
    found.append(facts)
print(json.dumps(found))
"""


def find_agent() -> str:
    """Return the path of the Python that has Ironic's agent."""
    environment = ROOT / ".venv/neutron"
    if not list(environment.glob("lib/*/site-packages/ironic_python_agent")):
        do_without("ironic-python-agent")
    return str(environment / "bin/python")


def neutron_port(found: dict[str, str]) -> dict[str, Any]:
    """Return the port that Ironic creates from an interface of its agent when a node is attached to a network."""
    return {
        "mac_address": found["mac_address"],
        "extra_dhcp_opts": [{"opt_name": "61", "opt_value": found["client_id"], "ip_version": 4}],
        "binding:vnic_type": "baremetal",
        "binding:vif_type": "other",
        "binding:host_id": "a-node",
        "binding:profile": {},
    }


def run_on(lab: str, host: str, *command: str) -> str:
    """Return the output of a program that has the host's adapters in its /sys."""
    entry = registry.find(lab)
    done = programs.run(command, programs.environment(ask(entry, "host", name=host)), ask(entry, "sysfs", name=host))
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def p_keys(lab: str, adapter: str) -> set[int]:
    output = run_on(lab, "dgx2", "sh", "-c", f"cat /sys/class/infiniband/{adapter}/ports/1/pkeys/*")
    return {int(line, 16) for line in output.split()}


@pytest.mark.slow
def test_ironics_agent_finds_ports_whose_client_ids_lead_into_partitions():
    need_mounts()
    python = find_agent()
    with Ufm("star:hosts=2,server=dgx-h100") as ufm:
        result = {
            load["name"]: load for load in json.loads(run_on(ufm.lab, "dgx2", python, "-c", AGENT).splitlines()[-1])
        }
        assert result.keys() == {f"ib{n}" for n in range(12)}
        for n in range(12):
            load = result[f"ib{n}"]
            guid = int(ufm.fabric.ports.guid[ufm.fabric[f"dgx2/mlx5_{n}/1"].slot]).to_bytes(8, "big")
            assert load["client_id"] == f"ff:00:00:00:00:00:02:00:00:02:c9:00:{guid.hex(':')}"
            assert load["mac_address"] == (guid[:3] + guid[5:]).hex(":")
            assert (load["vendor"], load["product"], load["driver"]) == ("0x15b3", f"{4129:#06x}", "mlx5_core")
            assert load["pci_address"] == f"1000:{n + 1:02x}:00.0"
            assert load["has_carrier"] is (n not in STORAGE)

        member = member_of(neutron_port(result["ib3"]))  # as weft's mechanism driver reads it
        assert member is not None
        UfmClient(ufm.url, token=ufm.token).add_guids(0x123, {member: Member()}, ip_over_ib=True)
        assert 0x8123 in p_keys(ufm.lab, "mlx5_3")
        assert 0x8123 not in p_keys(ufm.lab, "mlx5_4")
