"""The band around a figure: as wide as the errors of published ones of its kind, wider where few are published.

A kind is a test, sizes, what carries the messages, and how many ranks. Of each cluster that published such figures
nine of ten are taken; the band goes as far as the farthest cluster's, and a k-th more where they are from k clusters:
another one may always be worse. A kind that one cluster alone published is taken wider: any number of ranks, then any
carrier. The bands are drawn once, into mpi_times.toml, and a test draws them again.

Beyond the ranks of anything published the upper end grows with them: what holds up one of n ranks holds up all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log

import msgspec
import numpy as np

from weft.collectives.mpi.times import Band

SMALL_BYTES = 2048  # up to which latency is what counts
MANY_RANKS = 2048
_SMALL, _LARGE = "up to 2 KiB", "from 4 KiB on"
_LEAST = {  # of a band, to both sides, as logarithms; of small messages bandwidth is the rate of calls
    **dict.fromkeys((f"latency {_SMALL}", f"latency {_LARGE}", f"bandwidth {_LARGE}"), 0.15),
    f"bandwidth {_SMALL}": 0.3,
    **dict.fromkeys((f"collectives {_SMALL}", f"collectives {_LARGE}"), 0.35),
}
_WIDE = 10.0
_BEYOND = 2  # times the most that were published: far
_QUANTILES = (0.05, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published figure beside weft's."""

    where: str
    kind: tuple[str, ...]
    ranks: int
    slower: float  # how many times weft's time the published one is


def kind_of(test: str, size_bytes: int, carrier: str, n_ranks: int) -> tuple[str, ...]:
    """Return the properties of a kind, the most important first."""
    sizes = f"{test} {_SMALL if size_bytes <= SMALL_BYTES else _LARGE}"
    if test != "collectives":
        return sizes, carrier
    return sizes, carrier, f"{'up to' if n_ranks <= MANY_RANKS else 'more than'} {MANY_RANKS:,} ranks"


def draw(published: Iterable[Published]) -> dict[str, Band]:
    """Return a band for every kind and every wider one."""
    by_kind: dict[tuple[str, ...], list[Published]] = {}
    for one in published:
        for length in range(1, len(one.kind) + 1):
            by_kind.setdefault(one.kind[:length], []).append(one)
    return {", ".join(kind): _around(figures) for kind, figures in by_kind.items()}


def _around(figures: Sequence[Published]) -> Band:
    clusters = {one.where for one in figures}
    ends = [
        np.quantile([log(one.slower) for one in figures if one.where == where], _QUANTILES).tolist()
        for where in sorted(clusters)
    ]
    more, least = 1 + 1 / len(clusters), _LEAST[figures[0].kind[0]]
    return Band(
        low=exp(min(more * min(low for low, _ in ends), -least)),
        high=exp(max(more * max(high for _, high in ends), least)),
        clusters=len(clusters),
        ranks=max(one.ranks for one in figures),
        worst=max(one.slower for one in figures),
    )


def find_band(kind: tuple[str, ...], n_ranks: int, bands: dict[str, Band]) -> Band:
    """Return the band of the narrowest kind that two clusters published."""
    found = bands[_witnessed(kind, bands)]
    return msgspec.structs.replace(found, high=found.high * max(n_ranks / found.ranks, 1.0))


def _witnessed(kind: tuple[str, ...], bands: dict[str, Band]) -> str:
    """Return the narrowest kind with two clusters: any number of ranks if needed, then any carrier."""
    names = (", ".join(kind[:length]) for length in range(len(kind), 1, -1))
    return next((name for name in names if name in bands and bands[name].clusters > 1), kind[0])


def remarks(kind: tuple[str, ...], n_ranks: int, bands: dict[str, Band]) -> Iterable[str]:
    """Yield remarks on a figure with a wide band, or far from anything published."""
    band, alike = find_band(kind, n_ranks, bands), bands.get(", ".join(kind[:2]))
    if band.high >= _WIDE:
        over = "" if _witnessed(kind, bands) == kind[0] else f" over {kind[1]}"
        yield f"Published {kind[0]}{over} took up to {band.worst:.0f} times as long: the band is wide"
    if alike is None:
        yield f"Far from anything published: nobody has {kind[0]} over {kind[1]}"
    elif n_ranks > _BEYOND * alike.ranks:
        yield f"Far from anything published: {n_ranks:,} ranks, and the most over {kind[1]} are {alike.ranks:,}"
