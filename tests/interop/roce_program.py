"""One end of a connection over RoCE v2 in pyverbs; the ends exchange their parameters as lines of JSON.

    WEFT_VERBS_ROCE=10.0.0.1 python roce_program.py asks|answers [INTERFACE]

The end `asks` sends, writes and reads on a connection and sends a datagram; the end `answers` reports the received
data. With the name of an interface a program also captures and reports the packets on that interface.
"""

from __future__ import annotations

import hashlib
import json
import random
import socket
import sys
import time
from typing import Any

from weft.verbs.pyverbs import install

install()

import pyverbs.enums as e  # noqa: E402
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute  # noqa: E402
from pyverbs.cq import CQ  # noqa: E402
from pyverbs.device import Context, get_device_list  # noqa: E402
from pyverbs.mr import MR  # noqa: E402
from pyverbs.pd import PD  # noqa: E402
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr  # noqa: E402
from pyverbs.wr import SGE, RecvWR, SendWR  # noqa: E402

ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
SEND_BYTES, WRITE_BYTES, READ_BYTES, DATAGRAM_BYTES, GRH_BYTES = 50_001, 600_000, 200_003, 1000, 40
SEND_AT, WRITE_AT, READ_AT, DATAGRAM_AT = 0, 1 << 20, 2 << 20, 3 << 20
WHOLE_BYTES, Q_KEY, TIMEOUT_S = 4 << 20, 0x1234, 300


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def hear() -> dict[str, Any]:
    return dict(json.loads(sys.stdin.readline()))


def pattern(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


class End:
    def __init__(self) -> None:
        self.ctx = Context(name=get_device_list()[0].name.decode())
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, 64)
        self.mr = MR(self.pd, WHOLE_BYTES, ACCESS)
        cap = QPCap(max_send_wr=8, max_recv_wr=8)
        self.rc, self.ud = (
            QP(self.pd, QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, cap=cap))
            for kind in (e.IBV_QPT_RC, e.IBV_QPT_UD)
        )

    def facts(self) -> dict[str, Any]:
        gid = self.ctx.query_gid(1, 1).gid
        mtu = self.ctx.query_port(1).active_mtu
        return {
            "gid": gid,
            "rc": self.rc.qp_num,
            "ud": self.ud.qp_num,
            "at": self.mr.buf,
            "rkey": self.mr.rkey,
            "mtu": mtu,
        }

    def connect(self, far: dict[str, Any]) -> None:
        self.way = AHAttr(gr=GlobalRoute(dgid=GID(far["gid"]), sgid_index=1), is_global=1, port_num=1)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags, attr.dest_qp_num, attr.path_mtu = ACCESS, far["rc"], far["mtu"]
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 18, 7, 7, 12
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.ah_attr = self.way
        self.rc.to_rts(attr)
        plain = QPAttr(port_num=1)
        plain.qkey = Q_KEY
        self.ud.to_rts(plain)

    def sge(self, at: int, size: int) -> SGE:
        return SGE(self.mr.buf + at, size, self.mr.lkey)

    def wait(self, count: int) -> list[tuple[int, int]]:
        """Return the number and status of this many completions."""
        done: list[tuple[int, int]] = []
        until_s = time.monotonic() + TIMEOUT_S
        while len(done) < count and time.monotonic() < until_s:
            done += [(item.wr_id, int(item.status)) for item in self.cq.poll(count)[1]]
        return done

    def digest(self, at: int, size: int) -> str:
        return hashlib.sha256(self.mr.read(size, at)).hexdigest()


def asks(end: End, far: dict[str, Any]) -> None:
    end.mr.write(pattern(1, SEND_BYTES), SEND_BYTES, SEND_AT)
    end.mr.write(pattern(2, WRITE_BYTES), WRITE_BYTES, WRITE_AT)
    end.mr.write(pattern(4, DATAGRAM_BYTES), DATAGRAM_BYTES, DATAGRAM_AT)
    signaled = e.IBV_SEND_SIGNALED
    write = SendWR(2, num_sge=1, sg=[end.sge(WRITE_AT, WRITE_BYTES)], opcode=e.IBV_WR_RDMA_WRITE, send_flags=signaled)
    write.set_wr_rdma(far["rkey"], far["at"] + WRITE_AT)
    read = SendWR(3, num_sge=1, sg=[end.sge(READ_AT, READ_BYTES)], opcode=e.IBV_WR_RDMA_READ, send_flags=signaled)
    read.set_wr_rdma(far["rkey"], far["at"] + READ_AT)
    send = SendWR(1, num_sge=1, sg=[end.sge(SEND_AT, SEND_BYTES)], send_flags=signaled)
    for work in (write, read, send):
        end.rc.post_send(work)
    datagram = SendWR(4, num_sge=1, sg=[end.sge(DATAGRAM_AT, DATAGRAM_BYTES)], send_flags=signaled)
    datagram.set_wr_ud(AH(end.pd, attr=end.way), far["ud"], Q_KEY)
    end.ud.post_send(datagram)
    say(done=sorted(end.wait(4)), read=end.digest(READ_AT, READ_BYTES))


def answers(end: End) -> None:
    done = end.wait(2)
    hear()  # the other end has received everything
    say(
        done=sorted(done),
        sent=end.digest(SEND_AT, SEND_BYTES),
        written=end.digest(WRITE_AT, WRITE_BYTES),
        datagram=end.digest(DATAGRAM_AT + GRH_BYTES, DATAGRAM_BYTES),
    )


def main() -> None:
    role, *interface = sys.argv[1:]
    tap = None
    if interface:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        tap.bind((interface[0], 0))
        tap.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
        tap.setblocking(False)
    end = End()
    if role == "answers":
        end.mr.write(pattern(3, READ_BYTES), READ_BYTES, READ_AT)
    say(**end.facts())
    far = hear()
    end.connect(far)
    if role == "answers":
        end.rc.post_recv(RecvWR(5, num_sge=1, sg=[end.sge(SEND_AT, SEND_BYTES)]))
        end.ud.post_recv(RecvWR(6, num_sge=1, sg=[end.sge(DATAGRAM_AT, GRH_BYTES + DATAGRAM_BYTES)]))
    say(is_ready=True)
    hear()
    if role == "asks":
        asks(end, far)
    else:
        answers(end)
    if tap is not None:
        say(frames=[frame.hex() for frame in frames(tap)])
    hear()  # until both are done: a connection has two ends


def frames(tap: socket.socket) -> list[bytes]:
    result = []
    while True:
        try:
            result.append(tap.recv(1 << 16))
        except BlockingIOError:
            return result


if __name__ == "__main__":
    main()
