"""Reliable datagrams for tests: connected EE contexts, and queue pairs that use them."""

from __future__ import annotations

from tests.verbs.wires import ALL, Host

from weft.verbs.enums import ibv_qp_state, ibv_wr_opcode
from weft.verbs.hca.end_to_end import EEContext
from weft.verbs.hca.queue_pair import QueuePair, Settings
from weft.verbs.hca.segment import Service

S = ibv_qp_state
Q_KEY = 0x1234
DOMAIN = object()


def path(a: Host, b: Host, to_b: object = "b", to_a: object = "a", **settings: int) -> tuple[EEContext, EEContext]:
    """Return an EE context at each end, ready to send."""
    ends = a.adapter.add_ee_context(DOMAIN), b.adapter.add_ee_context(DOMAIN)
    for mine, other, far in ((ends[0], ends[1], to_b), (ends[1], ends[0], to_a)):
        expected = {"mtu_bytes": 1024, "max_dest_rd_atomic": 1, "max_rd_atomic": 1, "timeout": 10, "retry_cnt": 7}
        expected |= {"rnr_retry": 7} | settings
        mine.settings = Settings(destination=far, source=far, dest_qp=other.number, **expected)
        for state in (S.IBV_QPS_INIT, S.IBV_QPS_RTR, S.IBV_QPS_RTS):
            mine.enter(state)
    return ends


def queue_pair(host: Host, domain: object = DOMAIN, **settings: int) -> QueuePair:
    qp = host.queue_pair(Service.RD)
    qp.domain = domain
    qp.settings = Settings(**({"access": ALL, "q_key": Q_KEY, "min_rnr_timer": 1} | settings))
    for state in (S.IBV_QPS_INIT, S.IBV_QPS_RTR, S.IBV_QPS_RTS):
        qp.enter(state)
    return qp


def send(
    host: Host,
    qp: QueuePair,
    ee: EEContext | int,
    to: QueuePair | int,
    wr_id: int,
    offset: int,
    length: int,
    opcode: ibv_wr_opcode = ibv_wr_opcode.IBV_WR_SEND,
    *,
    q_key: int = Q_KEY,
    **more,
) -> None:
    number = ee.number if isinstance(ee, EEContext) else ee
    dest_qp = to.number if isinstance(to, QueuePair) else to
    host.send(qp, wr_id, offset, length, opcode, ah=number, remote_qp=dest_qp, q_key=q_key, **more)
