"""Throughput and latency in closed form, with steps whose times are known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from weft.errors import ConfigError
from weft.inference.deployment import Deployment, find_deployment
from weft.inference.load import Load, _pairs, default_output, serve
from weft.training.layers import Time
from weft.training.transformer import shape

SMALL = shape(name="small", layers=4, hidden=1024, heads=8, kv_heads=2, ffn=4096, gated=True, vocab=32_000, seq=2048)


class LinearStep:
    """A step of 1 ms, 1 us for each token, 10 us for each request, 1 ns for a pair and 10 ns for a cached token."""

    attention_s_per_pair, kv_s_per_token = 1e-9, 1e-8

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment

    def parts(self, tokens: float, sequences: float) -> Time:
        return Time(weights=1e-3 + 1e-6 * tokens + 1e-5 * sequences)


def step(**fields: object) -> LinearStep:
    return LinearStep(find_deployment(SMALL, server="dgx-h100", **{"max_tokens": 8000, "max_batch": 64, **fields}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input": 0, "output": 1}, "--input-len must be at least 1, got 0"),
        ({"input": 1, "output": -1}, "--output-len must be at least 0, got -1"),
        ({"input": 1, "output": 1, "concurrency": -1}, "--concurrency must be at least 0, got -1"),
        ({"input": 1, "output": 1, "batch": -1}, "--batch-size must be at least 0, got -1"),
        ({"input": 1, "output": 1, "batch": 1, "concurrency": 1}, "not both"),
        ({"input": 1, "output": 1, "split": True}, "one request at a time: set concurrency to 1"),
        ({"input": 1, "output": 1, "split": True, "concurrency": 2}, "one request at a time: set concurrency to 1"),
        ({"input": 1}, "--output-len, the tokens of an answer, must be at least 1"),
        ({"input": 1, "phase": "prefill", "output": 1}, "--output-len and --concurrency need both phases"),
        ({"input": 1, "phase": "decode", "batch": 1, "concurrency": 0, "output": 1}, "need both phases"),
        ({"input": 1, "phase": "prefill", "concurrency": 1}, "--output-len and --concurrency need both phases"),
        ({"input": 1, "phase": "decode"}, "--phase decode needs --batch-size"),
        ({"input": 1, "phase": "prefill", "batch": 1}, "--batch-size changes nothing in --phase prefill"),
        ({"input": 1, "phase": "prefil"}, "prefill"),
    ],
)
def test_a_load_that_contradicts_itself_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        Load(**fields)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"output": 1}, "offline"),
        ({"output": 1, "concurrency": 1}, "closed"),
        ({"output": 1, "concurrency": 1, "split": True}, "closed"),
        ({"output": 1, "batch": 1}, "static"),
        ({"phase": "prefill"}, "prefill"),
        ({"phase": "decode", "batch": 1}, "decode"),
    ],
)
def test_the_kind_of_a_load_follows_from_its_fields(fields, kind):
    assert Load(input=1, **fields).kind == kind


def test_one_phase_alone_has_no_answers():
    assert [default_output(phase) for phase in ("", "prefill", "decode")] == [128, 0, 0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_static_batch_is_prefilled_in_steps_of_the_most_tokens_and_decoded_to_its_end(replicas):
    """20 prompts of 1,000 tokens are 3 steps of at most 8,000; the first tokens are those of the prefill."""
    served = serve(step(gpus=replicas), Load(input=1000, output=101, batch=20 * replicas))
    decode_s = 1e-3 + 20 * 1e-6 + 20 * 1e-5 + 20 * 1050.5 * 1e-8
    assert served.ttft_s == pytest.approx(3 * 1e-3 + 20_000 * 1e-6 + 20 * 1e-5 + 20 * 1000**2 / 2 * 1e-9)
    assert (served.tpot_s, served.step_s) == pytest.approx((decode_s, decode_s))
    whole_s = served.ttft_s + 100 * decode_s
    assert served.parts.total_s == pytest.approx(whole_s)
    assert served.output_tokens_per_s == pytest.approx(replicas * 20 * 101 / whole_s)
    assert served.input_tokens_per_s == pytest.approx(replicas * 20 * 1000 / whole_s)
    assert (served.decoding, served.waiting, served.limit, served.bottleneck) == (20, 0, "the batch", "weights")
    fits = serve(step(gpus=replicas), Load(input=1000, output=101, batch=16 * replicas))
    assert fits.ttft_s == pytest.approx(2 * 1e-3 + 16_000 * 1e-6 + 16 * 1e-5 + 16 * 1000**2 / 2 * 1e-9)


@pytest.mark.parametrize(
    ("prompt", "chunks", "step_s"), [(1000, 1, 0.01308), (8000, 1, 0.04101), (8001, 2, 0.041014), (20_000, 3, 0.089004)]
)
def test_prefill_alone_fills_steps_with_prompts_or_parts_of_one(prompt, chunks, step_s):
    served = serve(step(gpus=2), Load(input=prompt, phase="prefill"))
    assert served.step_s == pytest.approx(step_s, rel=1e-4)
    assert served.ttft_s == pytest.approx(chunks * served.step_s)
    assert served.input_tokens_per_s == pytest.approx(2 * 8000 / served.step_s)
    assert (served.output_tokens_per_s, served.tpot_s, served.decoding) == (0, None, 0)
    assert (served.waiting, served.limit) == (8000 / prompt, "tokens of a step")


def test_decode_alone_reads_the_cache_of_its_requests():
    served = serve(step(gpus=2), Load(input=4000, batch=20, phase="decode"))
    assert served.step_s == served.tpot_s == pytest.approx(1e-3 + 10 * 1e-6 + 10 * 1e-5 + 10 * 4000 * 1e-8)
    assert served.output_tokens_per_s == pytest.approx(20 / served.step_s)
    assert (served.input_tokens_per_s, served.ttft_s, served.decoding, served.waiting) == (0, None, 10, 0)
    assert served.limit == "the batch"


def test_offline_steps_have_the_prompts_of_the_requests_that_follow():
    """64 requests of 100 tokens: a step ends 0.64 of them and prefills as many prompts."""
    served = serve(step(gpus=2), Load(input=1000, output=100))
    step_s = 1e-3 + (64 + 640) * 1e-6 + 64.64 * 1e-5 + 0.64 * 1000**2 / 2 * 1e-9 + 64 * 1050 * 1e-8
    assert served.step_s == served.tpot_s == pytest.approx(step_s)
    assert served.output_tokens_per_s == pytest.approx(2 * 64 / step_s)
    assert served.input_tokens_per_s == pytest.approx(10 * served.output_tokens_per_s)
    assert (served.limit, served.ttft_s, served.waiting) == ("largest batch", None, 0)


def test_accepted_drafts_are_tokens_without_a_step_of_their_own():
    served = serve(step(drafts=1, acceptance=0.5), Load(input=1000, output=150))
    step_s = 1e-3 + (2 * 64 + 640) * 1e-6 + 64.64 * 1e-5 + 0.64 * 1000**2 / 2 * 1e-9 + 64 * 1075 * 1e-8
    assert served.step_s == pytest.approx(step_s)
    assert served.tpot_s == pytest.approx(step_s / 1.5)
    assert served.output_tokens_per_s == pytest.approx(1.5 * 64 / step_s)


def test_requests_in_a_step_are_limited_by_the_batch_by_prompts_or_by_memory():
    many = step(max_batch=1000)
    prompts = serve(many, Load(input=1000, output=100))
    assert (prompts.decoding, prompts.limit) == (pytest.approx(8000 / (1 + 1000 / 100)), "prompts in a step")
    room = many.deployment.kv_room_tokens
    memory = serve(many, Load(input=1, output=1_000_000))
    assert (memory.decoding, memory.limit) == (pytest.approx(room / (1 + 500_000)), "KV cache")
    reserved = step(max_batch=1000, framework="tensorrt-llm")
    assert reserved.deployment.engine.reserves_all
    held = serve(reserved, Load(input=1, output=1_000_000)).decoding
    assert held == pytest.approx(reserved.deployment.kv_room_tokens / (1 + 1_000_000))
    with pytest.raises(ConfigError, match=r"needs more KV cache than a replica has, .* smaller --kv format"):
        serve(many, Load(input=room + 1, output=1))


@pytest.mark.parametrize("users", [1, 8])
def test_a_user_of_a_closed_loop_waits_for_its_prompt_half_a_step_and_the_front_end(users):
    served = serve(step(), Load(input=1000, output=100, concurrency=users))
    decoding = served.decoding
    prefill_s = 1e-3 + (decoding + 1000) * 1e-6 + (decoding + 1) * 1e-5 + 1000**2 / 2 * 1e-9 + decoding * 1050 * 1e-8
    ahead = served.waiting * (users - 1) / users
    front_s = 10e-3 + 1000 * 3.5e-6
    expected_s = prefill_s * (1 + ahead / 2) + served.step_s / 2 + front_s
    assert served.ttft_s == pytest.approx(expected_s, rel=1e-3)
    assert served.waiting == pytest.approx(users - decoding)
    assert served.limit == "users"
    assert served.output_tokens_per_s == pytest.approx(decoding / served.step_s)


def test_more_users_than_a_step_takes_wait():
    served = serve(step(), Load(input=1000, output=100, concurrency=1000))
    assert (served.limit, served.decoding) == ("largest batch", pytest.approx(64))
    assert served.waiting == pytest.approx(936)
    assert served.ttft_s == pytest.approx(936 * 100 * served.step_s / 64)


def test_a_long_prompt_of_a_closed_loop_is_prefilled_in_parts_beside_decoding():
    """20,000 tokens in steps with room for 8,000 less the decoding requests: 3 parts."""
    served = serve(step(), Load(input=20_000, output=100, concurrency=1))
    decoding = served.decoding
    part_s = 1e-3 + (decoding + 20_000 / 3) * 1e-6 + (decoding + 1 / 3) * 1e-5
    part_s += 20_000**2 / 2 / 3 * 1e-9 + decoding * 20_050 * 1e-8
    assert served.ttft_s == pytest.approx(3 * part_s + served.step_s / 2 + 10e-3 + 20_000 * 3.5e-6, rel=1e-3)


def test_attention_of_a_prompt_counts_half_of_its_pairs_and_those_in_windows_of_half_its_length():
    shares = []
    deployment = SimpleNamespace(cached_share=lambda tokens: shares.append(tokens) or 0.25)
    assert _pairs(SimpleNamespace(deployment=deployment), Load(input=1000, output=1), 3.0) == 3 * 1000**2 / 2 * 0.25
    assert shares == [500]
