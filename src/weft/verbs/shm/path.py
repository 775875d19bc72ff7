"""The shared-memory path between two queue pairs of one machine: the sender itself does there what it asks for.

    shm_path.post(request) -> bool      whether it is done; if not, `requester` has to send packets

A carrier offers one where nothing can go wrong on the way: within a machine, or through a lab as long as its links are
sound. `Far` is the memory of the other adapter, `meter` counts what would have crossed the wire and can close the path.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from weft.jit import entry
from weft.verbs.enums import IBV_SEND_INLINE, ibv_wr_opcode
from weft.verbs.gpudirect.cuda import in_use
from weft.verbs.hca.opcodes import OPS
from weft.verbs.hca.work import Completion, SendWork
from weft.verbs.shm import atomic, execute, layout
from weft.verbs.shm.layout import PLACE_FORM, WORD_BYTES
from weft.verbs.shm.memory import Place, address_of
from weft.verbs.shm.memory import view as memory_at
from weft.verbs.shm.meter import CARRIED
from weft.verbs.shm.queue_memory import lives

if TYPE_CHECKING:
    from weft.verbs.hca.queue_pair import QueuePair

_BUSY_S = 0.05
_INLINE = int(IBV_SEND_INLINE)
_FLAGS_AT = (execute.FLAGS - execute.OPCODE) * WORD_BYTES


class Far(Protocol):
    """The memory of another adapter's queues, mapped here."""

    @property
    def address(self) -> int:
        """Here."""
        ...

    @property
    def process(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmPeer:
    """What a carrier offers: to whom, as whom, how it is counted, and how to wake who waits there."""

    far: Far
    source: object  # what it would say of packets that go there
    meter: npt.NDArray[np.int64]  # words of `meter`; the first must be 1
    ring: Callable[[], None]


class ShmPath:
    def __init__(self, qp: QueuePair, peer: ShmPeer) -> None:
        from weft.verbs.hca.queue_pair import mark

        self._qp, self._peer = qp, peer
        self.words = np.zeros(execute.PATH_WORDS, np.int64)
        self._said = self.words.data.cast("B").cast("Q")
        self._kernel, self._lock = entry(execute.post, self.words, b""), qp.adapter.lock
        memory, far = qp.adapter.memory, peer.far
        self.is_here = far.address == memory.address  # both ends are of this process
        said = self._said
        header = memory_at(far.address, 64).cast("Q")
        said[execute.OWN], said[execute.OWN_QP] = memory.address, memory.address + qp.at * WORD_BYTES
        said[execute.FAR], said[execute.FAR_BEGIN] = far.address, header[layout.BEGIN]
        said[execute.FAR_SIZE] = header[layout.SIZE]
        said[execute.FAR_QP] = far.address + layout.queue_pair_at(qp.settings.dest_qp) * WORD_BYTES
        said[execute.FAR_PROCESS], said[execute.OWN_PROCESS] = far.process, os.getpid()
        said[execute.SOURCE], said[execute.METER] = mark(peer.source), peer.meter.ctypes.data
        said[execute.SELF] = self.words.ctypes.data
        said[execute.COUNT_MAX], said[execute.INLINE_MAX] = qp.send_places_max, qp.inline_max

    def post(self, request: bytes) -> bool:
        """What a program has packed (`layout.SEND_FORM`). False if packets must be sent, and nothing has happened."""
        lock = self._lock
        if lock.holder and lock.is_mine:
            return False
        if request[_FLAGS_AT] & _INLINE and in_use() is not None:
            return False  # it may be memory of a GPU
        threads = lock.threads
        threads.acquire()  # `with` takes twice as long
        try:
            return not self._qp.sends and self._put(request)
        finally:
            threads.release()

    def _put(self, request: bytes) -> bool:
        code = self._kernel(self.words, request)
        return not code or self.finish(code)  # DONE is 0

    def carry(self, work: SendWork) -> bool:
        """The same, for one that was posted before."""
        if work.opcode not in CARRIED:
            return False
        places, flags = work.places, work.flags
        if work.inline is not None:
            places, flags = (Place(address_of(work.inline), len(work.inline), 0),), flags | IBV_SEND_INLINE
        adds = work.opcode == ibv_wr_opcode.IBV_WR_ATOMIC_FETCH_AND_ADD
        numbers = work.immediate or 0, work.va, work.rkey, work.swap if adds else work.compare, work.swap
        head = layout.SEND_FORM.pack(work.opcode, flags, work.wr_id, *numbers, len(places), work.posted)
        return self._put(head + b"".join([PLACE_FORM.pack(one.address, one.length, one.lkey) for one in places]))

    def finish(self, code: int) -> bool:
        """What a kernel has left to do; `words` have the request."""
        if code == execute.BUSY and self._qp.adapter.lock.is_mine:
            return False  # the other may be waiting for this lock: packets wait for nobody
        began_s = time.monotonic()
        while code == execute.BUSY:
            time.sleep(0)
            if time.monotonic() - began_s > _BUSY_S:
                atomic.break_lock(int(self.words[execute.FAR]), lives)
                began_s = time.monotonic()
            code = self._kernel(self.words, b"")  # they have it
        if code == execute.CLOSED:
            self._qp.shm_path = None
        if code & (execute.SLOW | execute.CLOSED):
            return False
        if code & execute.RING:
            self._peer.ring()
        if code & execute.UNTOLD:
            self._tell()
        return True

    def _tell(self) -> None:
        """Of what is done, where a kernel could not."""
        said, qp = self._said, self._qp
        size = sum(said[execute.PLACES + 3 * n + 1] for n in range(said[execute.COUNT]))
        opcode = OPS[said[execute.OPCODE]][1]
        done = Completion(wr_id=said[execute.WR_ID], qp_num=qp.number, opcode=opcode, byte_len=size)
        done.posted = said[execute.NUMBER] or qp.adapter.memory.words[qp.at + layout.Q_POSTED]
        with qp.adapter.lock:
            qp.complete(qp.send_cq, done)
