"""Tensors on a GPU: slots are GPU memory too, the GPU copies and adds, and no byte passes through the host.

A rank writes from its tensor into a slot on the GPU of the other rank, by CUDA IPC (`weft.verbs.gpudirect`). Sums are
PyTorch's, on its current stream. Adapters do not know streams: the work of the current stream is finished before
anything is sent, and copies and sums are finished before the other rank gets its credit.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import Any

import torch

from weft.collectives.live.link import ACCESS, Endpoint
from weft.collectives.live.pytorch.tensors import SUM, Reduction, as_bytes
from weft.errors import ConfigError
from weft.verbs.gpudirect.cuda import Allocation, CudaError, driver
from weft.verbs.hca.regions import Region
from weft.verbs.pyverbs.mr import MR

FRAGMENT_BYTES = 8 << 20  # a request costs as much as the copy of so many
_REGIONS_MAX = 64  # allocations that stay registered: PyTorch has few, and cuts its tensors from them


@cache
def endpoint(device: torch.device) -> GpuEndpoint:
    """Return the endpoint of this process for a device, which its groups share."""
    return GpuEndpoint(device)


class _Slots:
    """A GPU allocation outside PyTorch's allocator, which may give no IPC handles and reuses memory in use."""

    def __init__(self, allocation: Allocation) -> None:
        self._allocation = allocation
        data = allocation.start, False
        self.__cuda_array_interface__ = {"shape": (allocation.size,), "typestr": "|u1", "data": data, "version": 3}


class GpuEndpoint(Endpoint):
    """An `Endpoint` for tensors on one GPU."""

    is_readable = False

    def __init__(self, device: torch.device) -> None:
        super().__init__(fragment_bytes=FRAGMENT_BYTES)
        self.device = device
        # By allocation, the last used at the end
        self._regions: OrderedDict[tuple[int, int, int], Region] = OrderedDict()

    def room(self, n_bytes: int) -> tuple[MR, torch.Tensor]:
        try:
            slots = _Slots(driver().allocate(self.device.index, n_bytes))
        except CudaError as error:
            raise ConfigError(f"backend weft on {self.device}, slots of {n_bytes:,} bytes: {error}") from error
        return MR(self.pd, n_bytes, ACCESS, address=slots), torch.as_tensor(slots, device=self.device)

    def key(self, address: int, length: int) -> int:
        try:
            allocation = driver().allocation_at(address, length, for_others=False)
        except CudaError as error:
            raise ConfigError(f"a tensor on {self.device} cannot be sent: {error}") from error
        if allocation is None:  # the head of a message
            return super().key(address, length)
        name = allocation.number, allocation.start, allocation.size  # expandable segments have no number
        if name not in self._regions:
            table = self.port.ctx.adapter.regions
            self._regions[name] = table.register(self.pd.key, allocation.start, allocation.size, 0, device=allocation)
            if len(self._regions) > _REGIONS_MAX:
                table.drop(self._regions.popitem(last=False)[1])
        self._regions.move_to_end(name)
        return self._regions[name].key

    def empty(self, n_bytes: int) -> torch.Tensor:
        return torch.empty(n_bytes, dtype=torch.uint8, device=self.device)

    def address(self, data: torch.Tensor) -> int:
        return int(data.data_ptr())

    def read(self, data: torch.Tensor) -> bytes:
        return bytes(data.cpu().numpy())

    def settle(self) -> None:
        torch.cuda.current_stream(self.device).synchronize()


class GpuMemory:
    """A `TensorMemory` for tensors on a GPU."""

    sums: int | None = None

    def __init__(
        self,
        data: torch.Tensor,
        beside: torch.Tensor | None = None,
        reduction: Reduction = SUM,
        *,
        block: int = 0,
        n_blocks: int = 1,
    ) -> None:
        self.size_bytes, self.item_bytes = n_blocks * data.nbytes, data.element_size()
        self._type, self._join, self._end = data.dtype, reduction.join, endpoint(data.device)
        self._data, self._first = as_bytes(data), block * data.nbytes
        self._beside = as_bytes(beside) if beside is not None else self._data[:0]

    def address(self, begin: int) -> int:
        part, offset = self._part(begin)
        return int(part.data_ptr()) + offset

    def put(self, begin: int, data: Any) -> None:
        part, offset = self._part(begin)
        part[offset : offset + len(data)].copy_(data)
        self._end.settle()

    def add(self, begin: int, data: Any) -> None:
        part, offset = self._part(begin)
        target = part[offset : offset + len(data)].view(self._type)
        self._join(target, data.view(self._type), out=target)
        self._end.settle()

    def _part(self, begin: int) -> tuple[torch.Tensor, int]:
        if begin < self.size_bytes:
            return self._data, begin - self._first
        return self._beside, begin - self.size_bytes
