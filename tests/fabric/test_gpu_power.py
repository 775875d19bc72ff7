"""Matrix products under a power limit."""

import pytest

from weft.errors import FileError
from weft.fabric import catalog
from weft.fabric.catalog.power import limited, power_law, rate_band


def test_published_pairs_lie_in_the_band_and_near_the_prediction():
    law = power_law()
    for pair in law.measured:
        share = pair.power_w[0] / pair.power_w[1]
        assert share**law.steep <= pair.rate <= share**law.shallow, pair.what
        assert share**law.exponent == pytest.approx(pair.rate, rel=0.05), pair.what
        assert share >= law.least


def test_a_power_limit_lowers_products_by_less_than_the_power_and_leaves_the_memory():
    whole = catalog.gpu("H100")
    half = limited(whole, 500)
    assert half.sustained / whole.sustained == pytest.approx((500 / 700) ** (1 / 3), abs=1e-3)
    assert (half.power_w, half.memory_gbyte_s, half.peak_tflop_s) == (500, whole.memory_gbyte_s, whole.peak_tflop_s)
    low, high = rate_band(500, 700)
    assert low < 1 < high
    assert rate_band(700, 700) == (1, 1)


def test_a_template_has_gpus_under_a_power_limit(tmp_path):
    path = tmp_path / "limited.yaml"
    path.write_text("like: dgx-h100\ngpu_changes: {power_limit_w: 560, memory_gbyte_s: 3000}\n")
    gpu = catalog.server(str(path)).gpu_entry
    assert gpu.sustained == limited(catalog.gpu("H100"), 560).sustained < 0.66
    assert (gpu.memory_gbyte_s, gpu.power_w) == (3000, 560)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ("{power_limit_w: 350}", "from 490 W on: nothing is published"),
        ("{power_limit_w: 489.9}", "from 490 W on: nothing is published"),
        ("{power_limit_w: 700}", "a limit below the 700 W of a H100"),
        ("{power_limit_w: -1}", "a number above 0"),
        ("{power_limit_w: 600, sustained: 0.6}", "power_limit_w or sustained"),
    ],
)
def test_limits_without_published_products_are_refused(tmp_path, changes, why):
    path = tmp_path / "odd.yaml"
    path.write_text(f"like: dgx-h100\ngpu_changes: {changes}\n")
    with pytest.raises(FileError, match=why):
        catalog.server(str(path))
