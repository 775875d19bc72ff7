"""Throughput and latency of a deployment under a load, in closed form.

    serve(step, Load(input=1024, output=128))                     # offline: all requests wait, steps are full
    serve(step, Load(input=1024, output=128, concurrency=64))     # closed loop: 64 users, each sends its next request
    serve(step, Load(input=1024, output=128, batch=64))           # static: 64 prompts, then 64 outputs
    serve(step, Load(input=4096, phase="prefill"))                # prefill alone, in steps of the most tokens
    serve(step, Load(input=4096, batch=128, phase="decode"))      # decode alone, 128 requests of 4,096 cached tokens

Continuous batching: a step has a token of each of D decoding requests and prompts up to the limit of tokens. As many
requests leave as arrive, so that a step prefills D * input / steps-per-request tokens in the mean. D is limited by the
engine, by the KV cache, and by the prompts that fit beside.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from weft.errors import ConfigError, find_named
from weft.inference.step import Step
from weft.training.layers import Time

_OUTPUT_TOKENS = 128
_PHASES = ("prefill", "decode")
_ROUNDS = 200
_CLOSE = 1e-6  # change of the decoding requests at which a search ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load of equal requests; numbers are those of the whole deployment."""

    input: int  # tokens of a prompt
    output: int = 0  # tokens of an answer
    concurrency: int = 0  # users of a closed loop
    batch: int = 0  # requests of a static batch
    phase: str = ""  # prefill or decode, if only one of them runs
    split: bool = False  # a request at a time, prefilled on one replica and decoded on another

    def __post_init__(self) -> None:
        if self.phase:
            find_named("--phase", self.phase, dict.fromkeys(_PHASES))
        for flag, value, least in (
            ("--input-len", self.input, 1),
            ("--output-len", self.output, 0),
            ("--concurrency", self.concurrency, 0),
            ("--batch-size", self.batch, 0),
        ):
            if value < least:
                raise ConfigError(f"{flag} must be at least {least}, got {value}")
        if self.concurrency and self.batch:
            raise ConfigError("use --concurrency (a closed loop) or --batch-size (a static batch), not both")
        if self.split and self.concurrency != 1:
            raise ConfigError("split replicas in closed form serve one request at a time: set concurrency to 1")
        if not self.phase and not self.output:
            raise ConfigError("--output-len, the tokens of an answer, must be at least 1")
        if self.phase and (self.output or self.concurrency):
            raise ConfigError("--output-len and --concurrency need both phases: leave them out, or --phase")
        if self.phase == "decode" and not self.batch:
            raise ConfigError("--phase decode needs --batch-size, the requests that decode")
        if self.phase == "prefill" and self.batch:
            raise ConfigError("--batch-size changes nothing in --phase prefill: leave it out, or set --max-tokens")

    @property
    def kind(self) -> str:
        return self.phase or ("static" if self.batch else "closed" if self.concurrency else "offline")


def default_output(phase: str) -> int:
    """Return the tokens of an answer if none are given: one phase alone has no answers."""
    return 0 if phase else _OUTPUT_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The result: rates of the whole deployment, mean latencies of a request, parts of the mean step."""

    load: Load
    output_tokens_per_s: float
    input_tokens_per_s: float
    ttft_s: float | None  # time to the first token
    tpot_s: float | None  # time between two tokens of a request
    decoding: float  # requests of a replica that decode, in the mean
    waiting: float  # requests of a replica that wait or are prefilled
    step_s: float
    parts: Time
    limit: str  # of the requests in a step

    @property
    def bottleneck(self) -> str:
        return max(self.parts, key=lambda part: self.parts[part])


def serve(step: Step, load: Load) -> Served:
    """Return throughput and latency of a load."""
    return {
        "offline": _serve_offline,
        "closed": _serve_closed,
        "static": _serve_static,
        "prefill": _serve_prefill,
        "decode": _serve_decode,
    }[load.kind](step, load)


def step_time(
    step: Step,
    *,
    decoding: float,
    prefilled: float = 0.0,
    prompts: float = 0.0,
    pairs: float = 0.0,
    context: float = 0.0,
) -> Time:
    """Return the parts of a step with `decoding` requests of `context` tokens, and `prefilled` tokens of `prompts`."""
    deployment = step.deployment
    time = step.parts(decoding * (1 + deployment.drafts) + prefilled, decoding + prompts)
    time.add("attention", pairs * step.attention_s_per_pair)
    time.add("kv", decoding * context * deployment.cached_share(context) * step.kv_s_per_token)
    return time


def _pairs(step: Step, load: Load, prompts: float) -> float:
    """Return the pairs of tokens that attention of so many prompts computes; a window leaves some out."""
    return prompts * load.input**2 / 2 * step.deployment.cached_share(load.input / 2)


def _most_requests(step: Step, load: Load) -> tuple[float, str]:
    """Return the most requests of a replica that decode at the same time, and the reason."""
    deployment = step.deployment
    length = load.input + (load.output if deployment.engine.reserves_all else load.output / 2)
    share = deployment.cached_share(load.input + load.output)
    held = length * share + deployment.dp * deployment.state_bytes_of_gpu / deployment.kv_bytes_per_rank_token
    by_memory = deployment.kv_room_tokens / held
    steps = load.output / deployment.tokens_per_decode
    by_tokens = deployment.token_limit / (1 + deployment.drafts + load.input / steps)
    most = min(deployment.batch_limit, by_memory, by_tokens)
    reason = "KV cache" if most == by_memory else "prompts in a step" if most == by_tokens else "largest batch"
    if by_memory < 1:
        raise ConfigError(
            f"a request of {load.input + load.output:,} tokens needs more KV cache than a replica has, "
            f"{deployment.kv_room_tokens:,} tokens: use more GPUs or a smaller --kv format"
        )
    return most, reason


def _mean_step(step: Step, load: Load, decoding: float) -> Time:
    """Return the parts of the mean step of continuous batching with so many decoding requests."""
    steps = load.output / step.deployment.tokens_per_decode
    prompts = decoding / steps
    return step_time(
        step,
        decoding=decoding,
        prefilled=prompts * load.input,
        prompts=prompts,
        pairs=_pairs(step, load, prompts),
        context=load.input + load.output / 2,
    )


def _result(step: Step, load: Load, time: Time, decoding: float, limit: str, **latencies: float | None) -> Served:
    deployment = step.deployment
    rate = deployment.replicas * decoding * deployment.tokens_per_decode / time.total_s
    figures = {"ttft_s": None, "waiting": 0.0, **latencies}
    return Served(
        load=load,
        output_tokens_per_s=rate,
        input_tokens_per_s=rate * load.input / load.output,
        tpot_s=time.total_s / deployment.tokens_per_decode,
        decoding=decoding,
        step_s=time.total_s,
        parts=time,
        limit=limit,
        **figures,  # type: ignore[arg-type]
    )


def _serve_offline(step: Step, load: Load) -> Served:
    decoding, limit = _most_requests(step, load)
    return _result(step, load, _mean_step(step, load, decoding), decoding, limit)


def _serve_closed(step: Step, load: Load) -> Served:
    """Balance users between waiting for their first token and decoding.

    Prompts are a queue with one server (mean value analysis of a closed network): a new prompt waits for half of the
    time of the prompts before it, as in a queue whose service always takes as long. Decoding goes on beside it, in
    steps that are longer where they hold prompts.
    """
    deployment = step.deployment
    users = load.concurrency / deployment.replicas
    most, limit = _most_requests(step, load)
    decoding, waiting, time, prefill_s = min(users, most), 0.0, Time(), 0.0
    for _ in range(_ROUNDS):
        before = decoding
        time = _mean_step(step, load, decoding)
        rate = decoding * deployment.tokens_per_decode / load.output / time.total_s  # requests per second
        prefill_s = _prefill_s(step, load, decoding)
        ahead = waiting * (users - 1) / users if users > 1 else 0.0
        ttft_s = prefill_s * (1 + ahead / 2) + time.total_s / 2 + _front_end_s(step, load)
        waiting = 0.5 * waiting + 0.5 * min(rate * ttft_s, users)
        decoding = 0.5 * decoding + 0.5 * max(min(users - waiting, most), 1e-3)
        if abs(decoding - before) < _CLOSE * before:
            break
    rate = decoding * deployment.tokens_per_decode / load.output / time.total_s
    ttft_s = max(users - decoding, 0.0) / rate  # Little's law
    held = "users" if users < most else limit
    return _result(step, load, time, decoding, held, ttft_s=ttft_s, waiting=users - decoding)


def _front_end_s(step: Step, load: Load) -> float:
    """Return the time of a request outside of the steps of its prompt.

    With split replicas the first token that the user sees is that of the first step of the replica that decodes (as in
    vLLM with a KV connector).
    """
    seconds = step.deployment.engine.front_end_s(load.input, split=load.split)
    return seconds + (step_time(step, decoding=1, context=load.input).total_s if load.split else 0.0)


def _prefill_s(step: Step, load: Load, decoding: float) -> float:
    """Return the time of the steps that prefill one prompt beside decoding requests."""
    room = max(step.deployment.token_limit - decoding * (1 + step.deployment.drafts), 1.0)
    chunks = ceil(load.input / room)
    time = step_time(
        step,
        decoding=decoding,
        prefilled=load.input / chunks,
        prompts=1 / chunks,
        pairs=_pairs(step, load, 1 / chunks),
        context=load.input + load.output / 2,
    )
    return chunks * time.total_s


def _serve_static(step: Step, load: Load) -> Served:
    """Return a batch that is prefilled, then decoded to its end."""
    deployment = step.deployment
    decoding = load.batch / deployment.replicas
    steps = (load.output - 1) / deployment.tokens_per_decode
    chunks = ceil(decoding * load.input / deployment.token_limit)
    prefill = Time()
    prefill.add_all(
        step_time(
            step,
            decoding=0,
            prefilled=decoding * load.input / chunks,
            prompts=decoding / chunks,
            pairs=_pairs(step, load, decoding / chunks),
        ),
        chunks,
    )
    decode = step_time(step, decoding=decoding, context=load.input + load.output / 2)
    whole = Time()
    whole.add_all(prefill)
    whole.add_all(decode, steps)
    rate = load.batch * load.output / whole.total_s
    return Served(
        load=load,
        output_tokens_per_s=rate,
        input_tokens_per_s=rate * load.input / load.output,
        ttft_s=prefill.total_s,
        tpot_s=decode.total_s / deployment.tokens_per_decode,
        decoding=decoding,
        waiting=0.0,
        step_s=decode.total_s,
        parts=whole,
        limit="the batch",
    )


def _serve_prefill(step: Step, load: Load) -> Served:
    deployment = step.deployment
    tokens = float(deployment.token_limit)
    prompts = tokens / load.input
    time = step_time(step, decoding=0, prefilled=tokens, prompts=prompts, pairs=_pairs(step, load, prompts))
    chunks = max(1, ceil(load.input * deployment.dp / tokens))
    return Served(
        load=load,
        output_tokens_per_s=0.0,
        input_tokens_per_s=deployment.replicas * tokens / time.total_s,
        ttft_s=chunks * time.total_s,
        tpot_s=None,
        decoding=0.0,
        waiting=prompts,
        step_s=time.total_s,
        parts=time,
        limit="tokens of a step",
    )


def _serve_decode(step: Step, load: Load) -> Served:
    deployment = step.deployment
    decoding = load.batch / deployment.replicas
    time = step_time(step, decoding=decoding, context=load.input)
    return Served(
        load=load,
        output_tokens_per_s=load.batch * deployment.tokens_per_decode / time.total_s,
        input_tokens_per_s=0.0,
        ttft_s=None,
        tpot_s=time.total_s / deployment.tokens_per_decode,
        decoding=decoding,
        waiting=0.0,
        step_s=time.total_s,
        parts=time,
        limit="the batch",
    )
