"""The band around a figure, by the errors of published figures (`weft.calibration.conformal`).

A class is a test and its transport; collectives in pods of Kubernetes, and by datagrams of UCX, are classes of their
own. A class has separate bands for small and large messages. Single messages, collectives, and those two kinds of
collectives have bands by their own errors only. mpi_times.toml contains the bands, and a test computes them again.
Beyond the published numbers of ranks the upper end grows with the ranks: a delay of one of n ranks delays all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from weft.calibration.band import BEYOND, Published, by_kind
from weft.calibration.conformal import Bands
from weft.collectives.mpi.times import Band

SMALL_BYTES = 2048  # up to which latency is what counts
_SMALL, _LARGE = "up to 2 KiB", "from 4 KiB on"
_WIDE = 10.0
IN_PODS, OVER_DATAGRAMS = "in pods", "over datagrams"
_COLLECTIVES, _MESSAGES = "any collectives", "any messages"  # the bands of classes without published figures


class RankedFigure(Published, Protocol):
    """A published figure with the number of its ranks."""

    @property
    def ranks(self) -> int: ...


def kind_of(test: str, size_bytes: int, place: str) -> tuple[str, ...]:
    """Return the properties of a kind, the most important first; `place`: "over TCP", "in pods"."""
    return f"{test} {place}", _SMALL if size_bytes <= SMALL_BYTES else _LARGE


def draw(figures: Iterable[RankedFigure]) -> dict[str, Band]:
    """Return a band for every kind and every wider one, and that of an unseen class."""
    families: dict[str, list[RankedFigure]] = {}
    for figure in figures:
        families.setdefault(_family(figure.kind), []).append(figure)
    drawn: dict[str, Band] = {}
    for family, among in families.items():
        bands = Bands.of(among)
        for kind, alike in by_kind(among).items():
            drawn[", ".join(kind) or family] = _draw(bands, kind or (family,), alike)
    return drawn


def _family(kind: tuple[str, ...]) -> str:
    """Return the name of the tests whose errors have a part in the bands of a kind."""
    if kind[0].startswith("collectives"):
        return f"{_COLLECTIVES} that wait" if kind[0].endswith((IN_PODS, OVER_DATAGRAMS)) else _COLLECTIVES
    return _MESSAGES


def _draw(bands: Bands, kind: tuple[str, ...], figures: Iterable[RankedFigure]) -> Band:
    band, alike = bands.band_for(kind), list(figures)
    return Band(
        low=band.low,
        high=band.high,
        clusters=band.clusters,
        ranks=max(figure.ranks for figure in alike),
        worst=max(figure.slowdown for figure in alike),
    )


def find_band(kind: tuple[str, ...], n_ranks: int, bands: dict[str, Band]) -> Band:
    """Return the band of the narrowest kind with published figures."""
    band = bands[_narrowest(kind, bands)]
    return replace(band, high=band.high * max(n_ranks / band.ranks, 1.0))


def _narrowest(kind: tuple[str, ...], bands: dict[str, Band]) -> str:
    names = (", ".join(kind[:length]) for length in range(len(kind), 0, -1))
    return next((name for name in names if name in bands), _family(kind))


def remarks(kind: tuple[str, ...], n_ranks: int, bands: dict[str, Band]) -> Iterable[str]:
    """Yield remarks on a figure with a wide band, or far from anything published."""
    name = _narrowest(kind, bands)
    band = find_band(kind, n_ranks, bands)
    if name == _family(kind):
        yield f"Far from anything published: no published {kind[0]}"
    elif n_ranks > BEYOND * band.ranks:
        yield f"Far from anything published: {n_ranks:,} ranks, and the most of {kind[0]} are {band.ranks:,}"
    elif band.high >= _WIDE:
        yield f"Published {name} took up to {band.worst:.0f} times as long: the band is wide"
