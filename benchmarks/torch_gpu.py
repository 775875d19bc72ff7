"""Compare all-reduce of CUDA tensors by backend `weft` and by gloo, and a copy on the GPU.

    python benchmarks/torch_gpu.py [--ranks 2] [--mib 1 64 256] [--times 20] [--json]

Ranks are processes that share one GPU, so the figures do not predict several GPUs; NCCL refuses ranks on one GPU.
Columns are
milliseconds, the best of `--times`, of rank 0, with a synchronize: `copy` is torch's copy of the tensor to another
one. The last
column is the number of bytes of a rank's tensors that the driver copied through the host for weft: none. It needs a
GPU and
torch.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def rank_of(rank: int, ranks: int, folder: str, sizes_mib: list[int], times: int) -> None:
    import torch
    import torch.distributed as dist

    from weft.verbs.gpudirect.cuda import driver

    dist.init_process_group("weft", init_method=Path(folder, "meet").as_uri(), rank=rank, world_size=ranks)
    gloo = dist.new_group(backend="gloo")

    def best(operation: Callable[[], Any]) -> float:
        times_s = []
        for _ in range(times):
            dist.barrier()
            begin_s = time.perf_counter()
            operation()
            torch.cuda.synchronize()
            times_s.append(time.perf_counter() - begin_s)
        return min(times_s) * 1e3

    rows = []
    for mib in sizes_mib:
        tensor = torch.ones(mib << 18, device="cuda")
        other = torch.empty_like(tensor)
        dist.all_reduce(tensor)
        if not bool((tensor == ranks).all()):
            raise SystemExit("the sum is wrong")
        tensor.zero_()
        row = {"mib": mib, "weft": best(lambda: dist.all_reduce(tensor))}  # noqa: B023 - it is done when best returns
        row["gloo"] = best(lambda: dist.all_reduce(tensor, group=gloo))  # noqa: B023
        row["copy"] = best(lambda: other.copy_(tensor))  # noqa: B023
        copied = driver().copied_bytes
        row["through host"] = copied["DtoH"] + copied["HtoD"]
        rows.append(row)
    if rank == 0:
        Path(folder, "rows").write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mib", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(rank_of, (options.ranks, folder, options.mib, options.times), options.ranks)
        rows = json.loads(Path(folder, "rows").read_text())
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{options.ranks} ranks" + "".join(f"{name:>14}" for name in rows[0] if name != "mib"))
    for row in rows:
        print(f"{row['mib']:>3} MiB" + "".join(f"{row[name]:>14.3f}" for name in ("weft", "gloo", "copy")), end="")
        print(f"{row['through host']:>14}")


if __name__ == "__main__":
    main()
