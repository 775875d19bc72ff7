"""Memory beyond a server's own: a CXL device or pool that processors load from, or another host's memory by RDMA.

    CXL    device -- processor [-- copy engine -- GPU]              a load: 0.2 to 0.4 us; a device: 18 to 52 GB/s
    RDMA   other host -- adapter -- network -- adapter [-- GPU]     a read: some us; an adapter: its line

Reads by RDMA are run over the fabric; CXL is the latency and the bandwidth of public measurements (`cxl.toml`). A GPU
does not load from CXL memory itself: the processor's copy engine moves the data, which costs a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.model import Fabric
from weft.fabric.rates import Sourced, read_data
from weft.fabric.spec import load
from weft.fabric.timing import timings
from weft.scenarios.experiment import bandwidth, latency_us
from weft.scenarios.finding import COLOURS, Cell, Finding
from weft.sim import perftest
from weft.sim.engine import Memory, Options
from weft.sim.perftest import Test

CLAIM = "Technologies like CXL are converging with InfiniBand and Ethernet, and pool memory across a rack."
SOURCE = "documents on the future of fabrics, in weft's words"
SIZES = tuple(1 << power for power in range(6, 33))  # 64 bytes to 4 GiB
PROCESSOR, GPU = PLACES = ("processor", "GPU")
_MEASURED_BYTES = 4 << 20  # above, reads follow each other at the rate of the line
_TOKEN_BYTES = 2 * 8 * 128 * 80 * 2  # keys and values of Llama 3 70B, 80 layers of 8 heads of 128, in bf16
USES = {
    "one block of a layer's KV cache, 16 tokens": 16 * _TOKEN_BYTES // 80,
    "the KV cache of 8,192 tokens": 8192 * _TOKEN_BYTES,
    "Adam's states of 1e9 parameters, there and back": 2 * 12 * 10**9,
}
_MOST_DEVICES = 16


class Device(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """CXL memory by a public measurement."""

    words: str
    latency_ns: float
    gbyte_s: float


def devices() -> dict[str, Device]:
    """Return the CXL memory of cxl.toml."""
    return msgspec.convert(read_data("weft.scenarios", "cxl.toml"), dict[str, Device])


def run(
    *,
    server: Annotated[str, "Template of both servers: dgx-h100, amd-mi300x or my-server.yaml."] = "dgx-h100",
    expanders: Annotated[int, "CXL devices that a server interleaves, 1 to 16.", "--devices"] = 1,
    seed: Annotated[int, "Random seed of the run."] = 1,
) -> Finding:
    """Compare reads of CXL memory with reads of another host's memory by RDMA, by size."""
    if not 1 <= expanders <= _MOST_DEVICES:
        raise ConfigError(f"--devices must be 1 to {_MOST_DEVICES}, got {expanders}")
    template = catalog.server(server)
    if not template.gpus:
        raise ConfigError(f"--server {server} has no GPUs: give one that has, dgx-h100")
    fabric = perftest.prepare(load(f"star:hosts=2,server={server}"))
    figures: dict[str, Any] = {"rdma_us": {}, "cxl_us": {}, "cxl_wins": {}, "uses_ms": {}}
    rows: list[tuple[Cell, ...]] = []
    for place in PLACES:
        rdma = _rdma(fabric, Memory.GPUDIRECT if place == GPU else Memory.HOST, seed)
        figures["rdma_us"][place] = {size: rdma(size) for size in SIZES}
        rows.append((place, "RDMA, one adapter", rdma(SIZES[0]), SIZES[-1] / rdma(SIZES[-1]) / 1000, None))
        figures["uses_ms"][place, "RDMA"] = {use: rdma(size) / 1000 for use, size in USES.items()}
        for name, device in devices().items():
            cxl = _cxl(device, expanders, template.gpu_entry.host_gbyte_s if place == GPU else None)
            figures["cxl_us"][place, name] = {size: cxl(size) for size in SIZES}
            won = [size for size in SIZES if cxl(size) <= rdma(size)]
            figures["cxl_wins"][place, name] = _range(won)
            rows.append((place, device.words, cxl(SIZES[0]), SIZES[-1] / cxl(SIZES[-1]) / 1000, _range(won)))
            figures["uses_ms"][place, name] = {use: cxl(size) / 1000 for use, size in USES.items()}
    keyed = {
        key: {" of ".join(reversed(each)) if isinstance(each, tuple) else each: value for each, value in of.items()}
        for key, of in figures.items()
    }
    return Finding(
        scenario="cxl-or-rdma",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{fabric.spec}: RDMA reads between the first adapters of two servers; CXL by cxl.toml, "
        f"{expanders} interleaved",
        columns=("data to the", "from", "64 bytes µs", "4 GiB GB/s", "CXL is no slower"),
        rows=tuple(rows),
        finding=_sentence(figures, template.adapter.name),
        trust="CXL's figures are those of single idle devices, partly recalled (cxl.toml has sources), and the pool's "
        "an estimate of its authors; loaded devices take several times as long. Reads by RDMA are of an idle network "
        "and one adapter, and a server has more. The copy to a GPU has an assumed launch of "
        f"{timings().memory[Memory.STAGED].latency_ns / 1000:g} µs, and GPUs that load from CXL memory over PCIe "
        "are not modelled, nor coherence between hosts, failures of a pool, or prices.",
        options={"server": server, "devices": expanders, "seed": seed},
        figures=keyed,
    )


def _rdma(fabric: Fabric, memory: Memory, seed: int) -> Callable[[int], float]:
    """Return the time of a read in microseconds by its size."""
    options = Options(seed=seed, memory=memory)
    gbyte_s = bandwidth(fabric, Test.READ_BW, options, _MEASURED_BYTES).average_gbit_s / 8

    @cache
    def read_us(size_bytes: int) -> float:
        own = latency_us(fabric, Test.READ_LAT, options, min(size_bytes, _MEASURED_BYTES))
        return own + max(size_bytes - _MEASURED_BYTES, 0) / gbyte_s / 1000

    return read_us


def _cxl(device: Device, count: int, gpu_gbyte_s: float | None) -> Callable[[int], float]:
    """Return the time of a read in microseconds by its size; to a GPU through a copy over its slot."""
    gbyte_s = device.gbyte_s * count if gpu_gbyte_s is None else min(device.gbyte_s * count, gpu_gbyte_s)
    launch_us = 0.0 if gpu_gbyte_s is None else timings().memory[Memory.STAGED].latency_ns / 1000
    return lambda size_bytes: launch_us + device.latency_ns / 1000 + size_bytes / gbyte_s / 1000


def _range(sizes: Sequence[int]) -> str:
    """Return the range of sizes in words; they are neighbours in `SIZES`."""
    if not sizes:
        return "at no size"
    if len(sizes) == len(SIZES):
        return "at all sizes"
    return f"up to {_size(sizes[-1])}" if sizes[0] == SIZES[0] else f"from {_size(sizes[0])}"


def _size(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


def _sentence(figures: dict[str, Any], adapter: str) -> str:
    wins = figures["cxl_wins"]
    small_us = figures["rdma_us"][PROCESSOR][SIZES[0]]
    loads_us = [each[SIZES[0]] for (place, _), each in figures["cxl_us"].items() if place == PROCESSOR]
    block, kv_cache, states = USES
    sources = ("expander-fast", "expander-slow", "RDMA")
    fast_us, _, rdma_us = (figures["uses_ms"][GPU, source][block] * 1000 for source in sources)
    fast_ms, slow_ms, rdma_ms = (figures["uses_ms"][GPU, source][kv_cache] for source in sources)
    pool_ms, host_ms = (figures["uses_ms"][PROCESSOR, source][states] for source in ("pool", "RDMA"))
    return (
        f"A processor loads 64 bytes in {min(loads_us):.2f} to {max(loads_us):.2f} µs from CXL memory, and reads them "
        f"in {small_us:.1f} µs from another host by one {adapter}. CXL is no slower {wins[PROCESSOR, 'expander-fast']} "
        f"with the fastest device, and {wins[PROCESSOR, 'expander-slow']} with the slowest. To a GPU, where a copy has "
        f"to be launched, it is no slower {wins[GPU, 'expander-fast']} with the fastest and "
        f"{wins[GPU, 'expander-slow']} with the slowest: a KV block takes {fast_us:.1f} µs from the fastest and "
        f"{rdma_us:.1f} by RDMA, the KV cache of 8,192 tokens {fast_ms:.0f} to {slow_ms:.0f} ms and {rdma_ms:.0f}. "
        f"Adam's states of 1e9 parameters there and back take {pool_ms:.0f} ms from a pool and {host_ms:.0f} from "
        f"another host."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw times by size for both destinations."""
    with titled_chart(path, "CXL or RDMA", finding.ran, panels=2) as panels:
        for place, axes in zip(PLACES, panels, strict=True):
            curves = {"RDMA": finding.figures["rdma_us"][place]}
            suffix = f" of {place}"
            for name, values in finding.figures["cxl_us"].items():
                if name.endswith(suffix):
                    curves[name.removesuffix(suffix)] = values
            for (name, values), colour in zip(curves.items(), COLOURS, strict=False):
                axes.plot(list(values), list(values.values()), color=colour, label=name)
            axes.set_xscale("log", base=2)
            axes.set_xticks([1 << 6, 1 << 12, 1 << 20, 1 << 30], ["64 B", "4 KiB", "1 MiB", "1 GiB"])
            axes.set_yscale("log")
            axes.set_xlabel(f"read to the {place}")
            axes.set_ylabel("µs")
            axes.legend(loc="upper left")
