"""Slices of a fabric: partitions with their members, and the lanes of their traffic. Drivers read and write them.

    Allocation
        partitions     by P_Key, each with its members by port GUID
        lanes      service levels to virtual lanes, and how those share a link

Nothing here says who wants it: `intent` does, or a client of the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from weft.errors import ConfigError
from weft.ids import Guid
from weft.sm.conf.qos_options import QosOptions
from weft.sm.pkey.partitions import DEFAULT_P_KEY

FIRST_P_KEY, LAST_P_KEY = 0x0001, DEFAULT_P_KEY - 1


@dataclass(frozen=True, slots=True)
class Member:
    """What a port is in a slice. Two limited members do not reach each other."""

    full: bool = True
    index0: bool = False  # the slice's key goes to index 0 of the port's table


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition."""

    name: str
    p_key: int  # 15 bits; Default's is none of these
    members: Mapping[int, Member] = field(default_factory=dict)  # by port GUID
    ipoib: bool = False
    sl: int = 0
    mtu_bytes: int | None = None  # of its multicast groups and paths; None: no limit
    rate_gbit_s: float | None = None

    def __post_init__(self) -> None:
        if not FIRST_P_KEY <= self.p_key <= LAST_P_KEY:
            raise ConfigError(
                f"the P_Key {self.p_key:#06x} of {self.name} is refused: it must be from {FIRST_P_KEY:#06x} to "
                f"{LAST_P_KEY:#06x}; {DEFAULT_P_KEY:#06x} is Default's"
            )

    @property
    def label(self) -> str:
        return f"{self.name}={self.p_key:#06x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """All partitions that weft has a say in, and what is said for all of them."""

    partitions: Mapping[int, Partition] = field(default_factory=dict)  # by P_Key
    # Where every port is a full member of Default, everybody reaches everybody: no slice is isolated then.
    default_is_full: bool = True
    lanes: QosOptions | None = None  # None: QoS is off


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPort:
    """A port that can have a member."""

    guid: int
    name: str  # h1/1
    host: str  # h1
    node_guid: int
    number: int
    lid: int = 0  # 0: it has none yet
    is_active: bool = True
    is_there: bool = True  # else it was seen before, and is gone: `recall`
    data_vls: int = 15  # of the port and of the switch before it, whichever has fewer
    p_keys: int = 128  # entries of its table

    @property
    def label(self) -> str:
        return f"{self.name} ({Guid(self.guid)})"


@dataclass(frozen=True)
class Inventory:
    """The ports that are there, as the subnet manager sees them, and those that it is known to have seen before."""

    ports: tuple[EndPort, ...]
    # Service levels that routing itself needs against deadlock, as dfsssp does; with more than one they are not free.
    routing_sls: int = 1
    manager_guid: int = 0  # the subnet manager's port, a full member of Default whatever others are; 0: not known

    def by_guid(self) -> Mapping[int, EndPort]:
        return self._by_guid

    def by_host(self) -> Mapping[str, list[EndPort]]:
        return self._by_host

    @cached_property
    def _by_guid(self) -> dict[int, EndPort]:
        """Made once: of tens of thousands of ports it takes longer than what is looked for in it."""
        return {port.guid: port for port in self.ports}

    @cached_property
    def _by_host(self) -> dict[str, list[EndPort]]:
        found: dict[str, list[EndPort]] = {}
        for port in self.ports:
            found.setdefault(port.host, []).append(port)
        return found
