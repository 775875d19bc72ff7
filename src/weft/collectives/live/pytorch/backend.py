"""PyTorch's process group: its calls as programs on tensors.

Collectives are done when the call returns. Sends and receives begin with the call and go on whenever their rank waits
for anything. Tensors that do not lie together in memory are copied there and back. Those of a GPU have a group of their
own (`gpu`); what was to be done on the current stream is done before a call begins, and the call's own when it returns.
"""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from weft.collectives.kinds import Collective
from weft.collectives.live.beside import Calls
from weft.collectives.live.calls import choose
from weft.collectives.live.group import Group
from weft.collectives.live.link import Endpoint
from weft.collectives.live.pytorch import gpu, sparse
from weft.collectives.live.pytorch.tensors import SUM, Reduction, TensorMemory, as_bytes
from weft.collectives.live.pytorch.work import Tensors, Work, converted_errors
from weft.errors import ConfigError, SubnetError

_EXCHANGE = 1 << 62  # a tag that no program has


@cache
def endpoint() -> Endpoint:
    """Return the endpoint of this process, which its groups share."""
    return Endpoint()


class TorchStore:
    """An adapter of PyTorch's store."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str, timeout_s: float) -> bytes:
        if not self._store.check([key]):
            if timeout_s <= 0:
                raise TimeoutError(key)
            try:
                self._store.wait([key], datetime.timedelta(seconds=timeout_s))
            except (dist.DistStoreError, RuntimeError) as error:
                raise TimeoutError(key) from error
        value: bytes = self._store.get(key)
        return value


def _name(store: TorchStore, rank: int, timeout_s: float) -> str:
    """Return a name for a group that no other one of the job has: its first rank makes it.

    The store of torchrun outlives the ranks: those that it starts again must not find the name of the ranks before.
    """
    key = f"name-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if rank == 0:
        store.set(key, f"torch-{secrets.token_hex(4)}".encode())
    try:
        return store.get(key, timeout_s).decode()
    except TimeoutError:
        raise SubnetError(f"rank 0: it did not come within the timeout of {timeout_s:g} s") from None


def _checked(tag: int) -> int:
    if not 0 <= tag <= _EXCHANGE:
        raise ConfigError(f"tag {tag}: tags of messages are from 0 to {_EXCHANGE - 1}")
    return tag


def _described(data: torch.Tensor, numel: int) -> str:
    return f"{numel:,} {str(data.dtype).removeprefix('torch.')} on {data.device.type}"


@contextmanager
def _together(*tensors: torch.Tensor) -> Iterator[Tensors]:
    """Yield contiguous tensors: the given ones, or copies that are copied back."""
    contiguous = [tensor if tensor.is_contiguous() else tensor.contiguous() for tensor in tensors]
    yield contiguous
    for tensor, copy in zip(tensors, contiguous, strict=True):
        if copy is not tensor:
            tensor.copy_(copy)


class ProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A process group with PyTorch's method names, those before 2.13 and after."""

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._timeout_s = rank, size, timeout.total_seconds()
        self._keys = TorchStore(store)
        self._on_gpu: tuple[torch.device, Group] | None = None
        with converted_errors():
            name = _name(self._keys, rank, self._timeout_s)
            self._calls = Calls(self._keys, f"{name}-calls", rank)
            self._group = Group(endpoint(), self._keys, name, rank, size, self._timeout_s, self._calls)

    def getBackendName(self) -> str:  # noqa: N802
        return "weft"

    def _set_group_name(self, name: str) -> None:
        """Store the group's name, which PyTorch's base class does not keep for groups in Python."""
        self._name = name

    @property
    def group_name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"ProcessGroup weft, rank {self._rank} of {self._size}"

    # -- one tensor at each rank --------------------------------------------------------------------------------------

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        reduction = Reduction(opts.reduceOp) if opts is not None else SUM
        for tensor in tensors:
            if tensor.is_sparse:
                sparse.add(tensor, reduction, self._everybodys, self._size)
                continue
            with _together(tensor) as (data,):
                self._run(Collective.ALL_REDUCE, data, reduction=reduction)
                reduction.finish(data, self._size)
        return Work(self._group, tensors)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        for tensor in tensors:
            with _together(tensor) as (data,):
                self._run(Collective.BROADCAST, data, root=opts.rootRank)
        return Work(self._group, tensors)

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """Reduce to the root; the tensors of other ranks do not change."""
        reduction = Reduction(opts.reduceOp)
        for tensor in tensors:
            data = tensor.clone(memory_format=torch.contiguous_format)
            self._run(Collective.REDUCE, data, root=opts.rootRank, reduction=reduction)
            if self._rank == opts.rootRank:
                reduction.finish(data, self._size)
                tensor.copy_(data)
        return Work(self._group, tensors)

    def barrier(self, opts: Any = None) -> Work:
        self._run(Collective.BARRIER, torch.empty(0, device="cpu"))
        return Work(self._group, [])

    # -- blocks, together in one tensor -------------------------------------------------------------------------------

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        with _together(output) as (data,):
            self._check_blocks("all_gather", data, tensor)
            data.view(-1).chunk(self._size)[self._rank].copy_(tensor.reshape(-1))
            self._run(Collective.ALL_GATHER, data)
        return Work(self._group, [output])

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        reduction = Reduction(opts.reduceOp) if opts is not None else SUM
        self._check_blocks("reduce_scatter", tensor, output)
        data = tensor.clone(memory_format=torch.contiguous_format)
        self._run(Collective.REDUCE_SCATTER, data, reduction=reduction)
        output.copy_(data.view(-1).chunk(self._size)[self._rank].view(output.shape))
        reduction.finish(output, self._size)
        return Work(self._group, [output])

    def all_to_all_single(
        self, output: torch.Tensor, tensor: torch.Tensor, out_splits: list[int], in_splits: list[int], opts: Any = None
    ) -> Work:
        with _together(output, tensor) as (into, data):
            if out_splits or in_splits:
                self._exchange(self._split("output", into, out_splits), self._split("input", data, in_splits))
            else:
                self._check_blocks("all_to_all", data, into.view(-1).chunk(self._size)[0])
                self._run(Collective.ALL_TO_ALL, data, into)
                into.view(-1).chunk(self._size)[self._rank].copy_(data.view(-1).chunk(self._size)[self._rank])
        return Work(self._group, [output])

    def _split(self, name: str, tensor: torch.Tensor, splits: list[int]) -> Tensors:
        """Split a tensor by rank; without `splits` into equal parts."""
        rows = len(tensor)
        sizes = splits or [rows // self._size] * self._size
        if len(sizes) != self._size or sum(sizes) != rows:
            raise ValueError(f"all_to_all of {self._size} ranks: {name} has {rows} rows, and splits {sizes}")
        return list(tensor.split(sizes))

    def all_gather_single_coalesced(self, outputs: Tensors, tensors: Tensors, opts: Any = None) -> Work:
        for output, tensor in zip(outputs, tensors, strict=True):
            self.all_gather_single(output, tensor, opts)
        return Work(self._group, outputs)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, tensors: Tensors, opts: Any = None) -> Work:
        for output, tensor in zip(outputs, tensors, strict=True):
            self.reduce_scatter_single(output, tensor, opts)
        return Work(self._group, outputs)

    _allgather_base, _reduce_scatter_base, alltoall_base = all_gather_single, reduce_scatter_single, all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # -- lists of tensors ---------------------------------------------------------------------------------------------

    def allgather(self, outputs: list[Tensors], tensors: Tensors, opts: Any = None) -> Work:
        for into, tensor in zip(outputs, tensors, strict=True):
            if any(output.numel() != tensor.numel() for output in into):  # others may have more, or less
                self._run_each(into, tensor)
                continue
            data = tensor.new_empty((self._size, tensor.numel()))
            self.all_gather_single(data, tensor)
            for output, block in zip(into, data, strict=True):
                output.copy_(block.view(output.shape))
        return Work(self._group, [output for into in outputs for output in into])

    def _everybodys(self, tensor: torch.Tensor, counts: list[int], dim: int) -> torch.Tensor:
        """Gather tensors of all ranks along a dimension; `counts` are their sizes there."""
        into = [tensor.new_empty([*tensor.shape[:dim], count, *tensor.shape[dim + 1 :]]) for count in counts]
        self._run_each(into, tensor)
        return torch.cat(into, dim)

    def _run_each(self, into: Tensors, tensor: torch.Tensor) -> None:
        """Gather tensors of different sizes by one broadcast for each."""
        for rank, output in enumerate(into):
            with _together(output) as (data,):
                if rank == self._rank:
                    data.copy_(tensor)
                self._run(Collective.BROADCAST, data, root=rank)

    def allgather_coalesced(self, outputs: list[Tensors], tensors: Tensors, opts: Any = None) -> Work:
        """Gather several tensors; `outputs` are ordered by rank."""
        return self.allgather([list(column) for column in zip(*outputs, strict=True)], tensors, opts)

    def reduce_scatter(self, outputs: Tensors, tensors: list[Tensors], opts: Any = None) -> Work:
        for output, parts in zip(outputs, tensors, strict=True):
            if any(part.numel() != output.numel() for part in parts):
                self._reduce_each(output, parts, opts)
            else:
                self.reduce_scatter_single(output, torch.cat([part.reshape(-1) for part in parts]), opts)
        return Work(self._group, outputs)

    def _reduce_each(self, output: torch.Tensor, parts: Tensors, opts: Any) -> None:
        """Reduce parts of different sizes, one reduction for each."""
        reduction = Reduction(opts.reduceOp) if opts is not None else SUM
        for rank, part in enumerate(parts):
            data = part.clone(memory_format=torch.contiguous_format)
            self._run(Collective.REDUCE, data, root=rank, reduction=reduction)
            if rank == self._rank:
                reduction.finish(data, self._size)
                output.copy_(data.view(output.shape))

    def alltoall(self, outputs: Tensors, tensors: Tensors, opts: Any = None) -> Work:
        self._exchange(outputs, tensors)
        return Work(self._group, outputs)

    def gather(self, outputs: list[Tensors], tensors: Tensors, opts: Any) -> Work:
        is_root = self._rank == opts.rootRank
        for nth, tensor in enumerate(tensors):
            data = tensor.new_empty((self._size, tensor.numel())) if is_root else tensor.contiguous()
            if is_root:
                data[self._rank].copy_(tensor.reshape(-1))
            self._run_rooted(Collective.GATHER, data, opts.rootRank)
            for output, block in zip(outputs[nth], data, strict=True) if is_root else ():
                output.copy_(block.view(output.shape))
        return Work(self._group, [output for into in outputs for output in into])

    def scatter(self, outputs: Tensors, tensors: list[Tensors], opts: Any) -> Work:
        is_root = self._rank == opts.rootRank
        for nth, output in enumerate(outputs):
            if is_root:
                data = torch.stack([part.reshape(-1) for part in tensors[nth]])
            else:
                data = output.new_empty(output.numel())
            self._run_rooted(Collective.SCATTER, data, opts.rootRank)
            output.copy_((data[self._rank] if is_root else data).view(output.shape))
        return Work(self._group, outputs)

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, tensors: Tensors, to: int, tag: int = 0) -> Work:
        with converted_errors():
            data = tensors[0].contiguous()
            group = self._group_of(data)
            work = Work(group, tensors, group.message_queue.send(to, as_bytes(data), _checked(tag)))
            work.at_end = lambda: data  # it stays until then
        return work

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> Work:
        return self._receive(tensors, source, tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        return self._receive(tensors, None, tag)

    def _receive(self, tensors: Tensors, source: int | None, tag: int) -> Work:
        tensor = tensors[0]
        data = tensor if tensor.is_contiguous() else torch.empty_like(tensor, memory_format=torch.contiguous_format)
        with converted_errors():
            group = self._group_of(data)
            work = Work(group, tensors, group.message_queue.receive(as_bytes(data), source, _checked(tag)))
        if data is not tensor:
            work.at_end = lambda: tensor.copy_(data)
        return work

    # -- how ----------------------------------------------------------------------------------------------------------

    def _run(
        self,
        kind: Collective,
        data: torch.Tensor,
        beside: torch.Tensor | None = None,
        *,
        root: int = 0,
        reduction: Reduction | None = None,
    ) -> None:
        if self._size == 1:
            return
        by = f" by {reduction.name}" if reduction is not None else ""
        words = f"{kind} of {_described(data, data.numel())}{by}, root {root}"
        with converted_errors():
            if reduction is not None:
                reduction.check(data)
            program = choose(kind, self._size, data.nbytes, root, direct=not data.is_cuda)
            memory = (gpu.GpuMemory if data.is_cuda else TensorMemory)(data, beside, reduction or SUM)
            self._group_of(data).run(program, memory, words)

    def _run_rooted(self, kind: Collective, data: torch.Tensor, root: int) -> None:
        """Run a gather or a scatter: the root has all blocks, the others their own."""
        if self._size == 1:
            return
        n_blocks = 1 if self._rank == root else self._size
        words = f"{kind} of {_described(data, data.numel() * n_blocks)}, root {root}"
        with converted_errors():
            program = choose(kind, self._size, data.nbytes * n_blocks, root)
            block = self._rank * (n_blocks > 1)
            memory = (gpu.GpuMemory if data.is_cuda else TensorMemory)(data, block=block, n_blocks=n_blocks)
            self._group_of(data).run(program, memory, words)

    def _group_of(self, tensor: torch.Tensor) -> Group:
        """Return the group for a tensor's memory, after the current stream has finished."""
        if not tensor.is_cuda:
            return self._group
        torch.cuda.current_stream(tensor.device).synchronize()
        if self._on_gpu is None:
            end, name = gpu.endpoint(tensor.device), f"{self._group.name}-gpu"
            group = Group(end, self._keys, name, self._rank, self._size, self._timeout_s, self._calls)
            self._on_gpu = tensor.device, group
        device, group = self._on_gpu
        if device != tensor.device:
            raise ConfigError(f"a tensor on {tensor.device}: others of this rank are on {device}, and it has one GPU")
        return group

    def _exchange(self, outputs: Tensors, tensors: Tensors) -> None:
        """Exchange tensors of different sizes with all ranks, by messages with a reserved tag."""
        outputs[self._rank].copy_(tensors[self._rank])
        ranks = [(self._rank + step) % self._size for step in range(1, self._size)]
        works = [self._receive([outputs[rank]], rank, _EXCHANGE) for rank in ranks]
        works += [self.send([tensors[rank]], rank, _EXCHANGE) for rank in ranks]
        for work in works:
            work.wait()

    def _check_blocks(self, call: str, whole: torch.Tensor, block: torch.Tensor) -> None:
        if whole.numel() != self._size * block.numel() or whole.dtype != block.dtype:
            raise ValueError(
                f"{call} of {self._size} ranks: {whole.numel():,} {whole.dtype} and {block.numel():,} {block.dtype}"
            )

    def shutdown(self) -> None:
        self._group.close()
        if self._on_gpu is not None:
            self._on_gpu[1].close()

    abort = shutdown
