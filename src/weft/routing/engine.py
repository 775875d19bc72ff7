"""The interface of routing engines: their input and output.

An engine is a pure function of a subnet and options. It fills forwarding tables, and service levels if it needs several
virtual lanes, or raises `CannotRoute` with the reason and an engine that can.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.tables import Tables
from weft.ids import Lid
from weft.routing.graph import SwitchGraph, switch_graph
from weft.routing.orientation import default_root

MOST_VLS = 15  # data lanes of InfiniBand: VL 0 to 14
_ROWS_AT_ONCE = 1024
NO_PREVIOUS = np.empty((0, 0), np.uint8)


class CannotRoute(ConfigError):
    """An error for a fabric that an engine cannot route: the reason, and an alternative."""


class EngineFailed(ConfigError):
    """An error raised by the routing engine of a plugin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of routing. The result contains them."""

    engine: str = "auto"
    lmc: int = 0  # every host port gets 2**lmc LIDs and as many paths
    max_vls: int = 8  # data lanes of the ports
    adaptive: bool = False  # with port groups for adaptive routing
    root: str = ""  # root switch of up/down; empty: chosen by the engine
    paths_only: bool = False  # without lanes and proofs, to measure paths where these would take too long

    def __post_init__(self) -> None:
        if not 1 <= self.max_vls <= MOST_VLS:
            raise ConfigError(f"--max-vls must be 1 to {MOST_VLS}, the data lanes of InfiniBand; got {self.max_vls}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Subnet:
    """A fabric with its LIDs, as an engine sees it."""

    fabric: Fabric
    lid: NDArray[np.integer[Any]]  # [port slot]
    lmc: NDArray[np.uint8]  # [port slot]
    previous: NDArray[Any] | None = None  # [switch, lid], as wide as the new tables: entries to keep if possible

    @cached_property
    def graph(self) -> SwitchGraph:
        return switch_graph(self.fabric, self.lid, self.lmc)

    @cached_property
    def previous_by_lid(self) -> NDArray[Any]:
        """The previous tables as kernels read them, [lid, switch]; empty without previous tables."""
        return NO_PREVIOUS if self.previous is None else turned(self.previous)

    def new_tables(self) -> Tables:
        """Return tables with the LIDs and no routes."""
        tables = self.fabric.tables.like()
        if self.lid.max(initial=0) >= Lid.FIRST_MULTICAST:
            tables.addresses = np.zeros(len(self.lid), np.int32)
        tables.lid[:] = self.lid
        tables.set_lmc(slice(None), self.lmc)
        return tables

    def switch_name(self, switch: int) -> str:
        return self.fabric.nodes.name[int(self.graph.switches[switch])]

    def root(self, options: Options) -> int:
        """Return the root of up/down: that of the options, or the default."""
        return self.find_switch(options.root) if options.root else default_root(self.graph)

    def find_switch(self, name: str) -> int:
        """Return the row of a switch by name."""
        rows = np.flatnonzero(self.graph.switches == self.fabric.find_node(name).index)
        if not len(rows):
            raise ConfigError(f"{name} is not a switch; --root must be one")
        return int(rows[0])


def require_vls(subnet: Subnet, options: Options, engine: str, needed: int, otherwise: str = "") -> None:
    """Refuse ports with fewer lanes than the engine needs; `otherwise` is an alternative for the message."""
    if needed > options.max_vls:
        count = needed if needed <= MOST_VLS else f"more than {MOST_VLS}"
        raise CannotRoute(
            f"{engine} routing of {subnet.fabric.spec} needs {count} virtual lanes, the ports have {options.max_vls}"
            f'\n  Route with engine="up-down", which needs one{otherwise}.'
        )


def turned(table: NDArray[Any]) -> NDArray[Any]:
    """Return a table with rows and columns exchanged, as `table.T.copy()` does, but in parts that fit the caches."""
    result = np.empty(table.shape[::-1], table.dtype)
    for begin in range(0, len(table), _ROWS_AT_ONCE):
        rows = slice(begin, begin + _ROWS_AT_ONCE)
        result[:, rows] = np.ascontiguousarray(table[rows].T)
    return result


class RoutingEngine(Protocol):
    """An interface that `check_routing_engine` in tests/conformance tests."""

    name: str
    guarantee: str  # one line: the properties of its tables

    def route(self, subnet: Subnet, options: Options) -> Tables:
        """Return complete tables, or raise CannotRoute."""
        ...
