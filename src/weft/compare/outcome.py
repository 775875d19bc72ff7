"""The result of a comparison: the times of each fabric, and in words the finding, its reasons and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from weft.collectives.kinds import Algorithm, Collective
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.estimate import Estimate
from weft.collectives.nccl.network import Networks, Pattern
from weft.collectives.ranks import compute_servers
from weft.compare.band import Band, band_of
from weft.compare.formatting import TIE, show_longer, show_time, show_usd, three, weakness
from weft.compare.job import Call, CollectiveJob
from weft.compare.published import Published
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.prices import Prices
from weft.plan.bill import Bill
from weft.sim.engine import Paths
from weft.sim.result import Result
from weft.units import gbyte_s
from weft.version import __version__

_INSIDE = {"NVLink": "NVLink", "PCIe": "PCIe", "channels": "the copies of NCCL's channels"}
_FULL = 0.88  # share of the line rate; an adapter above it is not limited elsewhere
_TREES = (Algorithm.TREE, Algorithm.NVLS_TREE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a curve."""

    at: int  # bytes, or servers
    time_us: float
    band: Band
    bus_gbyte_s: float

    def report(self, axis: str) -> dict[str, Any]:
        band_us = [self.band.low_us, self.band.high_us]
        return {axis: self.at, "time_us": self.time_us, "band_us": band_us, "bus_gbyte_s": self.bus_gbyte_s}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The result of one fabric."""

    interconnect: Interconnect
    fabric: Fabric
    template: catalog.Server  # with the fabric's card in its slots
    cluster: Cluster
    networks: Networks
    results: Mapping[Pattern, Result]  # runs on which the networks are based
    bill: Bill
    job: CollectiveJob
    estimates: tuple[Estimate, ...]  # one for each call of the job
    by_size: tuple[Point, ...]  # for the job's leading collective
    by_servers: tuple[Point, ...]  # for the job
    published: Published  # similar published measurements

    @property
    def time_us(self) -> float:
        return sum(call.count * estimate.time_us for call, estimate in self._each)

    @property
    def band(self) -> Band:
        """The 90 % interval around the time."""
        return band_of(self._each)

    @property
    def bus_gbyte_s(self) -> float:
        """The bandwidth of each rank's link over all calls, as in nccl-tests."""
        return self.job.bus_gbyte_s(self.cluster.ranks, self.time_us)

    @property
    def parts_us(self) -> dict[str, float]:
        """The parts of the time: launch, steps, pipeline, data."""
        total: dict[str, float] = {}
        for call, estimate in self._each:
            for part, us in estimate.parts.items():
                total[part] = total.get(part, 0.0) + call.count * us
        return total

    @property
    def leading(self) -> Estimate:
        """The call that takes the most time."""
        return max(self._each, key=lambda pair: pair[0].count * pair[1].time_us)[1]

    @property
    def pattern(self) -> Pattern:
        """The communication pattern of the leading call."""
        if self.leading.collective is Collective.ALL_TO_ALL:
            return Pattern.PAIRS
        return Pattern.TREE if self.leading.algorithm in _TREES else Pattern.RING

    @property
    def adapter_gbyte_s(self) -> float:
        """The largest payload rate of each adapter in the pattern of the leading call."""
        return self.networks[self.pattern].adapter_gbyte_s

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The cable between switches that limits the pattern of the leading call, if any."""
        return find_bottleneck(self.results[self.pattern])

    @property
    def bound(self) -> str:
        """The limit of the time: latency if data moves for less than half of it, otherwise the limit of the data."""
        return "latency" if 2 * self.parts_us.get("data", 0.0) < self.time_us else self.leading.bound

    @property
    def why(self) -> str:
        """The reason for the time, in a sentence or two."""
        moving = 100 * self.parts_us.get("data", 0.0) / self.time_us
        if self.bound == "latency":
            return (
                f"{100 - moving:.0f} % of the time is not data: GPUs start, fill their pipelines and wait for each "
                f"other, and a step between two servers takes {self.networks[self.pattern].step_us:.2g} µs."
            )
        if self.bound != "adapters":
            limit = _INSIDE.get(self.bound, self.bound)
            return f"{moving:.0f} % of the time is data, and the limit is {limit}, not the network."
        line_gbyte_s = gbyte_s(self.cluster.nic_gbit_s)
        carried = f"each of {self.cluster.nics} adapters carries {self.adapter_gbyte_s:.1f} of {line_gbyte_s:g} GB/s"
        return f"{moving:.0f} % of the time is data: {carried}{_held_up(self, line_gbyte_s)}."

    @property
    def _each(self) -> list[tuple[Call, Estimate]]:
        return list(zip(self.job.calls, self.estimates, strict=True))

    def report(self) -> dict[str, Any]:
        """Return the values as printed by `--json`."""
        bottleneck = self.bottleneck
        return {
            "fabric": self.interconnect.name,
            "label": self.interconnect.label,
            "spec": self.fabric.spec,
            "adapters": {
                "model": self.template.compute_adapter,
                "per_server": self.cluster.nics,
                "gbit_s": self.cluster.nic_gbit_s,
            },
            "time_us": self.time_us,
            **self.band.report(),
            "bus_gbyte_s": self.bus_gbyte_s,
            "parts_us": self.parts_us,
            "bound": self.bound,
            "algorithm": self.leading.algorithm,
            "protocol": self.leading.protocol,
            "channels": self.leading.channels,
            "why": self.why,
            "source": self.interconnect.source,
            "note": self.interconnect.note,
            "published": self.published.report(),
            "networks": {
                name: {"step_us": network.step_us, "adapter_gbyte_s": network.adapter_gbyte_s}
                for name, network in self.networks.items()
            },
            "bottleneck": {"port": bottleneck.port, "load": bottleneck.load} if bottleneck else None,
            "cost": self.bill.report(),
            "by_size": [point.report("size_bytes") for point in self.by_size],
            "by_servers": [point.report("servers") for point in self.by_servers],
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """The outcomes of all fabrics, in the requested order."""

    spec: str
    job: CollectiveJob
    servers: int
    gpus: int  # used by the job
    picked: str  # servers as requested; empty: all
    seed: int
    prices: Prices
    outcomes: tuple[Outcome, ...]

    @property
    def fastest_first(self) -> tuple[Outcome, ...]:
        return tuple(sorted(self.outcomes, key=lambda outcome: outcome.time_us))

    @property
    def fastest(self) -> Outcome:
        return self.fastest_first[0]

    @property
    def slowest(self) -> Outcome:
        return self.fastest_first[-1]

    def speedup(self, outcome: Outcome) -> float:
        """Return the speed relative to the slowest fabric."""
        return self.slowest.time_us / outcome.time_us

    @property
    def finding(self) -> str:
        """The finding: one sentence on time, one on money."""
        best, worst = self.fastest, self.slowest
        takes = "takes" if sum(call.count for call in self.job.calls) == 1 else "take"
        time = f"{show_time(best.time_us)} ({three(best.bus_gbyte_s)} GB/s bus bandwidth)"
        sentence = f"On {self.gpus:,} GPUs {self.job} {takes} {time} with {best.interconnect.label}"
        if worst is not best:
            sentence += f", and {_longer(worst, best)} with {worst.interconnect.label}"
        return f"{sentence}. {_money(self)}".strip()

    @property
    def trust(self) -> str:
        """Describe the evidence behind the figures, and the effects that are not modelled."""
        far = dict.fromkeys(reason for outcome in self.outcomes for reason in outcome.band.far)
        extrapolated = f"Far from anything published: {'; '.join(far)}. " if far else ""
        engine = self.fastest.results[self.fastest.pattern].engine
        return (
            f"{self._published_errors} Some of these runs were used for calibration. Bands are 90 % intervals from "
            f"errors against published runs. {extrapolated}The {engine} engine gives rates and latencies over each "
            "fabric's routes; times are closed forms for NCCL's choice of algorithm on an idle network. Not modelled: "
            "congestion control, pauses and losses, which slow RoCE and TCP under incast; SHARP; jitter; overlap with "
            f"computation. {weakness([outcome.bill for outcome in self.outcomes])}"
        )

    @property
    def short_trust(self) -> str:
        """Describe the evidence behind the figures in one line."""
        return f"{self._published_errors} {weakness([outcome.bill for outcome in self.outcomes])}"

    @property
    def _published_errors(self) -> str:
        checked = [outcome for outcome in self.outcomes if outcome.published.runs]
        unchecked = [outcome.interconnect.name for outcome in self.outcomes if not outcome.published.runs]
        sentences = []
        if checked:
            errors = ", ".join(
                f"{outcome.interconnect.name} {100 * outcome.published.worst:.0f} %" for outcome in checked
            )
            servers = max(outcome.published.servers for outcome in checked)
            sentences.append(f"Largest error against published nccl-tests runs (up to {servers} servers): {errors}.")
        if unchecked:
            sentences.append(f"No published run of {', '.join(unchecked)}.")
        headlines = [outcome.interconnect.name for outcome in self.outcomes if outcome.interconnect.headlines_only]
        if headlines:
            sentences.append(f"Vendors' headlines only, with packets spread perfectly here: {', '.join(headlines)}.")
        return " ".join(sentences)

    def report(self) -> dict[str, Any]:
        """Return the values as printed by `--json`."""
        return {
            "weft": __version__,
            "spec": self.spec,
            "job": self.job.name,
            "calls": [asdict(call) for call in self.job.calls],
            "servers": self.servers,
            "gpus": self.gpus,
            "seed": self.seed,
            "prices": str(self.prices.path or ""),
            "finding": self.finding,
            "trust": self.trust,
            "fabrics": [{**each.report(), "speedup": self.speedup(each)} for each in self.outcomes],
        }


# -- in words ----------------------------------------------------------------------------------------------------------


def _money(comparison: Comparison) -> str:
    """Return the price of the fastest fabric, and of the cheapest of the next fastest that cost less."""
    priced = [outcome for outcome in comparison.outcomes if outcome.bill.complete]
    if not priced:
        return (
            "The catalog has no price for any of them." if len(comparison.outcomes) > 1 else "The catalog has no price."
        )
    best = min(priced, key=lambda outcome: outcome.time_us)
    present = len(compute_servers(best.fabric))
    whole = f" of all {present:,} servers" if present > comparison.servers else ""
    slower = "" if best is comparison.fastest else f" ({_longer(best, comparison.fastest)})"
    sentence = f"The {best.interconnect.label} fabric{whole}{slower} costs {show_usd(best.bill)} USD"
    cheaper = [outcome for outcome in priced if outcome.bill.high_usd < best.bill.high_usd]
    if not cheaper:
        return f"{sentence}{', the lowest of all that have a price' if len(priced) > 1 else ''}."
    least_us = min(outcome.time_us for outcome in cheaper)
    other = min(
        (outcome for outcome in cheaper if outcome.time_us <= (1 + TIE) * least_us),
        key=lambda outcome: outcome.bill.high_usd,
    )
    return (
        f"{sentence}; {other.interconnect.label} takes {_longer(other, comparison.fastest)} "
        f"and costs {show_usd(other.bill)}."
    )


def _longer(outcome: Outcome, best: Outcome) -> str:
    return show_longer(outcome.time_us / best.time_us)


def _held_up(outcome: Outcome, line_gbyte_s: float) -> str:
    """Describe the reason why an adapter does not reach its line rate."""
    if outcome.adapter_gbyte_s > _FULL * line_gbyte_s:
        return ", so the link rate is the limit"
    if outcome.interconnect.network == "tcp":
        return (
            ", because the kernel copies every byte and one core copies for a connection; NCCL opens more of them with "
            "NCCL_NSOCKS_PERTHREAD, which is not modelled"
        )
    if outcome.bottleneck is not None:
        return f". {outcome.bottleneck}"
    card = outcome.template.adapter
    slot = outcome.template.slot(card)
    if slot != card.pcie_per_port:
        return f", because the server's slots are {slot} and the card supports {card.pcie_per_port}"
    return ""


_BOTTLENECK_LOAD = 1.05  # relative to the load of the busiest adapter's own cable


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """A switch port towards another switch with more load than any adapter."""

    port: str  # `leaf3/33`
    switch: str
    peer: str  # the switch at the other end
    choices: int  # ports of the switch that lead to other switches
    load: float  # its load over that of the busiest adapter: 2 makes both half as fast
    paths: str

    def __str__(self) -> str:
        adapters = f"what {self.load:.2g} adapters send"
        if self.paths == Paths.ECMP:
            return (
                f"Flows that hash to the same port share it: {self.port}, to {self.peer}, one of {self.choices} such "
                f"ports of {self.switch}, has to carry {adapters}"
            )
        if self.paths == Paths.TABLE:
            return f"The forwarding tables put {adapters} on one cable: {self.port}, to {self.peer}"
        return f"There are too few cables between switches: {self.port}, to {self.peer}, has to carry {adapters}"


def find_bottleneck(result: Result) -> Bottleneck | None:
    """Return the busiest cable between switches if it has more load, in time, than the busiest adapter."""
    fabric, busy_ps = result.fabric, result.use.busy_ps
    link = fabric.ports.link
    plugged = (link >= 0) & fabric.network_links[np.maximum(link, 0)]
    is_switch = fabric.nodes.kind[fabric.ports.node] == NodeKind.SWITCH
    trunk = plugged & is_switch
    trunk[plugged] &= is_switch[fabric.ports.peer[plugged]]
    most_ps = int(busy_ps[plugged & ~is_switch].max(initial=0))
    if not trunk.any() or not most_ps:
        return None
    worst = int(np.where(trunk, busy_ps, -1).argmax())
    load = float(busy_ps[worst]) / most_ps
    if load < _BOTTLENECK_LOAD:
        return None
    port = fabric.port(worst)
    assert port.peer is not None
    assert result.options.paths is not None
    return Bottleneck(
        port=port.name,
        switch=port.node.name,
        peer=port.peer.node.name,
        choices=int(trunk[fabric.ports.node == port.node.index].sum()),
        load=load,
        paths=result.options.paths,
    )
