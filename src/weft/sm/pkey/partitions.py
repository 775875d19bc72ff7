"""Define partitions and the rules for their members.

A partition has a P_Key of 15 bits. A port that holds it with the top bit set is a full member, without it a limited
one; two ports may talk where they share a partition and at least one of them is a full member in it.

The rules of a partition are kept in the order in which they were written, not as lists of ports: `ALL` means all ports
of the next sweep. If two rules name the same port, the later one counts, as in OpenSM.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from weft.ids import Gid

DEFAULT_P_KEY = 0x7FFF
IPOIB_Q_KEY = 0x0B1B
LINK_LOCAL = 2  # scope of a multicast group
DEFAULT_RATE = 3  # 10 Gbit/s, in the standard's code
DEFAULT_MTU = 4  # 2,048 bytes, in the standard's code
LIMITED_MEMBER, FULL_MEMBER, BOTH_MEMBER = 0, 1, 2  # in a row of `Partition.rows`
ROW = np.dtype([("guid", np.uint64), ("code", np.int8), ("index0", bool), ("rank", np.int64)])
_SCOPE_SHIFT = 112
_BROADCAST = Gid.parse("ff12:401b::ffff:ffff")


class Membership(enum.Enum):
    """The membership of a port in a partition. BOTH is two entries, or full where both are not allowed."""

    LIMITED = "limited"
    FULL = "full"
    BOTH = "both"


class Everyone(enum.Enum):
    """The rules that select end ports by kind; the end port of a switch is port 0."""

    ALL = "ALL"
    ALL_CAS = "ALL_CAS"
    ALL_SWITCHES = "ALL_SWITCHES"
    ALL_ROUTERS = "ALL_ROUTERS"
    SELF = "SELF"  # the port of the subnet manager


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The end ports of nodes with a property."""

    by: Literal["node GUID", "system GUID", "description"]
    value: int | str  # a description is a regular expression that matches all of it
    ports: tuple[int, int] | None = None  # first and last number; None is all

    def __str__(self) -> str:
        return f"{self.by} {self.value:#018x}" if isinstance(self.value, int) else f"{self.by} {self.value!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A rule that makes ports members of a partition."""

    who: Everyone | Devices | int  # an int is a port GUID
    membership: Membership
    index0: bool = False  # the partition's key goes to index 0 of these ports
    rank: int = 0  # place in the file: where two partitions want index 0, the last rule gets it
    line: int = 0  # 0: not from a file

    @property
    def label(self) -> str:
        """The rule as a partition file has it: `0x0002c90300001231=full`."""
        selector = self.who.value if isinstance(self.who, Everyone) else self.who
        return (
            f"{selector:#018x}={self.membership.value}"
            if isinstance(selector, int)
            else f"{selector}={self.membership.value}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A multicast group that exists before anybody joins. Rate and MTU are the standard's codes."""

    mgid: Gid
    rate: int = DEFAULT_RATE
    mtu: int = DEFAULT_MTU
    sl: int = 0
    scope: int = LINK_LOCAL
    q_key: int = 0
    t_class: int = 0
    flow_label: int = 0


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition, and the groups that exist in it before anybody joins."""

    name: str
    p_key: int  # 15 bits
    members: tuple[Member, ...]
    sl: int = 0  # counts where QoS is on
    groups: tuple[Group, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.name}={self.p_key:#06x}"

    @cached_property
    def rows(self) -> NDArray[Any]:
        """The members as an array with GUIDs, 0 for other rules. Cached: most partitions stay when one changes."""
        return np.array(
            [(_guid(member), _CODES[member.membership], member.index0, member.rank) for member in self.members], ROW
        )


_CODES = {Membership.LIMITED: LIMITED_MEMBER, Membership.FULL: FULL_MEMBER, Membership.BOTH: BOTH_MEMBER}


def _guid(member: Member) -> int:
    return member.who if isinstance(member.who, int) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The partitions of a subnet, and notes for the reader of their file."""

    partitions: tuple[Partition, ...]
    notes: tuple[str, ...] = ()  # ignored, merged or contradictory lines of the file
    empty: tuple[Partition, ...] = ()  # written, but without members: no port hears of them

    @property
    def has_tenants(self) -> bool:
        """Return whether any partition besides Default has members."""
        return any(partition.p_key != DEFAULT_P_KEY for partition in self.partitions)

    def by_p_key(self, p_key: int) -> Partition | None:
        """Return the partition of a P_Key, given with or without the full-member bit."""
        return next((partition for partition in self.partitions if partition.p_key == p_key & 0x7FFF), None)


def with_scope(mgid: Gid, scope: int) -> Gid:
    """Return the group with another scope."""
    return Gid(int(mgid) & ~(0xF << _SCOPE_SHIFT) | scope << _SCOPE_SHIFT)


def with_p_key(mgid: Gid, p_key: int) -> Gid:
    """Return an IPoIB group with the partition's full key in it."""
    return Gid(int(mgid) & ~(0xFFFF << 80) | (p_key | 0x8000) << 80)


def broadcast_mgid(p_key: int) -> Gid:
    """Return the broadcast group of IPv4 over InfiniBand, RFC 4391."""
    return with_p_key(_BROADCAST, p_key)


NO_FILE = Partitions(
    partitions=(
        Partition(
            name="Default",
            p_key=DEFAULT_P_KEY,
            members=(Member(who=Everyone.ALL, membership=Membership.FULL),),
            groups=(Group(mgid=broadcast_mgid(DEFAULT_P_KEY), q_key=IPOIB_Q_KEY),),
        ),
    )
)
