"""The options of `weft infer` for requests that arrive in time."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import File, OnByDefault, Whole
from weft.errors import ConfigError
from weft.units import parse_seconds

if TYPE_CHECKING:
    from weft.inference.serving.figures import Objective
    from weft.inference.serving.load import Load

_SIZES = ("tp", "pp", "dp", "ep")
_REQUESTS = 2000  # in a closed loop and an offline run


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Requests in time. --rate, --request-trace or --simulate serve them one by one; otherwise means are computed."""

    rate: float | None = None
    """Requests per second, arriving at random (Poisson)."""
    seconds: float | None = None
    """Seconds to run: requests arrive during them, with --rate. [300]"""
    burstiness: float | None = None
    """With --rate: 1 is Poisson, less has bursts (gaps of a gamma distribution, as vLLM's benchmark). [1]"""
    request_trace: File = None
    """A file of requests: Azure's LLM traces (.csv), Mooncake's (.jsonl, with prefixes), or a table with the columns
    arrival_s, prompt and output."""
    trace_speed: float | None = None
    """With --request-trace: times its speed. [1]"""
    simulate: bool = False
    """Serve a closed loop (--concurrency) or all requests at once (offline) one by one."""
    requests: Whole | None = None
    """With --simulate: number of requests; with --request-trace, its first. [2000; all]"""
    max_input_len: Whole | None = None
    """Longest prompt: lengths are uniform from --input-len to it. [all as --input-len]"""
    max_output_len: Whole | None = None
    """Longest answer: lengths are uniform from --output-len to it. [all as --output-len]"""
    shared_prefix: Whole | None = None
    """Tokens at the start of prompts that others share, such as a system prompt. [none]"""
    prefixes: Whole | None = None
    """With --shared-prefix: number of different ones. [1]"""
    max_model_len: Whole | None = None
    """Leave out requests with more tokens. [an error if one does not fit]"""

    @property
    def is_active(self) -> bool:
        return self.rate is not None or self.request_trace is not None or self.simulate


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Replicas and scheduling, with --rate, --request-trace or --simulate."""

    prefill: Whole | None = None
    """Disaggregated serving: replicas that prefill prompts. [every replica serves both phases]"""
    decode: Whole | None = None
    """Disaggregated serving: replicas that decode answers, after a hand-off of the KV cache over the fabric."""
    decode_tp: Whole | None = None
    """With --decode or --find gpus: tensor-parallel size of decode replicas. [--tp]"""
    decode_pp: Whole | None = None
    """The same: pipeline stages of decode replicas. [--pp]"""
    decode_dp: Whole | None = None
    """The same: attention ranks of decode replicas. [--dp]"""
    decode_ep: Whole | None = None
    """The same: GPUs over which a decode replica spreads the experts of a layer. [--ep]"""
    handoff: str | None = None
    """With --prefill: after (the KV cache moves when the prefill has ended) or layers (while it runs). [after]"""
    staging: Whole | None = None
    """With --prefill: hand-offs under way to a decode replica at most. [as its KV room allows]"""
    jobs: tuple[str, ...] = ()
    """A job as in `weft load`: 'train=all-to-all:dgx[3-8]@80%', of another tenant on the same fabric, which shares
    links with hand-offs (--prefill) and with exchanges between the servers of a replica. Repeat it for several.
    [none]"""
    handoff_lane: str | None = None
    """With --jobs: the share of each link that VL arbitration guarantees to hand-offs on a service level of their own,
    such as 75%. [all traffic on one virtual lane]"""
    router: str = "least-loaded"
    """Choice of the replica for a request: round-robin, least-loaded or prefix (the one that has its prefix)."""
    chunked_prefill: OnByDefault = True
    """Split prompts over steps; otherwise a step has whole prompts only."""
    prefix_caching: OnByDefault = True
    """Keep the KV of prompts for later requests with the same prefix."""
    gpu_memory_utilization: float | None = None
    """Share of GPU memory for weights, activations and KV cache. [as the framework]"""
    slo_ttft: str | None = None
    """Objective for the time to the first token: 2s or 450ms."""
    slo_tpot: str | None = None
    """Objective for the mean time per output token: 30ms."""
    slo_share: float | None = None
    """Share of requests that must keep the objectives. [0.99]"""
    find: str | None = None
    """Find the best service: gpus (the fewest replicas that keep the objectives, over prefill and decode replicas and
    batch sizes), layout (the same over layouts of up to --gpus for a replica, one server by default) or rate (the
    highest rate that the given replicas sustain)."""
    fault: str | None = None
    """A fault: dead:decode1, dead:replica2, dead:leaf1, cut:dgx1/mlx5_0/1 or slow:leaf1/3=4xHDR, with
    times as in dead:leaf1@60s-120s. [for the middle third of the run]"""
    write_requests: File = None
    """Write the times of all requests to a file, .csv or .parquet."""
    bands: bool = False
    """Serve the load twice more, with steps as short and as long as published figures allow (90 %), and print the range
    of each latency."""
    picture_cdf: File = None
    """Draw the distribution of latency: TTFT and TPOT, .png, .svg or .pdf."""


NO_TRAFFIC, NO_SERVING = Traffic(), Serving()


def check_traffic(
    traffic: Traffic, serving: Serving, batch: int, phase: str, concurrency: int, *, has_lengths: bool
) -> None:
    """Refuse options that have no effect or contradict each other.

    has_lengths: whether the lengths of prompts or answers are given.
    """
    if not traffic.is_active:
        if traffic != NO_TRAFFIC or serving != NO_SERVING:
            raise ConfigError(
                "options of requests in time need a load: add --rate 50, --request-trace FILE or --simulate"
            )
        return
    rules = (
        (traffic.rate is not None and traffic.request_trace is not None, "use --rate or --request-trace, not both"),
        (
            traffic.simulate and (traffic.rate is not None or traffic.request_trace is not None),
            "--rate and --request-trace simulate: leave out --simulate",
        ),
        (bool(batch or phase), "--batch-size and --phase have no requests in time: leave them out"),
        (
            bool(concurrency) and not traffic.simulate,
            "--concurrency is a closed loop: use --simulate, not --rate or --request-trace",
        ),
        (
            traffic.rate is None and (traffic.seconds is not None or traffic.burstiness is not None),
            "--seconds and --burstiness go with --rate",
        ),
        (
            traffic.request_trace is None and traffic.trace_speed is not None,
            "--trace-speed goes with --request-trace",
        ),
        (
            traffic.rate is not None and traffic.requests is not None,
            "--requests goes with --simulate or --request-trace; --rate has --seconds",
        ),
        (
            traffic.request_trace is not None
            and (has_lengths or traffic.max_input_len or traffic.max_output_len or traffic.shared_prefix),
            "a trace has its own lengths and prefixes: leave out --input-len, --output-len, the longest ones and "
            "--shared-prefix",
        ),
        (
            traffic.prefixes is not None and traffic.shared_prefix is None,
            "--prefixes goes with --shared-prefix",
        ),
        (
            serving.prefill is None and (serving.handoff is not None or serving.staging is not None),
            "--handoff and --staging go with --prefill and --decode",
        ),
        (bool(serving.jobs) and serving.find, "--jobs are beside one service: leave out --find"),
        (
            serving.handoff_lane is not None and not (serving.jobs and serving.prefill),
            "--handoff-lane separates hand-offs from jobs: add --jobs, --prefill and --decode",
        ),
        (serving.handoff not in (None, "after", "layers"), "--handoff must be after or layers"),
        (
            not (serving.decode or serving.find) and any(getattr(serving, f"decode_{name}") for name in _SIZES),
            "--decode-tp, --decode-pp, --decode-dp and --decode-ep are of decode replicas: add --prefill and --decode",
        ),
        (
            serving.find not in (None, "gpus", "layout", "rate"),
            f"--find must be gpus, layout or rate, got {serving.find!r}",
        ),
        (
            serving.find and not (serving.slo_ttft or serving.slo_tpot),
            "--find needs an objective: --slo-ttft 2s or --slo-tpot 30ms",
        ),
        (
            serving.slo_share is not None and not (serving.slo_ttft or serving.slo_tpot),
            "--slo-share goes with --slo-ttft or --slo-tpot",
        ),
        (serving.find and serving.fault, "--fault is of one service: leave out --find"),
        (
            serving.find and (serving.write_requests or serving.picture_cdf or serving.bands),
            "--bands, --write-requests and --picture-cdf are of one service: leave out --find",
        ),
        (serving.find == "rate" and traffic.rate is None, "--find rate needs --rate, where it starts"),
    )
    for wrong, message in rules:
        if wrong:
            raise ConfigError(message)
    _check_counts(traffic, serving)
    from weft.draw.chart import check_suffix
    from weft.sim.series import check_columns_file

    if serving.write_requests is not None:
        check_columns_file(serving.write_requests, "--write-requests")
    if serving.picture_cdf is not None:
        check_suffix(serving.picture_cdf)


def _check_counts(traffic: Traffic, serving: Serving) -> None:
    """Refuse counts below 1: left out, they have their defaults."""
    counts = (
        ("requests", traffic.requests),
        ("max-input-len", traffic.max_input_len),
        ("max-output-len", traffic.max_output_len),
        ("shared-prefix", traffic.shared_prefix),
        ("prefixes", traffic.prefixes),
        ("max-model-len", traffic.max_model_len),
        ("prefill", serving.prefill),
        ("decode", serving.decode),
        ("staging", serving.staging),
        *((f"decode-{name}", getattr(serving, f"decode_{name}")) for name in _SIZES),
    )
    for flag, count in counts:
        if count is not None and count < 1:
            raise ConfigError(f"--{flag} must be 1 or more, got {count}")


def read_traffic(traffic: Traffic, prompt: int, output: int, concurrency: int, seed: int) -> Load:
    """Return the requests of these options."""
    from weft.inference.serving import load as loads
    from weft.inference.serving.traces import read_trace

    if traffic.request_trace is not None:
        speed = 1.0 if traffic.trace_speed is None else traffic.trace_speed
        load = read_trace(traffic.request_trace, speed=speed, most=traffic.requests)
    else:
        prefix = None
        if traffic.shared_prefix:
            prefix = loads.Prefix(tokens=traffic.shared_prefix, count=traffic.prefixes or 1)
        lengths: dict[str, Any] = {
            "prompt": loads.Lengths(prompt, traffic.max_input_len or 0),
            "output": loads.Lengths(output, traffic.max_output_len or 0),
            "seed": seed,
            "prefix": prefix,
        }
        count = traffic.requests or max(_REQUESTS, concurrency)
        if traffic.rate is not None:
            timing: dict[str, Any] = {
                "rate": traffic.rate,
                "seconds": 300.0 if traffic.seconds is None else traffic.seconds,
            }
            shape = traffic.burstiness
            load = (
                loads.poisson(**timing, **lengths)
                if shape is None
                else loads.bursts(**timing, **lengths, burstiness=shape)
            )
        elif concurrency:
            load = loads.closed_loop(users=concurrency, requests=count, **lengths)
        else:
            load = loads.offline(requests=count, **lengths)
    return load.without_longer(traffic.max_model_len) if traffic.max_model_len else load


def objective_of(serving: Serving) -> Objective | None:
    """Return the objective of these options."""
    from weft.inference.serving.figures import Objective

    if serving.slo_ttft is None and serving.slo_tpot is None:
        return None
    share = 0.99 if serving.slo_share is None else serving.slo_share
    if not 0 < share <= 1:
        raise ConfigError(f"--slo-share must be in (0, 1], got {share:g}")
    return Objective(
        ttft_s=inf if serving.slo_ttft is None else parse_seconds("--slo-ttft", serving.slo_ttft),
        tpot_s=inf if serving.slo_tpot is None else parse_seconds("--slo-tpot", serving.slo_tpot),
        share=share,
    )
