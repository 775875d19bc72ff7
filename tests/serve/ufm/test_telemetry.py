"""Calls of other projects' clients for counters, reports and versions, on a lab that carries traffic.

Each test makes the calls of a public client: scripts of NVIDIA's UFM SDK (ufm_aggr_topx, get_top_nodes_by_counter,
load_telemetry, run_fabric_health_report), its PDR, fluentd and gRPC plugins, ib-kubernetes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.serve.ufm.conftest import Client

from weft.lab import control, registry
from weft.serve.server import Server
from weft.serve.settings import Settings
from weft.serve.ufm.routes.telemetry import create_endpoint

WORD_BYTES = 4
LINE_BYTES_S = 400e9 / 8  # a link of the lab


@pytest.fixture(scope="module")
def busy(ufm: Client) -> Iterator[Client]:
    """Let h1 and h2 send to each other at half of the line rate."""
    lab = registry.find(ufm.ufm.lab)
    control.ask(lab, "load", jobs=["train=ring:h[1-2]@50%"], speed=1.0, seed=1)
    wait_until(lambda: rate(ufm, "h1") > 0, "that the counters of h1 move")
    yield ufm
    control.ask(lab, "unload", names=[])


def port_name(client: Client, host: str) -> str:
    (port,) = (item for item in client.get("resources/ports?sys_type=Computer") if item["system_name"] == host)
    return str(port["name"])


def rate(client: Client, host: str) -> float:
    """Return the words per second that a host sends, from topX."""
    top = client.get("telemetry?type=topX&PickBy=PortXmitDataExtended&limit=1000")
    name = port_name(client, host)
    return float(next(item for item in top if item["guid"] == name)["PortXmitDataExtended_Rate"])


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def text(client: Client, path: str) -> str:
    result = client.call("GET", path, base="")
    assert result.status_code == 200, result.text
    return result.text


def test_topx_ranks_ports_by_a_counter_and_adds_attributes(busy):
    top = busy.get(
        "telemetry?type=topX&membersType=Ports&PickBy=PortTXPackets&limit=3&attributes=[PortXmitDataExtended]"
    )
    assert len(top) == 3
    rates = [item["PortXmitPktsExtended_Rate"] for item in top]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0
    assert {"h1", "h2"} >= {item["name"].split()[0] for item in top} - {"leaf1", "leaf2", "leaf3", "spine1", "spine2"}
    assert all(item["PortXmitDataExtended_Rate"] * WORD_BYTES < 2 * LINE_BYTES_S for item in top)
    systems = busy.get("telemetry?type=topX&membersType=Devices&PickBy=PortRcvDataExtended&limit=2")
    assert {item["guid"] for item in systems} <= {item["guid"] for item in busy.get("resources/systems")}


def test_history_has_the_readings_of_a_port(busy):
    name = port_name(busy, "h1")

    def seen() -> dict[str, Any]:
        path = "telemetry?type=history&membersType=Ports&attributes=[PortXmitDataExtended,PortXmitDataExtended_Rate]"
        return busy.get(f"{path}&members=[{name}]&function=RAW&start_time=-1h&end_time=-0min")

    result = wait_until(lambda: len(history := seen()) > 2 and history, "three readings")
    counts = [at["Ports"][name]["statistics"]["PortXmitDataExtended"] for at in result.values()]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", next(iter(result)))


def test_the_default_session_has_all_ports(busy):
    """The first versions of the PDR plugin read it."""
    (data,) = busy.get("monitoring/session/0/data").values()
    names = {item["name"] for item in busy.get("resources/ports") if item["peer"] != "N/A"}
    assert data["Ports"].keys() == names
    counters = data["Ports"][port_name(busy, "h1")]["statistics"]
    assert counters["Infiniband_MBOut"] > 0
    assert counters["Infiniband_RcvErrors"] + counters["Infiniband_RcvRemotePhysErrors"] == 0


def test_aggr_topx_ranks_servers_and_switches(busy):
    data = busy.get("monitoring/aggr_topx?object=servers&attr=bw")["data"]
    for members in ("device", "port"):
        assert set(data[members]) == {"TxBW", "RxBW"}
    busiest = data["device"]["TxBW"][0]
    assert busiest["description"] in ("h1", "h2")
    assert 0 < busiest["value"] < 3 * LINE_BYTES_S  # a reading may see a tick of the lab too many
    switches = busy.get("monitoring/aggr_topx?object=switches&attr=cong")["data"]["port"]["TCBW"]
    assert all(0 <= item["value"] <= 100 for item in switches)
    alarms = busy.get("monitoring/aggr_topx?object=switches&attr=alarms")["data"]["device"]["Alarms"]
    assert {item["value"] for item in alarms} == {0.0}


def test_counters_are_served_as_csv_in_the_columns_of_each_instance(busy):
    first = rows(text(busy, "csv/metrics"))
    name = port_name(busy, "h1")
    (h1,) = (row for row in first if f"{row['node_guid'][2:]}_{row['port_num']}" == name)
    assert int(h1["PortXmitDataExtended"]) > 0
    assert h1["source_id"] == h1["node_guid"]
    assert int(h1["timestamp"]) > 1_700_000_000_000_000  # microseconds since 1970
    (same,) = (row for row in rows(text(busy, "csv/cset/converted_enterprise")) if row["port_guid"] == h1["port_guid"])
    assert int(same["Infiniband_MBOut"]) >= int(h1["PortXmitDataExtended"])
    debug = rows(text(busy, "csv/xcset/low_freq_debug"))
    keys = {"Node_GUID", "port_guid", "Port_Number", "PortRcvPktsExtended", "PortRcvErrors", "Link_Down_IB"}
    assert keys <= debug[0].keys()
    names = {f"{row['Node_GUID'][2:]}_{row['Port_Number']}" for row in debug}
    assert names == {item["name"] for item in busy.get("resources/ports") if item["peer"] != "N/A"}
    assert rows(text(busy, "labels/csv/metrics"))[0]["node_description"]


def test_prometheus_labels_identify_ports(busy):
    messages = text(busy, "labels/metrics")
    line = next(
        item for item in messages.splitlines() if 'hostname="h1"' in item and item.startswith("PortXmitDataExtended{")
    )
    assert re.search(r'(?<=port_guid=)"0x([0-9a-f]{16})"', line)
    assert re.search(r'(?<=port_num=)"1"', line)
    assert float(line.rpartition(" ")[2]) > 0


def test_a_dynamic_instance_serves_its_counters_and_ports(busy):
    """The calls are those of the PDR plugin."""
    name, path = port_name(busy, "h1"), "app/telemetry/instances/pdr_dynamic"
    guid, _, number = name.partition("_")
    order = {
        "counters": ["PortRcvPktsExtended", "PortRcvErrorsExtended"],
        "sample_rate": 300,
        "requested_guids": [{"guid": guid, "ports": [int(number)]}],
    }
    port = busy.done("POST", path, order)
    assert port == httpx.URL(busy.ufm.url).port
    assert busy.get("app/telemetry/instances/status")["pdr_dynamic"]["status"] == "running"
    assert busy.get(path)["endpoint_port"] == port
    (row,) = rows(text(busy, "csv/xcset/pdr_dynamic"))
    assert f"{row['node_guid'].split('x')[-1]}_{row['port_num']}" == name
    assert list(row)[-2:] == ["PortRcvPktsExtended", "PortRcvErrorsExtended"]
    busy.done("PUT", path, {"sample_rate": 60, "requested_guids": []})
    assert rows(text(busy, "csv/xcset/pdr_dynamic")) == []
    assert busy.call("POST", path, {"counters": ["cpu"]}).status_code == 404
    busy.done("DELETE", path)
    assert busy.call("GET", path).status_code == 404


def test_a_separate_port_serves_counters_without_a_token(busy):
    """load_telemetry.py and Prometheus read UFM Telemetry at port 9001."""
    app = busy.ufm.app
    with ExitStack() as opened:
        endpoint = create_endpoint(Settings(), app.state.ufm, app.state.monitor)
        url = opened.enter_context(Server(endpoint, Settings())).url
        http = opened.enter_context(httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False))
        for path in ("csv/metrics", "labels/csv/metrics", "csv/xcset/low_freq_debug", "metrics", "labels/metrics"):
            assert http.get(path).status_code == 200, path
        assert http.get("ufmRest/resources/ports").status_code == 404
        assert http.get("csv/xcset/nosuch").status_code == 404
    assert busy.http.get("/csv/metrics").status_code == 401


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("telemetry?type=topX&PickBy=Nosuch", 404, "no counter 'Nosuch'"),
        ("telemetry?type=topX", 400, "PickBy"),
        ("telemetry?type=topX&PickBy=PortXmitDataExtended&limit=0", 400, "limit must be"),
        ("telemetry?type=sideways", 400, "topX or history"),
        ("telemetry?type=history&attributes=[PortXmitDataExtended]", 400, "members"),
        ("telemetry?type=history&attributes=[PortXmitDataExtended]&members=[nosuch]", 404, "no port 'nosuch'"),
        ("telemetry?type=history&attributes=[A]&members=[b]&start_time=yesterday", 400, "yesterday"),
        ("monitoring/aggr_topx?object=cables", 400, "servers, switches"),
        ("monitoring/aggr_topx?object=servers&attr=heat", 400, "bw, cong"),
        ("reports/999", 404, "999"),
        ("app/telemetry/instances/nosuch", 404, "nosuch"),
    ],
)
def test_invalid_queries_are_answered_with_the_reason(ufm, path, status, words):
    result = ufm.call("GET", path)
    assert (result.status_code, words in result.text) == (status, True), result.text


def test_the_fabric_report_lists_errors(ufm):
    """The calls are those of run_fabric_health_report.py."""
    checks = {"duplicate_nodes": True, "sm_state": True, "non_opt_speed_width": True, "duplicate_zero_and_lids": True}
    requests = {**checks, "ufm_alarms": True, "cables": True, "cables_errors_only": True, "link_speed": "ALL"}
    number = ufm.done("POST", "reports/Fabric_Health", requests, status=202)["report_id"]
    report = ufm.get(f"reports/{number}")
    assert {item["name"]: item["status"] for item in report["checks"]} == {
        **dict.fromkeys((*checks, "ufm_alarms"), "passed"),
        "cables": "not supported",
    }
    assert (report["summary"]["hosts"], report["summary"]["masters"]) == (6, ["h1"])
    control.ask(registry.find(ufm.ufm.lab), "degrade", name="h6/1", to="1xNDR")
    try:

        def slow() -> dict[str, Any]:
            again = ufm.done("POST", "reports/Fabric_Health", {"non_opt_links": True}, status=202)["report_id"]
            return next(iter(ufm.get(f"reports/{again}")["checks"]))

        check = wait_until(lambda: (one := slow())["errors"] and one, "that the slow link is reported")
        assert "1x NDR of 4x NDR" in check["details"][0]
    finally:
        control.ask(registry.find(ufm.ufm.lab), "fix", name="h6/1")
    assert ufm.get("reports/last_report/Fabric_Health")["report"] == "Fabric_Health"
    assert ufm.call("POST", "reports/Fabric_Health", {"link_speed": "ALL"}).status_code == 400
    ufm.done("DELETE", f"reports/{number}")
    assert ufm.call("GET", f"reports/{number}").status_code == 404


def test_a_report_of_the_service_has_its_disk_and_memory(ufm):
    number = ufm.done("POST", "reports/UFM_Health", status=202)["report_id"]
    report = ufm.get(f"reports/{number}")
    assert {item["name"] for item in report["checks"]} == {"ledger", "subnet manager", "disk"}
    assert report["summary"]["memory_mb"] > 10


def test_versions_change_with_their_collections(ufm):
    """The fluentd plugin uses them to decide which collections to read again."""
    before = ufm.get("app/versioning")
    assert ufm.get("app/versioning") == before
    number = ufm.done("POST", "app/events/external_event", {"event_id": 551, "description": "a test"})["id"]
    after = ufm.get("app/versioning")
    assert after["events_version"] > before["events_version"]
    ufm.done("DELETE", f"app/events/{number}")
    ufm.ufm.disconnect("h6")
    try:
        wait_until(lambda: ufm.get("app/versioning")["ports_version"] > before["ports_version"], "another version")
    finally:
        ufm.ufm.reconnect("h6")
        ufm.wait_for_hosts("h1", "h2", "h3", "h4", "h5", "h6")


def test_isolated_ports_are_the_disabled_ones(ufm):
    """The PDR plugin reads them."""
    leaf = next(item for item in ufm.get("resources/ports") if item["peer_node_name"] == "h6")
    policy = {"ports": [leaf["name"]], "ports_policy": "UNHEALTHY"}
    ufm.done("PUT", "app/unhealthy_ports", policy)
    assert ufm.get("resources/isolated_ports") == {"isolated_ports": []}  # marked, not switched off
    ufm.done("PUT", "app/unhealthy_ports", {**policy, "action": "isolate"})
    try:
        result = ufm.get("resources/isolated_ports")["isolated_ports"]
        assert [item.split("x")[-1] for item in result] == [leaf["name"]]
    finally:
        ufm.done("PUT", "app/unhealthy_ports", {"ports": [leaf["name"]], "ports_policy": "HEALTHY"})
        ufm.wait_for_hosts("h1", "h2", "h3", "h4", "h5", "h6")


def test_unsupported_collections_are_empty_lists(ufm):
    """The gRPC plugin subscribes to them."""
    for path in ("resources/logical_servers", "app/network_views"):
        assert ufm.get(path) == []
    assert ufm.get("app/ufm_config")["telemetry"] == "Enabled"


def test_removing_members_twice_is_no_error(ufm):
    """ib-kubernetes repeats a call after a lost answer."""
    body = {"pkey": "0xA77", "index0": True, "ip_over_ib": True, "membership": "full", "guids": ["02000000000000a7"]}
    ufm.done("POST", "resources/pkeys", body)
    removal = {"pkey": "0xA77", "guids": ["02000000000000a7"]}
    for _ in range(2):
        ufm.done("POST", "actions/remove_guids_from_pkey", removal)
        ufm.done("DELETE", "resources/pkeys/0xa77/guids/02000000000000a7")
        ufm.done("DELETE", "resources/pkeys/0xa77/hosts/h1")
    assert ufm.get("resources/pkeys/0xa77?guids_data=true") == {}
