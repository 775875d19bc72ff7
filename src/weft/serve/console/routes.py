"""The REST routes of the console: the drawing, the state, cables and load of a lab, runs."""

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
from weft.monitor.metrics import Family, labels
from weft.serve.access import Role
from weft.serve.api.exchange import PREFIX, answer, ask_fabric, caller_of, change, encoded, gives, ledger_of, refuse
from weft.serve.api.fault_injection import CablesOut
from weft.serve.console.events import FabricState, SuspectOut, suspect_out
from weft.serve.console.layout import FabricOut
from weft.serve.console.monitor import FabricMonitor
from weft.serve.console.nodes import CableEndOut, NodeOut, PathOut, find_path, show_cable, show_node
from weft.serve.console.runs import RunIn, RunOut
from weft.serve.desired import Desired
from weft.serve.drift import DriftWatch

_NO_STORE = {"Cache-Control": "no-store"}
# A report contains its own styles, and may not make requests.
_REPORT = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"}
_Name = Annotated[str, Query(max_length=255)]


def not_tenants(request: Request) -> None:
    if caller_of(request).role is Role.TENANT:
        raise refuse(request, "tenants cannot see the whole fabric")


def operators_only(request: Request) -> None:
    if not caller_of(request).may_change:
        raise refuse(request, "only operators may change cables and load and start runs")


router = APIRouter(tags=["console"], dependencies=[Depends(not_tenants)])
_operators = [Depends(operators_only)]


class CableOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A change of the cables of a port, a host or a switch of a lab."""

    name: str
    do: Literal["break", "fix", "degrade"]
    ber: float | None = None
    one_way: bool = False
    flaps: float | None = None  # per hour
    to: str | None = None  # 1xNDR
    drain: float | None = None  # share of the line rate that a host can receive

    def parameters(self) -> dict[str, Any]:
        """Return the parameters for the lab's command."""
        faults = {"bit_error_rate": self.ber, "to": self.to, "flaps": self.flaps, "drain": self.drain}
        parameters = {name: value for name, value in faults.items() if value is not None}
        if self.one_way:
            parameters["one_way"] = True
        if (self.do == "degrade") != bool(parameters):
            raise ConfigError("give ber, one_way, flaps, to or drain with degrade, and only with degrade")
        return {"name": self.name} | parameters


class LoadOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The background jobs of a lab."""

    jobs: list[str | dict[str, Any]]  # train=ring:h[1-64]@80%, or its fields
    speed: float = 1.0
    seed: int = 1


class SeriesOut(msgspec.Struct, kw_only=True):
    """A time series of a counter."""

    t: list[float]  # seconds since 1970
    v: list[float | None]  # per second; None: unknown


class DiagnosisOut(msgspec.Struct, kw_only=True):
    """A diagnosis of the fabric."""

    suspects: list[SuspectOut]
    notes: list[str]
    seconds: float


class RunId(msgspec.Struct, kw_only=True):
    """The id of a new run."""

    id: int


def monitor_of(request: Request) -> FabricMonitor:
    monitor: FabricMonitor = request.app.state.monitor
    return monitor


# -- seeing -----------------------------------------------------------------------------------------------------------


@router.get("/fabric", **gives(FabricOut, 403, 504, tagged=True))
async def get_fabric(request: Request) -> Response:
    """Return the nodes with their positions and the cables, as columns."""
    return answer(request, encoded(await ask_fabric(request, monitor_of(request).fabric)))


@router.get("/state", **gives(FabricState, 403, 504))
async def get_state(request: Request) -> Response:
    """Return the state: loads, errors and states of links, jobs, the subnet manager, suspects, runs."""
    return _json(await ask_fabric(request, monitor_of(request).state))


@router.get("/live", include_in_schema=False)  # OpenAPI cannot describe an endless response
async def follow(request: Request) -> StreamingResponse:
    """Send the state every second as server-sent events `state`, and log lines as events `log`."""
    monitor = monitor_of(request)
    await ask_fabric(request, monitor.wake)
    return StreamingResponse(monitor.events.listen(), media_type="text/event-stream", headers=_NO_STORE)


@router.get("/nodes/{name:path}", **gives(NodeOut, 403, 404, 422, 504))
async def get_node(request: Request, name: str) -> Response:
    """Return a node and its ports: state, peer, P_Keys, counters and rates."""
    monitor = monitor_of(request)
    return _json(await ask_fabric(request, lambda: show_node(monitor, name)))


@router.get("/cables", **gives(list[CableEndOut], 403, 422, 504))
async def get_cable(request: Request, port: _Name) -> Response:
    """Return the modules at both ends of a cable, read by CableInfo: serial number, temperature, power."""
    monitor = monitor_of(request)
    return _json(await ask_fabric(request, lambda: show_cable(monitor, port)))


@router.get("/routes", **gives(PathOut, 403, 422, 504))
async def get_route(
    request: Request, source: Annotated[str, Query(alias="from", max_length=255)], to: _Name
) -> Response:
    """Return the path between two hosts by the forwarding tables, with its service level, P_Key and lanes."""
    monitor = monitor_of(request)

    def find() -> PathOut:
        with monitor.ask(source) as carrier:
            return find_path(carrier, monitor.latest().reading.ports, source, to)

    return _json(await ask_fabric(request, find))


@router.get("/history", **gives(SeriesOut, 403, 422, 504))
async def get_history(
    request: Request, port: _Name, counter: _Name, seconds: Annotated[int, Query(ge=1, le=86_400)] = 600
) -> Response:
    """Return the rates of a counter of a port."""
    monitor = monitor_of(request)
    column = Column.__members__.get(counter.upper())
    if column is None:
        raise UnknownName("counter", counter, [name.lower() for name in Column.__members__])
    t, v = await ask_fabric(request, lambda: monitor.series(port, column, seconds))
    return _json(SeriesOut(t=t, v=v))


@router.get("/diagnosis", **gives(DiagnosisOut, 403, 504))
async def get_diagnosis(request: Request) -> Response:
    """Return suspected links, worst first, with evidence and actions."""
    diagnosis = (await ask_fabric(request, monitor_of(request).latest)).diagnosis
    if diagnosis is None:
        return _json(DiagnosisOut(suspects=[], notes=["a diagnosis needs two readings: try again"], seconds=0.0))
    acknowledgements = monitor_of(request).acknowledgements()
    suspects = [suspect_out(suspect, acknowledgements) for suspect in diagnosis.suspects]
    return _json(DiagnosisOut(suspects=suspects, notes=list(diagnosis.notes), seconds=diagnosis.seconds))


# -- a lab's cables and load ------------------------------------------------------------------------------------------


@router.post("/cables", dependencies=_operators, **gives(CablesOut, 400, 403, 409, 422, 504, takes=CableOrder))
async def order_cable(request: Request) -> Response:
    """Break, degrade or repair cables of a lab."""
    order, monitor = msgspec.json.decode(await request.body(), type=CableOrder), monitor_of(request)
    lab, parameters = monitor.lab(), order.parameters()
    await change(request, lambda _: None)  # adds the request to the audit log
    ports = await ask_fabric(request, lambda: control.ask(lab, order.do, **parameters))
    monitor.log("cable", f"{caller_of(request).name}: {order.do} {', '.join(ports) or order.name}")
    return _json(CablesOut(ports=ports))


@router.get("/load", **gives(dict[str, Any], 403, 409, 504))
async def get_load(request: Request) -> Response:
    """Return the background jobs of a lab, with their demand and throughput."""
    lab = monitor_of(request).lab()
    return _json(await ask_fabric(request, lambda: control.ask(lab, "load_state")))


@router.put("/load", dependencies=_operators, **gives(dict[str, Any], 400, 403, 409, 422, 504, takes=LoadOrder))
async def put_load(request: Request) -> Response:
    """Replace the background jobs of a lab."""
    order, monitor = msgspec.json.decode(await request.body(), type=LoadOrder), monitor_of(request)
    lab = monitor.lab()
    await change(request, lambda _: None)
    parameters = msgspec.to_builtins(order)
    state = await ask_fabric(request, lambda: control.ask(lab, "load", **parameters))
    monitor.log("load", f"{caller_of(request).name}: {len(order.jobs)} jobs")
    return _json(state)


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
    return _json(monitor_of(request).runs.listed())


@router.post("/runs", dependencies=_operators, **gives(RunId, 400, 403, 409, 422, status=202, takes=RunIn))
async def start_run(request: Request) -> Response:
    """Start `weft compare` or `weft train` as a process of the service."""
    run = msgspec.json.decode(await request.body(), type=RunIn)
    number = monitor_of(request).runs.start(run)
    return _json(RunId(id=number), HTTPStatus.ACCEPTED)


@router.get("/runs/{number}", **gives(RunOut, 403, 404, 422))
async def get_run(request: Request, number: int) -> Response:
    return _json(monitor_of(request).runs.get(number))


@router.get("/runs/{number}/report", **gives(None, 403, 404, 422))
async def get_report(request: Request, number: int) -> Response:
    """Return the report of a run as an HTML page."""
    return Response(monitor_of(request).runs.report(number), media_type="text/html", headers=_REPORT)


@router.delete("/runs/{number}", dependencies=_operators, **gives(None, 403, 404, 422, status=204))
async def end_run(request: Request, number: int) -> Response:
    monitor_of(request).runs.end(number)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _json(content: Any, status: int = 200) -> Response:
    return Response(encoded(content), status, media_type="application/json")


_metrics = APIRouter(tags=["console"], dependencies=[Depends(not_tenants)])


@_metrics.get("/metrics", **gives(None, 403, 504))
async def get_metrics(request: Request) -> Response:
    """Return metrics for Prometheus, with the names of infiniband_exporter, as `weft monitor` does."""
    ledger = ledger_of(request)
    more = tenant_metrics(ledger.desired(), ledger.drift)
    text = await ask_fabric(request, lambda: monitor_of(request).metrics(more))
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


def add_console(app: FastAPI, monitor: FabricMonitor) -> None:
    app.state.monitor = monitor
    app.include_router(router, prefix=PREFIX)
    app.include_router(_metrics)


def tenant_metrics(desired: Desired, drift: DriftWatch | None = None) -> list[Family]:
    members = [
        (labels(tenant=partition.name, p_key=f"{p_key:#06x}"), len(partition.members))
        for p_key, partition in sorted(desired.partitions.items())
    ]
    return [
        Family("weft_tenants", "Partitions of tenants.", "gauge", [("", len(members))]),
        Family("weft_tenant_ports", "Ports that are members of a tenant's partition.", "gauge", members),
        Family("weft_desired_revision", "Revision of the desired state.", "gauge", [("", desired.revision)]),
        *_drift_metrics(drift),
    ]


def _drift_metrics(drift: DriftWatch | None) -> list[Family]:
    if drift is None:
        return []
    return [
        Family(
            "weft_drift_differences",
            "Current differences between the fabric and the ledger.",
            "gauge",
            [("", len(drift.differences))],
        ),
        Family("weft_drift_repaired_total", "Repaired differences.", "counter", [("", drift.repaired)]),
        Family(
            "weft_drift_checked_timestamp_seconds",
            "Time of the last comparison of the fabric with the ledger.",
            "gauge",
            [("", drift.checked_at_s)],
        ),
    ]
