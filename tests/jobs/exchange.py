"""A rank that sends to the next rank over RC and receives from the previous one; addresses go through the store."""

import os
import sys

from weft.collectives.live.store import JobStore
from weft.verbs import enums as e
from weft.verbs.pyverbs.addr import AHAttr
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.device import Context
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

PATIENCE_S = 300.0
rank, world, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(sys.argv[1])
after, before = (rank + 1) % world, (rank - 1) % world
store = JobStore(os.environ["WEFT_JOB"])
ctx = Context(name=os.environ["WEFT_ADAPTER"])
pd, cq = PD(ctx), CQ(ctx, 8)
mr = MR(pd, 2 * size, e.IBV_ACCESS_LOCAL_WRITE)


def pair() -> QP:
    return QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=1, max_recv_wr=1)))


def connect(qp: QP, far: bytes) -> None:
    lid, number = map(int, far.split())
    attr = QPAttr()
    attr.dest_qp_num, attr.path_mtu, attr.ah_attr = number, e.IBV_MTU_4096, AHAttr(dlid=lid)
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 17, 7, 7, 12
    qp.to_rts(attr)


def wait(count: int) -> None:
    while count:
        for completion in cq.poll(count)[1]:
            assert completion.status == e.IBV_WC_SUCCESS, completion
            count -= 1


def barrier(word: str) -> None:
    """Wait until all ranks have called this."""
    store.set(f"{word} {rank}", b"")
    for peer in range(world):
        store.get(f"{word} {peer}", PATIENCE_S)


to_next, from_before = pair(), pair()
lid = ctx.query_port(1).lid
store.set(f"from {before} to {rank}", f"{lid} {from_before.qp_num}".encode())
store.set(f"of {rank}", f"{lid} {to_next.qp_num}".encode())
connect(from_before, store.get(f"of {before}", PATIENCE_S))
connect(to_next, store.get(f"from {rank} to {after}", PATIENCE_S))
from_before.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf + size, size, mr.lkey)]))
barrier("ready")
mr.write(bytes([rank]) * size, size)
to_next.post_send(
    SendWR(num_sge=1, sg=[SGE(mr.buf, size, mr.lkey)], opcode=e.IBV_WR_SEND, send_flags=e.IBV_SEND_SIGNALED)
)
wait(2)
assert mr.read(size, size) == bytes([before]) * size
print(f"got {size} bytes of {before}")
barrier("done")
