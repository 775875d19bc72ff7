"""Alarms of the monitor, and their acknowledgements."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Path, Request, Response

from weft.serve.acknowledgements import Acknowledgement, AcknowledgementIn, acknowledge, acknowledged, withdraw
from weft.serve.api.exchange import answer, ask_fabric, caller_of, change, encoded, gives, ledger_of
from weft.serve.console.events import SuspectOut
from weft.serve.console.routes import monitor_of, not_tenants, operators_only
from weft.serve.desired import NotFoundError

router = APIRouter(tags=["alarms"], dependencies=[Depends(not_tenants)])
_operators = [Depends(operators_only)]
_Alarm = Annotated[str, Path(max_length=255, examples=["bad cable: leaf1/5 - spine1/1"])]


@router.get("/alarms", **gives(list[SuspectOut], 403, 504, tagged=True))
async def list_alarms(request: Request) -> Response:
    """Return the present alarms, worst first, each with its acknowledgement if it has one."""
    state = await ask_fabric(request, monitor_of(request).state)
    return answer(request, encoded(state.suspects))


@router.get("/acknowledgements", **gives(list[Acknowledgement], 403, tagged=True))
async def list_acknowledgements(request: Request) -> Response:
    """Return the acknowledgements that have not ended, also of alarms that are not raised now."""
    documents = ledger_of(request).desired().documents
    return answer(request, encoded(list(acknowledged(documents, time.time()).values())))


@router.put(
    "/acknowledgements/{alarm:path}",
    dependencies=_operators,
    **gives(Acknowledgement, 400, 403, 404, 422, 504, takes=AcknowledgementIn),
)
async def put_acknowledgement(request: Request, alarm: _Alarm) -> Response:
    """Acknowledge a present alarm by its id, with a name and a reason."""
    body = msgspec.json.decode(await request.body(), type=AcknowledgementIn)
    monitor = monitor_of(request)
    state = await ask_fabric(request, monitor.state)
    if alarm not in {suspect.id for suspect in state.suspects}:
        raise NotFoundError(f"there is no alarm {alarm!r} now: GET /alarms lists them")
    caller = caller_of(request).name
    stored = await change(request, lambda draft: acknowledge(draft, alarm, body, caller))
    monitor.log("acknowledged", f"{alarm}, by {stored.name}: {stored.reason}")
    return answer(request, encoded(stored))


@router.delete("/acknowledgements/{alarm:path}", dependencies=_operators, **gives(None, 403, 404, 422, status=204))
async def delete_acknowledgement(request: Request, alarm: _Alarm) -> Response:
    """Withdraw an acknowledgement."""
    await change(request, lambda draft: withdraw(draft, alarm))
    monitor_of(request).log("acknowledged", f"{alarm}: withdrawn by {caller_of(request).name}")
    return Response(status_code=HTTPStatus.NO_CONTENT)
