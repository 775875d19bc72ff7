"""All-reduce of PyTorch by backend `weft` beside gloo: the same processes of this machine, the same tensors, in turn.

    python benchmarks/live.py [--ranks 4] [--sizes 1K 1M 64M] [--times 20] [--json]

Every figure is the time of one call from a barrier on, at the slowest rank, of float32 in place; best and median of
`--times`. GB/s are bytes of the tensor over the best time. `memory` is what the process had most of, in MiB, while it
made the calls of the largest size, and in the second row how many times the tensor that is above what it had before the
first of them: the tensor itself is 1; each backend has processes of its own for that. Ranks that wait need a core each,
so cores and load are printed. It needs torch.
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


def timed(rank: int, ranks: int, meeting: str, sizes: list[int], times: int, found: Any) -> None:
    """One rank of both backends."""
    import torch
    import torch.distributed as dist

    from weft.collectives.live.pytorch import register

    register()  # where weft is not installed PyTorch does not find it
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    groups = {"gloo": dist.group.WORLD, "weft": dist.new_group(backend="weft")}
    taken: Figures = {backend: {} for backend in BACKENDS}
    for size in sizes:
        tensor = torch.empty(size // 4)
        for nth in range(times + 2):  # the first two bring up links, and load kernels
            for backend, group in groups.items():
                tensor.fill_(rank)
                dist.barrier()
                begin_s = time.perf_counter()
                dist.all_reduce(tensor, group=group)
                took = torch.tensor(time.perf_counter() - begin_s, dtype=torch.float64)
                assert bool((tensor == ranks * (ranks - 1) // 2).all()), f"{backend} is wrong at {size} bytes"
                dist.all_reduce(took, dist.ReduceOp.MAX)
                if nth >= 2:
                    taken[backend].setdefault(size, []).append(took.item())
    dist.destroy_process_group()
    if rank == 0:
        found.put(taken)


def weighed(rank: int, ranks: int, meeting: str, backend: str, size: int, found: Any) -> None:
    """One rank of one backend: MiB at most, and how many times the tensor that is more than before."""
    import torch
    import torch.distributed as dist

    from weft.collectives.live.pytorch import register

    register()  # where weft is not installed PyTorch does not find it
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=ranks)
    dist.all_reduce(torch.ones(1 << 18))  # links, kernels, threads
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tensor = torch.ones(size // 4)
    for _ in range(3):
        dist.all_reduce(tensor)
    after_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dist.barrier()
    dist.destroy_process_group()
    found.put((after_kib / 1024, (after_kib - before_kib) * 1024 / size))


def as_ranks(do: Any, ranks: int, *arguments: Any, answers: int) -> list[Any]:
    """What the ranks say, each a process that has nothing of this one."""
    spawning = multiprocessing.get_context("spawn")
    found = spawning.Queue()
    with tempfile.TemporaryDirectory() as folder:
        meeting = (Path(folder) / "meeting").as_uri()
        started = [spawning.Process(target=do, args=(n, ranks, meeting, *arguments, found)) for n in range(ranks)]
        for one in started:
            one.start()
        said = [found.get(timeout=600) for _ in range(answers)]
        for one in started:
            one.join()
    return said


def table(figures: Figures, memory: dict[str, tuple[float, float]]) -> str:
    lines = [
        f"{'bytes':>12}" + "".join(f"{f'{one}, ms':>12}{'median':>9}{'GB/s':>8}" for one in BACKENDS) + "   quicker"
    ]
    for size in figures["weft"]:
        best = {one: min(figures[one][size]) for one in BACKENDS}
        cells = "".join(
            f"{best[one] * 1e3:>12.3f}{_median(figures[one][size]) * 1e3:>9.3f}{size / best[one] / 1e9:>8.2f}"
            for one in BACKENDS
        )
        lines.append(f"{size:>12,}{cells}{best['gloo'] / best['weft']:>9.2f}x")
    lines.append(f"{'memory, MiB':>12}" + "".join(f"{memory[one][0]:>12.0f}{'':>17}" for one in BACKENDS))
    lines.append(f"{'tensors':>12}" + "".join(f"{memory[one][1]:>12.2f}{'':>17}" for one in BACKENDS))
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
        one: max(as_ranks(weighed, options.ranks, one, max(options.sizes), answers=options.ranks)) for one in BACKENDS
    }
    if options.json:
        print(json.dumps({"cores": os.cpu_count(), "load": load, "seconds": figures, "memory": memory}))
    else:
        print(f"{options.ranks} ranks, {os.cpu_count()} cores, load {load:.1f}, best of {options.times}")
        print(table(figures, memory))


if __name__ == "__main__":
    main()
