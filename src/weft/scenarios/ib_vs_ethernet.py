"""InfiniBand and Ethernet compared by aspect: the claims of the documents, and the results.

    latency, bandwidth      h1 and h2 on one switch, as perftest measures
    processors              the rate that one core can post or copy, against the line rate
    routing                 16 hosts below leaves and spines, each sends to another: the slowest message
    loss                    15 of them send to one
    all-reduce              16 servers of 8 GPUs: their rings and trees over the network's routes, then NCCL's model;
                            with a leaf for each rail, where rings stay on one leaf, and with a leaf for two servers

Ethernet means two things in the documents: Ethernet with RDMA (RoCE), and the kernel's TCP.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import from_fabric
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.measure import measure
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import place
from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.scenarios.experiment import bandwidth, latency_us, run_packets
from weft.scenarios.finding import Finding
from weft.sim import patterns, perftest
from weft.sim.engine import Memory, Network, Options, Paths
from weft.sim.perftest import Test
from weft.sim.traffic import Traffic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GLOSSARY = "a glossary page"
WHAT_IS = "What is InfiniBand?"
POWERS = "How InfiniBand Powers AI Training"
NOT_MAGIC = "InfiniBand Is Not Magic"
CLAIM = (
    "Aspect | InfiniBand NDR | 400G Ethernet: Latency | ~1 μs | ~10-50 μs. Congestion | Credit-based | Drop-based. "
    "CPU overhead | Minimal | Higher. AI training | Optimized | Improving."
)
HOSTS = 16
SMALL_BYTES, LARGE_BYTES = 8, 1 << 20  # for latency, for bandwidth
CONNECTIONS = 8
INCAST_BYTES = 1 << 20
PERMUTATIONS = 4
BUCKET_BYTES = 25 << 20  # reduced at once by PyTorch's DistributedDataParallel
RAILS, LEAVES = "a leaf for each rail", "a leaf for two servers"
CABLING = {RAILS: "superpod:su=1,servers={}", LEAVES: "fat-tree:hosts={},server=dgx-h100,radix=32"}
SIZES = tuple(8 << power for power in range(0, 28, 3))  # all-reduce sizes of the chart: 8 bytes to 1 GiB


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCase:
    """A network to compare."""

    name: str
    speed: str
    network: Network
    paths: Paths

    def options(self, seed: int, memory: Memory = Memory.HOST) -> Options:
        return Options(seed=seed, network=self.network, paths=self.paths, memory=memory)


KINDS = (
    NetworkCase(name="NDR InfiniBand", speed="NDR", network=Network.INFINIBAND, paths=Paths.TABLE),
    NetworkCase(name="NDR, adaptive routing", speed="NDR", network=Network.INFINIBAND, paths=Paths.ADAPTIVE),
    NetworkCase(name="400G RoCE", speed="400GbE", network=Network.ROCE, paths=Paths.ECMP),
    NetworkCase(name="400G RoCE, adaptive routing", speed="400GbE", network=Network.ROCE, paths=Paths.ADAPTIVE),
    NetworkCase(name="100G RoCE", speed="100GbE", network=Network.ROCE, paths=Paths.ECMP),
    NetworkCase(name="100G TCP", speed="100GbE", network=Network.TCP, paths=Paths.ECMP),
)
IB, IB_ADAPTIVE, ROCE, ROCE_ADAPTIVE, ROCE_100, TCP = (kind.name for kind in KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFigures:
    """The figures of one network."""

    latency_us: float
    one_gbit_s: float  # one connection
    gbit_s: float  # several
    cores: float  # busy on each side at that rate
    worst_slowdown: float  # the last of a permutation, against a message alone
    median_slowdown: float
    dropped: int  # packets of an incast
    incast_slowdown: float  # against the receiver's line
    all_reduce_us: dict[str, dict[int, float]]  # by cabling and size

    def bucket_us(self, cabling: str) -> float:
        return self.all_reduce_us[cabling][BUCKET_BYTES]


def run(
    *,
    servers: Annotated[int, "DGX H100 that all-reduce together, 2 to 16."] = 16,
    size_bytes: Annotated[int, "Bytes of each message of the permutations."] = 16 << 20,
    seed: Annotated[int, "Random seed for permutations, hashes and marking."] = 1,
) -> Finding:
    """Measure all aspects of all networks: permutations of messages of `size_bytes`, all-reduces of so many servers."""
    arguments = {"servers": servers, "size_bytes": size_bytes, "seed": seed}
    if not 2 <= servers <= HOSTS:
        raise ConfigError(f"--servers must be 2 to {HOSTS} (the ports of a rail's leaf), got {servers}")
    if size_bytes < LARGE_BYTES:
        raise ConfigError(
            f"--size must be {LARGE_BYTES} bytes or more, got {size_bytes}: smaller messages do not overlap"
        )
    measured = {kind.name: _measure(kind, arguments) for kind in KINDS}
    return Finding(
        scenario="ib-vs-ethernet",
        claim=CLAIM,
        source=GLOSSARY,
        ran=f"{len(KINDS)} networks: two hosts on a switch, {HOSTS} hosts below leaves and spines, all-reduces of "
        f"{servers} DGX H100",
        columns=("claim", "document", "found", "holds"),
        rows=tuple(_claims(measured, servers)),
        finding=_sentence(measured, servers),
        trust="Latency and bandwidth of RDMA are fitted to published perftest runs. TCP's are those of one kernel and "
        "one connection, 12 to 83 µs elsewhere; NCCL over TCP goes a tenth faster than in the one published run. DCQCN "
        "is one setting of many, and slow to recover in the permutation. The network has no other traffic.",
        options=arguments,
        figures={"networks": {name: asdict(figures) for name, figures in measured.items()}, "ranks": servers * 8},
    )


# -- measuring --------------------------------------------------------------------------------------------------------


def _measure(kind: NetworkCase, arguments: dict[str, Any]) -> NetworkFigures:
    options = kind.options(arguments["seed"])
    pair = perftest.prepare(load(f"star:hosts=2,speed={kind.speed}"))
    single = bandwidth(pair, Test.SEND_BW, options, LARGE_BYTES)
    many = bandwidth(pair, Test.SEND_BW, options, LARGE_BYTES, qps=CONNECTIONS)
    posts_mpps = bandwidth(pair, Test.SEND_BW, options, SMALL_BYTES).message_rate_mpps
    tree = perftest.prepare(load(f"fat-tree:hosts={HOSTS},radix=8,speed={kind.speed}"))
    slowdowns = _permutations(tree, kind, arguments)
    incast = patterns.incast(tree, senders=HOSTS - 1, size_bytes=INCAST_BYTES)
    result = run_packets(tree, incast, options)
    ideal_ps = incast.total_bytes * 8_000 / many.average_gbit_s
    return NetworkFigures(
        latency_us=latency_us(pair, Test.SEND_LAT, options, SMALL_BYTES),
        one_gbit_s=single.average_gbit_s,
        gbit_s=many.average_gbit_s,
        # A core that copies is busy with every byte; one that posts, with every message.
        cores=many.average_gbit_s / single.average_gbit_s
        if kind.network is Network.TCP
        else many.message_rate_mpps / posts_mpps,
        worst_slowdown=float(slowdowns.max()),
        median_slowdown=float(np.median(slowdowns)),
        dropped=int(result.use.dropped_packets.sum()),
        incast_slowdown=result.last_arrival_ps / ideal_ps,
        all_reduce_us={
            name: _all_reduce_us(kind, f"{spec.format(arguments['servers'])},speed={kind.speed}", arguments["seed"])
            for name, spec in CABLING.items()
        },
    )


def _permutations(fabric: Fabric, kind: NetworkCase, arguments: dict[str, Any]) -> NDArray[np.float64]:
    """Return the slowdown of each message of several permutations against a message alone."""
    first, last = fabric.servers[0], fabric.servers[-1]
    alone = run_packets(
        fabric, Traffic.of(fabric, [(first, last, arguments["size_bytes"])]), kind.options(arguments["seed"])
    )
    slowdowns = []
    for seed in range(arguments["seed"], arguments["seed"] + PERMUTATIONS):
        traffic = patterns.permutation(fabric, size_bytes=arguments["size_bytes"], seed=seed)
        slowdowns.append(run_packets(fabric, traffic, kind.options(seed)).latency_ps / int(alone.latency_ps[0]))
    return np.concatenate(slowdowns)


def _all_reduce_us(kind: NetworkCase, spec: str, seed: int) -> dict[int, float]:
    """Return all-reduce times by size.

    RDMA adapters read GPU memory; sockets read host memory, which NCCL's kernels write.
    """
    ranks = place(perftest.prepare(load(spec)))
    memory = Memory.HOST if kind.network is Network.TCP else Memory.GPUDIRECT
    networks = measure(ranks, kind.options(seed, memory), patterns=(Pattern.RING, Pattern.TREE)).networks
    cluster = from_fabric(ranks.fabric)
    sizes = sorted({*SIZES, BUCKET_BYTES})
    return {size: estimate(cluster, Collective.ALL_REDUCE, size, networks=networks).time_us for size in sizes}


# -- verdicts ---------------------------------------------------------------------------------------------------------


def _claims(measured: dict[str, NetworkFigures], servers: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield claim, document, number and verdict."""
    ib, roce, roce_100, tcp = (measured[name] for name in (IB, ROCE, ROCE_100, TCP))
    us = f"{ib.latency_us:.2f} µs"
    yield "InfiniBand NDR | Latency | ~1 μs", GLOSSARY, us, _verdict(0.5 <= ib.latency_us <= 2)
    yield "NDR InfiniBand | Latency | 0.5-1.0 us", NOT_MAGIC, us, _verdict(0.5 <= ib.latency_us <= 1)
    yield "(NDR) delivers 400 Gbps per port with latency under 1 microsecond", WHAT_IS, us, _verdict(ib.latency_us < 1)
    ethernet = f"TCP {tcp.latency_us:.1f} µs, RoCE {roce.latency_us:.2f} µs"
    by_kernel = _of_two(10 <= roce.latency_us <= 50, 10 <= tcp.latency_us <= 50)
    yield "400G Ethernet | Latency | ~10-50 μs", GLOSSARY, ethernet, by_kernel
    times = roce.latency_us / ib.latency_us, tcp.latency_us / ib.latency_us
    apart = f"TCP {times[1]:.0f}x, RoCE {times[0]:.2f}x"
    yield "That 10-50x latency difference", NOT_MAGIC, apart, _of_two(10 <= times[0] <= 50, 10 <= times[1] <= 50)
    yield (
        "RDMA also works over Ethernet ... but the latency is higher",
        NOT_MAGIC,
        f"{times[0] - 1:+.0%}",
        _verdict(times[0] > 1),
    )
    yield (
        "RoCEv2 ... Low latency: sub-microsecond delays on 100 Gbps links",
        POWERS,
        f"{roce_100.latency_us:.2f} µs",
        _verdict(roce_100.latency_us < 1),
    )
    yield from _wire_claims(measured)
    yield from _job_claims(measured, servers)


def _wire_claims(measured: dict[str, NetworkFigures]) -> Iterator[tuple[str, str, str, str]]:
    ib, ib_adaptive, roce, roce_adaptive, _, tcp = (measured[kind.name] for kind in KINDS)
    rates = f"{ib.gbit_s:.0f} against {tcp.gbit_s:.0f} Gbit/s, {tcp.one_gbit_s:.0f} on one TCP connection"
    yield "Bandwidth: 400 Gbps (NDR) vs. 100 Gbps Ethernet", GLOSSARY, rates, _verdict(ib.gbit_s > 3.5 * tcp.gbit_s)
    same = f"{ib.gbit_s:.0f} and {roce.gbit_s:.0f} Gbit/s"
    near = abs(ib.gbit_s - roce.gbit_s) < 0.05 * ib.gbit_s
    yield "Bandwidth | 400 Gbps | 400 Gbps", GLOSSARY, same, _verdict(near)
    cores = f"cores at full rate: NDR {ib.cores:.3f}, RoCE {roce.cores:.3f}, TCP {tcp.cores:.1f}"
    yield (
        "CPU overhead | High (kernel stack) | Near-zero (RDMA)",
        NOT_MAGIC,
        cores,
        _of_two(roce.cores > 0.5, tcp.cores > 0.5 and ib.cores < 0.05),
    )
    lost = f"packets lost by an incast: NDR {ib.dropped}, RoCE {roce.dropped}, TCP {tcp.dropped:,}"
    yield "Congestion | Credit-based | Drop-based", GLOSSARY, lost, _of_two(roce.dropped > 0, tcp.dropped > 0)
    last = (
        f"the last of a permutation: NDR {ib.worst_slowdown:.1f}x, adaptive {ib_adaptive.worst_slowdown:.2f}x; "
        f"RoCE {roce.worst_slowdown:.1f}x, adaptive {roce_adaptive.worst_slowdown:.2f}x"
    )
    helps = ib_adaptive.worst_slowdown < 0.75 * ib.worst_slowdown
    similar = roce_adaptive.worst_slowdown < 1.25 * ib_adaptive.worst_slowdown
    verdict = "yes, and Ethernet's too" if helps and similar else _verdict(helps)
    yield "InfiniBand's advantages over Ethernet for AI include ... adaptive routing", WHAT_IS, last, verdict


def _job_claims(measured: dict[str, NetworkFigures], servers: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield claims about the all-reduce of a bucket of gradients, on rails. A tenth counts as significant."""
    ib, roce, tcp = (measured[name] for name in (IB, ROCE, TCP))
    best_us = ib.bucket_us(RAILS)
    times = [each.bucket_us(RAILS) / best_us for each in (roce, tcp)]
    crossed = [each.bucket_us(LEAVES) / best_us for each in (ib, roce)]
    result = (
        f"all-reduce of 25 MiB: NDR {best_us:,.0f} µs, RoCE {times[0]:.2f}x, 100G TCP {times[1]:.1f}x; "
        f"{LEAVES}: NDR {crossed[0]:.2f}x, RoCE {crossed[1]:.2f}x"
    )
    yield (
        "significantly faster training times compared to Ethernet-connected clusters",
        WHAT_IS,
        result,
        _of_two(times[0] > 1.1, times[1] > 1.1),
    )
    small = [each.all_reduce_us[RAILS][SMALL_BYTES] for each in (ib, roce, tcp)]
    result = f"{servers} servers, all-reduce of 8 bytes: NDR {small[0]:.0f}, RoCE {small[1]:.0f}, TCP {small[2]:.0f} µs"
    cheap = [us / small[0] < 1.1 for us in small[1:]]
    yield "Under ~16 nodes, the latency difference often doesn't justify the cost", NOT_MAGIC, result, _of_two(*cheap)


def _verdict(holds: bool) -> str:
    return "yes" if holds else "no"


def _of_two(roce: bool, tcp: bool) -> str:
    """Return the verdict for Ethernet with RDMA and Ethernet with TCP."""
    return {(True, True): "yes", (False, True): "for TCP", (True, False): "for RoCE", (False, False): "no"}[roce, tcp]


def _sentence(measured: dict[str, NetworkFigures], servers: int) -> str:
    ib, ib_adaptive, roce, roce_adaptive, _, tcp = (measured[kind.name] for kind in KINDS)
    bucket_us = {name: figures.bucket_us(LEAVES) for name, figures in measured.items()}
    return (
        f"The latency that documents give for Ethernet is the kernel's: {tcp.latency_us:.0f} µs with TCP, "
        f"{roce.latency_us:.2f} with RoCE on the same wire, {ib.latency_us:.2f} with InfiniBand, which is not below "
        f"one. TCP keeps {tcp.cores:.1f} cores busy on each side to fill 100 Gbit/s, RDMA a hundredth of one to fill "
        f"400. Routes matter more than the name on the wire: the last message of a permutation takes "
        f"{ib.worst_slowdown:.1f} times as long as alone by InfiniBand's static tables, {roce.worst_slowdown:.1f} by "
        f"Ethernet's hashes, {ib_adaptive.worst_slowdown:.2f} and {roce_adaptive.worst_slowdown:.2f} where both route "
        f"adaptively. So {servers} servers reduce 25 MiB in {ib.bucket_us(RAILS):,.0f} µs on NDR, "
        f"{roce.bucket_us(RAILS):,.0f} on 400G RoCE and {tcp.bucket_us(RAILS):,.0f} on 100G TCP with a leaf for each "
        f"rail; with {LEAVES} in {bucket_us[IB]:,.0f}, {bucket_us[ROCE]:,.0f} ({bucket_us[ROCE_ADAPTIVE]:,.0f} with "
        f"adaptive routing) and {bucket_us[TCP]:,.0f}."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw latency, the slowest message of a permutation, and all-reduce by size."""
    networks = finding.figures["networks"]
    colours = dict(zip(networks, ("#0b6fb8", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#7b8794"), strict=True))

    def bars(axes: Axes, figure: str, label: str) -> None:
        values = [each[figure] for each in networks.values()]
        places = -np.arange(len(networks))
        drawn = axes.barh(places, values, color=list(colours.values()), height=0.7)
        axes.bar_label(drawn, [f"{value:.3g}" for value in values], fontsize=8.5, padding=3)
        axes.set_yticks(places, list(networks))
        axes.grid(axis="y", visible=False)
        axes.set_xscale("log")
        axes.set_xlim(0.7 if figure == "worst_slowdown" else 0.5, max(values) * 3)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(label)

    with titled_chart(path, "InfiniBand and Ethernet", finding.ran, panels=3) as (latency, tail, reduce):
        bars(latency, "latency_us", "a small message, µs")
        bars(tail, "worst_slowdown", "last of a permutation, times alone")
        tail.set_yticklabels([])
        best_us = networks[IB_ADAPTIVE]["all_reduce_us"][LEAVES]
        for name, each in networks.items():
            times = [time_us / best_us[size] for size, time_us in each["all_reduce_us"][LEAVES].items()]
            reduce.plot(list(best_us), times, color=colours[name], linewidth=1.6, marker="o", markersize=2.5)
        reduce.set_xscale("log", base=2)
        reduce.set_xticks([1 << 3, 1 << 10, 1 << 20, 1 << 30], ["8 B", "1 KiB", "1 MiB", "1 GiB"])
        reduce.set_yscale("log")
        reduce.set_yticks([1, 2, 5, 10])
        reduce.yaxis.set_major_formatter("{x:g}")
        reduce.set_xlabel(f"all-reduce of {finding.figures['ranks']} GPUs, bytes")
        reduce.set_ylabel(f"times as long as {IB_ADAPTIVE}")
