"""Sources with few figures in their bands, beside the number of such sources that chance gives.

A band is to hold nine of ten figures. If each does with that probability, a source of n figures has a binomial number
of them in its bands, and some sources fall short without any defect of the bands. Errors of a source resemble each
other, so that more do than this counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, comb

from weft.calibration.conformal import WITHIN
from weft.calibration.cross_validation import AnyFigure, Predictions

HOLDS = 0.9  # the probability with which a band is to hold
LEAST = 10  # figures of a source that are counted: one of fewer falls short with one or two outside


def probability_of(inside: int, figures: int) -> float:
    """Return the probability that at most `inside` of the figures of a source are in bands that hold as they should."""
    return sum(comb(figures, k) * HOLDS**k * (1 - HOLDS) ** (figures - k) for k in range(inside + 1))


def shortfall_note(counts: Mapping[str, tuple[int, int]]) -> str:
    """Return, in words, how many sources have too few figures in their bands, and how many would by chance.

    counts: the figures of each source that are in bands, and all of them.
    """
    counted = {source: own for source, own in counts.items() if own[1] >= LEAST}
    enough = {source: ceil(round(WITHIN * figures, 6)) for source, (_, figures) in counted.items()}
    expected = sum(probability_of(enough[source] - 1, figures) for source, (_, figures) in counted.items())
    short = [
        f"{source} {inside} of {figures}, probability {probability_of(inside, figures):.0%}"
        for source, (inside, figures) in counted.items()
        if inside < enough[source]
    ]
    named = f" ({'; '.join(short)})" if short else ""
    return (
        f"Sources of {LEAST} figures or more with fewer than {WITHIN:.0%} in their bands: {len(short)} of "
        f"{len(counted)}{named}; {expected:.1f} by chance if each band holds with a probability of {HOLDS:.0%}"
    )


def shortfalls_of(predictions: Predictions[AnyFigure]) -> str:
    """Return the note on predictions with their source left out."""
    return shortfall_note(
        {source: (sum(prediction.is_in_band for prediction in own), len(own)) for source, own in predictions.items()}
    )
