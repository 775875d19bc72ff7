"""A fabric as arrays: one row for each node, port and link."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from weft.fabric.notebook import to_html
from weft.fabric.rates import speeds
from weft.fabric.tables import Tables

_SHOWN = 10  # rows of columns in a notebook


class _Columns:
    """A set of arrays of the same length, one row per node, port or link."""

    __slots__ = ()

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the same columns with only these rows (a mask or indices)."""
        picked = {}
        for field in fields(self):  # type: ignore[arg-type]
            column = getattr(self, field.name)
            if isinstance(column, tuple):
                indices = np.flatnonzero(rows) if rows.dtype == bool else rows
                picked[field.name] = tuple(column[i] for i in indices.tolist())
            else:
                picked[field.name] = column[rows]
        return type(self)(**picked)

    def stacked(self, other: Self) -> Self:
        """Return these rows followed by those of another."""
        columns = {}
        for field in fields(self):  # type: ignore[arg-type]
            own, more = getattr(self, field.name), getattr(other, field.name)
            columns[field.name] = own + more if isinstance(own, tuple) else np.concatenate((own, more))
        return type(self)(**columns)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} rows of {', '.join(self._names)}>"  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        columns = (getattr(self, name)[:_SHOWN] for name in self._names)
        more = len(self) - _SHOWN  # type: ignore[arg-type]
        return to_html(self._names, zip(*columns, strict=True), f"{more:,} more: to_pandas()" if more > 0 else "")

    def to_pandas(self) -> Any:
        """Return a DataFrame with the same columns."""
        import pandas as pd

        return pd.DataFrame({name: getattr(self, name) for name in self._names})

    @property
    def _names(self) -> list[str]:
        return [field.name for field in fields(self)]  # type: ignore[arg-type]

    def freeze(self) -> Self:
        for field in fields(self):  # type: ignore[arg-type]
            column = getattr(self, field.name)
            if isinstance(column, np.ndarray):
                column.setflags(write=False)
        return self


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NodeColumns(_Columns):
    name: tuple[str, ...]  # unique; `leaf3`, `h1`, `dgx1/mlx5_0`
    description: tuple[str, ...]  # NodeDescription of the hardware
    kind: NDArray[np.int8]  # NodeKind
    guid: NDArray[np.uint64]
    system_guid: NDArray[np.uint64]
    vendor_id: NDArray[np.int32]
    device_id: NDArray[np.int32]
    model: NDArray[np.int16]  # index into Fabric.models, -1 unknown
    server: NDArray[np.int32]  # index into Fabric.servers, -1 none
    group: NDArray[np.int32]  # index into Fabric.groups: pod, scalable unit, dragonfly group; -1 none
    n_ports: NDArray[np.int16]  # highest port number
    enhanced_port_0: NDArray[np.bool_]  # switches only: port 0 is a full port, with LMC, lanes and counters

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PortColumns(_Columns):
    node: NDArray[np.int32]
    number: NDArray[np.int16]
    guid: NDArray[np.uint64]
    peer: NDArray[np.int32]  # port slot at the other end, -1 if not cabled
    link: NDArray[np.int32]  # -1 if not cabled

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LinkColumns(_Columns):
    a: NDArray[np.int32]  # port slot
    b: NDArray[np.int32]  # port slot
    speed: NDArray[np.int8]  # index into rates.speeds()
    width: NDArray[np.int8]
    medium: NDArray[np.int8]  # Medium
    length_m: NDArray[np.float32]
    bit_error_rate: NDArray[np.float64]  # after error correction, as the link layer sees it
    good_end: NDArray[np.int8]  # the end that receives without errors: 0 neither, 1 `a`, 2 `b`

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True, kw_only=True, eq=False)
class FabricColumns:
    """The arrays of a fabric that its views read; see `model.Fabric`."""

    spec: str  # a spec string or the path of a file
    nodes: NodeColumns
    ports: PortColumns
    links: LinkColumns
    models: tuple[str, ...]
    servers: tuple[str, ...]
    groups: tuple[str, ...]
    tables: Tables
    planes: int = 1  # of each adapter port
    expanded: bool = False  # port n of an adapter is in plane n; else one plane stands for all (`weft.fabric.planes`)

    @property
    def multiplicity(self) -> int:
        """The number of equal planes that each switch and network cable of these arrays stands for."""
        return 1 if self.expanded else self.planes

    @cached_property
    def first_port(self) -> NDArray[np.int64]:
        """The slot of each node's port 0."""
        slots = self.nodes.n_ports.astype(np.int64) + 1
        return np.cumsum(slots) - slots

    @cached_property
    def nodes_by_server(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The nodes ordered by server, and the place of each server's first in that order."""
        order = np.argsort(self.nodes.server, kind="stable")
        return order, np.searchsorted(self.nodes.server[order], np.arange(len(self.servers) + 1))

    @cached_property
    def link_rate_gbit_s(self) -> NDArray[np.float64]:
        """The data rate of each link in one direction."""
        lane = np.array([s.lane_gbit_s for s in speeds()])
        return lane[self.links.speed] * self.links.width

    @cached_property
    def receive_error_rate(self) -> NDArray[np.float64]:
        """The bit error rate of the data that each port receives."""
        rates = np.zeros(len(self.ports))
        for number, ends in ((1, self.links.a), (2, self.links.b)):
            rates[ends] = np.where(self.links.good_end == number, 0.0, self.links.bit_error_rate)
        return rates
