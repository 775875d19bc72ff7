"""Bands around throughput and latency: conformal intervals (`weft.calibration.conformal`) by published figures.

A kind is a metric and a load, a generation of GPUs, and with experts or without; a source counts by its models. Errors
are those with the constants that a source was used for left out; trials do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache

from weft.calibration.band import Band
from weft.calibration.conformal import Bands
from weft.calibration.cross_validation import Prediction, leave_one_out
from weft.inference.deployment import Deployment
from weft.inference.load import Load
from weft.inference.validate import Figure, kind_of, leave_out


def band_of(kind: tuple[str, ...]) -> Band:
    """Return the band of predictions of a kind."""
    return _band(kind, _without_trials(leave_out(searched=False)))


def pace_band(deployment: Deployment) -> Band:
    """Return the band of the time of steps, relative to the prediction: that of full steps without a queue.

    Published latencies are few, and near saturation a step that is a little longer makes a queue: so the band of
    steps is that of throughput, and a load is served with steps at both of its ends.
    """
    throughput = band_of(kind_of(deployment, Load(input=1, output=1), "tokens_per_s"))
    return replace(throughput, low=1 / throughput.high, high=1 / throughput.low)


def _without_trials(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    return tuple(figure for figure in figures if not figure.trial)


@lru_cache(maxsize=256)
def _band(kind: tuple[str, ...], figures: tuple[Figure, ...]) -> Band:
    metric = kind[0].partition(",")[0]  # errors of a time to the first token say nothing about throughput
    same = tuple(figure for figure in figures if figure.kind[0].startswith(metric)) or figures
    seen = {prop for figure in same for prop in figure.kind}
    unlike = tuple(f"no figures are published for {prop}" for prop in kind[1:] if prop not in seen)
    return _bands(same).band_for(kind, unlike=unlike)


@cache
def _bands(figures: tuple[Figure, ...]) -> Bands:
    return Bands.of(figures)


@cache
def leave_sources_out() -> dict[str, tuple[Prediction[Figure], ...]]:
    """Return the figures of each source, with the constants and bands that the other sources give."""
    every = leave_out()

    def predict(source: str) -> Iterable[tuple[Figure, Band]]:
        others = _without_trials(figure for figure in every if figure.source != source)
        return ((each, _band(each.kind, others)) for each in every if each.source == source)

    return leave_one_out((figure.source for figure in every), predict)
