"""The gate before all routes: authentication, limits, bodies, origins."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers
from tests.patience import PATIENCE_S
from tests.serve.service import Service, basic

from weft.errors import ConfigError
from weft.serve import access, rates
from weft.serve.access import Role, new_user, put_user
from weft.serve.gate import Gate, _Body, _Refusal
from weft.serve.rates import Load, Rates
from weft.serve.settings import Settings, client_address, read_networks, site
from weft.serve.store import StoreError

WRONG = {"Authorization": "Bearer weft_wrong"}


@pytest.fixture
def start(database) -> Iterator[Callable[..., Service]]:
    """Start a service with settings, and the users alice and bob."""
    result: list[Service] = []

    def start_it(**settings: Any) -> Service:
        result.append(Service(database, **settings))
        for name in ("alice", "bob"):
            user = new_user(name, f"password of {name}", Role.READ_ONLY)
            result[0].ledger.change("test", "user", lambda draft, user=user: put_user(draft, user))
        return result[0]

    yield start_it
    result[0].close()


def status(service: Service, headers: dict[str, str], path: str = "/api/v1/partitions") -> int:
    return service.client.get(path, headers=headers).status_code


# -- rates ------------------------------------------------------------------------------------------------------------


def test_wrong_credentials_of_one_client_do_not_lock_out_others_at_its_address(start):
    service = start(failures_per_s=0.5)
    alice, bob = basic("alice", "password of alice"), basic("bob", "password of bob")
    assert status(service, alice) == 200
    assert {status(service, WRONG) for _ in range(30)} == {401, 429}
    assert service.call("eye", "GET", "/partitions").status_code == 200
    assert {status(service, basic("alice", "wrong")) for _ in range(5)} <= {401, 429}
    assert status(service, alice) == 200  # it was right before
    assert status(service, bob) == 200  # another user, for the first time


def test_many_wrong_passwords_from_one_address_are_refused_unchecked(start, monkeypatch):
    checked = []
    service = start(failures_per_s=0.05)
    monkeypatch.setattr(access, "_stretch", lambda password, salt: checked.append(password) or "")
    result = [status(service, basic(f"user{n}", "wrong")) for n in range(10)]
    assert result == [401] + [429] * 9
    assert len(checked) == 1


def test_checking_a_password_takes_the_same_work_for_unknown_users(start, monkeypatch):
    salts = []
    service = start()
    put = new_user("carol", None, Role.READ_ONLY)  # without a password
    service.ledger.change("test", "user", lambda draft: put_user(draft, put))
    monkeypatch.setattr(access, "_stretch", lambda password, salt: salts.append(salt) or "")
    assert [status(service, basic(name, "wrong")) for name in ("alice", "nobody", "carol")] == [401] * 3
    assert [len(salt) for salt in salts] == [32] * 3


def test_waiting_logins_are_bounded(start, monkeypatch):
    service = start()
    monkeypatch.setattr(access, "_MOST_LOGINS", 0)
    answer = service.client.get("/api/v1/ports", headers=basic("alice", "password of alice"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert service.call("eye", "GET", "/partitions").status_code == 200


def test_tokens_of_one_owner_share_its_rate(start):
    service = start(rate_per_s=1e-9)
    headers = {"Authorization": f"Bearer {service.tokens['ops']}"}
    own = service.client.post("/ufmRest/app/tokens", headers=headers).json()["access_token"]
    assert status(service, {"Authorization": f"Bearer {own}"}) == 429
    assert service.call("eye", "GET", "/partitions").status_code == 200


def test_a_bucket_never_holds_more_than_two_seconds_of_requests(monkeypatch):
    clock = SimpleNamespace(now_s=0.0, monotonic=lambda: clock.now_s)
    monkeypatch.setattr(rates, "time", clock)
    limit = Rates(2.0)
    assert [limit.spend("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    clock.now_s = 1000.0
    assert [limit.spend("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    clock.now_s += 0.25
    assert limit.spend("a") == 0.25
    clock.now_s += 0.25
    assert limit.spend("a") == 0
    assert limit.spend("b") == 0


def test_the_least_recently_used_bucket_is_dropped_first(monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(rates, "time", clock)
    monkeypatch.setattr(rates, "_MOST_COUNTED", 2)
    limit = Rates(0.1)
    assert [limit.spend(owner) for owner in ("a", "b", "a", "c")] == [0, 0, 10, 0]
    assert limit.spend("a") == 10  # b had to go
    assert limit.spend("b") == 0


# -- at once ----------------------------------------------------------------------------------------------------------


def unfinished(service: Service, who: str, size_bytes: int) -> socket.socket:
    """Begin a request, and send one byte of its body less than announced."""
    opened = socket.create_connection(service.server.url.removeprefix("http://").split(":"))
    opened.settimeout(PATIENCE_S)
    head = f"PUT /api/v1/intent HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {service.tokens[who]}\r\n"
    opened.sendall(f"{head}Content-Length: {size_bytes + 1}\r\n\r\n".encode() + b" " * size_bytes)
    return opened


def test_incomplete_bodies_of_a_caller_are_bounded(start):
    service = start(most_held_bytes=3000)
    with unfinished(service, "ops", 2000) as first, unfinished(service, "ops", 2000) as second:
        refused = first if first in readable(first, second) else second
        assert refused.recv(1000).startswith(b"HTTP/1.1 429 ")
        body = {"name": "x" * 2000}
        assert service.call("root", "PUT", "/partitions/0x0101", json=body).status_code == 422  # another caller


def readable(*those: socket.socket) -> list[socket.socket]:
    return select.select(those, (), (), PATIENCE_S)[0]


def test_concurrent_requests_of_a_caller_are_bounded():
    load = Load(2, 100)
    assert [load.begin("a") for _ in range(3)] == [True, True, False]
    assert load.begin("b")
    assert load.hold("a", 60)
    assert not load.hold("a", 60)
    load.end("a", 60)
    assert load.hold("a", 40)
    load.end("a", 100)
    assert load.begin("a")
    assert load.hold("a", 100)
    load.end("a", 100)
    load.end("b", 0)
    assert not load._requests
    assert not load._bytes


def test_a_request_too_many_at_once_is_refused(start):
    service = start(most_at_once=0)
    refused = service.call("eye", "GET", "/partitions")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


def test_finished_requests_do_not_count(start):
    service = start(most_at_once=1, most_held_bytes=300, most_body_bytes=200)
    for size in (150, 250, 150, 150):  # the second is too large, and its bytes are given back too
        body = (b" " * (size // 5) for _ in range(5))
        service.call("ops", "PUT", "/partitions/0x0101", content=body)
    assert service.call("ops", "PUT", "/partitions/0x0101", content=b'{"name": "a"}').status_code == 200


@pytest.mark.parametrize("header", ["Content-Length: 4000000", "Transfer-Encoding: chunked"])
def test_pages_without_a_token_read_no_body(start, header):
    service = start()
    with socket.create_connection(service.server.url.removeprefix("http://").split(":")) as opened:
        opened.settimeout(PATIENCE_S)
        opened.sendall(f"POST /healthz HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n".encode())
        assert opened.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_pages_without_a_token_have_a_rate_too(start):
    service = start(rate_per_s=1e-9)
    assert [service.client.get("/docs").status_code for _ in range(2)] == [200, 429]


# -- proxies ----------------------------------------------------------------------------------------------------------

PROXIES = read_networks("127.0.0.1, 10.1.0.0/16,fd00::/8")


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", ["192.0.2.7, 10.1.2.3"], "192.0.2.7"),
        ("127.0.0.1", ["192.0.2.7", "10.1.2.3"], "192.0.2.7"),
        ("127.0.0.1", ["198.51.100.1, 192.0.2.7"], "192.0.2.7"),  # the client's own header is ignored
        ("127.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("127.0.0.1", ["unknown"], "127.0.0.1"),
        ("192.0.2.9", ["192.0.2.7"], "192.0.2.9"),
        ("?", ["192.0.2.7"], "?"),
    ],
)
def test_the_client_address_is_the_one_before_trusted_proxies(peer, forwarded, address):
    headers = Headers(raw=[(b"x-forwarded-for", item.encode()) for item in forwarded])
    assert client_address(peer, headers, PROXIES) == address
    assert client_address(peer, headers, ()) == peer


def test_addresses_of_one_ipv6_network_are_one_client():
    assert site("2001:db8::1:2:3:4") == site("2001:db8::9:9:9:9") != site("2001:db8:0:1::1")
    assert site("10.0.0.1") == "10.0.0.1"
    assert site("?:") == "?:"


def test_invalid_networks_are_refused():
    with pytest.raises(ConfigError, match="--trusted-proxy"):
        read_networks("proxy.example")


def test_behind_a_trusted_proxy_each_client_has_its_own_limit(start):
    service = start(failures_per_s=1e-9, trusted_proxies=read_networks("127.0.0.0/8"))
    first, second = ({**WRONG, "X-Forwarded-For": f"192.0.2.{n}"} for n in (1, 2))
    assert [status(service, headers) for headers in (first, first, second)] == [401, 429, 401]
    assert {"192.0.2.1", "192.0.2.2"} <= {actor for actor, _, _ in service.audit()}


def test_without_a_trusted_proxy_forwarded_addresses_are_ignored(start):
    service = start(failures_per_s=1e-9)
    first, second = ({**WRONG, "X-Forwarded-For": f"192.0.2.{n}"} for n in (1, 2))
    assert [status(service, headers) for headers in (first, second)] == [401, 429]


def test_x_remote_user_of_another_machine_behind_a_proxy_is_ignored(start):
    service = start(trusts_remote_user=True, trusted_proxies=read_networks("127.0.0.1"))
    alice = {"X-Remote-User": "alice"}
    assert status(service, alice) == 200
    assert status(service, {**alice, "X-Forwarded-For": "192.0.2.1"}) == 401


def test_x_remote_user_is_ignored_unless_the_service_trusts_it(start):
    assert status(start(), {"X-Remote-User": "alice"}) == 401


# -- bodies -----------------------------------------------------------------------------------------------------------


def read_body(*messages: dict[str, Any], **headers: str) -> str | tuple[int, str]:
    """Return the body that the gate reads from messages, or its refusal; without an end it waits for more."""
    settings = Settings(most_body_bytes=4, most_held_bytes=6, timeout_s=0.01 if len(messages) == 1 else PATIENCE_S)
    gate, waiting = Gate(None, settings, None, None), [*messages]  # type: ignore[arg-type]

    async def receive() -> dict[str, Any]:
        return waiting.pop(0) if waiting else await asyncio.Event().wait()  # type: ignore[return-value]

    body = _Body(("user", "a"), bytearray())
    named = Headers({name.replace("_", "-"): value for name, value in headers.items()})
    try:
        asyncio.run(gate._read(named, receive, body))
    except _Refusal as refusal:
        return int(refusal.status), refusal.detail
    return body.content.decode()


def part(content: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": content, "more_body": more}


GONE = {"type": "http.disconnect"}
LARGE = (413, "the body is larger than 4 bytes")


@pytest.mark.parametrize(
    ("messages", "headers", "expected"),
    [
        ([part(b"ab", more=True), part(b"cd")], {}, "abcd"),
        ([{"type": "http.request"}], {}, ""),
        ([part(b"abcd")], {"content_length": "4"}, "abcd"),
        ([part(b"abcd")], {"content_length": "5"}, LARGE),
        ([part(b"abcd")], {"content_length": "x5"}, "abcd"),
        ([part(b"abcde")], {}, LARGE),
        ([part(b"ab", more=True), part(b"cde")], {}, LARGE),
        ([part(b"abcdefg")], {}, (429, "more than 6 bytes in concurrent bodies: try later")),
        ([part(b"ab", more=True), GONE], {}, (400, "the client disconnected before the end of the body")),
        ([part(b"ab", more=True)], {}, (408, "the request was not complete within 0.01 s")),
    ],
)
def test_a_body_is_read_whole_or_refused(messages, headers, expected):
    assert read_body(*messages, **headers) == expected


# -- the audit log ----------------------------------------------------------------------------------------------------


def test_an_invalid_body_is_one_refusal_with_its_reason_in_the_audit_log(start):
    service = start()
    assert service.call("ops", "PUT", "/partitions/0x0101", content=b"{").status_code == 400
    (result,) = [result for actor, what, result in service.audit() if (actor, "0x0101" in what) == ("ops", True)]
    assert result.startswith("refused: ")
    assert "invalid body" in result


def test_a_request_that_cannot_be_logged_has_one_answer():
    line: Future[None] = Future()
    line.set_exception(StoreError("the disk is full"))
    ledger, sent = SimpleNamespace(submit=lambda *words: line), []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def answer() -> None:
        gate = Gate(None, Settings(), ledger, None)  # type: ignore[arg-type]
        noted = gate._with_audit({"type": "http", "method": "POST", "path": "/x", "state": {}}, send, "ops", b"{}")
        await noted({"type": "http.response.start", "status": 200, "headers": []})
        await noted({"type": "http.response.body", "body": b"done"})

    asyncio.run(answer())
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 503
    assert b"could not be added to the audit log: the disk is full" in sent[1]["body"]


def test_an_address_sends_ten_times_as_many_wrong_passwords_as_a_user_and_tokens_have_their_own_limit(monkeypatch):
    async def log_in(authorization: str) -> None:
        return None

    monkeypatch.setattr(rates, "time", SimpleNamespace(monotonic=lambda: 0.0))
    known = SimpleNamespace(log_in=log_in, user_of=lambda authorization: authorization or None)

    def refusals(*users: str) -> list[str]:
        """Return the errors of wrong credentials that are sent one after the other; empty for those checked."""
        gate = Gate(None, Settings(failures_per_s=1.0), None, known)

        async def send(user: str) -> str:
            try:
                return str(await gate._log_in(Headers({"authorization": user}), "127.0.0.1") or "")
            except _Refusal as refusal:
                return refusal.detail

        return [asyncio.run(send(user)) for user in users]

    passwords, tokens = (f"too many wrong {kind} from 127.0.0.1" for kind in ("passwords", "tokens"))
    assert refusals("alice", "alice", "alice", "bob") == ["", "", passwords, ""]
    assert refusals(*(f"user{number}" for number in range(22))) == [""] * 20 + [passwords] * 2
    assert refusals("", "", "", "alice") == ["", "", tokens, ""]
    users = [f"user{number}" for number in range(21)]
    assert refusals("", "", *users) == [""] * 22 + [passwords]  # wrong tokens are not guessed passwords


def test_the_default_limits_of_a_caller():
    limits = Settings()
    assert (limits.rate_per_s, limits.failures_per_s, limits.timeout_s) == (1000, 5, 60)
    assert (limits.most_at_once, limits.most_held_bytes, limits.most_body_bytes) == (250, 16 << 20, 4 << 20)
    assert (limits.host, limits.port, limits.is_insecure, limits.trusted_proxies) == ("127.0.0.1", 0, False, ())


# -- browsers ---------------------------------------------------------------------------------------------------------


def test_pages_of_other_sites_change_nothing(start):
    service = start()
    local = service.server.url

    def change(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return service.call("ops", "PUT", "/partitions/0x0101", json={"name": "a"}, headers=named).status_code

    assert [change(), change(Origin=local)] == [200, 200]
    assert [change(Origin=origin) for origin in ("http://evil.example", "null", f"{local}0", "")] == [403] * 4
    assert change(Origin="https://weft.example", X_Forwarded_Host="weft.example") == 403
    assert service.call("ops", "GET", "/partitions", headers={"Origin": "null"}).status_code == 200
    assert any("evil.example may not change anything" in result for _, _, result in service.audit())


def test_behind_a_trusted_proxy_its_host_is_the_site(start):
    service = start(trusted_proxies=read_networks("127.0.0.1"))
    headers = {"Origin": "https://weft.example", "X-Forwarded-Host": "weft.example"}
    assert service.call("ops", "DELETE", "/partitions/0x0101", headers=headers).status_code == 404
    headers["Origin"] = "https://evil.example"
    assert service.call("ops", "DELETE", "/partitions/0x0101", headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("media", "expected"),
    [
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/merge-patch+json", 200),
        ("", 200),
    ],
)
def test_bodies_that_a_form_of_another_page_can_send_are_refused(start, media, expected):
    service = start()
    headers = {"Content-Type": media} if media else {}
    answer = service.call("ops", "PUT", "/partitions/0x0101", content=b'{"name": "a"}', headers=headers)
    assert answer.status_code == expected
