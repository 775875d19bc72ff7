"""The ports that can be members of partitions."""

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
from weft.serve.api.exchange import answer, ask_fabric, cached, caller_of, change, encoded, gives, ledger_of, refuse
from weft.serve.api.partitions import GuidText
from weft.serve.cache import ObjectCache
from weft.serve.desired import Desired
from weft.tenants.partitions import EndPort, Inventory, Partition

router = APIRouter(tags=["ports"])


class FabricPort(msgspec.Struct, kw_only=True):
    """A port of an adapter."""

    guid: str
    name: str
    host: str
    node_guid: str
    lid: int  # 0: none yet
    is_active: bool
    is_there: bool  # False: it is down now, and known from before
    partitions: list[str]  # P_Keys; must be the last field, see `_prefix`


@router.get("/ports", **gives(list[FabricPort], 422, 504, tagged=True))
async def list_ports(request: Request, host: Annotated[str | None, Query(max_length=255)] = None) -> Response:
    """Return all ports, or those of a host; a tenant sees only its own."""
    ledger, caller = ledger_of(request), caller_of(request)
    inventory, desired = await ask_fabric(request, ledger.inventory), ledger.desired()
    if caller.role is Role.TENANT:
        mine = {p_key: port for p_key, port in desired.partitions.items() if port.name == caller.tenant}
        its = set[int]().union(*(port.members for port in mine.values()))
        return answer(
            request, _some([port for port in inventory.ports if port.guid in its and host in (None, port.host)], mine)
        )
    if host is not None:
        return answer(request, _some(inventory.by_host().get(host, []), desired.partitions))
    make = partial(cached, "ports", (inventory, desired), partial(_all, inventory, desired))
    return answer(request, *await asyncio.to_thread(make))  # slow in a large fabric


@router.delete("/ports/{guid}", **gives(None, 403, 404, 409, 422, 504, status=204))
async def forget_port(request: Request, guid: GuidText) -> Response:
    """Forget a port that is down and a member of no partition."""
    if not caller_of(request).may_change:
        raise refuse(request, "only operators may forget ports")
    await change(request, lambda draft: draft.forget(int(Guid.parse(guid))))
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _some(ports: Iterable[EndPort], partitions: Mapping[int, Partition]) -> bytes:
    ordered = [(_quoted(p_key), partition.members) for p_key, partition in sorted(partitions.items())]
    return _joined((port, [p_key for p_key, members in ordered if port.guid in members]) for port in ports)


def _all(inventory: Inventory, desired: Desired) -> bytes:
    by_guid: dict[int, list[bytes]] = {}
    for p_key, partition in sorted(desired.partitions.items()):
        quoted = _quoted(p_key)
        for guid in partition.members:
            by_guid.setdefault(guid, []).append(quoted)
    return _joined((port, by_guid.get(port.guid, [])) for port in inventory.ports)


def _joined(ports: Iterable[tuple[EndPort, list[bytes]]]) -> bytes:
    """Return FabricPorts as JSON."""
    return b"[" + b",".join([_prefix(port) + b",".join(p_keys) + b"]}" for port, p_keys in ports]) + b"]"


def _quoted(p_key: int) -> bytes:
    return b'"%#06x"' % p_key


_prefixes: ObjectCache[bytes] = ObjectCache(1 << 16)  # by GUID: the encoded fields that do not depend on partitions


def _prefix(port: EndPort) -> bytes:
    """Return the JSON of a port up to its first P_Key."""
    return _prefixes.get(port.guid, (port,), lambda: encoded(_port(port)).removesuffix(b"]}"))


def _port(port: EndPort) -> FabricPort:
    return FabricPort(
        guid=str(Guid(port.guid)),
        name=port.name,
        host=port.host,
        node_guid=str(Guid(port.node_guid)),
        lid=port.lid,
        is_active=port.is_active,
        is_there=port.is_there,
        partitions=[],
    )
