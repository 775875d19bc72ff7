"""Run a program as one of two ranks, then train by DDP until there is a file `stop` in the folder.

    torch_faults_program.py FOLDER PROGRAM

Each rank also trains a twin model with the gradients of both ranks, which it computes itself. After each step both
models must be equal bit for bit: a sum of two gradients is the same in either order.
"""

from __future__ import annotations

import copy
import itertools
import os
import runpy
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 2


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    """Return the loss on a rank's data of a step."""
    random = torch.Generator().manual_seed(RANKS * step + rank)
    result: torch.Tensor = model(torch.randn(16, 32, generator=random)).square().mean()
    return result


def train_twin(twin: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    sums = [torch.zeros_like(item) for item in twin.parameters()]
    for rank in range(RANKS):
        twin.zero_grad()
        loss_of(twin, step, rank).backward()
        for total, item in zip(sums, twin.parameters(), strict=True):
            total += item.grad / RANKS
    for total, item in zip(sums, twin.parameters(), strict=True):
        item.grad = total
    optimizer.step()


def main(folder: Path) -> None:
    torch.manual_seed(1)
    meeting = (folder / "meeting").as_uri()  # a file: the TCP store of the program before may still run
    dist.init_process_group("weft", init_method=meeting, rank=int(os.environ["RANK"]), world_size=RANKS)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))
    twin = copy.deepcopy(model)
    both = DistributedDataParallel(model)
    optimizers = [torch.optim.SGD(item.parameters(), lr=0.05, momentum=0.9) for item in (both, twin)]
    for step in itertools.count(1):
        optimizers[0].zero_grad()
        loss_of(both, step, dist.get_rank()).backward()
        optimizers[0].step()
        train_twin(twin, optimizers[1], step)
        for mine, expected in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.equal(mine, expected), f"step {step}"
        with (folder / f"steps.{dist.get_rank()}").open("a") as steps:
            steps.write("x")
        time.sleep(0.01)  # other processes need the processor
        dist.all_reduce(over := torch.tensor(int((folder / "stop").exists())))
        if over:
            break
    print(f"rank {dist.get_rank()}: equal bit for bit after {step} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    runpy.run_path(sys.argv[2], run_name="__main__")  # in the same process: importing PyTorch takes longer than both
    main(Path(sys.argv[1]))
