"""Measure RDMA between tensors on one GPU, in one process and between two, with torch's copy and a copy in host memory.

    python benchmarks/verbs_gpu.py [--mib 1 64 1024] [--times 50] [--json]

All run in turn, so that other load on the machine affects all equally; the best of `--times` counts. Every figure is
the time from
the request to its completion: for torch the copy and a synchronize, for weft from post_send to the completion. GB/s
are bytes of
the message, once. Columns:

    torch       torch's copy between the same tensors
    WRITE, READ one process: between two regions on the GPU
    2 WRITE ..  the same between two processes, by CUDA IPC
    via host    a lower bound for a message through host memory: torch's copy to pinned memory, and back
    host copy   numpy's copy of as many bytes from host memory to host memory

The last lines are the number of bytes that the driver copied to or from host memory for weft: none. It needs a GPU
and torch.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_MTU_4096,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
)
from weft.verbs.gpudirect.cuda import driver
from weft.verbs.pyverbs.addr import AHAttr, GlobalRoute
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.device import Context
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from weft.verbs.pyverbs.wr import SGE, SendWR

REMOTE = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE
Far = tuple[int, int]  # address and key of a region


class Host:
    """The objects of a program: a queue pair, and a registered tensor."""

    def __init__(self, nbytes: int) -> None:
        import torch

        self.context = Context(name="mlx5_0")
        self.pd, self.cq = PD(self.context), CQ(self.context, 16)
        cap = QPCap(max_send_wr=4, max_recv_wr=4)
        self.qp = QP(self.pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))
        self.tensor = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        self.mr = MR(self.pd, 0, IBV_ACCESS_LOCAL_WRITE | REMOTE, address=self.tensor)

    def connect(self, qp_num: int) -> None:
        attr = QPAttr(port_num=1)
        attr.qp_access_flags, attr.dest_qp_num, attr.path_mtu = REMOTE, qp_num, IBV_MTU_4096
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 18, 7, 7
        route = GlobalRoute(dgid=self.context.query_gid(1, 1), sgid_index=1)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)

    def run(self, opcode: int, far: Far) -> None:
        sg = [SGE(self.mr.buf, self.mr.length, self.mr.lkey)]
        work = SendWR(num_sge=1, sg=sg, opcode=opcode, send_flags=IBV_SEND_SIGNALED)
        work.set_wr_rdma(far[1], far[0])
        self.qp.post_send(work)
        while not (done := self.cq.poll()[1]):
            pass
        if done[0].status != IBV_WC_SUCCESS:
            raise SystemExit(f"the request ended with status {done[0].status}")

    @property
    def far(self) -> Far:
        return self.mr.buf, self.mr.rkey


def other_process(pipe: Connection, nbytes: int) -> None:
    """Register a tensor and sleep: the adapter responds."""
    host = Host(nbytes)
    pipe.send((host.qp.qp_num, host.far))
    host.connect(pipe.recv())
    pipe.send("ready")
    pipe.recv()
    pipe.send((int(host.tensor.sum()), dict(driver().copied_bytes)))
    pipe.recv()


def measure(nbytes: int, times: int) -> dict[str, Any]:
    import torch

    source, target = Host(nbytes), Host(nbytes)
    source.connect(target.qp.qp_num)
    target.connect(source.qp.qp_num)
    near = Host(nbytes)
    spawn = multiprocessing.get_context("spawn")
    pipe, end = spawn.Pipe()
    process = spawn.Process(target=other_process, args=(end, nbytes), daemon=True)
    process.start()
    qp_num, far = pipe.recv()
    pipe.send(near.qp.qp_num)
    near.connect(qp_num)
    pipe.recv()
    host, copy = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    pinned = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def by_torch() -> None:
        target.tensor.copy_(source.tensor)
        torch.cuda.synchronize()

    def via_host() -> None:
        pinned.copy_(source.tensor)
        target.tensor.copy_(pinned)
        torch.cuda.synchronize()

    ways: dict[str, Callable[[], None]] = {
        "torch": by_torch,
        "WRITE": lambda: source.run(IBV_WR_RDMA_WRITE, target.far),
        "READ": lambda: source.run(IBV_WR_RDMA_READ, target.far),
        "2 WRITE": lambda: near.run(IBV_WR_RDMA_WRITE, far),
        "2 READ": lambda: near.run(IBV_WR_RDMA_READ, far),
        "via host": via_host,
        "host copy": lambda: np.copyto(copy, host),
    }
    best = {name: min(_timed(way) for _ in range(times)) for name, way in ways.items()}
    near.run(IBV_WR_RDMA_WRITE, far)
    if not source.tensor.equal(target.tensor):
        raise SystemExit("the bytes within one process are wrong")
    pipe.send("sum")
    total, far_copies = pipe.recv()
    if total != int(near.tensor.sum()):
        raise SystemExit("the bytes of the other process are wrong")
    pipe.send("end")
    process.join()
    through_host = sum(
        copies.get(kind, 0) for copies in (driver().copied_bytes, far_copies) for kind in ("DtoH", "HtoD")
    )
    gbyte_s = {name: nbytes / seconds / 1e9 for name, seconds in best.items()}
    return {
        "mib": nbytes >> 20,
        "us": {name: seconds * 1e6 for name, seconds in best.items()},
        "gbyte_s": gbyte_s,
        "of torch": {name: gbyte_s[name] / gbyte_s["torch"] for name in ways if name != "torch"},
        "bytes through host memory": through_host,
    }


def _timed(way: Callable[[], None]) -> float:
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, nargs="+", default=[1, 64, 1024])
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(mib << 20, options.times) for mib in options.mib]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    names = list(rows[0]["gbyte_s"])
    print(f"{'GB/s':>9}" + "".join(f"{name:>11}" for name in names))
    for row in rows:
        print(f"{row['mib']:>5} MiB" + "".join(f"{row['gbyte_s'][name]:>11.1f}" for name in names))
        print(f"{'us':>9}" + "".join(f"{row['us'][name]:>11.1f}" for name in names))
    for row in rows:
        print(f"{row['mib']} MiB: {row['bytes through host memory']} bytes through host memory")


if __name__ == "__main__":
    main()
