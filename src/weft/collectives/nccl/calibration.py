"""Published nccl-tests runs beside the model, with errors and the promised accuracy.

The runs are data, `calibration.toml`, each with its source; the constants that were fitted to some of them are in
`weft/fabric/catalog/nccl_times.toml`. The note of a run has assumptions that its source does not state.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

import msgspec

from weft.calibration.band import Band
from weft.calibration.figure import Figure as PublishedFigure
from weft.calibration.figure import mean_error, summary_cells
from weft.calibration.run import Run as PublishedRun
from weft.calibration.run import find_run, read_runs
from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import Cluster, from_server
from weft.collectives.nccl.estimate import Estimate, estimate
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.kind import kind_of
from weft.collectives.nccl.network import Network
from weft.collectives.nccl.times import Times

SMALL_BYTES = 64 << 10  # up to which time is latency
CURVE_BYTES = 1_000_000  # above which the curve is promised
LARGE_BYTES = 1 << 30  # from which bandwidth is what counts


class Sizes(enum.StrEnum):
    """The range of sizes with one promised accuracy."""

    SMALL = "small"  # latency up to 64 KiB
    MIDDLE = "middle"  # up to 1 MB: reported
    CURVE = "curve"  # above 1 MB
    LARGE = "large"  # bus bandwidth from 1 GiB


# How far off a promised figure may be, as a part of the measured one.
LIMITS = {Sizes.SMALL: 0.25, Sizes.MIDDLE: None, Sizes.CURVE: 0.25, Sizes.LARGE: 0.10}


class Run(PublishedRun, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published run of nccl-tests."""

    collective: Collective
    described: Cluster | None = msgspec.field(name="cluster", default=None)
    server: str = ""  # a template of the catalog, instead of `cluster`
    nodes: int = 0  # of `server`
    where: str  # the cluster that it ran on, which other runs may share
    rows: tuple[tuple[int, float], ...]  # bytes, microseconds
    in_place: tuple[int, ...] = ()
    network: str = "infiniband"
    transport: str = ""  # as fabrics.toml has it
    speed: str = ""
    cloud: bool = False
    adapter_gbyte_s: float | None = None  # ib_write_bw of the slowest adapter, if the source has it
    eager_bytes: int | None = None  # of a message, if variables of the run change what the transport has
    channels: int | None = None
    call_us: float = 0.0
    promised: bool = True

    @property
    def cluster(self) -> Cluster:
        return self.described or from_server(self.server, nodes=self.nodes)

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
            networks = {pattern: self._as_measured(network) for pattern, network in networks.items()}
        return estimate(
            self.cluster,
            self.collective,
            size_bytes,
            networks=networks,
            channels=self.channels,
            fitted=fitted,
        )

    def _as_measured(self, network: Network) -> Network:
        """Return a network with the adapters' rate and the eager messages of this run, where its source has them."""
        rate = network.adapter_gbyte_s if self.adapter_gbyte_s is None else self.adapter_gbyte_s
        eager_bytes = network.eager_bytes if self.eager_bytes is None else self.eager_bytes
        return replace(network, adapter_gbyte_s=rate, eager_bytes=eager_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(PublishedFigure):
    """A published time in microseconds and weft's."""

    estimate: Estimate
    call_us: float  # host time for each call, in both times

    @property
    def sizes(self) -> Sizes:
        return sizes_of(self.size_bytes)

    @property
    def is_within_limit(self) -> bool | None:
        """Return whether the promised accuracy is met; None without a promise. Large sizes compare by bandwidth."""
        if self.limit is None:
            return None
        return abs(self.slowdown - 1 if self.sizes is Sizes.LARGE else self.error) <= self.limit

    def is_in(self, band: Band) -> bool:
        return band.low <= (self.measured - self.call_us) / self.estimate.time_us <= band.high

    @property
    def measured_bus_gbyte_s(self) -> float:
        factor = self.estimate.collective.bus_factor(self.estimate.cluster.ranks)
        return self.size_bytes / self.measured / 1000 * factor


def sizes_of(size_bytes: int) -> Sizes:
    if size_bytes >= LARGE_BYTES:
        return Sizes.LARGE
    if size_bytes > CURVE_BYTES:
        return Sizes.CURVE
    return Sizes.SMALL if size_bytes <= SMALL_BYTES else Sizes.MIDDLE


@cache
def runs() -> tuple[Run, ...]:
    return read_runs("weft.collectives.nccl", "calibration.toml", Run)


def find(name: str) -> Run:
    return find_run(name, runs(), "weft nccl calibration")


def compare(run: Run, fitted: Times | None = None) -> tuple[Figure, ...]:
    """Compare every size of a run; `fitted` replaces the constants of nccl_times.toml."""
    estimates = [(size_bytes, measured_us, run.estimate(size_bytes, fitted)) for size_bytes, measured_us in run.rows]
    return tuple(
        Figure(
            run=run.name,
            cluster=run.where,
            kind=kind_of(estimated),
            size_bytes=size_bytes,
            measured=measured_us,
            predicted=estimated.time_us + run.call_us,
            limit=LIMITS[sizes_of(size_bytes)] if run.promised else None,
            estimate=estimated,
            call_us=run.call_us,
        )
        for size_bytes, measured_us, estimated in estimates
    )


@cache
def compare_all() -> tuple[Figure, ...]:
    """Compare every size of every run."""
    return tuple(figure for run in runs() for figure in compare(run))


COLUMNS = ("run", "sizes", "mean error", "worst error", "small ≤ 25 %", "above 1 MB ≤ 25 %", "bandwidth ≤ 10 %")


def calibration_table() -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return columns, a row for each run, and a note."""
    rows = [
        (
            *summary_cells(run.name, compare(run)),
            *(_verdict(compare(run), sizes) for sizes in (Sizes.SMALL, Sizes.CURVE, Sizes.LARGE)),
        )
        for run in runs()
    ]
    every = compare_all()
    missed = sum(figure.is_within_limit is False for figure in every)
    promised = sum(figure.is_within_limit is not None for figure in every)
    note = (
        f"{len(every)} times, mean absolute error {mean_error(every):.1%}; of {promised} that are promised, {missed} "
        f"miss. Each size, source and note: weft nccl calibration NAME, or --json"
    )
    return COLUMNS, rows, note


def figure_table(run: Run) -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return columns, a row for each size of a run, and its source and note."""
    rows: list[tuple[str, ...]] = []
    for figure in compare(run):
        promise = {None: "", True: "met", False: "MISSED"}[figure.is_within_limit]
        rows.append(
            (
                f"{figure.size_bytes:,}",
                f"{figure.measured:,.1f}",
                f"{figure.predicted:,.1f}",
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


def _verdict(figures: Iterable[Figure], sizes: Sizes) -> str:
    verdicts = [figure.is_within_limit for figure in figures if figure.sizes is sizes]
    if not verdicts:
        return ""
    if verdicts[0] is None:
        return "reported"
    missed = verdicts.count(False)
    return f"missed at {missed} of {len(verdicts)}" if missed else "met"
