"""Published runs of OSU's programs beside the model, with errors and bands.

The runs are data, `calibration.toml`, each with its source; the constants that were fitted to some of them, and the
bands, are in `weft/fabric/catalog/mpi_times.toml`. The note of a run has assumptions that its source does not state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from weft.calibration.chance import shortfalls_of
from weft.calibration.cross_validation import (
    Prediction,
    bias_and_p90,
    cluster_rows,
    count_in_bands,
    errors_in_words,
    leave_one_out,
)
from weft.calibration.figure import Figure as PublishedFigure
from weft.calibration.figure import mean_error, summary_cells
from weft.calibration.run import Run as PublishedRun
from weft.calibration.run import find_run, read_runs
from weft.collectives.mpi.band import draw, find_band
from weft.collectives.mpi.bench import Row, Settings, Test
from weft.collectives.mpi.bench import run as run_test
from weft.collectives.mpi.times import Band
from weft.collectives.ranks import Ranks, place
from weft.fabric.spec import load
from weft.sim.engine import Network, Options
from weft.sim.perftest import prepare

COLUMNS = ("run", "sizes", "mean error", "worst error", "in the band", "promise")
CLUSTER_COLUMNS = ("cluster", "sizes", "mean error", "bias", "p90", "in bands of the others")
Predictions = dict[str, tuple[Prediction["Figure"], ...]]


class Run(PublishedRun, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published run of OSU's programs."""

    where: str  # the cluster
    test: Test
    spec: str
    promised: bool
    counted: bool = True  # has a part in the bands
    rows: tuple[tuple[int, float], ...]  # bytes; microseconds or MB/s
    ppn: int = 1
    network: Network | None = None
    mpi: str = "openmpi"
    coll: str = ""
    ucx_tls: str = ""
    pods: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(PublishedFigure):
    """A published time in microseconds, or bandwidth in MB/s, and weft's."""

    test: Test
    ranks: int
    counted: bool  # has a part in the bands
    row: Row

    @property
    def slowdown(self) -> float:
        """The published time, in times of weft's."""
        slowdown = self.measured / self.predicted
        return 1 / slowdown if self.test.is_bandwidth else slowdown

    @property
    def is_in_band(self) -> bool:
        """Return whether the published figure lies in the band that weft prints."""
        return self.row.low <= self.measured <= self.row.high


@cache
def runs() -> tuple[Run, ...]:
    return read_runs("weft.collectives.mpi", "calibration.toml", Run)


def find(name: str) -> Run:
    return find_run(name, runs(), "weft osu calibration")


@cache
def _place(spec: str) -> Ranks:
    return place(prepare(load(spec)))


def compare(run: Run) -> tuple[Figure, ...]:
    """Compare every size of a run."""
    settings = Settings(
        test=run.test,
        mpi=run.mpi,
        coll=run.coll,
        ucx_tls=run.ucx_tls,
        ppn=run.ppn,
        pods=run.pods,
        only=tuple(size_bytes for size_bytes, _ in run.rows),
        options=Options(network=run.network),
    )
    ranks = _place(run.spec)
    n_ranks = len(ranks.servers) * run.ppn if run.test.collective else 2
    rows = run_test(ranks, settings).rows
    return tuple(
        Figure(
            run=run.name,
            cluster=run.where,
            kind=row.kind,
            size_bytes=row.size_bytes,
            measured=measured,
            predicted=row.value,
            test=run.test,
            ranks=n_ranks,
            counted=run.counted,
            row=row,
        )
        for (_, measured), row in zip(run.rows, rows, strict=True)
    )


def bands(figures: Iterable[Figure], without: str = "") -> dict[str, Band]:
    """Return the bands from runs that count, without those of one cluster."""
    return draw(figure for figure in figures if figure.counted and figure.cluster != without)


def cross_validate(figures: Sequence[Figure]) -> Predictions:
    """Return the figures of each cluster with the bands that the other clusters give."""
    counted = [figure for figure in figures if figure.counted]

    def predict(cluster: str) -> Iterator[tuple[Figure, Band]]:
        other_bands = bands(counted, without=cluster)
        for figure in counted:
            if figure.cluster == cluster:
                yield figure, find_band(figure.kind, figure.ranks, other_bands)

    return leave_one_out((figure.cluster for figure in counted), predict)


def cross_validation(predictions: Predictions) -> tuple[list[tuple[str, ...]], str]:
    """Return a row for each cluster, with its figures in bands of the other clusters, and a note."""
    rows = cluster_rows(predictions, lambda _, own: (f"{mean_error(own):.1%}", *bias_and_p90(own)))
    inside, count = count_in_bands(predictions)
    figures = [prediction.figure for own in predictions.values() for prediction in own]
    note = (
        f"All {count} figures: {errors_in_words(figures)}; {inside} lie in bands that their cluster had no part in, "
        f"{inside / count:.0%}"
    )
    return rows, f"{note}\n{shortfalls_of(predictions)}"


def summary(compared: Iterable[tuple[Run, tuple[Figure, ...]]]) -> tuple[list[tuple[str, ...]], str]:
    """Return a row for each run, and a note."""
    rows: list[tuple[str, ...]] = []
    promised: list[Figure] = []
    for run, figures in compared:
        inside = f"{sum(figure.is_in_band for figure in figures)} of {len(figures)}"
        promise = "nine of ten" if run.promised else "none: reported"
        rows.append((*summary_cells(run.name, figures), inside, promise))
        promised += figures if run.promised else ()
    if not promised:
        return rows, ""
    n_inside = sum(figure.is_in_band for figure in promised)
    note = (
        f"{n_inside} of {len(promised)} figures of promised runs lie in their band; mean absolute error "
        f"{mean_error(promised):.1%}. Each size, source and note: weft osu calibration NAME, or --json"
    )
    return rows, note
