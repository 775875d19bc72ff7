"""A queue pair to one other rank, with slots for what comes from it and credits for its slots.

    sender                                       receiver
    RDMA WRITE with immediate, into slot n  ->   arrived: which slot, how many bytes, the immediate
                                            <-   RDMA WRITE with immediate, no bytes: so many slots are free again

A sender never has more fragments under way than there are slots, so none is ever refused for want of a receive request.
Slots are memory of the adapter, which processes of one machine share; the data is sent from where it is.

Between processes of one machine, with nothing in between that counts, fragments in a row need not be sent: one slot
says where they are, and the receiver reads them there (`reading`). They have been sent when that slot is free again.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from weft.collectives.live.plan import PIECES_MAX
from weft.collectives.live.reading import CopyWorkers, read_word
from weft.errors import SubnetError
from weft.verbs import enums as e
from weft.verbs.attributes.address import GID
from weft.verbs.hardware import HOST
from weft.verbs.perftest.endpoint import Port, address_vector, open_port
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from weft.verbs.pyverbs.wc import cqe_status_to_str
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

SLOTS = 4
FRAGMENT_BYTES = 1 << 20
ANNOUNCED_BYTES = 1 << 16  # from this size on the receiver reads the sender's memory; below, two copies take less time
ADAPTER = "WEFT_ADAPTER"  # which device a rank uses; the first, if nothing is said
_CREDIT = 1 << 31  # in the immediate: what it tells of is free slots, not a fragment
_PLACES = 1 << 30  # the slot says where fragments are
TAG_MASK = _PLACES - 1
_ABORT = 0xFFFF_FFFF  # it has given up
_DATA, _PROBE = 1, 2  # wr_id of fragments and of probes; no caller waits for other sends
_RECEIVES = 2 * SLOTS + 2  # fragments, and credits
_SENDS = 2 * _RECEIVES  # without a polled completion
_COMPLETIONS = _SENDS + _RECEIVES  # a link at once, at most
_PLACE = np.dtype([("address", np.uint64), ("length", np.uint64)])
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
_ANYWHERE_BYTES = 1 << 62
_RETRIES, _RNR_TIMER = 7, 12
# In a lab a second, and seven times more, as UCX has it: a subnet manager needs some of them to route around a cable, a
# standby to take its master's place. What a bad cable loses is sent again long before, by `Link.probe`.
_TIMEOUT, _TIMEOUT_IN_LAB = 14, 18
_PARTITION, _FULL = 0x7FFF, 0x8000  # bits of a P_Key


class Broken(SubnetError):
    """An error for a broken link; `who` is at its other end."""

    def __init__(self, who: str, reason: str) -> None:
        super().__init__(f"{who}: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Arrival:
    """A fragment in its slot, or the addresses of a stretch, until the slot is freed."""

    data: Any  # bytes: of numpy, or of PyTorch on a GPU
    tag: int
    is_announced: bool

    def places(self) -> list[tuple[int, int]]:
        """Return addresses and lengths."""
        return [(int(address), int(length)) for address, length in self.data.view(_PLACE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a link for its other end."""

    lid: int
    gid: str
    qpn: int
    psn: int
    slots: int  # address of the first
    rkey: int
    p_keys: list[int]  # as they are in the port's table
    host: str  # host of a lab, or empty
    word: int  # value at the first slot: a rank that reads it there is on the same machine, with permission

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Address:
        return cls(**json.loads(data))


class Endpoint:
    """The resources of a process on the fabric: a port, one completion queue, and links.

    Its ranks send and receive host memory, numpy arrays; `pytorch.gpu` has GPU memory.
    """

    is_readable = True  # for other processes of this machine

    def __init__(
        self, device: str = "", *, fragment_bytes: int = FRAGMENT_BYTES, announced_bytes: int = ANNOUNCED_BYTES
    ) -> None:
        self.fragment_bytes = fragment_bytes  # the same at all ranks
        self.announced_bytes = announced_bytes
        self.port: Port = open_port(device or os.environ.get(ADAPTER, ""))
        self.pd = PD(self.port.ctx)
        self.cq = CQ(self.port.ctx, _COMPLETIONS)
        # Programs send from any address. The key permits local reads only, and no peer gets it.
        self.anywhere = self.port.ctx.adapter.regions.register(self.pd.key, 0, _ANYWHERE_BYTES, 0)
        self._links: dict[int, Link] = {}
        self._workers: CopyWorkers | None = None
        self.beside = np.empty(fragment_bytes, np.uint8)  # data that was read and not yet added

    def workers(self, ranks: int) -> CopyWorkers:
        """Return threads that read memory of other processes; `ranks` share the cores of this machine."""
        if self._workers is None:
            self._workers = CopyWorkers(ranks)
        return self._workers

    # -- memory -------------------------------------------------------------------------------------------------------

    def room(self, n_bytes: int) -> tuple[MR, Any]:
        """Allocate a receive region; return it and its bytes."""
        region = MR(self.pd, n_bytes, ACCESS)
        return region, np.ctypeslib.as_array((ctypes.c_uint8 * n_bytes).from_address(region.buf))

    def key(self, address: int, length: int) -> int:
        """Return the local key of bytes to send."""
        return self.anywhere.key

    def empty(self, n_bytes: int) -> Any:
        """Allocate a buffer."""
        return np.empty(n_bytes, np.uint8)

    def address(self, data: Any) -> int:
        return int(data.ctypes.data)

    def read(self, data: Any) -> bytes:
        """Copy a few bytes to the host."""
        return bytes(data.tobytes())

    def settle(self) -> None:
        """Wait until all writes are visible."""

    # -- links --------------------------------------------------------------------------------------------------------

    def link(self, rank: int, use: str) -> Link:
        """Create a link, which is not connected yet."""
        if (n_completions := (len(self._links) + 1) * _COMPLETIONS) > self.cq.cqe:
            self.cq.resize(2 * n_completions)
        link = Link(self, rank, use)
        self._links[link.qp.qp_num] = link
        return link

    def poll(self) -> bool:
        """Dispatch completions to links. Return False if there were none."""
        count, completions = self.cq.poll(16)
        for wc in completions:
            link = self._links.get(wc.qp_num)
            if link is not None:
                link.on_completion(wc.wr_id, wc.status, wc.opcode, wc.imm_data, wc.byte_len)
        return count > 0

    def rest(self, seconds: float) -> None:
        """Sleep until a message arrives."""
        self.cq.req_notify()
        if not self.poll():
            self.port.ctx.adapter.carrier.wait(seconds)

    def forget(self, link: Link) -> None:
        del self._links[link.qp.qp_num]
        link.qp.close()
        link.slots.close()

    def close(self) -> None:
        self._links.clear()
        if self._workers is not None:
            self._workers.close()
        self.port.ctx.close()


class Link:
    def __init__(self, end: Endpoint, rank: int, use: str) -> None:
        self.rank, self.use, self._end = rank, use, end
        cap = QPCap(max_send_wr=_SENDS, max_recv_wr=_RECEIVES, max_send_sge=32, max_recv_sge=1)
        self.qp = QP(end.pd, QPInitAttr(e.IBV_QPT_RC, scq=end.cq, rcq=end.cq, cap=cap))
        self.slots, self._memory = end.room(SLOTS * end.fragment_bytes)
        self._psn, self._word = int.from_bytes(os.urandom(3), "big"), int.from_bytes(os.urandom(8), "little")
        if end.is_readable:
            self._memory[:8].view(np.uint64)[0] = self._word
        self._places = np.empty((SLOTS, PIECES_MAX), _PLACE)  # written into slots of the other end
        self._far: Address | None = None
        self.credits = SLOTS
        self.arrived: deque[Arrival] = deque()
        self.process = 0  # at the other end, if this one can read its memory; 0: it cannot
        self.is_read = False  # by the other end, likewise
        self.posted = self.completed = 0  # fragments with their data
        self.used = self.returned = 0  # slots of the other end
        self._next_in = self._freed = 0
        self._lkey = end.anywhere.key
        self.broken: Broken | None = None
        self.aborted = self._is_probing = False
        self._p_key = 0

    # -- connecting ---------------------------------------------------------------------------------------------------

    @property
    def address(self) -> Address:
        port = self._end.port
        gid = GID.of(port.gid).gid
        return Address(
            lid=port.lid,
            gid=gid,
            qpn=self.qp.qp_num,
            psn=self._psn,
            slots=self.slots.buf,
            rkey=self.slots.rkey,
            p_keys=list(port.ctx.adapter.p_keys),
            word=self._word,
            host=os.environ.get(HOST, ""),
        )

    def connect(self, far: Address) -> None:
        port, self._far = self._end.port, far
        index = self._common_key(list(port.ctx.adapter.p_keys), far.p_keys)
        attr = QPAttr(port_num=port.number, path_mtu=(port.mtu_bytes // 128).bit_length() - 1)
        attr.qp_access_flags, attr.dest_qp_num, attr.rq_psn, attr.sq_psn = ACCESS, far.qpn, far.psn, self._psn
        attr.min_rnr_timer, attr.retry_cnt, attr.rnr_retry = _RNR_TIMER, _RETRIES, _RETRIES
        attr.timeout = _TIMEOUT_IN_LAB if far.host else _TIMEOUT
        attr.pkey_index = index
        attr.ah_attr = address_vector(port, far.lid, far.gid)
        self.qp.to_rts(attr)
        self._receive = RecvWR()
        for _ in range(_RECEIVES):
            self.qp.post_recv(self._receive)
        self.process = self._find_process(far)

    def _find_process(self, far: Address) -> int:
        """Return the process of the other end if it is on this machine, readable, and no link between them counts."""
        path = self.qp.core.find_shm_path(at_once=True)
        if path is None or not path.uncounted_process or not self._end.is_readable:
            return 0
        return path.uncounted_process if read_word(path.uncounted_process, far.slots) == far.word else 0

    def _common_key(self, own: list[int], far: list[int]) -> int:
        """Return the index of the first common P_Key with a full member; both ends find the same."""
        pairs = []
        for index, key in enumerate(own):
            partition = key & _PARTITION
            matching = [
                n for n, far_key in enumerate(far) if far_key & _PARTITION == partition and (far_key | key) & _FULL
            ]
            if partition and matching:
                pairs.append((max(index, matching[0]), partition, index))
        if not pairs:
            keys = [", ".join(f"{key:#06x}" for key in keys_of_end if key) or "none" for keys_of_end in (own, far)]
            self.broken = Broken(self.who, f"no partition in common: P_Keys are {keys[0]} here and {keys[1]} there")
            raise self.broken
        index = min(pairs)[2]
        self._p_key = own[index]
        return index

    @property
    def who(self) -> str:
        """Return the name of the other end."""
        host = self._far.host if self._far is not None else ""
        return f"rank {self.rank} on {host}" if host else f"rank {self.rank}"

    @property
    def is_connected(self) -> bool:
        """Return whether this end is connected."""
        return self._far is not None

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, pieces: Iterable[tuple[int, int]], tag: int) -> None:
        """Send a fragment, in pieces of (address, bytes); a credit must be available."""
        self.posted += 1
        elements = [SGE(address, length, self._end.key(address, length)) for address, length in pieces]
        self._write(elements, self._next_slot(), tag & TAG_MASK, _DATA)

    def announce(self, pieces: Sequence[tuple[int, int]], tag: int) -> None:
        """Announce the addresses of a stretch, for an end that can read them."""
        places = self._places[self.used % SLOTS, : len(pieces)]
        places[:] = pieces
        elements = [SGE(places.ctypes.data, places.nbytes, self._lkey)]
        self._write(elements, self._next_slot(), tag & TAG_MASK | _PLACES)

    def _next_slot(self) -> int:
        assert self._far is not None
        slot = self._far.slots + self.used % SLOTS * self._end.fragment_bytes
        self.credits -= 1
        self.used += 1
        return slot

    def _write(self, elements: list[SGE], slot: int, immediate: int | None, wr_id: int = 0) -> None:
        assert self._far is not None
        elements = elements or [SGE(0, 0, self._lkey)]
        opcode = e.IBV_WR_RDMA_WRITE if immediate is None else e.IBV_WR_RDMA_WRITE_WITH_IMM
        work = SendWR(wr_id, opcode, num_sge=len(elements), sg=elements, imm_data=immediate or 0)
        work.set_wr_rdma(self._far.rkey, slot)
        self.qp.post_send(work)

    def free(self, *, at_once: bool = False) -> None:
        """Free the oldest slot. Credits are returned in batches, unless the other end waits."""
        self._freed += 1
        if at_once or 2 * self._freed >= SLOTS:
            count, self._freed = self._freed, 0
            self._write([], 0, _CREDIT | count)

    # -- what happens -------------------------------------------------------------------------------------------------

    def on_completion(self, wr_id: int, status: int, opcode: int, immediate: int, length: int) -> None:
        if status != e.IBV_WC_SUCCESS:
            if self.broken is None:
                why = self.why_lost() if status == e.IBV_WC_RETRY_EXC_ERR else ""
                self.broken = Broken(self.who, f"no way to it any more: {cqe_status_to_str(status)}{why}")
            return
        if opcode != e.IBV_WC_RECV_RDMA_WITH_IMM:
            self.completed += wr_id == _DATA
            self._is_probing &= wr_id != _PROBE
            return
        self.qp.post_recv(self._receive)
        if immediate == _ABORT:
            self.aborted = True
        elif immediate & _CREDIT:
            self.credits += immediate & TAG_MASK
            self.returned += immediate & TAG_MASK
        else:
            begin = self._next_in * self._end.fragment_bytes
            self._next_in = (self._next_in + 1) % SLOTS
            data, is_announced = self._memory[begin : begin + length], bool(immediate & _PLACES)
            self.arrived.append(Arrival(data, immediate & TAG_MASK, is_announced))

    def why_lost(self) -> str:
        """Return the reason for a loss as the end of a sentence, if the network knows it."""
        qp = self.qp.core
        why = qp.adapter.carrier.why_lost(qp.settings.destination, self._p_key, qp.settings.mtu_bytes)
        return f"; {why}" if why else ""

    def probe(self) -> None:
        """Send an empty WRITE, which fails if the peer is gone.

        It also makes the other end report a lost last packet, or a lost acknowledgement.
        """
        if self.is_connected and not self._is_probing and self.broken is None:
            self._is_probing = True
            self._write([], 0, None, _PROBE)

    def abort(self) -> None:
        """Notify the other end that this rank has given up, if possible."""
        if self._far is not None and self.broken is None:
            self._write([], 0, _ABORT)
