"""Published runs of OSU's programs beside the model, with errors and bands.

The runs are data, `calibration.toml`, each with its source; the constants that were fitted to some of them, and the
bands, are in `weft/fabric/catalog/mpi_times.toml`. The note of a run has assumptions that its source does not state.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from weft.collectives.mpi.bench import Row, Settings, Test
from weft.collectives.mpi.bench import run as run_test
from weft.collectives.mpi.spread import Published, draw, find_band
from weft.collectives.mpi.times import Band
from weft.collectives.ranks import Ranks, place
from weft.errors import find_named
from weft.fabric.rates import read_data
from weft.fabric.spec import load
from weft.sim.engine import Network, Options
from weft.sim.perftest import prepare

COLUMNS = ("run", "sizes", "mean error", "worst error", "in the band", "promise")
LEFT_OUT_COLUMNS = ("cluster", "sizes", "mean error", "in bands of the others")


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published run."""

    name: str
    where: str  # the cluster
    test: Test
    spec: str
    promised: bool
    counted: bool = True  # has a part in the bands
    source: str
    date: datetime.date
    rows: tuple[tuple[int, float], ...]  # bytes; microseconds or MB/s
    ppn: int = 1
    network: Network | None = None
    mpi: str = "openmpi"
    coll: str = ""
    ucx_tls: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published figure and weft's."""

    run: Run
    ranks: int
    measured: float
    row: Row

    @property
    def error(self) -> float:
        """Return the relative error; above 0 if weft's figure is larger."""
        return self.row.value / self.measured - 1

    @property
    def published(self) -> Published:
        slower = self.measured / self.row.value
        return Published(
            where=self.run.where,
            kind=self.row.kind,
            ranks=self.ranks,
            slower=1 / slower if self.run.test.is_bandwidth else slower,
        )

    @property
    def kept(self) -> bool:
        """Return whether the published figure lies in the band."""
        return self.row.low <= self.measured <= self.row.high


@cache
def runs() -> tuple[Run, ...]:
    tables = read_data("weft.collectives.mpi", "calibration.toml")
    return msgspec.convert([{**table, "name": name} for name, table in tables.items()], tuple[Run, ...])


def find(name: str) -> Run:
    return find_named("run", name, {one.name: one for one in runs()}, "`weft osu calibration` lists them.")


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
        only=tuple(size_bytes for size_bytes, _ in run.rows),
        options=Options(network=run.network),
    )
    ranks = _place(run.spec)
    n_ranks = len(ranks.servers) * run.ppn if run.test.collective else 2
    rows = run_test(ranks, settings).rows
    return tuple(
        Figure(run=run, ranks=n_ranks, measured=measured, row=row)
        for (_, measured), row in zip(run.rows, rows, strict=True)
    )


def bands(figures: Iterable[Figure], without: str = "") -> dict[str, Band]:
    """Return the bands from runs that count, without those of one cluster."""
    return draw(one.published for one in figures if one.run.counted and one.run.where != without)


def left_out(figures: Sequence[Figure]) -> tuple[list[tuple[str, ...]], str]:
    """Return a row for each cluster, with its figures in bands of the other clusters, and a note."""
    rows: list[tuple[str, ...]] = []
    every, inside = 0, 0
    for where in dict.fromkeys(one.run.where for one in figures if one.run.counted):
        others = bands(figures, without=where)
        own = [one for one in figures if one.run.where == where and one.run.counted]
        held = sum(_held(one, others) for one in own)
        rows.append((where, str(len(own)), f"{mean_error(own):.1%}", f"{held} of {len(own)}"))
        every, inside = every + len(own), inside + held
    return rows, f"{inside} of {every} figures lie in bands that their cluster had no part in, {inside / every:.0%}"


def _held(figure: Figure, others: dict[str, Band]) -> bool:
    band = find_band(figure.row.kind, figure.ranks, others)
    return band.low <= figure.published.slower <= band.high


def mean_error(figures: Iterable[Figure]) -> float:
    """Return the mean absolute error."""
    errors = [abs(figure.error) for figure in figures]
    return sum(errors) / len(errors)


def summary(compared: Iterable[tuple[Run, tuple[Figure, ...]]]) -> tuple[list[tuple[str, ...]], str]:
    """Return a row for each run, and a note."""
    rows: list[tuple[str, ...]] = []
    promised: list[Figure] = []
    for run, figures in compared:
        worst = max(figures, key=lambda figure: abs(figure.error))
        place = f"{worst.error:+.0%} at {worst.row.size_bytes:,} B"
        kept = f"{sum(figure.kept for figure in figures)} of {len(figures)}"
        promise = "nine of ten" if run.promised else "none: reported"
        rows.append((run.name, str(len(figures)), f"{mean_error(figures):.1%}", place, kept, promise))
        promised += figures if run.promised else ()
    if not promised:
        return rows, ""
    inside = sum(figure.kept for figure in promised)
    note = (
        f"Of {len(promised)} figures of promised runs {inside} lie in their band; mean absolute error "
        f"{mean_error(promised):.1%}. Each size, source and note: weft osu calibration NAME, or --json"
    )
    return rows, note
