"""Sources with few figures in their bands, beside the number that chance gives."""

from __future__ import annotations

import numpy as np
import pytest

from weft.calibration.chance import HOLDS, probability_of, shortfall_note


def test_the_probability_is_that_of_drawn_bands():
    inside = np.random.default_rng(1).binomial(15, HOLDS, 200_000)
    assert probability_of(12, 15) == pytest.approx((inside <= 12).mean(), abs=0.005)
    assert probability_of(15, 15) == pytest.approx(1.0)


def test_sources_below_85_percent_are_named_beside_the_number_by_chance():
    """17 of 20 figures are 85 %; 16 and fewer have a probability of 13 %, so 0.4 of three sources fall short."""
    note = shortfall_note({"good": (17, 20), "short": (16, 20), "full": (20, 20), "few": (1, 9)})
    assert ": 1 of 3 (short 16 of 20, probability 13%); 0.4 by chance" in note
    assert ": 0 of 1; 0.1 by chance" in shortfall_note({"good": (17, 20)})
