"""A short way to create a program's objects: a context with memory, a completion queue, connected queue pairs."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from tests.patience import PATIENCE_S, PAUSE_S

from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_MW_BIND,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QPT_UD,
)
from weft.verbs.pyverbs.addr import AHAttr, GlobalRoute
from weft.verbs.pyverbs.cq import CQ, WC
from weft.verbs.pyverbs.device import Context
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from weft.verbs.pyverbs.wr import SGE

GID_INDEX = 3
Q_KEY = 0x11
REMOTE = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC
CAP = QPCap(max_send_wr=10, max_recv_wr=10, max_send_sge=4, max_recv_sge=4, max_inline_data=64)


class Node:
    def __init__(self) -> None:
        self.ctx = Context(name="mlx5_0")
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 100)
        self.mr = MR(self.pd, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | REMOTE)

    def __enter__(self) -> Node:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ctx.close()

    def other_pd(self) -> PD:
        return PD(self.ctx)

    def sge(self, offset: int, length: int) -> SGE:
        return SGE(self.mr.buf + offset, length, self.mr.lkey)

    def address(self) -> AHAttr:
        """Return the address of this adapter."""
        route = GlobalRoute(dgid=self.ctx.query_gid(1, GID_INDEX), sgid_index=GID_INDEX)
        return AHAttr(is_global=1, gr=route)

    def qp(
        self,
        kind: int,
        attr: QPAttr | None = None,
        *,
        cq: CQ | None = None,
        cap: QPCap = CAP,
        operations: int = 0,
        **more: Any,
    ) -> Any:
        common = {"scq": cq or self.cq, "rcq": cq or self.cq, "cap": cap, **more}
        if not operations:
            return QP(self.pd, QPInitAttr(kind, **common), attr)
        mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
        init = QPInitAttrEx(kind, comp_mask=mask, pd=self.pd, send_ops_flags=operations, **common)
        return QPEx(self.ctx, init, attr)

    def datagram_attr(self) -> QPAttr:
        attr = QPAttr()
        attr.qkey = Q_KEY
        return attr

    def connected_attr(self, dest_qp_num: int) -> QPAttr:
        attr = QPAttr()
        attr.qp_access_flags, attr.qkey, attr.dest_qp_num = REMOTE, Q_KEY, dest_qp_num
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
        attr.ah_attr = self.address()
        return attr


def connect(node: Node, kind: int, **more: Any) -> tuple[Any, Any]:
    """Return two queue pairs in RTS, connected to each other."""
    a, b = node.qp(kind, **more), node.qp(kind, **more)
    for mine, other in ((a, b), (b, a)):
        mine.to_rts(node.connected_attr(other.qp_num) if kind != IBV_QPT_UD else node.datagram_attr())
    return a, b


def poll(cq: CQ, count: int, seconds: float = PATIENCE_S) -> list[WC]:
    """Return this many completions; fail the test if they do not arrive in time."""
    done: list[WC] = []
    until_s = time.monotonic() + seconds
    while len(done) < count:
        assert time.monotonic() < until_s, f"{len(done)} of {count} completions came"
        count_now, completions = cq.poll(count - len(done))
        done += completions
        if not count_now:
            time.sleep(PAUSE_S)
    return done
