"""One network for compute and storage, or two: collectives beside reads from storage, and the bill of both.

    leaf1   7 servers, 1 storage server  --+
    leaf2   7 servers, 1 storage server  --+-- spines        each server sends a message to one on the next leaf
    leaf3   ...                                              (a step of a ring) while all of them read files

On two networks the messages have their ports alone. On one they share ports, switches and buffers with the reads: on
one virtual lane, or on a lane of their own, by weights or first. The bill joins the same servers both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.model import Fabric
from weft.fabric.prices import read_prices
from weft.fabric.spec import load
from weft.plan import networks
from weft.plan.floor.racks import place
from weft.plan.floor.room import Room
from weft.plan.networks import plan_compute, plan_storage
from weft.routing.route import route
from weft.scenarios.experiment import run_packets
from weft.scenarios.finding import COLOURS, Finding
from weft.sim.engine import Network, Options
from weft.sim.result import Result
from weft.sim.traffic import Traffic

CLAIM = "With Ethernet adopting RoCEv2 and CXL, convergence is emerging: switches that support both."
SOURCE = "How InfiniBand Powers AI Training"
SPEC = "fat-tree:hosts=32,radix=16"
LEAF_HOSTS, LEAVES = 8, 4
STORAGE = tuple(f"h{LEAF_HOSTS * leaf}" for leaf in range(1, LEAVES + 1))  # the last host of each leaf
SERVERS = tuple(f"h{n}" for n in range(1, LEAF_HOSTS * LEAVES + 1) if n % LEAF_HOSTS)
STORAGE_VL, COLLECTIVE_VL = 0, 1
STRIPE_BYTES = 1 << 16
FULL_PS = 20_000_000  # reads have filled the buffers by then, and messages start
_PACKET_UNITS = 65  # weight of one packet of 4 KiB and its headers, in 64 bytes
YEARS, HOURS_PER_YEAR = 4, 8_760  # of use
_MOST_READ = 4  # reads last so many times as long as the messages take alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """A way to carry both kinds of traffic."""

    name: str
    reads: bool = True
    weights: tuple[int, int] | None = None  # packets of collectives and of storage in turn; None: one lane
    first: bool = False  # collectives before storage, whatever the weights


TWO = Sharing(name="two networks", reads=False)
ONE_LANE = Sharing(name="one network, one lane")
NINE_TO_ONE = Sharing(name="one network, lanes 9 to 1", weights=(9, 1))
FIRST = Sharing(name="one network, collectives first", weights=(1, 1), first=True)
SHARINGS = (TWO, ONE_LANE, NINE_TO_ONE, FIRST)


def run(
    *,
    size_bytes: Annotated[int, "Size of a message of the collective in bytes: 1M, 4M."] = 4 << 20,
    gpus: Annotated[int, "GPUs of the cluster whose bill is compared, 64 to 4096."] = 512,
    storage: Annotated[int, "Storage servers of that cluster, each with two ports."] = 16,
    fabric: Annotated[str, "Fabric of the catalog for both: ndr, roce-400."] = "ndr",
    gpu_hour_usd: Annotated[float, "Value of an hour of a GPU in dollars.", "--gpu-hour"] = 2.5,
    seed: Annotated[int, "Random seed of the run."] = 1,
) -> Finding:
    """Compare two networks with one network on one lane and with lanes: time, storage rate, bill and power."""
    arguments = {"size_bytes": size_bytes, "gpus": gpus, "storage": storage, "fabric": fabric}
    arguments |= {"gpu_hour_usd": gpu_hour_usd, "seed": seed}
    if not 1 << 16 <= size_bytes <= 1 << 26:
        raise ConfigError(f"--size must be 64K to 64M, got {size_bytes:,} bytes")
    if not 64 <= gpus <= 4096 or gpus % 8:
        raise ConfigError(f"--gpus must be a multiple of 8 from 64 to 4096, got {gpus}")
    if not 1 <= storage <= 64:
        raise ConfigError(f"--storage must be 1 to 64 storage servers, got {storage}")
    if not 0 < gpu_hour_usd < 1000:
        raise ConfigError(f"--gpu-hour must be above 0 and below 1000 dollars, got {gpu_hour_usd:g}")
    figures = _run_all(catalog.interconnect(fabric), arguments) | _bills(catalog.interconnect(fabric), gpus, storage)
    figures["break_even"] = _break_even(figures, gpus, gpu_hour_usd)
    ms, slower, reads = figures["step_ms"], figures["slowdown"], figures["storage_gbit_s"]
    return Finding(
        scenario="converged",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{figures['spec']}: {len(SERVERS)} servers send {size_bytes:,} bytes to the next leaf while each reads "
        f"from one of {len(STORAGE)} storage servers; bill for {gpus} GPUs and {storage} storage servers on {fabric}",
        columns=("network", "collective ms", "times alone", "storage Gbit/s per server"),
        rows=tuple((each.name, ms[each.name], slower[each.name], reads[each.name]) for each in SHARINGS),
        finding=_sentence(figures),
        trust="One step of a ring, one adapter a server, reads that never pause, storage servers as fast as their "
        "ports: the worst moment of a job, not its mean; a step that hides its communication loses less. Buffers are "
        "two round trips of the cable and four packets (vendors publish none). Prices are estimates, with their range, "
        "and do not contain the storage ports of servers, which come with them; both bills are plain fat trees. "
        "Networks apart also fail and are upgraded apart, which has no price here. A GPU is worth its hours for "
        f"{YEARS} years.",
        options=arguments,
        figures=figures,
    )


# -- traffic ----------------------------------------------------------------------------------------------------------


def _run_all(interconnect: catalog.Interconnect, arguments: dict[str, Any]) -> dict[str, Any]:
    spec = f"{SPEC},speed={interconnect.speed}" if interconnect.network != "infiniband" else SPEC
    step_ms, reads = {}, {}
    for sharing in SHARINGS:
        fabric = route(load(spec)).fabric
        _write_lanes(fabric, sharing)
        traffic = _traffic(fabric, sharing, arguments["size_bytes"])
        options = Options(network=Network(interconnect.network), paths="table", seed=arguments["seed"])
        result = run_packets(fabric, traffic, options)
        step_ms[sharing.name] = float(result.finish_ps[: len(SERVERS)].max() - FULL_PS) / 1e9
        reads[sharing.name] = _reads_gbit_s(result) if sharing.reads else _line_gbit_s(fabric) / _readers()
    return {
        "spec": spec,
        "step_ms": step_ms,
        "slowdown": {name: ms / step_ms[TWO.name] for name, ms in step_ms.items()},
        "storage_gbit_s": reads,
    }


def _traffic(fabric: Fabric, sharing: Sharing, size_bytes: int) -> Traffic:
    """Return a message from each server to the next leaf, then the stripes that servers read."""
    n = len(SERVERS)
    rows = [(server, SERVERS[(place + n // LEAVES) % n], size_bytes) for place, server in enumerate(SERVERS)]
    levels, starts_ps = [COLLECTIVE_VL] * n, [FULL_PS] * n
    if sharing.reads:
        stripes = -(-_MOST_READ * size_bytes // (_readers() * STRIPE_BYTES))
        readers = [(STORAGE[place % LEAVES], server) for place, server in enumerate(SERVERS)]
        rows += [(store, server, STRIPE_BYTES) for _ in range(stripes) for store, server in readers]
        levels += [STORAGE_VL] * (len(rows) - n)
        starts_ps += [0] * (len(rows) - n)
    return Traffic.of(fabric, rows, start_ps=starts_ps, sl=levels, description=sharing.name)


def _readers() -> int:
    """Return the number of servers that read from one storage server."""
    return len(SERVERS) // len(STORAGE)


def _write_lanes(fabric: Fabric, sharing: Sharing) -> None:
    """Write SL to VL and VL arbitration of all ports, as a subnet manager would."""
    if sharing.weights is None:
        return
    tables = fabric.tables
    tables.sl2vl[:, COLLECTIVE_VL] = COLLECTIVE_VL
    low, high = 0, 1
    collective, storage = sharing.weights
    if sharing.first:
        tables.vl_arbitration[:, high, 0] = (COLLECTIVE_VL, _PACKET_UNITS)
        tables.vl_high_limit[:] = 255  # no limit
        tables.vl_arbitration[:, low, 0] = (STORAGE_VL, _PACKET_UNITS)
        return
    entries = [(COLLECTIVE_VL, _PACKET_UNITS)] * collective + [(STORAGE_VL, _PACKET_UNITS)] * storage
    for index, entry in enumerate(entries):
        tables.vl_arbitration[:, low, index] = entry


def _reads_gbit_s(result: Result) -> float:
    """Return the rate at which a server read from storage while the messages were under way."""
    n = len(SERVERS)
    end_ps = int(result.finish_ps[:n].max())
    finish_ps = result.finish_ps[n:]
    during = (finish_ps > FULL_PS) & (finish_ps <= end_ps)
    return float(result.traffic.size_bytes[n:][during].sum()) * 8_000 / (end_ps - FULL_PS) / n


def _line_gbit_s(fabric: Fabric) -> float:
    link = fabric.find_port(f"{SERVERS[0]}/1").link
    assert link is not None
    return link.rate_gbit_s


# -- bills ------------------------------------------------------------------------------------------------------------


def _bills(interconnect: catalog.Interconnect, gpus: int, storage: int) -> dict[str, Any]:
    """Return switches, cables, dollars and watts of two networks and of one for the same servers."""
    prices = read_prices()
    racks = place(load(f"superpod:su={-(-gpus // 256)},servers={gpus // 8},server=dgx-h100"), Room())
    compute = plan_compute(racks, interconnect, storage_servers=0, prices=prices)
    own = plan_storage(racks, interconnect, servers=storage, prices=prices)
    shared = plan_compute(racks, interconnect, storage_servers=storage, prices=prices)
    return {"two": _total((compute, own)), "one": _total((shared,))}


def _total(parts: tuple[networks.Network, ...]) -> dict[str, float]:
    switches = sum(network.switches for network in parts)
    watts = sum(_power_w(network) for network in parts)
    totals = [network.bill.total for network in parts]
    return {
        "switches": switches,
        "cables": sum(len(network.cabling) for network in parts),
        "low_usd": sum(total.low_usd for total in totals),
        "high_usd": sum(total.high_usd for total in totals),
        "power_w": watts,
    }


def _power_w(network: networks.Network) -> float:
    """Return the power of the switches."""
    switch = catalog.switch(network.switch)
    return network.switches * (switch.power_w or 0.0)


def _break_even(figures: dict[str, Any], gpus: int, gpu_hour_usd: float) -> tuple[float, float]:
    """Return the share of its time, as a range, that a job may lose to one network until two are no dearer."""
    work_usd = gpus * gpu_hour_usd * YEARS * HOURS_PER_YEAR
    lost = figures["slowdown"][NINE_TO_ONE.name] - 1
    low, high = ((figures["two"][key] - figures["one"][key]) / work_usd / lost for key in ("low_usd", "high_usd"))
    return low, high


def _sentence(figures: dict[str, Any]) -> str:
    slower, reads, two, one = figures["slowdown"], figures["storage_gbit_s"], figures["two"], figures["one"]
    more = sorted((two["low_usd"] - one["low_usd"], two["high_usd"] - one["high_usd"]))
    low, high = sorted(figures["break_even"])
    answer = (
        f"Two networks, if collectives run beside reads at full rate more than {max(low, 0):.1%} to {high:.1%} of the "
        "time; else one, with a lane for each."
        if high > 0
        else "Two networks: they cost no more than one here, and collectives are faster."
    )
    difference = "more" if more[1] > 0 else "less"
    amounts = sorted(abs(usd) / 1e3 for usd in more)
    return (
        f"{answer} A step of the collective takes {slower[ONE_LANE.name]:.2f} times as long on one lane, "
        f"{slower[NINE_TO_ONE.name]:.2f} with lanes weighted 9 to 1 and {slower[FIRST.name]:.2f} with collectives "
        f"first, while a server reads {reads[ONE_LANE.name]:.0f}, {reads[NINE_TO_ONE.name]:.0f} and "
        f"{reads[FIRST.name]:.0f} Gbit/s. Two networks cost ${amounts[0]:,.0f}k to ${amounts[1]:,.0f}k {difference}: "
        f"{two['switches']} switches ({two['power_w'] / 1e3:.1f} kW) and {two['cables']:,} cables instead of "
        f"{one['switches']} ({one['power_w'] / 1e3:.1f} kW) and {one['cables']:,}."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw the time of the collective on each network."""
    slower = finding.figures["slowdown"]
    with titled_chart(path, "A step of a collective while servers read from storage", finding.ran) as (axes,):
        names = list(slower)
        axes.barh(names[::-1], [slower[name] for name in names[::-1]], color=COLOURS[2])
        axes.set_xlabel("times as long as on a network of its own")
        axes.axvline(1, color=COLOURS[0])
