"""Errors of KV hand-offs against published ones, each predicted by constants that are fitted to all others.

    errors = handoff_errors()
    errors.mean_error, errors.p90, errors.most

A hand-off takes a set-up and its bytes over a share of the rate of its adapters (`SETUP_S`, `ADAPTER_SHARE` of
`serving.placement`, which are fitted to all of them). They are of one source, so that no source can be left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from weft.fabric.rates import read_data
from weft.inference.serving.placement import ADAPTER_SHARE, SETUP_S


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffErrors:
    """The errors of published hand-offs, as shares of the measured times."""

    figures: int
    fitted_most: float  # the largest, with constants of all figures
    mean_error: float  # with each figure left out of the constants in turn
    bias: float
    p90: float
    most: float


@cache
def published_handoffs() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the seconds that the adapters need for the bytes at their full rate, and the measured seconds."""
    data = read_data("weft.inference", "published/handoffs.toml")
    tokens, measured_ms = np.array(data["rows"]).T
    return tokens * data["token_bytes"] / (1e9 * data["adapters_gbyte_s"]), 1e-3 * measured_ms


def handoff_errors() -> HandoffErrors:
    """Return the errors of all published hand-offs."""
    wire_s, measured_s = published_handoffs()
    fitted = (SETUP_S + wire_s / ADAPTER_SHARE) / measured_s - 1
    errors = np.array([_left_out(wire_s, measured_s, i) for i in range(len(wire_s))])
    return HandoffErrors(
        figures=len(errors),
        fitted_most=float(np.abs(fitted).max()),
        mean_error=float(np.abs(errors).mean()),
        bias=float(errors.mean()),
        p90=float(np.quantile(np.abs(errors), 0.9)),
        most=float(np.abs(errors).max()),
    )


def _left_out(wire_s: NDArray[np.float64], measured_s: NDArray[np.float64], index: int) -> float:
    """Return the error of a hand-off by the constants with the least relative errors of all others."""
    rows = np.column_stack((1 / measured_s, wire_s / measured_s))
    others = np.arange(len(rows)) != index
    constants = np.linalg.lstsq(rows[others], np.ones(len(rows) - 1), rcond=None)[0]
    return float(rows[index] @ constants) - 1
