"""Layers that differ: Mamba-2 hybrids, experts in every other layer, windows of attention."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.collectives.nccl.cluster import from_server
from weft.errors import ConfigError
from weft.training.communication import Ideal
from weft.training.gpu import Gpu
from weft.training.memory import layer_activations
from weft.training.parallel import Layout
from weft.training.shares import shares
from weft.training.step import Step, run_step
from weft.training.transformer import DENSE, MIXTURE, Transformer, find


def run(model: Transformer, **options: int) -> Step:
    layout = Layout(**{"gpus": 8, "global_batch": 8, "seq": 8192, **options})
    return run_step(model, layout, Gpu.of("H100"), Ideal(from_server("dgx-h100", nodes=1), layout))


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [("nemotron-h-8b", 8.1, 8.1), ("nemotron-h-56b", 56.3, 56.3), ("nemotron3-nano-30b", 31.6, 3.6)],
)
def test_parameters_of_hybrids_are_those_published(name, billions, active):
    model = find(name)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.005)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.01)


@pytest.mark.parametrize(("name", "billions", "active"), [("llama4-scout", 109, 17), ("llama4-maverick", 400, 17)])
def test_parameters_of_interleaved_mixtures_are_those_published(name, billions, active):
    model = find(name)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.015)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.015)


def test_every_other_layer_of_an_interleaved_mixture_has_experts():
    model = find("llama4-maverick")
    assert model.kinds[:4] == (DENSE, MIXTURE, DENSE, MIXTURE)
    held = shares(Layout(gpus=64, pp=4, ep=16, global_batch=64, seq=8192), model)
    assert held.layers[MIXTURE].ravel().tolist() == held.layers[DENSE].ravel().tolist() == [6] * 4


def test_the_scan_of_mamba_grows_with_the_sequence_and_attention_with_its_square():
    hybrid, dense = find("nemotron-h-8b"), find("llama3-8b")
    growth = {}
    for name, model in (("mamba", replace(hybrid, pattern="M" * 52)), ("attention", dense)):
        short, long = (run(model, seq=seq).parts["attention"] for seq in (8192, 32768))
        growth[name] = long / short
    assert growth["mamba"] == pytest.approx(4, rel=0.01)
    assert growth["attention"] > 12


def test_a_block_alone_keeps_its_own_activations():
    model, layout = find("nemotron-h-8b"), Layout(gpus=8, global_batch=8, seq=8192)
    attention, feed_forward, mamba = (
        layer_activations(layout, model, (block,)) for block in ("attention", "mlp", "mamba")
    )
    assert layer_activations(layout, model, DENSE) == attention + feed_forward
    assert mamba > attention


def test_a_window_saves_attention_in_the_layers_that_have_one():
    whole = run(replace(find("gpt-oss-20b"), window=0), ep=8)
    times = [run(replace(find("gpt-oss-20b"), full_every=every), ep=8).parts["attention"] for every in (1, 2, 0)]
    assert times[0] == whole.parts["attention"]
    assert times[1] == pytest.approx((times[0] + times[2]) / 2)
    assert times[2] < 0.2 * times[0]


def test_chunks_of_attention_save_only_in_longer_sequences():
    model, plain = find("llama4-scout"), replace(find("llama4-scout"), window=0)
    for seq, ratio in ((8192, 1.0), (32768, 1 / 4 + 3 / 4 / 4)):
        parts = [run(each, ep=8, seq=seq).parts["attention"] for each in (model, plain)]
        assert parts[0] / parts[1] == pytest.approx(ratio, rel=0.06)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pattern": "M*"}, "pattern = M.* needs one letter for each of layers = 52"),
        ({"pattern": "X" * 52}, "of M .Mamba-2., . .attention."),
        ({"ssm_heads": 0}, "M in pattern needs ssm_heads"),
        ({"moe_every": 0}, "moe_every = 0; it is a number from 1 up"),
    ],
)
def test_patterns_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(find("nemotron-h-8b"), **changes)
