"""Train data-parallel, as on a cluster: `weft run -n 2 examples/ddp.py`.

The name of the backend is the only line that differs from other PyTorch programs. The gradients are real, and go over
the links
of a lab: pull its cables (`weft run --lab NAME`, `weft break`), and look at its counters. With DEVICE=cuda the model
is on the
GPU, which ranks may share.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "20"))
DEVICE = os.environ.get("DEVICE", "cpu")


def main() -> None:
    dist.init_process_group(backend="weft")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        data = torch.randn(32, 64, generator=torch.Generator().manual_seed(step * size + rank)).to(DEVICE)
        loss = (model(data) - data.sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total = torch.stack([parameter.detach().double().sum() for parameter in model.parameters()]).sum()
    totals = [torch.zeros_like(total) for _ in range(size)]
    dist.all_gather(totals, total)
    if rank == 0:
        same = "are the same on all ranks" if len({float(value) for value in totals}) == 1 else "DIFFER between ranks"
        print(f"{size} ranks, {STEPS} steps, loss {loss.item():.2f}: the parameters {same}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
