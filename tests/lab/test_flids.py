"""A lab of two subnets with floating LIDs: the address of a port in the other subnet follows from its GID alone."""

from __future__ import annotations

import time

from tests.lab.rdma import Host, load_shm_paths
from tests.lab.test_subnets import PREFIXES, exchange, is_up, managed
from tests.patience import wait_until

import weft
from weft.ids import Gid
from weft.lab.lab import Lab
from weft.sm.conf.options import Options
from weft.sm.process import warm_up
from weft.verbs import enums as e
from weft.verbs.attributes.address import GlobalRoute
from weft.verbs.pyverbs.addr import AHAttr

RANGES = ({"local_flid_start": 1000, "local_flid_end": 1499}, {"local_flid_start": 1500, "local_flid_end": 1999})


class Program(Host):
    """A program that addresses other subnets as NCCL and UCX do: the DLID is the floating LID in the remote GID."""

    def gid(self) -> Gid:
        return Gid(int.from_bytes(self.ctx.query_gid(1, 1).raw, "big"))

    def address(self, *, is_global: bool = False, gid_index: int = 1) -> AHAttr:
        route = GlobalRoute(dgid=self.ctx.query_gid(1, 1), sgid_index=1)
        route.hop_limit = 255
        return AHAttr(dlid=self.gid().flid, gr=route, is_global=1)


def test_programs_cross_by_floating_lids_also_after_a_router_is_gone(monkeypatch):
    warm_up(Options())
    load_shm_paths()
    common = {"global_flid_start": 1000, "global_flid_end": 1999}
    first, second = (
        Options(subnet_prefix=prefix, **common, **own) for prefix, own in zip(PREFIXES, RANGES, strict=True)
    )
    name = f"flids{time.monotonic_ns() % 10**9}"
    with (
        Lab(weft.load("subnets:2,routers=2,of=star:hosts=2"), name) as lab,
        managed(lab, "s1-h1", options=first) as near_sm,
        managed(lab, "s2-h1", options=second) as far_sm,
    ):

        def routers(manager) -> tuple[int, ...]:
            """Return the ports of routers that serve the floating LID of the other subnet, the chosen one first."""
            flids = manager.state.flids
            return flids.there.get(1000 if manager is far_sm else 1500, ()) if flids else ()

        wait_until(lambda: is_up(lab, 1) and is_up(lab, 2))
        wait_until(lambda: len(routers(near_sm)) == len(routers(far_sm)) == 2)
        near, far = Program(lab, "s1-h2", monkeypatch), Program(lab, "s2-h2", monkeypatch)
        lid = lab.subnet.devices.lid(lab.fabric.find_port("s2-h2/1").slot)
        wait_until(lambda: far.gid() == (PREFIXES[1] | 1500 << 16) << 64 | lid)
        wait_until(lambda: near.gid().flid == 1000)
        qp, far_qp = near.qp(e.IBV_QPT_RC), far.qp(e.IBV_QPT_RC)
        near.connect(qp, far, far_qp), far.connect(far_qp, near, qp)
        exchange(near, far, qp, far_qp, b"by floating LIDs")
        chosen = near_sm.state.view.name(routers(near_sm)[0]).partition("/")[0]
        for port in (1, 2):
            lab.break_cable(f"{chosen}/{port}")
        wait_until(lambda: len(routers(near_sm)) == len(routers(far_sm)) == 1)
        exchange(near, far, qp, far_qp, b"by the other router")
        near.close(), far.close()
