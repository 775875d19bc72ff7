"""Rank links: those with errors first, then the busiest, or by another key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from weft.monitor.change import Change
from weft.monitor.columns import Column
from weft.sim.result import XMIT_WAIT_TICK_PS

By = Literal["errors", "load", "wait"]
Floats = NDArray[np.float64]
_WORD_BITS = 32
_ERRORS = np.arange(Column.SYMBOL_ERROR, Column.PORT_XMIT_DATA_WORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A port in one interval; None for unknown values."""

    port: str
    peer: str
    rate_gbit_s: float
    out_gbit_s: float | None
    in_gbit_s: float | None
    load: float | None  # of the busier direction, from 0 to 1
    wait: float | None  # share of the time with data to send and no credits
    symbol_errors: int | None
    rcv_errors: int | None
    discards: int | None
    downs: int | None


def busiest(change: Change, by: By = "errors", count: int = 20) -> list[Row]:
    """Return the first ports in this order, one for each link: the end that ranks higher."""
    out, into = (_rate(change, column) for column in (Column.PORT_XMIT_DATA_WORDS, Column.PORT_RCV_DATA_WORDS))
    line = np.where(change.ports.rate_gbit_s > 0, change.ports.rate_gbit_s, np.nan)
    load = np.fmax(out, into) / line
    wait = np.minimum(_per_second(change, Column.PORT_XMIT_WAIT) * XMIT_WAIT_TICK_PS / 1e12, 1.0)
    errors = np.where(change.known, change.delta, 0)[:, _ERRORS].sum(axis=1).astype(np.float64)
    keys = {"errors": (errors, load), "load": (load, errors), "wait": (wait, load)}[by]
    order = np.lexsort([np.nan_to_num(-key, nan=np.inf) for key in reversed(keys)])
    chosen: dict[int, None] = {}
    for slot in order.tolist():
        if len(chosen) == count:
            break
        if change.ports.is_cabled[slot] and int(change.ports.peer[slot]) not in chosen:
            chosen[slot] = None
    return [_row(change, slot, out, into, load, wait) for slot in chosen]


def _per_second(change: Change, column: Column) -> Floats:
    """Return a rate for each slot; NaN where it is unknown or no time has passed."""
    known = change.known[:, column] & (change.seconds > 0)
    return np.where(known, change.delta[:, column] / (change.seconds or 1.0), np.nan)


def _rate(change: Change, column: Column) -> Floats:
    """Return Gbit/s for each slot, at most the line rate: times of readings are not exact."""
    return np.minimum(_per_second(change, column) * _WORD_BITS / 1e9, change.ports.rate_gbit_s)


def _row(change: Change, slot: int, out: Floats, into: Floats, load: Floats, wait: Floats) -> Row:
    ports = change.ports

    def count(column: Column) -> int | None:
        return int(change.delta[slot, column]) if change.known[slot, column] else None

    return Row(
        port=ports.name(slot),
        peer=ports.name(int(ports.peer[slot])) if ports.peer[slot] >= 0 else "",
        rate_gbit_s=float(ports.rate_gbit_s[slot]),
        out_gbit_s=_number(out[slot]),
        in_gbit_s=_number(into[slot]),
        load=_number(load[slot]),
        wait=_number(wait[slot]),
        symbol_errors=count(Column.SYMBOL_ERROR),
        rcv_errors=count(Column.PORT_RCV_ERRORS),
        discards=count(Column.PORT_XMIT_DISCARDS),
        downs=count(Column.LINK_DOWNED),
    )


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
