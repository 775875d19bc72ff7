"""The figures of a run: its title, the goodput of every sender, the busiest links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.routing.patterns import host_ports
from weft.sim.engine import Options
from weft.sim.result import NEVER, Result
from weft.sim.traffic import Traffic


def goodput_per_sender_gbit_s(result: Result) -> NDArray[np.float64]:
    """Return the goodput of each sender:

    its delivered payload over the time from its first start to its last arrival.
    """
    arrived = result.finish_ps != NEVER
    slots, sender = np.unique(result.traffic.src[arrived], return_inverse=True)
    begin, end = np.full(len(slots), np.iinfo(np.int64).max), np.zeros(len(slots), np.int64)
    np.minimum.at(begin, sender, result.start_ps[arrived])
    np.maximum.at(end, sender, result.finish_ps[arrived])
    size_bytes = np.bincount(sender, result.traffic.size_bytes[arrived], minlength=len(slots))
    rates: NDArray[np.float64] = size_bytes * 8_000 / np.maximum(end - begin, 1)
    return rates


def headline(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the main figures of a run, as (label, text)."""
    report = result.report()
    size = format_size(result.traffic.total_bytes)
    yield "messages", f"{report['delivered']:,} of {report['messages']:,} delivered, {size} in all"
    skipped = f", of which {report['skipped_ps'] / 1e6:,.3f} carried forward" if report["skipped_ps"] else ""
    yield "time", f"{report['last_arrival_ps'] / 1e6:,.3f} µs{skipped}"
    if report["delivered"]:
        each = goodput_per_sender_gbit_s(result)
        yield "goodput", f"{report['goodput_gbit_s']:,.1f} Gbit/s"
        yield (
            "  a sender",
            f"min {each.min():,.1f}, mean {each.mean():,.1f}, max {each.max():,.1f} Gbit/s ({len(each):,})",
        )
        us = report["latency_us"]
        yield "latency", f"min {us['min']:,.3f}, median {us['p50']:,.3f}, p99 {us['p99']:,.3f}, max {us['max']:,.3f} µs"
    trouble = ["retransmitted", "corrupted_packets", "dropped_packets", "marked_packets"]
    if report["trimmed_packets"]:
        trouble.insert(3, "trimmed_packets")
    counts = ", ".join(f"{report[name]:,} {name.removesuffix('_packets')}" for name in trouble)
    yield "packets", f"{report['packets']:,} with acknowledgements; {counts}; {report['pauses']:,} pauses"
    if result.trust:
        yield "trust", str(result.trust)
    if report["watched"]:
        yield (
            "queues",
            "; ".join(
                f"{name} at most {format_size(port['most_queue_bytes'])}" for name, port in report["watched"].items()
            ),
        )


def carried_load(result: Result) -> float:
    """Return the share of the hosts' line rate that arrived as payload in the second half of the sending time.

    The first half fills the fabric; messages still in flight at the end would make any load look lighter.
    """
    fabric = result.fabric
    hosts = host_ports(fabric)
    line_gbit_s = fabric.planes * float(fabric.link_rate_gbit_s[fabric.ports.link[hosts]].sum())
    end_ps = int(result.start_ps.max())
    within = (result.finish_ps > end_ps // 2) & (result.finish_ps <= end_ps)
    return float(result.traffic.size_bytes[within].sum()) * 8_000 / max(end_ps - end_ps // 2, 1) / line_gbit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """The use of one port during a run."""

    port: str
    peer: str
    gbit_s: float  # including headers
    utilisation: float
    wait_us: float  # had packets, but no credit or was paused
    queue_peak_bytes: int


def busiest_links(result: Result, count: int) -> list[LinkUse]:
    """Return the ports that sent most of the time; of equally busy ports, those that waited longest."""
    fabric, use, utilisation = result.fabric, result.use, result.utilisation
    order = np.lexsort((-use.xmit_wait_ps, -utilisation))[:count]
    return [
        LinkUse(
            port=fabric.port(slot).name,
            peer=fabric.port(int(fabric.ports.peer[slot])).name,
            gbit_s=float(use.xmit_bytes[slot]) * 8_000 / max(result.last_arrival_ps, 1),
            utilisation=float(utilisation[slot]),
            wait_us=float(use.xmit_wait_ps[slot]) / 1e6,
            queue_peak_bytes=int(use.queue_peak_bytes[slot]),
        )
        for slot in order.tolist()
        if use.xmit_packets[slot] > 0
    ]


def name_fabric(fabric: Fabric) -> str:
    """Return the name of a fabric and the changes made to it."""
    return ", ".join((Path(fabric.spec).name, *fabric.changes))


def describe_traffic(traffic: Traffic) -> str:
    """Describe traffic: `shift by 1: 32 messages of 1 MiB`."""
    sizes = np.unique(traffic.size_bytes)
    size = f"of {format_size(int(sizes[0]))}" if len(sizes) == 1 else f"with {format_size(traffic.total_bytes)} in all"
    messages = "1 message" if len(traffic) == 1 else f"{len(traffic):,} messages"
    return f"{traffic.description}: {messages} {size}" if traffic.description else f"{messages} {size}"


def describe_run(options: Options) -> str:
    """Describe the options of a run: `infiniband, paths adaptive, MTU 4096, seed 1`."""
    return f"{options.network}, paths {options.paths}, MTU {options.mtu_bytes}, seed {options.seed}"


def format_size(size_bytes: int) -> str:
    """Format a size with four digits: `64 KiB`, `1.5 MiB`."""
    unit_bytes, unit = 1, "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size_bytes >= 1024 * unit_bytes:
            unit_bytes, unit = 1024 * unit_bytes, larger
    return f"{size_bytes / unit_bytes:.4g} {unit}"
