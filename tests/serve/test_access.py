"""Tokens and users: how long they are good for, and with which rights."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.serve.service import Service, basic

from weft.errors import ConfigError
from weft.serve.access import (
    Access,
    BusyError,
    Caller,
    Role,
    Token,
    add_own_token,
    add_token,
    configure_token,
    has_admin,
    has_configured_token,
    listed,
    new_user,
    put_user,
    remove,
)
from weft.serve.desired import ConflictError, Desired, Draft, NotFoundError


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


# -- limits, without a service -----------------------------------------------------------------------------------------


def draft() -> Draft:
    return Draft(Desired(), lambda: pytest.fail("needs no ports"), frozenset())


def tokens_of(of: Draft) -> dict[str, Token]:
    return {token.name: token for token in listed(of.documents, Token)}


@pytest.mark.parametrize(("now_s", "is_valid"), [(99.9, True), (100.0, False), (100.1, False)])
def test_a_token_is_invalid_from_the_moment_at_which_it_expires(now_s, is_valid):
    token = Token(name="a", role=Role.ADMIN, made_at_s=0, sha256="", expires_at_s=100.0)
    assert token.is_valid(now_s) is is_valid
    assert replace(token, expires_at_s=None).is_valid(now_s)


@pytest.mark.parametrize(("days", "is_accepted"), [(3650, True), (3650.1, False), (1e-9, True), (0, False)])
def test_the_longest_lifetime_is_ten_years(days, is_accepted):
    of = draft()
    with nullcontext() if is_accepted else pytest.raises(ConfigError, match="more than 0 and at most 3650, got"):
        add_token(of, "a", Role.ADMIN, days=days)
    assert len(of.documents) == is_accepted


def test_a_name_is_used_once_until_its_token_is_revoked():
    of = draft()
    secret = add_token(of, "a", Role.ADMIN)
    with pytest.raises(ConflictError, match="a token a exists already"):
        add_token(of, "a", Role.READ_ONLY)
    assert (tokens_of(of)["a"].role, secret[:5], len(secret)) == (Role.ADMIN, "weft_", 48)
    assert tokens_of(of)["a"].sha256 == hashlib.sha256(secret.encode()).hexdigest()


def test_the_rights_of_a_caller_are_those_of_its_token():
    of = draft()
    add_token(of, "a", Role.TENANT, "blue", days=10)
    own_secret, own = add_own_token(of, Caller("a", Role.TENANT, "blue", ("token", "a")))
    assert (own.role, own.tenant, own.owner) == (Role.TENANT, "blue", ("token", "a"))
    assert own.expires_at_s == tokens_of(of)["a"].expires_at_s  # not after its owner
    assert own.sha256 == hashlib.sha256(own_secret.encode()).hexdigest()
    with pytest.raises(NotFoundError, match="the user a has been removed"):
        add_own_token(of, Caller("a", Role.TENANT, "blue", ("user", "a")))


def test_the_token_of_a_user_is_valid_for_a_year():
    of = draft()
    put_user(of, new_user("bob", None, Role.OPERATOR))
    _, own = add_own_token(of, Caller("bob", Role.OPERATOR, "", ("user", "bob")))
    assert own.expires_at_s - own.made_at_s == 365 * 24 * 3600


@pytest.mark.parametrize("count", [999, 1000])
def test_an_owner_has_a_thousand_valid_tokens(count):
    of = draft()
    put_user(of, new_user("bob", None, Role.OPERATOR))
    for number in range(count):
        token = Token(name=f"bob-{number}", role=Role.OPERATOR, made_at_s=0, sha256="", owner=("user", "bob"))
        of.documents["token", token.name] = msgspec.json.encode(token).decode()
    of.documents["token", "other"] = msgspec.json.encode(Token(name="x", role="admin", made_at_s=0, sha256="")).decode()
    with nullcontext() if count < 1000 else pytest.raises(ConflictError, match="bob has 1,000 tokens already"):
        add_own_token(of, Caller("bob", Role.OPERATOR, "", ("user", "bob")))


@pytest.mark.parametrize(("length", "is_accepted"), [(31, False), (32, True)])
def test_the_configured_token_has_32_characters(length, is_accepted):
    of = draft()
    with nullcontext() if is_accepted else pytest.raises(ConfigError, match="at least 32 random characters"):
        configure_token(of, "x" * length)
    assert has_configured_token(of.documents) is is_accepted
    configure_token(of, "")
    configure_token(of, "")  # there is none to remove
    assert not has_configured_token(of.documents)


@pytest.mark.parametrize(("password", "is_accepted"), [("seven77", False), ("eight888", True)])
def test_a_password_has_eight_characters(password, is_accepted):
    with nullcontext() if is_accepted else pytest.raises(ConfigError, match="of bob is too short: use at least 8"):
        assert new_user("bob", password, Role.ADMIN).scrypt


def test_passwords_are_stored_as_scrypt_with_16384_rounds():
    user = new_user("bob", "correct horse", Role.ADMIN)
    salt = bytes.fromhex(user.salt)
    assert len(salt) == 16
    assert user.scrypt == hashlib.scrypt(b"correct horse", salt=salt, n=16384, r=8, p=1, maxmem=1 << 26).hex()


def test_only_a_valid_token_or_a_user_with_the_role_is_an_admin():
    of = draft()
    assert not has_admin(of.documents)
    add_token(of, "ops", Role.OPERATOR)
    put_user(of, new_user("eye", None, Role.READ_ONLY))
    expired = Token(name="old", role=Role.ADMIN, made_at_s=0, sha256="", expires_at_s=1.0)
    of.documents["token", "old"] = msgspec.json.encode(expired).decode()
    assert not has_admin(of.documents)
    put_user(of, new_user("root", None, Role.ADMIN))
    assert has_admin(of.documents)
    remove(of, "user", "root")
    add_token(of, "root", Role.ADMIN)
    assert has_admin(of.documents)


@pytest.mark.parametrize(
    ("role", "may_change"), [("admin", True), ("operator", True), ("tenant", False), ("read-only", False)]
)
def test_admins_and_operators_change_the_fabric(role, may_change):
    assert Caller("x", Role(role)).may_change is may_change


class Documents:
    """A ledger with these documents."""

    def __init__(self, of: Draft) -> None:
        self.of = of

    def desired(self) -> Desired:
        return Desired(documents=dict(self.of.documents))


def test_tokens_are_recognised_in_all_forms_and_expired_ones_are_not():
    of = draft()
    secret, brief = add_token(of, "a", Role.OPERATOR), add_token(of, "b", Role.ADMIN, days=1e-12)
    recognise = Access(Documents(of)).recognise
    expected = Caller("a", Role.OPERATOR, "", ("token", "a"))
    assert [recognise(f"{form} {secret}") for form in ("Bearer", "bearer", "Basic", "Bearer ")] == [expected] * 4
    assert [recognise(words) for words in (secret, f"Digest {secret}", f"Bearer {secret}x", f"Bearer {brief}", "")] == [
        None
    ] * 5
    own, _ = add_own_token(of, expected)
    remove(of, "token", "a")
    assert (recognise(f"Bearer {own}"), recognise(f"Bearer {secret}")) == (None, None)


def test_a_correct_password_is_remembered_until_it_changes(monkeypatch):
    of = draft()
    put_user(of, new_user("bob", "correct horse", Role.READ_ONLY))
    access, bob = Access(Documents(of)), Caller("bob", Role.READ_ONLY, "", ("user", "bob"))
    right, wrong = (basic("bob", word)["Authorization"] for word in ("correct horse", "wrong horse"))
    assert access.recognise(right) is None
    assert asyncio.run(access.log_in(wrong)) is None
    assert asyncio.run(access.log_in(right)) == bob == access.recognise(right) == access.named("bob")
    assert (access.recognise(wrong), access.named("eve")) == (None, None)
    assert (access.user_of(right), access.user_of("Bearer x")) == ("bob", None)
    monkeypatch.setattr("weft.serve.access._MOST_REMEMBERED", 1)
    put_user(of, new_user("eve", "battery staple", Role.READ_ONLY))
    assert asyncio.run(access.log_in(basic("eve", "battery staple")["Authorization"])).name == "eve"
    assert access.recognise(right) is None  # it was forgotten
    assert asyncio.run(access.log_in(right)) == bob
    put_user(of, new_user("bob", "other horse", Role.READ_ONLY))
    assert access.recognise(right) is None


def test_at_most_32_passwords_wait_to_be_checked(monkeypatch):
    async def many(access: Access, *counts: int) -> list[list[object]]:
        tried = [[access.log_in(basic(f"user{n}", "wrong")["Authorization"]) for n in range(count)] for count in counts]
        return [await asyncio.gather(*some, return_exceptions=True) for some in tried]

    monkeypatch.setattr("weft.serve.access._stretch", lambda password, salt: "")
    access = Access(Documents(draft()))
    for results in asyncio.run(many(access, 33, 33)):  # when those have been checked, as many may wait again
        assert [type(item) for item in results] == [type(None)] * 32 + [BusyError]
    assert asyncio.run(access.log_in("Bearer x")) is None


def test_one_password_is_checked_at_a_time(monkeypatch):
    """Each takes a core and 16 MB."""
    running: list[int] = []

    def stretch(password: str, salt: str) -> str:
        running.append(1)
        assert len(running) == 1
        time.sleep(0.002)
        running.clear()
        return ""

    async def two(access: Access) -> list[object]:
        return await asyncio.gather(*(access.log_in(basic(name, "wrong")["Authorization"]) for name in ("a", "b", "c")))

    monkeypatch.setattr("weft.serve.access._stretch", stretch)
    assert asyncio.run(two(Access(Documents(draft())))) == [None] * 3


def test_documents_are_decoded_again_only_after_a_change(monkeypatch):
    of, decoded = draft(), []
    secret = add_token(of, "a", Role.OPERATOR)
    desired = SimpleNamespace(documents=dict(of.documents))
    access = Access(SimpleNamespace(desired=lambda: desired))
    monkeypatch.setattr("weft.serve.access.listed", lambda *words: decoded.append(1) or listed(*words))
    assert {access.recognise(f"Bearer {secret}").name for _ in range(3)} == {"a"}
    assert len(decoded) == 2  # users and tokens
    desired.documents = {}
    assert access.recognise(f"Bearer {secret}") is None


@pytest.mark.parametrize(
    "authorization", ["Basic !!!!", "Basic /w==", "Basic Ym9i", "Bearer Ym9iOng=", "Ym9iOng=", "Basic", ""]
)
def test_credentials_without_a_user_have_none(authorization):
    """They are not base64, not UTF-8, without a colon, or of another scheme."""
    assert Access(Documents(draft())).user_of(authorization) is None
