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
from weft.serve.api.exchange import answer, caller_of, change, check_tags, encoded, gives, kept, ledger_of, refuse
from weft.serve.desired import Desired, Draft, NotFoundError
from weft.tenants.partitions import Member, Partition

router = APIRouter(tags=["partitions"])
PKeyText = Annotated[str, Path(pattern=r"^0x[0-9a-fA-F]{1,4}$", examples=["0x0101"])]
GuidText = Annotated[str, Path(pattern=r"^(0x)?[0-9a-fA-F]{1,16}$", examples=["0x0002c90300001231"])]
_Sl = Annotated[int, msgspec.Meta(ge=0, le=15)]


class MembershipIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a port is in a partition. Two limited members do not reach each other."""

    membership: Literal["full", "limited"] = "full"
    index0: bool = False  # the key goes to index 0 of the port's table
    absent: bool = False  # the port is not there yet: its GUID is taken as it is


class MemberIn(MembershipIn, kw_only=True, forbid_unknown_fields=True):
    guid: str


class PartitionOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=31)]
    ipoib: bool = False
    sl: _Sl = 0
    mtu_bytes: Literal[256, 512, 1024, 2048, 4096] | None = None
    rate_gbit_s: float | None = None


class PartitionIn(PartitionOptions, kw_only=True, forbid_unknown_fields=True):
    """A partition to make, or to put in the place of the one that is there."""

    members: list[MemberIn] = []


class MemberOut(msgspec.Struct, kw_only=True):
    guid: str
    membership: Literal["full", "limited"]
    index0: bool


class PartitionOut(msgspec.Struct, kw_only=True):
    p_key: str
    name: str
    owner: str  # direct, or intent: then it changes with the intent alone
    ipoib: bool
    sl: int
    mtu_bytes: int | None
    rate_gbit_s: float | None
    members: list[MemberOut]


class PartitionSummary(msgspec.Struct, kw_only=True):
    p_key: str
    name: str
    owner: str
    members: int


_shown: dict[int, tuple[Partition, str, bytes]] = {}  # the last answer for a P_Key, and of what


def show(desired: Desired | Draft, p_key: int) -> bytes:
    """A partition as JSON; NotFoundError if it is not there."""
    one = desired.partitions.get(p_key)
    if one is None:
        raise NotFoundError(f"there is no partition {p_key:#06x}")
    owner = desired.owners[p_key]
    last = _shown.get(p_key)
    if last is None or last[0] is not one or last[1] != owner:
        last = _shown[p_key] = (one, owner, encoded(_partition_out(one, owner)))
    return last[2]


def _partition_out(one: Partition, owner: str) -> PartitionOut:
    return PartitionOut(
        p_key=f"{one.p_key:#06x}",
        name=one.name,
        owner=owner,
        ipoib=one.ipoib,
        sl=one.sl,
        mtu_bytes=one.mtu_bytes,
        rate_gbit_s=one.rate_gbit_s,
        members=[_member_out(guid, member) for guid, member in one.members.items()],
    )


def _member_out(guid: int, member: Member) -> MemberOut:
    return MemberOut(guid=str(Guid(guid)), membership="full" if member.full else "limited", index0=member.index0)


def sees(caller: Caller, one: Partition) -> bool:
    """A tenant sees the partition of its name."""
    return caller.role is not Role.TENANT or one.name == caller.tenant


def _visible(request: Request, p_key: int) -> Desired:
    desired, caller = ledger_of(request).desired(), caller_of(request)
    one = desired.partitions.get(p_key)
    if one is None or not sees(caller, one):  # what others have is nothing that a tenant could learn of here
        raise NotFoundError(f"there is no partition {p_key:#06x}")
    return desired


def _operators_only(request: Request) -> None:
    if not caller_of(request).may_change:
        raise refuse(request, "partitions are changed by operators")


# -- partitions -------------------------------------------------------------------------------------------------------


@router.get("/partitions", **gives(list[PartitionSummary], tagged=True))
async def list_partitions(request: Request) -> Response:
    """All partitions, briefly."""
    desired, caller = ledger_of(request).desired(), caller_of(request)
    tenant = caller.tenant if caller.role is Role.TENANT else None
    return answer(request, *kept(("partitions", tenant), (desired,), lambda: _summaries(desired, tenant)))


def _summaries(desired: Desired, tenant: str | None) -> bytes:
    return encoded(
        [
            PartitionSummary(
                p_key=f"{p_key:#06x}", name=one.name, owner=desired.owners[p_key], members=len(one.members)
            )
            for p_key, one in sorted(desired.partitions.items())
            if tenant in (None, one.name)
        ]
    )


@router.get("/partitions/{p_key}", **gives(PartitionOut, 404, 422, tagged=True))
async def get_partition(request: Request, p_key: PKeyText) -> Response:
    """One, with its members."""
    number = int(p_key, 16)
    return answer(request, show(_visible(request, number), number))


@router.put(
    "/partitions/{p_key}", **gives(PartitionOut, 400, 403, 404, 409, 412, 422, 504, takes=PartitionIn, tagged=True)
)
async def put_partition(request: Request, p_key: PKeyText) -> Response:
    """Make it, or put this in the place of the one that is there."""
    _operators_only(request)
    wanted, number = msgspec.json.decode(await request.body(), type=PartitionIn), int(p_key, 16)

    def edit(draft: Draft) -> bytes:
        check_tags(request, show(draft, number) if number in draft.partitions else None)
        before = draft.partitions.get(number)
        members = {_guid(one.guid): _seat(one) for one in wanted.members}
        if len(members) < len(wanted.members):
            raise ConfigError(f"partition {number:#06x} is refused: a GUID is there twice")
        _check_ports(draft, {_guid(one.guid): one for one in wanted.members}, before)
        draft.put(
            Partition(
                name=wanted.name,
                p_key=number,
                members=members,
                ipoib=wanted.ipoib,
                sl=wanted.sl,
                mtu_bytes=wanted.mtu_bytes,
                rate_gbit_s=wanted.rate_gbit_s,
            )
        )
        return show(draft, number)

    return answer(request, await change(request, edit))


@router.delete("/partitions/{p_key}", **gives(None, 403, 404, 409, 412, 422, 504, status=204, tagged=True))
async def delete_partition(request: Request, p_key: PKeyText) -> Response:
    """Take it away from all its members."""
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
    """Let a port in, or change what it is there. Done twice, it is as done once."""
    _operators_only(request)
    number, port = int(p_key, 16), _guid(guid)
    body = await request.body()
    wanted = msgspec.json.decode(body, type=MembershipIn) if body else MembershipIn()

    def edit(draft: Draft) -> bytes:
        show(draft, number)  # NotFoundError if there is no such partition
        before = draft.partitions[number]
        there = before.members.get(port)
        check_tags(request, None if there is None else encoded(_member_out(port, there)))
        _check_ports(draft, {port: wanted}, before)
        draft.put(replace(before, members={**before.members, port: _seat(wanted)}))
        return encoded(_member_out(port, _seat(wanted)))

    return answer(request, await change(request, edit))


@router.delete(
    "/partitions/{p_key}/members/{guid}", **gives(None, 403, 404, 409, 412, 422, 504, status=204, tagged=True)
)
async def delete_member(request: Request, p_key: PKeyText, guid: GuidText) -> Response:
    """Take a port out."""
    _operators_only(request)
    number, port = int(p_key, 16), _guid(guid)

    def edit(draft: Draft) -> None:
        check_tags(request, encoded(_member_out(port, _member(draft.partitions, number, port))))
        before = draft.partitions[number]
        draft.put(replace(before, members={one: member for one, member in before.members.items() if one != port}))

    await change(request, edit)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _member(partitions: Mapping[int, Partition], p_key: int, guid: int) -> Member:
    if p_key not in partitions:
        raise NotFoundError(f"there is no partition {p_key:#06x}")
    if guid not in partitions[p_key].members:
        raise NotFoundError(f"port {Guid(guid)} is no member of {partitions[p_key].label}")
    return partitions[p_key].members[guid]


def _guid(text: str) -> int:
    found = Guid.parse(text)
    if found == 0:
        raise ConfigError("the GUID 0 is refused: it is no port's")
    return int(found)


def _seat(one: MembershipIn) -> Member:
    return Member(full=one.membership == "full", index0=one.index0)


def _check_ports(draft: Draft, wanted: Mapping[int, MembershipIn], before: Partition | None) -> None:
    """A port that is not there is a slip of the pen, unless it is said, or had its member before."""
    known, members = draft.inventory.by_guid(), before.members if before else {}
    for guid, one in wanted.items():
        if guid not in known and guid not in members and not one.absent:
            raise ConfigError(
                f'there is no port with the GUID {Guid(guid)} in the fabric; say "absent": true if it comes later'
            )
