"""Real workloads: results are right over both carriers, and hardware saves only the time of faster sends."""

from __future__ import annotations

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.scenarios import real_workloads
from weft.scenarios.real_workloads import verdict
from weft.scenarios.workloads import programs, rank
from weft.scenarios.workloads.programs import WORKLOADS

RANKS, SEED, PERCENT = 2, 3, 10
BY_NAME = {each.name: each for each in WORKLOADS}


@pytest.fixture(scope="module")
def finding():
    return real_workloads.run(ranks=RANKS, repeats=1, small=True, seed=SEED)


def _result(finding, name):
    return finding.figures[name]["here"]["result"]


def test_programs_compute_correct_results(finding):
    """`run` refuses results that differ by carrier; here they are right as well."""
    fields = [programs.make_field(each, RANKS, SEED)[1:-1].sum() for each in range(RANKS)]
    assert _result(finding, "halo exchange") == pytest.approx(sum(fields))  # heat is neither made nor lost
    mean = np.mean([programs.make_vector(each, RANKS, SEED) for each in range(RANKS)], axis=0)
    turns = rank.turns(BY_NAME["all-reduce heavy"], PERCENT)
    assert _result(finding, "all-reduce heavy") == pytest.approx(mean.sum() * (1 - 0.5**turns))
    served = programs.make_file(0, RANKS, SEED)
    assert served is not None
    with served:
        served.seek(0)
        blocks = np.frombuffer(served.read()).reshape(16, -1)
    turns = rank.turns(BY_NAME["storage reads"], PERCENT)
    assert _result(finding, "storage reads") == pytest.approx(
        sum(blocks[turn % 16, ::512].sum() for turn in range(turns))
    )
    walks = [programs.make_random(each, RANKS, SEED) for each in range(RANKS)]
    turns = rank.turns(BY_NAME["parameter sweep"], PERCENT)
    far = max(np.abs(own.standard_normal(20_000).cumsum()).max() for own in walks for _ in range(turns))
    assert _result(finding, "parameter sweep") == pytest.approx(far)
    assert 0 < _result(finding, "training, data-parallel") < 10 * RANKS


def test_a_predicted_speed_up_matches_the_message_times(finding, tmp_path):
    """Two ranks in step: each all-reduce is two messages, one after the other, of 15 Gbit/s and 35 µs, or of NDR."""
    each = finding.figures["all-reduce heavy"]["predicted"]
    message_us = 34.5 + 8 * 32_768 / 15e3
    saved_us = 1e6 * (each["slow_s"] - each["fast_s"]) / rank.turns(BY_NAME["all-reduce heavy"], PERCENT)
    assert 0.8 * 2 * message_us < saved_us < 1.2 * 2 * message_us
    for figures in finding.figures.values():
        predicted = figures["predicted"]
        assert predicted["compute_s"] <= predicted["fast_s"] <= predicted["slow_s"]
        assert predicted["speedup"] == predicted["slow_s"] / predicted["fast_s"]
        assert 1 <= predicted["speedup_tuned"] <= predicted["speedup"]
    assert finding.figures["parameter sweep"]["predicted"]["speedup"] < 1.25
    real_workloads.draw(finding, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert finding.report()["options"] == {"ranks": RANKS, "repeats": 1, "small": True, "seed": SEED}


@pytest.mark.parametrize(
    ("name", "speedup", "tuned", "says"),
    [
        ("parameter sweep", 1.0, 1.0, "no: holds, 1.2x or less"),
        ("parameter sweep", 1.4, 1.1, "no: holds if TCP is tuned, between 1.2x and 10x"),
        ("halo exchange", 9.0, 3.0, "yes: holds, 10x"),
        ("halo exchange", 2.0, 1.1, "yes: holds unless TCP is tuned, between 1.2x and 10x"),
        ("halo exchange", 1.1, 1.0, "yes: does not hold, 1.2x or less"),
    ],
)
def test_a_row_tells_whether_the_claim_holds(name, speedup, tuned, says):
    assert verdict(BY_NAME[name], speedup, tuned) == says


@pytest.mark.parametrize(
    ("arguments", "rule"), [({"ranks": 1}, "must be 2 to 64"), ({"repeats": 0}, "--repeats must be 1 to 1,000, got 0")]
)
def test_invalid_options_are_refused(arguments, rule):
    with pytest.raises(ConfigError, match=rule):
        real_workloads.run(**arguments)
