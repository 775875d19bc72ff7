"""Ironic's own agent, on a host of a lab, finds the host's adapters; what it reports leads to the ports of the fabric.

ironic_python_agent/hardware_managers/mlnx.py, unmodified, in the environment that `make peers` makes for OpenStack.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conftest import ROOT
from tests.interop.conftest import do_without
from tests.lab.mounts import need_mounts

import weft
from weft.clouds.openstack.members import member_of
from weft.lab import preload
from weft.lab.lab import Lab

pytestmark = [pytest.mark.interop, pytest.mark.skipif(preload.find_compiler() is None, reason="no C compiler")]
AGENT = """
import json
from ironic_python_agent import config  # first: others read it as they are imported
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
    """The Python that has it."""
    environment = ROOT / ".venv/neutron"
    if not list(environment.glob("lib/*/site-packages/ironic_python_agent")):
        do_without("ironic-python-agent")
    return str(environment / "bin/python")


def neutron_port(found: dict[str, str]) -> dict[str, Any]:
    """What Ironic makes of an interface that its agent found, when a node is attached to a network."""
    return {
        "mac_address": found["mac_address"],
        "extra_dhcp_opts": [{"opt_name": "61", "opt_value": found["client_id"], "ip_version": 4}],
        "binding:vnic_type": "baremetal",
        "binding:vif_type": "other",
        "binding:host_id": "a-node",
        "binding:profile": {},
    }


@pytest.mark.slow
def test_ironics_agent_finds_the_adapters_of_a_host_and_their_client_ids():
    need_mounts()
    python = find_agent()
    with Lab(weft.load("star:hosts=2,server=dgx-h100"), "ironic") as lab:
        done = lab.run("dgx2", python, "-c", AGENT, sysfs=True)
        assert done.returncode == 0, done.stderr[-2000:]
    found = {one["name"]: one for one in json.loads(done.stdout.splitlines()[-1])}
    assert found.keys() == {f"ib{n}" for n in range(12)}
    for n in range(12):
        one = found[f"ib{n}"]
        guid = int(lab.fabric.ports.guid[lab.fabric[f"dgx2/mlx5_{n}/1"].slot]).to_bytes(8, "big")
        assert one["client_id"] == f"ff:00:00:00:00:00:02:00:00:02:c9:00:{guid.hex(':')}"
        assert one["mac_address"] == (guid[:3] + guid[5:]).hex(":")
        assert member_of(neutron_port(one)) == int.from_bytes(guid, "big"), "weft's driver puts that port in"
        assert (one["vendor"], one["product"], one["driver"]) == ("0x15b3", f"{4129:#06x}", "mlx5_core")
        assert one["pci_address"] == f"1000:{n + 1:02x}:00.0"
        assert one["has_carrier"] is False, "no subnet manager has been there"
