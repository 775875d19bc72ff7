"""RDMA programs on hosts of a lab, all in the test's process: each host has a context, memory and queue pairs."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.patience import PATIENCE_S, PAUSE_S, wait_until

import weft
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.conf.options import Options
from weft.sm.process import warm_up
from weft.sm.run import SubnetManager
from weft.verbs import enums as e
from weft.verbs import hardware
from weft.verbs.pyverbs.addr import AH, AHAttr, GlobalRoute
from weft.verbs.pyverbs.cq import CQ, WC
from weft.verbs.pyverbs.device import Context
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

SPEC = "fat-tree:hosts=8,radix=4"
Q_KEY, GRH = 0x11, 40
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ


_managers: dict[str, SubnetManager] = {}  # by lab


def all_active(lab: Lab) -> bool:
    """Return whether all ports are Active, and the subnet manager of `managed` has written all tables."""
    devices, manager = lab.subnet.devices, _managers.get(lab.name)
    is_up = all(devices.is_active(slot) for slot, far in enumerate(devices.cable) if far >= 0)
    return is_up and (manager is None or _is_idle(manager))


def _is_idle(manager: SubnetManager) -> bool:
    """Return whether a sweep has ended and none is due soon: traps during a sweep cause another one."""
    is_due = min(manager._sweep_s, manager._check_s) < manager.state.clock() + 0.5
    return manager.sweeps > 0 and not manager._is_sweeping and not is_due


@functools.cache
def load_shm_paths() -> None:
    """Send a message of this process to itself over a shared-memory path, so that later tests need not load it."""
    with Context(name="mlx5_0") as ctx:
        pd, cq = PD(ctx), CQ(ctx, 4)
        mr = MR(pd, 16, ACCESS)
        qp = QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=1, max_recv_wr=1)))
        attr = QPAttr()
        attr.qp_access_flags, attr.dest_qp_num = ACCESS, qp.qp_num
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=ctx.query_gid(1, 0), sgid_index=0), is_global=1)
        qp.to_rts(attr)
        place = [SGE(mr.buf, 8, mr.lkey)]
        qp.core.find_shm_path(at_once=True)
        qp.post_recv(RecvWR(num_sge=1, sg=place))
        qp.post_send(SendWR(num_sge=1, sg=place, opcode=e.IBV_WR_SEND, send_flags=e.IBV_SEND_SIGNALED))
        wait_until(lambda: cq.poll()[0])


@contextmanager
def managed(lab: Lab, *, at: str = "h1", **options: Any) -> Iterator[SubnetManager]:
    """Start a lab with weft's subnet manager on a host."""
    warm_up(Options())  # kernels are compiled before a connection's clock runs
    load_shm_paths()
    carrier = IbsimCarrier(at, lab.sockname)
    manager = SubnetManager(carrier, Options(**options))
    thread = threading.Thread(target=manager.run, daemon=True)
    thread.start()
    _managers[lab.name] = manager
    try:
        wait_until(lambda: all_active(lab))
        yield manager
    finally:
        del _managers[lab.name]
        manager.stop()
        thread.join(PATIENCE_S)
        carrier.close()


@contextmanager
def running(*, timed: bool = False, **options: Any) -> Iterator[Lab]:
    with Lab(weft.load(SPEC), f"v{time.monotonic_ns() % 10**12}", timed=timed) as lab, managed(lab, **options):
        yield lab


def refusals(lab: Lab) -> list[str]:
    """Return the lines of the manager's log about requests that the administrator refused."""
    return [line for line in _managers[lab.name].state.log.recent if "refused" in line]


class Host:
    """A program on a host; `monkeypatch` sets the environment that `weft exec` would."""

    def __init__(self, lab: Lab, name: str, monkeypatch: Any, door: str = "") -> None:
        monkeypatch.setenv(hardware.LAB, door or lab.host(name)["verbs"])
        monkeypatch.setenv(hardware.HOST, name)
        self.name, self.ctx = name, Context(name="mlx5_0")
        monkeypatch.delenv(hardware.LAB)
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, 256)
        self.mr = MR(self.pd, 1 << 16, ACCESS)

    def qp(self, kind: int) -> QP:
        return QP(self.pd, QPInitAttr(kind, scq=self.cq, rcq=self.cq, cap=QPCap(max_send_wr=64, max_recv_wr=64)))

    def address(self, *, is_global: bool = False, gid_index: int = 0) -> AHAttr:
        """Return the address of this host for the other hosts."""
        if is_global:
            route = GlobalRoute(dgid=self.ctx.query_gid(1, gid_index), sgid_index=gid_index)
            return AHAttr(gr=route, is_global=1)
        return AHAttr(dlid=self.ctx.query_port(1).lid)

    def connect(
        self, qp: QP, far: Host, far_qp: QP, *, is_global: bool = False, gid_index: int = 0, **more: int
    ) -> None:
        attr = QPAttr()
        attr.qp_access_flags, attr.qkey, attr.dest_qp_num, attr.path_mtu = ACCESS, Q_KEY, far_qp.qp_num, e.IBV_MTU_1024
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 17, 7, 7, 1
        for name, value in more.items():
            setattr(attr, name, value)
        attr.ah_attr = far.address(is_global=is_global, gid_index=gid_index)
        qp.to_rts(attr)

    def post_receive(self, qp: QP, size: int, at: int = 1 << 15) -> None:
        qp.post_recv(RecvWR(num_sge=1, sg=[SGE(self.mr.buf + at, size, self.mr.lkey)]))

    def send(self, qp: QP, data: bytes, ah: AH | None = None, remote_qp: int = 0) -> None:
        self.mr.write(data, len(data))
        work = SendWR(
            num_sge=1,
            sg=[SGE(self.mr.buf, len(data), self.mr.lkey)],
            opcode=e.IBV_WR_SEND,
            send_flags=e.IBV_SEND_SIGNALED,
        )
        if ah is not None:
            work.set_wr_ud(ah, remote_qp, Q_KEY)
        qp.post_send(work)

    def poll(self, count: int = 1, seconds: float = PATIENCE_S) -> list[WC]:
        """Return this many completions, or those that arrived in time."""
        done: list[WC] = []
        until_s = time.monotonic() + seconds
        while len(done) < count and time.monotonic() < until_s:
            count_now, completions = self.cq.poll(count - len(done))
            done += completions
            if not count_now:
                time.sleep(PAUSE_S)
        return done

    def close(self) -> None:
        self.ctx.close()


def pair(kind: int, a: Host, b: Host, **how: Any) -> tuple[QP, QP]:
    """Return a queue pair of each host, connected to each other."""
    item, other = a.qp(kind), b.qp(kind)
    a.connect(item, b, other, **how)
    b.connect(other, a, item, **how)
    return item, other
