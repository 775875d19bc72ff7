"""The time of an engine step, against closed forms and limits."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import msgspec
import pytest

from weft.errors import ConfigError
from weft.inference.communication import Exchange
from weft.inference.deployment import Deployment, find_deployment
from weft.inference.load import Load, serve, step_time
from weft.inference.prediction import infer
from weft.inference.serving.figures import latencies, throughput
from weft.inference.serving.load import Lengths, closed_loop
from weft.inference.serving.run import serve as serve_requests
from weft.inference.serving.service import Limits, Pool, Service
from weft.inference.step import Step
from weft.inference.tabulate import tabulate


def deploy(model: str = "llama3-70b", **fields: object) -> Deployment:
    return find_deployment(model, **{"server": "dgx-h100", "tp": 8, **fields})  # type: ignore[arg-type]


def test_one_token_takes_at_least_the_time_to_read_the_weights():
    deployment = deploy()
    read_s = deployment.weight_bytes / deployment.gpu.memory_byte_s
    assert read_s < Step(deployment).parts(1, 1).total_s < 2 * read_s


def test_fabric_does_not_matter_to_tensor_ranks_inside_a_server():
    load = Load(input=1024, output=128, concurrency=64)
    rates = {infer(deploy(fabric=fabric), load).tokens_per_s for fabric in ("ndr", "roce-400", "eth-100-tcp")}
    assert len(rates) == 1


def test_fabric_does_not_matter_to_stages_inside_a_server_and_does_between_servers():
    load = Load(input=1024, output=128, concurrency=64)
    for stages, tp, rates in ((2, 4, 1), (2, 8, 2)):
        fabrics = ("ndr", "eth-100-tcp")
        deployed = [deploy(fabric=fabric, tp=tp, pp=stages, gpus=32) for fabric in fabrics]
        assert len({infer(deployment, load).tokens_per_s for deployment in deployed}) == rates


def test_fabric_matters_to_tensor_ranks_on_two_servers():
    load = Load(input=1024, output=128, concurrency=64)
    infiniband, tcp = (infer(deploy(fabric=fabric, tp=16), load).tokens_per_s for fabric in ("ndr", "eth-100-tcp"))
    assert tcp < 0.5 * infiniband


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("kind", [{}, {"concurrency": 64}, {"batch": 64}])
def test_twice_the_replicas_give_twice_the_tokens(kind: dict[str, int], stages: int):
    one, two = (
        infer(
            deploy(gpus=8 * count, tp=8 // stages, pp=stages),
            Load(input=1024, output=128, **{name: count * n for name, n in kind.items()}),
        )
        for count in (1, 2)
    )
    assert two.tokens_per_s == pytest.approx(2 * one.tokens_per_s)
    assert two.served.tpot_s == pytest.approx(one.served.tpot_s)


def test_a_batch_reads_only_the_experts_that_it_touches():
    step = Step(deploy("deepseek-v3", server="dgx-h200", weights="fp8", ep=8))
    assert step.touched_experts(1) == pytest.approx(256 / 8 * 8 / 256)
    assert step.touched_experts(1e6) == pytest.approx(32)
    assert step.parts(1, 1)["experts"] < step.parts(64, 64)["experts"] / 4


def test_latent_cache_is_as_published():
    """DeepSeek-V3: 70,272 bytes a token in bf16 (ISCA 25, table 1), 35,136 in fp8."""
    for kv, size in (("bf16", 70_272), ("fp8", 35_136)):
        deployment = deploy("deepseek-v3", server="dgx-h200", tp=1, dp=8, ep=8, weights="fp8", kv=kv)
        assert deployment.kv_bytes_per_token == size


def test_kv_room_is_as_vllm_prints_it():
    """vLLM 0.19 prints 41,408 tokens for Llama 3.1 8B on an RTX 4090 (LLMServingSim)."""
    deployment = find_deployment("llama3-8b", server="rtx-4090-8", max_batch=256, max_tokens=2048)
    assert deployment.kv_room_tokens == pytest.approx(41_408, rel=0.1)


def test_two_batch_overlap_loses_at_few_tokens_and_wins_at_many():
    """Halves of a batch read the weights twice; exchanges with experts are hidden."""
    plain, overlapped = (
        Step(deploy("deepseek-v3", server="hgx-h800", tp=1, dp=32, ep=32, weights="fp8", overlap=overlap))
        for overlap in (False, True)
    )
    many = 32 * 4096
    assert overlapped.parts(many, 32).total_s < plain.parts(many, 32).total_s
    assert overlapped._layers_overlapped(32.0).total_s > plain._layers(32.0).total_s


def test_table_adds_up_to_the_step():
    deployment = deploy()
    step = Step(deployment)
    steps = tabulate(deployment, step)
    for tokens in (1, 64, 2048):
        whole = step.parts(tokens, min(tokens, deployment.batch_limit)).total_s
        assert steps.step_s(tokens) == pytest.approx(whole)
    assert steps.gpus == 8
    assert steps.kv_room_tokens == deployment.kv_room_tokens


def test_more_users_give_more_tokens_and_wait_longer():
    step = Step(deploy())
    runs = [serve(step, Load(input=1024, output=128, concurrency=users)) for users in (1, 8, 64, 512)]
    before_tokens, before_s = 0.0, 0.0
    for run in runs:
        assert run.output_tokens_per_s > before_tokens
        assert before_s < run.tpot_s < inf
        before_tokens, before_s = run.output_tokens_per_s, run.tpot_s


def test_model_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="does not fit: weights and activations take"):
        deploy(tp=1)


def test_experts_in_four_bits_leave_the_rest_in_sixteen():
    narrow, wide = (deploy("gpt-oss-120b", weights=weights) for weights in ("mxfp4", "bf16"))
    assert narrow.dense_format == "bf16"
    assert narrow.precision == "bf16"  # an H100 multiplies no 4 bits
    assert 3 < wide.weight_bytes / narrow.weight_bytes < 4


def test_draft_tokens_give_more_tokens_per_step_of_few_requests():
    plain, drafted = (
        infer(deploy(drafts=drafts), Load(input=1024, output=128, concurrency=4)).tokens_per_s for drafts in (0, 1)
    )
    assert 1.3 * plain < drafted < 1.85 * plain


def test_pipeline_reads_weights_for_each_micro_batch():
    """Two stages of 4 GPUs read as many bytes for each token as 4 GPUs alone, and send activations."""
    tensor, pipeline = (Step(deploy(tp=tp, pp=8 // tp)).parts(2, 2) for tp in (8, 4))
    assert pipeline["weights"] > 1.5 * tensor["weights"]
    assert pipeline["send"] > 0


@pytest.mark.parametrize(("gpus", "size_bytes", "us"), [(2, 16_384, 2.849), (4, 65_536, 3.683), (8, 131_072, 6.204)])
def test_small_all_reduces_are_as_measured_in_cuda_graphs(gpus, size_bytes, us):
    """TensorRT-LLM's kernels on H100 (AIConfigurator's tables)."""
    exchange = Exchange(deploy(tp=gpus, weights="fp8", framework="tensorrt-llm"))
    assert 1e6 * exchange.all_reduce_s(size_bytes) == pytest.approx(us, rel=0.15)


def test_request_on_split_replicas_passes_three_servers_two_tokenizers_and_a_decode_step():
    step = Step(find_deployment("llama3-8b", server="dgx-h100", tp=1))
    engine, load = step.deployment.engine, {"input": 4096, "output": 128, "concurrency": 1}
    alone, split = (serve(step, Load(**load, split=split)).ttft_s or 0.0 for split in (False, True))
    decode_s = step_time(step, decoding=1, context=4096).total_s
    more_s = 2e-3 * engine.request_ms + 4096e-6 * engine.token_us + decode_s
    assert split - alone == pytest.approx(more_s, rel=1e-3)
    with pytest.raises(ConfigError, match="one request at a time"):
        Load(input=4096, output=128, concurrency=2, split=True)


def test_experts_multiply_at_the_rate_of_their_narrow_side():
    """Enough tokens that the tensor cores limit the products; `grouped` is so large that the widths matter most."""
    deployment = deploy("deepseek-v3", tp=8, weights="fp8", server="dgx-h200")
    spent_s, work = [], []
    for grouped in (2e3, 4e3):
        step = Step(replace(deployment, engine=msgspec.structs.replace(deployment.engine, grouped=grouped)))
        shapes = deployment.model.expert_matrices(deployment.expert_tp).values()
        assert {min(shape) for shape in shapes} == {512, 256}
        spent_s.append(step.parts(65_536, 65_536)["experts"])
        work.append(sum(inputs * outputs / step._expert_rate(min(inputs, outputs)) for inputs, outputs in shapes))
    assert spent_s[1] / spent_s[0] == pytest.approx(work[1] / work[0], rel=0.04)


def test_launches_without_graphs_take_what_the_kernels_leave_of_their_time():
    engine = msgspec.structs.replace(deploy().engine, eager_us=50.0)
    with_graphs, without = (
        Step(replace(deploy("llama3-8b", graphs=graphs), engine=engine)) for graphs in (True, False)
    )
    launched_s = 50e-6 * engine.kernels * without.deployment.model.layers
    few, many = (without.parts(tokens, tokens) for tokens in (1, 65_536))
    assert few.total_s == pytest.approx(launched_s)
    assert many.total_s > launched_s
    assert many["launch"] == pytest.approx(with_graphs.parts(65_536, 65_536)["launch"])


def test_closed_loop_agrees_with_requests_served_in_time():
    run = infer(deploy(), Load(input=1024, output=128, concurrency=16))
    limits = Limits(max_num_seqs=run.deployment.batch_limit, max_num_batched_tokens=run.deployment.token_limit)
    prompts, answers = Lengths(820, 1228), Lengths(103, 153)
    users = closed_loop(users=16, requests=320, prompt=prompts, output=answers, seed=1)
    done = serve_requests(Service(pools=(Pool(table=run.table, limits=limits),)), users)
    assert throughput(done).output_tokens_per_s == pytest.approx(run.tokens_per_s, rel=0.15)
    assert latencies(done)["tpot"].mean_s == pytest.approx(run.served.tpot_s, rel=0.15)


@pytest.mark.parametrize(("model", "tp", "reads"), [("llama2-70b", 2, 8), ("llama2-70b", 8, 8), ("llama2-13b", 2, 1)])
def test_engines_of_2023_read_the_cache_for_each_query_head(model, tp, reads):
    old, new = (
        Step(find_deployment(model, server="dgx-h200", tp=tp, framework=f"tensorrt-llm{suffix}"))
        for suffix in ("-2023", "")
    )
    assert old.kv_s_per_token == pytest.approx(reads * new.kv_s_per_token)
    assert old.parts(64, 64) == new.parts(64, 64)


@pytest.mark.parametrize(
    ("fabric", "gpus", "kernels"),
    [("eth-100-tcp", 8, ("one-sided",)), ("eth-100-tcp", 16, ("pairs",)), ("ndr", 16, ("deepep", "deepep-ll"))],
)
def test_sockets_exchange_with_experts_in_pairs_beyond_a_server(fabric, gpus, kernels):
    deployment = find_deployment("mixtral-8x7b", fabric, server="dgx-h100", gpus=gpus, dp=gpus, ep=8)
    assert Exchange(deployment).kernels == kernels


@pytest.mark.parametrize(("weights", "dispatch_bytes"), [("bf16", 2), ("fp8", 1)])
def test_tokens_go_to_experts_in_the_format_of_the_products(weights, dispatch_bytes):
    deployment = deploy("mixtral-8x7b", tp=1, dp=8, ep=8, weights=weights)
    assert Exchange(deployment)._layer_of(64, 8).dispatch_bytes == dispatch_bytes
