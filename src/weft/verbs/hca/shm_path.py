"""The shared-memory path to a queue pair of the same machine: the sender itself does there what it asks for.

    shm_path.post(request) -> bool      whether it is done; if not, `requester` has to send packets

A carrier offers one where nothing can go wrong on the way: within a machine, or through a lab as long as its links are
sound. `meter` counts what would have crossed the wire and can close the path.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.verbs.enums import IBV_SEND_INLINE, IBV_WC_GRH, ibv_wr_opcode
from weft.verbs.gpudirect.cuda import in_use
from weft.verbs.hca.carrier import Sender
from weft.verbs.hca.gpu_copies import GpuCopies, Mapping
from weft.verbs.hca.queue_pair import QueuePair, mark
from weft.verbs.hca.segment import Service
from weft.verbs.hca.work import OPS, SendWork
from weft.verbs.shm import layout, native
from weft.verbs.shm.layout import CompletionRecord
from weft.verbs.shm.memory import Place, address_of
from weft.verbs.shm.queue_memory import break_lock, publish
from weft.verbs.shm.requests import (
    BUSY,
    CARRIED,
    CLOSED,
    PATH_BYTES,
    REQUEST_MAX_BYTES,
    RING,
    SLOW,
    UNTOLD,
    WAKE,
    fill_in,
)
from weft.wire.headers import GRH
from weft.wire.roce import IPv4

_BUSY_S = 0.05
_ACKS_S = 0.005  # for the other end to take the acknowledgements that were sent to it
_INLINE = int(IBV_SEND_INLINE)
_FLAGS_AT = layout.SendRequest.offset("flags")
_IPV4_AT = GRH.size - IPv4.size  # behind zeros
_LENGTH_AT, _IPV4_LENGTH_AT = GRH.pay_len.bit // 8, _IPV4_AT + IPv4.total_length.bit // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmPeer:
    """A peer's memory from a carrier: the sender it sees, the meter of traffic, and a call that wakes it."""

    address: int  # mapped memory of the other adapter's queues
    process: int
    mapping: Mapping  # keeps the memory mapped
    sender: Sender  # sender of packets on this path
    meter: layout.MeterRecord
    is_counted: bool  # by a lab
    ring: Callable[[], None]

    def path_from(self, qp: QueuePair, dest_qp: int) -> ShmPath:
        return ShmPath(qp, self, dest_qp)


class ShmPath:
    def __init__(self, qp: QueuePair, peer: ShmPeer, dest_qp: int) -> None:
        self._qp, self._peer, self.is_closed = qp, peer, False
        (self.words, self._kernel), self._lock = _poster(), qp.adapter.lock
        memory = qp.adapter.memory
        self.is_here = peer.address == memory.address  # both ends are of this process
        self.uncounted_process = 0 if peer.is_counted else peer.process
        header, path = layout.Header.from_address(peer.address), fill_in(self.words)
        self._path = path
        path.own, path.own_qp, path.own_process = memory.address, memory.address + qp.at, os.getpid()
        path.far, path.far_begin, path.far_length = peer.address, header.begin, header.length
        path.far_qp = peer.address + layout.queue_pair_at(dest_qp)
        self._far = layout.QueuePairRecord.from_address(path.far_qp)
        path.far_process, path.source = peer.process, mark(peer.sender.source)
        path.meter, path.dest_qp = ctypes.addressof(peer.meter), dest_qp
        path.max_sge, path.max_inline = qp.send_places_max, qp.inline_max
        self._gpu_copies = GpuCopies(path, peer.mapping)
        path.copy_on_gpu = self._gpu_copies.address
        self.request = layout.SendRequest.from_address(path.request)
        if qp.service == Service.UD:
            self._stage(path, peer.sender)

    def _stage(self, path: layout.PathRecord, sender: Sender) -> None:
        """Prepare the headers of datagrams, of which only the length changes."""
        grh = sender.grh
        self._staged = bytearray(grh) + bytes(self._qp.adapter.mtu_bytes)
        path.staged = ctypes.addressof(ctypes.c_char.from_buffer(self._staged))
        path.length_at = _LENGTH_AT if any(grh[:_IPV4_AT]) else _IPV4_LENGTH_AT
        path.length = int.from_bytes(grh[path.length_at : path.length_at + 2], "big")
        path.wc_flags, path.slid, path.sl = IBV_WC_GRH if any(grh) else 0, sender.slid, sender.sl

    @property
    def address(self) -> int:
        """The address of its PathRecord."""
        return ctypes.addressof(self._path)

    def post(self, request: bytes) -> bool:
        """Execute a packed request (`layout.SendRequest`); return False if packets must be sent instead."""
        lock = self._lock
        if lock.holder and lock.is_mine:
            return False
        if request[_FLAGS_AT] & _INLINE and in_use() is not None:
            return False  # it may be memory of a GPU
        threads = lock.threads
        threads.acquire()  # `with` takes twice as long
        try:
            return not self._qp.sends and (self._put(request) or self._put_after_acks())
        finally:
            threads.release()

    def _put_after_acks(self) -> bool:
        """Carry out the request that the path has once the other end has no packets under way.

        Without waiting two processes that answer each other would send packets for ever.
        """
        until_s = time.monotonic() + _ACKS_S
        while self._far.unacked and not self.is_here and not self.is_closed and time.monotonic() < until_s:
            time.sleep(0)
            if self._put(b""):
                return True
        return False

    def _put(self, request: bytes) -> bool:
        code = self._kernel(self.words, request)
        return not code or self.finish(code)  # DONE is 0

    def carry(self, work: SendWork) -> bool:
        """Execute a request that was posted before; return False if packets must be sent instead."""
        if work.opcode not in CARRIED:
            return False
        places, flags = work.places, work.flags
        if work.inline is not None:
            places, flags = (Place(address_of(work.inline), len(work.inline), 0),), flags | IBV_SEND_INLINE
        adds = work.opcode == ibv_wr_opcode.IBV_WR_ATOMIC_FETCH_AND_ADD
        numbers = work.immediate or 0, work.va, work.rkey, work.swap if adds else work.compare, work.swap
        head = layout.SendRequest.form.pack(work.opcode, flags, work.wr_id, *numbers, len(places), work.posted)
        elements = [layout.SgeRecord.form.pack(one.address, one.length, one.lkey) for one in places]
        return self._put(head + b"".join(elements))

    def finish(self, code: int) -> bool:
        """Finish a request after a kernel; `words` have the request."""
        if code == BUSY and self._qp.adapter.lock.is_mine:
            return False  # the peer may wait for this lock; packets need no lock
        began_s = time.monotonic()
        while code == BUSY:
            time.sleep(0)
            if time.monotonic() - began_s > _BUSY_S:
                if self.is_here:
                    return False  # a thread that waits for this one may have it
                break_lock(self._peer.address)
                began_s = time.monotonic()
            code = self._kernel(self.words, b"")  # they have it
        if code == CLOSED:
            self._qp.shm_path, self.is_closed = None, True
        if code & (SLOW | CLOSED):
            return False
        if code & RING:
            self._peer.ring()
        if code & UNTOLD:
            self._tell()
        if code & WAKE:
            with self._qp.adapter.lock:
                self._qp.send_cq.on_bell()
        return True

    def _tell(self) -> None:
        """Add the completion that a kernel could not add."""
        request, qp = self.request, self._qp
        behind = (layout.SgeRecord * request.num_sge).from_address(ctypes.addressof(request) + request.size)
        size, opcode = sum(one.length for one in behind), OPS[request.opcode][1]
        done = CompletionRecord(wr_id=request.wr_id, qp_num=qp.number, opcode=opcode, byte_len=size)
        done.posted = request.number or qp.record.posted
        with qp.adapter.lock:
            qp.complete(qp.send_cq, done)
            publish(qp.record, "telling", 0)


def _poster() -> tuple[Any, Callable[[Any, bytes], int]]:
    """Return the words of a new path, and the kernel that carries out a request over it."""
    if not native.linked:
        import numpy as np

        from weft.jit import overload_for
        from weft.verbs.hca import execute

        words = np.frombuffer(bytearray(PATH_BYTES), np.int64)
        return words, overload_for(execute.post, words, b"")
    post_at = native.linked["post"]

    def post(words: Any, request: bytes) -> int:
        if len(request) > REQUEST_MAX_BYTES:
            return SLOW
        address = ctypes.addressof(words)
        ctypes.memmove(address + layout.PathRecord.size, request, len(request))
        return post_at(address)

    return (ctypes.c_int64 * (PATH_BYTES // layout.Word.size))(), post
