"""A typical program with datagrams for RoCE adapters: ud_pingpong.py [--gid N] [SERVER PORT]."""

import argparse
import json
import socket

import pyverbs.enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

GRH, SIZE, QKEY, ROUNDS = 40, 1024, 0x11111111, 10

parser = argparse.ArgumentParser()
parser.add_argument("--gid", type=int, default=1)
parser.add_argument("server", nargs="?")
parser.add_argument("port", nargs="?", type=int, default=0)
args = parser.parse_args()

names = [device.name.decode() for device in get_device_list()]
ctx = Context(name=next(name for name in names if name.startswith("mlx5_")))
pd = PD(ctx)
cq = CQ(ctx, 2 * ROUNDS)
mr = MR(pd, 2 * (GRH + SIZE), e.IBV_ACCESS_LOCAL_WRITE)
attr = QPAttr(port_num=1)
attr.qkey = QKEY
cap = QPCap(max_send_wr=ROUNDS, max_recv_wr=ROUNDS)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=cq, rcq=cq, cap=cap), attr)
for _ in range(ROUNDS):
    qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf, GRH + SIZE, mr.lkey)]))

if args.server:
    conn = socket.create_connection((args.server, args.port))
else:
    listener = socket.create_server(("127.0.0.1", args.port))
    print(listener.getsockname()[1], flush=True)
    conn, _ = listener.accept()
stream = conn.makefile("rw")
mine = {"gid": ctx.query_gid(1, args.gid).gid, "qpn": qp.qp_num}
print(json.dumps(mine), file=stream, flush=True)
far = json.loads(stream.readline())


def wait(opcode: int):
    while True:
        for wc in cq.poll(1)[1]:
            assert wc.status == e.IBV_WC_SUCCESS
            if wc.opcode == opcode:
                return wc


def send(ah: AH, qpn: int, text: bytes) -> None:
    mr.write(text, len(text), GRH + SIZE)
    wr = SendWR(num_sge=1, sg=[SGE(mr.buf + GRH + SIZE, len(text), mr.lkey)], opcode=e.IBV_WR_SEND)
    wr.set_wr_ud(ah, qpn, QKEY)
    qp.post_send(wr)


for number in range(ROUNDS):
    if args.server:
        route = GlobalRoute(dgid=GID(far["gid"]), sgid_index=args.gid)
        send(AH(pd, attr=AHAttr(gr=route, is_global=1, port_num=1)), far["qpn"], b"ping %d" % number)
        wc = wait(e.IBV_WC_RECV)
        assert mr.read(wc.byte_len - GRH, GRH) == b"pong %d" % number
    else:  # reply to the sender, by the header before the data
        wc = wait(e.IBV_WC_RECV)
        send(
            AH(pd, wc=wc, grh=mr.buf, port_num=1), wc.src_qp, mr.read(wc.byte_len - GRH, GRH).replace(b"ping", b"pong")
        )
        wait(e.IBV_WC_SEND)
print(f"{ROUNDS} rounds by {mine['gid']}")
