"""Tokens and users: how long they are good for, and with which rights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.serve.service import Service, basic

from weft.errors import ConfigError
from weft.serve.access import Role, Token, add_token, configure_token, listed, new_user, put_user


@pytest.fixture
def service(database) -> Iterator[Service]:
    result = Service(database)
    yield result
    result.close()


def own_token(service: Service, headers: dict[str, str]) -> dict[str, Any]:
    answer = service.client.post("/ufmRest/app/tokens", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def status(service: Service, token: str, path: str = "/api/v1/partitions", method: str = "GET") -> int:
    return service.client.request(method, path, headers={"Authorization": f"Bearer {token}"}).status_code


def put_bob(service: Service, role: str) -> None:
    body = {"role": role, "password": "correct horse"}
    assert service.call("root", "PUT", "/users/bob", json=body).status_code == 200


def test_a_users_own_tokens_follow_its_role_and_end_with_it(service):
    put_bob(service, "admin")
    first = own_token(service, basic("bob", "correct horse"))["access_token"]
    second = own_token(service, {"Authorization": f"Bearer {first}"})["access_token"]
    assert status(service, second, "/api/v1/tokens") == 200
    put_bob(service, "read-only")
    assert [status(service, item, "/api/v1/tokens") for item in (first, second)] == [403, 403]
    assert status(service, first, "/ufmRest/app/tokens", "POST") == 403
    assert service.call("root", "DELETE", "/users/bob").status_code == 204
    assert [status(service, item) for item in (first, second)] == [401, 401]
    put_bob(service, "admin")  # another user of the same name
    assert [status(service, item) for item in (first, second)] == [401, 401]


def test_tokens_created_with_a_token_are_removed_with_it_and_have_bounded_names(service):
    secret, names = service.tokens["ops"], []
    for _ in range(10):
        result = own_token(service, {"Authorization": f"Bearer {secret}"})
        secret = result["access_token"]
        names.append(result["name"])
    assert {len(name) for name in names} == {len("ops-12345678")}
    output = {item["name"]: item for item in service.call("root", "GET", "/tokens").json()}
    assert output[names[-1]]["owner"] == "token ops"
    assert output[names[-1]]["expires_at_s"] <= output["ops"]["expires_at_s"]
    assert service.call("root", "DELETE", f"/tokens/{names[0]}").status_code == 204
    assert status(service, secret) == 200  # another token of the same owner
    assert service.call("root", "DELETE", "/tokens/ops").status_code == 204
    assert status(service, secret) == 401


def test_the_longest_name_leaves_space_for_the_names_of_its_tokens(service):
    name = "x" * 63
    service.tokens[name] = service.call("root", "PUT", f"/tokens/{name}", json={"role": "operator"}).json()["token"]
    result = own_token(service, {"Authorization": f"Bearer {service.tokens[name]}"})
    assert service.call("root", "DELETE", f"/tokens/{result['name']}").status_code == 204


def test_a_token_that_has_expired_is_refused_and_its_name_is_free(service):
    result = service.call("root", "PUT", "/tokens/brief", json={"role": "read-only", "days": 1e-12}).json()["token"]
    assert status(service, result) == 401
    assert service.call("root", "PUT", "/tokens/brief", json={"role": "read-only"}).status_code == 201
    (output,) = (item for item in service.call("root", "GET", "/tokens").json() if item["name"] == "brief")
    assert output["expires_at_s"] - output["made_at_s"] == pytest.approx(365 * 24 * 3600)


def test_a_token_that_expires_takes_its_own_tokens_with_it(service, monkeypatch):
    for _ in range(2):
        own_token(service, {"Authorization": f"Bearer {service.tokens['ops']}"})
    later_s = time.time() + 366 * 24 * 3600
    monkeypatch.setattr("weft.serve.access.time", SimpleNamespace(time=lambda: later_s))
    service.ledger.change("test", "token", lambda draft: add_token(draft, "new", Role.ADMIN))
    assert [item.name for item in listed(service.ledger.desired().documents, Token)] == ["new"]


@pytest.mark.parametrize("days", [0, -1, 1e9])
def test_the_lifetime_of_a_token_is_bounded(service, days):
    refused = service.call("root", "PUT", "/tokens/odd", json={"role": "read-only", "days": days})
    assert (refused.status_code, "days" in refused.json()["detail"]) == (422, True)


def test_an_owner_has_a_thousand_tokens_at_most(service, monkeypatch):
    monkeypatch.setattr("weft.serve.access._MOST_OWNED", 2)
    headers = {"Authorization": f"Bearer {service.tokens['ops']}"}
    for _ in range(2):
        own_token(service, headers)
    assert service.client.post("/ufmRest/app/tokens", headers=headers).status_code == 409


@pytest.mark.parametrize(("role", "tenant"), [(Role.ADMIN, "blue"), (Role.READ_ONLY, "blue"), (Role.TENANT, "")])
def test_only_the_role_tenant_has_a_tenants_name(service, role, tenant):
    with pytest.raises(ConfigError, match="tenant's name"):
        service.ledger.change("test", "token", lambda draft: add_token(draft, "odd", role, tenant))
    with pytest.raises(ConfigError, match="tenant's name"):
        service.ledger.change("test", "user", lambda draft: put_user(draft, new_user("odd", "12345678", role, tenant)))


@pytest.mark.parametrize("name", ["", "a b", "-a", "a:b", "x" * 64, "a\nb"])
def test_names_that_do_not_fit_into_a_path_are_refused(service, name):
    with pytest.raises(ConfigError, match="must have up to 63 letters"):
        service.ledger.change("test", "token", lambda draft: add_token(draft, name, Role.READ_ONLY))
    with pytest.raises(ConfigError, match="must have up to 63 letters"):
        new_user(name, "correct horse", Role.READ_ONLY)


def test_the_configured_admin_token_is_replaced_at_each_start(service):
    def configure(secret: str) -> None:
        service.ledger.change("test", "configure", lambda draft: configure_token(draft, secret))

    first, second = "a" * 32, "b" * 40
    configure(first)
    own = own_token(service, {"Authorization": f"Bearer {first}"})["access_token"]
    configure(first)
    assert [status(service, item, "/api/v1/tokens") for item in (first, own)] == [200, 200]
    configure(second)
    assert [status(service, item, "/api/v1/tokens") for item in (first, own, second)] == [401, 401, 200]
    configure("")
    assert status(service, second) == 401
    with pytest.raises(ConfigError, match="too short: use at least 32 random characters"):
        configure("short")


def test_removing_a_token_or_user_that_does_not_exist_is_an_error(service):
    for kind in ("tokens", "users"):
        assert service.call("root", "DELETE", f"/{kind}/nosuch").status_code == 404


def test_credentials_with_a_character_outside_base64_are_refused(service):
    put_bob(service, "admin")
    correct = basic("bob", "correct horse")
    assert service.client.get("/api/v1/partitions", headers=correct).status_code == 200
    wrong = {"Authorization": f"{correct['Authorization'][:-4]}!{correct['Authorization'][-4:]}"}
    assert service.client.get("/api/v1/partitions", headers=wrong).status_code == 401
