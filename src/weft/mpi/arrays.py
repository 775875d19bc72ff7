"""Collectives on buffers.

Most run the same algorithms that the simulators time. Gatherv, Scatterv, Alltoallv and the scans use point-to-point
messages.
"""
# ruff: noqa: N802 - the names are mpi4py's

from __future__ import annotations

from typing import Any

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.live.arrays import Array, flat
from weft.collectives.live.calls import choose
from weft.collectives.live.message_queue import OWN_TAGS, Receiving, Sending
from weft.errors import ConfigError
from weft.mpi.datatypes import Items, described, is_in_place, items, parts, same
from weft.mpi.messages import Messages
from weft.mpi.operations import SUM, Op, ufunc


class Arrays(Messages):
    _n_by_messages = 0  # collectives so far that used point-to-point messages

    def Barrier(self) -> None:
        self._run(Collective.BARRIER, Array(np.empty(0, np.uint8)), "Barrier")

    def Bcast(self, buf: Any, root: int = 0) -> None:
        data = items(buf, "buf of Bcast", is_written=self.rank != root)
        self._run(Collective.BROADCAST, Array(data), f"Bcast of {described(data)} from rank {root}", root)

    # -- reductions ---------------------------------------------------------------------------------------------------

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        data = self._begin_reduction("Allreduce", sendbuf, recvbuf)
        self._reduce(Collective.ALL_REDUCE, data, op, "Allreduce")

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> None:
        if self.rank == self._root(root):
            data = self._begin_reduction("Reduce", sendbuf, recvbuf)
        else:
            _refuse_in_place(sendbuf, "Reduce", root)
            data = items(sendbuf, "sendbuf of Reduce").copy()
        self._reduce(Collective.REDUCE, data, op, "Reduce", root)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        name, n = "Reduce_scatter_block", self.size
        received = items(recvbuf, f"recvbuf of {name}", is_written=True, blocks=n if is_in_place(sendbuf) else 1)
        data = (received if is_in_place(sendbuf) else items(sendbuf, f"sendbuf of {name}", blocks=n)).copy()
        count = len(data) // n
        mine, place = data[self.rank * count : (self.rank + 1) * count], received
        if is_in_place(sendbuf):
            place = received[:count]
        same(mine, place, name)
        self._reduce(Collective.REDUCE_SCATTER, data, op, name)
        place[:] = mine

    def Reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: Op = SUM) -> None:
        """Reduce and scatter blocks of different lengths; each is padded to the longest."""
        name, n = "Reduce_scatter", self.size
        received = items(recvbuf, f"recvbuf of {name}", is_written=True)
        if recvcounts is None:
            if is_in_place(sendbuf):
                raise ConfigError("Reduce_scatter with IN_PLACE needs recvcounts, the number of items for each rank")
            own = np.array([len(received)])
            self.Allgather(own, every := np.empty(n, own.dtype))
            recvcounts = every.tolist()
        sent = received if is_in_place(sendbuf) else items(sendbuf, f"sendbuf of {name}")
        blocks = parts([sent, recvcounts], f"sendbuf of {name}", n)
        mine = blocks[self.rank]
        place = received[: len(mine)]
        same(mine, place, name)
        longest = max(len(block) for block in blocks)
        data = np.zeros((n, longest), sent.dtype)
        for row, block in zip(data, blocks, strict=True):
            row[: len(block)] = block
        self._reduce(Collective.REDUCE_SCATTER, data.reshape(-1), op, f"{name} into {tuple(map(len, blocks))}")
        place[:] = data[self.rank, : len(place)]

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Reduce over the ranks up to this one; each rank passes its result on to the next."""
        data = self._begin_reduction("Scan", sendbuf, recvbuf)
        join = ufunc(op, data.dtype)
        self._agree(f"Scan by {op.name} of {described(data)}")
        before = self._receive_from_previous(data)
        if before is not None:
            join(before, data, out=data)
        self._send_to_next(data)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Reduce over the ranks before this one; recvbuf of rank 0 stays unchanged."""
        data = items(recvbuf, "recvbuf of Exscan", is_written=True)
        mine = data if is_in_place(sendbuf) else same(items(sendbuf, "sendbuf of Exscan"), data, "Exscan")
        join = ufunc(op, data.dtype)
        self._agree(f"Exscan by {op.name} of {described(data)}")
        before, mine = self._receive_from_previous(data), mine.copy()
        if before is not None:
            data[:] = before
            join(before, mine, out=mine)
        self._send_to_next(mine)

    # -- equal blocks -------------------------------------------------------------------------------------------------

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        data = items(recvbuf, "recvbuf of Allgather", is_written=True, blocks=self.size)
        block = self._block(data)
        if not is_in_place(sendbuf):
            block[:] = same(items(sendbuf, "sendbuf of Allgather"), block, "Allgather")
        self._run(Collective.ALL_GATHER, Array(data), f"Allgather of {described(block)} from each")

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        if self.rank == self._root(root):
            data = items(recvbuf, "recvbuf of Gather", is_written=True, blocks=self.size)
            block = self._block(data)
            if not is_in_place(sendbuf):
                block[:] = same(items(sendbuf, "sendbuf of Gather"), block, "Gather")
            memory = Array(data)
        else:
            _refuse_in_place(sendbuf, "Gather", root)
            block = items(sendbuf, "sendbuf of Gather")
            memory = Array(block, block=self.rank, n_blocks=self.size)
        self._run(Collective.GATHER, memory, f"Gather of {described(block)} from each to rank {root}", root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        if self.rank == self._root(root):
            data = items(sendbuf, "sendbuf of Scatter", blocks=self.size)
            block, memory = self._block(data), Array(data)
            if not is_in_place(recvbuf):
                place = items(recvbuf, "recvbuf of Scatter", is_written=True)
                place[:] = same(block, place, "Scatter")
        else:
            _refuse_in_place(recvbuf, "Scatter", root)
            block = items(recvbuf, "recvbuf of Scatter", is_written=True)
            memory = Array(block, block=self.rank, n_blocks=self.size)
        self._run(Collective.SCATTER, memory, f"Scatter of {described(block)} to each from rank {root}", root)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        received = items(recvbuf, "recvbuf of Alltoall", is_written=True, blocks=self.size)
        sent = received.copy() if is_in_place(sendbuf) else items(sendbuf, "sendbuf of Alltoall", blocks=self.size)
        same(sent, received, "Alltoall")
        block = self._block(received)
        block[:] = self._block(sent)
        self._run(Collective.ALL_TO_ALL, Array(sent, received), f"Alltoall of {described(block)} to each")

    # -- blocks of different lengths ----------------------------------------------------------------------------------

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather blocks of different lengths on all ranks; each is padded to the longest."""
        blocks = parts(recvbuf, "recvbuf of Allgatherv", self.size, is_written=True)
        mine = blocks[self.rank]
        if not is_in_place(sendbuf):
            mine[:] = same(items(sendbuf, "sendbuf of Allgatherv"), mine, "Allgatherv")
        counts = tuple(len(block) for block in blocks)
        data = np.empty((self.size, max(counts)), mine.dtype)
        data[self.rank, : len(mine)] = mine
        self._run(Collective.ALL_GATHER, Array(data.reshape(-1)), f"Allgatherv of {counts} {mine.dtype}")
        for block, row in zip(blocks, data, strict=True):
            block[:] = row[: len(block)]

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        if self.rank != self._root(root):
            _refuse_in_place(sendbuf, "Gatherv", root)
            self._exchange(f"Gatherv to rank {root}", {root: items(sendbuf, "sendbuf of Gatherv")}, {})
            return
        blocks = parts(recvbuf, "recvbuf of Gatherv", self.size, is_written=True)
        mine = blocks[root]
        if not is_in_place(sendbuf):
            mine[:] = same(items(sendbuf, "sendbuf of Gatherv"), mine, "Gatherv")
        self._exchange(f"Gatherv to rank {root}", {}, self._blocks_of_peers(blocks))

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        if self.rank != self._root(root):
            _refuse_in_place(recvbuf, "Scatterv", root)
            into = items(recvbuf, "recvbuf of Scatterv", is_written=True)
            self._exchange(f"Scatterv from rank {root}", {}, {root: into})
            return
        blocks = parts(sendbuf, "sendbuf of Scatterv", self.size)
        if not is_in_place(recvbuf):
            place = items(recvbuf, "recvbuf of Scatterv", is_written=True)
            place[:] = same(blocks[root], place, "Scatterv")
        self._exchange(f"Scatterv from rank {root}", self._blocks_of_peers(blocks), {})

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        places = parts(recvbuf, "recvbuf of Alltoallv", self.size, is_written=True)
        sent = (
            [place.copy() for place in places]
            if is_in_place(sendbuf)
            else parts(sendbuf, "sendbuf of Alltoallv", self.size)
        )
        mine = places[self.rank]
        mine[:] = same(sent[self.rank], mine, "Alltoallv")
        self._exchange("Alltoallv", self._blocks_of_peers(sent), self._blocks_of_peers(places))

    # -- common parts -------------------------------------------------------------------------------------------------

    def _run(self, kind: Collective, memory: Array, call: str, root: int = 0) -> None:
        group = self._group
        self._root(root)
        if group.size > 1:
            group.run(choose(kind, group.size, memory.size_bytes, root), memory, call)

    def _reduce(self, kind: Collective, data: Items, op: Op, name: str, root: int = 0) -> None:
        memory = Array(data, reduce=ufunc(op, data.dtype))
        self._run(kind, memory, f"{name} by {op.name} of {described(data)}, root {root}", root)

    def _begin_reduction(self, name: str, sendbuf: Any, recvbuf: Any) -> Items:
        """Return the result buffer, filled with this rank's contribution."""
        data = items(recvbuf, f"recvbuf of {name}", is_written=True)
        if not is_in_place(sendbuf):
            data[:] = same(items(sendbuf, f"sendbuf of {name}"), data, name)
        return data

    def _block(self, data: Items) -> Items:
        count = len(data) // self.size
        return data[self.rank * count : (self.rank + 1) * count]

    def _blocks_of_peers(self, blocks: list[Items]) -> dict[int, Items]:
        return {rank: block for rank, block in enumerate(blocks) if rank != self.rank}

    def _exchange(self, call: str, sent: dict[int, Items], places: dict[int, Items]) -> None:
        self._agree_on_counts(call, sent, places)
        queue, tag = self._group.message_queue, self._own_tag()
        receiving = [queue.receive(flat(place), peer, tag) for peer, place in places.items()]
        sending = [queue.send(peer, flat(data), tag) for peer, data in sent.items()]
        operations: list[Sending | Receiving] = [*receiving, *sending]
        for operation in operations:
            queue.wait(operation)

    def _agree(self, call: str) -> None:
        """Check that all ranks make the same call; raise on all of them otherwise."""
        self._run(Collective.BARRIER, Array(np.empty(0, np.uint8)), call)

    def _agree_on_counts(self, call: str, sent: dict[int, Items], places: dict[int, Items]) -> None:
        """Check that each pair of ranks agrees on the count and type of items; raise on all ranks otherwise."""
        every = np.zeros((self.size, 2, self.size, 2), np.int64)  # [rank, sent or expected, peer, count or type]
        for row, blocks in zip(every[self.rank], (sent, places), strict=True):
            for peer, block in blocks.items():
                row[peer] = len(block), _code(block.dtype) if len(block) else 0
        self._run(Collective.ALL_GATHER, Array(every.reshape(-1)), call)
        offered, expected = every[:, 0], every[:, 1].swapaxes(0, 1)
        for source, to in np.argwhere((offered != expected).any(axis=2)):
            raise ConfigError(
                f"{call}: rank {source} sends {_format_items(*offered[source, to])} to rank {to}, which expects "
                f"{_format_items(*expected[source, to])}; give the same count and type on both"
            )

    def _own_tag(self) -> int:
        self._n_by_messages += 1
        return OWN_TAGS + self._n_by_messages

    def _receive_from_previous(self, data: Items) -> Items | None:
        """Return the partial result of the previous rank; None on rank 0."""
        self._own_tag()
        if self.rank == 0:
            return None
        queue, place = self._group.message_queue, np.empty_like(data)
        queue.wait(queue.receive(flat(place), self.rank - 1, OWN_TAGS + self._n_by_messages))
        return place

    def _send_to_next(self, data: Items) -> None:
        if self.rank + 1 < self.size:
            queue = self._group.message_queue
            queue.wait(queue.send(self.rank + 1, flat(data), OWN_TAGS + self._n_by_messages))


def _refuse_in_place(buffer: Any, name: str, root: int) -> None:
    if is_in_place(buffer):
        raise ConfigError(f"{name}: only the root, rank {root}, may pass IN_PLACE; give this rank's buffer")


def _code(dtype: np.dtype[Any]) -> int:
    """Encode a type as a number: kind and size."""
    return ord(dtype.kind) << 32 | dtype.itemsize


def _format_items(count: int, code: int) -> str:
    return f"{count:,} {np.dtype(f'{chr(code >> 32)}{code & 0xFFFF_FFFF}')}" if count else "nothing"
