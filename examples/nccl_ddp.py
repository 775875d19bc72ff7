"""Train with NCCL itself over weft's InfiniBand. Needs torch and one NVIDIA GPU; no adapter, no kernel module.

    python examples/nccl_ddp.py [RANKS]

It starts a lab, runs itself as one rank on each of its hosts, and prints NCCL's report of the network, whether the
sums are right, how the bytes were copied, and the counters of the ports. Ranks share one GPU: with NCCL_HOSTID they
take each other for different machines, and so use the network between them.
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
    """Start the lab and its ranks, and print their sums and counters; return an exit status."""
    subprocess.run([*WEFT, "up", f"star:hosts={ranks}", "--sm", "--name", LAB, "--daemon"], check=True)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": str(ranks), "NCCL_SOCKET_IFNAME": "lo"}
    # Without it NCCL 2.28 fails on any adapter that is not an mlx5, as it looks for networks that a GPU can start.
    shared |= {"NCCL_NET": "IB", "NCCL_GIN_TYPE": "2", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH"}
    # GPUDirect whatever the way over PCIe is, which an adapter in software does not have.
    shared |= {"NCCL_NET_GDR_LEVEL": os.environ.get("NCCL_NET_GDR_LEVEL", "SYS")}
    # A kernel that is loaded at its first launch waits for NCCL's, and the adapter's copies for the launch.
    shared |= {"CUDA_MODULE_LOADING": os.environ.get("CUDA_MODULE_LOADING", "EAGER")}
    try:
        with tempfile.TemporaryDirectory() as folder:
            running = []
            for rank in range(ranks):
                own = {"RANK": str(rank), "NCCL_HOSTID": f"h{rank + 1}", "NCCL_DEBUG_FILE": f"{folder}/{rank}"}
                command = [*WEFT, "exec", "--lab", LAB, f"h{rank + 1}", sys.executable, __file__]
                running.append(subprocess.Popen(command, env=os.environ | shared | own))
            status = max(abs(process.wait()) for process in running)
            for line in Path(folder, "0").read_text().splitlines():
                if status or re.search(r"NET/IB|NCCL version|via NET|GPU Direct", line):
                    print(line)
        for host in ("h1", f"h{ranks}"):
            counted = subprocess.check_output([*WEFT, "diag", "perfquery", "-x", "--lab", LAB, "--at", host], text=True)
            counters = dict(line.split(":", 1) for line in counted.splitlines() if ":" in line)
            sent = 4 * int(counters["PortXmitData"].strip("."))
            print(f"{host}: its port has sent {sent:,} bytes in {int(counters['PortXmitPkts'].strip('.')):,} packets")
    finally:
        subprocess.run([*WEFT, "down", "--lab", LAB], check=True)
    return status


def train() -> None:
    """Run one rank of data-parallel training, and the same training alone with the batches of all."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from weft.verbs.gpudirect.cuda import in_use

    os.environ["NCCL_IB_DISABLE"] = "0"
    dist.init_process_group(backend="nccl", init_method="env://")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    values = torch.full((1 << 20,), float(rank + 1), device="cuda")
    dist.all_reduce(values)
    assert (values == ranks * (ranks + 1) / 2).all(), "a sum of NCCL's is wrong"

    def model() -> torch.nn.Module:
        torch.manual_seed(1)
        return (
            torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1)).cuda().double()
        )

    shared, alone = DistributedDataParallel(model(), device_ids=[0]), model()
    steps = [torch.optim.SGD(network.parameters(), lr=0.01) for network in (shared, alone)]
    generator = torch.Generator("cuda").manual_seed(2)
    for _ in range(STEPS):
        batch = torch.randn(ranks, BATCH, 256, device="cuda", dtype=torch.double, generator=generator)
        for net, step, batch_part in ((shared, steps[0], batch[rank]), (alone, steps[1], batch.flatten(0, 1))):
            step.zero_grad()
            loss = ((net(batch_part).squeeze(1) - batch_part.sum(1)) ** 2).mean()
            loss.backward()
            step.step()
    for ours, theirs in zip(shared.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    print(f"rank {rank} of {ranks}: after {STEPS} steps the parameters are those of training alone, loss {loss:.4f}")
    driver = in_use()
    copied = driver.copied_bytes if driver else {}
    print(f"rank {rank}: copied on the GPU by weft: {copied.get('DtoD', 0):,} bytes")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        sys.exit(start(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
