"""Send and receive through a connection identifier, with its own queue pair and completion queues."""

from __future__ import annotations

import errno
from collections.abc import Callable

from weft.verbs import enums as e
from weft.verbs.attributes.objects import PyverbsCM
from weft.verbs.attributes.text import qp_type_to_str
from weft.verbs.enums import ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type, ibv_wr_opcode
from weft.verbs.enums.cm import rdma_port_space
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.queue_pair import TRANSITIONS
from weft.verbs.pyverbs.addr import AH
from weft.verbs.pyverbs.context import PORT, Context
from weft.verbs.pyverbs.cq import CQ, CQEX, WC
from weft.verbs.pyverbs.events import wait_for
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import QP, QPAttr, QPInitAttr
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

UDP_KEY = 0x0123_4567  # the Q_Key of all datagrams of the connection manager
_S, _M = ibv_qp_state, ibv_qp_attr_mask
MASKS = {  # attributes for each state of an RC queue pair
    after: _M.IBV_QP_STATE | TRANSITIONS[_S(after - 1), after][ibv_qp_type.IBV_QPT_RC][0]
    for after in (_S.IBV_QPS_INIT, _S.IBV_QPS_RTR, _S.IBV_QPS_RTS)
}


class Traffic(PyverbsCM):
    """An identifier's operations on its queue pair."""

    port_space: int

    def __init__(self) -> None:
        self.ctx: Context | None = None
        self.pd: PD | None = None
        self.qp: QP | None = None
        self._cqs: list[CQ] = []

    @property
    def qpn(self) -> int:
        return self.qp.qp_num if self.qp is not None else 0

    def _make_cq(self, ctx: Context, size: int) -> CQ:
        self._cqs.append(CQ(ctx, max(1, size)))
        return self._cqs[-1]

    def _queue_pair(self, action: str) -> QP:
        if self.qp is None:
            raise PyverbsRDMAError(action, errno.EINVAL, "the identifier has no queue pair: create_qp")
        return self.qp

    def _close_traffic(self) -> None:
        for resource in (self.qp, *self._cqs):
            if resource is not None:
                resource.close()

    # -- queue pairs --------------------------------------------------------------------------------------------------

    @property
    def is_datagram(self) -> bool:
        return self.port_space in (rdma_port_space.RDMA_PS_UDP, rdma_port_space.RDMA_PS_IPOIB)

    def init_qp_attr(self, qp_state: int) -> tuple[QPAttr, int]:
        """Return the attributes and their mask for moving a queue pair of the program to a state."""
        raise NotImplementedError

    @property
    def qp_type(self) -> ibv_qp_type:
        """The type of queue pair for the identifier's port space."""
        return ibv_qp_type.IBV_QPT_UD if self.is_datagram else ibv_qp_type.IBV_QPT_RC

    def create_qp(self, qp_init: QPInitAttr) -> None:
        """Create the queue pair, with completion queues of the identifier where `qp_init` has none."""
        action = "Failed to Create QP"
        if self.ctx is None or self.pd is None:
            raise PyverbsRDMAError(action, errno.EINVAL, "the identifier is not bound to a device yet")
        if qp_init.qp_type != self.qp_type:
            reason = f"qp_type is {qp_type_to_str(qp_init.qp_type)}; this port space needs {self.qp_type.name}"
            raise PyverbsRDMAError(action, errno.EINVAL, reason)
        scq = qp_init.send_cq or self._make_cq(self.ctx, qp_init.max_send_wr)
        rcq = qp_init.recv_cq or self._make_cq(self.ctx, qp_init.max_recv_wr)
        cap, sig = qp_init.cap, qp_init.sq_sig_all
        self.qp = QP(self.pd, QPInitAttr(self.qp_type, qp_init.qp_context, scq, rcq, qp_init.srq, cap, sig))
        if self.is_datagram:
            attr = QPAttr(port_num=PORT)
            attr.qkey = UDP_KEY
            self.qp.to_rts(attr)
        else:
            self.qp.modify(*self.init_qp_attr(_S.IBV_QPS_INIT))

    def query_qp(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        return self._queue_pair("Failed to query QP").query(attr_mask)

    # -- memory -------------------------------------------------------------------------------------------------------

    def reg_msgs(self, size: int) -> MR:
        """Register memory for messages."""
        return MR(self.pd, size, e.IBV_ACCESS_LOCAL_WRITE)

    def reg_read(self, size: int) -> MR:
        """Register memory that the peer may read."""
        return MR(self.pd, size, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ)

    def reg_write(self, size: int) -> MR:
        """Register memory that the peer may write."""
        return MR(self.pd, size, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)

    # -- messages -----------------------------------------------------------------------------------------------------

    def post_recv(self, mr: MR, length: int | None = None) -> None:
        place = SGE(mr.buf, mr.length if length is None else length, mr.lkey)
        self._queue_pair("Failed to Post Receive").post_recv(RecvWR(num_sge=1, sg=[place]))

    def post_send(self, mr: MR, flags: int = e.IBV_SEND_SIGNALED, length: int | None = None) -> None:
        self._queue_pair("Failed to Post Send").post_send(_work(mr, length, flags))

    def post_read(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        wr = _work(mr, length, flags, ibv_wr_opcode.IBV_WR_RDMA_READ)
        wr.set_wr_rdma(rkey, remote_addr)
        self._queue_pair("Failed to Post Read").post_send(wr)

    def post_write(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        wr = _work(mr, length, flags, ibv_wr_opcode.IBV_WR_RDMA_WRITE)
        wr.set_wr_rdma(rkey, remote_addr)
        self._queue_pair("Failed to Post Write").post_send(wr)

    def post_ud_send(
        self, mr: MR, ah: AH, rqpn: int = 0, flags: int = e.IBV_SEND_SIGNALED, length: int | None = None
    ) -> None:
        wr = _work(mr, length, flags)
        wr.set_wr_ud(ah, rqpn, UDP_KEY)
        self._queue_pair("Failed to Post Send").post_send(wr)

    def get_recv_comp(self) -> WC:
        """Wait for a receive completion and return it."""
        return self._completion(lambda qp: qp.rcq, "Failed to retrieve receive completion")

    def get_send_comp(self) -> WC:
        """Wait for a send completion and return it."""
        return self._completion(lambda qp: qp.scq, "Failed to retrieve send completion")

    def _completion(self, queue_of: Callable[[QP], CQ | CQEX | None], action: str) -> WC:
        qp = self._queue_pair(action)
        queue = queue_of(qp)
        if not isinstance(queue, CQ):
            raise PyverbsRDMAError(action, errno.EOPNOTSUPP, "the completion queue is extended: use start_poll")

        def poll() -> WC | None:
            count, entries = queue.poll()
            return entries[0] if count else None

        return wait_for(qp.ctx.adapter, poll)


def _work(mr: MR, length: int | None, flags: int, opcode: int = ibv_wr_opcode.IBV_WR_SEND) -> SendWR:
    place = SGE(mr.buf, mr.length if length is None else length, mr.lkey)
    return SendWR(opcode=opcode, num_sge=1, sg=[place], send_flags=flags)
