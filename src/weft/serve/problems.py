"""HTTP errors as problem details (RFC 9457).

{"status": 409, "title": "Conflict", "detail": "the P_Key 0x0101 is taken: ..."}
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from weft.errors import ConfigError, WeftError
from weft.serve.desired import ConflictError, NotFoundError

MEDIA = "application/problem+json"


class Problem(msgspec.Struct, kw_only=True):
    """The body of an error."""

    status: int
    title: str
    detail: str


class ForbiddenError(ConfigError):
    """An error: the caller's role does not permit the request."""


class PreconditionFailedError(ConfigError):
    """An error: a condition of If-Match or If-None-Match does not hold."""


class FabricTimeoutError(WeftError):
    """An error: the fabric did not answer in time."""


_STATUS: dict[type[WeftError], HTTPStatus] = {
    NotFoundError: HTTPStatus.NOT_FOUND,
    ConflictError: HTTPStatus.CONFLICT,
    ForbiddenError: HTTPStatus.FORBIDDEN,
    PreconditionFailedError: HTTPStatus.PRECONDITION_FAILED,
    FabricTimeoutError: HTTPStatus.GATEWAY_TIMEOUT,
    ConfigError: HTTPStatus.UNPROCESSABLE_ENTITY,
    WeftError: HTTPStatus.SERVICE_UNAVAILABLE,  # errors of the fabric or the database
}


def status_of(error: WeftError) -> HTTPStatus:
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def body_of(status: HTTPStatus, detail: str) -> bytes:
    return msgspec.json.encode(Problem(status=status, title=status.phrase, detail=detail))


def respond(status: HTTPStatus, detail: str, **headers: str) -> Response:
    return Response(body_of(status, detail), status, headers, MEDIA)


def handle_errors(app: FastAPI) -> None:
    """Convert all errors of all routes to problem details."""

    @app.exception_handler(WeftError)
    def of_weft(_: Request, error: WeftError) -> Response:
        return respond(status_of(error), str(error))

    @app.exception_handler(msgspec.ValidationError)
    @app.exception_handler(msgspec.DecodeError)
    def of_body(_: Request, error: msgspec.MsgspecError) -> Response:
        is_json = isinstance(error, msgspec.ValidationError)
        status = HTTPStatus.UNPROCESSABLE_ENTITY if is_json else HTTPStatus.BAD_REQUEST
        return respond(status, f"invalid body: {error}")

    @app.exception_handler(RequestValidationError)
    def of_words(_: Request, error: RequestValidationError) -> Response:
        message = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors())
        return respond(HTTPStatus.UNPROCESSABLE_ENTITY, message)

    @app.exception_handler(HTTPException)
    def of_routes(request: Request, error: HTTPException) -> Response:
        status = HTTPStatus(error.status_code)
        return respond(status, f"{request.method} {request.url.path}: {error.detail}", **(error.headers or {}))

    @app.exception_handler(Exception)
    def of_ours(_: Request, error: Exception) -> Response:
        return respond(
            HTTPStatus.INTERNAL_SERVER_ERROR, f"internal error: {type(error).__name__}; see the log of the service"
        )
