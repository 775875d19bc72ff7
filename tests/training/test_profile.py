"""A step as a profiler would show it."""

from itertools import pairwise

import pytest

from weft.training.job import run_job
from weft.training.parallel import Layout
from weft.training.profile import spans
from weft.training.site import find_site
from weft.training.transformer import find

SITE = find_site("ndr", gpus=16)


@pytest.mark.parametrize(
    "given", [{}, {"pp": 4, "vp": 2}, {"overlap_param_gather": False, "zero": 1}, {"zero": 3, "pp": 1}]
)
def test_spans_fill_the_step_and_a_stage_does_one_thing_at_a_time(given):
    step = run_job(
        find("llama3-8b"), Layout(**{"gpus": 16, "tp": 2, "pp": 2, "global_batch": 32, "seq": 4096} | given), SITE
    ).step
    result = list(spans(step))
    assert max(span.end_s for span in result) == pytest.approx(step.step_s)
    assert min(span.start_s for span in result) == pytest.approx(0.0)
    for stage in range(step.layout.pp):
        own = [span for span in result if span.track == f"stage {stage}"]
        passes = [span for span in own if span.kind in ("forward", "backward")]
        assert len(passes) == 2 * step.layout.vp * step.layout.micro_batches
        for lane in ("compute", "communication"):
            row = sorted((span for span in own if span.lane == lane), key=lambda span: span.start_s)
            assert all(before.end_s <= after.start_s + 1e-9 for before, after in pairwise(row))
