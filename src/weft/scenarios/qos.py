"""MPI messages under storage load: one virtual lane against two.

    leaf1   storage, rank, storage, rank  --+
    leaf2   storage, rank, storage, rank  --+-- spines -- leaf4 -- h16: reads a file, and is a rank too
    leaf3   storage, rank, storage, rank  --+

h16 reads a file that is striped over storage servers: together they send faster than its port, so that the input
buffers of the switches on the path fill up. Ranks send it small messages at random times. On one lane such a message
waits behind all those buffers. On a lane with its own buffers it waits at most for the packet that is on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.routing.route import route
from weft.scenarios.experiment import run_packets
from weft.scenarios.finding import COLOURS, Finding
from weft.sim.engine import Options
from weft.sim.result import Result
from weft.sim.under_load import UnderLoad, line_gbit_s

CLAIM = (
    "The latency-sensitive MPI traffic shouldn't be blocked by bulk data transfers. Getting the QoS policy right is "
    "the difference between a fabric that works and one that works until it doesn't."
)
SOURCE = "InfiniBand Is Not Magic. Here's What It Actually Does."
SPEC = "fat-tree:hosts=16,radix=8"
READER = "h16"
STORAGE = ("h1", "h5", "h9", "h3", "h7", "h11")  # alternating between leaves
RANKS = ("h2", "h6", "h10", "h4", "h8", "h12")
STORAGE_SL, MPI_SL = 0, 1
STORAGE_VL, MPI_VL = 0, 1
NO_LIMIT = 255  # unlimited high priority: the other lane gets only the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class QosPolicy:
    """The VL settings for service level 1, and whether there is storage traffic."""

    name: str
    storage: bool = True
    lanes: int = 1
    first: int | None = None  # the VL with high priority; None: lanes take turns


POLICIES = (
    QosPolicy(name="no storage traffic", storage=False),
    QosPolicy(name="one lane"),
    QosPolicy(name="two lanes, in turn", lanes=2),
    QosPolicy(name="two lanes, MPI first", lanes=2, first=MPI_VL),
    QosPolicy(name="two lanes, storage first", lanes=2, first=STORAGE_VL),
)
IDLE, ONE, TURNS, FIRST, LAST = (policy.name for policy in POLICIES)


def run(
    *,
    servers: Annotated[int, "Storage servers that send at the same time, 1 to 6."] = 6,
    messages: Annotated[int, "Total number of MPI messages."] = 600,
    size_bytes: Annotated[int, "Size of an MPI message in bytes: 64, 16K."] = 64,
    buffer_bytes: Annotated[int, "Input buffer of each port and lane in bytes; 0 for the default."] = 0,
    seed: Annotated[int, "Random seed for the times at which ranks send."] = 1,
) -> Finding:
    """Measure the latency of MPI messages under each policy, with so many active storage servers."""
    arguments = {
        "servers": servers,
        "messages": messages,
        "size_bytes": size_bytes,
        "buffer_bytes": buffer_bytes,
        "seed": seed,
    }
    if not 1 <= servers <= len(STORAGE):
        raise ConfigError(f"--servers must be 1 to {len(STORAGE)}, got {servers}")
    if messages < len(RANKS):
        raise ConfigError(f"--messages must be {len(RANKS)} or more (one per rank), got {messages}")
    results = {policy.name: _run_one(policy, arguments) for policy in POLICIES}
    figures = _figures(results, _load(POLICIES[0], arguments))
    rows = tuple(
        (name, *(figures[column][name] for column in ("p50_us", "p99_us", "max_us", "storage_gbit_s")))
        for name in results
    )
    return Finding(
        scenario="qos",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{SPEC}: {READER} reads from {servers} storage servers, 6 ranks send it {messages} messages of "
        f"{size_bytes:,} bytes in all",
        columns=("lanes", "p50 µs", "p99 µs", "max µs", "storage Gbit/s"),
        rows=rows,
        finding=_sentence(servers, size_bytes, figures),
        trust="The wait on one lane is proportional to the buffers, and vendors do not publish theirs: --buffer sets "
        "them, the default is two round trips of the cable and four packets for each port and lane. The order of the "
        "policies does not depend on it.",
        options=arguments,
        figures=figures,
    )


def _run_one(policy: QosPolicy, arguments: dict[str, Any]) -> Result:
    fabric = route(load(SPEC)).fabric
    write_policy(fabric, policy)
    traffic = _load(policy, arguments).traffic(fabric, policy.name)
    return run_packets(fabric, traffic, Options(seed=arguments["seed"], buffer_bytes=arguments["buffer_bytes"]))


def write_policy(fabric: Fabric, policy: QosPolicy) -> None:
    """Write SL to VL and VL arbitration of all ports, as a subnet manager would."""
    if policy.lanes == 1:
        return
    tables = fabric.tables
    tables.sl2vl[:, MPI_SL] = MPI_VL  # every path through every switch, and every adapter
    if policy.first is not None:
        low, high = 0, 1  # tables; a weight of 64 is 4 KiB
        tables.vl_arbitration[:, high, 0] = (policy.first, 64)
        tables.vl_arbitration[:, low, 0] = (MPI_VL if policy.first == STORAGE_VL else STORAGE_VL, 64)
        tables.vl_high_limit[:] = NO_LIMIT


def _load(policy: QosPolicy, arguments: dict[str, Any]) -> UnderLoad:
    return UnderLoad(
        receiver=READER,
        ranks=RANKS,
        bulk=STORAGE[: arguments["servers"]] if policy.storage else (),
        messages=arguments["messages"],
        size_bytes=arguments["size_bytes"],
        sl=MPI_SL,
        bulk_sl=STORAGE_SL,
        seed=arguments["seed"],
    )


def _figures(results: dict[str, Result], load: UnderLoad) -> dict[str, Any]:
    latency_us = {name: load.latency_us(result) for name, result in results.items()}
    shared = results[ONE]
    at_switch = shared.fabric.nodes.kind[shared.fabric.ports.node] == NodeKind.SWITCH
    buffers_bytes = int(shared.use.buffer_peak_bytes[at_switch].sum())
    gbit_s = line_gbit_s(shared.fabric, READER)
    percents = np.arange(0, 101)
    return {
        "p50_us": {name: _percentile(latencies, 50) for name, latencies in latency_us.items()},
        "p99_us": {name: _percentile(latencies, 99) for name, latencies in latency_us.items()},
        "max_us": {name: _percentile(latencies, 100) for name, latencies in latency_us.items()},
        "storage_gbit_s": {name: load.bulk_gbit_s(result) for name, result in results.items()},
        "full_buffers_bytes": buffers_bytes,
        "full_buffers_us": buffers_bytes * 8e-3 / gbit_s,
        "line_gbit_s": gbit_s,
        "percentiles_us": {name: np.percentile(latencies, percents).tolist() for name, latencies in latency_us.items()},
    }


def _percentile(latencies: NDArray[np.float64], percent: float) -> float:
    return float(np.percentile(latencies, percent))


def _sentence(servers: int, size_bytes: int, figures: dict[str, Any]) -> str:
    p50, p99, storage = figures["p50_us"], figures["p99_us"], figures["storage_gbit_s"]
    streams = f"{servers} storage streams" if servers > 1 else "One storage stream"
    return (
        f"{streams} into the same port take the median latency of a {size_bytes:,}-byte message from "
        f"{p50[IDLE]:.2f} to {p50[ONE]:.2f} µs on one lane: it stands behind "
        f"{figures['full_buffers_bytes'] / 1e3:,.0f} kB of filled buffers, {figures['full_buffers_us']:.1f} µs of that "
        f"port's time. On a lane of its own it takes {p50[TURNS]:.2f} µs (p99 {p99[TURNS]:.2f}) when the lanes take "
        f"turns and {p50[FIRST]:.2f} µs (p99 {p99[FIRST]:.2f}) when MPI goes first, and storage still gets "
        f"{storage[FIRST]:.0f} of {storage[ONE]:.0f} Gbit/s. Two lanes with the wrong one first are worse than one: "
        f"{p50[LAST]:,.0f} µs, until the file has been read."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw the distribution of latencies."""
    curves, medians = finding.figures["percentiles_us"], finding.figures["p50_us"]
    with titled_chart(path, "MPI messages while a node reads from storage", finding.ran) as (axes,):
        for (name, latencies), colour in zip(curves.items(), COLOURS, strict=True):
            axes.plot(
                latencies,
                np.arange(101),
                color=colour,
                linewidth={IDLE: 7.0, TURNS: 3.5}.get(name, 1.8),  # the curves overlap
                alpha=0.4 if name == IDLE else 1,
                label=f"{name}: median {medians[name]:,.2f} µs",
            )
        axes.set_xscale("log")
        longest = max(latencies[-1] for latencies in curves.values())
        axes.set_xticks([at for at in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if at <= longest])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("latency of an MPI message, µs")
        axes.set_ylabel("messages at most as slow, %")
        axes.legend(loc="upper left", bbox_to_anchor=(0.38, 0.9))
