"""Create one end of a test: its device, memory and queue pairs, and their addresses for the peer.

    memory    | outgoing of queue pair 0 | incoming of it | outgoing of 1 | ...

Before each batch both ends fill the outgoing memory with bytes of this batch, so that the receiver can check them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SubnetError
from weft.ids import Gid
from weft.verbs import enums as e
from weft.verbs.attributes.address import GID, NO_GID, AHAttr, GlobalRoute
from weft.verbs.attributes.text import mtu_to_str
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.perftest.arguments import find_device
from weft.verbs.perftest.kinds import Connection, Verb
from weft.verbs.perftest.plan import Atomic, Plan
from weft.verbs.pyverbs.addr import AH
from weft.verbs.pyverbs.cq import CQ, CompChannel
from weft.verbs.pyverbs.device import Context
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR
from weft.wire.headers import GRH

_ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
_KINDS = {Connection.RC: e.IBV_QPT_RC, Connection.UC: e.IBV_QPT_UC, Connection.UD: e.IBV_QPT_UD}
_WORKS = {Verb.WRITE: e.IBV_WR_RDMA_WRITE, Verb.READ: e.IBV_WR_RDMA_READ, Verb.SEND: e.IBV_WR_SEND}
_ATOMICS = {Atomic.FETCH_AND_ADD: e.IBV_WR_ATOMIC_FETCH_AND_ADD, Atomic.CMP_AND_SWAP: e.IBV_WR_ATOMIC_CMP_AND_SWP}
_Q_KEY = 0x11111111  # perftest's
_CACHE_LINE_BYTES = 64
_MEMORY_MAX_BYTES = 4 << 30
_IPV4_PREFIX = bytes(10) + b"\xff\xff"
_PSN_MASK = 0xFFFFFF
_RNR_TIMER, _RETRIES = 12, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port of an open device."""

    ctx: Context
    number: int
    lid: int
    mtu_bytes: int
    is_ethernet: bool
    gid_index: int  # -1: by LID only
    gid: bytes  # of `gid_index`, or the first


def address_vector(port: Port, lid: int, gid: str, sl: int = 0) -> AHAttr:
    """Return the address vector of a far port; in another subnet it has a global route."""
    subnets = {Gid(int.from_bytes(raw, "big")).subnet_prefix for raw in (GID(gid).raw, port.gid)}
    is_routed = len(subnets) > 1 and bool(lid)
    is_global = is_routed or port.gid_index >= 0
    route = GlobalRoute(dgid=GID(gid), sgid_index=max(port.gid_index, 0), hop_limit=64) if is_global else None
    dlid = 0 if is_routed else lid  # of another subnet: the path record has that of the router
    return AHAttr(dlid=dlid, sl=sl, port_num=port.number, is_global=is_global, gr=route)


def open_port(device: str = "", ib_port: int = 1, gid_index: int = -1) -> Port:
    """Open a port, by default of the first device. Without `gid_index` a GID is chosen if the port needs one."""
    ctx = Context(name=find_device(device))
    try:
        facts = ctx.query_port(ib_port)
    except PyverbsRDMAError as error:
        raise ConfigError(f"{ctx.name} has no port {ib_port}: leave out -i") from error
    if facts.state != e.IBV_PORT_ACTIVE:
        raise SubnetError(
            f"port {ib_port} of {ctx.name} is not Active: start a subnet manager (`weft sm`), or connect a cable"
        )
    is_ethernet = facts.link_layer == e.IBV_LINK_LAYER_ETHERNET
    gids = [ctx.query_gid(ib_port, index).raw for index in range(facts.gid_tbl_len)]
    index = gid_index
    if index < 0 and is_ethernet:
        index = _best_gid(ctx, ib_port, gids)
    if index >= len(gids) or (index >= 0 and gids[index] == NO_GID):
        raise ConfigError(f"port {ib_port} of {ctx.name} has no GID {index}: list them with ibv_devinfo -v")
    return Port(
        ctx=ctx,
        number=ib_port,
        lid=facts.lid,
        mtu_bytes=mtu_to_str(facts.active_mtu),
        is_ethernet=is_ethernet,
        gid_index=index,
        gid=gids[max(index, 0)] if gids else NO_GID,
    )


def _best_gid(ctx: Context, port: int, gids: list[bytes]) -> int:
    """Return the index of the GID that perftest chooses: RoCE v2 before v1, IPv4 before IPv6."""

    def score(index: int) -> tuple[bool, bool, bool]:
        is_v2 = ctx.query_gid_type(port, index) == e.IBV_GID_TYPE_SYSFS_ROCE_V2
        return gids[index] != NO_GID, is_v2, gids[index].startswith(_IPV4_PREFIX)

    return max(range(len(gids)), key=score)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a queue pair, and of the memory that the peer may read or write."""

    lid: int
    qpn: int
    psn: int
    gid: str
    rkey: int
    vaddr: int
    outs: int


class Endpoint:
    """An end of a test. `side` is 0 for the client, 1 for the server. `with_events` adds completion channels."""

    def __init__(self, port: Port, plan: Plan, *, mtu_bytes: int, side: int, with_events: bool = False) -> None:
        self.port, self.plan, self.mtu_bytes, self.side = port, plan, mtu_bytes, side
        self.sizes = plan.sizes_over(mtu_bytes)
        self.grh_bytes = GRH.size if plan.connection is Connection.UD else 0
        self.slot_bytes = -(-(max(self.sizes) + self.grh_bytes) // _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES
        self._allocate()
        channels = [CompChannel(port.ctx) if with_events else None for _ in range(2)]
        self.send_cq = CQ(port.ctx, plan.depth * plan.qps, None, channels[0])
        self.recv_cq = CQ(port.ctx, plan.rx_depth * plan.qps, None, channels[1])
        self.qps = [self._make_queue_pair() for _ in range(plan.qps)]
        self.psns = [int.from_bytes(os.urandom(3), "big") for _ in self.qps]
        self.remote: list[Address] = []
        self._handles: list[AH] = []
        self.waiting_receives = [0] * plan.qps

    def _allocate(self) -> None:
        total = 2 * self.slot_bytes * self.plan.qps
        if total > _MEMORY_MAX_BYTES:
            raise ConfigError(
                f"{self.plan.qps} queue pairs of {max(self.sizes)} bytes need too much memory: reduce -q or -s"
            )
        self.pd = PD(self.port.ctx)
        self.mr = MR(self.pd, -(-total // mmap.PAGESIZE) * mmap.PAGESIZE, _ACCESS)
        raw = (ctypes.c_uint8 * total).from_address(self.mr.buf)
        self.memory: NDArray[np.uint8] = np.ctypeslib.as_array(raw)

    def _make_queue_pair(self) -> QP:
        plan = self.plan
        cap = QPCap(
            max_send_wr=plan.depth,
            max_recv_wr=plan.rx_depth if plan.verb is Verb.SEND else 1,
            max_inline_data=plan.inline_max_bytes,
        )
        kind = _KINDS[plan.connection]
        return QP(self.pd, QPInitAttr(kind, scq=self.send_cq, rcq=self.recv_cq, cap=cap, sq_sig_all=0))

    def close(self) -> None:
        """Close the device and free the memory, which must not be used any more."""
        self.port.ctx.close()

    # -- addresses ----------------------------------------------------------------------------------------------------

    def outgoing(self, qp: int) -> int:
        """Return the offset in `memory` of the data that a queue pair sends."""
        return 2 * qp * self.slot_bytes

    def incoming(self, qp: int) -> int:
        """Return the offset in `memory` of the data that a queue pair receives, after the GRH of datagrams."""
        return (2 * qp + 1) * self.slot_bytes + self.grh_bytes

    def addresses(self) -> list[Address]:
        """Return the addresses for the peer: READs use the outgoing memory, other operations the incoming."""
        target = self.outgoing if self.plan.verb is Verb.READ else self.incoming
        return [
            Address(
                lid=self.port.lid,
                qpn=qp.qp_num,
                psn=self.psns[index],
                gid=GID.of(self.port.gid).gid,
                rkey=self.mr.rkey,
                vaddr=self.mr.buf + target(index),
                outs=self.plan.outs,
            )
            for index, qp in enumerate(self.qps)
        ]

    def connect(self, remote: list[Address]) -> None:
        if len(remote) != len(self.qps):
            raise ConfigError(
                f"the peer has {len(remote)} queue pairs, this end {len(self.qps)}: give both the same -q"
            )
        self.remote = remote
        for qp, psn, address in zip(self.qps, self.psns, remote, strict=True):
            qp.to_rts(self._attributes(psn, address))
        if self.plan.connection is Connection.UD:
            self._handles = [AH(self.pd, attr=self._address_vector(address)) for address in remote]

    def _address_vector(self, to: Address) -> AHAttr:
        return address_vector(self.port, to.lid, to.gid, sl=self.plan.sl)

    def _attributes(self, psn: int, to: Address) -> QPAttr:
        attr = QPAttr(port_num=self.port.number, path_mtu=(self.mtu_bytes // 128).bit_length() - 1)
        attr.qp_access_flags, attr.qkey = _ACCESS, _Q_KEY
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = to.qpn, to.psn, psn
        attr.max_rd_atomic = attr.max_dest_rd_atomic = self.plan.outs
        attr.min_rnr_timer, attr.timeout = _RNR_TIMER, self.plan.qp_timeout
        attr.retry_cnt = attr.rnr_retry = _RETRIES
        attr.ah_attr = self._address_vector(to)
        return attr

    # -- work ---------------------------------------------------------------------------------------------------------

    def work(self, qp: int, size_bytes: int, *, signaled: bool) -> SendWR:
        """Return the request that a queue pair posts repeatedly. `wr_id` is its index."""
        plan, to = self.plan, self.remote[qp]
        into = self.incoming(qp) if plan.verb is Verb.READ else self.outgoing(qp)
        place = SGE(self.mr.buf + into, size_bytes, self.mr.lkey)
        flags = e.IBV_SEND_SIGNALED if signaled else 0
        if size_bytes <= plan.inline_max_bytes:
            flags |= e.IBV_SEND_INLINE
        opcode = _ATOMICS[plan.atomic] if plan.verb is Verb.ATOMIC else _WORKS[plan.verb]
        request = SendWR(wr_id=qp, opcode=opcode, num_sge=1, sg=[place], send_flags=flags)
        if plan.verb is Verb.ATOMIC:
            add = 1 if plan.atomic is Atomic.FETCH_AND_ADD else 0
            request.set_wr_atomic(to.rkey, to.vaddr, add, swap=1)
        elif plan.connection is Connection.UD:
            request.set_wr_ud(self._handles[qp], to.qpn, _Q_KEY)
        elif plan.verb is not Verb.SEND:
            request.set_wr_rdma(to.rkey, to.vaddr)
        return request

    def receive(self, qp: int) -> RecvWR:
        """Return a receive request for any message of the test."""
        begin = self.incoming(qp) - self.grh_bytes
        return RecvWR(wr_id=qp, num_sge=1, sg=[SGE(self.mr.buf + begin, self.slot_bytes, self.mr.lkey)])

    def fill_receives(self) -> None:
        """Post as many receive requests as fit, if the test uses SENDs."""
        if self.plan.verb is not Verb.SEND:
            return
        for index, qp in enumerate(self.qps):
            place = self.receive(index)
            while self.waiting_receives[index] < self.plan.rx_depth:
                qp.post_recv(place)
                self.waiting_receives[index] += 1

    # -- bytes --------------------------------------------------------------------------------------------------------

    def fill(self, batch: int, size_bytes: int) -> None:
        """Fill the outgoing memory with the bytes of a batch, and clear the incoming memory."""
        for qp in range(len(self.qps)):
            out, into = self.outgoing(qp), self.incoming(qp)
            self.memory[out : out + size_bytes] = _pattern(batch, self.side, qp, size_bytes)
            self.memory[into : into + size_bytes] = 0

    def has_arrived(self, batch: int, size_bytes: int, iterations: int) -> bool:
        """Return whether the data of the peer has arrived."""
        if self.plan.verb is Verb.ATOMIC:
            return all(self._has_counted(qp, iterations) for qp in range(len(self.qps)))
        # The last byte is a counter
        compared = size_bytes - (self.plan.verb is Verb.WRITE and self.plan.test.is_latency)
        for qp in range(len(self.qps)):
            into = self.incoming(qp)
            expected = _pattern(batch, 1 - self.side, qp, size_bytes)
            if not np.array_equal(self.memory[into : into + compared], expected[:compared]):
                return False
        return True

    def _has_counted(self, qp: int, iterations: int) -> bool:
        into = self.incoming(qp)
        counted = int(self.memory[into : into + 8].view(np.uint64)[0])
        return counted == (iterations if self.plan.atomic is Atomic.FETCH_AND_ADD else 1)


def _pattern(batch: int, side: int, qp: int, size_bytes: int) -> NDArray[np.uint8]:
    return np.random.default_rng([batch, side, qp]).integers(0, 256, size_bytes, np.uint8)
