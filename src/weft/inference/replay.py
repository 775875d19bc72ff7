"""Predictions of published runs whose requests arrive in time.

    replay(deployment, "sharegpt_llama3.csv")                    a recorded load: means of TTFT and TPOT
    sustain(deployment, load, {"ttft_s": 2, "tpot_s": 0.2})      MLPerf Server: the highest rate within limits

Times count from the arrival at the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import as_file, files

from weft.inference import load as closed_form
from weft.inference.deployment import Deployment
from weft.inference.serving.figures import Objective, latencies, throughput
from weft.inference.serving.load import Lengths, Load, poisson
from weft.inference.serving.placement import Placement, build_service, limits_of
from weft.inference.serving.run import serve
from weft.inference.serving.search import find_rate
from weft.inference.serving.service import Service
from weft.inference.serving.traces import read_trace

__all__ = ["read_requests", "replay", "sustain"]

_SECONDS = 240  # of simulated arrivals for each rate that is tried


@cache
def read_requests(trace: str) -> Load:
    """Read a published trace of requests: arrival_s, prompt, output."""
    with as_file(files("weft.inference") / "published" / trace) as path:
        return read_trace(path)


def replay(deployment: Deployment, trace: str, *, pace: float = 1.0) -> dict[str, float]:
    """Return throughput and mean latencies of the requests of a published trace.

    pace: steps take so many times as long as predicted.
    """
    requests = read_requests(trace)
    served = serve(_service(deployment, requests.mean_tokens, deployment.replicas), requests, pace=pace)
    times = latencies(served)
    return {
        "tokens_per_s": throughput(served).output_tokens_per_s,
        "ttft_s": times["ttft"].mean_s,
        "tpot_s": times["tpot"].mean_s,
    }


def sustain(deployment: Deployment, load: closed_form.Load, within: Mapping[str, float]) -> float:
    """Return output tokens/s at the highest rate of which 99 % of requests keep the limits.

    Arrivals are random; lengths are uniform from 1 token to twice their mean.
    """
    service = _service(deployment, load.input + load.output, 1)
    prompt, output = (Lengths(1, 2 * mean - 1) for mean in (load.input, load.output))
    rate = find_rate(
        service,
        lambda rate: poisson(rate=rate, seconds=_SECONDS, prompt=prompt, output=output, seed=1),
        Objective(**within),
    )
    return deployment.replicas * rate * load.output


def _service(deployment: Deployment, mean_tokens: float, replicas: int) -> Service:
    placement = Placement(deployment=deployment, both=replicas)
    return build_service(placement, placement.tables(mean_tokens), limits_of(deployment))
