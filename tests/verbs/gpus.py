"""A process for tests and benchmarks that registers a tensor, connects, and executes requests.

python -m tests.verbs.gpus BYTES DEVICE      DEVICE: cuda or cpu; one request a line, one answer a line, in JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.verbs.hosts import REMOTE, Node, poll

from weft.verbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_MTU_4096, IBV_QPT_RC, IBV_SEND_SIGNALED
from weft.verbs.gpudirect.cuda import in_use
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.qp import QPAttr
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

ALL = IBV_ACCESS_LOCAL_WRITE | REMOTE
ROOT = Path(__file__).parents[2]


def copied() -> Counter[str]:
    """Return the bytes that the driver has copied for this process, by kind."""
    driver = in_use()
    return Counter(driver.copied_bytes) if driver is not None else Counter()


def attributes(node: Node, dest_qp_num: int) -> QPAttr:
    attr = node.connected_attr(dest_qp_num)
    attr.path_mtu = IBV_MTU_4096
    return attr


def request(mr: MR, opcode: int, far: tuple[int, int] | None = None, length: int = 0, offset: int = 0) -> SendWR:
    """Return a request for the region or a part of it; `far`: the address and rkey of the other region."""
    sg = [SGE(mr.buf + offset, length or mr.length, mr.lkey)]
    result = SendWR(num_sge=1, sg=sg, opcode=opcode, send_flags=IBV_SEND_SIGNALED)
    if far is not None:
        result.set_wr_rdma(far[1], far[0] + offset)
    return result


class Peer:
    """The parent's handle of the process."""

    def __init__(self, nbytes: int, device: str = "cuda", **environment: str) -> None:
        env = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))} | environment
        command = [sys.executable, "-m", "tests.verbs.gpus", str(nbytes), device]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.qp_num, self.address, self.rkey = self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the other process has ended"
        return json.loads(line)

    def ask(self, *request: Any) -> Any:
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.answer()

    def connect(self, node: Node) -> Any:
        """Return a queue pair of the node, connected to that of the process."""
        qp = node.qp(IBV_QPT_RC)
        self.ask("connect", qp.qp_num)
        qp.to_rts(attributes(node, self.qp_num))
        return qp

    @property
    def far(self) -> tuple[int, int]:
        return self.address, self.rkey

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()


def main(nbytes: int, device: str) -> None:
    import torch

    tensor = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    if device == "cuda":
        torch.cuda.synchronize()
    with Node() as node:
        mr, qp = MR(node.pd, nbytes, ALL, address=tensor), node.qp(IBV_QPT_RC)
        print(json.dumps((qp.qp_num, mr.buf, mr.rkey)), flush=True)
        for line in sys.stdin:
            name, *values = json.loads(line)
            answer: Any = None
            if name == "connect":
                qp.to_rts(attributes(node, values[0]))
            elif name == "fill":
                tensor.fill_(values[0])
                if device == "cuda":
                    torch.cuda.synchronize()
            elif name == "receive":
                qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf, nbytes, mr.lkey)]))
            elif name == "poll":
                answer = int(poll(node.cq, 1)[0].status)
            elif name == "values":  # the present ones
                answer = tensor.unique().tolist()
            elif name == "copied":
                answer = copied()
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
