"""The options of `weft plan` for a model that is served, and the table of its traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from weft.cli.arguments import Whole
from weft.cli.output import Cell, table
from weft.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from weft.plan.serving import Demand, Serving


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Served:
    """A model that the cluster serves."""

    serve: str | None = None
    """Also find the service for --rate requests of this model, llama3-70b or a config.json, and its traffic between
    servers; without a size the cluster has as many servers as it needs."""
    rate: float | None = None
    """Requests per second; with --serve, arriving at random."""
    input_len: Whole | None = None
    """Tokens of a prompt, with --serve. [1024]"""
    output_len: Whole | None = None
    """Tokens of an answer, with --serve. [128]"""
    weights: str | None = None
    """Format of the weights, with --serve, as in `weft infer`. [bf16]"""
    slo_ttft: str | None = None
    """Objective for the time to the first token: with --serve, 99 % of the requests keep it. [2s]"""
    slo_tpot: str | None = None
    """Objective for the mean time per output token: with --serve, 99 % of the requests keep it. [50ms]"""


DEFAULT_SERVED = Served()


def demand_of(served: Served) -> Demand | None:
    """Return the demand of these options."""
    if served.serve is None:
        if served != DEFAULT_SERVED:
            raise ConfigError("--rate and lengths and limits of requests are of a served model: add --serve llama3-70b")
        return None
    if served.rate is None:
        raise ConfigError("--serve needs --rate, the requests per second")
    from weft.plan.serving import Demand
    from weft.units import parse_seconds

    given: dict[str, Any] = {"prompt": served.input_len, "answer": served.output_len, "weights": served.weights}
    for name, flag, text in (
        ("ttft_s", "--slo-ttft", served.slo_ttft),
        ("tpot_s", "--slo-tpot", served.slo_tpot),
    ):
        given[name] = None if text is None else parse_seconds(flag, text)
    fields = {name: value for name, value in given.items() if value is not None}
    return Demand(model=served.serve, rate=served.rate, **fields)


def traffic(serving: Serving) -> RenderableType:
    """Return the traffic of the server that has most of it."""
    heads = ("traffic of a server", "mean Gbit/s", "busiest second", "of its ports")
    rows: list[tuple[Cell, ...]] = [
        (
            flow.name,
            f"{flow.mean_gbit_s:.3g}",
            f"{flow.peak_gbit_s:.3g}",
            "" if flow.share is None else f"{flow.share:.2%}",
        )
        for flow in serving.flows
    ]
    return table("", heads, rows, serving.note)


def networks(serving: Serving) -> RenderableType:
    """Return the sizes of the networks into the cluster."""
    heads = ("network", "fabric", "Gbit/s of a server", "Gbit/s of all", "ports of a server", "storage servers")
    rows: list[tuple[Cell, ...]] = [
        (
            network.name,
            network.fabric,
            f"{network.server_gbit_s:.3g}",
            f"{network.total_gbit_s:.3g}",
            network.ports,
            network.storage_servers or "",
        )
        for network in serving.networks
    ]
    return table("", heads, rows, serving.sizes_note)
