"""The band around a figure, by the errors of published figures of its kind (`weft.calibration.band`).

A kind is a test with sizes, what carries the messages, and how many ranks. Of each cluster nine of ten figures count. A
kind that one cluster alone published is taken wider: any number of ranks, then any carrier. The bands are drawn once,
into mpi_times.toml, and a test draws them again.

Beyond the ranks of anything published the upper end grows with them: a delay of one of n ranks delays all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from weft.calibration.band import BEYOND, Published, by_kind, narrowest
from weft.calibration.band import draw as draw_band
from weft.collectives.mpi.times import Band

SMALL_BYTES = 2048  # up to which latency is what counts
MANY_RANKS = 2048
_SMALL, _LARGE = "up to 2 KiB", "from 4 KiB on"
_LEAST = {  # least width to both sides, as logarithms; bandwidth of small messages is the rate of calls
    **dict.fromkeys((f"latency {_SMALL}", f"latency {_LARGE}", f"bandwidth {_LARGE}"), 0.15),
    f"bandwidth {_SMALL}": 0.3,
    **dict.fromkeys((f"collectives {_SMALL}", f"collectives {_LARGE}"), 0.35),
}
_WIDE = 10.0
_COVERAGE = 0.9  # share of each cluster's figures


class RankedFigure(Published, Protocol):
    """A published figure with the number of its ranks."""

    @property
    def ranks(self) -> int: ...


def kind_of(test: str, size_bytes: int, carrier: str, n_ranks: int) -> tuple[str, ...]:
    """Return the properties of a kind, the most important first."""
    sizes = f"{test} {_SMALL if size_bytes <= SMALL_BYTES else _LARGE}"
    if test != "collectives":
        return sizes, carrier
    return sizes, carrier, f"{'up to' if n_ranks <= MANY_RANKS else 'more than'} {MANY_RANKS:,} ranks"


def draw(figures: Iterable[RankedFigure]) -> dict[str, Band]:
    """Return a band for every kind and every wider one."""
    return {", ".join(kind): _draw(alike) for kind, alike in by_kind(figures).items() if kind}


def _draw(figures: Sequence[RankedFigure]) -> Band:
    band = draw_band(figures, coverage=_COVERAGE, symmetric=False).at_least(_LEAST[figures[0].kind[0]])
    return Band(
        low=band.low,
        high=band.high,
        clusters=band.clusters,
        ranks=max(figure.ranks for figure in figures),
        worst=max(figure.slowdown for figure in figures),
    )


def find_band(kind: tuple[str, ...], n_ranks: int, bands: dict[str, Band]) -> Band:
    """Return the band of the narrowest kind that two clusters published."""
    band = bands[", ".join(_narrowest(kind, bands))]
    return replace(band, high=band.high * max(n_ranks / band.ranks, 1.0))


def _narrowest(kind: tuple[str, ...], bands: dict[str, Band]) -> tuple[str, ...]:
    names = {wider: ", ".join(wider) for wider in (kind[:length] for length in range(len(kind) + 1))}
    return narrowest(kind, lambda wider: bands[names[wider]].clusters if names[wider] in bands else 0, least=1)


def remarks(kind: tuple[str, ...], n_ranks: int, bands: dict[str, Band]) -> Iterable[str]:
    """Yield remarks on a figure with a wide band, or far from anything published."""
    band, alike = find_band(kind, n_ranks, bands), bands.get(", ".join(kind[:2]))
    if band.high >= _WIDE:
        over = f" over {kind[1]}" if len(_narrowest(kind, bands)) > 1 else ""
        yield f"Published {kind[0]}{over} took up to {band.worst:.0f} times as long: the band is wide"
    if alike is None:
        yield f"Far from anything published: no published {kind[0]} over {kind[1]}"
    elif n_ranks > BEYOND * alike.ranks:
        yield f"Far from anything published: {n_ranks:,} ranks, and the most over {kind[1]} are {alike.ranks:,}"
