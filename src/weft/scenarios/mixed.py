"""Storage of a job that computes on InfiniBand: on the same fabric, or on a separate Ethernet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from weft.collectives.nccl.measure import pattern_traffic
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import place
from weft.fabric.spec import load
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.training.cabled import Cabled
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
