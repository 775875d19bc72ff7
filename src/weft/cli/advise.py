"""`weft advise`: do I need InfiniBand?"""

from __future__ import annotations

import sys
from textwrap import fill
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import TABLES, File, Form, Whole
from weft.cli.output import Cell, console, print_data, progress_bar, table

if TYPE_CHECKING:
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
    tokens: str | None = None,
    message: str | None = None,
    rate: float | None = None,
    storage: str | None = None,
    budget: str | None = None,
    cloud: bool = False,
    team: str | None = None,
    prices: File = None,
    seed: Whole = 1,
    form: Form = TABLES,
) -> None:
    """Advise whether a cluster needs InfiniBand, and why.

    Without flags it asks a few questions. With some flags, the others keep their defaults.

    Parameters
    ----------
    gpus
        How many, or --servers. [training 1024, others those of 32 servers]
    servers
        How many, instead of --gpus.
    server
        dgx-a100, dgx-h100 or dgx-b200; host is a plain server. [dgx-h100; of web services host]
    workload
        training, mpi, storage (parallel-fs), batch (inference), single-node or web. [training]
    model
        That is trained: llama3-70b, mixtral-8x7b, as `weft train` has them. [llama3-70b; in one server llama3-8b]
    batch
        Sequences of a step for each GPU that trains. [2]
    tokens
        Or tokens of a step over all GPUs, 16M: rounded to whole sequences that the GPUs divide evenly.
    message
        What is sent at a time: 8, 4K, 128M. [mpi 8 bytes, storage 128M, batch and web 4K]
    rate
        How often in a second of computing. [mpi 5000, storage and batch 1, web 1000]
    storage
        Of training or storage: none, same (fabric as the GPUs) or ethernet (beside it). [none; of storage both]
    budget
        USD for the fabric: 800K, 3M.
    cloud
        Servers are rented: no fabric is bought.
    team
        What it knows, infiniband or ethernet: it decides between equals.
    prices
        Your own, before weft's: a TOML file as catalog/prices.toml.
    seed
        Of the hashes by which Ethernet switches choose paths.
    """
    from weft.advise.advice import advise as run
    from weft.advise.report import report

    given = {
        "gpus": gpus,
        "servers": servers,
        "server": server,
        "workload": workload,
        "model": model,
        "sequences": batch,
        "tokens": tokens,
        "message_bytes": message,
        "rate_per_s": rate,
        "storage": storage,
        "budget_usd": budget,
        "team": team,
    }
    told = {name: value for name, value in given.items() if value is not None}
    if not told and not cloud and prices is None and sys.stdin.isatty():
        told = _ask()
        cloud = bool(told.pop("cloud", False))
    case = _case(told, prices, cloud=cloud, seed=seed)
    with progress_bar("reading the catalog") as change:
        found = run(case, lambda what: change(description=what))
    if form.is_data:
        print_data(form, report(found), "fabrics")
    else:
        _print(found)


def _case(told: dict[str, Any], prices: Any, *, cloud: bool, seed: int) -> Case:
    from weft.advise.case import Case, find_workload
    from weft.errors import ConfigError
    from weft.fabric import catalog
    from weft.fabric.prices import read_prices
    from weft.units import parse_count, parse_size_bytes

    work = find_workload(told.get("workload", "training"))
    server = told.get("server") or ("host" if work.name == "web" else "dgx-h100")
    each = catalog.server(server).gpus or 1
    gpus, servers = told.pop("gpus", None), told.pop("servers", None)
    if gpus is not None and servers is not None:
        raise ConfigError("--gpus and --servers are two forms of the same: leave out one")
    if "sequences" in told and "tokens" in told:
        raise ConfigError("--batch and --tokens are two forms of the same: leave out one")
    if servers is None and gpus is None:
        servers = 128 if work.name == "training" else 32
    if servers is None:
        if gpus < 1 or gpus % each:
            near = max(each, gpus // each * each)
            raise ConfigError(f"--gpus {gpus} are no whole servers of {each}, which a {server} has: {near}, say")
        servers = gpus // each
    for name, parse in (
        ("message_bytes", parse_size_bytes),
        ("budget_usd", lambda text: parse_count("budget", text)),
        ("tokens", lambda text: parse_count("tokens", text)),
    ):
        if name in told:
            told[name] = parse(told[name])
    return Case(
        **told | {"workload": work.name, "server": server},
        servers=servers,
        cloud=cloud,
        prices=read_prices(prices),
        seed=seed,
    )


def _ask() -> dict[str, Any]:
    """A few plain questions, each with a default; the end of input takes the rest of the defaults."""
    from weft.advise.questions import ask

    try:
        return ask(input, print)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise SystemExit(130) from None


_HEADS = ("fabric", "time of one {}", "lost to the network %", "fabric USD", "USD for {}", "fabric kW")


def _print(found: Advice) -> None:
    from weft.advise import formatting

    out = console()

    def say(text: str, before: str = "") -> None:
        """On a terminal, what is wrapped stands below where it began."""
        later = " " * len(before)
        wide = out.width if out.is_terminal else len(before + text)
        out.print(fill(text, wide, initial_indent=before, subsequent_indent=later), markup=False)

    say(formatting.headline(found))
    say(f"For {formatting.describe_case(found)}.", "  ")
    for reason in formatting.reasons(found):
        say(reason, "  - ")
    out.print(table("", _heads(found), _rows(found)))
    say("When the answer would change, one thing at a time:")
    out.print(table("", ("if", "then", "where"), [_flip(flip) for flip in found.flips]))
    say(f"Vendor risk, which is not in the answer: {formatting.vendor_risk(found)}")
    if found.case.cloud:
        say(formatting.cloud(found))
    for one in found.published:
        say(f"Said elsewhere: {formatting.compare_with_published(found, one)}")
    say(f"How far to trust it: {formatting.trust(found)} Seed {found.case.seed}.")


def _heads(found: Advice) -> list[str]:
    return [head.format(found.counted if "USD" in head else found.case.work.unit) for head in _HEADS]


def _rows(found: Advice) -> list[tuple[Cell, ...]]:
    from weft.advise.formatting import price_usd

    taken = [row.option for row in found.verdict.chosen]
    return [
        (
            f"{'* ' if row.option in taken else ''}{row.option.label}",
            _time(row),
            round(100 * row.timed.waits, 1),
            "rented" if found.case.cloud else price_usd(row),
            row.unit_usd,
            None if found.case.cloud else "not known" if row.power_w is None else row.power_w / 1000,
        )
        for row in found.rows
    ]


def _time(row: Row) -> str:
    """`1.44 s (1.24 to 1.68 s)`: with its band, where its like is published."""
    from weft.compare.words import show_band, show_time

    band = row.timed.band_s
    around = "" if band is None else f" ({show_band(*(1e6 * limit_s for limit_s in band))})"
    return f"{show_time(1e6 * row.seconds)}{around}"


def _flip(flip: Any) -> tuple[Cell, ...]:
    return flip.by, flip.answer or "the same", flip.where
