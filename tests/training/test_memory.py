"""Bytes on a GPU, against closed forms of the papers and layouts that were run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from weft.collectives.nccl.cluster import from_server
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.training.communication import Ideal
from weft.training.framework import with_defaults
from weft.training.gpu import Gpu
from weft.training.memory import (
    GB,
    _smaller,
    check_fits,
    chunks_in_flight,
    footprint,
    layer_activations,
    recompute_to_fit,
)
from weft.training.parallel import Layout, check
from weft.training.shares import shares
from weft.training.step import run_step
from weft.training.transformer import DENSE, MIXTURE, find, presets, reshape
from weft.training.validate import published

GPT3 = find("gpt3-175b")
S, B, H, A = 2048, 1, 12_288, 96
UNFUSED = Layout(gpus=8, global_batch=8, seq=S, fused_attention=False)


def per_layer(layout: Layout) -> float:
    """Return the bytes in units of s b h."""
    return layer_activations(layout, GPT3, DENSE) / (S * B * H)


def test_activations_of_a_layer_equal_those_of_the_paper():
    """Korthikanti et al., table 2; for GPT-3 they print 5 a s / h = 80."""
    scores = 5 * A * S / H
    assert scores == 80
    assert per_layer(UNFUSED) == 34 + scores
    t = 8
    assert per_layer(replace(UNFUSED, tp=t, sequence_parallel=False)) == 10 + 24 / t + scores / t
    assert per_layer(replace(UNFUSED, tp=t)) == (34 + scores) / t
    assert per_layer(replace(UNFUSED, tp=t, recompute="selective")) == 34 / t


def test_fused_attention_keeps_no_scores():
    """Only a sum of 4 bytes for each row of each head, so that twice the sequence takes twice the bytes."""
    fused = replace(UNFUSED, fused_attention=True)
    assert per_layer(fused) == 34 + 4 * A / H
    llama = find("llama3-8b")
    short, long = (layer_activations(replace(fused, seq=seq), llama, DENSE) for seq in (8192, 16_384))
    assert long == 2 * short


def test_full_recomputation_keeps_the_input_of_each_layer_and_one_layer_whole():
    """Korthikanti et al., table 2: 2 s b h for each layer."""
    layout = replace(UNFUSED, recompute="full")
    assert footprint(layout, GPT3).activations_bytes == S * H * (2 * 96 + 34 + 80)


def test_context_parallel_cuts_all_activations():
    layout = replace(UNFUSED, fused_attention=True)
    assert per_layer(replace(layout, cp=2)) == per_layer(layout) / 2


def test_fp8_keeps_the_inputs_of_matrices_in_one_byte():
    """The inputs of four matrices, 2 + 2 + 2 + 8 of the 34, become half."""
    fused = replace(UNFUSED, fused_attention=True)
    assert per_layer(replace(fused, precision="fp8")) == per_layer(fused) - 7


def test_a_mixture_keeps_each_token_once_for_each_expert_that_it_goes_to():
    """Mixtral: as a dense layer, but the inner width twice, inputs and results of experts, and the router's choice."""
    model, layout = find("mixtral-8x7b"), replace(UNFUSED, fused_attention=True)
    dense, mixture = (layer_activations(layout, model, kind) for kind in (DENSE, MIXTURE))
    inner, ends, router = 6 * model.ffn, 2 * (2 + 2) * model.hidden, 4 * 8
    assert mixture - dense == S * (inner + ends + router)
    assert layer_activations(replace(layout, ep=8), model, MIXTURE) == mixture


def test_a_layer_without_biases_keeps_no_masks_and_only_its_own_keys():
    """Llama 3 8B, bytes of a token: norms and inputs, queries, 8 keys and values, result, three inner widths, sums."""
    remaining = layer_activations(replace(UNFUSED, fused_attention=True), find("llama3-8b"), DENSE)
    assert remaining == S * (8 * 4096 + 2 * (32 + 8 + 8 + 32) * 128 + 6 * 14_336 + 4 * 32)


def test_latent_attention_keeps_latents_and_all_its_heads():
    """DeepSeek-V3, bytes of a token; its mixture sends each to 8 experts of width 2048 and to a shared one."""
    layout = Layout(gpus=8, global_batch=8, seq=S)
    heads = 2 * 128 * (192 + 192 + 128 + 128) + 4 * 128
    latents = 4 * (1536 + 512) + 2 * 64
    experts = 6 * 2048 * (8 + 1) + 8 * (2 + 2) * 7168 + 4 * 256
    assert layer_activations(layout, find("deepseek-v3"), MIXTURE) == S * (8 * 7168 + heads + latents + experts)


def test_experts_that_are_cut_see_the_tokens_of_all_their_ranks():
    """Each of two tensor ranks has half of the tokens, but gathers the other half before its half of the experts."""
    model, layout = find("mixtral-8x7b"), Layout(gpus=8, tp=2, global_batch=8, seq=S)
    cut, whole = (layer_activations(replace(layout, etp=etp), model, MIXTURE) for etp in (2, 1))
    assert cut - whole == S // 2 * 2 * 2 * model.hidden


def test_a_mixture_is_kept_for_all_its_layers_and_its_states_have_copies_of_their_own():
    model, layout = find("mixtral-8x7b"), Layout(gpus=8, ep=4, global_batch=8, seq=S)
    need, held = footprint(layout, model), shares(layout, model)
    assert need.activations_bytes == 32 * layer_activations(layout, model, MIXTURE)
    assert held.expert_parameters == 32 * 2 * model.expert_parameters
    assert need.optimizer_bytes == 12 * (-(-held.parameters // 8) + held.expert_parameters // 2)


def test_the_stages_of_a_pipeline_hold_one_micro_batch_fewer_each():
    layout = Layout(gpus=4, pp=4, global_batch=8, seq=S)
    assert [chunks_in_flight(layout, stage) for stage in range(4)] == [4, 3, 2, 1]
    assert [chunks_in_flight(replace(layout, global_batch=2), stage) for stage in range(4)] == [2, 2, 2, 1]


@pytest.mark.parametrize(("pp", "vp"), [(4, 2), (8, 12), (8, 3)])
def test_the_interleaved_schedule_holds_more_on_the_first_stage(pp, vp):
    """Korthikanti et al., section 4.2.3: all layers' worth times 1 + (p - 1) / (p m), with m the chunks of a stage."""
    layout = Layout(gpus=pp, pp=pp, vp=vp, global_batch=8 * pp, seq=S)
    assert chunks_in_flight(layout, 0) / vp * (96 / pp) == pytest.approx(96 * (1 + (pp - 1) / (pp * vp)))
    assert footprint(layout, GPT3).activations_bytes == pytest.approx(
        chunks_in_flight(layout, 0) * 96 // (pp * vp) * layer_activations(layout, GPT3, DENSE)
    )


def test_the_last_stage_holds_the_logits():
    layout = Layout(gpus=2, pp=2, global_batch=2, seq=8192, recompute="full")
    wide = reshape(find("llama3-8b"), vocab=1_000_000)
    need = footprint(layout, wide)
    assert (need.stage, need.logits_bytes) == (1, 4 * 8192 * 1_000_000)


@pytest.mark.parametrize(
    ("precision", "in_fp32", "zero", "bytes_each"),
    [
        ("bf16", True, 0, 18),
        ("bf16", True, 1, 6 + 12 / 64),
        ("fp16", True, 0, 20),
        ("fp16", True, 1, 4 + 16 / 64),
        ("bf16", False, 1, 4 + 16 / 64),
    ],
)
def test_optimizer_states_equal_those_of_the_manual(precision, in_fp32, zero, bytes_each):
    """Megatron Core's manual, Distributed Optimizer: bytes of one parameter with 64 copies."""
    layout = Layout(
        gpus=64, global_batch=64, seq=S, precision=precision, grad_reduce_in_fp32=in_fp32, zero=zero, recompute="full"
    )
    need, model = footprint(layout, find("gpt-7.5b")), find("gpt-7.5b")
    states = need.weights_bytes + need.gradients_bytes + need.optimizer_bytes
    copy_bytes = 4 * model.parameters / (64 if zero else 1) if layout.gradient_bytes == 2 else 0.0
    in_place_of = min(copy_bytes, need.activations_bytes + need.logits_bytes)
    assert states + in_place_of == pytest.approx(model.parameters * bytes_each, rel=1e-6)


def test_a_copy_of_gradients_for_the_optimizer_takes_the_place_of_activations():
    """Nemotron-4 340B with 16-bit gradients: the copy of 10.7 GB is made when 25.7 GB of activations are gone."""
    arguments = {"gpus": 128, "tp": 8, "pp": 8, "vp": 12, "global_batch": 256, "seq": 4096}
    model = find("nemotron4-340b")
    single, half = (footprint(Layout(**arguments, grad_reduce_in_fp32=fp32), model) for fp32 in (True, False))
    assert half.optimizer_bytes == single.optimizer_bytes
    assert half.gradients_bytes == single.gradients_bytes / 2


def test_16_bit_optimizer_states_are_two_moments_and_no_weights_in_32_bits():
    """NeMo's distributed_fused_adam with dtype = bf16: the shard takes 4 bytes for each parameter, and no copy."""
    layout, model = Layout(gpus=64, global_batch=64, seq=S, grad_reduce_in_fp32=False), find("gpt-7.5b")
    single, half = (footprint(replace(layout, optimizer_precision=dtype), model) for dtype in ("fp32", "bf16"))
    assert (single.optimizer_bytes, half.optimizer_bytes) == (12 * model.parameters / 64, 4 * model.parameters / 64)
    assert (single.weights_bytes, single.gradients_bytes) == (half.weights_bytes, half.gradients_bytes)


def test_each_zero_stage_shards_one_more_state():
    """Rajbhandari et al., figure 1; one gathered layer is complete, and the next is being gathered."""
    model, copies = find("gpt-7.5b"), 64
    needs = [footprint(Layout(gpus=copies, global_batch=64, seq=S, zero=zero), model) for zero in range(4)]
    whole, layer = model.parameters, model.parameters // 36
    assert [need.optimizer_bytes for need in needs] == [12 * whole, *[12 * -(-whole // copies)] * 3]
    assert [need.gradients_bytes for need in needs] == [4 * whole] * 2 + [4 * (-(-whole // copies) + layer)] * 2
    assert [need.weights_bytes for need in needs] == [2 * whole] * 3 + [2 * (-(-whole // copies) + 2 * layer)]


@pytest.mark.parametrize("name", presets())
def test_the_stages_hold_the_model_between_them(name):
    """Tied embeddings are on the first and on the last stage."""
    model = find(name)
    layout = Layout(gpus=32, pp=4, ep=8 if model.experts else 1, global_batch=32, seq=model.seq)
    check(layout, model)
    held = shares(layout, model)
    all_held = (held.parameters + layout.ep * held.expert_parameters).sum()
    module = model.kind_parameters(model.kinds[-1], model.experts) + 2 * model.hidden**2
    assert all_held == model.parameters + model.tied * model.vocab * model.hidden + model.mtp * module
    layers = Counter(model.kinds)
    layers[model.kinds[-1]] += model.mtp
    assert {kind: count.sum() for kind, count in held.layers.items()} == layers


def test_dense_layers_of_a_mixture_are_on_the_first_stage():
    """As the recipe of DeepSeek-V3 has it: the last of 16 stages has one layer, and multi-token prediction."""
    layout = Layout(gpus=1024, pp=16, ep=64, global_batch=1024, seq=4096)
    held = shares(layout, find("deepseek-v3"))
    assert held.layers[DENSE].ravel().tolist() == [3, *[0] * 15]
    assert held.layers[MIXTURE].ravel().tolist() == [1, *[4] * 14, 2]


def test_chunks_of_a_stage_are_not_neighbours():
    """The first five of six layers are dense: stages have chunks 0, 2, 4 and 1, 3, 5."""
    mixed = reshape(find("mixtral-8x7b"), layers=6, dense_layers=5)
    held = shares(Layout(gpus=2, pp=2, vp=3, global_batch=2, seq=S), mixed)
    assert held.layers[MIXTURE].tolist() == [[0, 0, 0], [0, 0, 1]]
    assert held.layers[DENSE].tolist() == [[1, 1, 1], [1, 1, 0]]


def test_tied_embeddings_of_one_stage_count_once():
    model = find("gpt-5b")
    assert shares(Layout(gpus=1, global_batch=1, seq=S), model).parameters.tolist() == [[model.parameters]]


RECIPE = {"grad_reduce_in_fp32": False}
SC21 = {"zero": 0, "precision": "fp16", "recompute": "full", "fused_attention": False, "sequence_parallel": False}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gpt3-175b", {"gpus": 128, "tp": 4, "pp": 8, "vp": 12, "global_batch": 256, **RECIPE}),
        ("llama3-8b", {"gpus": 8, "cp": 2, "global_batch": 128, **RECIPE}),
        ("nemotron4-15b", {"gpus": 16, "tp": 2, "micro_batch": 2, "global_batch": 64, **RECIPE}),
        (
            "nemotron4-340b",
            {"gpus": 128, "tp": 8, "pp": 8, "vp": 12, "global_batch": 32, "optimizer_precision": "bf16", **RECIPE},
        ),
        ("gpt-5b", {"gpus": 16, "micro_batch": 4, "global_batch": 64, "zero": 3, **RECIPE}),
        ("gpt-1.7b", {"gpus": 32, "global_batch": 512, **SC21}),
        ("gpt-7.5b", {"gpus": 128, "tp": 4, "global_batch": 512, **SC21}),
        ("gpt-39.1b", {"gpus": 512, "tp": 8, "pp": 2, "global_batch": 1536, **SC21}),
        ("gpt-145.6b", {"gpus": 1536, "tp": 8, "pp": 8, "global_batch": 2304, **SC21}),
        ("gpt-529.6b", {"gpus": 2520, "tp": 8, "pp": 35, "global_batch": 2520, **SC21}),
        ("gpt-1008b", {"gpus": 3072, "tp": 8, "pp": 64, "global_batch": 3072, **SC21}),
    ],
)
def test_published_layouts_fit_into_80_gb(name, options):
    model = find(name)
    check_fits(Layout(seq=model.seq, **options), model, 80)


def test_error_has_the_excess_and_the_changes_that_help():
    layout = Layout(gpus=64, tp=8, global_batch=64, seq=8192)
    with pytest.raises(ConfigError, match="llama3-70b does not fit into 80 GB: stage 0 needs") as refused:
        check_fits(layout, find("llama3-70b"), 80)
    need = footprint(layout, find("llama3-70b"))
    over = need.total_bytes / 2**30 - 80
    assert f"{over:.1f} GB too many (weights 16.4, gradients 32.9, " in str(refused.value)
    assert "It fits with grad_reduce_in_fp32 = False, or zero = 2, or zero = 3." in str(refused.value)
    for change in ({"zero": 2}, {"zero": 3}, {"pp": 2}):
        check_fits(replace(layout, **change), find("llama3-70b"), 80)


def test_error_names_twice_the_ranks_of_each_kind_that_the_model_can_be_cut_for():
    changes = dict(_smaller(Layout(gpus=64, tp=2, pp=2, global_batch=64, seq=8192), find("llama3-70b")))
    assert {"pp = 4", "tp = 4", "cp = 2"} <= set(changes)


def test_error_names_the_best_change_if_no_single_one_suffices():
    with pytest.raises(ConfigError, match=r"Most helps zero = 3: \d+.\d GB. Then cut it over more GPUs"):
        check_fits(Layout(gpus=8, global_batch=8, seq=8192), find("llama3-405b"), 80)
    with pytest.raises(ConfigError, match="\n  Cut it over more GPUs"):
        check_fits(Layout(gpus=1, global_batch=1, seq=8192, recompute="full"), find("llama3-405b"), 80)


def test_a_gpu_is_full_at_its_last_byte():
    layout = Layout(gpus=8, global_batch=8, seq=8192)
    need = footprint(layout, find("llama3-8b"))
    assert need.total_bytes == sum(need.parts.values()) > 18 * 10**9
    assert need.fits(need.total_bytes / 2**30)
    assert not need.fits((need.total_bytes - 1) / 2**30)


def test_a_stage_without_a_layer_holds_its_end_of_the_model():
    """Llama 3's 126 layers on 128 stages: the first has the input alone, the last the output."""
    layout = Layout(gpus=128, pp=128, global_batch=128, seq=8192)
    assert footprint(layout, find("llama3-405b")).total_bytes > 0


@pytest.mark.parametrize(
    ("model", "modules"),
    [("llama3-8b", "mlp"), ("llama3-8b", "layernorm"), ("mixtral-8x7b", "moe_act"), ("mixtral-8x7b", "moe")],
)
def test_a_recomputed_module_takes_less_memory_and_more_time(model: str, modules: str) -> None:
    item = find(model)
    layouts = [Layout(gpus=8, global_batch=8, seq=4096, recompute=name) for name in ("none", modules, "full")]
    none, part, full = (footprint(layout, item).activations_bytes for layout in layouts)
    assert full < part < none
    cluster = from_server("dgx-h100", nodes=1)
    none_s, part_s, full_s = (
        run_step(item, layout, Gpu.of("H100"), Ideal(cluster, layout)).step_s for layout in layouts
    )
    assert none_s < part_s < full_s


def test_an_unknown_module_to_recompute_is_named_with_those_known() -> None:
    with pytest.raises(ConfigError, match=r"(?s)recompute 'attention'.*core_attn"):
        Layout(gpus=8, global_batch=8, seq=4096, recompute="mlp,attention")


LLAMA_70B = find("llama3-70b")
FSDP = Layout(gpus=64, micro_batch=2, global_batch=256, seq=8192, precision="fp8", zero=3, grad_reduce_in_fp32=False)


def test_every_published_step_fits_by_its_recipe():
    for job in published():
        transformer = replace(find(job.model), **job.overrides)
        check_fits(
            Layout(**with_defaults(job.layout)), transformer, catalog.gpu(catalog.server(job.server).gpu).memory_gbyte
        )


def test_activations_of_offloaded_layers_leave_the_gpu_but_for_two():
    whole = footprint(FSDP, LLAMA_70B).activations_bytes
    half = footprint(replace(FSDP, offload_layers=40), LLAMA_70B).activations_bytes
    assert half == whole // 2 + 2 * whole // 80


def test_offloaded_activations_cost_time_over_a_slow_link_only():
    layout, away = (replace(FSDP, gpus=8, global_batch=16, offload_layers=count) for count in (0, 40))
    over_c2c, over_pcie = (
        [run_step(LLAMA_70B, each, Gpu.of(gpu), Ideal(from_server(server, nodes=1), each)) for each in (layout, away)]
        for gpu, server in (("GB200", "gb200-nvl64"), ("B200", "dgx-b200"))
    )
    assert over_c2c[0].step_s == over_c2c[1].step_s
    assert over_pcie[1].parts["offload"] == pytest.approx(over_pcie[1].step_s - over_pcie[0].step_s, rel=0.1)


def test_an_offloaded_optimizer_takes_no_memory_and_more_time():
    layout, away = (
        Layout(gpus=8, global_batch=8, seq=4096),
        Layout(gpus=8, global_batch=8, seq=4096, offload_optimizer=True),
    )
    model = find("llama3-8b")
    assert footprint(away, model).optimizer_bytes == 0
    kept_s, away_s = (
        run_step(model, each, Gpu.of("H100"), Ideal(from_server("dgx-h100", nodes=1), each)).parts["optimizer"]
        for each in (layout, away)
    )
    assert away_s > 10 * kept_s


def test_some_layers_of_each_chunk_may_be_recomputed():
    """One of five layers keeps only its input, the other four everything; memory and time are between none and full."""
    layout = Layout(gpus=32, pp=4, vp=4, tp=8, global_batch=8, seq=8192)
    options = [{}, {"recompute": "full", "recompute_layers": 1}, {"recompute": "full"}]
    layouts = [replace(layout, **each) for each in options]
    sizes = [footprint(each, LLAMA_70B).activations_bytes for each in layouts]
    assert sizes == sorted(sizes, reverse=True)
    over = Ideal(from_server("dgx-h100", nodes=4), layout)
    none_s, some_s, full_s = (run_step(LLAMA_70B, each, Gpu.of("H100"), over).step_s for each in layouts)
    assert some_s - none_s == pytest.approx((full_s - none_s) / 5, rel=0.05)


def test_recomputed_up_projections_leave_the_latents():
    model, layout = find("deepseek-v3"), Layout(gpus=64, ep=64, global_batch=64, seq=4096)
    saved = layer_activations(layout, model, DENSE) - layer_activations(
        replace(layout, recompute="mla_up_proj"), model, DENSE
    )
    assert saved == 2 * 4096 * 128 * (192 + 192 + 128)


def test_the_least_recomputation_that_fits_is_modules_then_layers():
    layout = Layout(gpus=64, tp=4, pp=4, vp=5, global_batch=64, seq=8192)
    needs = [footprint(replace(layout, recompute=each), LLAMA_70B).total_bytes / GB for each in ("none", "layernorm")]
    assert recompute_to_fit(layout, LLAMA_70B, needs[0] + 1) is layout
    assert recompute_to_fit(layout, LLAMA_70B, needs[1] + 0.1).recompute == "layernorm"
    some = recompute_to_fit(layout, LLAMA_70B, needs[1] - 0.1)
    assert (some.recompute, some.recompute_layers) == ("full", 1)
    assert recompute_to_fit(layout, LLAMA_70B, 8) is layout


def test_moments_in_16_bits_leave_the_weight_in_32():
    layout = Layout(gpus=8, global_batch=8, seq=4096, zero=0, optimizer_precision="bf16-moments")
    model = find("llama3-8b")
    assert footprint(layout, model).optimizer_bytes == 8 * model.parameters


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recompute_layers": 2}, "recompute_layers = 2 needs recompute = full, not none"),
        ({"offload_layers": 2, "recompute": "full"}, "offload_layers has no activations to move"),
        ({"imbalance": 0.5}, "imbalance = 0.5 must be 1 or more"),
        ({"offload_layers": -1}, "offload_layers = -1; it is a number from 0 up"),
        ({"cuda_graphs": "attn,all"}, "scope of cuda_graphs 'all'; there are attn, moe_router"),
        ({"dispatcher": "nccl"}, "dispatcher 'nccl'.*deepep, alltoall"),
        ({"lora": 8, "lora_modules": "qkv"}, "module of lora_modules 'qkv'.*linear_qkv"),
    ],
)
def test_options_that_exclude_each_other_or_do_not_exist_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Layout(gpus=8, global_batch=8, seq=4096, **options)
