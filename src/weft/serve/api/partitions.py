"""Partitions and their members, by P_Key and port GUID."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Path, Request, Response

from weft.errors import ConfigError
from weft.ids import Guid
from weft.serve.access import Caller, Role
from weft.serve.api.exchange import answer, cached, caller_of, change, check_tags, encoded, gives, ledger_of, refuse
from weft.serve.cache import ObjectCache
from weft.serve.desired import Desired, Draft, NotFoundError
from weft.tenants.partitions import Member, Partition

router = APIRouter(tags=["partitions"])
PKeyText = Annotated[str, Path(pattern=r"^0x[0-9a-fA-F]{1,4}$", examples=["0x0101"])]
GuidText = Annotated[str, Path(pattern=r"^(0x)?[0-9a-fA-F]{1,16}$", examples=["0x0002c90300001231"])]
_Sl = Annotated[int, msgspec.Meta(ge=0, le=15)]


class MembershipIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The membership of a port in a partition. Two limited members cannot reach each other."""

    membership: Literal["full", "limited"] = "full"
    index0: bool = False  # the P_Key goes to index 0 of the port's table
    absent: bool = False  # accept a GUID that is not in the fabric yet


class MemberIn(MembershipIn, kw_only=True, forbid_unknown_fields=True):
    """A member in a request."""

    guid: str


class PartitionOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The options of a partition."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=31)]
    ipoib: bool = False
    sl: _Sl = 0
    mtu_bytes: Literal[256, 512, 1024, 2048, 4096] | None = None
    rate_gbit_s: float | None = None


class PartitionIn(PartitionOptions, kw_only=True, forbid_unknown_fields=True):
    """A partition in a request."""

    members: list[MemberIn] = []


class MemberOut(msgspec.Struct, kw_only=True):
    """A member of a partition."""

    guid: str
    membership: Literal["full", "limited"]
    index0: bool


class PartitionOut(msgspec.Struct, kw_only=True):
    """A partition with its members."""

    p_key: str
    name: str
    owner: str  # direct, or intent (changed only through the intent)
    ipoib: bool
    sl: int
    mtu_bytes: int | None
    rate_gbit_s: float | None
    members: list[MemberOut]


class PartitionSummary(msgspec.Struct, kw_only=True):
    """A partition with its number of members."""

    p_key: str
    name: str
    owner: str
    members: int


_encoded: ObjectCache[bytes] = ObjectCache(4096)  # by P_Key


def show(desired: Desired | Draft, p_key: int) -> bytes:
    """Return a partition as JSON. Raise NotFoundError if it does not exist."""
    partition = desired.partitions.get(p_key)
    if partition is None:
        raise NotFoundError(f"there is no partition {p_key:#06x}")
    owner = desired.owners[p_key]
    return _encoded.get(p_key, (partition, owner), lambda: encoded(_partition_out(partition, owner)))


def _partition_out(partition: Partition, owner: str) -> PartitionOut:
    return PartitionOut(
        p_key=f"{partition.p_key:#06x}",
        name=partition.name,
        owner=owner,
        ipoib=partition.ipoib,
        sl=partition.sl,
        mtu_bytes=partition.mtu_bytes,
        rate_gbit_s=partition.rate_gbit_s,
        members=[_member_out(guid, member) for guid, member in partition.members.items()],
    )


def _member_out(guid: int, member: Member) -> MemberOut:
    return MemberOut(guid=str(Guid(guid)), membership="full" if member.full else "limited", index0=member.index0)


def sees(caller: Caller, partition: Partition) -> bool:
    """Return whether a caller may see a partition: a tenant sees only its own."""
    return caller.role is not Role.TENANT or partition.name == caller.tenant


def _visible(request: Request, p_key: int) -> Desired:
    desired, caller = ledger_of(request).desired(), caller_of(request)
    partition = desired.partitions.get(p_key)
    if partition is None or not sees(caller, partition):  # tenants must not learn about other partitions
        raise NotFoundError(f"there is no partition {p_key:#06x}")
    return desired


def _operators_only(request: Request) -> None:
    if not caller_of(request).may_change:
        raise refuse(request, "only operators may change partitions")


# -- partitions -------------------------------------------------------------------------------------------------------


@router.get("/partitions", **gives(list[PartitionSummary], tagged=True))
async def list_partitions(request: Request) -> Response:
    """Return a summary of all partitions."""
    desired, caller = ledger_of(request).desired(), caller_of(request)
    tenant = caller.tenant if caller.role is Role.TENANT else None
    return answer(request, *cached(("partitions", tenant), (desired,), lambda: _summaries(desired, tenant)))


def _summaries(desired: Desired, tenant: str | None) -> bytes:
    return encoded(
        [
            PartitionSummary(
                p_key=f"{p_key:#06x}", name=partition.name, owner=desired.owners[p_key], members=len(partition.members)
            )
            for p_key, partition in sorted(desired.partitions.items())
            if tenant in (None, partition.name)
        ]
    )


@router.get("/partitions/{p_key}", **gives(PartitionOut, 404, 422, tagged=True))
async def get_partition(request: Request, p_key: PKeyText) -> Response:
    """Return a partition with its members."""
    number = int(p_key, 16)
    return answer(request, show(_visible(request, number), number))


@router.put(
    "/partitions/{p_key}", **gives(PartitionOut, 400, 403, 404, 409, 412, 422, 504, takes=PartitionIn, tagged=True)
)
async def put_partition(request: Request, p_key: PKeyText) -> Response:
    """Create or replace a partition."""
    _operators_only(request)
    body, number = msgspec.json.decode(await request.body(), type=PartitionIn), int(p_key, 16)

    def edit(draft: Draft) -> bytes:
        check_tags(request, show(draft, number) if number in draft.partitions else None)
        before = draft.partitions.get(number)
        members = {_guid(member.guid): _member_of(member) for member in body.members}
        if len(members) < len(body.members):
            raise ConfigError(f"partition {number:#06x} has a GUID twice; list each member once")
        _check_ports(draft, {_guid(member.guid): member for member in body.members}, before)
        draft.put(
            Partition(
                name=body.name,
                p_key=number,
                members=members,
                ipoib=body.ipoib,
                sl=body.sl,
                mtu_bytes=body.mtu_bytes,
                rate_gbit_s=body.rate_gbit_s,
            )
        )
        return show(draft, number)

    return answer(request, await change(request, edit))


@router.delete("/partitions/{p_key}", **gives(None, 403, 404, 409, 412, 422, 504, status=204, tagged=True))
async def delete_partition(request: Request, p_key: PKeyText) -> Response:
    """Delete a partition."""
    _operators_only(request)
    number = int(p_key, 16)

    def edit(draft: Draft) -> None:
        check_tags(request, show(draft, number))
        draft.remove(number)

    await change(request, edit)
    return Response(status_code=HTTPStatus.NO_CONTENT)


# -- members ----------------------------------------------------------------------------------------------------------


@router.get("/partitions/{p_key}/members/{guid}", **gives(MemberOut, 404, 422, tagged=True))
async def get_member(request: Request, p_key: PKeyText, guid: GuidText) -> Response:
    number, port = int(p_key, 16), _guid(guid)
    return answer(request, encoded(_member_out(port, _member(_visible(request, number).partitions, number, port))))


@router.put(
    "/partitions/{p_key}/members/{guid}",
    **gives(MemberOut, 400, 403, 404, 409, 412, 422, 504, takes=MembershipIn, tagged=True),
)
async def put_member(request: Request, p_key: PKeyText, guid: GuidText) -> Response:
    """Add a port to a partition, or change its membership."""
    _operators_only(request)
    number, port = int(p_key, 16), _guid(guid)
    body = await request.body()
    membership = msgspec.json.decode(body, type=MembershipIn) if body else MembershipIn()

    def edit(draft: Draft) -> bytes:
        show(draft, number)  # raises NotFoundError if there is no such partition
        before = draft.partitions[number]
        current = before.members.get(port)
        check_tags(request, None if current is None else encoded(_member_out(port, current)))
        _check_ports(draft, {port: membership}, before)
        draft.put(replace(before, members={**before.members, port: _member_of(membership)}))
        return encoded(_member_out(port, _member_of(membership)))

    return answer(request, await change(request, edit))


@router.delete(
    "/partitions/{p_key}/members/{guid}", **gives(None, 403, 404, 409, 412, 422, 504, status=204, tagged=True)
)
async def delete_member(request: Request, p_key: PKeyText, guid: GuidText) -> Response:
    """Remove a port from a partition."""
    _operators_only(request)
    number, port = int(p_key, 16), _guid(guid)

    def edit(draft: Draft) -> None:
        check_tags(request, encoded(_member_out(port, _member(draft.partitions, number, port))))
        before = draft.partitions[number]
        draft.put(replace(before, members={other: member for other, member in before.members.items() if other != port}))

    await change(request, edit)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _member(partitions: Mapping[int, Partition], p_key: int, guid: int) -> Member:
    if p_key not in partitions:
        raise NotFoundError(f"there is no partition {p_key:#06x}")
    if guid not in partitions[p_key].members:
        raise NotFoundError(f"port {Guid(guid)} is not a member of {partitions[p_key].label}")
    return partitions[p_key].members[guid]


def _guid(text: str) -> int:
    parsed = Guid.parse(text)
    if parsed == 0:
        raise ConfigError("the GUID must not be 0")
    return int(parsed)


def _member_of(membership: MembershipIn) -> Member:
    return Member(full=membership.membership == "full", index0=membership.index0)


def _check_ports(draft: Draft, memberships: Mapping[int, MembershipIn], before: Partition | None) -> None:
    """Check that new members are ports of the fabric, unless the request marks them as absent."""
    ports, members = draft.inventory.by_guid(), before.members if before else {}
    for guid, membership in memberships.items():
        if guid not in ports and guid not in members and not membership.absent:
            raise ConfigError(
                f'no port has the GUID {Guid(guid)} in the fabric; add "absent": true if it is connected later'
            )
