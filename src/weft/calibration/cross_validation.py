"""Cross-validation: each cluster is left out in turn, and predicted without its own runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from weft.calibration.band import Band
from weft.calibration.figure import Figure

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
