"""What all routes share: bodies and answers in JSON, their schemas, tags against lost updates, changes of the ledger.

GET    -> ETag: "1f0c..."                    of the content
PUT, DELETE with If-Match: "1f0c..."         412 if it has another content by now
PUT with If-None-Match: *                    412 if it is there already
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Hashable
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from fastapi import Request, Response

from weft.serve.access import Caller
from weft.serve.audit import BODY_CHARACTERS
from weft.serve.desired import Draft
from weft.serve.gate import NOTED
from weft.serve.ledger import Ledger
from weft.serve.problems import MEDIA, FabricTimeoutError, ForbiddenError, PreconditionFailedError, Problem

T = TypeVar("T")
PREFIX = "/api/v1"
_MOST_KEPT = 64  # answers: a tenant each may have its own
_ALWAYS = (401, 403, 429, 413, 415, 408, 503)  # what any route may answer
_encode = msgspec.json.Encoder(order="deterministic").encode


# -- schemas ----------------------------------------------------------------------------------------------------------

_SHOWN: list[Any] = [Problem]  # types that the OpenAPI document describes


def _schema(type_: Any) -> dict[str, Any]:
    if type_ not in _SHOWN:
        _SHOWN.append(type_)
    (schema,), _ = msgspec.json.schema_components([type_], ref_template="#/components/schemas/{name}")
    return schema


def components() -> dict[str, Any]:
    return msgspec.json.schema_components(_SHOWN, ref_template="#/components/schemas/{name}")[1]


def gives(type_: Any, *errors: int, status: int = 200, takes: Any = None, tagged: bool = False) -> dict[str, Any]:
    """For a route: what it answers, with which errors, and which body it takes."""
    problem = {"content": {MEDIA: {"schema": _schema(Problem)}}}
    responses: dict[int | str, Any] = {
        code: {"description": HTTPStatus(code).phrase, **problem} for code in sorted({*errors, *_ALWAYS})
    }
    responses[status] = {"description": HTTPStatus(status).phrase}
    if type_ is not None:
        responses[status]["content"] = {"application/json": {"schema": _schema(type_)}}
    told: dict[str, Any] = {"responses": responses, "status_code": status, "response_class": Response}
    extra: dict[str, Any] = {}
    if takes is not None:
        content = takes if isinstance(takes, dict) else {"application/json": {"schema": _schema(takes)}}
        extra["requestBody"] = {"required": True, "content": content}
    if tagged and takes is None and type_ is not None:  # it is read
        responses[304] = {"description": HTTPStatus(304).phrase}
    if tagged:
        extra["parameters"] = [_header("If-Match"), _header("If-None-Match")]
    return told | ({"openapi_extra": extra} if extra else {})


def _header(name: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}


# -- answers ----------------------------------------------------------------------------------------------------------


def encoded(content: Any) -> bytes:
    return _encode(content)


def tag_of(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


_kept: dict[Hashable, tuple[tuple[object, ...], bytes, str]] = {}


def kept(name: Hashable, of: tuple[object, ...], make: Callable[[], bytes]) -> tuple[bytes, str]:
    """An answer and its tag. It is made again when it is `of` other objects than the last one of this name."""
    last = _kept.get(name)
    if last is None or any(one is not other for one, other in zip(last[0], of, strict=True)):
        body = make()
        last = of, body, tag_of(body)
        if len(_kept) < _MOST_KEPT or name in _kept:
            _kept[name] = last
    return last[1], last[2]


def answer(request: Request, body: bytes, tag: str = "") -> Response:
    """With its tag; 304 if the caller has it already."""
    tag = tag or tag_of(body)
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
    return Response(body, headers={"ETag": tag}, media_type="application/json")


def check_tags(request: Request, there: bytes | None) -> None:
    """PreconditionFailedError if this is not what the caller saw."""
    wanted, unwanted = request.headers.get("if-match"), request.headers.get("if-none-match")
    tags = set() if there is None else {"*", tag_of(there)}
    if wanted is not None and not tags & {one.strip() for one in wanted.split(",")}:
        is_now = "is not there" if there is None else f"has the tag {tag_of(there)} now"
        raise PreconditionFailedError(f"If-Match {wanted} is not met: it {is_now}; read it again")
    if unwanted is not None and tags & {one.strip() for one in unwanted.split(",")}:
        raise PreconditionFailedError(f"If-None-Match {unwanted} is not met: it is there already; read it")


# -- callers and changes ----------------------------------------------------------------------------------------------


def caller_of(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


def ledger_of(request: Request) -> Ledger:
    found: Ledger = request.app.state.ledger
    return found


def refuse(request: Request, rule: str) -> ForbiddenError:
    """To raise, and in the audit log."""
    caller = caller_of(request)
    error = ForbiddenError(f"{caller.name} has the role {caller.role}: {rule}")
    setattr(request.state, NOTED, True)
    ledger_of(request).refused(caller.name, f"{request.method} {request.url.path}", str(error))
    return error


async def ask_fabric(request: Request, ask: Callable[[], T]) -> T:
    """What may wait for the fabric keeps nobody else waiting, and is not waited for without end."""
    patience_s = request.app.state.settings.patience_s
    try:
        return await asyncio.wait_for(asyncio.to_thread(ask), patience_s)
    except TimeoutError:
        raise FabricTimeoutError(f"the fabric has not answered within {patience_s:g} s") from None


async def change(request: Request, edit: Callable[[Draft], T], *, is_secret: bool = False) -> T:
    """Done when the fabric has it. A change that waits for too long is withdrawn."""
    ledger, patience_s = ledger_of(request), request.app.state.settings.patience_s
    what = f"{request.method} {request.url.path}"
    if not is_secret:
        what = f"{what} {(await request.body())[:BODY_CHARACTERS].decode(errors='replace')}".rstrip()
    setattr(request.state, NOTED, True)
    future = ledger.submit(caller_of(request).name, what, edit)
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), patience_s)
    except TimeoutError:
        how = "it is being carried out: the audit log says how it ends"
        if future.cancelled():
            how = "it was withdrawn"
            ledger.refused(caller_of(request).name, what, f"{how} after {patience_s:g} s")
        raise FabricTimeoutError(f"the fabric has not taken this within {patience_s:g} s; {how}") from None
