"""Search for the smallest service that keeps an objective, and for the highest rate that a service sustains.

Each candidate is simulated. For aggregated serving the number of replicas is bisected; with prefill and decode replicas
the phase that breaks the objective gets one more, from the fewest that the mean load needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from weft.errors import ConfigError
from weft.inference.serving.figures import Objective, latencies, meets
from weft.inference.serving.load import Load
from weft.inference.serving.run import Served, serve
from weft.inference.serving.service import Limits, Service
from weft.inference.table import StepTable

MOST_REPLICAS = 4096
_ROUNDS = 12

Build = Callable[[int, int, Limits], Service]  # prefill replicas (0: aggregated), other replicas, limits
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """A service that keeps the objective."""

    prefill: int  # replicas; 0: aggregated
    replicas: int  # for decode, or for both phases
    limits: Limits
    served: Served

    @property
    def gpus(self) -> int:
        return self.served.service.gpus


def keeps(served: Served, objective: Objective) -> bool:
    """Return whether enough requests keep the limits, and the service keeps up with its load."""
    return bool(meets(served, objective).mean() >= objective.share) and keeps_up(served)


def keeps_up(served: Served) -> bool:
    """Return whether the last requests wait for less than a tenth of the run: else their queue grows."""
    last = served.requests[-_last(served) :]
    return bool((last.first_s - last.arrival_s).mean() <= 0.1 * served.requests.arrival_s[-1])


def _last(served: Served) -> int:
    """Return the number of last requests, whose wait shows whether a queue grows."""
    return max(1, len(served.requests) // 10)


def fewest(table: StepTable, limits: Limits, load: Load) -> tuple[float, float]:
    """Return the replicas that the mean load keeps busy with prompts and with answers."""
    seconds = max(float(load.arrival_s[-1]), 1e-9)
    prompt, output = (float(column.sum(dtype=np.int64)) for column in (load.prompt, load.output))
    chunk = min(float(limits.max_num_batched_tokens), prompt)
    prefill_s = prompt / chunk * table.step_s(chunk)
    context = load.mean_tokens
    batch = max(1.0, min(limits.max_num_seqs, table.kv_room_tokens / context))
    step_s = table.step_s(batch * (1 + limits.draft_tokens), cached=batch * context)
    return prefill_s / seconds, output / (batch * limits.accepted) * step_s / seconds


def find_smallest(
    build: Build,
    load: Load,
    objective: Objective,
    batches: Sequence[Limits],
    *,
    disaggregated: bool,
    say: Say = lambda _: None,
) -> list[Found]:
    """Return the smallest service for each batch size that has one, the fewest GPUs first; it may be empty."""
    if load.users:
        raise ConfigError("--find needs a load with a rate: a closed loop adapts to its service")
    results = []
    for limits in batches:
        result = (_find_pair if disaggregated else _find_replicas)(build, load, objective, limits, say)
        if result is not None:
            results.append(result)
    return sorted(_distinct(results), key=lambda result: (result.gpus, latencies(result.served)["ttft"].p99_s))


def _distinct(results: Sequence[Found]) -> list[Found]:
    """Return the services without those whose batch limit changed nothing: the largest limit stays."""
    distinct: dict[tuple[int, int, float], Found] = {}
    for result in results:
        distinct.setdefault((result.prefill, result.replicas, float(result.served.requests.finished_s.sum())), result)
    return list(distinct.values())


def _find_replicas(build: Build, load: Load, objective: Objective, limits: Limits, say: Say) -> Found | None:
    runs: dict[int, Served] = {}

    def works(count: int) -> bool:
        say(f"{count} replicas, batches of {limits.max_num_seqs}")
        runs[count] = serve(build(0, count, limits), load)
        return keeps(runs[count], objective)

    table = build(0, 1, limits).pools[0].table
    low = max(1, ceil(max(fewest(table, limits, load)) * 0.5))
    high = low
    while not works(high):
        low, high = high + 1, high * 2
        if high > MOST_REPLICAS or _is_hopeless(runs[low - 1], objective):
            return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle + 1, high)
    return Found(prefill=0, replicas=high, limits=limits, served=runs[high])


def _is_hopeless(served: Served, objective: Objective) -> bool:
    """Return whether requests break the objective that never waited: more replicas would not help them."""
    requests = served.requests
    quick = requests.scheduled_s - requests.arrival_s < 1e-6
    quick &= requests.preemptions == 0
    busy = float(served.replicas.busy_s.sum() / (served.end_s * len(served.replicas)))
    return bool(busy < 0.02 and not meets(served, objective)[quick].any())


def _find_pair(build: Build, load: Load, objective: Objective, limits: Limits, say: Say) -> Found | None:
    """Add replicas to the phase that breaks the objective until neither does."""
    of_prefill, of_decode = build(1, 1, limits).pools
    busy = fewest(of_prefill.table, of_prefill.limits, load)[0], fewest(of_decode.table, of_decode.limits, load)[1]
    prefill, decode = (max(1, ceil(0.7 * count)) for count in busy)
    while prefill + decode <= MOST_REPLICAS:
        say(f"{prefill} prefill and {decode} decode replicas, batches of {limits.max_num_seqs}")
        served = serve(build(prefill, decode, limits), load)
        if keeps(served, objective):
            return Found(prefill=prefill, replicas=decode, limits=limits, served=served)
        if _is_hopeless(served, objective):
            return None
        more_prefill, more_decode = _lacks(served, objective)
        prefill += more_prefill * max(1, prefill // 8)
        decode += more_decode * max(1, decode // 8)
    return None


def _lacks(served: Served, objective: Objective) -> tuple[bool, bool]:
    """Return whether prefill and decode replicas are too few: waits before the prefill, or after it."""
    requests = served.requests
    queue_s = requests.prefilled_s - requests.arrival_s
    handoff_s = requests.first_s - requests.prefilled_s
    late = requests.first_s - requests.arrival_s > objective.ttft_s
    slow = (requests.finished_s - requests.first_s) / np.maximum(requests.output - 1, 1) > objective.tpot_s
    grows = bool(meets(served, objective).mean() >= objective.share) and not keeps_up(served)
    if grows:
        late[-_last(served) :] = True
    too_late = late.mean() > 1 - objective.share or grows
    prefill = bool(too_late and queue_s[late].mean() >= handoff_s[late].mean())
    decode = bool(slow.mean() > 1 - objective.share) or (bool(late.any()) and not prefill)
    return prefill, decode or not prefill


def find_rate(
    service: Service,
    load_at: Callable[[float], Load],
    objective: Objective,
    start: float = 1.0,
    say: Say = lambda _: None,
) -> float:
    """Return the highest rate of requests that keeps the objective, to 1 %; 0 if none does."""
    low, high = 0.0, start
    while keeps(serve(service, load_at(high)), objective):
        say(f"{high:g} requests/s are served")
        low, high = high, 2 * high
    for _ in range(_ROUNDS):
        if high - low <= 0.01 * high:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(serve(service, load_at(middle)), objective) else (low, middle)
        say(f"between {low:.4g} and {high:.4g} requests/s")
    return low


def batch_sizes(limits: Limits, most: int = 4) -> list[Limits]:
    """Return limits with the batch of an engine, and halves of it."""
    sizes = [limits.max_num_seqs >> shift for shift in range(most)]
    return [replace(limits, max_num_seqs=size) for size in sizes if size >= 1]
