"""Tensors as memory of programs, and PyTorch's reductions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.distributed import ReduceOp

from weft.collectives.live.arrays import Array, Bytes
from weft.collectives.live.job import KINDS
from weft.errors import ConfigError

_Kind = ReduceOp.RedOpType
_REDUCTIONS: dict[Any, Callable[..., torch.Tensor]] = {
    _Kind.SUM: torch.add,
    _Kind.AVG: torch.add,  # and divided at the end
    _Kind.PRODUCT: torch.mul,
    _Kind.MIN: torch.minimum,
    _Kind.MAX: torch.maximum,
    _Kind.BAND: torch.bitwise_and,
    _Kind.BOR: torch.bitwise_or,
    _Kind.BXOR: torch.bitwise_xor,
}


_NUMBERS = (torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
_SUMS = {kind: KINDS[torch.empty(0, dtype=kind).numpy().dtype] for kind in _NUMBERS}


class Reduction:
    """The reduction of a call: the operation on two values, and the one at the end."""

    def __init__(self, op: Any) -> None:
        kind = getattr(op, "op", op)  # PyTorch takes both for a ReduceOp
        if kind not in _REDUCTIONS:
            raise ConfigError(f"backend weft does not reduce by {kind}: use one of {', '.join(map(str, _REDUCTIONS))}")
        self.name = str(kind).rpartition(".")[2].lower()
        self.join, self._is_mean = _REDUCTIONS[kind], kind == _Kind.AVG

    def check(self, data: torch.Tensor) -> None:
        """Raise an error before any send for tensors that PyTorch cannot reduce, which would fail on some ranks."""
        _check(self.join, self.name, data.dtype, data.device)

    def finish(self, result: torch.Tensor, size: int) -> None:
        if self._is_mean:
            result.div_(size, rounding_mode=None if result.is_floating_point() or result.is_complex() else "trunc")


SUM = Reduction(ReduceOp.SUM)


@cache
def _check(join: Callable[..., torch.Tensor], name: str, kind: torch.dtype, device: torch.device) -> None:
    probe = torch.zeros(1, dtype=kind, device=device)
    try:
        join(probe, probe, out=probe)
    except RuntimeError as error:
        raise ConfigError(f"backend weft does not reduce {kind} by {name}, as PyTorch does not: {error}") from None


class TensorMemory(Array):
    """A contiguous tensor with scratch memory. `block` and `n_blocks` as in Array."""

    def __init__(
        self,
        data: torch.Tensor,
        beside: torch.Tensor | None = None,
        reduction: Reduction = SUM,
        *,
        block: int = 0,
        n_blocks: int = 1,
    ) -> None:
        super().__init__(
            as_bytes(data), as_bytes(beside) if beside is not None else None, block=block, n_blocks=n_blocks
        )
        self.item_bytes, self._join = data.element_size(), reduction.join
        self._tensor_type = data.dtype
        self.sums = _SUMS.get(data.dtype) if reduction.join is torch.add else None

    def add(self, begin: int, data: Bytes) -> None:
        part, offset = self._part(begin)
        target = torch.from_numpy(part[offset : offset + len(data)]).view(self._tensor_type)
        self._join(target, torch.from_numpy(data).view(self._tensor_type), out=target)


def as_bytes(tensor: torch.Tensor) -> Any:
    """Return the memory of a tensor without a copy: as numpy, or as PyTorch on a GPU."""
    flat = tensor.detach().reshape(-1).view(torch.uint8)
    return flat if flat.is_cuda else flat.numpy()
