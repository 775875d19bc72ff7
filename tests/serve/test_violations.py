"""Violations over REST: all for operators, its own packets for a tenant."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.lab.rdma import managed
from tests.patience import wait_until
from tests.serve.service import Service
from tests.tenants.subnets import BLUE, RED, SMALL, cut, packet

import weft
from weft.errors import SubnetError
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.serve.violation_watcher import ViolationWatcher
from weft.tenants.drivers.partition_files import write_partitions


@pytest.fixture
def service(tmp_path) -> Iterator[Service]:
    result = Service(f"sqlite:///{tmp_path}/ledger.db")
    yield result
    result.close()


def test_a_tenant_sees_violations_of_its_own_packets_without_destinations(service, tmp_path, monkeypatch):
    monkeypatch.setattr("weft.serve.violation_watcher._FRESH_S", 0.1)
    fabric = weft.load(SMALL)
    allocation = cut(fabric, red=RED, blue=BLUE)
    path = tmp_path / "partitions.conf"
    path.write_text(write_partitions(allocation))
    with (
        Lab(fabric, f"v{time.monotonic_ns() % 10**12}") as lab,
        managed(lab, partition_config_file=path),
        ViolationWatcher(lambda: closing(IbsimCarrier("h1", lab.sockname)), lambda: allocation) as watcher,
    ):
        service.app.state.watcher = watcher
        wait_until(lambda: not watcher.trouble, lambda: watcher.trouble)
        for sender, key, receiver in (("h2", 0x8102, "h3"), ("h3", 0x8101, "h5")):
            lab.send_packet(sender, packet(lab.fabric, sender, receiver, key))
        wait_until(lambda: len({one.violation.sender for one in watcher.reported()}) == 2)
        wait_until(lambda: len(watcher.counts()) == 2)
        for owner in ("root", "ops", "eye"):
            result = service.call(owner, "GET", "/violations").json()
            assert {
                (item["sender"], *item["sender_partitions"], item["key"], item["receiver"]) for item in result["heard"]
            } == {
                ("h2/1", "red", "0x8102", "h3/1"),
                ("h3/1", "blue", "0x8101", "h5/1"),
            }
            assert [(item["port"], item["sent"], item["held_back"]) for item in result["counted"]] == [
                ("h2/1", 1, 0),
                ("h3/1", 1, 0),
            ]
        own = service.call("blue", "GET", "/violations")
        assert {item["sender"] for item in own.json()["heard"]} == {"h3/1"}
        assert [item["port"] for item in own.json()["counted"]] == ["h3/1"]
        assert not any(name in own.text for name in ("h2", "h5", "red", "leaf"))


def test_the_watcher_subscribes_when_the_fabric_comes_up(service):
    """Until then the answer has the reason why it is empty."""

    def attach():
        raise SubnetError("the cable is out")

    with ViolationWatcher(attach, lambda: None) as watcher:
        service.app.state.watcher = watcher
        wait_until(lambda: watcher.trouble == "the cable is out")
        assert service.call("eye", "GET", "/violations").status_code == 503


def test_violations_need_a_port_of_the_fabric(service):
    result = service.call("root", "GET", "/violations")
    assert (result.status_code, "--umad" in result.json()["detail"]) == (404, True)
    document = service.client.get("/api/v1/openapi.json").json()
    answer = document["paths"]["/api/v1/violations"]["get"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/ViolationsOut")
    assert {"ViolationOut", "ViolationCounts"} <= document["components"]["schemas"].keys()
