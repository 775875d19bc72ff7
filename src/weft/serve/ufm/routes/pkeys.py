"""The calls `resources/pkeys`: partitions, their members and limits."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

from fastapi import APIRouter, Request, Response

from weft.errors import ConfigError
from weft.serve.api.exchange import change, gives, ledger_of
from weft.serve.ufm import partitions, queries
from weft.serve.ufm.routes.context import Route, answer_json, body_of

router = APIRouter(route_class=Route, tags=["UFM"])


@router.get("/resources/pkeys", **gives(list[str] | dict[str, Any], 400))
@router.get("/resources/pkeys/", include_in_schema=False)
async def pkeys(request: Request) -> Response:
    """Return all partitions; without a flag only their P_Keys, as in UFM."""
    flags, desired = _flags(request), ledger_of(request).desired()
    descriptions = await asyncio.to_thread(partitions.described, desired, **flags)
    return answer_json(descriptions if any(flags.values()) else list(descriptions))


@router.get("/resources/pkeys/{pkey}", **gives(dict[str, Any], 400))
async def pkey(request: Request, pkey: str) -> Response:
    desired = ledger_of(request).desired()
    return answer_json(partitions.describe(desired, partitions.read_p_key(pkey), **_flags(request)))


def _flags(request: Request) -> dict[str, bool]:
    for name in request.query_params:
        if name not in ("guids_data", "qos_conf"):
            raise ConfigError(f"unknown query {name!r}; use guids_data and qos_conf")
    return {name: queries.is_set(request.query_params, name) for name in ("guids_data", "qos_conf")}


@router.post("/resources/pkeys", **gives(dict[str, str], 400, 403, 409, takes=partitions.Guids))
@router.post("/resources/pkeys/", include_in_schema=False)
async def add_guids(request: Request) -> Response:
    body = await body_of(request, partitions.Guids)
    await change(request, lambda draft: partitions.add(draft, body, body.members()))
    return answer_json({})


@router.put("/resources/pkeys", **gives(dict[str, str], 400, 403, 409, takes=partitions.Guids))
@router.put("/resources/pkeys/", include_in_schema=False)
async def set_guids(request: Request) -> Response:
    body = await body_of(request, partitions.Guids)
    await change(request, lambda draft: partitions.replace_members(draft, body, body.members()))
    return answer_json({})


@router.post("/resources/pkeys/add", **gives(dict[str, str], 400, 403, 409, takes=partitions.Create))
async def create_pkey(request: Request) -> Response:
    body = await body_of(request, partitions.Create)
    await change(request, lambda draft: partitions.create(draft, body))
    return answer_json({})


@router.post("/resources/pkeys/hosts", **gives(dict[str, str], 400, 403, 404, 409, takes=partitions.Hosts))
async def add_hosts(request: Request) -> Response:
    body = await body_of(request, partitions.Hosts)
    await change(request, lambda draft: partitions.add_hosts(draft, body))
    return answer_json({})


@router.put("/resources/pkeys/qos_conf", **gives(dict[str, str], 400, 403, 404, 409, takes=partitions.Qos))
async def set_qos_conf(request: Request) -> Response:
    body = await body_of(request, partitions.Qos)
    await change(request, lambda draft: partitions.limit(draft, body))
    return answer_json({})


@router.delete("/resources/pkeys/{pkey}", **gives(dict[str, str], 400, 403, 404, 409))
async def delete_pkey(request: Request, pkey: str) -> Response:
    p_key = partitions.read_p_key(pkey)
    await change(request, lambda draft: draft.remove(p_key))
    return answer_json({})


@router.delete("/resources/pkeys/{pkey}/guids/{guids}", **gives(dict[str, str], 400, 403, 404, 409))
async def delete_guids(request: Request, pkey: str, guids: str) -> Response:
    return await _remove(request, pkey, guids.split(","))


@router.post("/actions/remove_guids_from_pkey", **gives(dict[str, str], 400, 403, 404, 409, takes=partitions.Removal))
async def remove_guids_from_pkey(request: Request) -> Response:
    body = await body_of(request, partitions.Removal)
    return await _remove(request, body.pkey, body.guids)


async def _remove(request: Request, pkey: str, guids: list[str]) -> Response:
    p_key, removed = partitions.read_p_key(pkey), [partitions.read_guid(guid) for guid in guids]
    await change(request, lambda draft: partitions.remove(draft, p_key, removed))
    return answer_json({})


@router.delete("/resources/pkeys/{pkey}/hosts/{hosts}", **gives(dict[str, str], 400, 403, 404, 409))
async def delete_hosts(request: Request, pkey: str, hosts: str) -> Response:
    """Remove the ports of hosts, including hosts that are down but were added by name."""
    p_key, names = partitions.read_p_key(pkey), unquote(hosts)
    await change(request, lambda draft: partitions.remove_hosts(draft, p_key, names))
    return answer_json({})
