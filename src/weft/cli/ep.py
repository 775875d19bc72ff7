"""`weft ep`: predict dispatch and combine of mixture-of-experts layers, as DeepEP's tests measure them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, Faults, Form, Kinds, Servers, Whole
from weft.cli.output import console, print_data, progress_bar, table
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.collectives.experts.bench import Table
    from weft.collectives.experts.estimate import Call, ExpertTimes
    from weft.collectives.ranks import Ranks

_BYTES = {"fp8": 1, "bf16": 2}
_TITLE = "Published times of expert kernels, and how far weft is off"


def ep(
    spec: Annotated[str, NAMES_FILE],
    name: str = "",
    /,
    *,
    kernel: str = "deepep",
    num_tokens: str = "4096",
    topk: Whole = 8,
    experts: Whole = 256,
    topk_groups: Whole | None = None,
    hidden: Whole = 7168,
    dispatch: Literal["fp8", "bf16"] = "fp8",
    balanced: bool = False,
    sms: Annotated[Whole | None, Parameter(name=["--sms", "--num-sms"])] = None,
    ep: Whole | None = None,
    kinds: Kinds = "",
    servers: Servers = "",
    fault: Faults = (),
    network: str | None = None,
    paths: str | None = None,
    seed: Whole = 1,
    form: Form = TABLES,
) -> None:
    """Predict dispatch and combine of expert kernels: DeepEP.

    `weft ep calibration` compares weft with published times, `weft ep calibration NAME` shows each time of one run.

    Parameters
    ----------
    spec
        A topology, `superpod:su=1`, or the path of a file. Its servers must have GPUs.
    name
        A published run, after `calibration`.
    kernel
        Kernels for dispatch and combine: deepep (normal), deepep-ll (low-latency), mori, mori-ll, one-sided
        (TensorRT-LLM inside an NVLink domain), or pairs (NCCL's all_to_all).
    num_tokens
        Tokens of each GPU; several separated by commas.
    topk
        Experts per token.
    experts
        Experts per layer; a multiple of the GPUs.
    topk_groups
        Most servers of a token (DeepSeek-V3: 4). [no limit]
    hidden
        Hidden size.
    dispatch
        Elements of dispatch: fp8 with scales, or bf16. Combine has bf16.
    balanced
        Spread tokens evenly over GPUs; otherwise experts are random.
    sms
        SMs of the kernels of deepep. [20]
    ep
        Expert-parallel size: GPUs that share the experts of a layer. [all]
    network
        Protocol: infiniband, omni-path, roce, roce-v1 or tcp. [that of the links; roce on Ethernet]
    paths
        Choice of paths: table, adaptive, ecmp or spray. [table; ecmp on Ethernet]
    seed
        Random seed, for ECMP hashing.
    """
    from weft.api.predictions import nccl_options
    from weft.collectives.experts.bench import run
    from weft.collectives.experts.routing import Layer
    from weft.fabric.spec import as_kinds

    if spec == "calibration":
        _calibrate(name, form)
        return
    if name:
        raise ConfigError(f"unexpected argument {name!r}: give the tokens with --num-tokens {name}")
    layers = [
        Layer(
            tokens=tokens,
            topk=topk,
            hidden=hidden,
            experts=experts,
            groups=topk_groups,
            dispatch_bytes=_BYTES[dispatch],
            balanced=balanced,
        )
        for tokens in _numbers(num_tokens)
    ]
    with progress_bar(f"reading {spec}"):
        ranks, gpus = _place(as_kinds(spec, kinds), servers, fault, ep)
    if len(ranks.servers) == 1:
        for flag, value in (("--network", network), ("--paths", paths), ("--topk-groups", topk_groups)):
            if value is not None:
                raise ConfigError(f"{flag} changes nothing here: one server sends nothing over a network. Leave it out")
    with progress_bar("measuring the network"):
        options = nccl_options(network, paths, gpudirect=True, seed=seed)
        results = run(ranks, layers, kernel=kernel, gpus=gpus, sms=sms, options=options)
    if form.is_data:
        print_data(form, [_facts(row) for row in results.rows], "results")
        return
    _print(results, kernel)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--num-tokens {text}: give numbers separated by commas, 128,4096") from None


def _place(spec: str, servers: str, faults: Sequence[str], ep: int | None) -> tuple[Ranks, int | None]:
    """Return the ranks, and the number of GPUs if it is a part of one server."""
    from weft.api.predictions import place_ranks
    from weft.fabric.spec import load
    from weft.training.failures import break_permanently

    fabric = break_permanently(load(spec), faults)
    ranks = place_ranks(fabric, servers)
    if ep is None or ep == len(ranks):
        return ranks, None
    count, rest = divmod(ep, ranks.per_server)
    if ep < 2 or ep > len(ranks) or (count and rest):
        raise ConfigError(
            f"--ep {ep}: give 2 to {ranks.per_server} GPUs of one server, or a multiple of {ranks.per_server} "
            f"up to {len(ranks)}"
        )
    chosen = place_ranks(fabric, ",".join(ranks.servers[: max(count, 1)]))
    return chosen, ep if not count else None


def _print(results: Table, kernel: str) -> None:
    from weft.collectives.experts.band import band_of
    from weft.collectives.experts.kernels import PAIRS, find_kernel

    first, cluster = results.rows[0], results.cluster
    layer = first.layer
    title = "NCCL's all_to_all" if kernel == PAIRS else find_kernel(kernel).title
    rows, notes = [], dict[str, None]()
    for times in results.rows:
        for name, call in (("dispatch", times.dispatch), ("combine", times.combine)):
            band = band_of(times, call)
            low_high = "{:,.0f} to {:,.0f}".format(*band.around(call.time_us))
            rows.append((f"{times.layer.tokens:,}", name, f"{call.time_us:,.1f}", low_high, *_speeds(call), call.bound))
            notes |= dict.fromkeys(band.far)
    out = console()
    last = results.rows[-1]
    out.print(
        f"{title}: dispatch of {last.layer.tokens:,} tokens per GPU takes {last.dispatch.time_us:,.1f} us, combine "
        f"{last.combine.time_us:,.1f} us, on {cluster.ranks} GPUs ({cluster.nodes} × {cluster.gpus}), top "
        f"{layer.topk} of {layer.experts} experts, hidden size {layer.hidden}.",
        markup=False,
    )
    columns = ("tokens", "call", "us", "90 % band", "RDMA GB/s", "NVLink GB/s", "limit")
    out.print(table("", columns, rows))
    others = "runs of NCCL on other clusters" if kernel == PAIRS else "times of other hardware"
    trust = [f"bands are by the errors of published {others}", *notes]
    if first.notify_us:
        trust.append(f"before each dispatch, GPUs exchange counts: {first.notify_us:.0f} us more, not calibrated")
    out.print(f"How far to trust it: {'; '.join(trust)}.", markup=False)


def _speeds(call: Call) -> list[str]:
    return [f"{value:,.1f}" if value else "" for value in (call.network_gbyte_s, call.inside_gbyte_s)]


def _facts(times: ExpertTimes) -> dict[str, Any]:
    from weft.collectives.experts.band import band_of

    calls = {"dispatch": times.dispatch, "combine": times.combine}
    return {
        "kernel": times.kernel,
        "tokens": times.layer.tokens,
        "gpus": times.links.ranks,
        "servers": times.links.servers,
        "notify_us": times.notify_us,
    } | {
        name: {
            "time_us": call.time_us,
            "band_us": band_of(times, call).around(call.time_us),
            "network_bytes": call.network_bytes,
            "inside_bytes": call.inside_bytes,
            "network_gbyte_s": call.network_gbyte_s,
            "inside_gbyte_s": call.inside_gbyte_s,
            "bound": call.bound,
        }
        for name, call in calls.items()
    }


def _calibrate(name: str, form: Form) -> None:
    from weft.collectives.experts import calibration

    chosen = (calibration.find(name),) if name else calibration.runs()
    if form.is_data:
        facts = [
            {"run": run.name, "kernel": run.kernel, "measured_us": figure.measured, "simulated_us": figure.predicted}
            | {"error": figure.error, "source": run.source}
            for run in chosen
            for figure in calibration.compare(run)
        ]
        print_data(form, facts, "figures")
        return
    out = console()
    with progress_bar("fitting without each hardware"):
        columns, rows, note = calibration.figure_table(chosen[0]) if name else calibration.calibration_table()
    out.print(table(f"{name}, measured and simulated" if name else _TITLE, columns, rows))
    if not name:
        out.print(table("Hardware left out, by class, the largest error first", *calibration.class_table()))
    out.print(note, markup=False)
