"""The calls `resources/...`, systems, ports and links; and `reports/...`, the health of the fabric and the service."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from weft.errors import UnknownName
from weft.serve.api.exchange import ask_fabric, gives, ledger_of
from weft.serve.ufm import health, queries, reports
from weft.serve.ufm.routes.context import Route, answer_cached, answer_json, body_of, context_of, monitor_of

router = APIRouter(route_class=Route, tags=["UFM"])
_MANY = list[dict[str, Any]] | dict[str, Any]  # or one page of them


@router.get("/resources/ports", **gives(_MANY, 400, 404))
async def ports(request: Request) -> Response:
    return await answer_cached(request, "ports", lambda picture, query: _paged(queries.ports(picture, query), query))


@router.get("/resources/ports/{names}", **gives(list[dict[str, Any]], 400, 404))
async def named_ports(request: Request, names: str) -> Response:
    picture = await asyncio.to_thread(context_of(request).watch.picture)
    return answer_json(queries.named("port", names, picture.named))


@router.get("/resources/systems", **gives(_MANY, 400, 404))
async def systems(request: Request) -> Response:
    return await answer_cached(
        request, "systems", lambda picture, query: _paged(queries.systems(picture, query), query)
    )


@router.get("/resources/systems/{names}", **gives(list[dict[str, Any]], 400, 404))
async def named_systems(request: Request, names: str) -> Response:
    picture = await asyncio.to_thread(context_of(request).watch.picture)
    return answer_json(queries.named("system", names, {system.guid: system for system in picture.systems}.get))


@router.get("/resources/links", **gives(_MANY, 400, 404))
async def links(request: Request) -> Response:
    return await answer_cached(request, "links", lambda picture, query: _paged(queries.links(picture, query), query))


@router.get("/resources/vports", **gives(list[dict[str, Any]]))
async def vports() -> Response:
    """Return no virtual ports: adapters of a lab have none."""
    return answer_json([])


@router.get("/resources/logical_servers", **gives(list[dict[str, Any]]))
async def logical_servers() -> Response:
    """Return nothing: UFM's logical model is not supported."""
    return answer_json([])


@router.get("/resources/isolated_ports", **gives(dict[str, list[str]]))
async def isolated_ports(request: Request) -> Response:
    """Return the ports disabled by `PUT app/unhealthy_ports` with the action isolate."""
    names = health.isolated(ledger_of(request).desired())
    return answer_json({"isolated_ports": [f"0x{name}" for name in names]})


def _paged(items: list[Any], query: dict[str, str]) -> Any:
    return {"data": queries.page(items, query)} if queries.is_paged(query) else items


@router.post(
    f"/reports/{reports.FABRIC}", **gives(dict[str, str], 400, 403, 404, status=202, takes=reports.FabricHealth)
)
async def fabric_health(request: Request) -> Response:
    checks = await body_of(request, reports.FabricHealth)
    monitor, watch = monitor_of(request), context_of(request).watch
    marked = health.marked(ledger_of(request).desired())

    def make() -> dict[str, Any]:
        manager = monitor.manager()
        masters = [manager.host] if manager is not None and manager.state == "master" else []
        standby = (manager.standby or []) if manager is not None else []
        return reports.fabric_health(checks, reports.Fabric(watch.picture(), marked, masters, standby))

    return _started(request, await ask_fabric(request, make))


@router.post(f"/reports/{reports.SERVICE}", **gives(dict[str, str], 403, status=202))
async def service_health(request: Request) -> Response:
    watcher = request.app.state.watcher
    trouble = "" if watcher is None else watcher.trouble
    return _started(request, await asyncio.to_thread(reports.service_health, ledger_of(request), trouble))


def _started(request: Request, report: dict[str, Any]) -> Response:
    """Store a report and answer with its number; clients can fetch it at once."""
    return answer_json({"report_id": str(context_of(request).reports.add(report))}, 202)


@router.get("/reports/last_report/{kind}", **gives(dict[str, Any], 404))
async def last_report(request: Request, kind: str) -> Response:
    matches = [report for _, report in context_of(request).reports.all() if report["report"] == kind]
    if not matches:
        raise UnknownName("report", kind[:40], (reports.FABRIC, reports.SERVICE), "Start one with POST.")
    return answer_json(matches[-1])


@router.get("/reports/{number}", **gives(dict[str, Any], 404))
async def report(request: Request, number: str) -> Response:
    return answer_json(context_of(request).reports.find(number)[1])


@router.delete("/reports/{number}", **gives(dict[str, str], 403, 404))
async def delete_report(request: Request, number: str) -> Response:
    context_of(request).reports.remove(number)
    return answer_json({})
