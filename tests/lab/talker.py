"""A typical program for pyverbs: two instances, on two hosts, exchange messages.

    talker.py FOLDER OWN PEER RC|UC|UD ROUNDS SIZE [global]

They exchange addresses through files in FOLDER. The last line of output is the result as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

GRH, Q_KEY, PATIENCE_S = 40, 0x1234, 300


def exchange(folder: Path, own: str, peer: str, said: dict) -> dict:
    partial = folder / f"{own}.part"
    partial.write_text(json.dumps(said))
    partial.rename(folder / own)
    until_s = time.monotonic() + PATIENCE_S
    while not (folder / peer).exists():
        assert time.monotonic() < until_s, f"{peer} did not come"
        time.sleep(0.01)
    return json.loads((folder / peer).read_text())


def address(ctx: Context, far: dict, is_global: bool) -> AHAttr:
    if not is_global:
        return AHAttr(dlid=far["lid"], port_num=1)
    from pyverbs.addr import GID

    return AHAttr(gr=GlobalRoute(dgid=GID(far["gid"]), sgid_index=0), is_global=1, port_num=1)


def text_of(turn: int, length: int) -> bytes:
    return bytes((turn + n) % 251 for n in range(length))


def wait(cq: CQ, count: int) -> list:
    done: list = []
    until_s = time.monotonic() + PATIENCE_S
    while len(done) < count and time.monotonic() < until_s:
        count_now, completions = cq.poll(count - len(done))
        done += completions
        if not count_now:
            time.sleep(0.0005)  # the other process needs the processor
    return done


def main(folder: str, own: str, peer: str, kind: str, rounds: str, size: str, *more: str) -> None:
    ctx = Context(name=get_device_list()[0].name.decode())
    pd, cq = PD(ctx), CQ(ctx, 64)
    length = int(size)
    access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
    mr = MR(pd, 3 * (length + GRH), access)
    number = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}[kind]
    qp = QP(pd, QPInitAttr(qp_type=number, scq=cq, rcq=cq, cap=QPCap(max_send_wr=8, max_recv_wr=8)))
    port = ctx.query_port(1)
    mine = {"lid": port.lid, "gid": str(ctx.query_gid(1, 0)), "qpn": qp.qp_num, "va": mr.buf, "rkey": mr.rkey}
    far = exchange(Path(folder), own, peer, mine)
    attr = QPAttr(port_num=1)
    attr.qkey, attr.qp_access_flags, attr.dest_qp_num, attr.path_mtu = Q_KEY, access, far["qpn"], e.IBV_MTU_1024
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 17, 7, 7, 1
    attr.ah_attr = address(ctx, far, "global" in more)
    ah = AH(pd, attr=attr.ah_attr)
    qp.to_rts(attr)
    before = GRH if kind == "UD" else 0
    places = [length + GRH, 2 * (length + GRH)]

    def post_receive(turn: int) -> None:
        qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf + places[turn % 2], length + before, mr.lkey)]))

    def send(turn: int) -> None:
        mr.write(text_of(turn, length), length)
        work = SendWR(
            num_sge=1, sg=[SGE(mr.buf, length, mr.lkey)], opcode=e.IBV_WR_SEND, send_flags=e.IBV_SEND_SIGNALED
        )
        if kind == "UD":
            work.set_wr_ud(ah, far["qpn"], Q_KEY)
        post_receive(turn + 1)
        qp.post_send(work)

    post_receive(0)
    exchange(Path(folder), f"{own}.ready", f"{peer}.ready", {})
    statuses, wrong, turn = set(), 0, 0
    if own < peer:
        send(0)
    for turn in range(int(rounds)):
        received = False
        while not received:
            done = wait(cq, 1)
            statuses |= {item.status for item in done}
            if not done or statuses != {e.IBV_WC_SUCCESS}:
                break
            received = bool(done[0].opcode & e.IBV_WC_RECV)
        if not received:
            break
        wrong += mr.read(length, places[turn % 2] + before) != text_of(turn, length)
        send(turn + 1 if own < peer else turn)
    print(json.dumps({"turns": turn + received, "statuses": sorted(statuses), "wrong": wrong, "name": ctx.name}))


if __name__ == "__main__":
    main(*sys.argv[1:])
