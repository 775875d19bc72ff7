"""Run calls and trainings on two backends in the same processes, which are forks of one that has imported PyTorch.

With DEVICE=cuda tensors of weft's calls are on the GPU, those of gloo's on the processor.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP and DTensor would import it in each rank
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import weft.collectives.live.pytorch.backend  # noqa: F401, once and not by each fork

warnings.simplefilter("ignore", FutureWarning)  # about names that PyTorch has renamed: programs use the old ones
RANK, SIZE = -1, int(os.environ["WORLD_SIZE"])  # each fork has a rank of its own
DEVICE = os.environ.get("DEVICE", "cpu")
STEPS = 50 if DEVICE == "cuda" else 10
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def begin(backend: str, meeting: str) -> None:
    """Create the default group; the ranks meet through a file in the folder that is the program's first argument."""
    file = (Path(sys.argv[1]) / meeting).absolute().as_uri()
    dist.init_process_group(backend, init_method=file, rank=RANK, world_size=SIZE)


def mine(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Return values that differ by rank: small whole numbers, so that the order of sums does not matter."""
    generator = torch.Generator().manual_seed(1000 * seed + RANK)
    return torch.randint(0, 4, shape, generator=generator, device="cpu").to(torch.get_default_device(), dtype)


# -- calls ------------------------------------------------------------------------------------------------------------


def all_reduce(group: Any) -> list[torch.Tensor]:
    result = []
    ops = (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT)
    for dtype in TYPES:
        for op in ops:
            for size in (0, 1, 3, 1000, 300_001):  # nothing, less than ranks, small, and some fragments
                if size < 1000 or op == dist.ReduceOp.SUM:
                    dist.all_reduce(tensor := mine(size, dtype=dtype), op, group)
                    result.append(tensor)
    for bits in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        dist.all_reduce(tensor := mine(9, dtype=torch.int32), bits, group)
        result.append(tensor)
    return result


def rooted(group: Any) -> list[torch.Tensor]:
    result = []
    for root in range(SIZE):
        dist.broadcast(sent := mine(70_000, seed=1), root, group)
        dist.reduce(reduced := mine(70_000, seed=2), root, group=group)
        parts = [torch.empty(5, 7) for _ in range(SIZE)] if root == RANK else None
        dist.gather(mine(5, 7, seed=3), parts, root, group)
        arguments = list(mine(SIZE, 5, 7, seed=4).unbind()) if root == RANK else None
        dist.scatter(used := torch.empty(5, 7), arguments, root, group)
        result += [sent, used, *(parts or []), *([reduced] if root == RANK else [])]
    return result


def blocks(group: Any) -> list[torch.Tensor]:
    dist.all_gather(parts := [torch.empty(3, 4) for _ in range(SIZE)], mine(3, 4, seed=1), group)
    dist.all_gather_into_tensor(whole := torch.empty(SIZE * 30_000), mine(30_000, seed=2), group)
    dist.all_to_all_single(turned := torch.empty(SIZE * 9), mine(SIZE * 9, seed=3), group=group)
    outs, ins = [1 + RANK] * SIZE, [1 + rank for rank in range(SIZE)]
    dist.all_to_all_single(uneven := torch.empty(sum(outs), 2), mine(sum(ins), 2, seed=4), outs, ins, group)
    return [*parts, whole, turned, uneven]


def objects(group: Any) -> list[object]:
    dist.all_gather_object(result := [None] * SIZE, {"rank": RANK, "text": "x" * RANK}, group)
    dist.broadcast_object_list(received := [RANK, str(RANK)], 1, group)
    dist.barrier(group)
    return [result, received]


def messages(group: Any) -> list[torch.Tensor]:
    """Send around a ring messages larger than all slots, all at once; then many to one, received in any order."""
    before, after = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    came = torch.empty(1_500_000)
    ops = [
        dist.P2POp(dist.isend, mine(1_500_000, seed=1), after, group),
        dist.P2POp(dist.irecv, came, before, group),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    if RANK:
        dist.send(mine(10, seed=2), 0, group)
        return [came]
    result = {}
    for _ in range(SIZE - 1):
        source = dist.recv(tensor := torch.empty(10), group=group)
        result[source] = tensor
    return [came, *(result[source] for source in sorted(result))]


def functional(group: Any) -> list[torch.Tensor]:
    """Call the collectives as DTensor and torch.compile do."""
    from torch.distributed import _functional_collectives as calls

    result = [
        calls.all_reduce(mine(100, seed=1), "sum", group),
        calls.all_gather_tensor(mine(6, 2, seed=2), 0, group),
        calls.reduce_scatter_tensor(mine(SIZE * 6, 2, seed=3), "sum", 0, group),
        calls.all_to_all_single(mine(SIZE * 3, seed=4), None, None, group),
        calls.broadcast(mine(40, seed=5), 1, group),
    ]
    return [calls.wait_tensor(item) for item in result]


def of_weft_alone(group: Any) -> None:
    """Call what gloo lacks or does differently: tensors that are not contiguous, means, reduce_scatter in its forms."""
    dist.all_reduce(apart := mine(50, 60).t()[::2], group=group)
    dist.all_reduce(together := mine(50, 60).t()[::2].contiguous(), group=group)
    assert torch.equal(apart, together)
    dist.all_reduce(mean := mine(11), dist.ReduceOp.AVG, group)
    dist.all_gather(each := [torch.empty(11) for _ in range(SIZE)], mine(11), group)
    torch.testing.assert_close(mean, torch.stack(each).mean(0))
    dist.reduce_scatter(item := torch.empty(3), list(mine(SIZE, 3, seed=1).unbind()), group=group)
    dist.reduce_scatter_tensor(other := torch.empty(3), mine(SIZE * 3, seed=1), group=group)
    dist.all_reduce(whole := mine(SIZE, 3, seed=1), group=group)
    assert torch.equal(item, whole[RANK])
    assert torch.equal(other, whole[RANK])
    sizes = [3 + rank for rank in range(SIZE)]
    dist.all_gather(uneven := [torch.empty(size) for size in sizes], mine(sizes[RANK], seed=2), group)
    assert torch.equal(uneven[RANK], mine(sizes[RANK], seed=2))
    came, before, after = torch.empty(9), (RANK - 1) % SIZE, (RANK + 1) % SIZE
    works = [dist.irecv(came, before, group), dist.isend(mine(9, seed=before), after, group)]
    while not all(work.is_completed() for work in works):  # polled, without wait()
        pass


def refused(group: Any) -> None:
    """Check that invalid calls are refused before anything is sent: later calls work."""
    alone = dist.new_group(backend="weft")
    for call, why in (
        (lambda: dist.all_reduce(mine(3), dist.ReduceOp.BAND, group), "does not reduce torch.float32 by band"),
        (lambda: dist.isend(mine(3), (RANK + 1) % SIZE, group, tag=-1), "tag -1"),
        (lambda: dist.recv(mine(3), (RANK + 1) % SIZE, alone, tag=1 << 63), f"tag {1 << 63}"),
        (lambda: dist.all_to_all_single(mine(SIZE + 1), mine(SIZE), None, [1] * SIZE, group), "split"),
        (lambda: dist.all_to_all_single(mine(SIZE), mine(SIZE), [1] * SIZE, [SIZE], group), "split"),
        (lambda: dist.irecv(mine(3), (RANK + 1) % SIZE, alone).wait(timedelta(seconds=0.1)), "nothing within 0.1 s"),
    ):
        output = ""
        try:
            call()
        except (RuntimeError, ValueError) as error:
            output = str(error)
        assert why in output, (why, output)
    dist.all_reduce(items := torch.ones(3), group=group)
    assert torch.equal(items, torch.full((3,), float(SIZE)))


def on_streams(group: Any) -> None:
    """Check that a call waits for earlier work on its stream, and that after wait() any stream has the result."""
    tensor, side = torch.zeros(300_001, device=DEVICE), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(300_000_000)  # cycles
        tensor.fill_(RANK + 1)
        work = dist.all_reduce(tensor, dist.ReduceOp.AVG, group, async_op=True)
    work.wait()
    assert torch.equal(tensor.cpu(), torch.full((300_001,), (SIZE + 1) / 2))


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other.cpu())
    return bool(one == other)


def calls() -> None:
    """Compare all calls in a group of gloo and a group of weft."""
    begin("gloo", "calls")
    gloo, weft = dist.group.WORLD, dist.new_group(backend="weft")
    for call in (all_reduce, rooted, blocks, objects, messages, functional):
        expected = call(gloo)
        with torch.device(DEVICE):
            result = call(weft)
        assert len(expected) == len(result) > 0, call
        assert all(equal(item, other) for item, other in zip(expected, result, strict=True)), call.__name__
    with torch.device(DEVICE):
        of_weft_alone(weft)
        refused(weft)
    if DEVICE == "cuda":
        on_streams(weft)
    halves = [dist.new_group(list(ranks), backend="weft") for ranks in (range(0, SIZE, 2), range(1, SIZE, 2))]
    dist.all_reduce(half := torch.tensor(float(RANK), device=DEVICE), group=halves[RANK % 2])
    assert half.item() == sum(range(RANK % 2, SIZE, 2))
    dist.all_gather_object(names := [""] * SIZE, halves[RANK % 2]._group.name, weft)  # their names in a record
    assert len({*names, weft._group.name}) == 3
    dist.destroy_process_group()


# -- trainings --------------------------------------------------------------------------------------------------------


class Transformer(torch.nn.Module):
    """A small transformer of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(32, 16)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0, batch_first=True) for _ in range(2)
        )
        self.head = torch.nn.Linear(16, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result = self.embed(tokens)
        for layer in self.layers:
            result = layer(result)
        results: torch.Tensor = self.head(result)
        return results


def ddp(model: torch.nn.Module) -> torch.nn.Module:
    return DistributedDataParallel(model)


def ddp_of_pairs(model: torch.nn.Module) -> torch.nn.Module:
    """Train on groups of two ranks: a sum of two has only one order."""
    pairs = [dist.new_group([first, first + 1]) for first in range(0, SIZE, 2)]
    return DistributedDataParallel(model, process_group=pairs[RANK // 2])


def mesh_of(model: torch.nn.Module) -> Any:
    return init_device_mesh(next(model.parameters()).device.type, (SIZE,))


def fsdp(model: torch.nn.Module) -> torch.nn.Module:
    mesh = mesh_of(model)
    for layer in model.layers:  # type: ignore[union-attr]
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def tensor_parallel(model: torch.nn.Module) -> torch.nn.Module:
    mesh = mesh_of(model)
    for layer in model.layers:  # type: ignore[union-attr]
        parallelize_module(layer, mesh, {"linear1": ColwiseParallel(), "linear2": RowwiseParallel()})
    return model


def train(
    wrap: Callable[[torch.nn.Module], torch.nn.Module], device: str, *, same_data: bool = False
) -> list[torch.Tensor]:
    torch.manual_seed(7)
    model = wrap(Transformer().to(device))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step * SIZE + (0 if same_data else RANK))
        tokens = torch.randint(0, 32, (4, 9), generator=generator).to(device)
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [whole(parameter.detach()) for parameter in model.parameters()]


def whole(tensor: Any) -> torch.Tensor:
    """Return the tensor of all ranks, if it is sharded."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).clone().cpu()


def trainings() -> None:
    result: dict[str, dict[str, list[torch.Tensor]]] = {}
    for backend, device in (("gloo", "cpu"), ("weft", DEVICE)):
        begin(backend, f"trainings by {backend}")
        result[backend] = {
            "DDP of pairs": train(ddp_of_pairs, device),
            "DDP": train(ddp, device),
            "FSDP2": train(fsdp, device),
            "tensor parallel": train(tensor_parallel, device, same_data=True),
        }
        dist.barrier()
        dist.destroy_process_group()
    for name, expected in result["gloo"].items():
        created = result["weft"][name]
        for item, other in zip(expected, created, strict=True):
            torch.testing.assert_close(item, other)
        is_same = all(torch.equal(item, other) for item, other in zip(expected, created, strict=True))
        how = "bit-equal" if is_same else "close"
        sys.stdout.write(f"rank {RANK}: {name} {how} to gloo after {STEPS} steps\n")  # in one write


def no_byte_of_tensors_went_through_the_host() -> None:
    """Assert that only message headers, of 16 bytes each, went through the host."""
    from weft.verbs.gpudirect.cuda import driver

    copied = driver().copied_bytes
    assert copied["DtoD"] > 10_000_000, copied
    assert copied["HtoD"] < 10_000, copied
    assert copied["DtoH"] == 0, copied


def main() -> None:
    torch.set_num_threads(1)
    calls()
    if DEVICE == "cuda":
        torch.set_default_dtype(torch.float64)  # in float32 a GPU and a processor would soon differ
    trainings()
    if DEVICE == "cuda":
        no_byte_of_tensors_went_through_the_host()


if __name__ == "__main__":
    forks = []
    for rank in range(SIZE):
        forks.append(os.fork())
        if not forks[-1]:
            RANK = rank
            main()
            sys.stdout.flush()
            os._exit(0)  # a normal exit would free all of PyTorch's objects in every rank
    sys.exit(max(os.waitpid(fork, 0)[1] for fork in forks) != 0)
