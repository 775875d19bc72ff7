"""Groups of ranks, and layouts that do not divide."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError, UnknownName
from weft.training.memory import footprint
from weft.training.parallel import KINDS, Layout, check
from weft.training.search import layouts as layouts_of
from weft.training.shares import shares
from weft.training.site import find_site
from weft.training.step import run_step
from weft.training.transformer import find

GPT3 = Layout(gpus=128, tp=4, pp=8, vp=12, global_batch=256, seq=2048)  # NVIDIA's recipe


def test_the_order_of_ranks_is_megatrons():
    """The groups that Megatron's initialize_model_parallel documents for 16 GPUs, tp=2, pp=4."""
    layout = Layout(gpus=16, tp=2, pp=4, global_batch=2, seq=64)
    assert layout.ranks("dp").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert layout.ranks("tp").tolist() == [[first, first + 1] for first in range(0, 16, 2)]
    assert layout.ranks("pp").tolist() == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


def test_context_is_inside_data_and_experts_lie_across_both():
    layout = Layout(gpus=16, tp=2, cp=2, pp=2, ep=4, global_batch=2, seq=64)
    assert layout.ranks("cp").tolist()[:2] == [[0, 2], [1, 3]]
    assert layout.ranks("dp-cp").tolist()[:2] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert layout.ranks("ep").tolist()[:2] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert layout.ranks("edp").shape == (16, 1)


def test_experts_that_are_not_cut_spread_over_neighbours():
    layout = Layout(gpus=16, tp=2, pp=2, ep=8, etp=1, global_batch=4, seq=64)
    assert layout.ranks("ep").tolist() == [list(range(8)), list(range(8, 16))]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    size = st.integers(1, 5)
    tp, cp, pp, dp = (draw(size) for _ in range(4))
    etp = draw(st.sampled_from([part for part in range(1, tp * cp * dp + 1) if tp * cp * dp % part == 0]))
    rest = tp * cp * dp // etp
    ep = draw(st.sampled_from([part for part in range(1, rest + 1) if rest % part == 0]))
    return Layout(gpus=tp * cp * pp * dp, tp=tp, cp=cp, pp=pp, ep=ep, etp=etp, global_batch=dp, seq=2 * cp * tp)


@given(layouts(), st.sampled_from(KINDS))
def test_the_groups_of_a_kind_share_out_all_ranks(layout, kind):
    groups = layout.ranks(kind)
    sizes = {"dp-cp": layout.dp * layout.cp, "etp": layout.expert_tp}
    assert groups.shape[1] == (sizes.get(kind) or getattr(layout, kind))
    assert sorted(groups.ravel()) == list(range(layout.gpus))
    assert (np.diff(groups, axis=1) > 0).all()
    assert (np.diff(groups[:, 0]) > 0).all()


@given(layouts())
def test_two_ranks_meet_in_one_group_at_most(layout):
    """A rank follows from its positions in the tensor, context, data and pipeline groups; with experts likewise."""
    for kinds in (("tp", "cp", "dp", "pp"), ("etp", "ep", "edp", "pp")):
        places = np.empty((layout.gpus, len(kinds)), dtype=int)
        for column, kind in enumerate(kinds):
            groups = layout.ranks(kind)
            places[groups, column] = np.arange(groups.shape[1])
        assert len(np.unique(places, axis=0)) == layout.gpus


@pytest.mark.parametrize(
    ("layers", "pp", "vp", "chunks"),
    [
        (96, 4, 1, [[24]] * 4),
        (8, 2, 2, [[2, 2], [2, 2]]),
        (126, 16, 1, [[7], *[[8]] * 14, [7]]),  # Llama 3: one layer less at each end
        (126, 8, 8, [[1, *[2] * 7], *[[2] * 8] * 6, [*[2] * 7, 1]]),
        (61, 16, 1, [[3], *[[4]] * 14, [2]]),  # DeepSeek-V3
    ],
)
def test_layers_are_shared_out_over_stages_and_chunks(layers, pp, vp, chunks):
    layout = Layout(gpus=pp, pp=pp, vp=vp, global_batch=pp, seq=64)
    assert [list(stage) for stage in layout.chunks(layers)] == chunks
    check(layout, replace(find("llama3-8b"), layers=layers))


@pytest.mark.parametrize(
    ("text", "pp", "vp", "mtp", "chunks"),
    [
        ("Et*3|(tttt|)*14,ttmL", 16, 1, 1, [[3], *[[4]] * 14, [2]]),
        (
            "Et*3|(tt|)*29,m|L",
            8,
            4,
            1,
            [[3, 2, 2, 2], *[[2] * 4] * 5, [2, 2, 2, 0], [2, 2, 2, 0]],
        ),  # the example of Megatron
        ("E|(tt|)*29ttt|L", 4, 8, 0, [[0, *[2] * 7], [2] * 8, [*[2] * 7, 3], [*[2] * 7, 0]]),
    ],
)
def test_layers_are_shared_out_as_a_pipeline_layout_of_megatron_has_them(text, pp, vp, mtp, chunks):
    model = replace(find("deepseek-v3"), mtp=mtp)
    layout = Layout(gpus=pp, pp=pp, vp=vp, global_batch=pp, seq=64, pipeline_layout=text)
    assert [list(stage) for stage in layout.chunks(61, mtp)] == chunks
    check(layout, model)
    modules = sum(shares(layout, model).layers.values()) - np.array(chunks)
    assert np.argwhere(modules).tolist() == [[pp - 1 - text.endswith("m|L"), vp - 1]] * mtp


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ett|ttL|", "must be E, then t and |"),
        ("ttE|ttL", "must be E, then t and |"),
        ("Ettm|ttL", "must be E, then t and |"),
        ("Ex|ttL", "must be E, then t and |"),
        ("E(tt|)ttL", "must be E, then t and |"),
        ("Ett|t|tL", r"has 3 stages, not pp\*vp = 2\*1 = 2"),
        ("Ett|tL", "has 3 layers t, not the model's 4"),
        ("Ett|ttmL", "has 1 modules m, not the model's 0"),
        ("E(t*999)*999*999|L", "has more than 100,000 letters"),
    ],
)
def test_a_wrong_pipeline_layout_is_refused(text, message):
    layout = Layout(gpus=2, pp=2, global_batch=2, seq=64, pipeline_layout=text)
    with pytest.raises(ConfigError, match=re.escape("pipeline_layout " + text) + ".*" + message.replace("|", r"\|")):
        check(layout, replace(find("llama3-8b"), layers=4))
    with pytest.raises(ConfigError, match="and pp = 1: set pp > 1"):
        Layout(gpus=2, global_batch=2, seq=64, pipeline_layout=text)


def test_a_longer_last_stage_takes_longer_and_needs_more_memory():
    model, site = replace(find("llama3-8b"), layers=8), find_site(gpus=8, server="dgx-h100")
    even, late = (
        Layout(gpus=8, pp=4, global_batch=8, seq=2048, pipeline_layout=text) for text in ("", "Ett|t|t|ttttL")
    )
    assert footprint(late, model).weights_bytes > footprint(even, model).weights_bytes
    even_s, late_s = (run_step(model, layout, site.gpu, site.over(layout)).step_s for layout in (even, late))
    assert late_s > 1.2 * even_s
    found = layouts_of(model, site, {"pipeline_layout": "Ett|t|t|ttttL", "global_batch": 8, "seq": 2048})
    assert {(layout.pp, layout.vp) for layout, _ in found} == {(4, 1), (2, 2)}


def test_a_recipe_that_was_run_passes():
    check(GPT3, find("gpt3-175b"))
    assert (GPT3.dp, GPT3.micro_batches) == (4, 64)
    assert GPT3.chunks(96) == ((1,) * 12,) * 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tp": 0}, "tp = 0; it is a number from 1 up"),
        ({"etp": -1}, "etp = -1; it is a number from 1 up, or 0"),
        ({"zero": 4}, "zero = 4; the stages of ZeRO are 0, 1, 2 and 3"),
        ({"gpus": 130}, r"gpus = 130 is not a multiple of tp\*pp\*cp = 4\*8\*1 = 32; nearest: gpus = 128 or 160"),
        ({"gpus": 8}, r"gpus = 8 is not .*; nearest: gpus = 32$"),
        ({"ep": 3}, r"ep\*etp = 3\*4 = 12 does not divide gpus/pp = 16.*; nearest: ep = 2 or 4"),
        ({"etp": 5}, r"ep\*etp = 1\*5 = 5 does not divide gpus/pp = 16.*; nearest: etp = 4 or 8"),
        ({"global_batch": 258}, r"global_batch = 258 is not a multiple of dp\*micro_batch = 4\*1 = 4; .* = 256 or 260"),
        (
            {"global_batch": 260},
            r"micro-batches = .* = 65 is not a multiple of pp = 8.* set vp = 1, or .* = 256 or 288",
        ),
        ({"tp": 32, "pp": 1}, "vp = 12 interleaves the stages of a pipeline, and pp = 1"),
        ({"cp": 2, "seq": 2050}, r"seq = 2050 is not a multiple of 2\*cp = 4 .*; nearest: seq = 2048 or 2052"),
        ({"seq": 2050}, r"seq = 2050 is not a multiple of cp\*tp = 1\*4, as sequence .* = 2048 or 2052"),
    ],
)
def test_a_layout_that_contradicts_itself_is_refused(changed, message):
    with pytest.raises(ConfigError, match=message):
        replace(GPT3, **changed)


@pytest.mark.parametrize("changed", [{"recompute": "ful"}, {"precision": "fp9"}])
def test_unknown_words_suggest_near_ones(changed):
    with pytest.raises(UnknownName, match="did you mean"):
        replace(GPT3, **changed)


def test_an_unknown_kind_of_group_is_refused():
    with pytest.raises(UnknownName, match="there is no kind of group 'zp'"):
        GPT3.ranks("zp")


@pytest.mark.parametrize(
    ("name", "changed", "sizes", "message"),
    [
        ("gpt3-175b", {}, {"tp": 5}, "heads = 96 does not divide by tp = 5; nearest: tp = 4 or 6"),
        ("llama3-8b", {"ffn": 14_338}, {"tp": 4}, "ffn = 14338 does not divide by tp = 4; nearest: tp = 2 or"),
        ("llama3-8b", {"heads": 48, "ffn": 14_400}, {"tp": 6}, "kv_heads = 8 neither .* tp = 6 .*: tp = 4 or 8"),
        ("mixtral-8x7b", {}, {"ep": 3}, "experts = 8 does not divide by ep = 3; nearest: ep = 2 or 4"),
        ("mixtral-8x7b", {"expert_ffn": 14_338}, {"etp": 4}, "expert_ffn = 14338 does not divide by etp = 4"),
        ("llama3-8b", {}, {"ep": 2}, "llama3-8b is dense: ep = 2 has no experts"),
        ("mixtral-8x7b", {}, {"tp": 2, "sequence_parallel": False}, "with tp = 2 and without sequence_parallel"),
        ("llama3-8b", {}, {"pp": 9}, r"layers = 32 do not divide by pp\*vp = 9\*1 = 9, .*; nearest: pp = 8 or 11"),
        ("llama3-8b", {}, {"pp": 2, "vp": 12}, r"pp\*vp = 2\*12 = 24, .*; nearest: vp = 8 or 16"),
        ("llama3-8b", {}, {"pp": 64}, "nearest: pp = 32$"),
        ("llama3-8b", {"layers": 7}, {"pp": 8, "vp": 5}, "nearest: vp = 1"),
        ("gpt3-175b", {}, {"seq": 4096}, "learned positions for 2048 tokens: seq = 4096 is too long"),
    ],
)
def test_a_transformer_that_cannot_be_cut_so_is_refused(name, changed, sizes, message):
    sizes = {"seq": 2048 // sizes.get("tp", 1) * sizes.get("tp", 1), **sizes}
    gpus = np.prod([sizes.get(size, 1) for size in ("tp", "pp", "ep", "etp")])
    layout = Layout(gpus=int(gpus), global_batch=int(gpus), **sizes)
    with pytest.raises(ConfigError, match=message):
        check(layout, replace(find(name), **changed))


def test_more_tensor_ranks_than_keys_are_allowed_when_they_divide():
    check(Layout(gpus=16, tp=16, global_batch=1, seq=2048), find("llama3-70b"))


def test_embeddings_may_have_a_chunk_of_their_own():
    """Llama 3 405B: 126 layers in 128 chunks."""
    chunks = Layout(gpus=128, tp=8, pp=16, vp=8, global_batch=256, seq=8192).chunks(126)
    assert chunks[0][0] == chunks[-1][-1] == 0
    assert sum(map(sum, chunks)) == 126
