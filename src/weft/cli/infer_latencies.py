"""The output of `weft infer` for requests in time."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import Form
from weft.cli.output import console, print_data, table
from weft.version import __version__

if TYPE_CHECKING:
    from weft.inference.serving.figures import Objective
    from weft.inference.serving.load import Load
    from weft.inference.serving.placement import Placement
    from weft.inference.serving.search import Found
    from weft.inference.serving.service import Service


def title_of(placement: Placement) -> str:
    deployment = placement.deployment
    split = f"{placement.prefill} prefill and {placement.decode} decode" if placement.prefill else f"{placement.both}"
    return f"{deployment.model.name}: {split} replicas of {deployment.replica_gpus} × {deployment.site.template.gpu}"


_LEAST_SHARE = 5e-4  # smaller parts are not printed
_NAMES = {
    "ttft": "first token (TTFT)",
    "tpot": "per output token (TPOT)",
    "itl": "between tokens (ITL)",
    "e2e": "whole answer",
}


def print_served(facts: dict[str, Any], placement: Placement) -> None:
    out, rates = console(), facts["throughput"]
    out.print(f"{title_of(placement)}, {facts['load']}.", markup=False)
    ms = [
        (_NAMES[name], *(1000 * latency[f"{key}_s"] for key in ("mean", "p50", "p90", "p99")))
        for name, latency in facts["latency"].items()
    ]
    out.print(table("Latency", ("ms", "mean", "p50", "p90", "p99"), ms))
    rows = [
        ("requests/s", rates["requests_per_s"]),
        ("output tokens/s", rates["output_tokens_per_s"]),
        ("output tokens/s per GPU", rates["output_tokens_per_s_per_gpu"]),
        ("output tokens/s per user", rates["output_tokens_per_s_per_user"]),
        ("replicas busy %", 100 * rates["utilisation"]),
        ("KV cache full at most %", 100 * facts["kv_peak_share"]),
    ]
    if rates["prefix_hit_share"]:
        rows.append(("prompt tokens from the prefix cache %", 100 * rates["prefix_hit_share"]))
    rows += [(name, rates[name]) for name in ("preemptions", "retries") if rates[name]]
    if "goodput_requests_per_s" in facts:
        rows.append(("requests/s within the objective (goodput)", facts["goodput_requests_per_s"]))
        rows.append(("requests within the objective %", 100 * facts["objective_share"]))
    usd = facts["usd_per_1e6_output_tokens"]
    shown: list[tuple[str, Any]] = [*rows]
    if usd is not None:
        shown.append(("USD per 10^6 output tokens", f"{usd[0]:.3g} to {usd[1]:.3g}"))
    out.print(table("Throughput", ("rate", "value"), shown))
    total = sum(facts["breakdown_s"].values())
    parts = [
        (name, 1000 * seconds, round(100 * seconds / total, 1))
        for name, seconds in facts["breakdown_s"].items()
        if seconds > _LEAST_SHARE * total
    ]
    out.print(table("Where the time of a request goes", ("cause", "ms", "%"), parts))
    out.print(f"Bottleneck: {facts['bottleneck']['cause']}; {facts['bottleneck']['advice']}.", markup=False)
    if "phases" in facts:
        _print_phases(facts)


def _print_phases(facts: dict[str, Any]) -> None:
    fault = facts["fault"]
    end = "the end" if fault["end_s"] is None else f"{fault['end_s']:g} s"
    columns = (
        "requests that arrived",
        "requests",
        "retries",
        "TTFT p50 ms",
        "TTFT p99 ms",
        "TPOT p50 ms",
        "TPOT p99 ms",
    )
    rows = [
        (
            name,
            row["requests"],
            row["retries"],
            *(1000 * row[kind][f"{key}_s"] for kind in ("ttft", "tpot") for key in ("p50", "p99")),
        )
        for name, row in facts["phases"].items()
    ]
    console().print(table(f"{fault['fault']} from {fault['begin_s']:g} s to {end}", columns, rows))


def print_found(found: list[Found], load: Load, objective: Objective, form: Form) -> None:
    from weft.inference.serving.figures import latencies, throughput

    rows = []
    for each in found:
        found_latencies = latencies(each.served)
        rows.append(
            {
                "gpus": each.gpus,
                "prefill": each.prefill,
                "decode": each.replicas if each.prefill else 0,
                "both": 0 if each.prefill else each.replicas,
                "max_batch": each.limits.max_num_seqs,
                "ttft_p99_s": found_latencies["ttft"].p99_s,
                "tpot_p99_s": found_latencies["tpot"].p99_s,
                "tokens_per_s_per_gpu": throughput(each.served).output_tokens_per_s_per_gpu,
            }
        )
    if form.is_data:
        print_data(form, {"weft": __version__, "load": load.description, "services": rows}, "services")
        return
    best = rows[0]
    split = (
        f"{best['prefill']} for prefill and {best['decode']} for decode" if best["prefill"] else "each for both phases"
    )
    out = console()
    out.print(
        f"{best['gpus']} GPUs keep {_show_objective(objective)} at {load.description}: "
        f"{best['prefill'] + best['decode'] + best['both']} replicas, {split}.",
        markup=False,
    )
    columns = ("GPUs", "prefill", "decode", "both", "batch", "TTFT p99 ms", "TPOT p99 ms", "tokens/s per GPU")
    cells = [
        (*list(row.values())[:5], 1000 * row["ttft_p99_s"], 1000 * row["tpot_p99_s"], row["tokens_per_s_per_gpu"])
        for row in rows
    ]
    out.print(table("Smallest services", columns, cells))


def _show_objective(objective: Objective) -> str:
    limits = [f"TTFT {objective.ttft_s:g} s"] if objective.ttft_s < inf else []
    limits += [f"TPOT {1000 * objective.tpot_s:g} ms"] if objective.tpot_s < inf else []
    return f"{' and '.join(limits)} for {100 * objective.share:g} % of requests"


def print_rate(rate: float, service: Service, objective: Objective, form: Form) -> None:
    if form.is_data:
        print_data(
            form,
            {
                "weft": __version__,
                "gpus": service.gpus,
                "requests_per_s": rate,
                "requests_per_s_per_gpu": rate / service.gpus,
            },
        )
        return
    console().print(
        f"{service.gpus} GPUs sustain {rate:.4g} requests/s with {_show_objective(objective)}.", markup=False
    )
