"""Partitions in UFM's words: what a call asks for, and what is answered.

    POST resources/pkeys    {"pkey": "0x101", "guids": ["0002c90300001231"], "membership": "full", "index0": false}
    GET  resources/pkeys?guids_data=true

A partition that a call names for the first time is made, and has UFM's name for it: api_pkey_0x101. One of such a name
goes with its last member, so that the partitions of a scheduler's jobs do not pile up; one that was given a name stays.
GUIDs need not be of ports that are there: those of virtual functions appear when a machine starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec

from weft.errors import ConfigError, UnknownName
from weft.fabric.files.hostlist import expand
from weft.serve.desired import ConflictError, Desired, Draft, NotFoundError
from weft.serve.ufm.shapes import hex_guid
from weft.sm.pkey.partitions import DEFAULT_P_KEY
from weft.tenants.drivers.partition_files import check_name
from weft.tenants.partitions import Member, Partition

_GUID = re.compile(r"(?:0x)?([0-9a-f]{16})", re.I)
_P_KEY = re.compile(r"0x[0-9a-f]{1,4}", re.I)
_HOSTS = "ufm.hosts"  # kind of documents, by P_Key: GUIDs of the hosts that came in by their names
_MANAGEMENT = "management"  # UFM's name for Default
_RATE_GBIT_S = 2.5  # UFM's default
_MTUS = (2, 4)
_Membership = Literal["full", "limited"]
# Said in the OpenAPI document, and checked with better words.
_PKey = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^0x[0-9a-f]{1,4}$", "examples": ["0x101"]})]
_Guid = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^[0-9a-f]{16}$", "examples": ["0002c90300001231"]})]


class _Limits(msgspec.Struct, kw_only=True):
    mtu_limit: int | None = None  # in 1024 bytes
    rate_limit: float | None = None  # in Gbit/s
    service_level: int | None = None


class Create(_Limits, kw_only=True):
    pkey: _PKey
    partition_name: str | None = None
    index0: bool = False
    ip_over_ib: bool = True


class Guids(Create, kw_only=True):
    guids: list[_Guid]
    membership: _Membership = "full"  # of all of them, or
    memberships: list[_Membership] | None = None  # of each

    def members(self) -> dict[int, Member]:
        memberships = self.memberships or [self.membership] * len(self.guids)
        if len(memberships) != len(self.guids):
            raise ConfigError(
                f"there are {len(memberships)} memberships for {len(self.guids)} GUIDs: give one for each, "
                "or one membership for all"
            )
        pairs = zip(self.guids, memberships, strict=True)
        return {read_guid(guid): Member(word == "full", self.index0) for guid, word in pairs}


class Hosts(Create, kw_only=True):
    hosts_names: str
    membership: _Membership = "full"


class Removal(msgspec.Struct, kw_only=True):
    pkey: _PKey
    guids: list[_Guid]


class Qos(_Limits, kw_only=True):
    pkey: _PKey


# -- reading ----------------------------------------------------------------------------------------------------------


def read_p_key(text: str) -> int:
    if not _P_KEY.fullmatch(text):
        raise ConfigError(f"the P_Key {text[:20]!r} is refused: write it in hexadecimal, as 0x0101")
    return int(text, 16)


def read_guid(text: str) -> int:
    match = _GUID.fullmatch(text)
    if match is None or not int(match[1], 16):
        raise ConfigError(f"the GUID {text[:40]!r} is refused: write its 16 hexadecimal digits, as 0002c90300001231")
    return int(match[1], 16)


# -- edits ------------------------------------------------------------------------------------------------------------


def create(draft: Draft, body: Create) -> None:
    """An empty one; one that is there keeps its members."""
    draft.put(_made(draft, body))


def add(draft: Draft, body: Create, members: Mapping[int, Member]) -> None:
    before = _made(draft, body)
    draft.put(replace(before, members={**before.members, **members}))


def replace_members(draft: Draft, body: Create, members: Mapping[int, Member]) -> None:
    """These and no others."""
    _keep(draft, replace(_made(draft, body), members=dict(members)))


def remove(draft: Draft, p_key: int, guids: Iterable[int]) -> None:
    """Remove members; those that are not there, and a partition that went with its last, are removed already."""
    if p_key not in draft.partitions:
        return
    gone, before = set(guids), draft.partitions[p_key]
    _keep(draft, replace(before, members={guid: member for guid, member in before.members.items() if guid not in gone}))


def add_hosts(draft: Draft, body: Hosts) -> None:
    """All ports of hosts, listed as Slurm does. Whose they are is kept: a host may be gone when its job ends."""
    p_key, known = read_p_key(body.pkey), draft.inventory.by_host()
    found: dict[str, list[int]] = {}
    for name in expand(body.hosts_names):
        if name not in known:
            raise UnknownName("host", name, known)
        found[name] = [port.guid for port in known[name]]
    kept = _kept_hosts(draft, p_key) if p_key in draft.partitions else {}
    guids = [guid for some in found.values() for guid in some]
    add(draft, body, dict.fromkeys(guids, Member(body.membership == "full", body.index0)))
    draft.documents[_HOSTS, f"{p_key:#x}"] = msgspec.json.encode({**kept, **found}).decode()


def remove_hosts(draft: Draft, p_key: int, names: str) -> None:
    if p_key not in draft.partitions:
        return
    kept = _kept_hosts(draft, p_key)
    known = {host: [port.guid for port in ports] for host, ports in draft.inventory.by_host().items()}
    gone = set[int]()
    for name in expand(names):
        if name not in known and name not in kept:
            raise UnknownName("host", name, known)
        gone.update(known.get(name, []), kept.pop(name, []))
    remove(draft, p_key, gone)
    draft.documents[_HOSTS, f"{p_key:#x}"] = msgspec.json.encode(kept).decode()
    if p_key not in draft.partitions or not kept:
        del draft.documents[_HOSTS, f"{p_key:#x}"]


def _kept_hosts(draft: Draft, p_key: int) -> dict[str, list[int]]:
    return msgspec.json.decode(draft.documents.get((_HOSTS, f"{p_key:#x}"), "{}"), type=dict[str, list[int]])


def there(draft: Draft, p_key: int) -> Partition:
    if p_key not in draft.partitions:
        raise NotFoundError(f"there is no partition {p_key:#x}")
    return draft.partitions[p_key]


def _keep(draft: Draft, one: Partition) -> None:
    if one.members or one.name != _own_name(one.p_key):
        draft.put(one)
    elif one.p_key in draft.partitions:
        draft.remove(one.p_key)


def _own_name(p_key: int) -> str:
    return f"api_pkey_{p_key:#x}"


def limit(draft: Draft, body: Qos) -> None:
    draft.put(_limited(there(draft, read_p_key(body.pkey)), body))


def _made(draft: Draft, body: Create) -> Partition:
    p_key = read_p_key(body.pkey)
    if body.partition_name is not None:
        check_name(body.partition_name)
    before = draft.partitions.get(p_key)
    if before is None:
        before = Partition(name=body.partition_name or _own_name(p_key), p_key=p_key)
    elif body.partition_name not in (None, before.name):  # of two clients that make it at once, one has it
        raise ConflictError(
            f"the P_Key {p_key:#06x} is {before.name}'s: it cannot be {body.partition_name}'s too; delete it first"
        )
    return _limited(replace(before, ipoib=body.ip_over_ib), body)


def _limited(one: Partition, body: _Limits) -> Partition:
    if body.mtu_limit is not None:
        if body.mtu_limit not in _MTUS:
            raise ConfigError(f"mtu_limit {body.mtu_limit} is refused: it must be 2 or 4, in 1024 bytes")
        one = replace(one, mtu_bytes=body.mtu_limit * 1024)
    if body.service_level is not None:
        if not 0 <= body.service_level <= 15:
            raise ConfigError(f"service_level {body.service_level} is refused: it must be from 0 to 15")
        one = replace(one, sl=body.service_level)
    if body.rate_limit is not None:
        one = replace(one, rate_gbit_s=body.rate_limit)
    return one


# -- answers ----------------------------------------------------------------------------------------------------------


def described(desired: Desired, *, guids_data: bool, qos_conf: bool) -> dict[str, Any]:
    """All partitions by P_Key, in UFM's spelling of it."""
    keys = [DEFAULT_P_KEY, *sorted(desired.partitions)]
    return {f"{p_key:#x}": describe(desired, p_key, guids_data=guids_data, qos_conf=qos_conf) for p_key in keys}


def describe(desired: Desired, p_key: int, *, guids_data: bool, qos_conf: bool) -> dict[str, Any]:
    """One; nothing if there is none, which is how UFM says so."""
    one = desired.partitions.get(p_key)
    if one is None and p_key != DEFAULT_P_KEY:
        return {}
    said: dict[str, Any] = {"partition": _MANAGEMENT, "ip_over_ib": True}
    if one is not None:
        said = {"partition": one.name, "ip_over_ib": one.ipoib}
    if guids_data:
        said["guids"] = [] if one is None else _members(one)
    if guids_data and one is None:  # everybody is in it
        said |= {"membership": "full" if desired.default_is_full else "limited", "index0": False}
    if qos_conf:
        said["qos_conf"] = _limits(one)
    return said


_shown: dict[int, tuple[Partition, msgspec.Raw]] = {}  # by P_Key: the last that was shown, and its members as JSON


def _members(one: Partition) -> msgspec.Raw:
    last = _shown.get(one.p_key)
    if last is None or last[0] is not one:
        raw = msgspec.Raw(msgspec.json.encode([_member(guid, member) for guid, member in one.members.items()]))
        last = _shown[one.p_key] = one, raw
    return last[1]


def _member(guid: int, member: Member) -> dict[str, Any]:
    return {"guid": hex_guid(guid), "index0": member.index0, "membership": "full" if member.full else "limited"}


def _limits(one: Partition | None) -> dict[str, Any]:
    """What nobody has said is as UFM has it from the start."""
    said = (None, None, 0) if one is None else (one.mtu_bytes, one.rate_gbit_s, one.sl)
    return {"mtu_limit": (said[0] or 2048) // 1024, "rate_limit": said[1] or _RATE_GBIT_S, "service_level": said[2]}
