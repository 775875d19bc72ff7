"""The output of `weft infer` for requests in time."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import Form
from weft.cli.output import Cell, console, print_data, table
from weft.version import __version__

if TYPE_CHECKING:
    from weft.inference.deployment import Deployment
    from weft.inference.serving.figures import Objective
    from weft.inference.serving.fleet import Choice
    from weft.inference.serving.load import Load
    from weft.inference.serving.placement import Placement
    from weft.inference.serving.service import Service


def title_of(placement: Placement) -> str:
    deployment = placement.deployment
    split = f"{placement.prefill} prefill and {placement.decode} decode" if placement.prefill else f"{placement.both}"
    replicas = "replica" if split == "1" else "replicas"
    gpus = f"{deployment.replica_gpus}"
    if placement.decoding is not None:
        gpus += f" and {placement.decoding.replica_gpus}"
    return f"{deployment.model.name}: {split} {replicas} of {gpus} × {deployment.site.template.gpu}"


_LEAST_SHARE = 5e-4  # smaller parts are not printed
_EQUAL = 5e-3  # closer ratios count as 1
_SHORT = {"handoff": "hand-off", "ttft": "TTFT", "tpot": "TPOT"}
_COMPARED = (("handoff", "p99"), ("ttft", "p50"), ("ttft", "p99"), ("tpot", "p99"))
_MANY = {"handoff": "hand-offs", "ttft": "TTFT", "tpot": "TPOT", "e2e": "whole answers"}
_NAMES = {
    "handoff": "KV hand-off",
    "ttft": "first token (TTFT)",
    "tpot": "per output token (TPOT)",
    "itl": "between tokens (ITL)",
    "e2e": "whole answer",
}


def print_served(facts: dict[str, Any], placement: Placement, *, explain: bool) -> None:
    """Print the answer, the latencies and a line on trust; with `explain` also the rates and all parts of the time."""
    out = console()
    out.print(_answer(facts, placement), markup=False)
    ms = [
        (_NAMES[name], *(1000 * latency[f"{key}_s"] for key in ("mean", "p50", "p90", "p99")))
        for name, latency in facts["latency"].items()
    ]
    out.print(table("Latency", ("ms", "mean", "p50", "p90", "p99"), ms))
    if "bands" in facts:
        _print_bands(facts["bands"])
    if "beside" in facts:
        _print_beside(facts["beside"])
    if "phases" in facts:
        _print_phases(facts)
    if explain:
        _print_rates(facts)
    ranges = "" if "bands" in facts else " Ranges: --bands."
    print_trust(placement, ranges + ("" if explain else " More: --explain"))


def _answer(facts: dict[str, Any], placement: Placement) -> str:
    rates, latency, bottleneck = facts["throughput"], facts["latency"], facts["bottleneck"]
    ttft, tpot = (
        f"{1000 * latency[name]['p50_s']:.4g} ms (p99 {1000 * latency[name]['p99_s']:.4g})" for name in ("ttft", "tpot")
    )
    share = ""
    if "objective_share" in facts:
        share = (
            f" Goodput: {facts['goodput_requests_per_s']:.4g} requests/s; {100 * facts['objective_share']:.4g} % of "
            "requests keep the objective."
        )
    usd = facts["usd_per_1e6_output_tokens"]
    price = "" if usd is None else f" 10^6 output tokens cost {usd[0]:.3g} to {usd[1]:.3g} USD."
    verb = "serves" if facts["replicas"] == 1 else "serve"
    return (
        f"{title_of(placement)} {verb} {rates['requests_per_s']:.4g} requests/s and "
        f"{rates['output_tokens_per_s']:,.0f} output tokens/s with TTFT {ttft} and TPOT {tpot}, "
        f"at {facts['load']}.{share}{price} "
        f"Bottleneck: {bottleneck['cause']}; {bottleneck['advice']}."
    )


def print_trust(placement: Placement, more: str = "") -> None:
    console().print(
        f"How far to trust it: assumes {placement.deployment.engine.label}; see --framework. weft infer "
        f"--validate has a recorded load of vLLM and MLPerf's Server scenario.{more}",
        markup=False,
    )


def _print_bands(bands: dict[str, Any]) -> None:
    keys = ("mean", "p50", "p90", "p99")
    rows = [
        (_NAMES[name], *(" to ".join(f"{1000 * seconds:.4g}" for seconds in ends[f"{key}_s"]) for key in keys))
        for name, ends in bands["latency"].items()
    ]
    low, high = bands["steps"]
    far = f" Beware: {'; '.join(bands['far'])}." if bands["far"] else ""
    note = f"Steps take {low:.2f} to {high:.2f} times as long: 90 % of published figures of {bands['kind']}.{far}"
    console().print(table("90 % band", ("ms", *keys), rows, note))


def print_compared(served: list[dict[str, Any]], placement: Placement, form: Form) -> None:
    """Print the same service and load on several fabrics, the fastest first."""
    if form.is_data:
        runs = [{name: value for name, value in facts.items() if name != "weft"} for facts in served]
        print_data(form, {"weft": __version__, "runs": runs}, "runs")
        return
    best = served[0]
    out = console()
    out.print(f"{title_of(placement)} at {best['load']}: {_fastest(best, served[-1])}", markup=False)
    has_share = "objective_share" in best
    shown = [each for each in _COMPARED if each[0] in best["latency"]]
    columns = (
        "ms",
        *(f"{_SHORT[name]} {key}" for name, key in shown),
        *(["kept %"] if has_share else []),
        "USD",
        "bottleneck",
    )
    rows = [_compared_row(facts, shown, has_share=has_share) for facts in served]
    kept = "kept: requests within the objective. " if has_share else ""
    out.print(table("", columns, rows, f"{kept}USD: of 10^6 output tokens, with this fabric."))
    print_trust(placement)


def _fastest(best: dict[str, Any], worst: dict[str, Any]) -> str:
    """Return the end of the answer: the fastest fabric, and the latency in which the slowest differs most."""
    pairs = {name: (worst["latency"][name]["p99_s"], latency["p99_s"]) for name, latency in best["latency"].items()}
    ratios = {name: slow_s / fast_s for name, (slow_s, fast_s) in pairs.items() if name in _MANY and fast_s > 0}
    most = max(ratios, key=lambda name: ratios[name])
    if abs(ratios[most] - 1) < _EQUAL:
        return "all fabrics give the same."
    return (
        f"fastest on {best['fabric']}. On {worst['fabric']}, the slowest, the p99 of {_MANY[most]} is "
        f"{ratios[most]:.3g} times that of {best['fabric']}."
    )


def _compared_row(facts: dict[str, Any], shown: list[tuple[str, str]], *, has_share: bool) -> tuple[Cell, ...]:
    usd = facts["usd_per_1e6_output_tokens"]
    return (
        facts["fabric"],
        *(1000 * facts["latency"][name][f"{key}_s"] for name, key in shown),
        *([100 * facts["objective_share"]] if has_share else []),
        "" if usd is None else f"{usd[0]:.3g} to {usd[1]:.3g}",
        facts["bottleneck"]["cause"],
    )


def _print_rates(facts: dict[str, Any]) -> None:
    out, rates = console(), facts["throughput"]
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
    out.print(table("Throughput", ("rate", "value"), rows))
    total = sum(facts["breakdown_s"].values())
    parts = [
        (name, 1000 * seconds, round(100 * seconds / total, 1))
        for name, seconds in facts["breakdown_s"].items()
        if seconds > _LEAST_SHARE * total
    ]
    out.print(table("Where the time of a request goes", ("cause", "ms", "%"), parts))


def _print_beside(beside: dict[str, Any]) -> None:
    kinds = list(next(iter(beside["rows"].values())))
    columns = ("ms", *(f"{_SHORT[kind]} {key}" for kind in kinds for key in ("p50", "p99")))
    rows = [
        (name, *(1000 * row[kind][f"{key}_s"] for kind in kinds for key in ("p50", "p99")))
        for name, row in beside["rows"].items()
    ]
    console().print(table(f"Beside {', '.join(beside['jobs'])}", columns, rows))


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


def print_found(choices: list[Choice], load: Load, objective: Objective, form: Form) -> None:
    from weft.inference.serving.figures import latencies, throughput

    rows: list[dict[str, Any]] = []
    for choice in choices:
        each = choice.found
        found_latencies = latencies(each.served)
        rows.append(
            {
                "gpus": each.gpus,
                "prefill": each.prefill,
                "decode": each.replicas if each.prefill else 0,
                "both": 0 if each.prefill else each.replicas,
                "layout": _layout(choice.fleet.deployment),
                "decode_layout": _layout(choice.fleet.decoding or choice.fleet.deployment) if each.prefill else "",
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
        f"prefill replicas: {best['prefill']} ({best['layout']}), decode replicas: {best['decode']} "
        f"({best['decode_layout']})"
        if best["prefill"]
        else f"replicas for both phases: {best['both']} ({best['layout']})"
    )
    out = console()
    out.print(
        f"Fewest GPUs that keep {_show_objective(objective)} at {load.description}: {best['gpus']}; {split}.",
        markup=False,
    )
    columns = (
        "GPUs",
        "prefill",
        "decode",
        "both",
        "layout",
        "to decode",
        "batch",
        "TTFT p99 ms",
        "TPOT p99 ms",
        "tokens/s per GPU",
    )
    cells = [
        (*list(row.values())[:7], 1000 * row["ttft_p99_s"], 1000 * row["tpot_p99_s"], row["tokens_per_s_per_gpu"])
        for row in rows
    ]
    out.print(table("Smallest services", columns, cells))
    print_trust(choices[0].placement)


def _layout(deployment: Deployment) -> str:
    """Format the layout of a replica: `tp 8`, `dp 32, ep 32`."""
    from weft.inference.prediction import show_layout

    return show_layout(deployment, copies=False)


def _show_objective(objective: Objective) -> str:
    limits = [f"TTFT {objective.ttft_s:g} s"] if objective.ttft_s < inf else []
    limits += [f"TPOT {1000 * objective.tpot_s:g} ms"] if objective.tpot_s < inf else []
    return f"{' and '.join(limits)} for {100 * objective.share:g} % of requests"


def print_rate(rate: float, service: Service, objective: Objective, placement: Placement, form: Form) -> None:
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
    gpus = f"{service.gpus} × {placement.deployment.site.template.gpu}"
    console().print(f"Highest rate with {_show_objective(objective)}: {rate:.4g} requests/s on {gpus}.", markup=False)
    print_trust(placement)
