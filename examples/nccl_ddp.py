"""Training with NCCL itself over weft's InfiniBand. Needs torch and one NVIDIA GPU; no adapter, no kernel module.

    python examples/nccl_ddp.py [RANKS]

It starts a lab, runs itself as one rank on each host of it, and shows what NCCL says of the network, whether the sums
are right, and what the ports counted. Ranks share one GPU: by NCCL_HOSTID they take one another for different machines,
and so use the network between them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LAB = "nccl"
STEPS, BATCH = 20, 32
WEFT = (sys.executable, "-m", "weft")


def start(ranks: int) -> int:
    """The lab, its ranks, their sums and its counters; a status as a shell has it."""
    subprocess.run([*WEFT, "up", f"star:hosts={ranks}", "--sm", "--name", LAB, "--daemon"], check=True)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": str(ranks), "NCCL_SOCKET_IFNAME": "lo"}
    # Without it NCCL 2.28 falls over any adapter that is no mlx5, as it looks for networks that a GPU starts itself.
    shared |= {"NCCL_NET": "IB", "NCCL_GIN_TYPE": "2", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    try:
        with tempfile.TemporaryDirectory() as folder:
            running = []
            for rank in range(ranks):
                own = {"RANK": str(rank), "NCCL_HOSTID": f"h{rank + 1}", "NCCL_DEBUG_FILE": f"{folder}/{rank}"}
                words = [*WEFT, "exec", "--lab", LAB, f"h{rank + 1}", sys.executable, __file__]
                running.append(subprocess.Popen(words, env=os.environ | shared | own))
            status = max(abs(one.wait()) for one in running)
            for line in Path(folder, "0").read_text().splitlines():
                if status or re.search(r"NET/IB|NCCL version|via NET", line):
                    print(line)
        for host in ("h1", f"h{ranks}"):
            counted = subprocess.check_output([*WEFT, "diag", "perfquery", "-x", "--lab", LAB, "--at", host], text=True)
            words = dict(line.split(":", 1) for line in counted.splitlines() if ":" in line)
            sent = 4 * int(words["PortXmitData"].strip("."))
            print(f"{host}: its port has sent {sent:,} bytes in {int(words['PortXmitPkts'].strip('.')):,} packets")
    finally:
        subprocess.run([*WEFT, "down", "--lab", LAB], check=True)
    return status


def train() -> None:
    """One rank of data-parallel training, and the same training alone, which sees the batches of all."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    os.environ["NCCL_IB_DISABLE"] = "0"
    dist.init_process_group(backend="nccl", init_method="env://")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ones = torch.full((1 << 20,), float(rank + 1), device="cuda")
    dist.all_reduce(ones)
    assert (ones == ranks * (ranks + 1) / 2).all(), "a sum of NCCL's is wrong"

    def model() -> torch.nn.Module:
        torch.manual_seed(1)
        return (
            torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1)).cuda().double()
        )

    shared, alone = DistributedDataParallel(model(), device_ids=[0]), model()
    steps = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (shared, alone)]
    generator = torch.Generator("cuda").manual_seed(2)
    for _ in range(STEPS):
        batch = torch.randn(ranks, BATCH, 256, device="cuda", dtype=torch.double, generator=generator)
        for net, step, seen in ((shared, steps[0], batch[rank]), (alone, steps[1], batch.flatten(0, 1))):
            step.zero_grad()
            loss = ((net(seen).squeeze(1) - seen.sum(1)) ** 2).mean()
            loss.backward()
            step.step()
    for ours, theirs in zip(shared.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    print(f"rank {rank} of {ranks}: after {STEPS} steps the parameters are those of training alone, loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        sys.exit(start(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
