"""What a UFM answers, as it is written in JSON, and what is taken from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.ids import Guid
from weft.tenants.partitions import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class UfmPKey:
    """A partition with its members."""

    partition: str  # its name; UFM before 6.22 gives one of its own
    ip_over_ib: bool
    members: Mapping[int, Member]  # by port GUID
    membership: str | None = None  # of everybody, in Default; UFM before 6.19 does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class UfmQos:
    """What a partition's groups and paths may have."""

    mtu_bytes: int = 2048
    rate_gbit_s: float = 2.5
    sl: int = 0

    @property
    def words(self) -> dict[str, Any]:
        return {"mtu_limit": self.mtu_bytes // 1024, "rate_limit": self.rate_gbit_s, "service_level": self.sl}


class UfmPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a switch or a server. What a port does not have comes as null."""

    guid: str
    name: str = ""  # node GUID and number: 0002c90300001230_1
    number: int | None = None
    description: str | None = None  # "Computer IB Port"
    system_guid: str | None = msgspec.field(default=None, name="systemID")
    system_name: str | None = None
    node_description: str | None = None  # "dgx1 mlx5_0"
    dname: str | None = None
    lid: int | None = None
    logical_state: str | None = None  # "Active"

    @property
    def node(self) -> str:
        """GUID of its node."""
        return self.name.partition("_")[0] or self.guid

    @property
    def is_computer(self) -> bool:
        return "Computer" in (self.description or "")


class _Member(msgspec.Struct):
    guid: str
    membership: str = "full"
    index0: bool = False


class _Guids(msgspec.Struct):
    partition: str = ""
    ip_over_ib: bool = False
    guids: list[_Member] = []
    membership: str | None = None


class _Limits(msgspec.Struct):
    mtu_limit: float = 2
    rate_limit: float = 2.5
    service_level: int = 0


class _Qos(msgspec.Struct):
    qos_conf: _Limits = msgspec.field(default_factory=_Limits)


def read_pkey(found: Any) -> UfmPKey:
    """Of an answer with guids_data; ConfigError or msgspec's error where it has another shape."""
    one = msgspec.convert(found, _Guids, strict=False)
    members = {int(Guid.parse(member.guid)): Member(member.membership == "full", member.index0) for member in one.guids}
    return UfmPKey(partition=one.partition, ip_over_ib=one.ip_over_ib, members=members, membership=one.membership)


def read_qos(found: Any) -> UfmQos:
    """Of an answer with qos_conf."""
    limits = msgspec.convert(found, _Qos, strict=False).qos_conf
    return UfmQos(mtu_bytes=int(limits.mtu_limit * 1024), rate_gbit_s=limits.rate_limit, sl=limits.service_level)


def read_ports(found: Any) -> list[UfmPort]:
    return msgspec.convert(found, list[UfmPort], strict=False)
