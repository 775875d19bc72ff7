"""Before any route: who calls, how often, with how much. What is refused here is in the audit log."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft import web
from weft.errors import WeftError
from weft.serve.access import Access, Caller
from weft.serve.audit import BODY_CHARACTERS
from weft.serve.ledger import Ledger
from weft.serve.problems import respond
from weft.serve.settings import Settings, is_loopback

OPEN = {"/healthz", "/docs", "/api/v1/openapi.json", *web.PATHS}  # for everybody
NOTED = "is_noted"  # in the state of a request: the audit log has it, or will
_READS = ("GET", "HEAD", "OPTIONS")
_READS_BY_POST = ("/api/v1/intent/plan",)
_MOST_COUNTED = 10_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class Rates:
    """Token buckets: so many a second, twice as many at once."""

    def __init__(self, per_s: float) -> None:
        self._per_s, self._most = per_s, max(2 * per_s, 1.0)
        self._buckets: dict[str, _Bucket] = {}

    def spend(self, who: str, cost: float = 1.0) -> float:
        """0, or seconds until there is one again."""
        now = time.monotonic()
        bucket = self._buckets.get(who)
        if bucket is None:
            if len(self._buckets) >= _MOST_COUNTED:
                self._buckets.clear()  # all start afresh: the memory is bounded, whoever comes
            bucket = self._buckets[who] = _Bucket(self._most, now)
        bucket.left = min(self._most, bucket.left + (now - bucket.at_s) * self._per_s)
        bucket.at_s = now
        if bucket.left < max(cost, 1.0):
            return (1.0 - bucket.left) / self._per_s
        bucket.left -= cost
        return 0.0


@dataclass(frozen=True, slots=True)
class _Refusal(Exception):
    status: HTTPStatus
    detail: str
    retry_s: float = 0.0


class Gate:
    def __init__(self, app: ASGIApp, settings: Settings, ledger: Ledger, access: Access) -> None:
        self._app, self._settings, self._ledger, self._access = app, settings, ledger, access
        self._rates, self._failures = Rates(settings.rate_per_s), Rates(settings.failures_per_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        address = scope["client"][0] if scope.get("client") else "?"
        who = address
        scope.setdefault("state", {})
        try:
            if scope["path"] not in OPEN:
                caller = await self._admit(Headers(scope=scope), address)
                scope["state"]["caller"] = caller
                who = caller.name
            body = await self._body(Headers(scope=scope), receive)
            receive = _replay(body, receive)
        except _Refusal as refusal:
            self._ledger.refused(who, f"{scope['method']} {scope['path']}", refusal.detail, refusal.status.phrase)
            return await _answer(refusal)(scope, receive, send)
        if scope["method"] not in _READS and scope["path"] not in _READS_BY_POST:
            send = self._noting(scope, send, who, body)
        return await self._app(scope, receive, send)

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

    async def _admit(self, headers: Headers, address: str) -> Caller:
        if wait_s := self._failures.spend(address, 0):
            raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"too many wrong tokens from {address}", wait_s)
        caller = await self._identify(headers, address)
        if caller is None:
            self._failures.spend(address)
            raise _Refusal(HTTPStatus.UNAUTHORIZED, "no token that is known here: send Authorization: Bearer TOKEN")
        if wait_s := self._rates.spend(caller.name):
            per_s = self._settings.rate_per_s
            raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"more than {per_s:g} requests a second", wait_s)
        return caller

    async def _identify(self, headers: Headers, address: str) -> Caller | None:
        named = headers.get("x-remote-user")
        if named and self._settings.trusts_remote_user and is_loopback(address):
            return self._access.named(named)
        return await self._access.identify(headers.get("authorization", ""))

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """All of it, however it is sent."""
        most = self._settings.most_body_bytes
        large = _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {most} bytes: send less")
        if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > most:
            raise large
        found = bytearray()
        try:
            async with asyncio.timeout(self._settings.patience_s):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Refusal(HTTPStatus.BAD_REQUEST, "the caller went away before all was sent")
                    found += message.get("body", b"")
                    if len(found) > most:
                        raise large
                    more = message.get("more_body", False)
        except TimeoutError:
            patience_s = self._settings.patience_s
            detail = f"the request has not come within {patience_s:g} s"
            raise _Refusal(HTTPStatus.REQUEST_TIMEOUT, detail) from None
        return bytes(found)


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
    elif refusal.status is HTTPStatus.TOO_MANY_REQUESTS:
        headers = {"Retry-After": str(math.ceil(refusal.retry_s))}
    return respond(refusal.status, refusal.detail, **headers)
