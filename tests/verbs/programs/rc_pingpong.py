"""A typical ping-pong for RoCE adapters: the names of the device and the index of the GID are in the source.

rc_pingpong.py [--gid N] [--events] [SERVER PORT]
"""

import argparse
import pickle
import socket
import struct

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

DEVICE, IB_PORT, SIZE, ROUNDS = "mlx5_0", 1, 4096, 10

parser = argparse.ArgumentParser()
parser.add_argument("--gid", type=int, default=3)
parser.add_argument("--events", action="store_true")
parser.add_argument("server", nargs="?")
parser.add_argument("port", nargs="?", type=int, default=0)
args = parser.parse_args()


def talk_to_the_other_end() -> socket.socket:
    if args.server:
        return socket.create_connection((args.server, args.port))
    listener = socket.create_server(("127.0.0.1", args.port))
    print(listener.getsockname()[1], flush=True)
    return listener.accept()[0]


def exchange(conn: socket.socket, mine: dict) -> dict:
    data = pickle.dumps(mine)
    conn.sendall(struct.pack("!I", len(data)) + data)
    (length,) = struct.unpack("!I", conn.recv(4, socket.MSG_WAITALL))
    return pickle.loads(conn.recv(length, socket.MSG_WAITALL))


ctx = Context(name=DEVICE)
assert ctx.query_port(IB_PORT).state == e.IBV_PORT_ACTIVE
pd = PD(ctx)
channel = CompChannel(ctx) if args.events else None
cq = CQ(ctx, 100, None, channel, 0)
mr = MR(pd, 2 * SIZE, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ)
cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=True))


def poll(count: int) -> list:
    done = []
    while len(done) < count:
        if channel is not None:
            cq.req_notify()  # before each poll: each notification needs its own request
        result, wcs = cq.poll(count - len(done))
        if not result and channel is not None:
            channel.get_cq_event(cq)
            cq.ack_events(1)
        done += wcs
    for wc in done:
        assert wc.status == e.IBV_WC_SUCCESS, e.ibv_wc_status(wc.status).name
    return done


conn = talk_to_the_other_end()
gid = ctx.query_gid(port_num=IB_PORT, index=args.gid)
far = exchange(conn, {"gid": str(gid), "qpn": qp.qp_num, "psn": 7, "addr": mr.buf, "rkey": mr.rkey})

attr = QPAttr(port_num=IB_PORT)
attr.qp_access_flags = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
qp.to_init(attr)
attr.path_mtu = e.IBV_MTU_1024
attr.dest_qp_num, attr.rq_psn, attr.sq_psn = far["qpn"], far["psn"], 7
attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 22, 7, 7  # 17 s: the machine may be busy
route = GlobalRoute(dgid=GID(far["gid"]), sgid_index=args.gid)
attr.ah_attr = AHAttr(port_num=IB_PORT, is_global=1, gr=route, dlid=0)
qp.to_rtr(attr)
qp.post_recv(RecvWR(wr_id=1, num_sge=1, sg=[SGE(mr.buf, SIZE, mr.lkey)]))
qp.to_rts(attr)
exchange(conn, {"ready": True})

for number in range(ROUNDS):
    if args.server:
        mr.write(f"ping {number}".ljust(64), 64, SIZE)
        qp.post_send(SendWR(wr_id=2, num_sge=1, sg=[SGE(mr.buf + SIZE, 64, mr.lkey)], opcode=e.IBV_WR_SEND))
        poll(2)
        assert mr.read(64, 0).split() == [b"pong", str(number).encode()]
    else:
        poll(1)
        mr.write(mr.read(64, 0).replace(b"ping", b"pong"), 64, SIZE)
        qp.post_send(SendWR(wr_id=2, num_sge=1, sg=[SGE(mr.buf + SIZE, 64, mr.lkey)], opcode=e.IBV_WR_SEND))
        poll(1)
    qp.post_recv(RecvWR(wr_id=1, num_sge=1, sg=[SGE(mr.buf, SIZE, mr.lkey)]))

exchange(conn, {"done": True})
if args.server:
    for opcode, offset in ((e.IBV_WR_RDMA_WRITE, SIZE), (e.IBV_WR_RDMA_READ, 0)):
        mr.write("x" * 64 if offset else " " * 64, 64, offset)
        wr = SendWR(wr_id=3, num_sge=1, sg=[SGE(mr.buf + offset, 64, mr.lkey)], opcode=opcode)
        wr.set_wr_rdma(far["rkey"], far["addr"] + SIZE)
        qp.post_send(wr)
        poll(1)
    assert mr.read(64, 0) == b"x" * 64
exchange(conn, {"bye": True})
assert args.server or mr.read(64, SIZE) == b"x" * 64
print(f"{ROUNDS} rounds by {gid}")
for closing in (qp, mr, cq, pd, ctx):
    closing.close()
