"""Cross-validation: each cluster is left out in turn, and predicted without its own runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Generic, TypeVar

import numpy as np

from weft.calibration.band import Band
from weft.calibration.conformal import Bands
from weft.calibration.figure import Figure, mean_error

AnyFigure = TypeVar("AnyFigure", bound=Figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Generic[AnyFigure]):
    """A figure and its band, both without the figure's cluster."""

    figure: AnyFigure
    band: Band

    @property
    def is_in_band(self) -> bool:
        return self.figure.is_in(self.band)


Predictions = Mapping[str, Sequence[Prediction[AnyFigure]]]  # by cluster


def leave_one_out(
    clusters: Iterable[str], predict: Callable[[str], Iterable[tuple[AnyFigure, Band]]]
) -> dict[str, tuple[Prediction[AnyFigure], ...]]:
    """Return the predictions of each cluster; `predict` has the figures and bands without it."""
    return {
        cluster: tuple(Prediction(figure=figure, band=band) for figure, band in predict(cluster))
        for cluster in dict.fromkeys(clusters)
    }


def bias_and_p90(figures: Sequence[Figure]) -> tuple[str, str]:
    """Return the cells of a table for the mean error with its sign, and for the 90 % quantile of errors."""
    errors = np.array([figure.error for figure in figures])
    return f"{errors.mean():+.1%}", f"{np.quantile(np.abs(errors), 0.9):.1%}"


def errors_in_words(figures: Sequence[Figure]) -> str:
    """Return `mean absolute error 9.2%, bias -2.4%, p90 19.8%`."""
    bias, p90 = bias_and_p90(figures)
    return f"mean absolute error {mean_error(figures):.1%}, bias {bias}, p90 {p90}"


def cluster_rows(
    predictions: Predictions[AnyFigure], errors: Callable[[str, list[AnyFigure]], tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Return the rows of a table: cluster, figures, cells of `errors`, figures in their bands."""
    return [
        (
            cluster,
            str(len(own)),
            *errors(cluster, [prediction.figure for prediction in own]),
            f"{sum(prediction.is_in_band for prediction in own)} of {len(own)}",
        )
        for cluster, own in predictions.items()
    ]


def count_in_bands(predictions: Predictions[AnyFigure]) -> tuple[int, int]:
    """Return how many figures lie in their bands, and how many there are."""
    every = [prediction for own in predictions.values() for prediction in own]
    return sum(prediction.is_in_band for prediction in every), len(every)


def leave_sources_out(figures: Iterable[AnyFigure]) -> dict[str, tuple[Prediction[AnyFigure], ...]]:
    """Return the figures of each source with the bands that the other sources give."""
    every = tuple(figures)
    bands = Bands.of(every)

    def predict(source: str) -> Iterable[tuple[AnyFigure, Band]]:
        others = bands.without(source)
        return ((figure, others.band_for(figure.kind)) for figure in every if figure.cluster == source)

    return leave_one_out((figure.cluster for figure in every), predict)


CLASS_COLUMNS = ("class", "sources", "figures", "mean error", "bias", "p90", "bands that hold", "width")


def class_rows(predictions: Predictions[AnyFigure]) -> list[tuple[str, ...]]:
    """Return the rows of a table of errors and bands by class, the largest mean error first."""
    classes: dict[str, list[Prediction[AnyFigure]]] = {}
    for own in predictions.values():
        for prediction in own:
            classes.setdefault(prediction.figure.kind[0], []).append(prediction)
    by_error = sorted(classes.items(), key=lambda item: -mean_error(each.figure for each in item[1]))
    return [_class_row(name, own) for name, own in by_error]


def _class_row(name: str, predictions: Sequence[Prediction[AnyFigure]]) -> tuple[str, ...]:
    figures = [prediction.figure for prediction in predictions]
    bias, p90 = np.mean([each.error for each in figures]), np.quantile([abs(each.error) for each in figures], 0.9)
    inside = sum(prediction.is_in_band for prediction in predictions)
    return (
        name,
        str(len({figure.cluster for figure in figures})),
        str(len(figures)),
        f"{mean_error(figures):.0%}",
        f"{bias:+.0%}",
        f"{p90:.0%}",
        f"{inside} of {len(figures)}, {inside / len(figures):.0%}",
        f"x{mean_width(predictions):.2f}",
    )


def mean_width(predictions: Iterable[Prediction[AnyFigure]]) -> float:
    """Return the mean factor from a prediction to an end of its band."""
    return float(np.mean([sqrt(prediction.band.high / prediction.band.low) for prediction in predictions]))
