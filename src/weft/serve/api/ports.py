"""The ports that can be members."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from weft.ids import Guid
from weft.serve.access import Role
from weft.serve.api.exchange import answer, ask_fabric, caller_of, encoded, gives, ledger_of
from weft.serve.desired import Desired
from weft.tenants.slices import EndPort

router = APIRouter(tags=["ports"])


class FabricPort(msgspec.Struct, kw_only=True):
    guid: str
    name: str
    host: str
    node_guid: str
    lid: int  # 0: it has none yet
    is_active: bool
    partitions: list[str]  # P_Keys


@router.get("/ports", **gives(list[FabricPort], 422, 504, tagged=True))
async def list_ports(request: Request, host: Annotated[str | None, Query(max_length=255)] = None) -> Response:
    """All, or those of a host; a tenant sees its own."""
    ledger, caller = ledger_of(request), caller_of(request)
    inventory = await ask_fabric(request, ledger.inventory)
    p_keys = _p_keys(ledger.desired(), caller.tenant if caller.role is Role.TENANT else None)
    found = [
        _port(one, p_keys.get(one.guid, []))
        for one in inventory.ports
        if host in (None, one.host) and (caller.role is not Role.TENANT or one.guid in p_keys)
    ]
    return answer(request, encoded(found))


def _p_keys(desired: Desired, tenant: str | None) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for p_key, one in sorted(desired.slices.items()):
        if tenant in (None, one.name):
            for guid in one.seats:
                found.setdefault(guid, []).append(f"{p_key:#06x}")
    return found


def _port(one: EndPort, p_keys: list[str]) -> FabricPort:
    return FabricPort(
        guid=str(Guid(one.guid)),
        name=one.name,
        host=one.host,
        node_guid=str(Guid(one.node_guid)),
        lid=one.lid,
        is_active=one.is_active,
        partitions=p_keys,
    )
