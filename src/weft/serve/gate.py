"""The gate before all routes: authentication, rate limits, size limits. Refusals are added to the audit log.

Known tokens, and passwords that were checked before, are accepted first: so a client that sends wrong credentials slows
down only itself, not other clients at its address.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft import web
from weft.errors import WeftError
from weft.serve.access import Access, BusyError, Caller
from weft.serve.audit import BODY_CHARACTERS
from weft.serve.ledger import Ledger
from weft.serve.problems import respond
from weft.serve.rates import Load, Rates
from weft.serve.settings import Settings, client_address, is_foreign, is_known_media, is_loopback, site

OPEN = {"/healthz", "/docs", "/api/v1/openapi.json", *web.PATHS}  # paths that need no token
NOTED = "is_noted"  # in the state of a request: it is in the audit log, or will be
CERTIFICATE = "certificate"  # in the state of a request: the common name of the client's certificate
_READS = ("GET", "HEAD", "OPTIONS")
_READS_BY_POST = ("/api/v1/intent/plan",)
_ADDRESS_FAILURES = 10  # wrong passwords per address, relative to those per user and address


@dataclass(frozen=True, slots=True)
class _Refusal(Exception):
    status: HTTPStatus
    detail: str
    retry_s: float = 0.0


@dataclass(slots=True)
class _Body:
    """A request's body as received so far."""

    owner: tuple[str, str]
    content: bytearray


class Gate:
    """A middleware that authenticates and limits requests."""

    def __init__(self, app: ASGIApp, settings: Settings, ledger: Ledger, access: Access) -> None:
        self._app, self._settings, self._ledger, self._access = app, settings, ledger, access
        self._rates, self._failures = Rates(settings.rate_per_s), Rates(settings.failures_per_s)
        self._guesses = Rates(_ADDRESS_FAILURES * settings.failures_per_s)
        self._load = Load(settings.most_at_once, settings.most_held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers, peer = Headers(scope=scope), scope["client"][0] if scope.get("client") else "?"
        address = client_address(peer, headers, self._settings.trusted_proxies)
        scope.setdefault("state", {})
        try:
            if scope["path"] in OPEN:
                return await self._serve_open(scope, receive, send, headers, address)
            if scope["method"] not in _READS and is_foreign(peer, headers, self._settings.trusted_proxies):
                raise _Refusal(
                    HTTPStatus.FORBIDDEN, f"requests from pages of {headers['origin'][:100]} may not change anything"
                )
            caller = await self._admit(headers, address, scope["state"].get(CERTIFICATE, ""))
        except _Refusal as refusal:
            return await self._refuse(address, refusal, scope, send)
        return await self._serve(scope, receive, send, headers, caller)

    async def _refuse(self, actor: str, refusal: _Refusal, scope: Scope, send: Send) -> None:
        self._ledger.refused(actor, f"{scope['method']} {scope['path']}", refusal.detail, refusal.status.phrase)
        await _answer(refusal)(scope, _disconnected, send)

    async def _serve_open(self, scope: Scope, receive: Receive, send: Send, headers: Headers, address: str) -> None:
        """Serve a page that needs no token; a body is refused."""
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{scope['path'][:100]} accepts no body")
        self._check_rate(("address", site(address)))
        await self._app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers, caller: Caller) -> None:
        body = _Body(caller.owner, bytearray())
        if not self._load.begin(caller.owner):
            most = self._settings.most_at_once
            late = _Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"{caller.name} has {most} concurrent requests already", 1.0)
            return await self._refuse(caller.name, late, scope, send)
        try:
            scope["state"]["caller"] = caller
            await self._read(headers, receive, body)
            content = bytes(body.content)
            if content and scope["method"] not in _READS and not is_known_media(headers):
                detail = "send the body with Content-Type: application/json"
                raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)
            if scope["method"] not in _READS and scope["path"] not in _READS_BY_POST:
                send = self._with_audit(scope, send, caller.name, content)
            return await self._app(scope, _replay(content, receive), send)
        except _Refusal as refusal:
            return await self._refuse(caller.name, refusal, scope, send)
        finally:
            self._load.end(caller.owner, len(body.content))

    def _with_audit(self, scope: Scope, send: Send, actor: str, body: bytes) -> Send:
        """Return a `send` that adds a request to the audit log, unless a change of the ledger has added it.

        These are refusals, for example of an invalid body, and actions that do not change the ledger.
        """
        summary = f"{scope['method']} {scope['path']}"
        status, is_replaced = 0, False

        async def send_and_note(message: Message) -> None:
            nonlocal status, is_replaced
            is_start = message["type"] == "http.response.start"
            status = message["status"] if is_start else status
            if scope["state"].get(NOTED) or is_replaced:
                pass
            elif is_start and status < HTTPStatus.BAD_REQUEST:
                error = await self._note_done(actor, f"{summary} {_excerpt(body)}".rstrip())
                if error is not None:
                    is_replaced = True
                    detail = f"the request was executed, but could not be added to the audit log: {error}"
                    await respond(HTTPStatus.SERVICE_UNAVAILABLE, detail)(scope, _disconnected, send)
            elif not is_start and status >= HTTPStatus.BAD_REQUEST:
                scope["state"][NOTED] = True
                self._ledger.refused(actor, summary, _excerpt(message.get("body", b"")))
            if not is_replaced:
                await send(message)

        return send_and_note

    async def _note_done(self, actor: str, summary: str) -> WeftError | None:
        """Wait until the audit log has a line; return an error. While the fabric is slow, it is written later."""
        line = asyncio.wrap_future(self._ledger.submit(actor, summary, lambda draft: None))
        try:
            await asyncio.wait_for(asyncio.shield(line), self._settings.timeout_s)
        except TimeoutError:
            pass
        except WeftError as error:
            return error
        return None

    async def _admit(self, headers: Headers, address: str, certificate: str) -> Caller:
        """Return the caller and count its request, or refuse it."""
        caller = self._recognise(headers, address, certificate) or await self._log_in(headers, address)
        if caller is None:
            detail = "no valid token: send Authorization: Bearer TOKEN"
            if certificate and "authorization" not in headers:
                detail = f"there is no user {certificate[:100]}, the common name of the certificate"
            raise _Refusal(HTTPStatus.UNAUTHORIZED, detail)
        self._check_rate(caller.owner)
        return caller

    def _check_rate(self, key: tuple[str, str]) -> None:
        if wait_s := self._rates.spend(key):
            per_s = self._settings.rate_per_s
            raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"more than {per_s:g} requests per second", wait_s)

    def _recognise(self, headers: Headers, address: str, certificate: str) -> Caller | None:
        """Return a caller whose credentials can be checked cheaply, else None."""
        named = headers.get("x-remote-user")
        if named and self._settings.trusts_remote_user and is_loopback(address):
            return self._access.named(named)
        if certificate and "authorization" not in headers:
            return self._access.named(certificate)
        return self._access.recognise(headers.get("authorization", ""))

    async def _log_in(self, headers: Headers, address: str) -> Caller | None:
        """Check a password, unless too many wrong ones were sent; count wrong passwords and tokens."""
        where, authorization = site(address), headers.get("authorization", "")
        user = self._access.user_of(authorization)
        wait_s = self._failures.spend((where, user), 0)
        if user is not None:
            wait_s = max(wait_s, self._guesses.spend(where, 0))
        if wait_s:
            credentials = "tokens" if user is None else "passwords"
            raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"too many wrong {credentials} from {address}", wait_s)
        try:
            caller = await self._access.log_in(authorization)
        except BusyError as error:
            raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error), 1.0) from None
        if caller is None:
            self._failures.spend((where, user))
            self._guesses.spend(where, 0 if user is None else 1)
        return caller

    async def _read(self, headers: Headers, receive: Receive, body: _Body) -> None:
        """Read the whole body, within the limits of size and time."""
        most, timeout_s = self._settings.most_body_bytes, self._settings.timeout_s
        large = _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {most} bytes")
        if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > most:
            raise large
        try:
            async with asyncio.timeout(timeout_s):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Refusal(HTTPStatus.BAD_REQUEST, "the client disconnected before the end of the body")
                    new = message.get("body", b"")
                    body.content += new
                    if not self._load.hold(body.owner, len(new)):
                        detail = f"more than {self._settings.most_held_bytes} bytes in concurrent bodies: try later"
                        raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, detail, 1.0)
                    if len(body.content) > most:
                        raise large
                    more = message.get("more_body", False)
        except TimeoutError:
            detail = f"the request was not complete within {timeout_s:g} s"
            raise _Refusal(HTTPStatus.REQUEST_TIMEOUT, detail) from None


def _excerpt(body: bytes) -> str:
    return body[:BODY_CHARACTERS].decode(errors="replace")


async def _disconnected() -> Message:
    return {"type": "http.disconnect"}


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body again, then the following messages (the disconnect)."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _answer(refusal: _Refusal) -> ASGIApp:
    headers = {"Connection": "close"}  # the rest of the body is not read
    if refusal.status is HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": 'Bearer realm="weft", Basic realm="weft"'}
    elif refusal.retry_s:
        headers = {"Retry-After": str(math.ceil(refusal.retry_s))}
    return respond(refusal.status, refusal.detail, **headers)
