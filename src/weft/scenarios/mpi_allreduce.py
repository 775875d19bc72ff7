"""MPI_Allreduce thousands of times a second: which share of the time is it, on each network?

    step = compute + all-reduce          a job with 5,000 calls per second, if calls were free, computes for 200 µs

A solver or a molecular simulation reduces a few bytes in every step, and waits for them. The all-reduce time is that of
`weft osu`, by the library's own rules, on the same servers with one network after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from weft.collectives.mpi.bench import Row, Settings, Test
from weft.collectives.mpi.bench import run as run_test
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
RATES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)  # calls per second in the chart
DOMINATES = 0.5  # share of the runtime
SIGNIFICANT = 0.1  # share of the time of a job


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiNetwork:
    """A network to compare."""

    name: str
    speed: str
    network: Network
    sharp: bool = False


KINDS = (
    MpiNetwork(name="NDR InfiniBand, SHARP", speed="NDR", network=Network.INFINIBAND, sharp=True),
    MpiNetwork(name="NDR InfiniBand", speed="NDR", network=Network.INFINIBAND),
    MpiNetwork(name="400G RoCE", speed="400GbE", network=Network.ROCE),
    MpiNetwork(name="100G RoCE", speed="100GbE", network=Network.ROCE),
    MpiNetwork(name="100G TCP", speed="100GbE", network=Network.TCP),
)
SHARP, IB, ROCE, _, TCP = (kind.name for kind in KINDS)


def run(
    *,
    nodes: Annotated[int, "Servers: dozens."] = 48,
    ppn: Annotated[int, "Processes per server."] = 32,
    calls: Annotated[int, "All-reduces per second, if they took no time."] = 5_000,
    size_bytes: Annotated[int, "Size of each all-reduce in bytes."] = 8,
    mpi: Annotated[str, "The library whose rules choose the algorithm: openmpi or mvapich2."] = "openmpi",
    seed: Annotated[int, "Random seed for ECMP hashing."] = 1,
) -> Finding:
    """Run the same job on every network, and on fewer servers."""
    arguments = {"nodes": nodes, "ppn": ppn, "calls": calls, "size_bytes": size_bytes, "mpi": mpi, "seed": seed}
    if nodes < 2:
        raise ConfigError(f"--nodes must be 2 or more, got {nodes}")
    if calls < 1:
        raise ConfigError(f"--calls must be 1 or more, got {calls}")
    sweep = sorted({max(nodes // 12, 2), max(nodes // 3, 2), nodes})
    measured = {kind.name: {count: _all_reduce(kind, count, arguments) for count in sweep} for kind in KINDS}
    times_us = {name: {count: row.value for count, row in by_nodes.items()} for name, by_nodes in measured.items()}
    took_us = {name: by_nodes[nodes] for name, by_nodes in times_us.items()}
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
            "share of runtime at 1,000/s",
            f"at {calls:,}/s",
            "job, times InfiniBand's",
        ),
        rows=tuple(_row(name, row, took_us[IB], calls) for name, row in last.items()),
        finding=_sentence(took_us, arguments),
        trust="An all-reduce of few bytes is the latency of messages and the library's algorithm, on a fabric without "
        f"noise: by published runs of the kind it takes {_factors(last[IB])} times as long over RDMA, "
        f"{_factors(last[TCP])} over TCP; most of them have fewer ranks, and the upper end grows with the ranks. Pods "
        "of Kubernetes took up to 40 times as long as the same machines without. TCP's latency is that of one cloud, "
        "36 µs; a bare machine has 12 to 24. The network has no other traffic, and all ranks start the call together: "
        "where they do not, the wait is the job's own.",
        options=arguments,
        figures={
            "all_reduce_us": times_us,
            "share": {name: {rate: _share(us, rate) for rate in RATES} for name, us in took_us.items()},
            "dominates_from_calls_s": {name: 1e6 / us for name, us in took_us.items()},
        },
    )


def _all_reduce(kind: MpiNetwork, nodes: int, arguments: dict[str, Any]) -> Row:
    ranks = place(prepare(load(f"fat-tree:hosts={nodes},speed={kind.speed}")))
    options = Options(seed=arguments["seed"], network=kind.network)
    return run_test(ranks, _settings(arguments, sharp=kind.sharp, options=options)).rows[0]


def _settings(arguments: dict[str, Any], **more: Any) -> Settings:
    size = arguments["size_bytes"]
    chosen = {"mpi": arguments["mpi"], "ppn": arguments["ppn"], "min_bytes": size, "max_bytes": size}
    return Settings(test=Test.ALLREDUCE, together=True, **chosen, **more)


def _factors(row: Row) -> str:
    return f"{row.low / row.value:.1f} to {row.high / row.value:.1f}"


def _share(us: float, calls: int) -> float:
    """Return the share of the runtime of a job with this many calls per second, if calls were free."""
    return us / (1e6 / calls + us)


def _row(name: str, row: Row, ib_us: float, calls: int) -> tuple[str | float, ...]:
    us, compute_us = row.value, 1e6 / calls
    published = f"{row.low:.1f} to {row.high:.1f}"
    at = (f"{_share(us, rate):.0%}" for rate in (1_000, calls))
    return name, us, published, float(round(1e6 / us)), *at, (compute_us + us) / (compute_us + ib_us)


def _sentence(took_us: dict[str, float], arguments: dict[str, Any]) -> str:
    names, calls = (IB, ROCE, TCP), arguments["calls"]
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
        f"{arguments['nodes'] * arguments['ppn']:,} ranks on {arguments['nodes']} servers reduce "
        f"{arguments['size_bytes']} bytes in "
        f"{ib:.1f} µs on InfiniBand, {roce:.1f} on RoCE and {tcp:.0f} on TCP. At a thousand calls a second that is, in "
        f"this order, {shares[0]} of the runtime; at {calls:,} {shares[1]}. Latency takes half of it from "
        f"{1e6 / ib:,.0f} calls a second on with InfiniBand, {1e6 / roce:,.0f} with RoCE, {1e6 / tcp:,.0f} with TCP. "
        f"So {bears}; on RoCE the job takes {slower[ROCE]:+.0%}: {needs}. What InfiniBand alone has is switches that "
        f"add: with SHARP {took_us[SHARP]:.1f} µs, and the job takes {slower[SHARP]:+.0%}."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw all-reduce time by servers, and its share of the runtime by calls per second."""
    colours = dict(
        zip((kind.name for kind in KINDS), ("#56b4e9", "#0b6fb8", "#d55e00", "#009e73", "#7b8794"), strict=True)
    )
    with titled_chart(path, "MPI_Allreduce thousands of times a second", finding.ran, panels=2) as (time, share):
        for name, colour in colours.items():
            look: dict[str, Any] = {"color": colour, "label": name, "marker": "o", "markersize": 3}
            by_nodes = finding.figures["all_reduce_us"][name]
            time.plot(list(by_nodes), list(by_nodes.values()), **look)
            by_rate = finding.figures["share"][name]
            share.plot(list(by_rate), [100 * part for part in by_rate.values()], **look)
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
        share.set_ylabel("share of the runtime, %")
        share.legend(loc="upper left")
