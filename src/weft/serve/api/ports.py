"""The ports that can be members."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from weft.ids import Guid
from weft.serve.access import Role
from weft.serve.api.exchange import answer, ask_fabric, caller_of, change, encoded, gives, kept, ledger_of, refuse
from weft.serve.api.partitions import GuidText
from weft.serve.desired import Desired
from weft.tenants.partitions import EndPort, Inventory, Partition

router = APIRouter(tags=["ports"])


class FabricPort(msgspec.Struct, kw_only=True):
    guid: str
    name: str
    host: str
    node_guid: str
    lid: int  # 0: it has none yet
    is_active: bool
    is_there: bool  # else it was seen before, and is gone now
    partitions: list[str]  # P_Keys; last, see `_begun`


@router.get("/ports", **gives(list[FabricPort], 422, 504, tagged=True))
async def list_ports(request: Request, host: Annotated[str | None, Query(max_length=255)] = None) -> Response:
    """All, or those of a host; a tenant sees its own."""
    ledger, caller = ledger_of(request), caller_of(request)
    inventory, desired = await ask_fabric(request, ledger.inventory), ledger.desired()
    if caller.role is Role.TENANT:
        mine = {p_key: one for p_key, one in desired.partitions.items() if one.name == caller.tenant}
        its = set[int]().union(*(one.members for one in mine.values()))
        return answer(
            request, _some([one for one in inventory.ports if one.guid in its and host in (None, one.host)], mine)
        )
    if host is not None:
        return answer(request, _some(inventory.by_host().get(host, []), desired.partitions))
    make = partial(kept, "ports", (inventory, desired), partial(_all, inventory, desired))
    return answer(request, *await asyncio.to_thread(make))  # of a large fabric it takes a while


@router.delete("/ports/{guid}", **gives(None, 403, 404, 409, 422, 504, status=204))
async def forget_port(request: Request, guid: GuidText) -> Response:
    """Forget a port that is gone and a member of nothing."""
    if not caller_of(request).may_change:
        raise refuse(request, "ports are forgotten by operators")
    await change(request, lambda draft: draft.forget(int(Guid.parse(guid))))
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _some(ports: Iterable[EndPort], partitions: Mapping[int, Partition]) -> bytes:
    ordered = [(_quoted(p_key), one.members) for p_key, one in sorted(partitions.items())]
    return _joined((port, [p_key for p_key, members in ordered if port.guid in members]) for port in ports)


def _all(inventory: Inventory, desired: Desired) -> bytes:
    found: dict[int, list[bytes]] = {}
    for p_key, one in sorted(desired.partitions.items()):
        quoted = _quoted(p_key)
        for guid in one.members:
            found.setdefault(guid, []).append(quoted)
    return _joined((port, found.get(port.guid, [])) for port in inventory.ports)


def _joined(ports: Iterable[tuple[EndPort, list[bytes]]]) -> bytes:
    """FabricPorts as JSON."""
    return b"[" + b",".join([_begun(port) + b",".join(p_keys) + b"]}" for port, p_keys in ports]) + b"]"


def _quoted(p_key: int) -> bytes:
    return b'"%#06x"' % p_key


_written: dict[int, tuple[EndPort, bytes]] = {}  # by GUID: what does not change with the partitions


def _begun(port: EndPort) -> bytes:
    """As JSON, up to its first P_Key."""
    last = _written.get(port.guid)
    if last is None or last[0] is not port:
        last = _written[port.guid] = port, encoded(_port(port)).removesuffix(b"]}")
    return last[1]


def _port(one: EndPort) -> FabricPort:
    return FabricPort(
        guid=str(Guid(one.guid)),
        name=one.name,
        host=one.host,
        node_guid=str(Guid(one.node_guid)),
        lid=one.lid,
        is_active=one.is_active,
        is_there=one.is_there,
        partitions=[],
    )
