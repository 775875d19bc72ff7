"""Measure RDMA WRITE by RoCE v2 between two processes over the loopback interface, with plain UDP and TCP in the same
run.

    python benchmarks/verbs_roce.py [--mib 1] [--times 64] [--rounds 15] [--json]

    UDP     datagrams of 4 KiB by UDP_SEGMENT and UDP_GRO, 60 KiB at once: a copy without any protocol, unchecked
    WRITE   RDMA WRITE of `--mib` MiB at an MTU of 4 KiB: ICRC computed and verified, payload placed, acknowledged
    TCP     sendall and recv_into of 1 MB

The other process does not poll: its adapter responds. Each round runs all three, one after the other, and the best of
all rounds
counts, so that other load on the machine affects all. GB/s are bytes of payload, once.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import weft.verbs.enums as e
from weft.verbs.pyverbs.addr import GID, AHAttr, GlobalRoute
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.device import Context
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from weft.verbs.pyverbs.wr import SGE, SendWR

LOCAL, REMOTE = "127.88.0.1", "127.88.0.2"
UNIT_BYTES, UNITS = 4096, 15  # size of a datagram, and the number sent together
SOL_UDP, UDP_SEGMENT, UDP_GRO, SO_RCVBUFFORCE = 17, 103, 104, 33
WINDOW_BYTES = 4 << 20
TCP_BYTES = 1_000_000
DEPTH = 4
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


# -- RoCE -------------------------------------------------------------------------------------------------------------


class End:
    """A queue pair and its memory."""

    def __init__(self, address: str, size: int) -> None:
        os.environ["WEFT_VERBS_ROCE"] = address
        self.size = size
        self.ctx = Context(name="mlx5_0")
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, 64)
        self.mr = MR(self.pd, size, ACCESS)
        cap = QPCap(max_send_wr=2 * DEPTH, max_recv_wr=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))

    def facts(self) -> tuple[str, int, int, int]:
        return self.ctx.query_gid(1, 1).gid, self.qp.qp_num, self.mr.buf, self.mr.rkey

    def connect(self, far: tuple[str, int, int, int]) -> None:
        attr = QPAttr(port_num=1)
        attr.qp_access_flags, attr.dest_qp_num, attr.path_mtu = ACCESS, far[1], e.IBV_MTU_4096
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 18, 7, 7
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(far[0]), sgid_index=1), is_global=1, port_num=1)
        self.qp.to_rts(attr)
        self.far = far

    def write(self, times: int) -> None:
        work = SendWR(
            num_sge=1,
            sg=[SGE(self.mr.buf, self.size, self.mr.lkey)],
            opcode=e.IBV_WR_RDMA_WRITE,
            send_flags=e.IBV_SEND_SIGNALED,
        )
        work.set_wr_rdma(self.far[3], self.far[2])
        posted = done = 0
        while done < times:
            while posted < times and posted - done < DEPTH:
                self.qp.post_send(work)
                posted += 1
            for completion in self.cq.poll(DEPTH)[1]:
                assert completion.status == e.IBV_WC_SUCCESS, completion
                done += 1


def answer_roce(pipe: Connection, size: int) -> None:
    end = End(REMOTE, size)
    end.connect(pipe.recv())
    pipe.send(end.facts())
    pipe.recv()  # until the other end has all figures
    pipe.send(bytes(end.mr.read(size, 0)))


# -- UDP and TCP ------------------------------------------------------------------------------------------------------


def udp_socket(address: str, port: int) -> socket.socket:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, port))
    udp.setsockopt(SOL_UDP, UDP_GRO, 1)
    try:
        udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 * WINDOW_BYTES)
    except OSError:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * WINDOW_BYTES)
    return udp


def answer_udp(pipe: Connection) -> None:
    """Acknowledge each half of a window of received bytes."""
    endpoint, buffer, received, reported = udp_socket(REMOTE, 0), bytearray(1 << 16), 0, 0
    pipe.send(endpoint.getsockname())
    while True:
        size, _, _, sender = endpoint.recvmsg_into([buffer], 64)
        received += size
        if size <= 8:
            return
        if received - reported >= WINDOW_BYTES // 2:
            reported = received
            endpoint.sendto(struct.pack("=q", received), sender)


class Udp:
    def __init__(self, peer: tuple[str, int]) -> None:
        self.socket, self.peer = udp_socket(LOCAL, 0), peer
        self.sent = self.reported = 0

    def send(self, total: int) -> None:
        data = memoryview(bytearray(UNIT_BYTES * UNITS))
        control = [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", UNIT_BYTES))]
        end = self.sent + total
        while self.sent < end:
            while self.sent - self.reported >= WINDOW_BYTES - len(data):
                (self.reported,) = struct.unpack("=q", self.socket.recv(8))
            self.socket.sendmsg([data], control, 0, self.peer)
            self.sent += len(data)

    def stop(self) -> None:
        self.socket.sendto(b"stop", self.peer)


def answer_tcp(pipe: Connection) -> None:
    listener = socket.create_server((REMOTE, 0))
    pipe.send(listener.getsockname())
    connection, _ = listener.accept()
    buffer = bytearray(TCP_BYTES)
    view = memoryview(buffer)
    while True:
        left = TCP_BYTES
        while left:
            size = connection.recv_into(view[:left])
            if not size:
                return
            left -= size
        connection.sendall(b"!")


def tcp_sends(connection: socket.socket, times: int) -> None:
    data, reported = bytes(TCP_BYTES), 0
    for number in range(times):
        connection.sendall(data)
        while number - reported >= DEPTH:
            reported += len(connection.recv(64))
    while reported < times:
        reported += len(connection.recv(64))


# -- all --------------------------------------------------------------------------------------------------------------


def start(target: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    near, far = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(far, *arguments), daemon=True)
    process.start()
    return process, near


def measure(mib: int, times: int, rounds: int) -> dict[str, float]:
    size = mib << 20
    _, roce = start(answer_roce, size)
    _, udp_pipe = start(answer_udp)
    _, tcp_pipe = start(answer_tcp)
    end = End(LOCAL, size)
    end.mr.write(os.urandom(size), size)
    roce.send(end.facts())
    end.connect(roce.recv())
    udp, tcp = Udp(udp_pipe.recv()), socket.create_connection(tcp_pipe.recv())
    total = size * times
    tcp_times = max(1, total // TCP_BYTES)
    tests: dict[str, tuple[int, Callable[[], None]]] = {
        "UDP": (total, lambda: udp.send(total)),
        "WRITE": (total, lambda: end.write(times)),
        "TCP": (tcp_times * TCP_BYTES, lambda: tcp_sends(tcp, tcp_times)),
    }
    best = dict.fromkeys(tests, 0.0)
    for _ in range(rounds):
        for name, (count, run) in tests.items():
            began_s = time.perf_counter()
            run()
            best[name] = max(best[name], count / (time.perf_counter() - began_s) / 1e9)
    roce.send(None)
    assert roce.recv() == end.mr.read(size, 0), "the bytes differ"
    udp.stop()
    tcp.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=1)
    parser.add_argument("--times", type=int, default=64, help="messages in a round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    best = measure(options.mib, options.times, options.rounds)
    figures = {f"{name}_gbyte_s": round(value, 3) for name, value in best.items()}
    figures |= {"WRITE_of_UDP": round(best["WRITE"] / best["UDP"], 3), "load": round(load, 1)}
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in best.items():
        print(f"{name:8}{value:8.2f} GB/s")
    print(f"WRITE of {options.mib} MiB reaches {best['WRITE'] / best['UDP']:.0%} of plain UDP; load {load:.1f}")


if __name__ == "__main__":
    main()
