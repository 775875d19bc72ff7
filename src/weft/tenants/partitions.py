"""Partitions with their members, and the QoS configuration. Drivers read and write them.

    Allocation
        partitions    by P_Key, each with its members by port GUID
        lanes         service levels to virtual lanes, and arbitration weights

They come from an intent (`weft.tenants.intent`) or from a client of `weft serve`.
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
    """The membership of a port in a partition. Two limited members cannot reach each other."""

    full: bool = True
    index0: bool = False  # the P_Key goes to index 0 of the port's table


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition."""

    name: str
    p_key: int  # 15 bits, not that of Default
    members: Mapping[int, Member] = field(default_factory=dict)  # by port GUID
    ipoib: bool = False
    sl: int = 0
    mtu_bytes: int | None = None  # limit of multicast groups and paths; None: no limit
    rate_gbit_s: float | None = None

    def __post_init__(self) -> None:
        if not FIRST_P_KEY <= self.p_key <= LAST_P_KEY:
            raise ConfigError(
                f"the P_Key {self.p_key:#06x} of {self.name} must be from {FIRST_P_KEY:#06x} to {LAST_P_KEY:#06x}; "
                f"{DEFAULT_P_KEY:#06x} is Default's"
            )

    @property
    def label(self) -> str:
        return f"{self.name}={self.p_key:#06x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The partitions that weft manages, and their common settings."""

    partitions: Mapping[int, Partition] = field(default_factory=dict)  # by P_Key
    # If all ports are full members of Default, every port reaches every other: no partition is isolated.
    default_is_full: bool = True
    lanes: QosOptions | None = None  # None: QoS is off


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPort:
    """A port that can be a member of partitions."""

    guid: int
    name: str  # h1/1
    host: str  # h1
    node_guid: int
    number: int
    lid: int = 0  # 0: none yet
    is_active: bool = True
    is_there: bool = True  # False: down now, known from before (`recall`)
    data_vls: int = 15  # smaller number of the port and its switch port
    p_keys: int = 128  # size of its P_Key table

    @property
    def label(self) -> str:
        return f"{self.name} ({Guid(self.guid)})"


@dataclass(frozen=True)
class Inventory:
    """The ports that the subnet manager sees, and known ports that are down now."""

    ports: tuple[EndPort, ...]
    # Service levels that routing uses against deadlock (dfsssp); if more than one, classes cannot use them.
    routing_sls: int = 1
    manager_guid: int = 0  # the subnet manager's port, always a full member of Default; 0: unknown

    def by_guid(self) -> Mapping[int, EndPort]:
        return self._by_guid

    def by_host(self) -> Mapping[str, list[EndPort]]:
        return self._by_host

    @cached_property
    def _by_guid(self) -> dict[int, EndPort]:
        """The ports by GUID, computed once: a fabric has tens of thousands."""
        return {port.guid: port for port in self.ports}

    @cached_property
    def _by_host(self) -> dict[str, list[EndPort]]:
        by_host: dict[str, list[EndPort]] = {}
        for port in self.ports:
            by_host.setdefault(port.host, []).append(port)
        return by_host
