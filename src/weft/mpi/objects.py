"""Collectives on Python objects, which are pickled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from weft.collectives.live.message_queue import Receiving, Sending
from weft.errors import ConfigError
from weft.mpi.arrays import Arrays
from weft.mpi.messages import Bytes, pickled, unpickled
from weft.mpi.operations import SUM


class Objects(Arrays):
    def barrier(self) -> None:
        self.Barrier()

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Broadcast the length, then the object."""
        is_root = self.rank == self._root(root)
        data = pickled(obj) if is_root else np.empty(0, np.uint8)
        self.Bcast(length := np.array([len(data)]), root)
        if not is_root:
            data = np.empty(int(length[0]), np.uint8)
        self.Bcast(data, root)
        return obj if is_root else unpickled(data)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Return all objects on the root, in rank order; None on other ranks."""
        if self.rank != self._root(root):
            self._exchange_objects(f"gather to rank {root}", {root: pickled(sendobj)}, ())
            return None
        received = self._exchange_objects(
            f"gather to rank {root}", {}, [rank for rank in range(self.size) if rank != root]
        )
        return [sendobj if rank == root else unpickled(received[rank]) for rank in range(self.size)]

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """Return this rank's object of the root's list."""
        if self.rank != self._root(root):
            return unpickled(self._exchange_objects(f"scatter from rank {root}", {}, [root])[root])
        each = self._one_for_each(sendobj, "scatter")
        sent = {rank: pickled(obj) for rank, obj in enumerate(each) if rank != root}
        self._exchange_objects(f"scatter from rank {root}", sent, ())
        return each[root]

    def allgather(self, sendobj: Any) -> list[Any]:
        """Gather the lengths, then all objects, padded to the longest."""
        data, n = pickled(sendobj), self.size
        self.Allgather(np.array([len(data)]), lengths := np.empty(n, np.int64))
        every = np.zeros((n, int(lengths.max())), np.uint8)
        every[self.rank, : len(data)] = data
        self.Allgather(every[self.rank].copy(), every)
        return [unpickled(row[:length]) for row, length in zip(every, lengths.tolist(), strict=True)]

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        each, peers = self._one_for_each(sendobj, "alltoall"), [rank for rank in range(self.size) if rank != self.rank]
        received = self._exchange_objects("alltoall", {rank: pickled(each[rank]) for rank in peers}, peers)
        return [each[rank] if rank == self.rank else unpickled(received[rank]) for rank in range(self.size)]

    def reduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM, root: int = 0) -> Any:
        """Reduce in rank order, on the root; `op` may be any function of two arguments."""
        every = self.gather(sendobj, root)
        return None if every is None else reduce(op, every)

    def allreduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        return reduce(op, self.allgather(sendobj))

    def scan(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Reduce over the ranks up to this one."""
        return reduce(op, self.allgather(sendobj)[: self.rank + 1])

    def exscan(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Reduce over the ranks before this one; return None on rank 0."""
        before = self.allgather(sendobj)[: self.rank]
        return reduce(op, before) if before else None

    def _exchange_objects(self, call: str, sent: dict[int, Bytes], sources: Sequence[int]) -> dict[int, Bytes]:
        """Send to peers, and return the bytes that each source sent, of any length."""
        self._agree(call)
        queue, tag = self._group.message_queue, self._own_tag()
        receiving = {peer: queue.receive(None, peer, tag) for peer in sources}
        sending = [queue.send(peer, data, tag) for peer, data in sent.items()]
        operations: list[Sending | Receiving] = [*receiving.values(), *sending]
        for operation in operations:
            queue.wait(operation)
        return {peer: message.data for peer, message in receiving.items() if message.data is not None}

    def _one_for_each(self, objects: Sequence[Any] | None, name: str) -> list[Any]:
        try:
            each = list(objects if objects is not None else ())
        except TypeError:
            raise ConfigError(f"{name} of a {type(objects).__name__}; give a list, one object for each rank") from None
        if len(each) != self.size:
            raise ConfigError(f"{name} of {len(each)} objects; give one for each of {self.size} ranks")
        return each
