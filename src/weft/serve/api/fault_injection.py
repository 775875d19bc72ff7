"""Fault injection for labs: failing or slow calls of the service, and disconnected cables."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from weft.serve.access import Role
from weft.serve.api.exchange import PREFIX, caller_of, change, encoded, gives, refuse
from weft.serve.fabric_actions import FabricActions
from weft.serve.faults import Fault, Faults
from weft.serve.problems import respond


def _check_role(request: Request) -> None:
    if caller_of(request).role is not Role.ADMIN:
        raise refuse(request, "only admins may inject faults")


router = APIRouter(tags=["fault injection"], dependencies=[Depends(_check_role)])


class FaultId(msgspec.Struct, kw_only=True):
    """The id of a new fault."""

    id: int


class FaultOut(msgspec.Struct, kw_only=True):
    """An active fault."""

    id: int
    path: str
    method: str | None
    status: int | None
    latency_s: float
    times: int | None


class CablesOut(msgspec.Struct, kw_only=True):
    """The affected cables."""

    ports: list[str]  # one port of each cable


@router.get("/faults", **gives(list[FaultOut], 403))
async def list_faults(request: Request) -> Response:
    return _json(_faults(request).listed())


@router.post("/faults", **gives(FaultId, 400, 403, 422, status=201, takes=Fault))
async def add_fault(request: Request) -> Response:
    """Delay matching calls, let them fail, or both."""
    fault = msgspec.json.decode(await request.body(), type=Fault)
    return _json({"id": _faults(request).add(fault)}, 201)


@router.delete("/faults", **gives(None, 403, status=204))
async def clear_faults(request: Request) -> Response:
    _faults(request).clear()
    return Response(status_code=204)


@router.delete("/faults/{number}", **gives(None, 403, 404, 422, status=204))
async def clear_fault(request: Request, number: int) -> Response:
    _faults(request).clear(number)
    return Response(status_code=204)


@router.delete("/lab/{name:path}", **gives(CablesOut, 403, 422))
async def disconnect(request: Request, name: str) -> Response:
    """Disconnect all cables of a host or a switch, or that of a port."""
    await change(request, lambda _: None)  # adds the request to the audit log
    return _json({"ports": await asyncio.to_thread(_actions(request).disconnect, name)})


@router.put("/lab/{name:path}", **gives(CablesOut, 403, 422))
async def reconnect(request: Request, name: str) -> Response:
    """Reconnect all cables of a host or a switch, or that of a port."""
    await change(request, lambda _: None)
    return _json({"ports": await asyncio.to_thread(_actions(request).reconnect, name)})


def _faults(request: Request) -> Faults:
    faults: Faults = request.app.state.faults
    return faults


def _actions(request: Request) -> FabricActions:
    actions: FabricActions = request.app.state.actions
    return actions


def _json(content: Any, status: int = 200) -> Response:
    return Response(encoded(content), status, media_type="application/json")


class FaultInjection:
    """A middleware that injects faults. It runs before authentication, as if the service itself failed."""

    def __init__(self, app: ASGIApp, faults: Faults) -> None:
        self._app, self._faults = app, faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._faults.match(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if fault is not None:
            await asyncio.sleep(fault.latency_s)
            if fault.status is not None:
                status = HTTPStatus(fault.status)
                return await respond(status, "injected fault")(scope, receive, send)
        return await self._app(scope, receive, send)


def add_fault_injection(service: FastAPI, faults: Faults, actions: FabricActions) -> None:
    """Add the routes and the middleware. Call it last: the middleware that is added last runs first."""
    service.state.faults, service.state.actions = faults, actions
    service.include_router(router, prefix=PREFIX)
    service.add_middleware(FaultInjection, faults=faults)
