"""Point-to-point messages: Send and Recv for buffers, send and recv for objects.

A small message is copied and sent in the background (eager protocol), so two ranks may both send first and receive
afterwards.
"""
# ruff: noqa: N802 - the names are mpi4py's

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.collectives.live.arrays import flat
from weft.collectives.live.group import Group
from weft.collectives.live.message_queue import Receiving
from weft.errors import ConfigError
from weft.mpi.datatypes import items
from weft.mpi.process import Process
from weft.mpi.requests import ANY_SOURCE, ANY_TAG, PROC_NULL, Request, Status

TAG_UB = (1 << 31) - 1
_EAGER_BYTES = 1 << 16  # largest message for which a blocking send returns after the copy
_RECORDED = (  # noqa: SIM905 - calls that a recording times as a whole; ranks compute during non-blocking calls
    "Send Recv Sendrecv Sendrecv_replace send recv sendrecv Barrier barrier Bcast Reduce Allreduce Scan Exscan Gather "
    "Scatter Allgather Alltoall Reduce_scatter_block Reduce_scatter Gatherv Scatterv Allgatherv Alltoallv "
    "bcast reduce allreduce scan exscan gather scatter allgather alltoall"
).split()

Bytes = NDArray[np.uint8]


class Messages:
    def __init__(self, process: Process | None, group: Group | None, members: tuple[int, ...]) -> None:
        self._process_or_none, self._group_or_none, self._members = process, group, members  # ranks of COMM_WORLD
        if group is not None and group.record is not None:
            for name in _RECORDED:
                setattr(self, name, group.record.call(getattr(self, name)))

    @property
    def _group(self) -> Group:
        if self._group_or_none is None:
            raise ConfigError("COMM_NULL has no ranks; skip the call on ranks that Split or Create put in no group")
        if self._process.is_closed:
            raise ConfigError("MPI is finalized; call Finalize last, or leave it to the end of the program")
        return self._group_or_none

    @property
    def _process(self) -> Process:
        assert self._process_or_none is not None
        return self._process_or_none

    def Get_rank(self) -> int:
        return self._group.rank

    def Get_size(self) -> int:
        return self._group.size

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    # -- memory -------------------------------------------------------------------------------------------------------

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._send(flat(items(buf, "buf of Send")), dest, tag)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return self._isend(flat(items(buf, "buf of Isend")), dest, tag)

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        self._irecv(flat(items(buf, "buf of Recv", is_written=True)), source, tag).Wait(status)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        return self._irecv(flat(items(buf, "buf of Irecv", is_written=True)), source, tag)

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        receiving = self._irecv(flat(items(recvbuf, "recvbuf of Sendrecv", is_written=True)), source, recvtag)
        self._isend(flat(items(sendbuf, "sendbuf of Sendrecv")), dest, sendtag).Wait()
        receiving.Wait(status)

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        place = flat(items(buf, "buf of Sendrecv_replace", is_written=True))
        sending = self._isend(place.copy(), dest, sendtag)
        self._irecv(place, source, recvtag).Wait(status)
        sending.Wait()

    # -- objects ------------------------------------------------------------------------------------------------------

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        self._send(pickled(obj), dest, tag)

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        return self._isend(pickled(obj), dest, tag)

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        """Receive an object. `buf` is accepted as in mpi4py, and ignored: memory is allocated as needed."""
        return self._irecv(None, source, tag).wait(status)

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        return self._irecv(None, source, tag)

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        receiving = self._irecv(None, source, recvtag)
        self._isend(pickled(sendobj), dest, sendtag).wait()
        return receiving.wait(status)

    # -- probing ------------------------------------------------------------------------------------------------------

    def Iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Return whether a matching message has arrived, without receiving it."""
        message = None if source == PROC_NULL else self._group.message_queue.look(self._source(source), _tag(tag))
        if status is not None and (message is not None or source == PROC_NULL):
            status.take(message)
        return message is not None or source == PROC_NULL

    def Probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        self._group.message_queue.wait_until(lambda: self.Iprobe(source, tag, status), "Probe")
        return True

    iprobe, probe = Iprobe, Probe

    # -- common part --------------------------------------------------------------------------------------------------

    def _send(self, data: Bytes, dest: int, tag: int) -> None:
        if len(data) > _EAGER_BYTES or dest == PROC_NULL:
            self._isend(data, dest, tag).Wait()
            return
        queue = self._group.message_queue
        self._process.leave(queue, queue.send(self._dest(dest), data.copy(), _tag_sent(tag)))

    def _isend(self, data: Bytes, dest: int, tag: int) -> Request:
        queue = self._group.message_queue
        if dest == PROC_NULL:
            return Request(None, None)
        return Request(queue, queue.send(self._dest(dest), data, _tag_sent(tag)))

    def _irecv(self, place: Bytes | None, source: int, tag: int) -> Request:
        queue = self._group.message_queue
        if source == PROC_NULL:
            return Request(None, None)
        receiving = queue.receive(place, self._source(source), _tag(tag))
        return Request(queue, receiving, _object if place is None else None)

    def _dest(self, dest: int) -> int:
        if not 0 <= dest < self.size:
            raise ConfigError(f"dest={dest} is not a rank; give 0 to {self.size - 1}, or MPI.PROC_NULL for no rank")
        return dest

    def _source(self, source: int) -> int | None:
        if source == ANY_SOURCE:
            return None
        if not 0 <= source < self.size:
            raise ConfigError(
                f"source={source} is not a rank; give 0 to {self.size - 1}, MPI.ANY_SOURCE for any rank, or "
                "MPI.PROC_NULL for none"
            )
        return source

    def _root(self, root: int) -> int:
        if not 0 <= root < self.size:
            raise ConfigError(f"root={root} is not a rank; give 0 to {self.size - 1}")
        return root


def pickled(obj: Any) -> Bytes:
    return np.frombuffer(pickle.dumps(obj, pickle.HIGHEST_PROTOCOL), np.uint8)


def unpickled(data: Bytes) -> Any:
    return pickle.loads(data.data)


def _object(message: Receiving) -> Any:
    assert message.data is not None
    return unpickled(message.data)


def _tag_sent(tag: int) -> int:
    if not 0 <= tag <= TAG_UB:
        raise ConfigError(f"tag={tag} is not a message tag; give 0 to {TAG_UB}")
    return tag


def _tag(tag: int) -> int | None:
    return None if tag == ANY_TAG else _tag_sent(tag)
