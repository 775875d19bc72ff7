"""GPUDirect on and off: the adapter reads GPU memory, or everything is copied through host memory.

    on       GPU memory ------------------------> adapter -> network -> adapter ------------------------> GPU memory
    off      GPU memory -> copy -> host memory -> adapter -> network -> adapter -> host memory -> copy -> GPU memory

A copy has a launch time before its first byte, and its own rate. Data in host memory, without a GPU, is the baseline.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import from_fabric
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.measure import measure
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import place
from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.fabric.timing import timings
from weft.scenarios.experiment import bandwidth, latency_us
from weft.scenarios.finding import Finding
from weft.sim import perftest
from weft.sim.engine import Memory, Options
from weft.sim.perftest import Test

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLAIM = (
    "GPU Direct: GPU memory directly accessed by NIC. No CPU involvement, minimal latency. [It allows] to bypass the "
    "CPU and host memory, reducing latency to microseconds and freeing CPU cycles for computation."
)
SOURCE = "a glossary page; How InfiniBand Powers AI Training"
SIZES = tuple(8 << power for power in range(0, 22, 3))  # message sizes, 8 bytes to 16 MiB
REDUCED = tuple(8 << power for power in range(0, 28, 3))  # all-reduce sizes, 8 bytes to 1 GiB
NAMES = {Memory.HOST: "host memory", Memory.GPUDIRECT: "GPUDirect", Memory.STAGED: "copied through host memory"}


def run(
    *,
    servers: Annotated[int, "Servers that all-reduce together."] = 2,
    server: Annotated[str, "Their template: dgx-a100, dgx-h100, gb200-nvl72 or my-server.yaml."] = "dgx-h100",
    seed: Annotated[int, "Random seed of the run."] = 1,
) -> Finding:
    """Measure messages between the first two servers, and all-reduces of all of them."""
    if servers < 2:
        raise ConfigError(f"--servers must be 2 or more, got {servers}")
    arguments = {"servers": servers, "server": server, "seed": seed}
    fabric = perftest.prepare(load(f"fat-tree:hosts={servers},server={server}"))
    figures = {NAMES[memory]: _measure(fabric, memory, seed) for memory in Memory}
    rows = tuple(
        (
            name,
            measured["latency_us"][SIZES[0]],
            measured["gbit_s"][SIZES[-1]],
            measured["all_reduce_us"].get(REDUCED[0]),
            measured["bus_gbyte_s"].get(REDUCED[-1]),
        )
        for name, measured in figures.items()
    )
    return Finding(
        scenario="gpudirect",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{fabric.spec}: messages between GPUs of two servers, all-reduces of all "
        f"{servers * catalog.server(server).gpus} GPUs",
        columns=("data in", "8 bytes µs", "16 MiB Gbit/s", "all-reduce 8 bytes µs", "all-reduce 1 GiB bus GB/s"),
        rows=rows,
        finding=_sentence(figures, servers),
        trust="The cost of a copy, 8 µs to launch it and 100 Gbit/s, is an order of magnitude, no measurement; so is "
        "GPUDirect's own 0.2 µs a side. A program that sends in pieces while it copies, or NCCL, whose kernels write "
        "to host memory themselves, launches nothing for a message and loses less. An adapter far from its GPU, which "
        "makes GPUDirect slow, is not modelled.",
        options=arguments,
        figures=figures,
    )


def _measure(fabric: Fabric, memory: Memory, seed: int) -> dict[str, Any]:
    """Return figures by size in bytes; NCCL has no collectives of data in host memory."""
    options = Options(seed=seed, memory=memory)
    reduced = _all_reduces(fabric, options) if memory is not Memory.HOST else {}
    return {
        "latency_us": {size: latency_us(fabric, Test.WRITE_LAT, options, size) for size in SIZES},
        "gbit_s": {size: bandwidth(fabric, Test.WRITE_BW, options, size).average_gbit_s for size in SIZES},
        "all_reduce_us": {size: time_us for size, (time_us, _) in reduced.items()},
        "bus_gbyte_s": {size: bus_gbyte_s for size, (_, bus_gbyte_s) in reduced.items()},
    }


def _all_reduces(fabric: Fabric, options: Options) -> dict[int, tuple[float, float]]:
    """Return time and bus bandwidth of all-reduces by size."""
    networks = measure(place(fabric), options, patterns=(Pattern.RING, Pattern.TREE)).networks
    cluster = from_fabric(fabric)
    estimates = [estimate(cluster, Collective.ALL_REDUCE, size, networks=networks) for size in REDUCED]
    return {size: (each.time_us, each.bus_gbyte_s) for size, each in zip(REDUCED, estimates, strict=True)}


def _sentence(figures: dict[str, Any], servers: int) -> str:
    host, direct, staged = (figures[NAMES[memory]] for memory in Memory)
    small = [measured["latency_us"][SIZES[0]] for measured in (host, direct, staged)]
    large = [measured["gbit_s"][SIZES[-1]] for measured in (direct, staged)]
    reduced = [measured["all_reduce_us"][REDUCED[0]] for measured in (direct, staged)]
    bus = [measured["bus_gbyte_s"][REDUCED[-1]] for measured in (direct, staged)]
    copy = timings().memory[Memory.STAGED]
    return (
        f"An 8-byte message between GPUs takes {small[1]:.2f} µs with GPUDirect, {small[1] - small[0]:.2f} more than "
        f"between host memories, and {small[2]:.1f} µs, {small[2] / small[1]:.1f} times as long, where it is copied on "
        f"both sides: two launches of {copy.latency_ns / 1000:g} µs. Large messages get {large[0]:.0f} Gbit/s with it "
        f"and {large[1]:.0f} without, what one copy engine gives to one adapter. An all-reduce of {servers} servers "
        f"takes {reduced[0]:.0f} and {reduced[1]:.0f} µs for 8 bytes, and reaches {bus[0]:.0f} and {bus[1]:.0f} GB/s "
        f"for 1 GiB."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw latency and all-reduce by size."""
    colours = dict(zip(NAMES.values(), ("#7b8794", "#0b6fb8", "#d55e00"), strict=True))

    def curve(axes: Axes, name: str, values: dict[int, float]) -> None:
        axes.plot(list(values), list(values.values()), color=colours[name], label=name, marker="o", markersize=3)

    with titled_chart(path, "GPUDirect on and off", finding.ran, panels=2) as panels:
        latency, reduce = panels
        for name, measured in finding.figures.items():
            curve(latency, name, measured["latency_us"])
            if measured["bus_gbyte_s"]:
                curve(reduce, name, measured["bus_gbyte_s"])
        for axes in panels:
            axes.set_xscale("log", base=2)
            axes.set_xticks([1 << 3, 1 << 10, 1 << 20, 1 << 30], ["8 B", "1 KiB", "1 MiB", "1 GiB"])
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.legend(loc="upper left")
        latency.set_xlim(SIZES[0] / 2, SIZES[-1] * 2)
        latency.set_xlabel("message")
        latency.set_ylabel("latency, µs")
        reduce.set_ylim(bottom=0.01)
        reduce.set_xlabel("all-reduce")
        reduce.set_ylabel("bus bandwidth, GB/s")
