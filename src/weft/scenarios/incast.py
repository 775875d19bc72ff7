"""Incast: many hosts send to one, and a victim flow goes to another host.

    leaf1   far senders, victim's sender  --- trunk ---  leaf2   near senders, victim's receiver, hot receiver
                                         (by a spine)

The victim has its own ports at both ends and shares only the trunk, which the senders do not fill. On a lossless
network the port of the hot receiver causes backpressure: the input buffer at the end of the trunk fills with packets
for the hot receiver, and the victim's packets wait for space in it. Congestion control should keep that buffer empty; a
network that drops packets has no backpressure.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from weft.draw.chart import GRID, titled_chart
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.scenarios.experiment import run_packets
from weft.scenarios.finding import Finding
from weft.sim.engine import CongestionControl, Network, Options
from weft.sim.result import Result
from weft.sim.traffic import Traffic, find_host_port

CLAIM = (
    "Congestion | InfiniBand NDR: credit-based | 400G Ethernet: drop-based. [InfiniBand is a] lossless fabric with "
    "hardware-based congestion management. [For RoCE] you need lossless Ethernet configuration (PFC/ECN)."
)
SOURCE = "a glossary page; What is InfiniBand?; InfiniBand Is Not Magic. Here's What It Actually Does."
PIECE_BYTES = 64 * 1024  # pieces of the victim: small enough to show its progress
ALONE_PIECES = 512
COLUMNS = (
    "network",
    "incast ms",
    "victim alone Gbit/s",
    "victim Gbit/s",
    "slowdown",
    "pauses",
    "marked",
    "dropped",
    "sent again",
)
INFINIBAND, ETHERNET = "NDR", "400GbE"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncastNetwork:
    """A network, on the same cabling as the others."""

    name: str
    speed: str
    network: Network
    control: CongestionControl = CongestionControl.NONE


KINDS = (
    IncastNetwork(name="InfiniBand, credits", speed=INFINIBAND, network=Network.INFINIBAND),
    IncastNetwork(
        name="InfiniBand, congestion control",
        speed=INFINIBAND,
        network=Network.INFINIBAND,
        control=CongestionControl.IB,
    ),
    IncastNetwork(name="RoCE, PFC", speed=ETHERNET, network=Network.ROCE),
    IncastNetwork(name="RoCE, PFC and DCQCN", speed=ETHERNET, network=Network.ROCE, control=CongestionControl.DCQCN),
    IncastNetwork(name="TCP", speed=ETHERNET, network=Network.TCP),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The role of each host."""

    far: tuple[str, ...]
    near: tuple[str, ...]
    hot: str
    victim: tuple[str, str]
    spec: str  # without the speed

    @property
    def senders(self) -> tuple[str, ...]:
        return self.far + self.near


@dataclass(frozen=True, slots=True, kw_only=True)
class IncastFigures:
    """The figures of one network."""

    incast_ms: float
    alone_gbit_s: float  # the victim without other traffic
    victim_gbit_s: float  # while all senders send
    all_send_ms: float  # duration of that phase
    pauses: int
    marked: int
    dropped: int
    sent_again: int
    victim_ms: list[float]  # arrival time of each piece
    queue_ms: list[float]
    queue_bytes: list[int]  # at the hot receiver's port

    @property
    def slowdown(self) -> float:
        return self.alone_gbit_s / self.victim_gbit_s if self.victim_gbit_s else float("inf")


def run(
    *,
    senders: Annotated[int, "Hosts that send to one receiver; half of them from another leaf."] = 8,
    size_bytes: Annotated[int, "Bytes that each host sends: 16M."] = 16 << 20,
    buffer_bytes: Annotated[int, "Input buffer of each port in bytes, on Ethernet; 0 for the default."] = 0,
    seed: Annotated[int, "Random seed for the marking."] = 1,
) -> Finding:
    """Run the incast of `size_bytes` from each sender to the hot receiver, on each network in turn."""
    if not 2 <= senders <= 64:
        raise ConfigError(f"--senders must be 2 to 64, got {senders}")
    if size_bytes < PIECE_BYTES:
        raise ConfigError(f"--size must be {PIECE_BYTES} bytes or more, got {size_bytes}: less causes no backpressure")
    roles = assign_roles(senders)
    arguments = {"senders": senders, "size_bytes": size_bytes, "buffer_bytes": buffer_bytes, "seed": seed}
    measured = {kind.name: _measure(kind, roles, arguments) for kind in KINDS}
    return Finding(
        scenario="incast",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{roles.spec}: {senders} hosts send {size_bytes / 1e6:,.1f} MB each to {roles.hot}, "
        f"{len(roles.far)} of them over the trunk; the victim sends from {roles.victim[0]} to {roles.victim[1]}",
        columns=COLUMNS,
        rows=tuple(_row(name, figures) for name, figures in measured.items()),
        finding=_sentence(roles, measured),
        trust="Without congestion control the victim's share follows from who holds how much of which buffer, and that "
        "holds for real switches. Congestion control is one setting of many: real fabrics tune thresholds and rate "
        "steps, and the result moves with them. TCP is limited by the kernels of the hosts here, not by the network.",
        options=arguments,
        figures=_figures(roles, measured),
    )


def _row(name: str, figures: IncastFigures) -> tuple[str | int | float, ...]:
    rates = figures.incast_ms, figures.alone_gbit_s, figures.victim_gbit_s, figures.slowdown
    return name, *rates, figures.pauses, figures.marked, figures.dropped, figures.sent_again


def assign_roles(senders: int) -> Roles:
    """Assign roles on two leaves with one uplink each, so that every network has one path; leaves fill up in order."""
    n_far = senders // 2
    n_near = senders - n_far
    down = max(n_far + 1, n_near + 2)
    return Roles(
        far=tuple(f"h{i}" for i in range(1, n_far + 1)),
        near=tuple(f"h{down + i}" for i in range(1, n_near + 1)),
        hot=f"h{2 * down}",
        victim=(f"h{n_far + 1}", f"h{2 * down - 1}"),
        spec=f"fat-tree:hosts={2 * down},levels=2,radix={down + 1},oversubscription={down}",
    )


def _measure(kind: IncastNetwork, roles: Roles, arguments: dict[str, Any]) -> IncastFigures:
    fabric = route(load(f"{roles.spec},speed={kind.speed}"), RoutingOptions(adaptive=True)).fabric
    n = len(roles.senders)
    pieces = n * arguments["size_bytes"] // PIECE_BYTES
    incast = [(sender, roles.hot, arguments["size_bytes"]) for sender in roles.senders]
    piece = (*roles.victim, PIECE_BYTES)
    hot = _switch_port(fabric, roles.hot)
    alone = _run(fabric, [piece] * ALONE_PIECES, kind, arguments)
    result = _run(fabric, [*incast, *[piece] * pieces], kind, arguments, watch=(hot,))
    senders_ps, victim_ps = result.finish_ps[:n], result.finish_ps[n:]
    until_ps = int(senders_ps.min())
    use = result.use
    return IncastFigures(
        incast_ms=float(senders_ps.max()) / 1e9,
        alone_gbit_s=_rate_gbit_s(alone.finish_ps, alone.last_arrival_ps),
        victim_gbit_s=_rate_gbit_s(victim_ps, min(until_ps, int(victim_ps.max()))),
        all_send_ms=until_ps / 1e9,
        pauses=int(use.pauses.sum()),
        marked=int(use.marked_packets.sum()),
        dropped=int(use.dropped_packets.sum()),
        sent_again=int(result.retransmitted.sum()),
        victim_ms=(np.sort(victim_ps) / 1e9).tolist(),
        queue_ms=(result.samples.time_ps / 1e9).tolist(),
        queue_bytes=result.samples.queue_bytes[:, 0].tolist(),
    )


def _run(
    fabric: Fabric,
    rows: list[tuple[str, str, int]],
    kind: IncastNetwork,
    arguments: dict[str, Any],
    watch: tuple[str, ...] = (),
) -> Result:
    options = Options(
        seed=arguments["seed"],
        network=kind.network,
        congestion_control=kind.control,
        buffer_bytes=arguments["buffer_bytes"],
        watch=watch,
        watch_every_ps=10_000_000,
    )
    return run_packets(fabric, Traffic.of(fabric, rows, description=kind.name), options)


def _switch_port(fabric: Fabric, host: str) -> str:
    """Return the switch port of a host's cable."""
    return fabric.port(int(fabric.ports.peer[find_host_port(fabric, host)])).name


def _rate_gbit_s(finish_ps: NDArray[np.int64], until_ps: int) -> float:
    return int((finish_ps <= until_ps).sum()) * PIECE_BYTES * 8_000 / until_ps


def _figures(roles: Roles, measured: dict[str, IncastFigures]) -> dict[str, Any]:
    points = np.linspace(0, 1, 61)
    figures: dict[str, Any] = {
        # The inputs of leaf2 share the hot port evenly, and the trunk is one of them. The victim gets the same share
        # of the trunk as each far sender.
        "expected_slowdown_without_control": (len(roles.near) + 1) * len(roles.far),
        "slowdown": {name: each.slowdown for name, each in measured.items()},
        "alone_gbit_s": {name: each.alone_gbit_s for name, each in measured.items()},
        "victim_gbit_s": {name: each.victim_gbit_s for name, each in measured.items()},
        "incast_ms": {name: each.incast_ms for name, each in measured.items()},
        "curves": {},
    }
    for name, each in measured.items():
        time_ms = points * each.all_send_ms
        arrived = np.searchsorted(each.victim_ms, time_ms, side="right")
        queue = np.interp(time_ms, each.queue_ms, each.queue_bytes) if each.queue_ms else np.zeros(len(time_ms))
        figures["curves"][name] = {
            "time_ms": time_ms.tolist(),
            "victim_mb": (arrived * PIECE_BYTES / 1e6).tolist(),
            "queue_kb": (queue / 1e3).tolist(),
        }
    return figures


def _sentence(roles: Roles, measured: dict[str, IncastFigures]) -> str:
    plain, control, pfc, dcqcn, tcp = (measured[kind.name] for kind in KINDS)

    def gets(figures: IncastFigures) -> str:
        return f"{figures.victim_gbit_s:.0f} of {figures.alone_gbit_s:.0f} Gbit/s ({figures.slowdown:.1f} times slower)"

    return (
        f"While all {len(roles.senders)} send, the victim gets {gets(plain)} with InfiniBand's credits alone and "
        f"{gets(pfc)} with PFC alone: a lossless network without congestion control makes bystanders wait, InfiniBand "
        f"as much as Ethernet. With congestion control it gets {gets(control)} on InfiniBand and {gets(dcqcn)} with "
        f"DCQCN. The incast itself takes {plain.incast_ms:.2f} ms with credits and {control.incast_ms:.2f} with their "
        f"congestion control, {pfc.incast_ms:.2f} with PFC and {dcqcn.incast_ms:.2f} with DCQCN. TCP drops "
        f"{tcp.dropped:,} packets, gives the victim {gets(tcp)}, and takes {tcp.incast_ms:.1f} ms."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw the victim's rate, and the queue at the receiver over time."""
    figures = finding.figures
    curves = figures["curves"]
    colours = ("#d55e00", "#e69f00", "#0b6fb8", "#009e73", "#7b8794")
    title = f"{finding.options['senders']} send to one, and a victim shares only the trunk"
    with titled_chart(path, title, finding.ran, panels=2) as (left, right):
        places = -np.arange(len(curves))
        left.barh(places, list(figures["alone_gbit_s"].values()), color=GRID, height=0.7)
        bars = left.barh(places, list(figures["victim_gbit_s"].values()), color=colours, height=0.7)
        left.bar_label(bars, [f"{slow:.1f} × slower" for slow in figures["slowdown"].values()], fontsize=8.5, padding=4)
        left.set_yticks(places, list(curves))
        left.grid(axis="y", visible=False)
        left.set_xlabel("victim's rate while all send, Gbit/s (pale: alone)")
        for curve, colour in zip(curves.values(), colours, strict=True):
            right.plot(curve["time_ms"], curve["queue_kb"], color=colour, linewidth=1.4)
        right.set_xlim(0, max(curve["time_ms"][-1] for name, curve in curves.items() if name != KINDS[-1].name))
        right.set_ylim(bottom=0)
        right.set_xlabel("ms, until the first sender is done")
        right.set_ylabel("waiting at the hot receiver's port, kB")
