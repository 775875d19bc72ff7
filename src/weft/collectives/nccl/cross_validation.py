"""Cross-validation: the error on clusters without calibration, and how many bands hold there.

Each cluster is left out in turn, predicted by constants that were fitted without it (`weft.collectives.nccl.refit`),
and held to the bands that the other clusters give (`weft.calibration.conformal`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from weft.calibration.band import Band
from weft.calibration.chance import shortfalls_of
from weft.calibration.cross_validation import (
    CLASS_COLUMNS,
    Prediction,
    bias_and_p90,
    class_rows,
    cluster_rows,
    count_in_bands,
    errors_in_words,
    leave_one_out,
)
from weft.calibration.figure import mean_error
from weft.collectives.nccl.band import band_of, published_bands
from weft.collectives.nccl.calibration import Figure, compare_all
from weft.collectives.nccl.kind import class_of
from weft.collectives.nccl.refit import left_out_figures

LARGE_BYTES = 256 << 20
COLUMNS = ("cluster", "times", "mean error", "left out", "bias", "p90", "from 256 MiB on", "bands that hold")

_RACKS_AND_CLOUDS = ("one rack", "several racks", "slingshot", "srd", "tcpx", "tcpxo")  # classes
_CLOUDS_OVER_ROCE = ("gcp-a3-ultra", "skypilot-a3-ultra")  # clusters


@cache
def cross_validate() -> dict[str, tuple[Prediction[Figure], ...]]:
    """Return the predictions of each cluster without it."""

    def predict(where: str) -> Iterator[tuple[Figure, Band]]:
        bands = published_bands().without(where)
        for figure in left_out_figures():
            if figure.cluster == where:
                yield figure, band_of(figure.estimate, bands)

    return leave_one_out((figure.cluster for figure in left_out_figures()), predict)


def cross_validation_table() -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return columns, a row for each cluster, and a note."""
    figures = [prediction.figure for own in cross_validate().values() for prediction in own]
    clouds = racks_and_clouds()
    inside, count = count_in_bands(cross_validate())
    note = (
        f"Each cluster predicted by constants fitted without it: {errors_in_words(figures)}, from 256 MiB on "
        f"{means()[1]:.1%}; {inside} of {count} bands hold, {inside / count:.0%}\n"
        f"Racks and clouds ({len(clouds)} times): {errors_in_words(clouds)}\n{shortfalls_of(cross_validate())}"
    )
    return COLUMNS, cluster_rows(cross_validate(), _error_cells), note


def class_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and a row for each class, the largest error first."""
    return CLASS_COLUMNS, class_rows(cross_validate())


def _error_cells(where: str, figures: list[Figure]) -> tuple[str, ...]:
    fitted = [figure for figure in compare_all() if figure.cluster == where]
    large = _large(figures)
    large_error = f"{mean_error(large):.1%}" if large else ""
    return f"{mean_error(fitted):.1%}", f"{mean_error(figures):.1%}", *bias_and_p90(figures), large_error


def means() -> tuple[float, float]:
    """Return the mean absolute errors of left-out clusters: for all sizes, and from 256 MiB on."""
    figures = [prediction.figure for own in cross_validate().values() for prediction in own]
    return mean_error(figures), mean_error(_large(figures))


def racks_and_clouds() -> list[Figure]:
    """Return the figures of left-out clusters in racks and on networks of clouds."""
    return [
        prediction.figure
        for where, own in cross_validate().items()
        for prediction in own
        if where in _CLOUDS_OVER_ROCE or class_of(prediction.figure.estimate) in _RACKS_AND_CLOUDS
    ]


def _large(figures: Sequence[Figure]) -> list[Figure]:
    return [figure for figure in figures if figure.size_bytes >= LARGE_BYTES]
