"""Trouble on request, where the fabric is a lab: faults of the service, hosts that go and come back."""

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
        raise refuse(request, "trouble is an admin's to ask for")


router = APIRouter(tags=["trouble"], dependencies=[Depends(_check_role)])


class FaultId(msgspec.Struct, kw_only=True):
    id: int


class FaultOut(msgspec.Struct, kw_only=True):
    id: int
    path: str
    method: str | None
    status: int | None
    latency_s: float
    times: int | None


class CablesOut(msgspec.Struct, kw_only=True):
    ports: list[str]  # one of each


@router.get("/faults", **gives(list[FaultOut], 403))
async def list_faults(request: Request) -> Response:
    return _json(_faults(request).shown())


@router.post("/faults", **gives(FaultId, 400, 403, 422, status=201, takes=Fault))
async def add_fault(request: Request) -> Response:
    """Calls that fit take long, fail, or both."""
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
async def take_away(request: Request, name: str) -> Response:
    """Pull all cables of a host or a switch, or that of a port."""
    await change(request, lambda _: None)  # in the audit log
    return _json({"ports": await asyncio.to_thread(_actions(request).take_away, name)})


@router.put("/lab/{name:path}", **gives(CablesOut, 403, 422))
async def bring_back(request: Request, name: str) -> Response:
    """Put them back."""
    await change(request, lambda _: None)
    return _json({"ports": await asyncio.to_thread(_actions(request).bring_back, name)})


def _faults(request: Request) -> Faults:
    found: Faults = request.app.state.faults
    return found


def _actions(request: Request) -> FabricActions:
    found: FabricActions = request.app.state.actions
    return found


def _json(content: Any, status: int = 200) -> Response:
    return Response(encoded(content), status, media_type="application/json")


class FaultInjection:
    """Before the gate: a service that is down does not ask who calls."""

    def __init__(self, app: ASGIApp, faults: Faults) -> None:
        self._app, self._faults = app, faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._faults.strike(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if fault is not None:
            await asyncio.sleep(fault.latency_s)
            if fault.status is not None:
                status = HTTPStatus(fault.status)
                return await respond(status, "a fault that was asked for")(scope, receive, send)
        return await self._app(scope, receive, send)


def add_fault_injection(service: FastAPI, faults: Faults, actions: FabricActions) -> None:
    """After all else was added: what is added last is asked first."""
    service.state.faults, service.state.actions = faults, actions
    service.include_router(router, prefix=PREFIX)
    service.add_middleware(FaultInjection, faults=faults)
