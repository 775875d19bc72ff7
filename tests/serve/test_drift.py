"""Drift: the service compares the fabric with its ledger, shows differences everywhere, and repairs or reports them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import wait_until
from tests.serve.service import Service

from weft.monitor.metrics import text
from weft.serve.console.routes import tenant_metrics
from weft.tenants.partitions import Allocation

INTENT = {"tenant": {"red": {"hosts": ["h1", "h2"]}}}
LINE = "h2/1: lacks P_Key 0x8100, holds P_Key 0xffff"


class IdleWatcher:
    """A watcher without violations."""

    trouble = ""

    def reported(self) -> list[Any]:
        return []

    counts = reported


@pytest.fixture(params=["repair", "report"])
def service(request, tmp_path) -> Iterator[Service]:
    result = Service(f"sqlite:///{tmp_path}/ledger.db", repairs=request.param == "repair")
    result.app.state.watcher = IdleWatcher()
    assert result.call("ops", "PUT", "/intent", json=INTENT).status_code == 200
    yield result
    result.close()


def drift(service: Service) -> Any:
    assert service.ledger.drift is not None
    return service.ledger.drift


def test_difference_shows_in_every_view_and_is_repaired_or_reported(service):
    wait_until(lambda: service.client.get("/healthz").json() == {"status": "ok", "differences": 0, "repaired": 0})
    service.fabric.drift.append(LINE)
    drift(service).wake()
    wait_until(lambda: service.call("eye", "GET", "/violations").json()["drift"])
    repairs = drift(service).repairs
    wait_until(lambda: bool(service.fabric.drift) is not repairs)
    wait_until(lambda: bool(drift(service).differences) is not repairs)
    health = service.client.get("/healthz").json()
    assert health == {"status": "ok" if repairs else "drift", "differences": 1 - repairs, "repaired": int(repairs)}
    (line,) = service.call("eye", "GET", "/violations").json()["drift"]
    assert (line["text"], line["is_repaired"]) == (LINE, repairs)
    assert service.call("blue", "GET", "/violations").json()["drift"] == []
    plan = service.call("ops", "POST", "/intent/plan", json=INTENT).json()
    assert plan["drift"] == ([] if repairs else [LINE])
    assert ("to repair" in plan["summary"]) is not repairs
    output = text(tenant_metrics(service.ledger.desired(), drift(service)))
    assert f"weft_drift_differences {1 - repairs}" in output
    assert f"weft_drift_repaired_total {int(repairs)}" in output
    assert any("repair 1 differences" in kind for _, kind, _ in service.audit()) is repairs


def test_partitions_destroyed_by_another_client_are_detected(service):
    """After `weft tenants destroy`, for example, the subnet manager and its ports agree, and the ledger differs."""
    arguments = service.fabric.observed.allocation
    service.fabric.write(Allocation(), over=service.fabric.observed)
    drift(service).wake()
    wait_until(lambda: drift(service).past())
    assert any("red=0x" in item.text for item in drift(service).past())
    if drift(service).repairs:
        wait_until(lambda: service.fabric.observed.allocation == arguments)
    else:
        assert service.fabric.observed.allocation == Allocation()


def test_a_fabric_that_does_not_answer_is_not_reported_healthy(service):
    wait_until(lambda: not drift(service).trouble)
    service.fabric.is_dead = True
    drift(service).wake()
    wait_until(lambda: service.client.get("/healthz").json()["status"] == "unknown")
    service.fabric.is_dead = False
    wait_until(lambda: (drift(service).wake(), service.client.get("/healthz").json()["status"] == "ok")[1])
