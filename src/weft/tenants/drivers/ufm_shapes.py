"""UFM's JSON answers, and the values that weft reads from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.ids import Guid
from weft.tenants.partitions import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class UfmPKey:
    """A partition with its members, as UFM has it."""

    partition: str  # its name; before 6.22 UFM chooses the name
    ip_over_ib: bool
    members: Mapping[int, Member]  # by port GUID
    membership: str | None = None  # membership of all ports in Default; None before UFM 6.19


@dataclass(frozen=True, slots=True, kw_only=True)
class UfmQos:
    """The limits of a partition's multicast groups and paths."""

    mtu_bytes: int = 2048
    rate_gbit_s: float = 2.5
    sl: int = 0

    @property
    def fields(self) -> dict[str, Any]:
        """The limits as fields of UFM's JSON."""
        return {"mtu_limit": self.mtu_bytes // 1024, "rate_limit": self.rate_gbit_s, "service_level": self.sl}


class UfmPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a switch or a server. UFM sends null for missing values."""

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
        """The GUID of its node."""
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


def read_pkey(answer: Any) -> UfmPKey:
    """Read an answer with guids_data. Raise ConfigError or msgspec's error if it has another shape."""
    pkey = msgspec.convert(answer, _Guids, strict=False)
    members = {
        int(Guid.parse(member.guid)): Member(member.membership == "full", member.index0) for member in pkey.guids
    }
    return UfmPKey(partition=pkey.partition, ip_over_ib=pkey.ip_over_ib, members=members, membership=pkey.membership)


def read_qos(answer: Any) -> UfmQos:
    """Read an answer with qos_conf."""
    limits = msgspec.convert(answer, _Qos, strict=False).qos_conf
    return UfmQos(mtu_bytes=int(limits.mtu_limit * 1024), rate_gbit_s=limits.rate_limit, sl=limits.service_level)


def read_ports(answer: Any) -> list[UfmPort]:
    return msgspec.convert(answer, list[UfmPort], strict=False)
