"""`weft advise`: answer whether a cluster needs InfiniBand."""

from __future__ import annotations

import sys
from textwrap import fill
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import TABLES, File, Form, Whole
from weft.cli.output import Cell, check_explain, console, print_data, progress_bar, table
from weft.errors import ConfigError
from weft.units import parse_count, parse_seconds, parse_size_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from weft.advise.advice import Advice
    from weft.advise.case import Case
    from weft.advise.rows import Row


def advise(
    *,
    gpus: Whole | None = None,
    servers: Whole | None = None,
    server: str | None = None,
    workload: str | None = None,
    model: str | None = None,
    batch: Whole | None = None,
    batch_tokens: str | None = None,
    weights: str | None = None,
    input_len: Whole | None = None,
    output_len: Whole | None = None,
    slo_tpot: str | None = None,
    size: str | None = None,
    message_rate: float | None = None,
    storage_network: str | None = None,
    budget: str | None = None,
    cloud: bool = False,
    team: str | None = None,
    prices: File = None,
    explain: bool = False,
    seed: Whole = 1,
    form: Form = TABLES,
) -> None:
    """Advise whether a cluster needs InfiniBand, and why.

    Without flags it asks a few questions. With some flags, the others keep their defaults.

    Parameters
    ----------
    gpus
        Number of GPUs; or give --servers. [default: training 1024, others 32 servers]
    servers
        Servers: their number, instead of --gpus.
    server
        Server template: dgx-a100, dgx-h100 or dgx-b200; host is a plain server. [default: dgx-h100; web: host]
    workload
        training, inference, mpi, storage (parallel-fs), batch, single-node or web. [default: training]
    model
        The model to train, as in `weft train`, or to serve, as in `weft infer`. [default: llama3-70b; to train on
        one server llama3-8b]
    batch
        Sequences per step for each GPU. [default: 2]
    batch_tokens
        Or tokens per step over all GPUs, 16M, rounded so that the GPUs divide them evenly.
    weights
        Format of the weights, for inference: bf16, fp8, nvfp4 or mxfp4. [default: bf16]
    input_len
        Tokens of a prompt, for inference. [default: 1024]
    output_len
        Tokens of an answer, for inference. [default: 256]
    slo_tpot
        Objective for the mean time per output token, for inference: 30ms. [default: 50ms]
    size
        Message size: 8, 4K, 128M. [default: mpi 8 bytes, storage 128M, batch and web 4K]
    message_rate
        Messages per second of computing. [default: mpi 5000, storage and batch 1, web 1000]
    storage_network
        Network of the storage, for training and storage: none, same (as the GPUs' fabric) or ethernet (beside it).
        [default: none; for the storage workload both]
    budget
        USD for the fabric: 800K, 3M.
    cloud
        Servers are rented: no fabric is bought.
    team
        What the team knows, infiniband or ethernet; it decides between equal fabrics.
    prices
        A TOML file with your own prices, which replace weft's estimates.
    explain
        Print more: when the answer would change, vendor risk, other opinions, and the assumptions.
    seed
        Random seed, for ECMP hashing.
    """
    from weft.advise.advice import advise as run
    from weft.advise.formatting import report

    flags = {
        "gpus": gpus,
        "servers": servers,
        "server": server,
        "workload": workload,
        "model": model,
        "sequences": batch,
        "tokens": batch_tokens,
        "weights": weights,
        "prompt_tokens": input_len,
        "answer_tokens": output_len,
        "tpot_s": slo_tpot,
        "message_bytes": size,
        "rate_per_s": message_rate,
        "storage": storage_network,
        "budget_usd": budget,
        "team": team,
    }
    check_explain(explain, form)
    options = {name: value for name, value in flags.items() if value is not None}
    if not options and not cloud and prices is None and sys.stdin.isatty():
        options = _ask()
        cloud = bool(options.pop("cloud", False))
    case = _case(options, prices, cloud=cloud, seed=seed)
    with progress_bar("reading the catalog") as change:
        advice = run(case, lambda description: change(description=description))
        if explain or form.is_data:
            _ = advice.flips  # found while the bar tells of it
    if form.is_data:
        print_data(form, report(advice), "fabrics")
    else:
        _print(advice, explain)


def _case(options: dict[str, Any], prices: Any, *, cloud: bool, seed: int) -> Case:
    from weft.advise.case import Case, find_workload
    from weft.fabric import catalog
    from weft.fabric.prices import read_prices

    work = find_workload(options.get("workload", "training"))
    server = options.get("server") or ("host" if work.name == "web" else "dgx-h100")
    each = catalog.server(server).gpus or 1
    gpus, servers = options.pop("gpus", None), options.pop("servers", None)
    if gpus is not None and servers is not None:
        raise ConfigError("use --gpus or --servers, not both")
    for flag, name, needs in (
        ("--batch", "sequences", work.trains),
        ("--weights", "weights", work.name == "inference"),
        ("--input-len", "prompt_tokens", work.name == "inference"),
        ("--output-len", "answer_tokens", work.name == "inference"),
        ("--slo-tpot", "tpot_s", work.name == "inference"),
    ):
        if name in options and not needs:
            raise ConfigError(f"{flag} has no effect on {work.name}: leave it out")
    if "sequences" in options and "tokens" in options:
        raise ConfigError("use --batch or --batch-tokens, not both")
    if servers is None and gpus is None:
        servers = 128 if work.name == "training" else 32
    if servers is None:
        if gpus < 1 or gpus % each:
            near = max(each, gpus // each * each)
            raise ConfigError(f"--gpus {gpus} must be a multiple of {each}, the GPUs of a {server}: --gpus {near}")
        servers = gpus // each
    for name, parse in (
        ("message_bytes", parse_size_bytes),
        ("budget_usd", lambda text: parse_count("budget", text)),
        ("tokens", lambda text: parse_count("tokens", text)),
        ("tpot_s", lambda text: parse_seconds("--slo-tpot", text)),
    ):
        if name in options:
            options[name] = parse(options[name])
    return Case(
        **options | {"workload": work.name, "server": server},
        servers=servers,
        cloud=cloud,
        prices=read_prices(prices),
        seed=seed,
    )


def _ask() -> dict[str, Any]:
    """Ask a few questions, each with a default; at the end of input the remaining defaults apply."""
    from weft.advise.questions import ask

    try:
        return ask(input, print)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise SystemExit(130) from None


_HEADS = ("fabric", "time of one {}", "network wait %", "fabric USD", "USD for {}", "fabric kW")


def _print(advice: Advice, explain: bool) -> None:
    from weft.advise import formatting

    out = console()
    _say(out, formatting.headline(advice))
    _say(out, f"For {formatting.describe_case(advice)}.", "  ")
    for reason in formatting.reasons(advice):
        _say(out, reason, "  - ")
    out.print(table("", _heads(advice), _rows(advice)))
    if not explain:
        _say(out, f"How far to trust it: {formatting.short_trust(advice)} When the answer would change: --explain")
        return
    _say(out, "When the answer would change, one thing at a time:")
    rows: list[tuple[Cell, ...]] = [(flip.by, flip.answer or "the same", flip.where) for flip in advice.flips]
    out.print(table("", ("if", "then", "where"), rows))
    _say(out, f"Vendor risk, which is not in the answer: {formatting.vendor_risk(advice)}")
    if advice.case.cloud:
        _say(out, formatting.cloud(advice))
    for opinion in advice.published:
        _say(out, f"Said elsewhere: {formatting.compare_with_published(advice, opinion)}")
    _say(out, f"How far to trust it: {formatting.trust(advice)} Seed {advice.case.seed}.")


def _say(out: Console, text: str, indent: str = "") -> None:
    """Print a paragraph; on a terminal, wrapped lines are indented like the first."""
    width = out.width if out.is_terminal else len(indent + text)
    out.print(fill(text, width, initial_indent=indent, subsequent_indent=" " * len(indent)), markup=False)


def _heads(advice: Advice) -> list[str]:
    return [head.format(advice.counted if "USD" in head else advice.case.work.unit) for head in _HEADS]


def _rows(advice: Advice) -> list[tuple[Cell, ...]]:
    from weft.advise.formatting import price_usd

    chosen = [row.option for row in advice.verdict.chosen]
    return [
        (
            f"{'* ' if row.option in chosen else ''}{row.option.label}",
            _time(row),
            round(100 * row.timed.waits, 1),
            "rented" if advice.case.cloud else price_usd(row),
            row.unit_usd,
            None if advice.case.cloud else "not known" if row.power_w is None else row.power_w / 1000,
        )
        for row in sorted(advice.rows, key=lambda row: row.seconds)
    ]


def _time(row: Row) -> str:
    """Return the time with its band, if there is one: `1.44 s (1.24 to 1.68 s)`."""
    from weft.compare.formatting import show_band, show_time

    band = row.timed.band_s
    around = "" if band is None else f" ({show_band(*(1e6 * limit_s for limit_s in band))})"
    return f"{show_time(1e6 * row.seconds)}{around}"
