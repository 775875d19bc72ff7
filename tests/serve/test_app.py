"""The REST interface: permissions, and errors of invalid requests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.serve.service import Service, basic

from weft.serve import ledger
from weft.serve.access import Caller, Role, new_user, put_user
from weft.serve.api import exchange
from weft.serve.api.exchange import change
from weft.serve.problems import FabricTimeoutError
from weft.serve.settings import Settings
from weft.tenants.partitions import Partition

H1, H2, H9 = (f"0x{0x10_0000 + n:016x}" for n in (1, 2, 9))
ACME = {"name": "acme", "members": [{"guid": H1}, {"guid": H2, "membership": "limited"}]}
QUOTA = {"ports": 3, "hosts": ["h[1-5]"]}
INTENT = {"tenant": {"blue": {"hosts": ["h[3-4]"], "quota": QUOTA}, "red": {"hosts": ["h5"]}}}


@pytest.fixture
def service(database) -> Iterator[Service]:
    result = Service(database)
    yield result
    result.close()


def is_problem(answer: Any, status: int, words: str) -> bool:
    result = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert result["status"] == status
    assert words in result["detail"]
    return True


def test_a_partition_is_created_read_and_deleted(service):
    assert service.call("ops", "PUT", "/partitions/0x0101", json=ACME).status_code == 200
    assert [member.full for member in service.fabric.observed.allocation.partitions[0x0101].members.values()] == [
        True,
        False,
    ]
    result = service.call("eye", "GET", "/partitions/0x101").json()
    assert result["members"][1] == {"guid": H2, "membership": "limited", "index0": False}
    assert service.call("eye", "GET", "/partitions").json() == [
        {"p_key": "0x0101", "name": "acme", "owner": "direct", "members": 2}
    ]
    assert service.call("ops", "DELETE", "/partitions/0x0101").status_code == 204
    assert service.fabric.observed.allocation.partitions == {}
    assert is_problem(service.call("eye", "GET", "/partitions/0x0101"), 404, "no partition 0x0101")


def test_members_are_added_and_removed_individually(service):
    service.call("ops", "PUT", "/partitions/0x0101", json={"name": "acme"})
    for _ in range(2):  # the second changes nothing
        assert service.call("ops", "PUT", f"/partitions/0x0101/members/{H1}", json={"index0": True}).status_code == 200
    assert service.call("eye", "GET", f"/partitions/0x0101/members/{H1}").json()["index0"]
    assert service.call("ops", "DELETE", f"/partitions/0x0101/members/{H1}").status_code == 204
    assert is_problem(service.call("ops", "DELETE", f"/partitions/0x0101/members/{H1}"), 404, "not a member of acme")


def test_listings_are_encoded_again_only_after_a_change(service, monkeypatch):
    def ports(path: str) -> list[list[str]]:
        return [item["partitions"] for item in service.call("eye", "GET", path).json() if item["guid"] == H1]

    def read() -> tuple[Any, ...]:
        partitions, tenants = (service.call("eye", "GET", path).json() for path in ("/partitions", "/tenants"))
        return (
            [partition["members"] for partition in partitions],
            list(tenants),
            ports("/ports"),
            ports("/ports?host=h1"),
        )

    assert read() == ([], [], [[]], [[]])
    service.call("ops", "PUT", "/partitions/0x0101", json=ACME)
    service.call("ops", "PUT", "/partitions/0x0100", json=ACME | {"name": "other"})
    service.call("ops", "PUT", "/intent", json=INTENT | {"p_keys": "0x0200-0x0300"})
    observed = read()
    assert observed == ([2, 2, 2, 1], ["blue", "red"], [["0x0100", "0x0101"]], [["0x0100", "0x0101"]])
    monkeypatch.setattr(exchange, "_encode", None)  # serialization to JSON fails now
    assert read() == observed


def test_a_change_with_an_outdated_tag_is_refused(service):
    service.call("ops", "PUT", "/partitions/0x0101", json=ACME)
    tag = service.call("ops", "GET", "/partitions/0x0101").headers["etag"]
    assert service.call("ops", "GET", "/partitions/0x0101", headers={"If-None-Match": tag}).status_code == 304
    match = {"If-Match": tag}
    assert service.call("ops", "PUT", "/partitions/0x0101", json={"name": "acme"}, headers=match).status_code == 200
    late = service.call("ops", "PUT", "/partitions/0x0101", json=ACME, headers=match)
    assert is_problem(late, 412, "read it again")
    assert is_problem(service.call("ops", "DELETE", "/partitions/0x0101", headers=match), 412, "read it again")
    again = service.call("ops", "PUT", "/partitions/0x0101", json=ACME, headers={"If-None-Match": "*"})
    assert is_problem(again, 412, "the resource exists")
    assert service.fabric.observed.allocation.partitions[0x0101].members == {}


BAD: list[tuple[str, dict[str, Any], int, str]] = [
    ("/partitions/0x0000", ACME, 422, "must be from 0x0001 to 0x7ffe"),
    ("/partitions/0x7fff", ACME, 422, "must be from 0x0001 to 0x7ffe"),
    ("/partitions/0xffff", ACME, 422, "must be from 0x0001 to 0x7ffe"),
    ("/partitions/257", ACME, 422, "0x"),
    ("/partitions/0x0200", ACME, 409, "0x0200 is taken"),
    ("/partitions/0x0101", {"name": "blue"}, 409, "the name blue is taken"),
    ("/partitions/0x0101", {"name": "a=b"}, 422, "name 'a=b' must have"),
    ("/partitions/0x0101", {"name": "a", "sl": 16}, 422, "sl"),
    ("/partitions/0x0101", {"name": "a", "speed": 3}, 422, "speed"),
    ("/partitions/0x0101", {"name": "a", "members": [{"guid": H9}]}, 422, "no port has the GUID 0x0000000000100009"),
    ("/partitions/0x0101", {"name": "a", "members": [{"guid": H1}, {"guid": H1}]}, 422, "twice"),
    ("/partitions/0x0101", {"name": "a", "members": [{"guid": "h1"}]}, 422, "not a hexadecimal number"),
    ("/partitions/0x0101", {"name": "a", "members": [{"guid": "0x0"}]}, 422, "must not be 0"),
    ("/partitions/0x0102", {"name": "blue"}, 409, "change the intent"),
    ("/partitions/0x0101", {"name": "a", "members": [{"guid": f"0x{0x10_0003:016x}"}]}, 409, "exclusive tenant blue"),
    ("/tenants/green", {"hosts": ["h77"]}, 422, "no host 'h77'"),
    ("/tenants/green", {"hosts": ["h3"]}, 422, "exclusive"),
    ("/tenants/blue", {"hosts": ["h[1-4]"], "quota": {"ports": 3}}, 422, "quota"),
    ("/tenants/green", {"p_key": "0x8001"}, 422, "p_key"),
    ("/intent", {"tenants": {}}, 422, "tenant"),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Service]:
    result = Service(f"sqlite:///{tmp_path_factory.mktemp('shared')}/ledger.db")
    result.fabric.observed = replace(result.fabric.observed, foreign_p_keys=frozenset({0x0200}))
    document = {**INTENT, "p_keys": "0x0102-0x01ff"}
    assert result.call("ops", "PUT", "/intent", json=document).status_code == 200
    yield result
    result.close()


@pytest.mark.parametrize(("path", "body", "status", "words"), BAD)
def test_invalid_requests_are_refused_with_a_reason_and_change_nothing(shared, path, body, status, words):
    before = shared.ledger.desired()
    assert is_problem(shared.call("ops", "PUT", path, json=body), status, words)
    assert shared.ledger.desired() == before
    assert shared.fabric.observed.allocation == before.allocation()


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"name": "\\u0000"}'])
def test_no_request_body_causes_an_internal_error(shared, body):
    for path in ("/partitions/0x0101", "/tenants/green", "/intent", "/tokens/x", "/users/x"):
        assert shared.call("root", "PUT", path, content=body).status_code in (400, 422)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/partitions/0x0101", b"{"),
        ("PUT", "/partitions/0x0101", b'{"name": 3}'),
        ("PUT", "/partitions/zero", b"{}"),
        ("PUT", "/intent", b'{"nonsense": 1}'),
        ("POST", "/nothing", b""),
        ("PUT", "/partitions/0x0666/members/0x1", b"{}"),
    ],
)
def test_every_refusal_of_a_change_is_in_the_audit_log_once(shared, method, path, body):
    before = len(shared.audit())
    assert shared.call("ops", method, path, content=body).status_code >= 400
    new = [line for line in shared.audit()[:-before] if line[0] == "ops"]
    assert len(new) == 1
    assert new[0][1].startswith(f"{method} /api/v1{path}")
    assert new[0][2].startswith("refused: ")


def test_an_intent_is_planned_applied_and_its_tenants_changed(service):
    planned = service.call("eye", "POST", "/intent/plan", json=INTENT).json()
    assert planned["summary"] == "Plan: 2 to create, 1 to change, 0 to destroy."
    assert service.fabric.writes == 0
    toml = (
        '[tenant.blue]\nhosts = ["h[3-4]"]\nquota = { ports = 3, hosts = ["h[1-5]"] }\n[tenant.red]\nhosts = ["h5"]\n'
    )
    done = service.call("ops", "PUT", "/intent", content=toml, headers={"Content-Type": "application/toml"})
    assert done.status_code == 200, done.text
    assert service.call("eye", "GET", "/intent").json() == INTENT
    assert sorted(partition.name for partition in service.fabric.observed.allocation.partitions.values()) == [
        "blue",
        "red",
    ]
    assert service.call("ops", "DELETE", "/tenants/red").status_code == 204
    assert list(service.call("eye", "GET", "/tenants").json()) == ["blue"]
    assert [partition.name for partition in service.fabric.observed.allocation.partitions.values()] == ["blue"]


def test_a_host_that_is_down_blocks_no_change(service, monkeypatch):
    monkeypatch.setattr(ledger, "_FRESH_S", 0)
    assert service.call("ops", "PUT", "/intent", json=INTENT).json()["notes"] == []
    service.fabric.ports = tuple(port for port in service.fabric.ports if port.host != "h3")
    changed = {"tenant": {**INTENT["tenant"], "red": {"hosts": ["h6"]}}}
    note = "tenant blue: h3/1 is not in the fabric now; it gets its P_Keys when it comes up"
    assert service.call("ops", "PUT", "/intent", json=changed).json()["notes"] == [note]
    assert {
        partition.name: len(partition.members) for partition in service.fabric.observed.allocation.partitions.values()
    } == {
        "blue": 2,
        "red": 1,
    }
    (removed,) = service.call("eye", "GET", "/ports?host=h3").json()
    assert (removed["is_there"], removed["is_active"], removed["partitions"]) == (False, False, ["0x0001"])
    typo = {"tenant": {"red": {"hosts": ["h66"]}}}
    assert is_problem(service.call("ops", "PUT", "/intent", json=typo), 422, "no host 'h66'")


def test_a_port_that_is_down_and_no_member_can_be_forgotten(service, monkeypatch):
    monkeypatch.setattr(ledger, "_FRESH_S", 0)
    service.call("ops", "PUT", "/intent", json=INTENT)
    guids = {item["host"]: item["guid"] for item in service.call("eye", "GET", "/ports").json()}
    service.fabric.ports = tuple(port for port in service.fabric.ports if port.host not in ("h3", "h8"))
    assert is_problem(service.call("eye", "DELETE", f"/ports/{guids['h8']}"), 403, "only operators")
    assert is_problem(service.call("ops", "DELETE", "/ports/0x99"), 404, "there is no port 0x0000000000000099")
    assert is_problem(service.call("ops", "DELETE", f"/ports/{guids['h1']}"), 409, "port h1/1 is connected")
    assert is_problem(service.call("ops", "DELETE", f"/ports/{guids['h3']}"), 409, "is a member of blue=0x0001")
    assert service.call("eye", "GET", "/ports?host=h8").json() != []
    assert service.call("ops", "DELETE", f"/ports/{guids['h8']}").status_code == 204
    assert service.call("eye", "GET", "/ports?host=h8").json() == []
    assert int(guids["h8"], 16) not in service.ledger.store.known_ports()
    assert ("ops", f"DELETE /api/v1/ports/{guids['h8']}", "done") in service.audit()
    assert service.call("ops", "DELETE", f"/ports/{guids['h8']}").status_code == 404


def test_an_intent_does_not_change_direct_partitions(service):
    service.call("ops", "PUT", "/partitions/0x0001", json=ACME)
    assert service.call("ops", "PUT", "/intent", json=INTENT).status_code == 200
    assert {partition.name for partition in service.fabric.observed.allocation.partitions.values()} == {
        "acme",
        "blue",
        "red",
    }
    clash = service.call("ops", "PUT", "/tenants/green", json={"hosts": ["h1"]})
    assert is_problem(clash, 409, "exclusive tenant green")
    assert service.call("ops", "PUT", "/intent", json={}).status_code == 200
    assert {partition.name for partition in service.fabric.observed.allocation.partitions.values()} == {"acme"}


def test_each_role_has_exactly_its_permissions(service):
    service.call("ops", "PUT", "/intent", json=INTENT)
    service.call("ops", "PUT", "/partitions/0x0101", json=ACME)
    for owner in ("eye", "blue"):
        assert is_problem(service.call(owner, "PUT", "/partitions/0x0102", json=ACME), 403, f"{owner} has the role")
        assert is_problem(service.call(owner, "PUT", "/intent", json=INTENT), 403, "operators")
        assert is_problem(service.call(owner, "GET", "/audit"), 403, "operators")
    for owner in ("eye", "blue", "ops"):
        assert is_problem(service.call(owner, "GET", "/tokens"), 403, "admins")
        assert is_problem(service.call(owner, "PUT", "/users/x", json={}), 403, "admins")
    refused = [(actor, kind) for actor, kind, result in service.audit() if result.startswith("refused")]
    assert ("eye", "PUT /api/v1/partitions/0x0102") in refused


def test_a_tenant_sees_only_itself_and_changes_its_ports_within_its_quota(service):
    service.call("ops", "PUT", "/intent", json=INTENT)
    assert [item["name"] for item in service.call("blue", "GET", "/partitions").json()] == ["blue"]
    assert list(service.call("blue", "GET", "/tenants").json()) == ["blue"]
    assert [item["host"] for item in service.call("blue", "GET", "/ports").json()] == ["h3", "h4"]
    assert len(service.call("eye", "GET", "/ports").json()) == 8
    red = next(p_key for p_key, item in service.ledger.desired().partitions.items() if item.name == "red")
    assert service.call("blue", "GET", f"/partitions/{red:#06x}").status_code == 404
    assert service.call("blue", "GET", "/tenants/red").status_code == 404
    assert service.call("blue", "GET", "/intent").status_code == 403
    mine = INTENT["tenant"]["blue"]
    assert service.call("blue", "PUT", "/tenants/blue", json={**mine, "hosts": ["h[2-4]"]}).status_code == 200
    assert is_problem(service.call("blue", "PUT", "/tenants/blue", json={**mine, "hosts": ["h[1-4]"]}), 422, "quota")
    assert is_problem(service.call("blue", "PUT", "/tenants/blue", json={**mine, "hosts": ["h5"]}), 422, "red")
    more = {**mine, "quota": {"ports": 8}}
    assert is_problem(service.call("blue", "PUT", "/tenants/blue", json=more), 403, "only operators may change quota")


CLAIMS: list[tuple[dict[str, list[str]], int]] = [
    ({"hosts": ["h[2-4]"]}, 200),
    ({"hosts": ["h[3-4]"], "ports": ["h1/1"]}, 200),
    ({"hosts": ["h3"], "guids": [H1]}, 200),
    ({"hosts": []}, 200),
    ({"hosts": ["h[3-4]", "h6"]}, 403),  # without an owner, and not on the list
    ({"hosts": ["h[3-6]"]}, 403),
    ({"hosts": ["h[3-4]"], "ports": ["h6/1"]}, 403),
    ({"hosts": ["h[3-4]"], "guids": [f"0x{0x10_0006:016x}"]}, 403),
    ({"hosts": ["h[3-4]"], "absent": [H9]}, 403),  # a GUID that is not there yet would be taken from others
    ({"hosts": ["h[3-4]", "h77"]}, 403),  # the same as for an existing host
]


@pytest.mark.parametrize(("claim", "status"), CLAIMS)
def test_a_tenant_claims_only_hosts_that_the_operator_listed(service, claim, status):
    service.call("ops", "PUT", "/intent", json=INTENT)
    answer = service.call("blue", "PUT", "/tenants/blue", json={"quota": QUOTA, **claim})
    assert answer.status_code == status, answer.text
    if status == 403:
        assert "not on a host that blue may claim (h[1-5])" in answer.json()["detail"]
        assert service.ledger.desired().intent().tenants["blue"].hosts == ("h[3-4]",)


def test_a_tenant_keeps_what_an_operator_gave_it_beyond_the_list(service):
    arguments = {"hosts": ["h8"], "absent": [H9], "quota": {"ports": 5, "hosts": ["h1"]}}
    service.call("ops", "PUT", "/intent", json={"tenant": {"blue": arguments}})
    assert service.call("blue", "PUT", "/tenants/blue", json={**arguments, "hosts": ["h[1,8]"]}).status_code == 200
    assert service.call("blue", "PUT", "/tenants/blue", json={**arguments, "hosts": ["h1"]}).status_code == 200
    assert is_problem(service.call("blue", "PUT", "/tenants/blue", json=arguments), 403, "h8 is not on a host")
    bare = {"hosts": ["h8"]}
    service.call("ops", "PUT", "/intent", json={"tenant": {"blue": bare}})
    assert is_problem(service.call("blue", "PUT", "/tenants/blue", json=bare), 403, "without a quota")


def test_tokens_and_users_are_managed_and_only_hashes_are_stored(service):
    token = service.call("root", "PUT", "/tokens/ci", json={"role": "operator"}).json()["token"]
    service.tokens["ci"] = token
    assert service.call("ci", "GET", "/ports").status_code == 200
    assert is_problem(service.call("root", "PUT", "/tokens/ci", json={"role": "admin"}), 409, "already")
    user = {"role": "operator", "password": "correct horse"}
    assert service.call("root", "PUT", "/users/slurm", json=user).status_code == 200
    assert is_problem(service.call("root", "PUT", "/users/x", json={**user, "password": "short"}), 422, "length >= 8")
    assert is_problem(service.call("root", "PUT", "/users/x", json={**user, "role": "tenant"}), 422, "tenant's name")
    remaining = str(service.ledger.store.load().documents) + str(service.audit())
    assert token not in remaining
    assert "correct horse" not in remaining
    assert "scrypt" not in str(service.call("root", "GET", "/users").json())
    assert service.call("root", "DELETE", "/tokens/ci").status_code == 204
    assert service.call("ci", "GET", "/ports").status_code == 401


def test_bearer_tokens_ufms_basic_tokens_and_passwords_authenticate(service, monkeypatch):
    monkeypatch.setattr("weft.serve.audit._WINDOW_S", 0)
    service.ledger.change(
        "t", "user", lambda draft: put_user(draft, new_user("slurm", "correct horse", Role.READ_ONLY))
    )
    for headers in (basic("slurm", "correct horse"), {"Authorization": f"Basic {service.tokens['eye']}"}):
        for _ in range(2):  # the second time from memory
            assert service.client.get("/api/v1/ports", headers=headers).status_code == 200
    wrong = [
        basic("slurm", "wrong"),
        basic("nobody", "x"),
        {"Authorization": "Basic c2x1cm0="},
        {"Authorization": "Basic ?"},
        {},
    ]
    for headers in wrong:
        result = service.client.get("/api/v1/ports", headers=headers)
        assert is_problem(result, 401, "no valid token")
        assert "Bearer" in result.headers["www-authenticate"]
    refused = [line for line in service.stored() if line.actor == "127.0.0.1"]
    assert {line.what for line in refused} == {"GET /api/v1/ports"}
    assert sum(line.times for line in refused) == len(wrong)


def test_guessing_tokens_is_rate_limited(database):
    service = Service(database, failures_per_s=0.001)
    first, second = (service.client.get("/api/v1/ports") for _ in range(2))
    service.close()
    assert is_problem(first, 401, "no valid token")
    assert is_problem(second, 429, "wrong tokens from 127.0.0.1")
    assert int(second.headers["retry-after"]) > 900


def test_requests_above_the_rate_of_a_token_are_refused(database):
    service = Service(database, rate_per_s=0.001)
    assert service.call("eye", "GET", "/partitions").status_code == 200
    late = service.call("eye", "GET", "/partitions")
    other = service.call("ops", "GET", "/partitions")
    service.close()
    assert is_problem(late, 429, "requests per second")
    assert int(late.headers["retry-after"]) > 900
    assert other.status_code == 200


def test_giant_bodies_are_refused_however_they_are_sent(database, monkeypatch):
    monkeypatch.setattr("weft.serve.audit._WINDOW_S", 0)
    service = Service(database, most_body_bytes=1000)
    sized = service.call("ops", "PUT", "/intent", content=b"x" * 2000)
    chunked = service.call("ops", "PUT", "/intent", content=(b"x" * 100 for _ in range(1000)))
    lines = service.stored()
    service.close()
    for answer in (sized, chunked):
        assert is_problem(answer, 413, "larger than 1000 bytes")
    assert sum(line.times for line in lines if "larger than" in line.result) == 2


def test_a_fabric_that_does_not_answer_is_503_and_nothing_is_changed(service):
    service.fabric.is_dead = True
    service.ledger._seen_at_s = -1e9  # what is known is old
    assert is_problem(service.call("ops", "PUT", "/partitions/0x0101", json={"name": "a"}), 503, "does not answer")
    assert service.call("root", "DELETE", "/tokens/blue").status_code == 204  # this does not wait for it
    service.fabric.is_dead = False
    assert service.call("eye", "GET", "/partitions").json() == []
    assert any("does not answer" in result for _, _, result in service.audit())


def test_a_hanging_fabric_delays_only_requests_that_need_it(database):
    service = Service(database)
    service.be_impatient()
    service.fabric.answers.clear()
    service.ledger._seen_at_s = -1e9  # what is known is old
    try:
        assert is_problem(service.call("eye", "GET", "/ports"), 504, "did not answer")
        assert is_problem(service.call("ops", "PUT", "/partitions/0x0101", json=ACME), 504, "the fabric did not apply")
        assert service.call("eye", "GET", "/partitions").json() == []
        assert service.client.get("/healthz").status_code == 200
    finally:
        service.fabric.answers.set()
        service.close()


def test_a_change_that_waits_too_long_is_withdrawn(database):
    service = Service(database)
    service.be_impatient()
    service.fabric.gate.clear()
    at_work = service.ledger.submit("test", "first", lambda draft: draft.put(Partition(name="acme", p_key=0x0101)))
    service.fabric.entered.wait()
    waits = service.call("ops", "PUT", "/partitions/0x0102", json={"name": "blue"})
    service.fabric.gate.set()
    at_work.result()
    service.ledger.change("test", "wait", lambda draft: None)
    result = set(service.ledger.desired().partitions)
    service.close()
    assert is_problem(waits, 504, "withdrawn")
    assert result == {0x0101}


def test_a_change_that_runs_too_long_is_reported_as_running():
    """The change may still be applied, so it must not be reported as failed."""
    at_work: Future[None] = Future()
    at_work.set_running_or_notify_cancel()
    ledger = SimpleNamespace(submit=lambda actor, what, edit: at_work)
    state = SimpleNamespace(ledger=ledger, settings=Settings(timeout_s=0.01))
    path = SimpleNamespace(path="/")
    request = SimpleNamespace(
        app=SimpleNamespace(state=state),
        method="PUT",
        url=path,
        state=SimpleNamespace(caller=Caller("ops", Role.ADMIN)),
    )
    with pytest.raises(FabricTimeoutError, match="it is still running"):
        asyncio.run(change(request, lambda draft: None, is_secret=True))


def test_health_and_the_openapi_document_need_no_token(service):
    assert service.client.get("/healthz").json() == {"status": "ok"}
    document = service.client.get("/api/v1/openapi.json").json()
    put = document["paths"]["/api/v1/partitions/{p_key}"]["put"]
    assert {"200", "401", "403", "409", "412", "413", "422", "429", "503"} <= put["responses"].keys()
    assert put["requestBody"]["content"]["application/json"]["schema"]["$ref"] == "#/components/schemas/PartitionIn"
    named = set(re.findall(r"#/components/schemas/([^\"]+)", json.dumps(document)))
    assert {"PartitionIn", "PartitionOut", "Problem"} <= named <= document["components"]["schemas"].keys()


def test_the_docs_page_has_every_route_and_no_external_files(service):
    page = service.client.get("/docs").text
    document = service.client.get("/api/v1/openapi.json").json()
    for path, methods in document["paths"].items():
        assert f"<code>{path}</code>" in page
        assert all(f">{method.upper()}</span><code>{path}<" in page for method in methods)
    assert not re.search(r"<script|<link|(src|href)=.https?:", page)
    for name in re.findall(r'href="#([^"]+)"', page):
        assert f'id="{name}"' in page


def test_unknown_routes_return_problem_details(service):
    assert is_problem(service.call("eye", "GET", "/nothing"), 404, "GET /api/v1/nothing")
    assert is_problem(service.call("eye", "POST", "/partitions"), 405, "POST /api/v1/partitions")
