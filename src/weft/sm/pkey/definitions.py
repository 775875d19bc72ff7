"""Partitions as clients of the manager's socket define them, and as the run-time configuration stores them.

{"name": "Red", "p_key": 257, "members": [[795178021884465, "full"], ["ALL_SWITCHES", "limited"]]}
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from weft.errors import ConfigError
from weft.sm.pkey.partitions import (
    DEFAULT_MTU,
    DEFAULT_P_KEY,
    DEFAULT_RATE,
    IPOIB_Q_KEY,
    Everyone,
    Group,
    Member,
    Membership,
    Partition,
    broadcast_mgid,
)

_LONGEST_NAME = 31


class MemberDefinition(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A rule that makes ports members of a partition; a port's later rule replaces an earlier one for its kind."""

    port: Everyone | Annotated[int, msgspec.Meta(ge=1)]  # a kind of ports, or a port GUID
    membership: Membership = Membership.FULL
    index0: bool = False  # the partition's key goes to index 0 of these ports


class PartitionDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A partition. Its MTU and rate apply to its IPoIB broadcast group, in the standard's codes."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_NAME)]
    p_key: int  # 0x0001 to 0x7ffe
    members: tuple[MemberDefinition, ...] = ()
    ipoib: bool = False
    sl: Annotated[int, msgspec.Meta(ge=0, le=15)] = 0
    mtu: Annotated[int, msgspec.Meta(ge=1, le=5)] = DEFAULT_MTU
    rate: Annotated[int, msgspec.Meta(ge=2, le=22)] = DEFAULT_RATE

    def partition(self, *, lanes: bool = True, rank: int = 0) -> Partition:
        """Return the partition with its group; raise ConfigError if the definition is invalid.

        Without `lanes` its service level has no effect. Its rules are numbered from `rank` on.
        """
        self._check()
        sl = self.sl if lanes else 0
        group = Group(mgid=broadcast_mgid(self.p_key), rate=self.rate, mtu=self.mtu, sl=sl, q_key=IPOIB_Q_KEY)
        members = tuple(
            Member(who=member.port, membership=member.membership, index0=member.index0, rank=rank + number)
            for number, member in enumerate(self.members, 1)
        )
        groups = (group,) if self.ipoib else ()
        return Partition(name=self.name, p_key=self.p_key, members=members, sl=sl, groups=groups)

    def _check(self) -> None:
        label = f"the partition {self.name}={self.p_key:#06x} is refused"
        if not 0 < self.p_key < DEFAULT_P_KEY:
            raise ConfigError(f"{label}: its P_Key must be from 0x0001 to {DEFAULT_P_KEY - 1:#06x}")
        seen = set()
        for member in self.members:
            if member.port in seen:
                raise ConfigError(f"{label}: it names {_name(member.port)} twice; name it once")
            seen.add(member.port)
        if Everyone.ALL in seen and self.members[0].port is not Everyone.ALL:
            raise ConfigError(f"{label}: ALL replaces the rules before it; put it first")


def _name(port: Everyone | int) -> str:
    return port.value if isinstance(port, Everyone) else f"{port:#018x}"
