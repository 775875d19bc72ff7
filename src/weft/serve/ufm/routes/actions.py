"""The calls `actions` and `cloudx`, and their jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from weft.errors import ConfigError, find_named
from weft.serve.api.exchange import change, gives
from weft.serve.ufm import cloudx, health, jobs
from weft.serve.ufm.routes.app import set_policy
from weft.serve.ufm.routes.context import Route, answer_json, body_of, context_of

router = APIRouter(route_class=Route, tags=["UFM"])


_Word = Annotated[str, msgspec.Meta(max_length=100)]


class Action(msgspec.Struct, kw_only=True):
    """A request for an action."""

    action: _Word
    object_ids: Annotated[list[_Word], msgspec.Meta(max_length=1000)]
    params: dict[str, Any] = {}
    object_type: str = "System"
    identifier: str = "id"
    description: str = ""


@router.post("/actions", **gives(str, 400, 403, 404, 409, status=202, takes=Action))
async def act(request: Request) -> Response:
    body = await body_of(request, Action)
    do = find_named("action", body.action, _ACTIONS)
    await do(request, body)
    summary = f"{body.action} of {', '.join(body.object_ids)}"
    number = context_of(request).jobs.add(jobs.new_job(body.action, body.object_ids, summary))
    where = f"{request.url.path.removesuffix('/actions')}/jobs/{number}"
    return answer_json(where, 202, Location=where)


async def _reset(request: Request, body: Action) -> None:
    context = context_of(request)
    picture = await asyncio.to_thread(context.watch.picture)
    await asyncio.to_thread(health.reset, picture, context.actions, str(body.params.get("port_id", "")))
    await change(request, lambda _: None)  # adds the request to the audit log


async def _isolate(request: Request, body: Action) -> None:
    words = {"devices": body.object_ids, "ports_policy": "UNHEALTHY", "action": body.params.get("action")}
    await set_policy(request, msgspec.convert(words, health.Policy))


async def _heal(request: Request, body: Action) -> None:
    await set_policy(request, health.Policy(devices=body.object_ids, ports_policy="HEALTHY"))


_ACTIONS = {"reset": _reset, "mark_device_unhealthy": _isolate, "mark_device_healthy": _heal}


@router.get("/jobs", **gives(list[dict[str, Any]]))
async def all_jobs(request: Request) -> Response:
    """Return all jobs. `parent_id` selects jobs below a job, of which there are none."""
    entries = [] if "parent_id" in request.query_params else context_of(request).jobs.all()
    return answer_json([jobs.job(*entry) for entry in entries])


@router.get("/jobs/{number}", **gives(dict[str, Any], 404))
@router.get("/app/jobs/{number}", **gives(dict[str, Any], 404))
async def one_job(request: Request, number: str) -> Response:
    return answer_json(jobs.job(*context_of(request).jobs.find(number)))


# -- Neutron ----------------------------------------------------------------------------------------------------------


@router.post("/cloudx/Network", **gives(str, 400, 403, 404, 409, takes=cloudx.NeutronNetwork))
@router.put("/cloudx/Network/{name}", **gives(str, 400, 403, 404, 409, takes=cloudx.NeutronNetwork))
async def put_network(request: Request, name: str = "") -> Response:
    body = _named(await body_of(request, cloudx.NeutronNetwork), name)
    return await _job(request, f"network {body.id}", lambda draft: cloudx.put_network(draft, body))


@router.post("/cloudx/Port", **gives(str, 400, 403, 404, 409, takes=cloudx.NeutronPort))
@router.put("/cloudx/Port/{name}", **gives(str, 400, 403, 404, 409, takes=cloudx.NeutronPort))
async def put_port(request: Request, name: str = "") -> Response:
    body = _named(await body_of(request, cloudx.NeutronPort), name)
    return await _job(request, f"port {body.id}", lambda draft: cloudx.put_port(draft, body))


@router.delete("/cloudx/Network/{name}", **gives(str, 403, 404, 409))
async def delete_network(request: Request, name: str) -> Response:
    return await _job(request, f"network {name}", lambda draft: cloudx.delete_network(draft, name))


@router.delete("/cloudx/Port/{name}", **gives(str, 403, 404, 409))
async def delete_port(request: Request, name: str) -> Response:
    return await _job(request, f"port {name}", lambda draft: cloudx.delete_port(draft, name))


_Named = TypeVar("_Named", cloudx.NeutronNetwork, cloudx.NeutronPort)


def _named(body: _Named, name: str) -> _Named:
    if name and body.id != name:
        raise ConfigError(f"the id {body.id!r} in the body differs from {name!r} in the path")
    return body


async def _job(request: Request, title: str, edit: Callable[[Any], None]) -> Response:
    """Apply an edit; return the path of its (completed) job relative to the base."""
    await change(request, edit)
    number = context_of(request).jobs.add(jobs.new_job(f"{request.method} {title}", [title], f"{title} is done"))
    return answer_json(f"app/jobs/{number}")
