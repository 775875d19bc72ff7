"""What all calls share: bodies and answers, errors with UFM's status codes, and what they work on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from weft.errors import UnknownName, WeftError
from weft.serve.access import Role
from weft.serve.api.exchange import caller_of, refuse
from weft.serve.console.monitor import FabricMonitor
from weft.serve.desired import NotFoundError
from weft.serve.fabric_actions import FabricActions
from weft.serve.faults import Faults
from weft.serve.problems import respond, status_of
from weft.serve.ufm.instances import Instances
from weft.serve.ufm.jobs import Journal
from weft.serve.ufm.shapes import Picture
from weft.serve.ufm.telemetry import Telemetry
from weft.serve.ufm.versions import Versions
from weft.serve.ufm.watch import Watch

_T = TypeVar("_T")
_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(frozen=True)
class UfmContext:
    """What the calls work on, besides the ledger."""

    watch: Watch
    actions: FabricActions | None = None  # None: it is no lab
    faults: Faults | None = None  # None: nobody may ask for trouble here
    jobs: Journal = field(default_factory=lambda: Journal("job"))
    events: Journal = field(default_factory=lambda: Journal("event"))
    reports: Journal = field(default_factory=lambda: Journal("report"))
    instances: Instances = field(default_factory=Instances)
    versions: Versions = field(default_factory=Versions)
    telemetry_port: int = 0  # where counters are served without a token; 0: nowhere


class Route(APIRoute):
    """Errors with UFM's status codes; tenants see nothing of others here, so nothing."""

    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                _check_role(request)
                return await handle(request)
            except msgspec.MsgspecError as error:
                return respond(HTTPStatus.BAD_REQUEST, f"the body is refused: {error}")
            except WeftError as error:
                status = HTTPStatus.NOT_FOUND if isinstance(error, UnknownName) else status_of(error)
                is_bad = status is HTTPStatus.UNPROCESSABLE_ENTITY
                return respond(HTTPStatus.BAD_REQUEST if is_bad else status, str(error))

        return handled


def _check_role(request: Request) -> None:
    role = caller_of(request).role
    if role is Role.TENANT:
        raise refuse(request, "UFM's calls show all tenants; use /api/v1")
    if role is Role.READ_ONLY and request.method != "GET":
        raise refuse(request, "it may read")


def context_of(request: Request) -> UfmContext:
    found: UfmContext = request.app.state.ufm
    return found


def monitor_of(request: Request) -> FabricMonitor:
    """Return the monitor of the fabric's counters. NotFoundError where the service has no port to read them from."""
    found: FabricMonitor | None = getattr(request.app.state, "monitor", None)
    if found is None:
        raise NotFoundError(
            "counters are not read here: run weft serve on a lab, or with a port of the fabric (--umad)"
        )
    return found


def telemetry_of(request: Request) -> Telemetry:
    return Telemetry(monitor_of(request))


async def body_of(request: Request, form: type[_T]) -> _T:
    """Schedulers send words for numbers and truths: they are taken."""
    return msgspec.json.decode(await request.body(), type=form, strict=False)


async def answer_seen(request: Request, what: str, make: Callable[[Picture, dict[str, str]], Any]) -> Response:
    query = dict(request.query_params)
    key = (what, *sorted(query.items()))
    body = await asyncio.to_thread(context_of(request).watch.answer, key, lambda picture: make(picture, query))
    return Response(body, media_type="application/json")


def answer_json(content: Any, status: int = 200, **headers: str) -> Response:
    return Response(msgspec.json.encode(content), status, headers, "application/json")
