"""UFM's partitions: request bodies, edits, and answers.

    POST resources/pkeys    {"pkey": "0x101", "guids": ["0002c90300001231"], "membership": "full", "index0": false}
    GET  resources/pkeys?guids_data=true

A partition that a call names for the first time is created with UFM's name for it: api_pkey_0x101. Such a partition is
deleted with its last member, so that partitions of a scheduler's jobs do not accumulate; a named one stays. GUIDs may
be unknown: those of virtual functions appear when a machine starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec

from weft.errors import ConfigError, UnknownName
from weft.fabric.files.hostlist import expand
from weft.serve.cache import ObjectCache
from weft.serve.desired import ConflictError, Desired, Draft, NotFoundError
from weft.serve.ufm.shapes import hex_guid
from weft.sm.pkey.partitions import DEFAULT_P_KEY
from weft.tenants.drivers.partition_files import check_name
from weft.tenants.partitions import Member, Partition

_GUID = re.compile(r"(?:0x)?([0-9a-f]{16})", re.I)
_P_KEY = re.compile(r"0x[0-9a-f]{1,4}", re.I)
_HOSTS = "ufm.hosts"  # kind of documents, by P_Key: GUIDs of hosts that were added by name
_MANAGEMENT = "management"  # UFM's name for Default
_RATE_GBIT_S = 2.5  # UFM's default
_MTUS = (2, 4)
_Membership = Literal["full", "limited"]
# In the OpenAPI document only; the checks below have better messages.
_PKey = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^0x[0-9a-f]{1,4}$", "examples": ["0x101"]})]
_Guid = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^[0-9a-f]{16}$", "examples": ["0002c90300001231"]})]


class _Limits(msgspec.Struct, kw_only=True):
    mtu_limit: int | None = None  # in 1024 bytes
    rate_limit: float | None = None  # in Gbit/s
    service_level: int | None = None


class Create(_Limits, kw_only=True):
    """A request to create a partition."""

    pkey: _PKey
    partition_name: str | None = None
    index0: bool = False
    ip_over_ib: bool = True


class Guids(Create, kw_only=True):
    """A request with member GUIDs."""

    guids: list[_Guid]
    membership: _Membership = "full"  # for all GUIDs, or
    memberships: list[_Membership] | None = None  # for each GUID

    def members(self) -> dict[int, Member]:
        memberships = self.memberships or [self.membership] * len(self.guids)
        if len(memberships) != len(self.guids):
            raise ConfigError(
                f"got {len(memberships)} memberships for {len(self.guids)} GUIDs: give one for each GUID, or a single "
                "membership"
            )
        pairs = zip(self.guids, memberships, strict=True)
        return {read_guid(guid): Member(word == "full", self.index0) for guid, word in pairs}


class Hosts(Create, kw_only=True):
    """A request with hosts."""

    hosts_names: str
    membership: _Membership = "full"


class Removal(msgspec.Struct, kw_only=True):
    """A request to remove members."""

    pkey: _PKey
    guids: list[_Guid]


class Qos(_Limits, kw_only=True):
    """A request to set limits."""

    pkey: _PKey


# -- reading ----------------------------------------------------------------------------------------------------------


def read_p_key(text: str) -> int:
    if not _P_KEY.fullmatch(text):
        raise ConfigError(f"the P_Key {text[:20]!r} must be hexadecimal, such as 0x0101")
    return int(text, 16)


def read_guid(text: str) -> int:
    match = _GUID.fullmatch(text)
    if match is None or not int(match[1], 16):
        raise ConfigError(f"the GUID {text[:40]!r} must have 16 hexadecimal digits, such as 0002c90300001231")
    return int(match[1], 16)


# -- edits ------------------------------------------------------------------------------------------------------------


def create(draft: Draft, body: Create) -> None:
    """Create an empty partition; an existing one keeps its members."""
    draft.put(_partition(draft, body))


def add(draft: Draft, body: Create, members: Mapping[int, Member]) -> None:
    before = _partition(draft, body)
    draft.put(replace(before, members={**before.members, **members}))


def replace_members(draft: Draft, body: Create, members: Mapping[int, Member]) -> None:
    """Replace all members of a partition."""
    _put(draft, replace(_partition(draft, body), members=dict(members)))


def remove(draft: Draft, p_key: int, guids: Iterable[int]) -> None:
    """Remove members. Missing members and a missing partition are no errors."""
    if p_key not in draft.partitions:
        return
    removed, before = set(guids), draft.partitions[p_key]
    _put(
        draft, replace(before, members={guid: member for guid, member in before.members.items() if guid not in removed})
    )


def add_hosts(draft: Draft, body: Hosts) -> None:
    """Add all ports of hosts (a Slurm node list). Store their GUIDs: a host may be down when its job ends."""
    p_key, by_host = read_p_key(body.pkey), draft.inventory.by_host()
    guids_by_host: dict[str, list[int]] = {}
    for name in expand(body.hosts_names):
        if name not in by_host:
            raise UnknownName("host", name, by_host)
        guids_by_host[name] = [port.guid for port in by_host[name]]
    recorded = _recorded_hosts(draft, p_key) if p_key in draft.partitions else {}
    guids = [guid for some in guids_by_host.values() for guid in some]
    add(draft, body, dict.fromkeys(guids, Member(body.membership == "full", body.index0)))
    draft.documents[_HOSTS, f"{p_key:#x}"] = msgspec.json.encode({**recorded, **guids_by_host}).decode()


def remove_hosts(draft: Draft, p_key: int, names: str) -> None:
    if p_key not in draft.partitions:
        return
    recorded = _recorded_hosts(draft, p_key)
    by_host = {host: [port.guid for port in ports] for host, ports in draft.inventory.by_host().items()}
    removed = set[int]()
    for name in expand(names):
        if name not in by_host and name not in recorded:
            raise UnknownName("host", name, by_host)
        removed.update(by_host.get(name, []), recorded.pop(name, []))
    remove(draft, p_key, removed)
    draft.documents[_HOSTS, f"{p_key:#x}"] = msgspec.json.encode(recorded).decode()
    if p_key not in draft.partitions or not recorded:
        del draft.documents[_HOSTS, f"{p_key:#x}"]


def _recorded_hosts(draft: Draft, p_key: int) -> dict[str, list[int]]:
    return msgspec.json.decode(draft.documents.get((_HOSTS, f"{p_key:#x}"), "{}"), type=dict[str, list[int]])


def get(draft: Draft, p_key: int) -> Partition:
    if p_key not in draft.partitions:
        raise NotFoundError(f"there is no partition {p_key:#x}")
    return draft.partitions[p_key]


def _put(draft: Draft, partition: Partition) -> None:
    if partition.members or partition.name != _own_name(partition.p_key):
        draft.put(partition)
    elif partition.p_key in draft.partitions:
        draft.remove(partition.p_key)


def _own_name(p_key: int) -> str:
    return f"api_pkey_{p_key:#x}"


def limit(draft: Draft, body: Qos) -> None:
    draft.put(_limited(get(draft, read_p_key(body.pkey)), body))


def _partition(draft: Draft, body: Create) -> Partition:
    p_key = read_p_key(body.pkey)
    if body.partition_name is not None:
        check_name(body.partition_name)
    before = draft.partitions.get(p_key)
    if before is None:
        before = Partition(name=body.partition_name or _own_name(p_key), p_key=p_key)
    elif body.partition_name not in (None, before.name):  # another client may have created it first
        raise ConflictError(
            f"the P_Key {p_key:#06x} is used by {before.name}, not {body.partition_name}; delete {before.name} first"
        )
    return _limited(replace(before, ipoib=body.ip_over_ib), body)


def _limited(partition: Partition, body: _Limits) -> Partition:
    if body.mtu_limit is not None:
        if body.mtu_limit not in _MTUS:
            raise ConfigError(f"mtu_limit must be 2 or 4 (in 1024 bytes), got {body.mtu_limit}")
        partition = replace(partition, mtu_bytes=body.mtu_limit * 1024)
    if body.service_level is not None:
        if not 0 <= body.service_level <= 15:
            raise ConfigError(f"service_level must be from 0 to 15, got {body.service_level}")
        partition = replace(partition, sl=body.service_level)
    if body.rate_limit is not None:
        partition = replace(partition, rate_gbit_s=body.rate_limit)
    return partition


# -- answers ----------------------------------------------------------------------------------------------------------


def described(desired: Desired, *, guids_data: bool, qos_conf: bool) -> dict[str, Any]:
    """Return the descriptions of all partitions, by P_Key in UFM's notation."""
    keys = [DEFAULT_P_KEY, *sorted(desired.partitions)]
    return {f"{p_key:#x}": describe(desired, p_key, guids_data=guids_data, qos_conf=qos_conf) for p_key in keys}


def describe(desired: Desired, p_key: int, *, guids_data: bool, qos_conf: bool) -> dict[str, Any]:
    """Return the description of a partition; an empty one, as in UFM, if it does not exist."""
    partition = desired.partitions.get(p_key)
    if partition is None and p_key != DEFAULT_P_KEY:
        return {}
    description: dict[str, Any] = {"partition": _MANAGEMENT, "ip_over_ib": True}
    if partition is not None:
        description = {"partition": partition.name, "ip_over_ib": partition.ipoib}
    if guids_data:
        description["guids"] = [] if partition is None else _members(partition)
    if guids_data and partition is None:  # all ports are members
        description |= {"membership": "full" if desired.default_is_full else "limited", "index0": False}
    if qos_conf:
        description["qos_conf"] = _limits(partition)
    return description


_encoded: ObjectCache[msgspec.Raw] = ObjectCache(4096)  # by P_Key: the members as JSON


def _members(partition: Partition) -> msgspec.Raw:
    def encode() -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode([_member(guid, member) for guid, member in partition.members.items()]))

    return _encoded.get(partition.p_key, (partition,), encode)


def _member(guid: int, member: Member) -> dict[str, Any]:
    return {"guid": hex_guid(guid), "index0": member.index0, "membership": "full" if member.full else "limited"}


def _limits(partition: Partition | None) -> dict[str, Any]:
    """Return the limits of a partition, with UFM's defaults."""
    limits = (None, None, 0) if partition is None else (partition.mtu_bytes, partition.rate_gbit_s, partition.sl)
    return {
        "mtu_limit": (limits[0] or 2048) // 1024,
        "rate_limit": limits[1] or _RATE_GBIT_S,
        "service_level": limits[2],
    }
