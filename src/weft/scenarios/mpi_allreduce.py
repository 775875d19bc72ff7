"""MPI_Allreduce thousands of times a second: whose time is it, and on which network?

    step = compute + all-reduce          a job that would call 5,000 times a second, were calls free, computes 200 µs

A solver or a simulation of molecules reduces a few bytes in every step, and waits for them. The all-reduce is what
`weft osu` says, by the library's own rules, on the same servers with one network after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from weft.collectives.osu.bench import Row, Settings, Test
from weft.collectives.osu.bench import run as run_test
from weft.collectives.ranks import place
from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.fabric.spec import load
from weft.scenarios.finding import Finding
from weft.sim.engine import Network, Options
from weft.sim.perftest import prepare

CLAIM = (
    "If your workload calls MPI_Allreduce thousands of times per second across dozens of nodes, latency dominates "
    "runtime. InfiniBand is the only option."
)
SOURCE = "InfiniBand Is Not Magic. Here's What It Actually Does."
RATES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)  # calls a second of the picture
DOMINATES = 0.5  # of the runtime
SIGNIFICANT = 0.1  # of the time of a job


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A network."""

    name: str
    speed: str
    network: Network
    sharp: bool = False


KINDS = (
    Kind(name="NDR InfiniBand, SHARP", speed="NDR", network=Network.INFINIBAND, sharp=True),
    Kind(name="NDR InfiniBand", speed="NDR", network=Network.INFINIBAND),
    Kind(name="400G RoCE", speed="400GbE", network=Network.ROCE),
    Kind(name="100G RoCE", speed="100GbE", network=Network.ROCE),
    Kind(name="100G TCP", speed="100GbE", network=Network.TCP),
)
SHARP, IB, ROCE, _, TCP = (kind.name for kind in KINDS)


def run(
    *,
    nodes: Annotated[int, "Servers: dozens."] = 48,
    ppn: Annotated[int, "Processes on each."] = 32,
    calls: Annotated[int, "All-reduces a second, were they free."] = 5_000,
    size_bytes: Annotated[int, "Of each all-reduce."] = 8,
    mpi: Annotated[str, "The library whose rules choose the algorithm: openmpi or mvapich2."] = "openmpi",
    seed: Annotated[int, "Of hashes."] = 1,
) -> Finding:
    """The same job on every network, and on fewer servers."""
    given = {"nodes": nodes, "ppn": ppn, "calls": calls, "size_bytes": size_bytes, "mpi": mpi, "seed": seed}
    if nodes < 2:
        raise ConfigError(f"nodes {nodes} is below 2: an all-reduce over a network needs two")
    if calls < 1:
        raise ConfigError(f"calls {calls} is below 1: give all-reduces a second")
    sweep = sorted({max(nodes // 12, 2), max(nodes // 3, 2), nodes})
    measured = {kind.name: {count: _all_reduce(kind, count, given) for count in sweep} for kind in KINDS}
    found = {name: {count: row.value for count, row in by_nodes.items()} for name, by_nodes in measured.items()}
    took_us = {name: by_nodes[nodes] for name, by_nodes in found.items()}
    last = {name: by_nodes[nodes] for name, by_nodes in measured.items()}
    return Finding(
        scenario="mpi-allreduce",
        claim=CLAIM,
        source=SOURCE,
        ran=f"osu_allreduce of {size_bytes} bytes by {mpi} on {nodes} servers of {ppn} processes, {len(KINDS)} "
        f"networks; a job that computes {1e6 / calls:g} µs between two of them",
        columns=(
            "network",
            "all-reduce µs",
            "band µs",
            "calls/s at most",
            "of the runtime at 1,000/s",
            f"at {calls:,}/s",
            "job, times InfiniBand's",
        ),
        rows=tuple(_row(name, row, took_us[IB], calls) for name, row in last.items()),
        finding=_sentence(took_us, given),
        trust="An all-reduce of few bytes is the latency of messages and the library's algorithm, on a fabric without "
        f"noise: by published runs of the kind it takes {_factors(last[IB])} times as long over RDMA, "
        f"{_factors(last[TCP])} over TCP; most of them have fewer ranks, and the upper end grows with the ranks. Two "
        "large ones on virtual machines took up to 37 times as long. TCP's latency is that of one cloud, 36 µs; a bare "
        "machine has 12 to 24. Nobody else uses the network, and all ranks come to the call at the same time: where "
        "they do not, the wait is the job's own.",
        options=given,
        figures={
            "all_reduce_us": found,
            "share": {name: {rate: _share(us, rate) for rate in RATES} for name, us in took_us.items()},
            "dominates_from_calls_s": {name: 1e6 / us for name, us in took_us.items()},
        },
    )


def _all_reduce(kind: Kind, nodes: int, given: dict[str, Any]) -> Row:
    ranks = place(prepare(load(f"fat-tree:hosts={nodes},speed={kind.speed}")))
    options = Options(seed=given["seed"], network=kind.network)
    return run_test(ranks, _settings(given, sharp=kind.sharp, options=options)).rows[0]


def _settings(given: dict[str, Any], **more: Any) -> Settings:
    size = given["size_bytes"]
    chosen = {"mpi": given["mpi"], "ppn": given["ppn"], "min_bytes": size, "max_bytes": size}
    return Settings(test=Test.ALLREDUCE, together=True, **chosen, **more)


def _factors(row: Row) -> str:
    return f"{row.low / row.value:.1f} to {row.high / row.value:.1f}"


def _share(us: float, calls: int) -> float:
    """Of the runtime of a job that would call so often, were calls free."""
    return us / (1e6 / calls + us)


def _row(name: str, row: Row, ib_us: float, calls: int) -> tuple[str | float, ...]:
    us, compute_us = row.value, 1e6 / calls
    published = f"{row.low:.1f} to {row.high:.1f}"
    at = (f"{_share(us, rate):.0%}" for rate in (1_000, calls))
    return name, us, published, float(round(1e6 / us)), *at, (compute_us + us) / (compute_us + ib_us)


def _sentence(took_us: dict[str, float], given: dict[str, Any]) -> str:
    names, calls = (IB, ROCE, TCP), given["calls"]
    ib, roce, tcp = (took_us[name] for name in names)
    compute_us = 1e6 / calls
    slower = {name: (compute_us + us) / (compute_us + ib) - 1 for name, us in took_us.items()}
    shares = [", ".join(f"{_share(took_us[name], rate):.0%}" for name in names) for rate in (1_000, calls)]
    bears = "TCP cannot bear that" if _share(tcp, calls) >= DOMINATES else "TCP bears that"
    needs = (
        "RDMA is what it needs, and InfiniBand is not the only one that has it"
        if slower[ROCE] < SIGNIFICANT
        else "InfiniBand is ahead"
    )
    return (
        f"{given['nodes'] * given['ppn']:,} ranks on {given['nodes']} servers reduce {given['size_bytes']} bytes in "
        f"{ib:.1f} µs on InfiniBand, {roce:.1f} on RoCE and {tcp:.0f} on TCP. At a thousand calls a second that is, in "
        f"this order, {shares[0]} of the runtime; at {calls:,} {shares[1]}. Latency takes half of it from "
        f"{1e6 / ib:,.0f} calls a second on with InfiniBand, {1e6 / roce:,.0f} with RoCE, {1e6 / tcp:,.0f} with TCP. "
        f"So {bears}; on RoCE the job takes {slower[ROCE]:+.0%}: {needs}. What InfiniBand alone has is switches that "
        f"add: with SHARP {took_us[SHARP]:.1f} µs, and the job takes {slower[SHARP]:+.0%}."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """All-reduce over servers, and its part of the runtime over calls a second."""
    colours = dict(
        zip((kind.name for kind in KINDS), ("#56b4e9", "#0b6fb8", "#d55e00", "#009e73", "#7b8794"), strict=True)
    )
    with titled_chart(path, "MPI_Allreduce thousands of times a second", finding.ran, panels=2) as (time, share):
        for name, colour in colours.items():
            look: dict[str, Any] = {"color": colour, "label": name, "marker": "o", "markersize": 3}
            by_nodes = finding.figures["all_reduce_us"][name]
            time.plot(list(by_nodes), list(by_nodes.values()), **look)
            by_rate = finding.figures["share"][name]
            share.plot(list(by_rate), [100 * one for one in by_rate.values()], **look)
        for axes in (time, share):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
        time.set_yscale("log")
        time.yaxis.set_major_formatter("{x:g}")
        time.set_xticks(list(finding.figures["all_reduce_us"][IB]))
        time.minorticks_off()
        time.set_xlabel("servers")
        time.set_ylabel("all-reduce, µs")
        share.axhline(100 * DOMINATES, color="#7b8794", linewidth=0.8, linestyle="--")
        share.set_xlabel("calls a second, were they free")
        share.set_ylabel("of the runtime, %")
        share.legend(loc="upper left")
