"""Measure 64-byte SENDs back and forth between two processes, by an ordinary program that posts and polls: µs, one way.

    python benchmarks/verbs_pingpong.py ROUNDS [--reuse]

The program creates its requests each time, with their elements; with `--reuse` they are created once.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from multiprocessing.connection import Connection

from weft.verbs import enums as e
from weft.verbs.pyverbs.addr import AHAttr, GlobalRoute
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.device import Context
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

SIZE, DEPTH, WARM_ROUNDS = 64, 16, 200


class End:
    def __init__(self, pipe: Connection, *, reuse: bool) -> None:
        self.ctx = Context(name="mlx5_0")
        self.pd = pd = PD(self.ctx)
        self.sent, self.received = CQ(self.ctx, DEPTH), CQ(self.ctx, DEPTH)
        self.mr = MR(pd, 2 * SIZE, e.IBV_ACCESS_LOCAL_WRITE)
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH)
        self.qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.sent, rcq=self.received, cap=cap))
        pipe.send(self.qp.qp_num)
        attr = QPAttr(port_num=1)
        attr.dest_qp_num, attr.path_mtu = pipe.recv(), e.IBV_MTU_4096
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=self.ctx.query_gid(1, 1), sgid_index=1), is_global=1, port_num=1)
        self.qp.to_rts(attr)
        if reuse:
            receive, send = self.receive(), self.send()
            self.receive, self.send = lambda: receive, lambda: send  # type: ignore[method-assign]
        for _ in range(DEPTH - 1):
            self.qp.post_recv(self.receive())
        pipe.send("ready")
        pipe.recv()

    def receive(self) -> RecvWR:
        return RecvWR(1, 1, [SGE(self.mr.buf + SIZE, SIZE, self.mr.lkey)])

    def send(self) -> SendWR:
        return SendWR(2, e.IBV_WR_SEND, 1, 0, [SGE(self.mr.buf, SIZE, self.mr.lkey)], e.IBV_SEND_SIGNALED)

    def turn(self, *, begins: bool) -> None:
        if begins:
            self.qp.post_send(self.send())
        wait(self.received)
        self.qp.post_recv(self.receive())
        if not begins:
            self.qp.post_send(self.send())
        wait(self.sent)


def wait(cq: CQ) -> None:
    while True:
        count, completions = cq.poll()
        if count:
            assert completions[0].status == e.IBV_WC_SUCCESS, completions[0]
            return


def other_end(pipe: Connection, rounds: int, reuse: bool) -> None:
    end = End(pipe, reuse=reuse)
    for _ in range(rounds):
        end.turn(begins=False)


def main() -> None:
    rounds, reuse = int(sys.argv[1]), "--reuse" in sys.argv
    processes = multiprocessing.get_context("spawn")
    near, far = processes.Pipe()
    child = processes.Process(target=other_end, args=(far, rounds + WARM_ROUNDS, reuse), daemon=True)
    child.start()
    end, halves = End(near, reuse=reuse), []
    for _ in range(rounds + WARM_ROUNDS):
        began_ns = time.perf_counter_ns()
        end.turn(begins=True)
        halves.append((time.perf_counter_ns() - began_ns) / 2000)
    child.join()
    print(statistics.median(halves[WARM_ROUNDS:]))


if __name__ == "__main__":
    main()
