"""The bubble of a pipeline in closed form (Narayanan et al., SC'21), and its limits."""

import numpy as np
import pytest

from weft.training import pipeline


def stages(pp: int, vp: int = 1, forward_s: float = 1.0, backward_s: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    return np.full((pp, vp), forward_s), np.full((pp, vp), backward_s)


@pytest.mark.parametrize(
    ("pp", "vp", "micro_batches"), [(1, 1, 5), (4, 1, 8), (8, 1, 3), (4, 3, 8), (8, 12, 64), (2, 2, 2)]
)
def test_the_bubble_is_that_of_the_paper(pp, vp, micro_batches):
    """(p - 1) / v of a micro-batch's forward and backward on a stage, whatever the number of micro-batches."""
    schedule = pipeline.run(*stages(pp, vp), micro_batches)
    one_s = 3.0 * vp
    assert schedule.end_s.max() == pytest.approx(micro_batches * one_s + (pp - 1) * one_s / vp)
    assert schedule.busy_s == pytest.approx(np.full(pp, micro_batches * one_s))


@pytest.mark.parametrize(("pp", "vp"), [(4, 1), (4, 2)])
def test_no_operation_begins_before_what_it_needs_has_arrived(pp, vp):
    schedule = pipeline.run(*stages(pp, vp), 8, send_s=0.25)
    begin, end = schedule.begin_s, schedule.end_s
    assert (begin[1:, :, :, 0] >= end[:-1, :, :, 0] + 0.25).all()
    assert (begin[:-1, :, :, 1] >= end[1:, :, :, 1] + 0.25).all()
    assert (begin[0, 1:, :, 0] >= end[-1, :-1, :, 0] + 0.25).all()
    assert (begin[-1, -1, :, 1] >= end[-1, -1, :, 0]).all()
    for stage in range(pp):  # one thing at a time
        order = np.argsort(begin[stage].ravel())
        assert (begin[stage].ravel()[order][1:] >= end[stage].ravel()[order][:-1] - 1e-9).all()
    assert (np.diff(begin, axis=2) > 0).all()  # micro-batches in order


def test_no_more_micro_batches_are_held_than_stages_follow():
    """1F1B: activations of at most p - stage micro-batches at once."""
    schedule = pipeline.run(*stages(4), 16)
    for stage in range(4):
        for moment in schedule.begin_s[stage, 0, :, 0]:
            begun = (schedule.begin_s[stage, 0, :, 0] <= moment).sum()
            ended = (schedule.end_s[stage, 0, :, 1] <= moment).sum()
            assert begun - ended <= 4 - stage


def test_a_slow_stage_sets_the_pace_of_all():
    forward_s, backward_s = stages(4)
    forward_s[2], backward_s[2] = 1.5, 3.0
    end_s = pipeline.run(forward_s, backward_s, 100).end_s.max()
    assert 100 * 4.5 <= end_s <= 100 * 4.5 + 3 * 3.0 + 4.5


def test_parameters_that_are_late_hold_the_first_forward_up():
    forward_s, backward_s = stages(2)
    late = pipeline.run(forward_s, backward_s, 4, ready_s=np.array([[5.0], [0.0]]))
    assert late.begin_s.min() == 5.0
    assert late.end_s.max() == pytest.approx(5.0 + pipeline.run(forward_s, backward_s, 4).end_s.max())


def test_one_chunk_for_each_stage_cannot_hide_messages_and_more_can():
    """1F1B on two stages has two micro-batches under way, and they pay for one round trip. Interleaved has more."""
    alone = [pipeline.run(*stages(2), 50, send_s=send_s).end_s.max() for send_s in (0.0, 0.1)]
    assert alone[1] - alone[0] == pytest.approx(50 * 0.1)
    more = [pipeline.run(*stages(2, 4), 50, send_s=send_s).end_s.max() for send_s in (0.0, 0.1)]
    assert more[1] - more[0] < 2.0


def test_a_sender_that_waits_loses_the_time_of_every_message():
    hidden = pipeline.run(*stages(2, 4), 50, send_s=0.1).end_s.max()
    blocking = pipeline.run(*stages(2, 4), 50, send_s=0.1, overlap=False).end_s.max()
    assert blocking - hidden == pytest.approx(50 * 7 * 0.1, rel=0.05)  # 4 chunks each way, but one has no next


@pytest.mark.parametrize(("pp", "vp"), [(1, 1), (2, 1), (2, 3)])
def test_the_ends_of_a_pipeline_send_nothing_that_could_block(pp, vp):
    """A stage is free at once after the last forward of a micro-batch and after its last backward."""
    schedule = pipeline.run(*stages(pp, vp), 8, send_s=0.25, overlap=False)
    for stage in range(pp):
        order = np.argsort(schedule.begin_s[stage].ravel())
        chunk, _, kind = np.unravel_index(order, schedule.begin_s[stage].shape)
        gaps_s = schedule.begin_s[stage].ravel()[order][1:] - schedule.end_s[stage].ravel()[order][:-1]
        last = ((kind == 0) & (stage == pp - 1) & (chunk == vp - 1)) | ((kind == 1) & (stage == 0) & (chunk == 0))
        assert gaps_s[last[:-1]].min(initial=1.0) < 0.25
        assert gaps_s[~last[:-1]].min(initial=1.0) >= 0.25
