"""Helpers of all routes: JSON bodies, schemas, ETags against lost updates, changes of the ledger.

GET    -> ETag: "1f0c..."                    hash of the content
PUT, DELETE with If-Match: "1f0c..."         412 if the content has changed
PUT with If-None-Match: *                    412 if the resource exists
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
from weft.serve.cache import ObjectCache
from weft.serve.desired import Draft
from weft.serve.gate import NOTED
from weft.serve.ledger import Ledger
from weft.serve.problems import MEDIA, FabricTimeoutError, ForbiddenError, PreconditionFailedError, Problem

T = TypeVar("T")
PREFIX = "/api/v1"
_ALWAYS = (401, 403, 429, 413, 415, 408, 503)  # statuses that any route may return
_encode = msgspec.json.Encoder(order="deterministic").encode


# -- schemas ----------------------------------------------------------------------------------------------------------

_TYPES: list[Any] = [Problem]  # types in the OpenAPI document


def _schema(type_: Any) -> dict[str, Any]:
    if type_ not in _TYPES:
        _TYPES.append(type_)
    (schema,), _ = msgspec.json.schema_components([type_], ref_template="#/components/schemas/{name}")
    return schema


def components() -> dict[str, Any]:
    return msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")[1]


def gives(type_: Any, *errors: int, status: int = 200, takes: Any = None, tagged: bool = False) -> dict[str, Any]:
    """Return the options of a route for FastAPI: result type, error statuses, and the type of the body."""
    problem = {"content": {MEDIA: {"schema": _schema(Problem)}}}
    responses: dict[int | str, Any] = {
        code: {"description": HTTPStatus(code).phrase, **problem} for code in sorted({*errors, *_ALWAYS})
    }
    responses[status] = {"description": HTTPStatus(status).phrase}
    if type_ is not None:
        responses[status]["content"] = {"application/json": {"schema": _schema(type_)}}
    options: dict[str, Any] = {"responses": responses, "status_code": status, "response_class": Response}
    extra: dict[str, Any] = {}
    if takes is not None:
        content = takes if isinstance(takes, dict) else {"application/json": {"schema": _schema(takes)}}
        extra["requestBody"] = {"required": True, "content": content}
    if tagged and takes is None and type_ is not None:  # a GET
        responses[304] = {"description": HTTPStatus(304).phrase}
    if tagged:
        extra["parameters"] = [_header("If-Match"), _header("If-None-Match")]
    return options | ({"openapi_extra": extra} if extra else {})


def _header(name: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}


# -- answers ----------------------------------------------------------------------------------------------------------


def encoded(content: Any) -> bytes:
    return _encode(content)


def tag_of(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


_answers: ObjectCache[tuple[bytes, str]] = ObjectCache(64)  # each tenant may have its own


def cached(name: Hashable, objects: tuple[object, ...], make: Callable[[], bytes]) -> tuple[bytes, str]:
    """Return a cached answer and its tag. It is computed again if an object was replaced."""

    def tagged() -> tuple[bytes, str]:
        body = make()
        return body, tag_of(body)

    return _answers.get(name, objects, tagged)


def answer(request: Request, body: bytes, tag: str = "") -> Response:
    """Return a response with its ETag; 304 if the caller has this content already."""
    tag = tag or tag_of(body)
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
    return Response(body, headers={"ETag": tag}, media_type="application/json")


def check_tags(request: Request, content: bytes | None) -> None:
    """Check If-Match and If-None-Match against the current content. Raise PreconditionFailedError if they fail."""
    if_match, if_none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
    tags = set() if content is None else {"*", tag_of(content)}
    if if_match is not None and not tags & {tag.strip() for tag in if_match.split(",")}:
        state = "does not exist" if content is None else f"has the tag {tag_of(content)} now"
        raise PreconditionFailedError(f"If-Match {if_match} fails: the resource {state}; read it again")
    if if_none_match is not None and tags & {tag.strip() for tag in if_none_match.split(",")}:
        raise PreconditionFailedError(f"If-None-Match {if_none_match} fails: the resource exists; read it")


# -- callers and changes ----------------------------------------------------------------------------------------------


def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def ledger_of(request: Request) -> Ledger:
    ledger: Ledger = request.app.state.ledger
    return ledger


def refuse(request: Request, rule: str) -> ForbiddenError:
    """Return the error for a forbidden request, and add it to the audit log."""
    caller = caller_of(request)
    error = ForbiddenError(f"{caller.name} has the role {caller.role}: {rule}")
    setattr(request.state, NOTED, True)
    ledger_of(request).refused(caller.name, f"{request.method} {request.url.path}", str(error))
    return error


async def ask_fabric(request: Request, ask: Callable[[], T]) -> T:
    """Call a function that may wait for the fabric, in a thread and with a timeout."""
    timeout_s = request.app.state.settings.timeout_s
    try:
        return await asyncio.wait_for(asyncio.to_thread(ask), timeout_s)
    except TimeoutError:
        raise FabricTimeoutError(f"the fabric did not answer within {timeout_s:g} s") from None


async def change(request: Request, edit: Callable[[Draft], T], *, is_secret: bool = False) -> T:
    """Change the ledger and the fabric; return the result of `edit`. A change that waits too long is withdrawn."""
    ledger, timeout_s = ledger_of(request), request.app.state.settings.timeout_s
    summary = f"{request.method} {request.url.path}"
    if not is_secret:
        summary = f"{summary} {(await request.body())[:BODY_CHARACTERS].decode(errors='replace')}".rstrip()
    setattr(request.state, NOTED, True)
    future = ledger.submit(caller_of(request).name, summary, edit)
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
    except TimeoutError:
        how = "it is still running; its result will be in the audit log"
        if future.cancelled():
            how = "it was withdrawn"
            ledger.refused(caller_of(request).name, summary, f"{how} after {timeout_s:g} s")
        raise FabricTimeoutError(f"the fabric did not apply the change within {timeout_s:g} s; {how}") from None
