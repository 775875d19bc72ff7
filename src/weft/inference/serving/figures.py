"""Figures of a run: latencies, throughput, goodput under an objective, and where the time goes.

latencies(served)["ttft"].p99_s         time to the first token
goodput(served, Objective(ttft_s=2, tpot_s=0.03))
breakdown(served)                       mean seconds of a request by cause
bottleneck(served)                      the largest cause, with what to do about it
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.inference.serving.run import Served
from weft.inference.serving.state import GAP_BINS, GAP_LOW_S, GAP_STEP

_PERCENTILES = (50, 90, 99)
_EXPERTS = ("dispatch", "combine")  # parts of a step that wait for expert parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The distribution of a latency over requests."""

    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float

    @classmethod
    def of(cls, values_s: NDArray[np.float64]) -> Latency:
        if not len(values_s):
            return cls(mean_s=0.0, p50_s=0.0, p90_s=0.0, p99_s=0.0)
        p50, p90, p99 = np.percentile(values_s, _PERCENTILES)
        return cls(mean_s=float(values_s.mean()), p50_s=float(p50), p90_s=float(p90), p99_s=float(p99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The limits of latency that a request has to keep."""

    ttft_s: float = inf
    tpot_s: float = inf
    e2e_s: float = inf
    share: float = 0.99  # requests that must keep them, for the service as a whole


def ttft_s(served: Served) -> NDArray[np.float64]:
    """Return the time from arrival to the first token of each request."""
    times_s: NDArray[np.float64] = served.requests.first_s - served.requests.arrival_s
    return times_s


def tpot_s(served: Served) -> NDArray[np.float64]:
    """Return the mean time between tokens of each request; 0 for answers of one token."""
    requests = served.requests
    times_s: NDArray[np.float64] = (requests.finished_s - requests.first_s) / np.maximum(requests.output - 1, 1)
    return times_s


def e2e_s(served: Served) -> NDArray[np.float64]:
    """Return the time from arrival to the last token of each request."""
    times_s: NDArray[np.float64] = served.requests.finished_s - served.requests.arrival_s
    return times_s


def handoff_s(served: Served) -> NDArray[np.float64]:
    """Return the time from the end of the prefill to the first token, of requests that no fault sent elsewhere.

    It is the wait for KV room at the decode replica, and the time on the wire.
    """
    requests = served.requests
    went = (requests.handoff_s >= 0) & (requests.retries == 0)
    times_s: NDArray[np.float64] = (requests.first_s - requests.prefilled_s)[went]
    return times_s


def latencies(served: Served) -> dict[str, Latency]:
    """Return the distributions of all latencies."""
    several = served.requests.output > 1
    handed = {"handoff": Latency.of(handoff_s(served))} if served.service.disaggregated else {}
    return handed | {
        "ttft": Latency.of(ttft_s(served)),
        "tpot": Latency.of(tpot_s(served)[several]),
        "itl": between_tokens(served.gaps),
        "e2e": Latency.of(e2e_s(served)),
    }


def between_tokens(gaps: NDArray[np.float64]) -> Latency:
    """Return the distribution of the times between tokens over all tokens, to 1 %."""
    middle_s = GAP_LOW_S * GAP_STEP ** (np.arange(GAP_BINS) + 0.5)
    total = gaps.sum()
    if not total:
        return Latency.of(np.zeros(0))
    below = np.cumsum(gaps) / total
    p50, p90, p99 = (float(middle_s[np.searchsorted(below, percent / 100)]) for percent in _PERCENTILES)
    return Latency(mean_s=float(gaps @ middle_s / total), p50_s=p50, p90_s=p90, p99_s=p99)


def meets(served: Served, objective: Objective) -> NDArray[np.bool_]:
    """Return for each request whether it keeps the limits."""
    within: NDArray[np.bool_] = (
        (ttft_s(served) <= objective.ttft_s) & (tpot_s(served) <= objective.tpot_s) & (e2e_s(served) <= objective.e2e_s)
    )
    return within


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The rates of a run, from its first arrival to its last token."""

    requests_per_s: float
    output_tokens_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s_per_gpu: float
    output_tokens_per_s_per_user: float  # 1 / mean time between tokens
    utilisation: float  # share of time that replicas are busy
    prefix_hit_share: float  # prompt tokens found in the cache
    preemptions: int
    retries: int


def throughput(served: Served) -> Throughput:
    """Return the rates of a run."""
    requests = served.requests
    time_s = served.end_s - float(requests.arrival_s.min())
    output, prompt = float(requests.output.sum(dtype=np.int64)), float(requests.prompt.sum(dtype=np.int64))
    tpot = tpot_s(served)[requests.output > 1]
    return Throughput(
        requests_per_s=len(requests) / time_s,
        output_tokens_per_s=output / time_s,
        input_tokens_per_s=prompt / time_s,
        output_tokens_per_s_per_gpu=output / time_s / served.service.gpus,
        output_tokens_per_s_per_user=1 / float(tpot.mean()) if len(tpot) else 0.0,
        utilisation=float(served.replicas.busy_s.sum() / (time_s * len(served.replicas))),
        prefix_hit_share=float(requests.hit.sum(dtype=np.int64)) / prompt,
        preemptions=int(requests.preemptions.sum()),
        retries=int(requests.retries.sum()),
    )


def goodput(served: Served, objective: Objective) -> float:
    """Return the requests per second that keep the limits."""
    return throughput(served).requests_per_s * float(meets(served, objective).mean())


# -- where the time goes ----------------------------------------------------------------------------------------------


def breakdown(served: Served) -> dict[str, float]:
    """Return the mean seconds of a request by cause; they add up to its end-to-end time.

    Prefill and decode are divided into the parts of the steps that requests took part in.
    """
    requests = served.requests
    queue_s = float((requests.scheduled_s - requests.arrival_s).mean())
    prefill_s = float((requests.prefilled_s - requests.scheduled_s).mean())
    lost_s = float(requests.preempted_s.mean())
    kv_wait_s, wire_s, slot_s = _handoff_means(served)
    decode_s = float(e2e_s(served).mean()) - queue_s - prefill_s - lost_s - kv_wait_s - wire_s - slot_s
    causes = {"queue": queue_s}
    causes |= _parts(served, "prefill", prefill_s, served.prefill_weight, 0)
    causes |= {"KV wait": kv_wait_s, "wire": wire_s, "slot wait": slot_s}
    causes |= _parts(served, "decode", decode_s, served.decode_weight, 1)
    causes["preemption"] = lost_s
    return {name: seconds for name, seconds in causes.items() if abs(seconds) > 1e-12}


def _handoff_means(served: Served) -> tuple[float, float, float]:
    """Return the mean waits of hand-offs: for KV room, on the wire, for a slot of the batch."""
    requests = served.requests
    if not served.service.disaggregated:
        return 0.0, 0.0, 0.0
    went = (requests.handoff_s >= 0) & (requests.retries == 0)
    if not went.any():
        return 0.0, 0.0, 0.0
    began_s = np.maximum(requests.handoff_s, requests.prefilled_s)[went]
    share = float(went.mean())
    kv_wait_s = float((began_s - requests.prefilled_s[went]).mean())
    wire_s = float((requests.first_s[went] - began_s).mean())
    joined_s = np.where(requests.joined_s >= 0, requests.joined_s, requests.first_s)[went]
    return share * kv_wait_s, share * wire_s, share * float((joined_s - requests.first_s[went]).mean())


def _parts(served: Served, phase: str, total_s: float, weight: NDArray[np.float64], column: int) -> dict[str, float]:
    """Divide the mean time of a phase into the parts of its steps, by the requests in them."""
    sums: dict[str, float] = {
        "attention": float(served.attention_s[:, column].sum()),
        "beside hand-offs": float(served.late_s[column]),
    }
    for table, counts in zip(served.tables, weight, strict=True):
        tokens = np.flatnonzero(counts)
        for name, row in zip(table.parts, table.parts_s, strict=True):
            label = "exposed EP" if name in _EXPERTS else name
            sums[label] = sums.get(label, 0.0) + float(counts[tokens] @ np.interp(tokens, table.tokens, row))
    whole = sum(sums.values())
    return {f"{phase}: {name}": total_s * part / whole for name, part in sums.items()} if whole else {}


_ADVICE = {
    "queue": "requests wait for prefill: add replicas (with disaggregation, prefill replicas)",
    "prefill": "prompts are long for the prefill replicas: more GPUs for each, or a prefix cache",
    "KV wait": "decode replicas lack KV room for hand-offs: add decode replicas, or lower --max-batch",
    "wire": "hand-offs wait for the network: more adapters, or start them with the prefill (--handoff layers)",
    "slot wait": "decode batches are full: add decode replicas, or raise --max-batch",
    "decode": "steps of the decode batch set the time: more GPUs for each replica, or smaller batches",
    "preemption": "KV room is exhausted, and requests are computed again: more replicas, or a smaller --max-batch",
}


def bottleneck(served: Served) -> tuple[str, str]:
    """Return the largest cause of latency and advice."""
    causes = breakdown(served)
    sums: dict[str, float] = {}
    for name, seconds in causes.items():
        group = name.partition(":")[0]
        sums[group] = sums.get(group, 0.0) + seconds
    waits = {name: seconds for name, seconds in sums.items() if name not in ("prefill", "decode")}
    group = max(waits, key=lambda name: waits[name], default="")
    if not group or waits[group] < 0.2 * sum(sums.values()):  # a service without queues is limited by its steps
        group = max(sums, key=lambda name: sums[name])
    inside = {name: seconds for name, seconds in causes.items() if name.startswith(group)}
    return max(inside, key=lambda name: inside[name]), _ADVICE[group]


def report(served: Served, objective: Objective | None = None) -> dict[str, Any]:
    """Return the figures of a run as `--json` prints them."""
    cause, advice = bottleneck(served)
    facts: dict[str, Any] = {
        "load": served.load.description,
        "requests": len(served.load),
        "replicas": served.service.replicas,
        "gpus": served.service.gpus,
        "latency": {name: asdict(latency) for name, latency in latencies(served).items()},
        "throughput": asdict(throughput(served)),
        "breakdown_s": breakdown(served),
        "bottleneck": {"cause": cause, "advice": advice},
        "kv_peak_share": float((served.replicas.peak / served.replicas.room).max()),
        "wall_s": served.wall_s,
    }
    if objective is not None:
        facts["objective"] = {name: None if value == inf else value for name, value in asdict(objective).items()}
        facts["goodput_requests_per_s"] = goodput(served, objective)
        facts["objective_share"] = float(meets(served, objective).mean())
    return facts
