"""The context of UFM's calls, their bodies and answers, and errors with UFM's status codes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Hashable, Mapping
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
from weft.serve.ufm.jobs import Journal
from weft.serve.ufm.shapes import Picture
from weft.serve.ufm.telemetry import Instances, Telemetry
from weft.serve.ufm.watch import Watch


class Versions:
    """A version number for each collection. It grows with each change and over restarts, since it is a time."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Hashable, int]] = {}
        self._lock = threading.Lock()

    def numbers(self, contents: Mapping[str, Hashable]) -> dict[str, int]:
        """Return the version of each collection. `contents`: values that change with the collections, by name."""
        with self._lock:
            for name, content in contents.items():
                before, number = self._seen.get(name, (None, 0))
                if name not in self._seen or before != content:
                    self._seen[name] = content, max(number + 1, int(time.time()))
            return {name: self._seen[name][1] for name in contents}


_T = TypeVar("_T")
_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(frozen=True)
class UfmContext:
    """The objects that UFM's calls use, besides the ledger."""

    watch: Watch
    actions: FabricActions | None = None  # None: the fabric is not a lab
    faults: Faults | None = None  # None: faults cannot be injected
    jobs: Journal = field(default_factory=lambda: Journal("job"))
    events: Journal = field(default_factory=lambda: Journal("event"))
    reports: Journal = field(default_factory=lambda: Journal("report"))
    instances: Instances = field(default_factory=Instances)
    versions: Versions = field(default_factory=Versions)
    telemetry_port: int = 0  # TCP port for counters without a token; 0: none


class Route(APIRoute):
    """A route with UFM's status codes. Tenants have no access, since UFM's calls show all tenants."""

    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                _check_role(request)
                return await handle(request)
            except msgspec.MsgspecError as error:
                return respond(HTTPStatus.BAD_REQUEST, f"invalid body: {error}")
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
        raise refuse(request, "this role may only read")


def context_of(request: Request) -> UfmContext:
    context: UfmContext = request.app.state.ufm
    return context


def monitor_of(request: Request) -> FabricMonitor:
    """Return the monitor of the fabric. Raise NotFoundError if the service has no port of the fabric."""
    monitor: FabricMonitor | None = getattr(request.app.state, "monitor", None)
    if monitor is None:
        raise NotFoundError(
            "counters are not available: run weft serve on a lab, or with a port of the fabric (--umad)"
        )
    return monitor


def telemetry_of(request: Request) -> Telemetry:
    return Telemetry(monitor_of(request))


async def body_of(request: Request, form: type[_T]) -> _T:
    """Decode the body. Strings are accepted for numbers and booleans, as schedulers send them."""
    return msgspec.json.decode(await request.body(), type=form, strict=False)


async def answer_cached(request: Request, collection: str, make: Callable[[Picture, dict[str, str]], Any]) -> Response:
    query = dict(request.query_params)
    key = (collection, *sorted(query.items()))
    body = await asyncio.to_thread(context_of(request).watch.answer, key, lambda picture: make(picture, query))
    return Response(body, media_type="application/json")


def answer_json(content: Any, status: int = 200, **headers: str) -> Response:
    return Response(msgspec.json.encode(content), status, headers, "application/json")
