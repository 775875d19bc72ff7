"""The gate alone, without a server: each rule of admission, of bodies, of errors and of the audit log as a table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.datastructures import Headers
from tests.serve.service import basic

from weft.errors import ConfigError
from weft.serve import rates
from weft.serve.access import Access, Role, Token, User, add_own_token, add_token, listed, new_user, put_user, remove
from weft.serve.desired import Desired, Draft
from weft.serve.gate import CERTIFICATE, NOTED, Gate
from weft.serve.settings import Settings, is_foreign, is_in, is_known_media, is_loopback, read_networks

PATH = "/api/v1/partitions"
FORM = "send the body with Content-Type: application/json"


def draft_with_users() -> tuple[Draft, str]:
    """Return a draft with the users alice and bob without passwords, and an operator's token."""
    draft = Draft(Desired(), lambda: pytest.fail("needs no ports"), frozenset())
    for name in ("alice", "bob"):
        put_user(draft, new_user(name, None, Role.READ_ONLY))
    return draft, add_token(draft, "ops", Role.OPERATOR)


class Door:
    """A gate before an application that answers with a status, and a ledger that notes refusals and changes."""

    def __init__(self, status: int = 200, *, note: Future[None] | None = None, **settings: Any) -> None:
        self.status, self.requests = status, []  # the bodies that the application has read
        self.callers: list[str] = []
        self.refused: list[tuple[str, ...]] = []
        self.noted: list[tuple[str, str]] = []
        draft, self.token = draft_with_users()
        self._note, self._draft = note or Future(), draft
        if note is None:
            self._note.set_result(None)
        ledger = SimpleNamespace(
            desired=lambda: Desired(documents=dict(draft.documents)),
            refused=lambda *words: self.refused.append(words),
            submit=lambda actor, summary, edit: (self.noted.append((actor, summary)), self._note)[1],
        )
        self.gate = Gate(self.answer, Settings(**settings), ledger, Access(ledger))

    async def answer(self, scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        caller = scope.get("state", {}).get("caller")
        self.callers.append(caller.name if caller else "")
        self.requests.append((await receive())["body"])
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"why"})

    def ask(
        self,
        method: str = "GET",
        path: str = PATH,
        body: bytes = b"",
        *,
        client: str | None = "127.0.0.1",
        state: dict[str, Any] | None = None,
        **headers: str,
    ) -> tuple[int, str]:
        """Return the status of a request, and the detail of a problem."""
        self.sent: list[dict[str, Any]] = []
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": raw, "state": state or {}}
        scope |= {"client": (client, 1234)} if client else {}
        self.scope = scope

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: dict[str, Any]) -> None:
            self.sent.append(message)

        asyncio.run(self.gate(scope, receive, send))
        content = self.sent[1]["body"]
        detail = msgspec.json.decode(content)["detail"] if content.startswith(b"{") else ""
        return self.sent[0]["status"], detail

    def ops(self, *words: Any, **more: Any) -> tuple[int, str]:
        return self.ask(*words, authorization=f"Bearer {self.token}", **more)

    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}


# -- admission --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trusts", "client", "certificate", "headers", "caller"),
    [
        (True, "127.0.0.1", "", {"x_remote_user": "alice"}, "alice"),
        (True, "::1", "", {"x_remote_user": "alice"}, "alice"),
        (True, "192.0.2.1", "", {"x_remote_user": "alice"}, None),
        (True, None, "", {"x_remote_user": "alice"}, None),
        (False, "127.0.0.1", "", {"x_remote_user": "alice"}, None),
        (True, "127.0.0.1", "", {"x_remote_user": "eve"}, None),
        (True, "127.0.0.1", "bob", {"x_remote_user": "alice"}, "alice"),
        (True, "127.0.0.1", "bob", {"x_remote_user": ""}, "bob"),
        (False, "192.0.2.1", "bob", {}, "bob"),
        (False, "192.0.2.1", "bob", {"authorization": "Bearer OPS"}, "ops"),
        (False, "192.0.2.1", "bob", {"authorization": "Bearer x"}, None),
        (False, "192.0.2.1", "eve", {}, None),
        (False, None, "", {"authorization": "Bearer OPS"}, "ops"),
        (False, "127.0.0.1", "", {}, None),
    ],
)
def test_a_caller_is_named_by_a_trusted_program_its_certificate_or_its_token(
    trusts, client, certificate, headers, caller
):
    door = Door(trusts_remote_user=trusts)
    headers = {name: value.replace("OPS", door.token) for name, value in headers.items()}
    state = {CERTIFICATE: certificate} if certificate else {}
    status, _ = door.ask(client=client, state=state, **headers)
    assert (status, door.callers) == ((200, [caller]) if caller else (401, []))


@pytest.mark.parametrize(
    ("certificate", "headers", "detail"),
    [
        ("", {}, "no valid token: send Authorization: Bearer TOKEN"),
        ("eve", {}, "there is no user eve, the common name of the certificate"),
        ("e" * 101, {}, f"there is no user {'e' * 100}, the common name of the certificate"),
        ("eve", {"authorization": "Bearer x"}, "no valid token: send Authorization: Bearer TOKEN"),
    ],
)
def test_the_refusal_of_an_unknown_caller_names_its_certificate_or_the_missing_token(certificate, headers, detail):
    door = Door()
    assert door.ask("PUT", client="192.0.2.1", state={CERTIFICATE: certificate}, **headers) == (401, detail)
    assert door.refused == [("192.0.2.1", f"PUT {PATH}", detail, "Unauthorized")]
    assert door.headers()["www-authenticate"] == 'Bearer realm="weft", Basic realm="weft"'
    assert "connection" not in door.headers()


def test_messages_that_are_not_http_pass():
    passed = []

    async def app(*words: object) -> None:
        passed.append(words)

    scope = {"type": "lifespan"}
    asyncio.run(Gate(app, Settings(), None, None)(scope, None, None))  # type: ignore[arg-type]
    assert passed == [(scope, None, None)]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, (200, "")),
        ({"content_length": "0"}, (200, "")),
        ({"content_length": "1"}, (413, "/healthz accepts no body")),
        ({"transfer_encoding": "chunked"}, (413, "/healthz accepts no body")),
    ],
)
def test_open_pages_need_no_token_and_accept_no_body(headers, expected):
    door = Door()
    assert door.ask(path="/healthz", **headers) == expected
    assert door.headers().get("connection") == ("close" if expected[0] == 413 else None)


def test_a_rate_is_that_of_a_network_on_open_pages_and_of_a_caller_elsewhere(monkeypatch):
    monkeypatch.setattr(rates, "time", SimpleNamespace(monotonic=lambda: 0.0))
    door = Door(rate_per_s=0.4)
    clients = ("2001:db8::1", "2001:db8::2", "2001:db8:1::1")
    assert [door.ask(path="/docs", client=client)[0] for client in clients] == [200, 429, 200]
    assert [door.ops(client=client) for client in clients[:2]] == [
        (200, ""),
        (429, "more than 0.4 requests per second"),
    ]
    assert door.headers()["retry-after"] == "3"  # 2.5 s, rounded up
    assert [door.ask(client="::1", state={CERTIFICATE: name})[0] for name in ("alice", "bob")] == [200, 200]


@pytest.mark.parametrize(("limit", "expected"), [(1, (200, "")), (0, (429, "ops has 0 concurrent requests already"))])
def test_one_request_more_than_the_limit_is_refused(limit, expected):
    door = Door(most_at_once=limit)
    assert [door.ops("PUT"), door.ops("PUT")] == [expected] * 2
    assert door.headers().get("retry-after") == ("1" if limit == 0 else None)
    assert door.refused == ([("ops", f"PUT {PATH}", expected[1], "Too Many Requests")] * 2 if limit == 0 else [])


@pytest.mark.parametrize(
    ("method", "origin", "status"),
    [
        ("PUT", "http://evil.example", 403),
        ("POST", "null", 403),
        ("DELETE", "", 403),
        ("GET", "http://evil.example", 200),
        ("HEAD", "http://evil.example", 200),
        ("OPTIONS", "http://evil.example", 200),
        ("PUT", "http://weft", 200),
        ("PUT", None, 200),
    ],
)
def test_pages_of_other_sites_may_only_read(method, origin, status):
    door = Door()
    headers = {} if origin is None else {"origin": origin}
    refused = f"requests from pages of {origin} may not change anything"
    assert door.ops(method, host="weft", **headers) == (status, refused if status == 403 else "")


# -- bodies and the audit log -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "body", "media", "expected"),
    [
        ("PUT", b"{}", "application/json", (200, "")),
        ("PUT", b"{}", "text/plain", (415, FORM)),
        ("PUT", b"", "text/plain", (200, "")),
        ("GET", b"{}", "text/plain", (200, "")),
    ],
)
def test_only_a_change_with_a_body_needs_a_media_type(method, body, media, expected):
    door = Door()
    assert door.ops(method, PATH, body, content_type=media) == expected
    assert door.requests == ([body] if expected[0] == 200 else [])


@pytest.mark.parametrize(
    ("method", "path", "status", "state", "noted", "refused"),
    [
        ("PUT", PATH, 200, {}, [("ops", f"PUT {PATH} {{}}")], []),
        ("PUT", PATH, 399, {}, [("ops", f"PUT {PATH} {{}}")], []),
        ("PUT", PATH, 400, {}, [], [("ops", f"PUT {PATH}", "why")]),
        ("PUT", PATH, 503, {}, [], [("ops", f"PUT {PATH}", "why")]),
        ("PUT", PATH, 200, {NOTED: True}, [], []),
        ("PUT", PATH, 400, {NOTED: True}, [], []),
        ("GET", PATH, 200, {}, [], []),
        ("GET", PATH, 404, {}, [], []),
        ("POST", "/api/v1/intent/plan", 200, {}, [], []),
        ("POST", "/api/v1/intent/plan", 422, {}, [], []),
    ],
)
def test_a_change_is_in_the_audit_log_once(method, path, status, state, noted, refused):
    door = Door(status)
    assert door.ops(method, path, b"{}", state=state)[0] == status
    assert (door.noted, door.refused) == (noted, refused)
    assert bool(door.scope["state"].get(NOTED)) is bool(state or refused)


def test_a_line_of_the_audit_log_has_the_start_of_the_body(monkeypatch):
    monkeypatch.setattr("weft.serve.gate.BODY_CHARACTERS", 3)
    door = Door()
    door.ops("PUT", PATH, b"12345")
    door.ops("PUT", PATH, b"")
    assert [what for _, what in door.noted] == [f"PUT {PATH} 123", f"PUT {PATH}"]


def test_a_slow_fabric_delays_the_line_of_the_audit_log_not_the_answer():
    pending: Future[None] = Future()
    door = Door(note=pending, timeout_s=0.01)
    assert door.ops("PUT", PATH, b"{}") == (200, "")
    assert not pending.cancelled()


def test_requests_and_bytes_are_given_back_also_after_a_refusal():
    door = Door(most_at_once=1, most_held_bytes=4, most_body_bytes=4)
    large = (413, "the body is larger than 4 bytes")
    assert [door.ops("PUT", PATH, b"1234", content_type=media)[0] for media in ("text/plain", "application/json")] == [
        415,
        200,
    ]
    assert door.ops("PUT", PATH, b"", content_length="5") == large
    assert door.ops("PUT", PATH, b"1234")[0] == 200


# -- settings ---------------------------------------------------------------------------------------------------------

PEM = Path("cert.pem")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"port": 65535}, None),
        ({"port": 65536}, "--port must be from 0 to 65535, got 65536"),
        ({"port": -1}, "--port must be from 0 to 65535, got -1"),
        ({"rate_per_s": 0.001}, None),
        ({"rate_per_s": 0}, "--rate must be > 0"),
        ({"tls_cert": PEM}, "give --tls-cert and --tls-key together"),
        ({"tls_key": PEM}, "give --tls-cert and --tls-key together"),
        ({"tls_cert": PEM, "tls_key": PEM, "host": "0.0.0.0"}, None),
        ({"tls_client_ca": PEM}, "--tls-client-ca needs"),
        ({"tls_cert": PEM, "tls_key": PEM, "tls_client_ca": PEM}, None),
        ({"host": "0.0.0.0"}, "would send tokens unencrypted"),
        ({"host": "0.0.0.0", "is_insecure": True}, None),
        ({"host": "localhost"}, None),
        ({"host": "::1"}, None),
        ({"host": "weft.example"}, "would send tokens unencrypted"),
    ],
)
def test_settings_that_are_unsafe_or_impossible_are_refused(settings, error):
    if error is None:
        Settings(**settings)
        return
    with pytest.raises(ConfigError, match=error):
        Settings(**settings)


@pytest.mark.parametrize(
    ("host", "expected"), [("127.8.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("a", False)]
)
def test_loopback_addresses_are_those_of_this_machine(host, expected):
    assert is_loopback(host) is expected


def test_an_address_is_in_a_network_of_its_version_alone():
    networks = read_networks("10.0.0.0/8, ,fd00::/8")
    assert [is_in(address, networks) for address in ("10.1.2.3", "fd01::1", "11.0.0.1", "fe00::1", "?")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert not is_in("10.1.2.3", ())


@pytest.mark.parametrize(
    ("peer", "headers", "expected"),
    [
        ("10.0.0.1", {}, False),
        ("10.0.0.1", {"origin": "http://a", "host": "a"}, False),
        ("10.0.0.1", {"origin": "http://a", "host": "b"}, True),
        ("10.0.0.1", {"origin": "http://a", "host": "b", "x-forwarded-host": "a"}, False),
        ("10.0.0.1", {"origin": "http://a", "host": "a", "x-forwarded-host": "b"}, True),
        ("10.0.0.1", {"origin": "http://a", "host": "a", "x-forwarded-host": ""}, False),
        ("192.0.2.1", {"origin": "http://a", "host": "b", "x-forwarded-host": "a"}, True),
        ("192.0.2.1", {"origin": "http://a"}, True),
        ("192.0.2.1", {"origin": ""}, False),  # no Host either
    ],
)
def test_a_page_is_foreign_unless_its_origin_is_the_host(peer, headers, expected):
    assert is_foreign(peer, Headers(headers), read_networks("10.0.0.0/8")) is expected


@pytest.mark.parametrize(
    ("media", "is_known"),
    [
        ("", True),
        (" application/toml ; charset=utf-8", True),
        ("application/a+json", True),
        ("a+json/x", False),
        ("text/html;application/json", False),
    ],
)
def test_forms_of_other_pages_cannot_send_known_media_types(media, is_known):
    assert is_known_media(Headers({"content-type": media})) is is_known


# -- tokens and users -------------------------------------------------------------------------------------------------


def test_a_token_of_a_token_that_never_expires_is_valid_for_a_year():
    draft, _ = draft_with_users()
    endless = Token(name="a", role=Role.ADMIN, made_at_s=0, sha256="")
    draft.documents["token", "a"] = msgspec.json.encode(endless).decode()
    caller = Access(SimpleNamespace(desired=lambda: Desired(documents=draft.documents))).named("alice")
    assert caller.owner == ("user", "alice")
    caller = caller.__class__("a", Role.ADMIN, "", ("token", "a"))
    _, own = add_own_token(draft, caller)
    assert own.expires_at_s - own.made_at_s == 365 * 24 * 3600
    assert own.name[:2] == "a-"
    assert len(own.name) == 2 + 8


def test_documents_are_listed_by_kind_and_name():
    draft, _ = draft_with_users()
    put_user(draft, new_user("aaron", None, Role.ADMIN))
    draft.documents["other", "x"] = "{"
    assert [user.name for user in listed(draft.documents, User)] == ["aaron", "alice", "bob"]
    assert [token.name for token in listed(draft.documents, Token)] == ["ops"]


def test_only_the_tokens_of_a_removed_owner_are_removed():
    draft, _ = draft_with_users()
    for kind, owner in (("user", "alice"), ("user", "bob"), ("token", "ops")):
        token = Token(name=f"of-{owner}", role=Role.ADMIN, made_at_s=0, sha256="", owner=(kind, owner))
        draft.documents["token", token.name] = msgspec.json.encode(token).decode()
    remove(draft, "user", "alice")
    assert [token.name for token in listed(draft.documents, Token)] == ["of-bob", "of-ops", "ops"]


def test_a_user_without_a_password_cannot_log_in_with_an_empty_one(monkeypatch):
    monkeypatch.setattr("weft.serve.access._stretch", lambda password, salt: "")
    draft, _ = draft_with_users()
    access = Access(SimpleNamespace(desired=lambda: Desired(documents=draft.documents)))
    assert asyncio.run(access.log_in(basic("alice", "")["Authorization"])) is None


def test_a_password_is_checked_with_the_salt_of_its_user_and_of_an_unknown_one_with_another(monkeypatch):
    salts = []
    monkeypatch.setattr("weft.serve.access._stretch", lambda password, salt: salts.append(salt) or password)
    draft, _ = draft_with_users()
    put_user(draft, User(name="carol", role=Role.ADMIN, made_at_s=0, salt="5a17", scrypt="right"))
    access = Access(SimpleNamespace(desired=lambda: Desired(documents=draft.documents)))
    tried = [("carol", "right"), ("carol", "wrong"), ("eve", "right"), ("alice", "right")]
    callers = [asyncio.run(access.log_in(basic(name, word)["Authorization"])) for name, word in tried]
    assert [caller and caller.name for caller in callers] == ["carol", None, None, None]
    assert salts[:2] == ["5a17"] * 2
    assert [len(salt) for salt in salts[2:]] == [32, 32]
    assert salts[2] == salts[3] != "5a17"
