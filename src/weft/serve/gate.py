"""What a request passes before any route: identity, limits, its body. Refusals here are in the audit log.

Tokens that are known, and passwords that were right before, pass first: so a client that sends wrong ones slows down
itself, and not the others at its address.
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
from weft.serve.clients import client_address, is_foreign, is_known_media, is_loopback, site
from weft.serve.ledger import Ledger
from weft.serve.problems import respond
from weft.serve.rates import Load, Rates
from weft.serve.settings import Settings

OPEN = {"/healthz", "/docs", "/api/v1/openapi.json", *web.PATHS}  # for everybody
NOTED = "is_noted"  # in the state of a request: the audit log has it, or will
CERTIFICATE = "certificate"  # in the state of a request: the common name of the client's certificate
_READS = ("GET", "HEAD", "OPTIONS")
_READS_BY_POST = ("/api/v1/intent/plan",)
_ADDRESS_FAILURES = 10  # times as many wrong passwords from one address as of one user there


@dataclass(frozen=True, slots=True)
class _Refusal(Exception):
    status: HTTPStatus
    detail: str
    retry_s: float = 0.0


@dataclass(slots=True)
class _Body:
    """A request's body, as far as it has come."""

    owner: tuple[str, str]
    content: bytearray


class Gate:
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
                raise _Refusal(HTTPStatus.FORBIDDEN, f"a page of {headers['origin'][:100]} may change nothing here")
            caller = await self._admit(headers, address, scope["state"].get(CERTIFICATE, ""))
        except _Refusal as refusal:
            return await self._refuse(address, refusal, scope, send)
        return await self._serve(scope, receive, send, headers, caller)

    async def _refuse(self, who: str, refusal: _Refusal, scope: Scope, send: Send) -> None:
        self._ledger.refused(who, f"{scope['method']} {scope['path']}", refusal.detail, refusal.status.phrase)
        await _answer(refusal)(scope, _nothing_more, send)

    async def _serve_open(self, scope: Scope, receive: Receive, send: Send, headers: Headers, address: str) -> None:
        """Serve a page that needs no token, and read no body for it."""
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{scope['path'][:100]} takes no body")
        self._check_rate(("address", site(address)))
        await self._app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers, caller: Caller) -> None:
        body = _Body(caller.owner, bytearray())
        if not self._load.begin(caller.owner):
            most = self._settings.most_at_once
            late = _Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"{caller.name} has {most} requests at once already", 1.0)
            return await self._refuse(caller.name, late, scope, send)
        try:
            scope["state"]["caller"] = caller
            await self._read(headers, receive, body)
            content = bytes(body.content)
            if content and scope["method"] not in _READS and not is_known_media(headers):
                detail = "send the body with Content-Type: application/json"
                raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)
            if scope["method"] not in _READS and scope["path"] not in _READS_BY_POST:
                send = self._noting(scope, send, caller.name, content)
            return await self._app(scope, _replay(content, receive), send)
        except _Refusal as refusal:
            return await self._refuse(caller.name, refusal, scope, send)
        finally:
            self._load.end(caller.owner, len(body.content))

    def _noting(self, scope: Scope, send: Send, who: str, body: bytes) -> Send:
        """Return a `send` that adds requests to the audit log which no change of the ledger has put there.

        Those are refusals, of a body that cannot be read for example, and what is done beside the ledger.
        """
        what = f"{scope['method']} {scope['path']}"
        status, is_replaced = 0, False

        async def noting(message: Message) -> None:
            nonlocal status, is_replaced
            is_start = message["type"] == "http.response.start"
            status = message["status"] if is_start else status
            if scope["state"].get(NOTED) or is_replaced:
                pass
            elif is_start and status < HTTPStatus.BAD_REQUEST:
                error = await self._note_done(who, f"{what} {_shown(body)}".rstrip())
                if error is not None:
                    is_replaced = True
                    detail = f"it was done, and is not in the audit log: {error}"
                    await respond(HTTPStatus.SERVICE_UNAVAILABLE, detail)(scope, _nothing_more, send)
            elif not is_start and status >= HTTPStatus.BAD_REQUEST:
                scope["state"][NOTED] = True
                self._ledger.refused(who, what, _shown(message.get("body", b"")))
            if not is_replaced:
                await send(message)

        return noting

    async def _note_done(self, who: str, what: str) -> WeftError | None:
        """Wait until the audit log has a line; one that waits for a slow fabric is written later."""
        line = asyncio.wrap_future(self._ledger.submit(who, what, lambda draft: None))
        try:
            await asyncio.wait_for(asyncio.shield(line), self._settings.patience_s)
        except TimeoutError:
            pass
        except WeftError as error:
            return error
        return None

    async def _admit(self, headers: Headers, address: str, certificate: str) -> Caller:
        """Return the caller, whose request counts now; else refuse it."""
        caller = self._recognise(headers, address, certificate) or await self._log_in(headers, address)
        if caller is None:
            detail = "no valid token: send Authorization: Bearer TOKEN"
            if certificate and "authorization" not in headers:
                detail = f"the certificate is of {certificate[:100]}, and there is no such user"
            raise _Refusal(HTTPStatus.UNAUTHORIZED, detail)
        self._check_rate(caller.owner)
        return caller

    def _check_rate(self, who: tuple[str, str]) -> None:
        if wait_s := self._rates.spend(who):
            per_s = self._settings.rate_per_s
            raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"more than {per_s:g} requests a second", wait_s)

    def _recognise(self, headers: Headers, address: str, certificate: str) -> Caller | None:
        """Return a caller that proves itself without work for the service."""
        named = headers.get("x-remote-user")
        if named and self._settings.trusts_remote_user and is_loopback(address):
            return self._access.named(named)
        if certificate and "authorization" not in headers:
            return self._access.named(certificate)
        return self._access.recognise(headers.get("authorization", ""))

    async def _log_in(self, headers: Headers, address: str) -> Caller | None:
        """Check a password, unless too many wrong ones came; count it if it is wrong, and so a wrong token."""
        where, authorization = site(address), headers.get("authorization", "")
        user = self._access.user_of(authorization)
        wait_s = self._failures.spend((where, user), 0)
        if user is not None:
            wait_s = max(wait_s, self._guesses.spend(where, 0))
        if wait_s:
            what = "tokens" if user is None else "passwords"
            raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"too many wrong {what} from {address}", wait_s)
        try:
            caller = await self._access.log_in(authorization)
        except BusyError as error:
            raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error), 1.0) from None
        if caller is None:
            self._failures.spend((where, user))
            self._guesses.spend(where, 0 if user is None else 1)
        return caller

    async def _read(self, headers: Headers, receive: Receive, body: _Body) -> None:
        """Read all of a body, however it is sent."""
        most, patience_s = self._settings.most_body_bytes, self._settings.patience_s
        large = _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {most} bytes: send less")
        if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > most:
            raise large
        try:
            async with asyncio.timeout(patience_s):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Refusal(HTTPStatus.BAD_REQUEST, "the caller went away before all was sent")
                    new = message.get("body", b"")
                    body.content += new
                    if not self._load.hold(body.owner, len(new)):
                        detail = f"{self._settings.most_held_bytes} bytes of bodies at once: wait for earlier requests"
                        raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, detail, 1.0)
                    if len(body.content) > most:
                        raise large
                    more = message.get("more_body", False)
        except TimeoutError:
            detail = f"the request has not come within {patience_s:g} s"
            raise _Refusal(HTTPStatus.REQUEST_TIMEOUT, detail) from None


def _shown(body: bytes) -> str:
    return body[:BODY_CHARACTERS].decode(errors="replace")


async def _nothing_more() -> Message:
    return {"type": "http.disconnect"}


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once more, and then whatever comes: that the caller went away."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _answer(refusal: _Refusal) -> ASGIApp:
    headers = {"Connection": "close"}  # what is left of the body is not read
    if refusal.status is HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": 'Bearer realm="weft", Basic realm="weft"'}
    elif refusal.retry_s:
        headers = {"Retry-After": str(math.ceil(refusal.retry_s))}
    return respond(refusal.status, refusal.detail, **headers)
