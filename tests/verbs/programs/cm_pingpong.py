"""A connection by addresses and ports with blocking calls: cm_pingpong.py PORT [SERVER]."""

import sys

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.qp import QPCap, QPInitAttr

SIZE, ROUNDS = 1024, 10

port, server = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
cap = QPCap(max_recv_wr=ROUNDS, max_send_wr=ROUNDS)
init = QPInitAttr(qp_type=e.IBV_QPT_RC, cap=cap)

if server:
    info = AddrInfo(dst=server, dst_service=port, port_space=ce.RDMA_PS_TCP)
    cmid = CMID(creator=info, qp_init_attr=init)
else:
    info = AddrInfo(src="127.0.0.1", src_service=port, port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE)
    listener = CMID(creator=info, qp_init_attr=init)
    listener.listen()
    print(port, flush=True)
    cmid = listener.get_request()

receive, send = cmid.reg_msgs(SIZE), cmid.reg_msgs(SIZE)
cmid.post_recv(receive)
if server:
    cmid.connect()
else:
    cmid.accept()

for number in range(ROUNDS):
    if server:
        send.write(f"ping {number}".ljust(SIZE), SIZE)
        cmid.post_send(send)
        cmid.get_send_comp()
        cmid.get_recv_comp()
        assert receive.read(SIZE, 0).split() == [b"pong", str(number).encode()]
        cmid.post_recv(receive)
    else:
        cmid.get_recv_comp()
        send.write(receive.read(SIZE, 0).replace(b"ping", b"pong"), SIZE)
        cmid.post_recv(receive)
        cmid.post_send(send)
        cmid.get_send_comp()
print(f"{ROUNDS} rounds by {cmid.dev_name}")
if server:
    cmid.disconnect()
cmid.close()
if not server:
    listener.close()
