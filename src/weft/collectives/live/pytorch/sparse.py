"""Sparse tensors: ranks have values at different places, so all get all of them, and add."""

from __future__ import annotations

from collections.abc import Callable

import torch

from weft.collectives.live.pytorch.tensors import Reduction

Everybodys = Callable[[torch.Tensor, list[int], int], torch.Tensor]  # mine, counts of all ranks, along which dimension


def add(tensor: torch.Tensor, reduction: Reduction, everybodys: Everybodys, size: int) -> None:
    """Add in place, coalesced, as gloo does."""
    if reduction.name not in ("sum", "avg"):
        raise ValueError(f"backend weft adds sparse tensors, and does not reduce them by {reduction.name}")
    mine = tensor.coalesce()
    counts = everybodys(torch.tensor([mine._nnz()], device=tensor.device), [1] * size, 0).tolist()
    places, values = everybodys(mine.indices(), counts, 1), everybodys(mine.values(), counts, 0)
    total = torch.sparse_coo_tensor(places, values, tensor.size()).coalesce()
    reduction.finish(total.values(), size)
    tensor.copy_(total)
