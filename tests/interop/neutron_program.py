"""Run Neutron with its REST API and a database in memory, connected to a UFM, in the environment that has Neutron.

    python neutron_program.py URL TOKEN CONFIGURATION GUID GUID

CONFIGURATION is the path of an ml2_conf.ini.

After each step the program prints a line of JSON, {"step": ..., "p_key": ..., "guids": [...]}. The test that started it
checks the fabric and replies with a line. The last line is {"step": "done"}.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import unittest
from typing import Any

# First: this import selects threads, any other import of OpenStack would select eventlet.
from neutron.tests.unit.plugins.ml2.test_plugin import Ml2PluginV2TestCase  # isort: skip

import fixtures
from networking_mlnx.db import db as mlnx_db
from networking_mlnx.journal.journal import SdnJournalThread
from networking_mlnx.journal.maintenance import MaintenanceThread
from networking_mlnx.plugins.ml2.drivers.sdn import config as sdn_config
from neutron.db import provisioning_blocks
from oslo_config import cfg

from weft.clouds.openstack import options
from weft.clouds.openstack import resync as resync_module
from weft.clouds.openstack.resync import resync
from weft.tenants.drivers.ufm_rest import UfmClient, UfmError

URL, TOKEN, CONFIGURATION, *GUIDS = sys.argv[1:]
FIRST, SECOND = (int(guid, 16) for guid in GUIDS)


def say(step: str, p_key: int = 0, *guids: int, is_there: bool = True) -> None:
    print(json.dumps({"step": step, "p_key": p_key, "guids": guids, "is_there": is_there}), flush=True)
    if not sys.stdin.readline():
        os._exit(1)  # the test has ended


def client_id(guid: int) -> list[dict[str, str]]:
    value = f"ff:00:00:00:00:00:02:00:00:02:c9:00:{guid.to_bytes(8, 'big').hex(':')}"
    return [{"opt_name": "client-id", "opt_value": value}]


def _named(words: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("binding_", "binding:"): value for key, value in words.items()}


class Cloud(Ml2PluginV2TestCase):
    """The calls of Neutron's REST API that Nova, Ironic and users make."""

    def call(self, request: Any, status: int) -> Any:
        answer = request.get_response(self.api)
        assert status == answer.status_int, answer.body
        return next(iter(self.deserialize("json", answer).values())) if answer.body else None

    def create_network(self, p_key: int, status: int = 201, physical_network: str = "physnet1") -> Any:
        words = {"network_type": "vlan", "physical_network": physical_network, "segmentation_id": p_key}
        body = {"name": "ib", "tenant_id": "acme", **{f"provider:{key}": value for key, value in words.items()}}
        return self.call(self.new_create_request("networks", {"network": body}, as_admin=True), status)

    def create_port(self, network: Any, status: int = 201, **words: Any) -> Any:
        body = {"network_id": network["id"], "tenant_id": "acme", **_named(words)}
        return self.call(self.new_create_request("ports", {"port": body}, as_service=True), status)

    def update_port(self, port: Any, status: int = 200, **words: Any) -> Any:
        return self.call(self.new_update_request("ports", {"port": _named(words)}, port["id"], as_service=True), status)

    def delete(self, kind: str, thing: Any) -> None:
        self.call(self.new_delete_request(kind, thing["id"], as_admin=True), 204)

    def status(self, port: Any) -> str:
        return self.call(self.new_show_request("ports", port["id"], as_admin=True), 200)["status"]


class WeftsDriver(Cloud):
    _mechanism_drivers = ("weft",)

    def setUp(self) -> None:
        options.register(cfg.CONF)
        arguments = {"ufm_url": URL, "ufm_token": TOKEN, "physical_networks": ["physnet1"]}
        for name, value in arguments.items():
            cfg.CONF.set_override(name, value, group=options.GROUP)
        super().setUp()
        self.weft = self.driver.mechanism_manager.mech_drivers["weft"].obj

    def test_bare_metal(self) -> None:
        network = self.create_network(0x64)
        say("a network is a partition", 0x64)
        port = self.create_port(
            network, binding_vnic_type="baremetal", binding_host_id="node1", extra_dhcp_opts=client_id(FIRST)
        )
        assert (port["binding:vif_type"], self.status(port)) == ("other", "ACTIVE")
        say("a port of Ironic's is bound", 0x64, FIRST)
        later = self.create_port(network, binding_vnic_type="baremetal")
        self.update_port(later, binding_host_id="node2", extra_dhcp_opts=client_id(SECOND))
        assert self.status(later) == "ACTIVE"
        say("a port is bound later", 0x64, FIRST, SECOND)
        self.update_port(port, binding_host_id="", extra_dhcp_opts=[{"opt_name": "client-id", "opt_value": None}])
        say("a port is unbound", 0x64, SECOND)
        self.update_port(later, extra_dhcp_opts=client_id(FIRST))
        say("an adapter is replaced", 0x64, FIRST)
        self.delete("ports", later)
        say("a port is deleted", 0x64)
        self.delete("ports", port)
        self.delete("networks", network)
        say("a network is deleted", 0x64, is_there=False)

    def test_virtual_machines(self) -> None:
        network, other = self.create_network(0x32), self.create_network(0xC9, physical_network="physnet2")
        mac = f"{FIRST:016x}"[:6] + f"{FIRST:016x}"[10:]
        vm = {"binding_vnic_type": "direct", "binding_host_id": "kvm1"}
        port = self.create_port(network, **vm, binding_profile={"guid": f"{FIRST:#x}"})
        assert port["binding:vif_type"] == "ib_hostdev"
        say("a machine's port is bound", 0x32, FIRST)
        self.update_port(port, binding_host_id="kvm2")
        assert self.status(port) == "ACTIVE"
        say("a machine has moved", 0x32, FIRST)
        self.delete("ports", port)
        result = self.create_port(network, **vm, mac_address=":".join(mac[i : i + 2] for i in range(0, 12, 2)))
        say("a virtual function has its GUID of its MAC", 0x32, int(f"{mac[:6]}0000{mac[6:]}", 16))
        self.delete("ports", result)
        dhcp = self.create_port(network, device_owner="network:dhcp", binding_host_id="kvm1")
        ethernet = self.create_port(other, **vm, binding_profile={"guid": f"{SECOND:#x}"})
        assert ethernet["binding:vif_type"] == "binding_failed"
        say("a port outside the fabric is no member", 0x32)
        for item in (dhcp, ethernet):
            self.delete("ports", item)
        self.delete("networks", network)

    def test_a_ufm_that_was_away(self) -> None:
        ufm = self.weft.ufm
        away = UfmClient("http://127.0.0.1:9", token=TOKEN, timeout_s=1)
        network = self.create_network(0x21)
        words = {"binding_vnic_type": "baremetal", "binding_host_id": "node1"}
        stays = self.create_port(network, **words, extra_dhcp_opts=client_id(FIRST))
        self.weft.ufm = away
        self.create_network(0x22, status=503)
        late = self.create_port(network, **words, extra_dhcp_opts=client_id(SECOND))
        # As if another driver's agent had completed its part: the port is not ready until weft's part is complete too.
        provisioning_blocks.provisioning_complete(self.context, late["id"], "port", "L2")
        assert self.status(late) == "DOWN"
        self.delete("ports", stays)
        say("the UFM knows of nothing", 0x21, FIRST)
        self.weft.ufm = ufm
        assert resync(ufm, self.weft.rules)
        assert self.status(late) == "ACTIVE"
        say("all is made up for", 0x21, SECOND)
        assert not resync(ufm, self.weft.rules)
        self.delete("ports", late)
        self.weft.ufm = away
        self.delete("networks", network)
        assert resync(ufm, self.weft.rules)
        say("a network that went meanwhile goes", 0x21, is_there=False)

    def test_the_comparison_goes_on_whatever_happens(self) -> None:
        (worker,) = self.weft.get_workers()
        rounds = threading.Semaphore(0)
        outcomes = iter((UfmError("away"), RuntimeError("the database is away"), True))

        def one_round(*given: object) -> bool:
            assert given == (self.weft.ufm, self.weft.rules)
            rounds.release()
            outcome = next(outcomes, False)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        self.useFixture(fixtures.MockPatchObject(resync_module, "resync", one_round))
        worker._interval_s = 0
        worker.start()
        for _ in range(4):
            rounds.acquire()
        worker.stop()
        worker.wait()

    def test_invalid_networks_are_refused(self) -> None:
        self.weft.ufm.create_pkey(0x30, "somebody", ip_over_ib=False)
        self.create_network(0x30, status=409)
        assert self.call(self.new_list_request("networks", as_admin=True), 200) == []
        network = self.create_network(0x31)
        bad = [{"opt_name": "client-id", "opt_value": "ff:00:00"}]
        self.create_port(network, 400, binding_vnic_type="baremetal", extra_dhcp_opts=bad)
        unknown = self.create_port(network, binding_vnic_type="baremetal", binding_host_id="node1")
        assert unknown["binding:vif_type"] == "binding_failed"
        resync(self.weft.ufm, self.weft.rules)
        say("another driver's partition stays", 0x30)
        self.delete("ports", unknown)
        self.delete("networks", network)
        self.weft.ufm.delete_pkey(0x30)


class DocumentedConfiguration(Cloud):
    """The configuration of ML2 in the documentation: drivers, types and ranges come from that file alone."""

    @staticmethod
    def config_parse(conf: Any = None, args: list[str] | None = None) -> None:
        Ml2PluginV2TestCase.config_parse(conf, [*(args or []), "--config-file", CONFIGURATION])

    def setup_parent(self) -> None:
        cfg.CONF.clear_override("mechanism_drivers", group="ml2")
        cfg.CONF.clear_override("network_vlan_ranges", group="ml2_type_vlan")
        super().setup_parent()

    def test_a_users_network_is_a_partition(self) -> None:
        body = {"network": {"name": "ib"}}
        network = self.call(self.new_create_request("networks", body), 201)
        output = self.call(self.new_show_request("networks", network["id"], as_admin=True), 200)
        p_key = output["provider:segmentation_id"]
        assert (output["provider:physical_network"], 256 <= p_key <= 4000) == ("ib0", True)
        port = self.create_port(
            network, binding_vnic_type="baremetal", binding_host_id="node1", extra_dhcp_opts=client_id(FIRST)
        )
        say("the documented configuration binds a port", p_key, FIRST)
        self.delete("ports", port)
        self.delete("networks", network)


class NvidiasDriver(Cloud):
    """The driver networking-mlnx from PyPI: it writes a journal, whose rows it then sends to UFM's cloudx calls."""

    _mechanism_drivers = ("mlnx_sdn_assist",)

    def setUp(self) -> None:
        cfg.CONF.register_opts(sdn_config.sdn_opts, "sdn")
        arguments = {"url": f"{URL}/ufmRestV3", "token": TOKEN, "sync_timeout": 1, "physical_networks": ["physnet1"]}
        for name, value in arguments.items():
            cfg.CONF.set_override(name, value, group="sdn")
        # SQLite in memory belongs to one thread: process the journal in this one, as networking-mlnx's own tests do.
        for name in ("start_sync_thread", "_start_sync_timer", "set_sync_event"):
            self.useFixture(fixtures.MockPatchObject(SdnJournalThread, name))
        self.useFixture(fixtures.MockPatchObject(MaintenanceThread, "start"))
        super().setUp()

    def sent(self) -> None:
        """Process the journal until each row is sent and its job completed."""
        journal = self.driver.mechanism_manager.mech_drivers["mlnx_sdn_assist"].obj.journal
        while [row for row in mlnx_db.get_all_db_rows(self.context) if row.state != "completed"]:
            journal.event.set()
            journal.run_sync_thread(exit_after_run=True)
            time.sleep(0.05)

    def test_bare_metal(self) -> None:
        network = self.create_network(0x41)
        port = self.create_port(
            network, binding_vnic_type="baremetal", binding_host_id="node1", extra_dhcp_opts=client_id(FIRST)
        )
        self.sent()
        say("NVIDIA's driver has bound a port", 0x41, FIRST)
        self.delete("ports", port)
        self.sent()
        say("NVIDIA's driver has deleted a port", 0x41)
        self.delete("networks", network)
        self.sent()
        say("NVIDIA's driver has deleted a network", 0x41, is_there=False)


if __name__ == "__main__":
    program = unittest.main(argv=sys.argv[:1], exit=False, verbosity=2)
    if program.result.wasSuccessful():
        print(json.dumps({"step": "done"}), flush=True)
    sys.exit(not program.result.wasSuccessful())
