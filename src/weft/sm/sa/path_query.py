"""Read path queries from PathRecord and MultiPathRecord, and order the SA's codes for rates: 3 is 10 Gbit/s, 5 is 5."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.fabric.rates import speeds
from weft.sm.sa import kernels
from weft.wire.mad import Method
from weft.wire.port_info import Mtu
from weft.wire.sa import MultiPathRecord, PathRecord, Rate, SaMad, SaStatus
from weft.wire.sa_query import component_names

_IN_ORDER = sorted(Rate, key=lambda rate: rate.gbit_s)
CODE_OF_RANK = np.array([0, *_IN_ORDER], np.uint8)  # ranks begin with 1: 0 is no rate
RANK_OF_CODE = np.zeros(64, np.uint8)
RANK_OF_CODE[_IN_ORDER] = np.arange(1, len(_IN_ORDER) + 1)
MOST = len(_IN_ORDER)


def link_ranks(fabric: Fabric) -> NDArray[np.uint8]:
    """Return [link] -> the rank of its signalling rate."""
    lane_gbit_s = np.array([speed.lane_signal_gbit_s for speed in speeds()])
    signals_gbit_s, inverse = np.unique(lane_gbit_s[fabric.links.speed] * fabric.links.width, return_inverse=True)
    ranks: NDArray[np.uint8] = RANK_OF_CODE[[Rate.of_signal(gbit_s) for gbit_s in signals_gbit_s.tolist()]][inverse]
    return ranks


def port_ranks(fabric: Fabric) -> NDArray[np.uint8]:
    """Return [slot] -> the rank of its link; port 0 of a switch has none, and limits nothing."""
    by_link = np.append(link_ranks(fabric), np.uint8(1))  # the last serves ports without a cable
    rank = by_link[fabric.ports.link]
    fastest = np.maximum.reduceat(rank, fabric.first_port) if len(rank) else rank
    return np.where(fabric.ports.number == 0, fastest[fabric.ports.node], rank).astype(np.uint8)


R = TypeVar("R", PathRecord, MultiPathRecord)
ANY_PATHS = 127  # as many as a query can ask for
_SELECTORS = (
    ("mtu", kernels.MTU_SELECTOR, kernels.WANT_MTU),
    ("rate", kernels.RATE_SELECTOR, kernels.WANT_RATE),
    ("packet_life_time", kernels.LIFE_SELECTOR, kernels.WANT_LIFE),
)
_NOTHING_WANTED = np.full(kernels.WANTED, -1, np.int64)
_PLAIN = {"dgid", "sgid", "dlid", "slid", "numb_path", "reversible", "p_key"}  # cheap to read: most queries


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathQuery(Generic[R]):
    """A path query; None and -1 stand for components that it does not have."""

    record: R
    named: frozenset[str]  # components of the mask
    wanted: NDArray[np.int64]  # for the kernel
    p_key: int
    at_most: int | None  # paths for a pair of ports
    is_get: bool  # one path will do

    def value(self, name: str) -> int | None:
        return int(getattr(self.record, name)) if name in self.named else None

    @property
    def sl(self) -> int:
        return int(self.wanted[kernels.WANT_SL])

    @property
    def service_id(self) -> int | None:
        if "service_id_8msb" not in self.named:
            return None
        return self.record.service_id_8msb << 56 | self.record.service_id_56lsb


@lru_cache(maxsize=1000)  # masks come from outside
def _named(form: type[PathRecord] | type[MultiPathRecord], mask: int) -> frozenset[str]:
    return frozenset(component_names(form, mask))


def read_query(form: type[R], request: SaMad) -> PathQuery[R] | SaStatus:
    """Read a query; return a status, as OpenSM does, if it cannot be answered."""
    record = form.unpack(request.raw, SaMad.size - SaMad.data.width // 8)
    named = _named(form, request.component_mask)
    if ("service_id_8msb" in named) != ("service_id_56lsb" in named):
        return SaStatus.INSUFFICIENT_COMPONENTS
    limits = _NOTHING_WANTED
    if not named <= _PLAIN or ("reversible" in named and record.reversible):
        requested = _wanted(record, named)
        if requested is None:
            return SaStatus.REQUEST_INVALID
        limits = requested
    is_get = request.method == Method.GET
    at_most = 1 if is_get else record.numb_path if "numb_path" in named else None
    return PathQuery(
        record=record,
        named=named,
        wanted=limits,
        p_key=record.p_key if "p_key" in named else -1,
        at_most=at_most,
        is_get=is_get,
    )


def _wanted(record: PathRecord | MultiPathRecord, named: frozenset[str]) -> NDArray[np.int64] | None:
    """Return the selectors; None for an invalid MTU or rate. A selector needs a value, and a value a selector."""
    limits = _NOTHING_WANTED.copy()
    for name, selector, value in _SELECTORS:
        if name in named and f"{name}_selector" in named:
            limits[selector], limits[value] = getattr(record, f"{name}_selector"), getattr(record, name)
    if limits[kernels.RATE_SELECTOR] >= 0:
        if not min(Rate) <= limits[kernels.WANT_RATE] <= max(Rate):
            return None
        limits[kernels.WANT_RATE] = RANK_OF_CODE[limits[kernels.WANT_RATE]]
    if limits[kernels.MTU_SELECTOR] >= 0 and not min(Mtu) <= limits[kernels.WANT_MTU] <= max(Mtu):
        return None
    if "sl" in named:
        limits[kernels.WANT_SL] = record.sl
    if "reversible" in named:
        limits[kernels.REVERSIBLE] = record.reversible
    return limits
