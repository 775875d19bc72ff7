"""Serving models: which services send nothing between servers, and what the fabric is worth to the others.

a replica in each server     the GPUs of a replica exchange by NVLink
experts on two servers       each token travels to its experts and back, in every layer
prefill and decode apart     the KV cache of each prompt moves to another server before the answer goes on
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.inference.deployment import find_deployment
from weft.inference.load import Load
from weft.inference.prediction import infer
from weft.inference.serving.figures import breakdown, latencies
from weft.inference.serving.load import Lengths, poisson
from weft.inference.serving.placement import Placement, build_service, limits_of
from weft.inference.serving.run import serve
from weft.scenarios.finding import COLOURS, Finding

CLAIM = (
    "Embarrassingly parallel jobs. Parameter sweeps, independent simulations, batch inference. No inter-node "
    "communication means no latency sensitivity."
)
SOURCE = "InfiniBand Is Not Magic. Here's What It Actually Does."
FABRICS = {"ndr": "NDR InfiniBand", "roce-400": "RoCE on 400G Ethernet", "eth-100-tcp": "TCP on 100G Ethernet"}
DENSE, EXPERTS = "llama3-70b", "deepseek-v3"
_RATE, _SECONDS = 0.5, 60.0  # requests per second of the replicas that are apart: their prompts hardly wait


def run(
    *,
    prompt: Annotated[int, "Tokens of a prompt."] = 8192,
    answer: Annotated[int, "Tokens of an answer."] = 256,
    users: Annotated[int, "Users of each replica in a server; four times as many with experts on two servers."] = 64,
    seed: Annotated[int, "Random seed for arrivals and ECMP hashing."] = 1,
) -> Finding:
    """Serve a dense model in each server, one with experts on two, and a dense one with its phases apart."""
    for flag, value in (("--prompt", prompt), ("--answer", answer), ("--users", users)):
        if value < 1:
            raise ConfigError(f"{flag} must be 1 or more, got {value}")
    arguments = {"prompt": prompt, "answer": answer, "users": users, "seed": seed}
    inside = {name: _inside(name, arguments) for name in FABRICS}
    experts = {name: _experts(name, arguments) for name in FABRICS}
    apart = {name: _apart(name, arguments) for name in FABRICS}
    figures = {
        "inside_tokens_per_s_per_gpu": inside,
        "experts_tokens_per_s_per_gpu": {name: rate for name, (rate, _) in experts.items()},
        "experts_waits": {name: waits for name, (_, waits) in experts.items()},
        "handoff_s": {name: handoff_s for name, (handoff_s, _) in apart.items()},
        "ttft_s": {name: ttft_s for name, (_, ttft_s) in apart.items()},
    }
    return Finding(
        scenario="inference-fabric",
        claim=CLAIM,
        source=SOURCE,
        ran=f"prompts of {prompt:,} and answers of {answer:,} tokens on H100s: {DENSE} with tensor parallel 8, "
        f"{EXPERTS} in fp8 with its experts on 16 GPUs, and {DENSE} with prefill and decode on different servers",
        columns=(
            "fabric",
            "a replica in each server, tokens/s per GPU",
            "experts on two servers",
            "waiting %",
            "KV hand-off ms",
            "TTFT ms, phases apart",
        ),
        rows=tuple(
            (
                label,
                inside[name],
                experts[name][0],
                100 * experts[name][1],
                1e3 * apart[name][0],
                1e3 * apart[name][1],
            )
            for name, label in FABRICS.items()
        ),
        finding=_sentence(figures, arguments),
        trust="Steps and hand-offs are those of weft infer, whose bands are wide where few figures are published: none "
        "are over other fabrics than InfiniBand. Hand-offs reach 75 % of the rate of their adapters after 0.4 ms, as "
        "measured over RDMA; over TCP 75 % of one connection for each GPU, 15 Gbit/s as one cloud measured, and more "
        "connections would be faster. Replicas have the network for themselves.",
        options=arguments,
        figures=figures,
    )


def _inside(fabric: str, arguments: dict[str, Any]) -> float:
    """Return the tokens/s of a GPU with a replica in each of two servers."""
    deployment = find_deployment(DENSE, fabric, gpus=16, tp=8, seed=arguments["seed"])
    load = Load(input=arguments["prompt"], output=arguments["answer"], concurrency=2 * arguments["users"])
    return infer(deployment, load).tokens_per_s_per_gpu


def _experts(fabric: str, arguments: dict[str, Any]) -> tuple[float, float]:
    """Return the tokens/s of a GPU with experts on two servers, and the share of a step that waits for them."""
    deployment = find_deployment(EXPERTS, fabric, dp=16, ep=16, weights="fp8", seed=arguments["seed"])
    load = Load(input=arguments["prompt"], output=arguments["answer"], concurrency=4 * arguments["users"])
    result = infer(deployment, load)
    parts = result.served.parts
    return result.tokens_per_s_per_gpu, (parts["dispatch"] + parts["combine"]) / parts.total_s


def _apart(fabric: str, arguments: dict[str, Any]) -> tuple[float, float]:
    """Return the mean time of a hand-off, and the mean time to the first token."""
    deployment = find_deployment(DENSE, fabric, gpus=16, tp=8, seed=arguments["seed"])
    placement = Placement(deployment=deployment, prefill=1, decode=1)
    prompt, answer = Lengths(arguments["prompt"]), Lengths(arguments["answer"])
    load = poisson(rate=_RATE, seconds=_SECONDS, prompt=prompt, output=answer, seed=arguments["seed"])
    served = serve(build_service(placement, placement.tables(load.mean_tokens), limits_of(deployment)), load)
    return breakdown(served)["wire"], latencies(served)["ttft"].mean_s


def _sentence(figures: dict[str, Any], arguments: dict[str, Any]) -> str:
    ib, roce, tcp = FABRICS
    rate, handoff_s, ttft_s = (figures[name] for name in ("experts_tokens_per_s_per_gpu", "handoff_s", "ttft_s"))
    return (
        f"The claim holds for a replica in each server: {figures['inside_tokens_per_s_per_gpu'][ib]:,.0f} tokens/s for "
        f"each GPU on every fabric. With experts on two servers a GPU gives {rate[ib]:,.0f} tokens/s on InfiniBand, "
        f"{rate[roce]:,.0f} on RoCE and {rate[tcp]:,.0f} on TCP, {rate[ib] / rate[tcp]:.0f} times fewer. With prefill "
        f"and decode apart, the KV cache of {arguments['prompt']:,} tokens moves in {1e3 * handoff_s[ib]:.0f} ms on "
        f"InfiniBand and {1e3 * handoff_s[tcp]:.0f} ms on TCP, {handoff_s[ib] / ttft_s[ib]:.1%} and "
        f"{handoff_s[tcp] / ttft_s[tcp]:.0%} of the time to the first token. So the experts need RDMA, which RoCE has "
        "too."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw tokens/s of a GPU and the time of a hand-off on each fabric."""
    panels: tuple[tuple[str, str, Callable[[float], float]], ...] = (
        ("inside_tokens_per_s_per_gpu", "a replica in each server, tokens/s per GPU", float),
        ("experts_tokens_per_s_per_gpu", "experts on two servers, tokens/s per GPU", float),
        ("handoff_s", "KV hand-off, ms", lambda seconds: 1e3 * seconds),
    )
    with titled_chart(path, "What is a fabric worth to a served model?", finding.ran, panels=len(panels)) as all_axes:
        for axes, (name, label, scale) in zip(all_axes, panels, strict=True):
            values = [scale(value) for value in finding.figures[name].values()]
            bars = axes.bar(list(finding.figures[name]), values, color=COLOURS[1:4], width=0.6)
            axes.bar_label(bars, fmt="{:,.0f}", fontsize=8)
            axes.set_ylabel(label)
