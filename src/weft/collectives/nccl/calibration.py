"""Published nccl-tests runs beside the model, with errors and the promised accuracy.

The runs are data, `calibration.toml`, each with its source; the constants that were fitted to some of them are in
`weft/fabric/catalog/nccl_times.toml`. The note of a run has assumptions that its source does not state.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

import msgspec

from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.estimate import Estimate, estimate
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.times import Times
from weft.errors import find_named
from weft.fabric.rates import read_data

SMALL_BYTES = 64 << 10  # up to which time is latency
CURVE_BYTES = 1_000_000  # above which the curve is promised
LARGE_BYTES = 1 << 30  # from which bandwidth is what counts


class Band(enum.StrEnum):
    """The range of sizes with one promised accuracy."""

    SMALL = "small"  # latency up to 64 KiB
    MIDDLE = "middle"  # up to 1 MB: reported
    CURVE = "curve"  # above 1 MB
    LARGE = "large"  # bus bandwidth from 1 GiB


# How far off a promised figure may be, as a part of the measured one.
LIMITS = {Band.SMALL: 0.25, Band.MIDDLE: None, Band.CURVE: 0.25, Band.LARGE: 0.10}


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published run of nccl-tests."""

    name: str
    collective: Collective
    cluster: Cluster
    where: str  # the cluster that it ran on, which other runs may share
    source: str
    date: datetime.date
    rows: tuple[tuple[int, float], ...]  # bytes, microseconds
    in_place: tuple[int, ...] = ()
    network: str = "infiniband"
    transport: str = ""  # as fabrics.toml has it
    speed: str = ""
    cloud: bool = False
    adapter_gbyte_s: float | None = None  # what the slowest adapter had in ib_write_bw, where the source says it
    channels: int | None = None
    call_us: float = 0.0
    promised: bool = True
    note: str = ""

    def estimate(self, size_bytes: int, fitted: Times | None = None) -> Estimate:
        networks = None
        if self.cluster.nodes > 1:
            networks = ideal_networks(
                self.cluster,
                network=self.network,
                transport=self.transport,
                speed=self.speed,
                cloud=self.cloud,
            )
            if self.adapter_gbyte_s is not None:
                measured = self.adapter_gbyte_s
                networks = {pattern: replace(one, adapter_gbyte_s=measured) for pattern, one in networks.items()}
        return estimate(
            self.cluster,
            self.collective,
            size_bytes,
            networks=networks,
            channels=self.channels,
            fitted=fitted,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published time and weft's."""

    run: str
    where: str
    size_bytes: int
    measured_us: float
    estimate: Estimate
    simulated_us: float
    promised: bool

    @property
    def error(self) -> float:
        """Return the relative error; above 0 if weft's time is too long."""
        return self.simulated_us / self.measured_us - 1

    @property
    def band(self) -> Band:
        if self.size_bytes >= LARGE_BYTES:
            return Band.LARGE
        if self.size_bytes > CURVE_BYTES:
            return Band.CURVE
        return Band.SMALL if self.size_bytes <= SMALL_BYTES else Band.MIDDLE

    @property
    def kept(self) -> bool | None:
        """Return whether the promised accuracy is met; None without a promise. Large sizes compare by bandwidth."""
        limit = LIMITS[self.band]
        if limit is None or not self.promised:
            return None
        off = self.measured_us / self.simulated_us - 1 if self.band is Band.LARGE else self.error
        return abs(off) <= limit

    @property
    def measured_bus_gbyte_s(self) -> float:
        made = self.estimate
        return self.size_bytes / self.measured_us / 1000 * made.collective.bus_factor(made.cluster.ranks)


@cache
def runs() -> tuple[Run, ...]:
    tables = read_data("weft.collectives.nccl", "calibration.toml")
    return msgspec.convert([{**table, "name": name} for name, table in tables.items()], tuple[Run, ...])


def find(name: str) -> Run:
    return find_named("run", name, {one.name: one for one in runs()}, "`weft nccl calibration` lists them.")


def compare(run: Run, fitted: Times | None = None) -> tuple[Figure, ...]:
    """Compare every size of a run; `fitted` replaces the constants of nccl_times.toml."""
    made = [(size, measured_us, run.estimate(size, fitted)) for size, measured_us in run.rows]
    return tuple(
        Figure(
            run=run.name,
            where=run.where,
            size_bytes=size,
            measured_us=measured_us,
            estimate=found,
            simulated_us=found.time_us + run.call_us,
            promised=run.promised,
        )
        for size, measured_us, found in made
    )


@cache
def compare_all() -> tuple[Figure, ...]:
    """Compare every size of every run."""
    return tuple(figure for run in runs() for figure in compare(run))


def mean_error(figures: Iterable[Figure]) -> float:
    """Return the mean absolute error."""
    errors = [abs(figure.error) for figure in figures]
    return sum(errors) / len(errors)


COLUMNS = ("run", "sizes", "mean error", "worst error", "small ≤ 25 %", "above 1 MB ≤ 25 %", "bandwidth ≤ 10 %")


def calibration_table() -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return columns, a row for each run, and a note."""
    rows: list[tuple[str, ...]] = []
    for run in runs():
        figures = compare(run)
        worst = max(figures, key=lambda figure: abs(figure.error))
        met = [_verdict(figures, band) for band in (Band.SMALL, Band.CURVE, Band.LARGE)]
        place = f"{worst.error:+.0%} at {worst.size_bytes:,} B"
        rows.append((run.name, str(len(figures)), f"{mean_error(figures):.1%}", place, *met))
    every = compare_all()
    missed = sum(figure.kept is False for figure in every)
    held = sum(figure.kept is not None for figure in every)
    note = (
        f"{len(every)} times, mean absolute error {mean_error(every):.1%}; of {held} that are promised, {missed} miss. "
        f"Each size, source and note: weft nccl calibration NAME, or --json"
    )
    return COLUMNS, rows, note


def figure_table(run: Run) -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return columns, a row for each size of a run, and its source and note."""
    rows: list[tuple[str, ...]] = []
    for figure in compare(run):
        promise = {None: "", True: "met", False: "MISSED"}[figure.kept]
        rows.append(
            (
                f"{figure.size_bytes:,}",
                f"{figure.measured_us:,.1f}",
                f"{figure.simulated_us:,.1f}",
                f"{figure.error:+.1%}",
                f"{figure.measured_bus_gbyte_s:,.2f}",
                f"{figure.estimate.bus_gbyte_s:,.2f}",
                figure.estimate.name,
                figure.estimate.bound,
                promise,
            )
        )
    heads = ("bytes", "measured us", "weft us", "error", "busbw", "weft busbw", "algorithm", "bound by", "promise")
    return heads, rows, f"Source: {run.source}" + (f"\nNote: {run.note}" if run.note else "")


def _verdict(figures: Iterable[Figure], band: Band) -> str:
    kept = [figure.kept for figure in figures if figure.band is band]
    if not kept:
        return ""
    if kept[0] is None:
        return "reported"
    missed = kept.count(False)
    return f"missed at {missed} of {len(kept)}" if missed else "met"
