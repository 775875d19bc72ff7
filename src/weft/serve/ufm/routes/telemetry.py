"""The calls `telemetry`, `monitoring/...`, `app/telemetry/instances`: counters, busiest ports, history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request, Response

from weft.errors import ConfigError
from weft.monitor.exporter import CONTENT_TYPE
from weft.serve.api.exchange import ask_fabric, change, gives, ledger_of
from weft.serve.console.monitor import FabricMonitor
from weft.serve.problems import handle_errors
from weft.serve.settings import Settings
from weft.serve.ufm import health
from weft.serve.ufm.routes.context import Route, UfmContext, answer_json, body_of, context_of, telemetry_of
from weft.serve.ufm.shapes import Picture
from weft.serve.ufm.telemetry import (
    CONVERTED_ENTERPRISE,
    LOW_FREQ_DEBUG,
    METRICS,
    InstanceOrder,
    Telemetry,
    read_ago,
    read_list,
)

router = APIRouter(route_class=Route, tags=["UFM"])
_T = TypeVar("_T")
_TOP = 5  # as in UFM's own script
_MOST = 10_000


@router.get("/telemetry", **gives(list[dict[str, Any]] | dict[str, Any], 400, 404, 504))
async def telemetry(request: Request) -> Response:
    """Return counters: `type=topX` with `PickBy` and `limit`; `type=history` with `members` and `start_time`.

    `membersType=Devices` sums the counters of a system.
    """
    query = dict(request.query_params)
    kind = query.get("type", "topX")
    if kind not in ("topX", "history"):
        raise ConfigError(f"type must be topX or history, got {kind[:40]}")
    if kind == "history":
        names, members = read_list(query.get("attributes", "")), read_list(query.get("members", ""))
        if not names or not members:
            raise ConfigError(
                "history needs attributes=[COUNTER] and members=[PORT], with port names of resources/ports"
            )
        since_s = read_ago(query.get("start_time", "-1h"))
        history = await _with_picture(request, lambda source, picture: source.history(picture, names, members, since_s))
        return answer_json(history)
    if "PickBy" not in query:
        raise ConfigError("topX needs PickBy=COUNTER, such as PickBy=PortXmitDataExtended")
    by, limit, more = query["PickBy"], _limit(query.get("limit")), read_list(query.get("attributes", ""))
    by_device = query.get("membersType", "Ports").lower().startswith("device")
    return answer_json(
        await _with_picture(request, lambda source, picture: source.top(picture, by, limit, more, by_device=by_device))
    )


def _limit(word: str | None) -> int:
    if word is None:
        return _TOP
    if not (word.isascii() and word.isdecimal() and 0 < int(word[:9]) <= _MOST):
        raise ConfigError(f"limit must be from 1 to {_MOST}, got {word[:20]}")
    return int(word)


@router.get("/monitoring/aggr_topx", **gives(dict[str, Any], 400, 404, 504))
@router.get("/monitoring/topX", include_in_schema=False)
async def aggr_topx(request: Request) -> Response:
    """Return the busiest systems: `object=servers|switches`, `attr=bw|cong|alarms`."""
    objects, attribute = (request.query_params.get(name, default) for name, default in _DEFAULTS)
    marked = health.marked(ledger_of(request).desired())
    alarms = Counter(details["UnhealthyGUID"] for details in marked.values())
    busiest = await _with_picture(
        request, lambda source, picture: source.aggregate(picture, objects, attribute, alarms)
    )
    return answer_json({"data": busiest})


_DEFAULTS = (("object", "servers"), ("attr", "bw"))


@router.get("/monitoring/session/0/data", **gives(dict[str, Any], 404, 504))
async def session_data(request: Request) -> Response:
    """Return the default monitoring session: all counters of all ports, from the last reading."""
    return answer_json(await _with_picture(request, Telemetry.session))


async def _with_picture(request: Request, ask: Callable[[Telemetry, Picture], _T]) -> _T:
    source, watch = telemetry_of(request), context_of(request).watch
    return await ask_fabric(request, lambda: ask(source, watch.picture()))


# -- dynamic instances ------------------------------------------------------------------------------------------------


@router.get("/app/telemetry/instances", **gives(dict[str, Any], 404))
@router.get("/app/telemetry/instances/status", **gives(dict[str, Any], 404))
async def instances(request: Request) -> Response:
    telemetry_of(request)
    return answer_json({name: _instance(request) for name in context_of(request).instances.names()})


@router.get("/app/telemetry/instances/{name}", **gives(dict[str, Any], 404))
async def instance(request: Request, name: str) -> Response:
    context_of(request).instances.selection(name)
    return answer_json(_instance(request))


@router.post("/app/telemetry/instances/{name}", **gives(int, 400, 403, 404, takes=InstanceOrder))
@router.put("/app/telemetry/instances/{name}", **gives(int, 400, 403, 404, takes=InstanceOrder))
async def put_instance(request: Request, name: str) -> Response:
    """Start or change an instance; return the TCP port at which it is served."""
    telemetry_of(request)
    order = await body_of(request, InstanceOrder)
    await change(request, lambda _: None)  # adds the request to the audit log
    context_of(request).instances.put(name, order)
    return answer_json(_port(request))


@router.delete("/app/telemetry/instances/{name}", **gives(dict[str, str], 403, 404))
async def delete_instance(request: Request, name: str) -> Response:
    context_of(request).instances.remove(name)
    await change(request, lambda _: None)
    return answer_json({})


def _instance(request: Request) -> dict[str, Any]:
    return {"status": "running", "endpoint_port": _port(request)}


def _port(request: Request) -> int:
    """Return the TCP port for telemetry: the one without tokens if there is one, else the service's."""
    return context_of(request).telemetry_port or request.url.port or 443


# -- UFM Telemetry's own endpoint -------------------------------------------------------------------------------------


async def _csv(request: Request) -> Response:
    path = request.url.path
    source, context = telemetry_of(request), context_of(request)
    name = path.rpartition("/")[2]
    table = {"metrics": METRICS, "converted_enterprise": CONVERTED_ENTERPRISE}.get(name, LOW_FREQ_DEBUG)
    if name in ("metrics", "converted_enterprise", "low_freq_debug"):
        is_labelled = path.startswith("/labels")
        text = await ask_fabric(
            request, lambda: source.csv(table, None, context.watch.picture() if is_labelled else None)
        )
    else:
        selection = context.instances.selection(name)
        text = await ask_fabric(request, lambda: source.csv(METRICS, selection))
    return Response(text, media_type="text/csv")


async def _prometheus(request: Request) -> Response:
    source, context = telemetry_of(request), context_of(request)
    is_labelled = request.url.path.startswith("/labels")
    text = await ask_fabric(request, lambda: source.prometheus(context.watch.picture() if is_labelled else None))
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


_PATHS = ("/csv/metrics", "/labels/csv/metrics", "/csv/cset/converted_enterprise", "/csv/xcset/{name}")


def _add_endpoint(to: APIRouter | FastAPI) -> None:
    for path in _PATHS:
        to.add_api_route(path, _csv, methods=["GET"], include_in_schema=False)
    to.add_api_route("/labels/metrics", _prometheus, methods=["GET"], include_in_schema=False)


endpoint = APIRouter(route_class=Route)  # on the service's own port, with a token
_add_endpoint(endpoint)


def create_endpoint(settings: Settings, context: UfmContext, monitor: FabricMonitor) -> FastAPI:
    """Create UFM Telemetry's endpoint for a separate port without tokens, as UFM has it on 9001."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.settings, app.state.ufm, app.state.monitor = settings, context, monitor
    handle_errors(app)
    _add_endpoint(app)
    app.add_api_route("/metrics", _prometheus, methods=["GET"], include_in_schema=False)
    return app
