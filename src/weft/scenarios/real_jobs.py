"""Real jobs on two fabrics: which wait for the network, and for how long.

    speed-up = (compute + network on Ethernet) / (compute + network on InfiniBand)

The same servers are cabled with NDR InfiniBand and GPUDirect, and with 100G Ethernet and TCP. Jobs range from those
that send nothing to those that do little else; the free time is that without waiting for other servers. Then storage:
compute stays on InfiniBand, and the file system is there too, or on Ethernet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from weft.collectives.nccl.measure import pattern_traffic
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import place
from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.spec import load
from weft.routing.route import route
from weft.scenarios.finding import Finding
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.training.cabled import Cabled, cable
from weft.training.gpu import BF16_BYTES
from weft.training.parallel import Layout
from weft.training.storage import (
    STORAGE_SL,
    Store,
    Transfer,
    beside,
    checkpoint_bytes,
    copy_s,
    give_lane,
    sharing,
    slowdown,
)
from weft.training.transformer import find, reshape

STORAGE_SERVERS = 2
TOKEN_BYTES = 4
PICTURE_BYTES = 4 * 3 * 224 * 224  # decoded: three colours in floats
SLICE = "fat-tree:hosts=10,server=dgx-h100,radix=32"  # eight servers of a job, two of storage
SLICE_BYTES = 1 << 20  # per rank of a checkpoint, packet by packet; half as much per edge of a ring


def waits(free_s: float, fast_s: float, slow_s: float, why: str) -> dict[str, Any]:
    """Return the figures of a job that takes `free_s` without waiting; the shares are those in which it waits."""
    return {
        "fast_s": fast_s,
        "slow_s": slow_s,
        "free_s": free_s,
        "speedup": slow_s / fast_s,
        "fast_waits": 1 - free_s / fast_s,
        "slow_waits": 1 - free_s / slow_s,
        "why": why,
    }


def run_storage(fast: Cabled, seed: int) -> dict[str, Any]:
    """Measure compute on InfiniBand with the file system there too, or on Ethernet with an adapter for each server."""
    ranks, servers = fast.ranks, fast.cluster.nodes
    on = sharing(ranks, ranks.fabric.servers[servers:], fast.options)
    off = beside(ranks, STORAGE_SERVERS, seed)
    model, per_gpu = find("llama3-70b"), 8
    cut: dict[str, Any] = {"tp": 8, "pp": 4, "vp": 2, "global_batch": per_gpu * fast.gpus, "seq": 4096}
    sizes = checkpoint_bytes(Layout(gpus=fast.gpus, **cut), model)
    copied_s = copy_s(sizes)
    rows = {
        "storage: checkpoint of 70B, job waits": _stored(0, on.write(sizes), off.write(sizes)),
        "storage: the same in the background": waits(copied_s, copied_s, copied_s, "the job waits for host memory"),
        "storage: 70B reads its tokens": _loads(fast.train_s(model, **cut), on, off, per_gpu * 4096 * TOKEN_BYTES),
        "storage: vision, decoded pictures": _vision(fast, on, off),
    }
    lanes = _lanes(seed)
    return {"rows": rows, "checkpoint_bytes": int(sizes.sum()), **lanes, **_slowed(fast, lanes["one_lane"])}


def _stored(compute_s: float, on: Transfer, off: Transfer) -> dict[str, Any]:
    """Return the figures of a transfer that overlaps with compute."""
    why = f"{on.gbyte_s:.0f} GB/s ({on.limit}) against {off.gbyte_s:.0f} ({off.limit})"
    return waits(compute_s, max(compute_s, on.seconds), max(compute_s, off.seconds), why)


def _loads(step_s: float, on: Store, off: Store, each_bytes: int) -> dict[str, Any]:
    return _stored(step_s, on.read(each_bytes), off.read(each_bytes))


def _vision(fast: Cabled, on: Store, off: Store) -> dict[str, Any]:
    """Return the figures of a large vision transformer, whose tokens are 256 patches of a picture."""
    shape = {"layers": 24, "hidden": 1024, "heads": 16, "kv_heads": 16, "head_dim": 64, "ffn": 4096}
    model = reshape(find("gpt3-175b"), name="vit-l", vocab=1000, seq=256, **shape)
    per_gpu = 64
    step_s = fast.train_s(model, micro_batch=per_gpu, global_batch=per_gpu * fast.gpus)
    return _loads(step_s, on, off, per_gpu * PICTURE_BYTES)


def _lanes(seed: int) -> dict[str, float]:
    """Measure how much longer a ring takes while a checkpoint is written, packet by packet on part of the fabric."""
    fabric = route(load(SLICE)).fabric
    ranks = place(fabric, fabric.servers[:-STORAGE_SERVERS])
    store = sharing(ranks, fabric.servers[-STORAGE_SERVERS:])
    ring = pattern_traffic(ranks, Pattern.RING)
    ring = replace(ring, size_bytes=np.full(len(ring), SLICE_BYTES // 2))
    options, packets = Options(seed=seed), PacketEngine()
    fair = slowdown(fabric, ring, store.writes(SLICE_BYTES), options)
    shared = slowdown(fabric, ring, store.writes(SLICE_BYTES), options, packets)
    give_lane(fabric)
    own = slowdown(fabric, ring, store.writes(SLICE_BYTES, STORAGE_SL), options, packets)
    return {"fair_shares": fair, "one_lane": shared, "own_lane": own}


def _slowed(fast: Cabled, times: float) -> dict[str, float]:
    """Return the time of a step whose replicas sum their gradients while a checkpoint is written on the same lane."""
    eight = find("llama3-8b")
    slower = {
        pattern: replace(network, adapter_gbyte_s=network.adapter_gbyte_s / times)
        for pattern, network in fast.networks.items()
    }
    layout: dict[str, Any] = {"tp": 2, "global_batch": fast.gpus, "seq": 4096}
    return {
        "step_s": fast.train_s(eight, **layout),
        "step_one_lane_s": replace(fast, networks=slower).train_s(eight, **layout),
    }


CLAIM = (
    "I've seen workloads with 10x speedup and workloads with 1.2x speedup on the same fabric. [...] Don't mix fabrics "
    "for latency-sensitive workloads. If MPI traffic goes over InfiniBand but your parallel file system goes over "
    "Ethernet, storage access becomes the bottleneck."
)
SOURCE = "InfiniBand Is Not Magic. Here's What It Actually Does."
FAST, SLOW = "ndr", "eth-100-tcp"
COLUMNS = ("job", "InfiniBand s", "Ethernet s", "times as fast", "waits, InfiniBand %", "waits, Ethernet %", "why")


# -- jobs -------------------------------------------------------------------------------------------------------------


def _answers(on: Cabled) -> float:
    """Return the time of inference on one GPU, which reads all weights for each token; messages are small."""
    words, request_bytes = 512, 4096
    return words * on.gpu.pass_s(BF16_BYTES * find("llama3-8b").parameters) + 2 * on.send_s(request_bytes)


def _one_server(on: Cabled) -> float:
    """Return the step time of a job within each server."""
    return replace(on, cluster=replace(on.cluster, nodes=1)).train_s(find("llama3-8b"), tp=8, global_batch=64)


def _fft(on: Cabled) -> float:
    """Return the time of a Fourier transform: three passes over a GiB per GPU, with two transposes between them."""
    size_bytes = 1 << 30
    return 3 * on.gpu.pass_s(2 * size_bytes) + 2 * on.all_to_all_s(size_bytes)


def _solver(on: Cabled, edge: int) -> float:
    """Return the time of an iteration of conjugate gradients on a cube of cells per GPU.

    The 8 GPUs of a server form a larger cube, so that three of six faces go to other servers; the matrix has seven
    entries of 12 bytes per row, and there are ten passes over vectors.
    """
    cells = edge**3
    return on.gpu.pass_s(cells * (7 * 12 + 10 * 8)) + 3 * on.send_s(8 * edge**2) + 2 * on.mpi_all_reduce_s(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """A job that repeats the same work."""

    name: str
    why: str
    seconds: Callable[[Cabled], float]


def jobs(gpus: int) -> tuple[JobModel, ...]:
    """Return the jobs, from those that send nothing to those that send most."""
    eight, seventy, mixture = (find(name) for name in ("llama3-8b", "llama3-70b", "mixtral-8x7b"))
    return (
        JobModel(name="inference, a replica on each GPU", why="a request is kilobytes", seconds=_answers),
        JobModel(name="8B, a job in each server", why="NVLink does all of it", seconds=_one_server),
        JobModel(
            name="8B data-parallel, 16 sequences a GPU",
            why="gradients hide behind backward, and are few for so much compute",
            seconds=lambda on: on.train_s(eight, tp=2, global_batch=16 * gpus, seq=4096),
        ),
        JobModel(
            name="70B, tensor and pipeline, 8 sequences a GPU",
            why="most data stays inside servers",
            seconds=lambda on: on.train_s(seventy, tp=8, pp=4, vp=2, global_batch=8 * gpus, seq=4096),
        ),
        JobModel(
            name="solver, 256³ cells a GPU",
            why="faces grow slower than volumes",
            seconds=lambda on: _solver(on, 256),
        ),
        JobModel(
            name="8B data-parallel, 1 sequence a GPU",
            why="all gradients for little compute: all-reduce",
            seconds=lambda on: on.train_s(eight, tp=2, global_batch=gpus, seq=4096),
        ),
        JobModel(
            name="mixture of experts over servers",
            why="every layer sends tokens to experts and back: all-to-all",
            seconds=lambda on: on.train_s(mixture, tp=4, ep=8, global_batch=2 * gpus, seq=4096),
        ),
        JobModel(
            name="solver, 64³ cells a GPU",
            why="little compute: it is the latency of messages",
            seconds=lambda on: _solver(on, 64),
        ),
        JobModel(
            name="8B sharded (FSDP), 1 sequence a GPU",
            why="every layer is gathered twice for each sequence",
            seconds=lambda on: on.train_s(eight, zero=3, global_batch=gpus, seq=4096),
        ),
        JobModel(name="Fourier transform, 1 GiB a GPU", why="all data to all, twice", seconds=_fft),
    )


# -- running ----------------------------------------------------------------------------------------------------------


def run(
    *,
    servers: Annotated[int, "DGX H100 of the job: 16, 32 or another multiple of 4."] = 16,
    seed: Annotated[int, "Random seed for ECMP hashing."] = 1,
) -> Finding:
    """Run every job on both fabrics, and storage on both."""
    if servers < 8 or servers % 4:
        raise ConfigError(f"--servers must be a multiple of 4 and at least 8, got {servers}")
    interconnects = [catalog.interconnect(name) for name in (FAST, SLOW)]
    fast, slow = (cable(interconnect, servers, seed, more=STORAGE_SERVERS) for interconnect in interconnects)
    measured = {job.name: _measure(job, fast, slow) for job in jobs(fast.gpus)}
    results = dict(sorted(measured.items(), key=lambda item: float(item[1]["speedup"])))
    stored = run_storage(fast, seed)
    rows = [_row(name, figures) for name, figures in (results | stored["rows"]).items()]
    figures = {"jobs": results, "storage": stored}
    return Finding(
        scenario="real-jobs",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{servers} × DGX H100, {fast.gpus} GPUs, with {interconnects[0].label} and GPUDirect, and "
        f"with {interconnects[1].label}; "
        f"a file system of {STORAGE_SERVERS} servers",
        columns=COLUMNS,
        rows=tuple(rows),
        finding=_sentence(results, stored),
        trust="The rates of adapters follow from the routes of each fabric, compute comes from a model of the GPU "
        "that is held to published steps. TCP is the weakest part: NCCL on two connections for each adapter, "
        "1.9 GB/s, and 1.7 in the one published run; more sockets or faster cores make Ethernet better than it is "
        "here, and RoCE is another matter (weft scenario ib-vs-ethernet). How a checkpoint blocks a ring depends on "
        "buffers and on congestion control, which is off here.",
        options={"servers": servers, "seed": seed},
        figures=figures,
    )


def _measure(job: JobModel, fast: Cabled, slow: Cabled) -> dict[str, Any]:
    fast_s, slow_s, free_s = (job.seconds(on) for on in (fast, slow, fast.alone()))
    return waits(free_s, fast_s, slow_s, job.why)


def _row(name: str, figures: dict[str, Any]) -> tuple[str | float, ...]:
    parts = (max(0.0, round(100 * figures[part], 1)) for part in ("fast_waits", "slow_waits"))
    return name, figures["fast_s"], figures["slow_s"], round(figures["speedup"], 2), *parts, figures["why"]


# -- reporting --------------------------------------------------------------------------------------------------------


def _sentence(results: dict[str, Any], stored: dict[str, Any]) -> str:
    times = {name: job["speedup"] for name, job in results.items()}
    least, most = min(times, key=lambda name: times[name]), max(times, key=lambda name: times[name])
    little = [name for name, value in times.items() if value < 1.25]
    much = [name for name, value in times.items() if value >= 9]
    rows = list(stored["rows"].values())
    return (
        f"Both figures hold, and neither is a bound: on the same two fabrics the least is {times[least]:.2f}x "
        f"({least}), the most {times[most]:.1f}x ({most}). {len(little)} of {len(times)} jobs gain 1.2x or less, "
        f"{len(much)} gain 9x or more. What decides is the part of the time on Ethernet that a job waits; a larger "
        f"batch or a cut that stays inside servers makes it small. Mixed fabrics hurt in phases: with storage on "
        f"Ethernet a checkpoint for which the job waits takes {rows[0]['speedup']:.1f} times as long, one in the "
        f"background {rows[1]['speedup']:.1f} times, steps that read tokens {rows[2]['speedup']:.1f} times, steps that "
        f"read decoded pictures {rows[3]['speedup']:.1f} times. But storage on InfiniBand needs a lane of its own: on "
        f"that of the job a checkpoint makes a ring {stored['one_lane']:.0f} times as slow and a step of 1 sequence a "
        f"GPU {stored['step_one_lane_s'] / stored['step_s']:.1f} times, on its own {stored['own_lane']:.2f} times."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw speed-ups, and the share of the time spent waiting for the network."""
    jobs_of = finding.figures["jobs"] | finding.figures["storage"]["rows"]
    names, places = list(jobs_of), -np.arange(len(jobs_of))
    times = [job["speedup"] for job in jobs_of.values()]
    own = len(finding.figures["jobs"])
    colours = ["#0b6fb8"] * own + ["#009e73"] * (len(names) - own)
    with titled_chart(path, "Real jobs on InfiniBand and on Ethernet", finding.ran, panels=2) as (speed, part):
        bars = speed.barh(places, times, color=colours, height=0.7)
        speed.bar_label(bars, [f"{value:.3g}" for value in times], fontsize=8.5, padding=3)
        speed.set_yticks(places, names)
        speed.set_xscale("log")
        speed.set_xlim(0.9, max(times) * 2)
        speed.set_xticks([1, 1.2, 2, 5, 10, 20], ["", "1.2", "2", "5", "10", "20"])  # the bars begin at 1
        speed.minorticks_off()
        speed.set_xlabel("times as fast on InfiniBand")
        for shift, share, colour in ((0.19, "fast_waits", "#0b6fb8"), (-0.19, "slow_waits", "#d55e00")):
            label = "InfiniBand" if share == "fast_waits" else "Ethernet"
            values = [100 * job[share] for job in jobs_of.values()]
            part.barh(places + shift, values, color=colour, height=0.36, label=label)
        part.set_yticks(places, [])
        part.set_xlim(0, 100)
        part.set_xlabel("waiting for other servers, % of the time")
        part.legend(loc="upper right")
        for axes in (speed, part):
            axes.grid(axis="y", visible=False)
