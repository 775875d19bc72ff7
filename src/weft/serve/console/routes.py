"""The console's part of /api/v1: what is drawn, what changes, cables and load of a lab, runs."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse

from weft.errors import ConfigError, UnknownName
from weft.lab import control
from weft.monitor.columns import Column
from weft.monitor.exporter import CONTENT_TYPE
from weft.serve.access import Role
from weft.serve.api.exchange import PREFIX, answer, ask_fabric, caller_of, change, encoded, gives, ledger_of, refuse
from weft.serve.api.fault_injection import CablesOut
from weft.serve.console.events import FabricState, SuspectOut, suspect_out
from weft.serve.console.layout import FabricOut
from weft.serve.console.monitor import FabricMonitor
from weft.serve.console.nodes import NodeOut, show_node
from weft.serve.console.paths import PathOut, find_path
from weft.serve.console.runs import RunIn, RunOut
from weft.serve.console.tenant_metrics import tenant_metrics

_NO_STORE = {"Cache-Control": "no-store"}
# A report has its own styles and scripts in it, and may reach nothing.
_REPORT = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"}
_Name = Annotated[str, Query(max_length=255)]


def _all_seeing(request: Request) -> None:
    if caller_of(request).role is Role.TENANT:
        raise refuse(request, "the whole fabric is not a tenant's to see")


def _operators_only(request: Request) -> None:
    if not caller_of(request).may_change:
        raise refuse(request, "cables, load and runs are for operators")


router = APIRouter(tags=["console"], dependencies=[Depends(_all_seeing)])
_operators = [Depends(_operators_only)]


class CableOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """To a port, a host or a switch of a lab."""

    name: str
    do: Literal["break", "fix", "degrade"]
    ber: float | None = None
    one_way: bool = False
    flaps: float | None = None  # per hour
    to: str | None = None  # 1xNDR
    drain: float | None = None  # part of the line rate that a host takes

    def words(self) -> dict[str, Any]:
        """For the lab."""
        ill = {"bit_error_rate": self.ber, "to": self.to, "flaps": self.flaps, "drain": self.drain}
        given = {name: value for name, value in ill.items() if value is not None}
        if self.one_way:
            given["one_way"] = True
        if (self.do == "degrade") != bool(given):
            raise ConfigError("degrade, and it alone, says how: ber, one_way, flaps, to or drain")
        return {"name": self.name} | given


class LoadOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    jobs: list[str | dict[str, Any]]  # train=ring:h[1-64]@80%, or its words
    speed: float = 1.0
    seed: int = 1


class SeriesOut(msgspec.Struct, kw_only=True):
    t: list[float]  # seconds since 1970
    v: list[float | None]  # per second; None: not known


class DiagnosisOut(msgspec.Struct, kw_only=True):
    suspects: list[SuspectOut]
    notes: list[str]
    seconds: float


class RunId(msgspec.Struct, kw_only=True):
    id: int


def monitor_of(request: Request) -> FabricMonitor:
    found: FabricMonitor = request.app.state.monitor
    return found


# -- seeing -----------------------------------------------------------------------------------------------------------


@router.get("/fabric", **gives(FabricOut, 403, 504, tagged=True))
async def get_fabric(request: Request) -> Response:
    """Nodes and where they stand, and the cables between them, as columns."""
    return answer(request, encoded(await ask_fabric(request, monitor_of(request).fabric)))


@router.get("/state", **gives(FabricState, 403, 504))
async def get_state(request: Request) -> Response:
    """What changes: loads, errors and states of links, jobs, the subnet manager, suspects, runs."""
    return _json(await ask_fabric(request, monitor_of(request).state))


@router.get("/live", include_in_schema=False)  # OpenAPI has no words for an answer that does not end
async def follow(request: Request) -> StreamingResponse:
    """The same every second as server-sent events named `state`; and `log`, a line for what happens."""
    monitor = monitor_of(request)
    await ask_fabric(request, monitor.wake)
    return StreamingResponse(monitor.live.listen(), media_type="text/event-stream", headers=_NO_STORE)


@router.get("/nodes/{name:path}", **gives(NodeOut, 403, 404, 422, 504))
async def get_node(request: Request, name: str) -> Response:
    """A node and its ports: state, peer, P_Keys, counters and what they do in a second."""
    monitor = monitor_of(request)
    return _json(await ask_fabric(request, lambda: show_node(monitor, name)))


@router.get("/routes", **gives(PathOut, 403, 422, 504))
async def get_route(
    request: Request, source: Annotated[str, Query(alias="from", max_length=255)], to: _Name
) -> Response:
    """The way from a host to another as the tables lead, with its service level, P_Key and lanes."""
    monitor = monitor_of(request)

    def find() -> PathOut:
        with monitor.ask(source) as carrier:
            return find_path(carrier, monitor.latest().reading.ports, source, to)

    return _json(await ask_fabric(request, find))


@router.get("/history", **gives(SeriesOut, 403, 422, 504))
async def get_history(
    request: Request, port: _Name, counter: _Name, seconds: Annotated[int, Query(ge=1, le=86_400)] = 600
) -> Response:
    """What a counter of a port did, per second."""
    monitor = monitor_of(request)
    column = Column.__members__.get(counter.upper())
    if column is None:
        raise UnknownName("counter", counter, [name.lower() for name in Column.__members__])
    t, v = await ask_fabric(request, lambda: monitor.series(port, column, seconds))
    return _json(SeriesOut(t=t, v=v))


@router.get("/diagnosis", **gives(DiagnosisOut, 403, 504))
async def get_diagnosis(request: Request) -> Response:
    """Suspects, the worst first, with evidence and what to do."""
    found = (await ask_fabric(request, monitor_of(request).latest)).diagnosis
    if found is None:
        return _json(DiagnosisOut(suspects=[], notes=["nothing is known from one reading: ask again"], seconds=0.0))
    told = [suspect_out(one) for one in found.suspects]
    return _json(DiagnosisOut(suspects=told, notes=list(found.notes), seconds=found.seconds))


# -- a lab's cables and load ------------------------------------------------------------------------------------------


@router.post("/cables", dependencies=_operators, **gives(CablesOut, 400, 403, 409, 422, 504, takes=CableOrder))
async def order_cable(request: Request) -> Response:
    """Break, degrade or mend."""
    order, monitor = msgspec.json.decode(await request.body(), type=CableOrder), monitor_of(request)
    lab, words = monitor.lab(), order.words()
    await change(request, lambda _: None)  # in the audit log
    ports = await ask_fabric(request, lambda: control.ask(lab, order.do, **words))
    monitor.log("cable", f"{caller_of(request).name}: {order.do} {', '.join(ports) or order.name}")
    return _json(CablesOut(ports=ports))


@router.get("/load", **gives(dict[str, Any], 403, 409, 504))
async def get_load(request: Request) -> Response:
    """Jobs of a lab, what they want and what they get."""
    lab = monitor_of(request).lab()
    return _json(await ask_fabric(request, lambda: control.ask(lab, "load_state")))


@router.put("/load", dependencies=_operators, **gives(dict[str, Any], 400, 403, 409, 422, 504, takes=LoadOrder))
async def put_load(request: Request) -> Response:
    """These jobs instead of those before."""
    order, monitor = msgspec.json.decode(await request.body(), type=LoadOrder), monitor_of(request)
    lab = monitor.lab()
    await change(request, lambda _: None)
    told = msgspec.to_builtins(order)
    found = await ask_fabric(request, lambda: control.ask(lab, "load", **told))
    monitor.log("load", f"{caller_of(request).name}: {len(order.jobs)} jobs")
    return _json(found)


@router.delete("/load", dependencies=_operators, **gives(None, 403, 409, 504, status=204))
async def delete_load(request: Request) -> Response:
    monitor = monitor_of(request)
    lab = monitor.lab()
    await change(request, lambda _: None)
    await ask_fabric(request, lambda: control.ask(lab, "unload", names=[]))
    monitor.log("load", f"{caller_of(request).name}: none")
    return Response(status_code=HTTPStatus.NO_CONTENT)


# -- runs -------------------------------------------------------------------------------------------------------------


@router.get("/runs", **gives(list[RunOut], 403))
async def list_runs(request: Request) -> Response:
    return _json(monitor_of(request).runs.shown())


@router.post("/runs", dependencies=_operators, **gives(RunId, 400, 403, 409, 422, status=202, takes=RunIn))
async def start_run(request: Request) -> Response:
    """`weft compare` or `weft train`, beside the service."""
    wanted = msgspec.json.decode(await request.body(), type=RunIn)
    number = monitor_of(request).runs.start(wanted)
    return _json(RunId(id=number), HTTPStatus.ACCEPTED)


@router.get("/runs/{number}", **gives(RunOut, 403, 404, 422))
async def get_run(request: Request, number: int) -> Response:
    return _json(monitor_of(request).runs.one(number))


@router.get("/runs/{number}/report", **gives(None, 403, 404, 422))
async def get_report(request: Request, number: int) -> Response:
    """The page that it wrote."""
    return Response(monitor_of(request).runs.report(number), media_type="text/html", headers=_REPORT)


@router.delete("/runs/{number}", dependencies=_operators, **gives(None, 403, 404, 422, status=204))
async def end_run(request: Request, number: int) -> Response:
    monitor_of(request).runs.end(number)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _json(content: Any, status: int = 200) -> Response:
    return Response(encoded(content), status, media_type="application/json")


_metrics = APIRouter(tags=["console"], dependencies=[Depends(_all_seeing)])


@_metrics.get("/metrics", **gives(None, 403, 504))
async def get_metrics(request: Request) -> Response:
    """For Prometheus, with the names of infiniband_exporter: as `weft monitor` serves them."""
    ledger = ledger_of(request)
    more = tenant_metrics(ledger.desired(), ledger.drift)
    told = await ask_fabric(request, lambda: monitor_of(request).metrics(more))
    return Response(told, headers={"Content-Type": CONTENT_TYPE})


def add_console(app: FastAPI, monitor: FabricMonitor) -> None:
    app.state.monitor = monitor
    app.include_router(router, prefix=PREFIX)
    app.include_router(_metrics)
