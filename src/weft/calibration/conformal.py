"""Bands that hold on clusters without published figures: conformal intervals with whole sources left out.

    bands = Bands.of(figures)                     # published figures with their predictions, from several sources
    bands.band_for(("TCP", "large", "Ring"))      # the 90 % interval around a prediction of this kind
    bands.without("azure-a100")                   # the same without a source, for cross-validation

A kind is a tuple of properties, the most important first; its first property is its class. Errors are logarithms of
measured over predicted times.

1. Scale. Mean and mean square of the errors of a kind, each source with the same weight. A kind starts from its wider
   kind, which counts as much as `PRIOR` sources: with no source of its own it has the errors of the wider kind. The
   spread is larger by `FEW`/n for n sources of the class, `PRIOR` included: that of few sources is uncertain.
2. Quantile. Each source is left out, and its errors are divided by the scale that the other sources give. For each
   source the band takes the score within which 85 % of its figures lie, and of these the 90 % quantile, larger by 1/n
   for n sources. Sources of so few figures that 85 % are all of them count together as one.
3. Unseen classes. The same with whole classes left out gives the quantile for a class without published figures.

So nine of ten new sources that resemble the published ones have at least 85 % of their figures in the band, and more
than 90 % of all figures are in it. (Dunn, Wasserman, Ramdas: Distribution-Free Prediction Sets for Two-Layer
Hierarchical Models, 2023; scores normalised as in Lei et al.: Distribution-Free Predictive Inference for Regression,
2018.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, log, sqrt

from weft.calibration.band import Band, Published

WITHIN = 0.85  # the share of the figures of a source that are to lie in the band
SOURCES = 0.9  # the share of sources for which they do
PRIOR = 3.0  # sources that the wider kind counts for
FEW = 2.0  # sources that double a spread's uncertainty: close to Student's quantiles for 3 to 10 sources
LEAST_SCALE = 0.1  # least spread of errors: clusters of the same hardware differ by as much

Kind = tuple[str, ...]
Errors = Mapping[Kind, tuple[float, ...]]
_Scale = tuple[float, float]  # centre and spread of errors


@dataclass(frozen=True, slots=True)
class _Moments:
    mean: float
    square: float

    @staticmethod
    def of(errors: Collection[float]) -> _Moments:
        n = len(errors)
        return _Moments(sum(errors) / n, sum(error * error for error in errors) / n)


@dataclass(frozen=True, eq=False)
class Bands:
    """The bands of one domain, by the errors of its published figures."""

    by_source: Mapping[str, Errors]

    @staticmethod
    def of(figures: Iterable[Published]) -> Bands:
        """Return the bands of these figures; those of a cluster are one source."""
        errors: dict[str, dict[Kind, tuple[float, ...]]] = {}
        for figure in figures:
            own = errors.setdefault(figure.cluster, {})
            own[figure.kind] = (*own.get(figure.kind, ()), log(figure.slowdown))
        return Bands(errors)

    def without(self, source: str) -> Bands:
        return Bands({name: errors for name, errors in self.by_source.items() if name != source})

    def band_for(self, kind: Kind, *, unlike: tuple[str, ...] = ()) -> Band:
        """Return the band around a prediction of this kind.

        :param unlike: Other properties that no published figure has, in words: the band is that of an unseen class.
        """
        alike = kind
        while alike and not self._cells.get(alike):
            alike = alike[:-1]
        sources = {source for source, _ in self._cells[alike]}
        centre, spread = self._scale(kind)
        width = self.quantile * spread
        if not alike or unlike:
            scales = [self._scale(())]
            if alike:  # at least as wide as the widest of the kinds that it resembles
                scales += [self._scale(known) for known in self._cells if known[: len(alike)] == alike]
            width = max(width, *(self.unseen_quantile * spread + abs(centre) for centre, spread in scales))
        far = (*unlike, *(() if alike else (f"no published run of {kind[0]}",)))
        return Band(
            low=exp(min(centre - width, 0.0)),
            high=exp(max(centre + width, 0.0)),
            clusters=len(sources),
            kind=", ".join(alike) or "any kind",
            far=far,
        )

    @cached_property
    def quantile(self) -> float:
        """Return the quantile of scores with each source left out, where another one has its class."""
        scores: dict[str, list[float]] = {}
        for source, kinds in self.by_source.items():
            left_out = frozenset({source})
            for kind, errors in kinds.items():
                if any(name != source for name, _ in self._cells[kind[:1]]):
                    centre, spread = self._scale(kind, left_out)
                    scores.setdefault(source, []).extend(abs(error - centre) / spread for error in errors)
        return _quantile(scores.values())

    @cached_property
    def unseen_quantile(self) -> float:
        """Return the quantile of scores with each class left out; at least that of seen classes."""
        scores: dict[tuple[str, Kind], list[float]] = {}
        if len({of_class for _, of_class in self._cells[()]}) > 1:
            for source, kinds in self.by_source.items():
                for kind, errors in kinds.items():
                    centre, spread = self._scale((), without_class=kind[:1])
                    own = scores.setdefault((source, kind[:1]), [])
                    own.extend(abs(error - centre) / spread for error in errors)
        return max(_quantile(scores.values()), self.quantile)

    @cached_property
    def _cells(self) -> dict[Kind, dict[tuple[str, Kind], _Moments]]:
        """Return the moments of each source by kind and wider kind; those of () are by source and class."""
        errors: dict[Kind, dict[tuple[str, Kind], list[float]]] = {(): {}}
        for source, kinds in self.by_source.items():
            for kind, own in kinds.items():
                for length in range(len(kind) + 1):
                    cell = errors.setdefault(kind[:length], {})
                    cell.setdefault((source, kind[: max(length, 1)]), []).extend(own)
        return {kind: {key: _Moments.of(own) for key, own in cell.items()} for kind, cell in errors.items()}

    def _scale(self, kind: Kind, without: frozenset[str] = frozenset(), without_class: Kind | None = None) -> _Scale:
        """Return centre and spread of the errors of a kind, without some sources or without a class."""
        mean = square = of_class = 0.0
        for length in range(len(kind) + 1):
            cells = self._cells.get(kind[:length], {})
            own = [
                cell
                for (source, own_class), cell in cells.items()
                if source not in without and own_class != without_class
            ]
            prior = PRIOR if length else 0.0
            total = prior + len(own)
            of_class = total if length < 2 else of_class
            if total:
                mean = (prior * mean + sum(cell.mean for cell in own)) / total
                square = (prior * square + sum(cell.square for cell in own)) / total
        return mean, max(sqrt(max(square - mean * mean, 0.0)), LEAST_SCALE) * (1 + FEW / max(of_class, 1.0))


def _quantile(scores_by_source: Iterable[Collection[float]]) -> float:
    """Return the score within which enough figures of enough sources lie, larger by 1/n: a new source may be worse.

    The exact conformal level of n sources is (n + 1)/n of the share, which for nine is the largest score of all.
    """
    groups = list(scores_by_source)
    if not groups:
        return 0.0
    few = sorted(score for group in groups if _needed(group) == len(group) for score in group)
    counted = [*(sorted(group) for group in groups if _needed(group) < len(group)), *([few] if few else [])]
    levels = sorted(scores[_needed(scores) - 1] for scores in counted)
    place = SOURCES * (len(levels) - 1)
    below, above = levels[int(place)], levels[ceil(place)]
    return (below + (place % 1) * (above - below)) * (1 + 1 / len(groups))


def _needed(scores: Collection[float]) -> int:
    """Return how many of the figures of a source are to lie in the band."""
    return ceil(round(WITHIN * len(scores), 6))
