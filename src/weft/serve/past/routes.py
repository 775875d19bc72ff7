"""The REST routes of the history: facts at a time, changes, differences; the states that the console showed."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response

from weft.serve.api.exchange import PREFIX, ask_fabric, encoded, gives
from weft.serve.console.events import FabricState
from weft.serve.console.layout import FabricOut
from weft.serve.console.routes import not_tenants
from weft.serve.desired import ConflictError, NotFoundError
from weft.serve.past.moments import EventOut
from weft.serve.past.recorder import Recorder
from weft.twin.history import Difference, compare

router = APIRouter(tags=["history"], dependencies=[Depends(not_tenants)])
_Seconds = Annotated[float, Query(ge=0, le=1e12)]  # since 1970
_Name = Annotated[str, Query(max_length=255)]


class FactOut(msgspec.Struct, kw_only=True):
    """A fact about the fabric, as `weft history` has it."""

    kind: str  # node, link, lid, routes, pkeys, manager, errors
    name: str
    value: str


class ChangeOut(msgspec.Struct, kw_only=True):
    """A fact that changed; None: there was none."""

    t: float  # seconds since 1970
    kind: str
    name: str
    before: str | None
    after: str | None


class PastOut(msgspec.Struct, kw_only=True):
    """The recorded time, and the newest events in it."""

    is_recorded: bool  # False: the service was started with --no-record
    first: float | None  # seconds since 1970; None: no state yet
    last: float | None
    events: list[EventOut]


def _recorder(request: Request) -> Recorder:
    recorder: Recorder | None = request.app.state.recorder
    if recorder is None:
        raise ConflictError("no history is recorded: start `weft serve` without --no-record")
    if recorder.history.span() is None:
        raise NotFoundError("the history has no poll yet: try again")
    return recorder


@router.get("/facts", **gives(list[FactOut], 403, 404, 409, 422, 504))
async def get_facts(request: Request, at: _Seconds | None = None, name: _Name = "", kind: _Name = "") -> Response:
    """Return the facts at a time (seconds since 1970), by default the last: of a node with its ports, or all."""
    recorder = _recorder(request)
    facts = await ask_fabric(request, lambda: recorder.history.state(at))
    return _json(
        [
            FactOut(kind=its_kind, name=its_name, value=value)
            for (its_kind, its_name), value in sorted(facts.items())
            if kind in ("", its_kind) and _concerns(its_name, name)
        ]
    )


@router.get("/changes", **gives(list[ChangeOut], 403, 404, 409, 422, 504))
async def get_changes(
    request: Request,
    since: _Seconds = 0,
    until: _Seconds | None = None,
    name: _Name = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """Return the changes in a range of time, newest first; of one node with its ports, or all."""
    recorder = _recorder(request)
    until_s = time.time() if until is None else until
    changes = await ask_fabric(request, lambda: recorder.history.changes(since_s=since, until_s=until_s))
    chosen = [_change(each) for each in reversed(changes) if _concerns(each.name, name)]
    return _json(chosen[:limit])


@router.get("/diff", **gives(list[ChangeOut], 403, 404, 409, 422, 504))
async def get_diff(
    request: Request, before: Annotated[float, Query(alias="from", ge=0, le=1e12)], to: _Seconds | None = None
) -> Response:
    """Return the facts that differ between two times."""
    recorder = _recorder(request)

    def find() -> list[Difference]:
        first_s, last_s = recorder.history.span() or (0.0, 0.0)
        times_s = [max(before, first_s), max(last_s if to is None else to, first_s)]
        return compare(times_s[1], *(recorder.history.state(at_s) for at_s in times_s))

    return _json([_change(each) for each in await ask_fabric(request, find)])


# -- the states of the console ----------------------------------------------------------------------------------------


@router.get("/past", **gives(PastOut, 403, 422, 504))
async def get_past(request: Request, limit: Annotated[int, Query(ge=1, le=10_000)] = 500) -> Response:
    """Return the range of the recorded states, and the newest events: links, alerts, subnet managers."""
    recorder: Recorder | None = request.app.state.recorder
    if recorder is None:
        return _json(PastOut(is_recorded=False, first=None, last=None, events=[]))
    moments = recorder.moments
    first, last = await ask_fabric(request, moments.span) or (None, None)
    events = await ask_fabric(request, lambda: moments.events(most=limit))
    return _json(PastOut(is_recorded=True, first=first, last=last, events=events))


@router.get("/past/state", **gives(FabricState, 403, 404, 409, 422, 504))
async def get_past_state(request: Request, at: _Seconds) -> Response:
    """Return the latest recorded state that is not newer than a time; `t` is its own time."""
    moments = _recorder(request).moments
    state = await ask_fabric(request, lambda: moments.at(at))
    if state is None:
        raise NotFoundError(f"no state was recorded at {at:g} or before: GET /past has the range")
    return _json(state)


@router.get("/past/fabrics/{revision}", **gives(FabricOut, 403, 404, 409, 422, 504))
async def get_past_fabric(request: Request, revision: str) -> Response:
    """Return the drawing of a revision that a recorded state names."""
    moments = _recorder(request).moments
    drawing = await ask_fabric(request, lambda: moments.drawing(revision))
    if drawing is None:
        raise NotFoundError(f"the history has no drawing {revision}")
    return _json(drawing)


def _concerns(subject: str, name: str) -> bool:
    return not name or subject == name or subject.startswith(f"{name}/")


def _change(each: Difference) -> ChangeOut:
    return ChangeOut(t=each.at_s, kind=each.kind, name=each.name, before=each.before, after=each.after)


def _json(content: Any) -> Response:
    return Response(encoded(content), media_type="application/json")


def add_past(app: FastAPI, recorder: Recorder | None) -> None:
    app.state.recorder = recorder
    app.include_router(router, prefix=PREFIX)
