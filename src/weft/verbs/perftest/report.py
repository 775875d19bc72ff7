"""Compute and print the rows of perftest's tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Tabs and blanks as in perftest, so that scripts for its output work.
LINE = "-" * 87
_BW_HEAD = " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]"
_BW_ROW = " {:<7d}    {:<10d}       {:<7.2f}            {:<7.2f}\t\t     {:<7.6f}"
_BW_ROW_EXACT = " {:<7d}    {:d}           {:<7.6f}            {:<7.6f}            {:<7.6f}"
_LAT_HEAD = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    "   99% percentile[usec]   99.9% percentile[usec] "
)
_LAT_ROW = (
    " {:<7d} {:d}          {:<7.2f}        {:<7.2f}      {:<7.2f}  \t       {:<7.2f}     \t{:<7.2f}"
    "\t\t{:<7.2f} \t\t{:<7.2f}"
)
_MIB_S = 1e9 / 8 / (1 << 20)  # per Gbit/s
_PEAK_MESSAGES_MAX = 20_000  # perftest's own limit: the search for the peak takes quadratic time
_BW_NAMES = ("MsgSize", "n_iterations", "BW_peak", "BW_average", "MsgRate")
_LAT_NAMES = (
    *("MsgSize", "n_iterations", "t_min", "t_max", "t_typical", "t_avg", "t_stdev"),
    *("percentile_99", "percentile_99.9"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthRow:
    """A line of a bandwidth test."""

    size_bytes: int
    iterations: int  # sum over queue pairs
    peak_gbit_s: float
    average_gbit_s: float
    message_rate_mpps: float

    def line(self, *, gbits: bool) -> str:
        scale = 1.0 if gbits else _MIB_S
        form = _BW_ROW_EXACT if gbits and self.average_gbit_s < 0.1 else _BW_ROW
        peak, average = self.peak_gbit_s * scale, self.average_gbit_s * scale
        return form.format(self.size_bytes, self.iterations, peak, average, self.message_rate_mpps)

    def facts(self) -> dict[str, Any]:
        """Return the values under the names of perftest's own JSON; bandwidth in Gbit/s."""
        return dict(zip(_BW_NAMES, astuple(self), strict=True))

    def plus(self, other: BandwidthRow) -> BandwidthRow:
        """Return the sum of both directions."""
        rates = ("peak_gbit_s", "average_gbit_s", "message_rate_mpps")
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in rates})


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow:
    """A line of a latency test."""

    size_bytes: int
    iterations: int
    min_us: float
    max_us: float
    typical_us: float  # the median
    average_us: float
    deviation_us: float
    p99_us: float
    p999_us: float

    @classmethod
    def of(cls, size_bytes: int, took_us: NDArray[np.float64]) -> LatencyRow:
        ordered = np.sort(took_us)
        return cls(
            size_bytes=size_bytes,
            iterations=len(ordered),
            min_us=float(ordered[0]),
            max_us=float(ordered[-1]),
            typical_us=float(np.median(ordered)),
            average_us=float(ordered.mean()),
            deviation_us=float(ordered.std()),
            p99_us=_percentile(ordered, 0.99),
            p999_us=_percentile(ordered, 0.999),
        )

    def line(self, *, gbits: bool = False) -> str:
        return _LAT_ROW.format(*astuple(self))

    def facts(self) -> dict[str, Any]:
        """Return the values under the names of perftest's own JSON."""
        return dict(zip(_LAT_NAMES, astuple(self), strict=True))


Row = BandwidthRow | LatencyRow


def row_of(facts: dict[str, Any]) -> Row:
    """Create a row from its `facts`."""
    kind: type[Row] = LatencyRow if "t_min" in facts else BandwidthRow
    return kind(**{field.name: value for field, value in zip(fields(kind), facts.values(), strict=True)})


def head(*, is_latency: bool, gbits: bool) -> str:
    return _LAT_HEAD if is_latency else _BW_HEAD.format("Gb/sec" if gbits else "MiB/sec")


def _percentile(ordered: NDArray[np.float64], part: float) -> float:
    """Return a percentile as perftest does: one element, not the mean of two."""
    return float(ordered[min(int(np.ceil(len(ordered) * part)), len(ordered) - 1)])


# -- bandwidth from times ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times at which messages were posted and completed, in nanoseconds: int64[message]."""

    posted_ns: NDArray[np.int64]
    done_ns: NDArray[np.int64]

    @property
    def span_ns(self) -> int:
        return max(int(self.done_ns[-1] - self.posted_ns[0]), 1)


def bandwidth_row(size_bytes: int, runs: Sequence[Times], *, no_peak: bool = False) -> BandwidthRow:
    """Return the row of one run, or of several consecutive runs."""
    messages = sum(len(run.done_ns) for run in runs)
    rate_mpps = messages * 1e3 / sum(run.span_ns for run in runs)
    peak_mpps = 0.0 if no_peak else max(rate_mpps, *(_peak_mpps(run) for run in runs))
    return BandwidthRow(
        size_bytes=size_bytes,
        iterations=messages,
        peak_gbit_s=peak_mpps * size_bytes * 8 / 1000,
        average_gbit_s=rate_mpps * size_bytes * 8 / 1000,
        message_rate_mpps=rate_mpps,
    )


def _peak_mpps(run: Times) -> float:
    """Return the best rate from the posting of any message to the completion of any later one."""
    n = len(run.done_ns)
    if n > _PEAK_MESSAGES_MAX:
        return 0.0
    ends = np.flatnonzero(np.diff(run.done_ns, append=run.done_ns[-1] + 1))  # last message of each completion
    best = 0.0
    for first in range(n):
        later = ends[np.searchsorted(ends, first) :]
        spans = np.maximum(run.done_ns[later] - run.posted_ns[first], 1)
        best = max(best, float(((later - first + 1) / spans).max()))
    return best * 1e3
