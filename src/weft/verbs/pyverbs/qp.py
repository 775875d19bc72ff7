"""Queue pairs with the extended way of posting: start, say one thing after the other, complete.

    qp.wr_start()
    qp.wr_id, qp.wr_flags = 1, IBV_SEND_SIGNALED
    qp.wr_rdma_write(rkey, address)
    qp.wr_set_sge(sge)
    qp.wr_complete()

Nothing is posted before `wr_complete`, and then all of it or, if something is wrong with one of them, nothing.
Under pyverbs' names this module has the plain queue pair too, and what one is made with.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Any

from weft.verbs.attributes.objects import PyverbsCM, Unsigned
from weft.verbs.enums import IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, ibv_qp_create_send_ops_flags, ibv_qp_type, ibv_wr_opcode
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.hca.segment import PSN_MASK
from weft.verbs.hca.work import Refused, SendWork
from weft.verbs.pyverbs.addr import AH
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.eec import EEC
from weft.verbs.pyverbs.mem_alloc import read
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp_attributes import ECE, QPAttr, QPCap, QPRateLimitAttr
from weft.verbs.pyverbs.queue_pair import QP, QPInitAttr, QPInitAttrEx
from weft.verbs.pyverbs.windows import MW, Binding, MWBindInfo
from weft.verbs.pyverbs.wr import SGE
from weft.verbs.shm.memory import Place

__all__ = ["ECE", "QP", "DataBuffer", "QPAttr", "QPCap", "QPEx", "QPInitAttr", "QPInitAttrEx", "QPRateLimitAttr"]

_W = ibv_wr_opcode
_FLAGS = {getattr(_W, flag.name.replace("QP_EX_WITH", "WR")): flag for flag in ibv_qp_create_send_ops_flags}


class DataBuffer(PyverbsCM):
    """A piece of memory to send inline."""

    def __init__(self, addr: int, length: int) -> None:
        self.addr, self.length = addr, length


class QPEx(QP):
    wr_id = Unsigned(64)
    wr_flags = Unsigned(32)
    comp_mask = Unsigned(64)

    def __init__(self, creator: Context | PD, init_attr: QPInitAttrEx, qp_attr: QPAttr | None = None) -> None:
        super().__init__(creator, init_attr, qp_attr)
        self.wr_id = self.wr_flags = self.comp_mask = 0
        self.ind_table = init_attr.ind_table
        has = init_attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
        self._operations = init_attr.send_ops_flags if has else 0
        self._works: list[SendWork] | None = None
        self._wrong: Refused | None = None

    # -- start and complete -------------------------------------------------------------------------------------------

    def wr_start(self) -> None:
        self._works, self._wrong = [], None

    def wr_complete(self) -> None:
        works, self._works = self._begun(), None
        lock = self.core.adapter.lock
        if not lock.is_mine:
            self.core.find_shm_path()
        try:
            with lock.threads:
                if self._wrong is not None:
                    raise self._wrong
                for before, work in enumerate(works):
                    self._ready(work)
                    self.core.check_send(work, before)
                rest = works[self._count_by_shm(works) :]
                with lock:
                    for work in rest:
                        self.core.post_send(work)
        except Refused as refused:
            raise PyverbsRDMAError("ibv_wr_complete failed.", refused.code, str(refused)) from refused
        self._go()

    def _count_by_shm(self, works: list[SendWork]) -> int:
        """Execute requests over shared memory; return how many were executed."""
        core, done = self.core, 0
        if core.adapter.lock.is_mine:
            return 0
        while done < len(works) and core.shm_path is not None and not core.sends:
            if not core.shm_path.carry(works[done]):
                break
            done += 1
        return done

    def wr_abort(self) -> None:
        """Discard the requests since `wr_start`."""
        self._begun()
        self._works = None

    def _begun(self) -> list[SendWork]:
        if self._works is None:
            raise PyverbsUserError("call wr_start() first")
        return self._works

    def _add(self, opcode: ibv_wr_opcode, **fields: Any) -> None:
        works = self._begun()
        if not _FLAGS[opcode] & self._operations:
            self._refuse(f"{opcode.name} needs {_FLAGS[opcode].name} in send_ops_flags")
        works.append(SendWork(wr_id=self.wr_id, opcode=opcode, flags=self.wr_flags, **fields))

    def _refuse(self, reason: str) -> None:
        """Record an error; `wr_complete` raises the first one."""
        self._wrong = self._wrong or Refused(errno.EINVAL, reason)

    @property
    def _last(self) -> SendWork:
        works = self._begun()
        if not works:
            raise PyverbsUserError(
                "call an operation (wr_send(), wr_rdma_write(), ...) before you set its data and address"
            )
        return works[-1]

    # -- operations ---------------------------------------------------------------------------------------------------

    def wr_send(self) -> None:
        self._add(_W.IBV_WR_SEND)

    def wr_send_imm(self, data: int) -> None:
        self._add(_W.IBV_WR_SEND_WITH_IMM, immediate=socket.htonl(data))

    def wr_send_inv(self, invalidate_rkey: int) -> None:
        self._add(_W.IBV_WR_SEND_WITH_INV, invalidate=invalidate_rkey)

    def wr_send_tso(self, hdr: int, hdr_sz: int, mss: int) -> None:
        self._add(_W.IBV_WR_TSO)  # no type of queue pair supports it

    def wr_rdma_write(self, rkey: int, remote_addr: int) -> None:
        self._add(_W.IBV_WR_RDMA_WRITE, rkey=rkey, va=remote_addr)

    def wr_rdma_write_imm(self, rkey: int, remote_addr: int, data: int) -> None:
        self._add(_W.IBV_WR_RDMA_WRITE_WITH_IMM, rkey=rkey, va=remote_addr, immediate=socket.htonl(data))

    def wr_rdma_read(self, rkey: int, remote_addr: int) -> None:
        self._add(_W.IBV_WR_RDMA_READ, rkey=rkey, va=remote_addr)

    def wr_atomic_cmp_swp(self, rkey: int, remote_addr: int, compare: int, swap: int) -> None:
        self._add(_W.IBV_WR_ATOMIC_CMP_AND_SWP, rkey=rkey, va=remote_addr, compare=compare, swap=swap)

    def wr_atomic_fetch_add(self, rkey: int, remote_addr: int, add: int) -> None:
        self._add(_W.IBV_WR_ATOMIC_FETCH_AND_ADD, rkey=rkey, va=remote_addr, swap=add)

    def wr_atomic_write(self, rkey: int, remote_addr: int, atomic_wr: bytes) -> None:
        """Write the first 8 bytes of `atomic_wr` atomically."""
        self._add(_W.IBV_WR_ATOMIC_WRITE, rkey=rkey, va=remote_addr, inline=bytes(atomic_wr[:8]))

    def wr_flush(self, rkey: int, remote_addr: int, length: int, ptype: int, level: int) -> None:
        self._add(_W.IBV_WR_FLUSH, rkey=rkey, va=remote_addr, length=length, flush=ptype, selectivity=level)

    def wr_local_inv(self, invalidate_rkey: int) -> None:
        self._add(_W.IBV_WR_LOCAL_INV, invalidate=invalidate_rkey)

    def wr_bind_mw(self, mw: MW, rkey: int, bind_info: MWBindInfo) -> None:
        self._add(_W.IBV_WR_BIND_MW, window=Binding(mw, bind_info, rkey))

    # -- data and destination -----------------------------------------------------------------------------------------

    def wr_set_sge(self, sge: SGE) -> None:
        self.wr_set_sge_list(1, [sge])

    def wr_set_sge_list(self, num_sge: int, sg_list: Sequence[SGE]) -> None:
        self._last.places = tuple(Place(sge.addr, sge.length, sge.lkey) for sge in sg_list[:num_sge])

    def wr_set_inline_data(self, addr: int, length: int) -> None:
        self.wr_set_inline_data_list(1, [DataBuffer(addr, length)])

    def wr_set_inline_data_list(self, num_buf: int, buf_list: Sequence[DataBuffer]) -> None:
        """Set the inline data. It is copied at once: the memory may be reused."""
        self._last.inline = b"".join(read(buf.addr, buf.length) for buf in buf_list[:num_buf])

    def wr_set_ud_addr(self, ah: AH, remote_qpn: int, remote_rkey: int) -> None:
        """Set the destination of a datagram. `remote_rkey` is the Q_Key; the name is pyverbs'."""
        work = self._last
        work.ah = self.ctx.hardware.address_vector(ah.attr)
        work.remote_qp, work.q_key = remote_qpn & PSN_MASK, remote_rkey

    def wr_set_rd_addr(self, eec: EEC, remote_qpn: int, remote_qkey: int) -> None:
        """Set the EE context and the destination of a reliable datagram. pyverbs has no such method."""
        work = self._last
        work.ah, work.remote_qp, work.q_key = eec.eec_num, remote_qpn & PSN_MASK, remote_qkey

    def wr_set_xrc_srqn(self, remote_srqn: int) -> None:
        self._last.srq = remote_srqn

    def _ready(self, work: SendWork) -> None:
        if self._kind == ibv_qp_type.IBV_QPT_UD and work.ah is None:
            raise Refused(errno.EINVAL, "a datagram needs an address: call wr_set_ud_addr")
        super()._ready(work)
