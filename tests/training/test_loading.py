"""The input of a step: hidden for tokens, waited for if it is slower than the step."""

import pytest

from weft.calibration.band import BEYOND
from weft.collectives.nccl.cluster import from_server
from weft.errors import ConfigError
from weft.training.band import step_band
from weft.training.communication import Ideal
from weft.training.gpu import Gpu
from weft.training.loading import loading_of
from weft.training.parallel import Layout
from weft.training.step import Step, run_step
from weft.training.storage import constants
from weft.training.transformer import find
from weft.training.validate import leave_out, predict, published


def layout(**given) -> Layout:
    return Layout(**{"gpus": 64, "tp": 2, "global_batch": 128, "seq": 4096, **given})


def step(**given) -> Step:
    each = layout(**given)
    return run_step(find("llama3-8b"), each, Gpu.of("H100"), Ideal(from_server("dgx-h100", nodes=8), each))


def test_tokens_cost_nothing_measurable():
    """No published step waits for them, and a step on 64 GPUs hides a hundred times as many bytes."""
    assert all(predict(job).parts["input"] == 0 for job in published())
    result = step()
    assert result.parts["input"] == 0
    assert result.loading.seconds < 0.01 * result.step_s
    assert step(sample_bytes=100 * 4 * 4096).step_s == result.step_s


def test_a_step_lasts_as_long_as_its_input_if_that_is_slower():
    """128 sequences of 2 s on two processes for each of 32 copies take 4 s."""
    slow = step(sample_ms=2000)
    assert slow.step_s == pytest.approx(4.0)
    assert slow.parts["input"] == pytest.approx(4.0 - step().step_s)
    assert sum(slow.parts.values()) == pytest.approx(slow.step_s)
    assert step(sample_ms=2000, loader_workers=16).step_s == step().step_s


def test_storage_reads_for_all_gpus():
    """128 sequences of 1 GB at 20 GB/s."""
    assert step(sample_bytes=1e9, storage_gbyte_s=20).step_s == pytest.approx(6.4)
    many = loading_of(layout(gpus=512, global_batch=1024, sample_bytes=1e9), find("llama3-8b"))
    assert many.read_s == pytest.approx(1024 / (2 * constants()["appliance"]["read_gbyte_s"]))


def test_without_processes_every_step_waits():
    waiting = step(sample_ms=10, loader_workers=0)
    assert waiting.parts["input"] == pytest.approx(waiting.loading.read_s + 4 * 0.01)
    assert waiting.step_s == pytest.approx(step().step_s + waiting.parts["input"])


def test_the_ends_of_a_pipeline_and_all_of_a_context_group_read_whole_sequences():
    model = find("llama3-8b")
    once, twice, context = (loading_of(layout(**given), model).total_bytes for given in ({}, {"pp": 2}, {"cp": 2}))
    assert once == 128 * 4096 * 4
    assert twice == context == 2 * once
    assert loading_of(layout(), find("gpt3-175b")).total_bytes == once / 2  # 51,200 tokens fit into 16 bits


def test_a_band_says_that_no_published_step_waits_for_its_input():
    over = Ideal(from_server("dgx-h100", nodes=8), layout())
    assert step().layout.gpus < BEYOND * max(figure.step.layout.gpus for figure in leave_out())
    assert not step_band(step(), over).far
    assert step_band(step(sample_ms=2000), over).far == ("the step waits for its input, as no published one does",)


@pytest.mark.parametrize("field", ["sample_bytes", "sample_ms", "loader_workers", "storage_gbyte_s"])
def test_less_than_nothing_is_refused(field):
    with pytest.raises(ConfigError, match=f"{field} = -1 must be 0 or more"):
        layout(**{field: -1})
