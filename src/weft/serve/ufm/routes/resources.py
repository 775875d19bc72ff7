"""The calls `resources/...`: systems, ports and links."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from weft.serve.api.exchange import gives, ledger_of
from weft.serve.ufm import health, queries
from weft.serve.ufm.routes.context import Route, answer_cached, answer_json, context_of

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
