"""Compare PyTorch's all-reduce with backend `weft` and with gloo: the same processes and tensors on this machine, in
turn.

    python benchmarks/live.py [--ranks 4] [--sizes 1K 1M 64M] [--times 20] [--json]

Every figure is the time of one call from a barrier on, at the slowest rank, of float32 in place; best and median of
`--times`.
GB/s are bytes of the tensor over the best time. `memory` is the peak of the process in MiB during the calls of the
largest
size, and in the second row its growth since before the first of them, in tensors: the tensor itself is 1; each
backend has its
own processes for that. Ranks that wait need a core each, so cores and load are printed. It needs torch.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

BACKENDS = ("gloo", "weft")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
Figures = dict[str, dict[int, list[float]]]  # seconds of each call, by backend and bytes


def timed(rank: int, ranks: int, rendezvous: str, sizes: list[int], times: int, results: Any) -> None:
    """Run one rank of both backends."""
    import torch
    import torch.distributed as dist

    from weft.collectives.live.pytorch import register

    register()  # if weft is not installed, PyTorch does not find it
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=ranks)
    groups = {"gloo": dist.group.WORLD, "weft": dist.new_group(backend="weft")}
    taken_s: Figures = {backend: {} for backend in BACKENDS}
    for size in sizes:
        tensor = torch.empty(size // 4)
        for nth in range(times + 2):  # the first two connect links and load kernels
            for backend, group in groups.items():
                tensor.fill_(rank)
                dist.barrier()
                begin_s = time.perf_counter()
                dist.all_reduce(tensor, group=group)
                took = torch.tensor(time.perf_counter() - begin_s, dtype=torch.float64)
                assert bool((tensor == ranks * (ranks - 1) // 2).all()), f"{backend} is wrong at {size} bytes"
                dist.all_reduce(took, dist.ReduceOp.MAX)
                if nth >= 2:
                    taken_s[backend].setdefault(size, []).append(took.item())
    dist.destroy_process_group()
    if rank == 0:
        results.put(taken_s)


def weighed(rank: int, ranks: int, rendezvous: str, backend: str, size: int, results: Any) -> None:
    """Run one rank of one backend; report the peak in MiB, and its growth in tensors."""
    import torch
    import torch.distributed as dist

    from weft.collectives.live.pytorch import register

    register()  # if weft is not installed, PyTorch does not find it
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=ranks)
    dist.all_reduce(torch.ones(1 << 18))  # links, kernels, threads
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tensor = torch.ones(size // 4)
    for _ in range(3):
        dist.all_reduce(tensor)
    after_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dist.barrier()
    dist.destroy_process_group()
    results.put((after_kib / 1024, (after_kib - before_kib) * 1024 / size))


def as_ranks(target: Any, ranks: int, *arguments: Any, answers: int) -> list[Any]:
    """Run the ranks as fresh processes and return their results."""
    spawning = multiprocessing.get_context("spawn")
    results = spawning.Queue()
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = (Path(folder) / "rendezvous").as_uri()
        started = [
            spawning.Process(target=target, args=(n, ranks, rendezvous, *arguments, results)) for n in range(ranks)
        ]
        for process in started:
            process.start()
        received = [results.get(timeout=600) for _ in range(answers)]
        for process in started:
            process.join()
    return received


def table(figures: Figures, memory: dict[str, tuple[float, float]]) -> str:
    lines = [
        f"{'bytes':>12}"
        + "".join(f"{f'{backend}, ms':>12}{'median':>9}{'GB/s':>8}" for backend in BACKENDS)
        + "   quicker"
    ]
    for size in figures["weft"]:
        best = {backend: min(figures[backend][size]) for backend in BACKENDS}
        cells = "".join(
            f"{best[backend] * 1e3:>12.3f}{_median(figures[backend][size]) * 1e3:>9.3f}"
            f"{size / best[backend] / 1e9:>8.2f}"
            for backend in BACKENDS
        )
        lines.append(f"{size:>12,}{cells}{best['gloo'] / best['weft']:>9.2f}x")
    lines.append(f"{'memory, MiB':>12}" + "".join(f"{memory[backend][0]:>12.0f}{'':>17}" for backend in BACKENDS))
    lines.append(f"{'tensors':>12}" + "".join(f"{memory[backend][1]:>12.2f}{'':>17}" for backend in BACKENDS))
    return "\n".join(lines)


def _median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def size_bytes(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--sizes", type=size_bytes, nargs="+", default=[1 << 10, 1 << 20, 64 << 20])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    [figures] = as_ranks(timed, options.ranks, options.sizes, options.times, answers=1)
    memory = {
        backend: max(as_ranks(weighed, options.ranks, backend, max(options.sizes), answers=options.ranks))
        for backend in BACKENDS
    }
    if options.json:
        print(json.dumps({"cores": os.cpu_count(), "load": load, "seconds": figures, "memory": memory}))
    else:
        print(f"{options.ranks} ranks, {os.cpu_count()} cores, load {load:.1f}, best of {options.times}")
        print(table(figures, memory))


if __name__ == "__main__":
    main()
