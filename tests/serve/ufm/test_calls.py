"""UFM's calls by its clients: requests and the expected answers."""

from __future__ import annotations

import base64
import json
import socket
from asyncio import base_events
from types import SimpleNamespace

import pytest
from tests.patience import wait_until

from weft.serve.server import _listen
from weft.serve.settings import Settings
from weft.serve.ufm import watch

HOSTS = ("h1", "h2", "h3", "h4", "h5", "h6")


# -- who calls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["/ufmRest", "/ufmRestV2", "/ufmRestV3"])
def test_every_base_path_accepts_tokens_and_passwords(ufm, base):
    password = base64.b64encode(f"{ufm.ufm.user}:{ufm.ufm.password}".encode()).decode()
    for word in (ufm.ufm.token, password):
        result = ufm.http.get(f"{base}/app/ufm_version", headers={"Authorization": f"Basic {word}"})
        assert (result.status_code, result.json()["ufm_release_version"]) == (200, "6.22.1-0")


def test_requests_without_credentials_are_refused(ufm):
    for headers in ({}, {"Authorization": "Basic bm86bm8="}, {"X-Remote-User": ufm.ufm.user}):
        assert ufm.http.get("/ufmRestV3/resources/ports", headers=headers).status_code == 401


def test_a_requested_token_authenticates(ufm):
    result = ufm.done("POST", "app/tokens")["access_token"]
    results = ufm.http.get("/ufmRestV3/app/smconf", headers={"Authorization": f"Basic {result}"})
    assert results.json() == {
        "subnet_prefix": "0xfe80000000000000",
        "m_key": "0x0000000000000000",
        "sm_key": "0x0000000000000001",
        "sa_key": "0x0000000000000001",
        "m_key_per_port": False,
    }


# -- what is there ----------------------------------------------------------------------------------------------------


def test_ports_have_what_clients_require(ufm):
    port = ufm.get(f"resources/ports/{ufm.guid('h1')[:-1]}0_1")[0]
    required = ("guid", "name", "systemID", "lid", "dname", "system_name", "physical_state", "logical_state")
    assert all(port[name] not in (None, "", 0) for name in required)
    assert port["description"] == "Computer IB Port"
    assert port["node_description"] == "h1 mlx5_0"
    assert (port["physical_state"], port["logical_state"]) == ("Link Up", "Active")
    assert (port["peer_node_name"], port["tier"], port["dname"]) == ("leaf1", 1, "HCA-1/1")
    peer = ufm.get(f"resources/ports/{port['peer']}")[0]
    assert (peer["peer"], peer["peer_guid"], peer["system_name"]) == (port["name"], port["guid"], "leaf1")


@pytest.mark.parametrize(
    ("query", "holds"),
    [
        ("sys_type=Computer", lambda port: port["description"] == "Computer IB Port"),
        ("sys_type=Switch&active=true", lambda port: port["logical_state"] == "Active" and "Switch" in port["path"]),
        ("active=true", lambda port: port["logical_state"] == "Active"),
        ("system=h2", lambda port: port["system_name"] == "h2"),
    ],
)
def test_a_filter_selects_exactly_the_matching_ports(ufm, query, holds):
    everything = ufm.get("resources/ports?external=true")
    assert ufm.get(f"resources/ports?{query}") == [port for port in everything if holds(port)] != []


def test_no_port_has_a_bit_error_severity(ufm):
    assert ufm.get("resources/ports?high_ber_only=true") == ufm.get("resources/ports?high_ber_severity=error") == []


def test_systems_and_links_agree_with_ports(ufm):
    systems = {item["guid"]: item for item in ufm.get("resources/systems")}
    ports = ufm.get("resources/ports")
    assert {item["systemID"] for item in ports} == set(systems)
    assert {item["vendor"] for item in systems.values()} == {"Mellanox"}
    assert sorted(name for item in systems.values() for name in item["ports"]) == sorted(item["name"] for item in ports)
    hosts = ufm.get("resources/systems?type=host&role=endpoint")
    assert sorted(item["system_name"] for item in hosts) == list(HOSTS)
    assert {item["system_name"] for item in ufm.get("resources/systems?role=tor")} == {"leaf1", "leaf2", "leaf3"}
    links = ufm.get("resources/links?page_number=1&rpp=1000000000")["data"]
    ends = sorted(sorted((item["name"], item["peer"])) for item in ports if item["peer"] != "N/A")
    assert sorted([*map(sorted, (item["name"].split(":") for item in links))] * 2) == ends
    leaf = next(item["guid"] for item in systems.values() if item["system_name"] == "leaf1")
    assert len(ufm.get(f"resources/links?system={leaf}")) == 4
    assert ufm.get("resources/links?page_number=2&rpp=5")["data"] == links[5:10]


def test_unknown_filters_are_refused(ufm):
    huge = "9" * 5000
    for path in (
        "ports?colour=red",
        "ports?active=maybe",
        "links?page_number=0",
        f"links?rpp={huge}",
        "pkeys?guids=true",
    ):
        assert ufm.call("GET", f"resources/{path}").status_code == 400, path


# -- partitions -------------------------------------------------------------------------------------------------------


def test_ib_kubernetes_calls_add_and_remove_members(ufm):
    item, two = "02000000000000a1", "02000000000000a2"  # virtual functions that do not exist yet
    words = {"pkey": "0x0A01", "index0": True, "ip_over_ib": True, "membership": "full"}
    ufm.done("POST", "resources/pkeys", {**words, "guids": [item]})
    ufm.done("POST", "resources/pkeys/", {**words, "guids": [two], "membership": "limited", "index0": False})
    result = ufm.get("resources/pkeys/?guids_data=true")["0xa01"]
    assert result["guids"] == [
        {"guid": item, "index0": True, "membership": "full"},
        {"guid": two, "index0": False, "membership": "limited"},
    ]
    ufm.done("POST", "actions/remove_guids_from_pkey", {"pkey": "0x0A01", "guids": [item]})
    assert ufm.members("0xa01") == {two: "limited"}
    ufm.done("DELETE", f"resources/pkeys/0xa01/guids/{two}")
    assert ufm.get("resources/pkeys/0xa01?guids_data=true") == {}


def test_sdk_calls_replace_members_and_delete_partitions(ufm):
    guids = [ufm.guid("h1"), ufm.guid("h2")]
    body = {"guids": guids, "pkey": "0xa02", "index0": False, "ip_over_ib": True}
    ufm.done("PUT", "resources/pkeys", {**body, "memberships": ["full", "limited"]})
    assert ufm.members("0xa02") == {guids[0]: "full", guids[1]: "limited"}
    ufm.done("PUT", "resources/pkeys", {**body, "guids": guids[1:], "membership": "full"})
    assert ufm.members("0xa02") == {guids[1]: "full"}
    ufm.done("DELETE", "resources/pkeys/0xa02")
    assert ufm.call("DELETE", "resources/pkeys/0xa02").status_code == 404


def test_limits_set_by_carbides_calls_are_stored(ufm):
    ufm.done("POST", "resources/pkeys/add", {"pkey": "0xa03", "partition_name": "limits", "ip_over_ib": True})
    start = {"mtu_limit": 2, "rate_limit": 2.5, "service_level": 0}
    assert ufm.get("resources/pkeys?qos_conf=true")["0xa03"]["qos_conf"] == start
    expected = {"mtu_limit": 4, "rate_limit": 200.0, "service_level": 3}
    ufm.done("PUT", "resources/pkeys/qos_conf", {"pkey": "0xa03", **expected})
    both = ufm.get("resources/pkeys/0xa03?qos_conf=true&guids_data=true")
    assert both == {"partition": "limits", "ip_over_ib": True, "guids": [], "qos_conf": expected}
    ufm.done("POST", "resources/pkeys/add", {"pkey": "0xa03", "partition_name": "limits", "ip_over_ib": True})
    other = ufm.call("POST", "resources/pkeys/add", {"pkey": "0xa03", "partition_name": "other", "ip_over_ib": True})
    assert (other.status_code, "is used by limits" in other.text) == (409, True)  # the first client has it
    assert "0xa03" in ufm.get("resources/pkeys")
    ufm.done("DELETE", "resources/pkeys/0xa03")


def test_hosts_are_named_as_slurm_lists_them(ufm):
    """Slurm's plugin sends the strings of its configuration file unchanged."""
    body = {"hosts_names": "h[1-2,4]", "pkey": "0xa04", "ip_over_ib": "True", "index0": "False"}
    ufm.done("POST", "resources/pkeys/hosts", body)
    assert set(ufm.members("0xa04")) == {ufm.guid("h1"), ufm.guid("h2"), ufm.guid("h4")}
    ufm.done("DELETE", "resources/pkeys/0xa04/hosts/h[1-2]")
    assert set(ufm.members("0xa04")) == {ufm.guid("h4")}
    ufm.done("DELETE", "resources/pkeys/0xa04/hosts/h4")
    assert ufm.get("resources/pkeys/0xa04") == {}  # the job is over, and its partition gone


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "pkeys", {"pkey": "0x8001", "guids": []}, 400, "0x8001"),
        ("POST", "pkeys", {"pkey": "0x7fff", "guids": []}, 400, "Default"),
        ("POST", "pkeys", {"pkey": "0x0", "guids": []}, 400, "0x0000"),
        ("POST", "pkeys", {"pkey": "257", "guids": []}, 400, "hexadecimal"),
        ("POST", "pkeys", {"pkey": "0xa0f", "guids": ["1234"]}, 400, "16 hexadecimal digits"),
        ("POST", "pkeys", {"pkey": "0xa0f", "guids": ["02000000000000a1"], "membership": "both"}, 400, "membership"),
        ("POST", "pkeys", {"pkey": "0xa0f", "guids": ["02000000000000a1"], "memberships": []}, 200, ""),
        ("PUT", "pkeys", {"pkey": "0xa0f", "guids": []}, 200, ""),
        (
            "PUT",
            "pkeys",
            {"pkey": "0xa0f", "guids": ["02000000000000a1"], "memberships": ["full"] * 2},
            400,
            "2 member",
        ),
        ("POST", "pkeys", {"guids": []}, 400, "pkey"),
        ("PUT", "pkeys/qos_conf", {"pkey": "0xa0f", "mtu_limit": 2}, 404, "0xa0f"),
        ("POST", "pkeys/add", {"pkey": "0xa0f", "partition_name": "a,b"}, 400, "a,b"),
        ("POST", "pkeys/add", {"pkey": "0xa0f", "mtu_limit": 3}, 400, "got 3"),
        ("POST", "pkeys/add", {"pkey": "0xa0f", "service_level": 16}, 400, "got 16"),
        ("POST", "pkeys/add", {"pkey": "0xa0f", "rate_limit": 7}, 400, "7 Gbit/s"),
        ("POST", "pkeys/hosts", {"pkey": "0xa0f", "hosts_names": "h[1-9]"}, 404, "h7"),
        ("POST", "pkeys/hosts", {"pkey": "0xa0f", "hosts_names": "h["}, 400, "hostlist"),
        ("GET", "pkeys/pkey", None, 400, "hexadecimal"),
    ],
)
def test_invalid_calls_are_refused_and_change_nothing(ufm, method, path, body, status, said):
    before = ufm.get("resources/pkeys?guids_data=true")
    result = ufm.call(method, f"resources/{path}", body)
    assert result.status_code == status, result.text
    assert said in result.text
    if status != 200:
        assert ufm.get("resources/pkeys?guids_data=true") == before


def test_a_body_that_is_not_json_is_refused(ufm):
    headers = {"Authorization": f"Basic {ufm.ufm.token}"}
    result = ufm.http.post("/ufmRestV3/resources/pkeys", content=b"{", headers=headers)
    assert result.status_code == 400


# -- Neutron ----------------------------------------------------------------------------------------------------------


def neutron_port(number: int, network: str, client_id: str) -> dict[str, object]:
    options = [{"opt_name": "client-id", "opt_value": client_id, "ip_version": 4}]
    return {"id": f"port-{number}", "network_id": network, "binding:vnic_type": "baremetal", "extra_dhcp_opts": options}


def test_networks_are_partitions_and_their_ports_members(ufm):
    """The calls are those of networking-mlnx, which then reads the result of the job."""

    def completed(method: str, path: str, body: object = None) -> None:
        job = ufm.done(method, f"cloudx/{path}", body)
        assert ufm.get(job)["Status"] == "Completed"

    def client_id(host: str) -> str:
        return "ff:00:00:00:00:00:02:00:00:02:c9:00:" + bytes.fromhex(ufm.guid(host)).hex(":")

    network = {"id": "net-1", "name": "blue", "provider:segmentation_id": 0xA05, "mtu": 1500}
    completed("POST", "Network", network)
    completed("POST", "Port", neutron_port(1, "net-1", client_id("h1")))
    completed("POST", "Port", neutron_port(1, "net-1", client_id("h1")))  # its answer was lost
    completed("POST", "Port", neutron_port(2, "net-1", client_id("h2")))
    completed("POST", "Port", {"id": "dhcp", "network_id": "net-1", "mac_address": "fa:16:3e:00:00:01"})
    assert set(ufm.members("0xa05")) == {ufm.guid("h1"), ufm.guid("h2")}
    completed("PUT", "Port/port-2", neutron_port(2, "net-1", client_id("h3")))
    assert set(ufm.members("0xa05")) == {ufm.guid("h1"), ufm.guid("h3")}
    completed("POST", "Port", neutron_port(3, "net-1", client_id("h3")))  # a machine that moves
    completed("DELETE", "Port/port-2")
    assert set(ufm.members("0xa05")) == {ufm.guid("h1"), ufm.guid("h3")}
    completed("PUT", "Network/net-1", {**network, "provider:segmentation_id": 0xA06})
    assert (ufm.members("0xa05"), set(ufm.members("0xa06"))) == ({}, {ufm.guid("h1"), ufm.guid("h3")})
    for name in ("Port/port-1", "Port/port-3", "Port/dhcp", "Network/net-1"):
        completed("DELETE", name)
        assert ufm.call("DELETE", f"cloudx/{name}").status_code == 404
    assert ufm.get("resources/pkeys/0xa06") == {}


def test_a_port_of_no_network_is_refused(ufm):
    assert ufm.call("POST", "cloudx/Port", {"id": "p", "network_id": "nowhere"}).status_code == 404
    assert ufm.call("POST", "cloudx/Network", {"id": "no\0name"}).status_code == 400
    result = ufm.call("PUT", "cloudx/Network/one", {"id": "other"})
    assert (result.status_code, "in the path" in result.text) == (400, True)


def test_a_network_cannot_use_the_p_key_of_another_owner(ufm):
    """Otherwise its ports would join another partition, which would be deleted with the network."""
    ufm.done("POST", "resources/pkeys/add", {"pkey": "0xa0e", "partition_name": "theirs"})
    used = ufm.call("POST", "cloudx/Network", {"id": "new", "provider:segmentation_id": 0xA0E})
    assert (used.status_code, "is used by theirs" in used.text) == (409, True)
    assert ufm.call("DELETE", "cloudx/Network/new").status_code == 404
    ufm.done("DELETE", "resources/pkeys/0xa0e")


# -- events and jobs --------------------------------------------------------------------------------------------------


def test_events_of_plugins_are_kept_until_they_are_deleted(ufm):
    words = {"event_id": 553, "description": "link h1 is bad", "external_event_source": "PDR Plugin"}
    number = ufm.done("POST", "app/events/external_event", words)["id"]
    assert [item["description"] for item in ufm.get("app/events") if item["id"] == number] == ["link h1 is bad"]
    ufm.done("DELETE", f"app/events/{number}")
    assert ufm.call("DELETE", f"app/events/{number}").status_code == 404


def test_an_unknown_job_is_not_found(ufm):
    for number in ("99999", "x", "9" * 5000):
        assert ufm.call("GET", f"jobs/{number}").status_code == 404
    assert ufm.call("POST", "actions", {"action": "explode", "object_ids": []}).status_code == 404


def test_changes_and_refusals_are_in_the_audit_log(ufm):
    ufm.call("POST", "resources/pkeys", {"pkey": "0x7fff", "guids": []})

    def audit_log() -> str:
        text = json.dumps(ufm.call("GET", "audit", base="/api/v1").json())
        return text if "0x7fff" in text else ""

    lines = wait_until(audit_log)  # a refusal is written with the next batch
    assert "/ufmRestV3/resources/pkeys" in lines
    assert "refused: the P_Key 0x7fff" in lines


def test_long_answers_stay_cached_among_many_short_ones(monkeypatch):
    monkeypatch.setattr(watch, "Picture", lambda subnet: SimpleNamespace(revision=subnet))
    manager = SimpleNamespace(subnet=lambda: "1", status=lambda: SimpleNamespace(subnet_revision="1"))
    observed, result = watch.Watch(manager), list[object]()  # type: ignore[arg-type]

    def ask(name: object, size: int) -> None:
        observed.answer(name, lambda _: result.append(name) or "x" * size)  # type: ignore[func-returns-value]

    for number in range(100):
        ask(number, 10)
    for _ in range(2):
        ask("all", 1_000_000)
    assert result.count("all") == 1


def test_small_answers_do_not_wait_for_the_callers_acknowledgement():
    """An answer is two small writes; Nagle's algorithm would delay the second."""
    listening = _listen(Settings())
    try:
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                base_events._set_nodelay(accepted)  # as asyncio does with each connection
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        listening.close()
