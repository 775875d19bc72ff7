"""Work requests: what a program posts to a queue.

Programs make and post millions of them, so a request is made as its queue takes it: `raw` are the words of
`shm.layout`. What packs them checks the width of each number too; only what it refuses is looked at one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, SupportsIndex

from weft.verbs.attributes.objects import PyverbsCM, Rare, inc_rkey, table, unsigned
from weft.verbs.attributes.text import name_flags
from weft.verbs.enums import IBV_SEND_SIGNALED, IBV_WR_SEND, ibv_send_flags, ibv_wr_opcode
from weft.verbs.errors import PyverbsUserError
from weft.verbs.pyverbs.addr import AH
from weft.verbs.pyverbs.eec import EEC
from weft.verbs.pyverbs.sge import SGE, WORD, Packed
from weft.verbs.pyverbs.windows import MW, MWBindInfo
from weft.verbs.shm.layout import ReceiveRequest, SendRequest, SgeRecord
from weft.verbs.shm.memory import Place

__all__ = ["SGE", "RecvWR", "SendWR", "send_flags_to_str"]

_WITHOUT_DATA = {ibv_wr_opcode.IBV_WR_LOCAL_INV, ibv_wr_opcode.IBV_WR_BIND_MW, ibv_wr_opcode.IBV_WR_SEND_WITH_INV}
_SEND_FLAGS = {int(flag): flag.name for flag in ibv_send_flags}
_RDMA = struct.Struct("<Q I4x")
_ATOMIC = struct.Struct("<Q I4x Q Q")
_RDMA_AT, _COUNT_AT = SendRequest.offset("va"), SendRequest.offset("num_sge")
_pack_receive, _pack_send = ReceiveRequest.form.pack, SendRequest.form.pack


class _Count(Packed):
    """The number of elements as set by the program; setting it does not change the elements in `raw`."""

    def __get__(self, obj: Any, owner: type) -> int:
        count: int | None = vars(obj).get(self.name) if obj is not None else None
        return super().__get__(obj, owner) if count is None else count

    def __set__(self, obj: Any, value: SupportsIndex | float) -> None:
        obj.__dict__[self.name] = unsigned(self.name, self.bits, value)


def _elements(sg: Sequence[SGE] | None, num_sge: int) -> bytes:
    elements = sg or ()
    if num_sge > len(elements):
        raise PyverbsUserError(f"num_sge = {num_sge}, but sg has {len(elements)} elements")
    return b"".join([sge.raw for sge in elements[:num_sge]])


class RecvWR(PyverbsCM, is_held=False):
    """A receive request for one message; `places` are its elements as of its creation.

    Without an element it receives messages without data, such as RDMA WRITE with immediate.
    """

    wr_id, num_sge = Packed(ReceiveRequest, "wr_id"), _Count(ReceiveRequest, "num_sge")

    def __init__(
        self, wr_id: int = 0, num_sge: int = 0, sg: Sequence[SGE] | None = None, next_wr: RecvWR | None = None
    ) -> None:
        self.next_wr = next_wr
        try:
            head = _pack_receive(wr_id, num_sge)
        except struct.error:
            head = _pack_receive(unsigned("wr_id", 64, wr_id), unsigned("num_sge", 32, num_sge))
        self.raw = head + (sg[0].raw if num_sge == 1 and sg else _elements(sg, num_sge))

    @property
    def places(self) -> list[Place]:
        return _places(self.raw[ReceiveRequest.size :])

    def __str__(self) -> str:
        return table(WR_ID=self.wr_id, Num_SGE=self.num_sge)


class SendWR(PyverbsCM, is_held=False):
    """A send request; `places` are its elements as of its creation.

    `imm_data` is in network order, as in C, or the key to invalidate. The fields of the `set_...` functions have their
    names of verbs.h, with the name of their structure as prefix.
    """

    opcode, send_flags = Packed(SendRequest, "opcode"), Packed(SendRequest, "flags")
    wr_id, imm_data = Packed(SendRequest, "wr_id"), Packed(SendRequest, "immediate")
    remote_addr, remote_rkey = Packed(SendRequest, "va"), Packed(SendRequest, "rkey")  # RDMA and atomics
    compare_add, swap = Packed(SendRequest, "compare"), Packed(SendRequest, "swap")
    num_sge = _Count(SendRequest, "num_sge")
    remote_qpn, remote_qkey = Rare(32), Rare(32)  # datagrams
    remote_srqn = Rare(32)  # XRC
    eec_num = Rare(32)  # reliable datagrams
    rkey = Rare(32)  # new key of a window
    ah: AH | None = None
    mw: MW | None = None
    bind_info: MWBindInfo | None = None

    def __init__(
        self,
        wr_id: int = 0,
        opcode: int = IBV_WR_SEND,
        num_sge: int = 0,
        imm_data: int = 0,
        sg: Sequence[SGE] | None = None,
        send_flags: int = IBV_SEND_SIGNALED,
        next_wr: SendWR | None = None,
    ) -> None:
        if (num_sge < 1 or sg is None) and opcode not in _WITHOUT_DATA:
            raise PyverbsUserError("A WR needs at least one SGE")
        self.next_wr = next_wr
        try:
            head = _pack_send(opcode, send_flags, wr_id, imm_data, 0, 0, 0, 0, num_sge, 0)
        except struct.error:
            head = _pack_send(*_checked(wr_id, opcode, num_sge, imm_data, send_flags))
        self.raw = head + (sg[0].raw if num_sge == 1 and sg else _elements(sg, num_sge))

    @property
    def places(self) -> list[Place]:
        return _places(self.raw[SendRequest.size :])

    @property
    def sg_list(self) -> list[SGE]:
        return [SGE(place.address, place.length, place.lkey) for place in self.places]

    @sg_list.setter
    def sg_list(self, val: SGE) -> None:
        """Replace the elements by one."""
        self.num_sge = self.num_sge
        self.raw = self.raw[:_COUNT_AT] + WORD[64].pack(1) + bytes(8) + val.raw

    def set_wr_ud(self, ah: AH, rqpn: int, rqkey: int) -> None:
        self.ah, self.remote_qpn, self.remote_qkey = ah, rqpn, rqkey

    def set_wr_rd(self, eec: EEC | int, rqpn: int, rqkey: int) -> None:
        """Set the EE context, or its number, and the destination of a reliable datagram. pyverbs has no such method."""
        self.eec_num = eec if isinstance(eec, int) else eec.eec_num
        self.remote_qpn, self.remote_qkey = rqpn, rqkey

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        try:
            self._splice(_RDMA.pack(addr, rkey))
        except struct.error:
            self.remote_rkey, self.remote_addr = rkey, addr

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        """Set the operands of an atomic operation. `compare_add` is the addend of FETCH_AND_ADD."""
        try:
            self._splice(_ATOMIC.pack(addr, rkey, compare_add, swap))
        except struct.error:
            self.remote_rkey, self.remote_addr, self.compare_add, self.swap = rkey, addr, compare_add, swap

    def _splice(self, words: bytes) -> None:
        self.raw = self.raw[:_RDMA_AT] + words + self.raw[_RDMA_AT + len(words) :]

    def set_bind_wr(self, mw: MW, bind_info: MWBindInfo) -> None:
        """Bind a window of type 2, which gets its next key: `rkey`."""
        self.mw, self.bind_info, self.rkey = mw, bind_info, inc_rkey(mw.rkey)

    def set_qp_type_xrc(self, remote_srqn: int) -> None:
        self.remote_srqn = remote_srqn

    @property
    def rdma_remote_addr(self) -> int:
        return self.remote_addr

    @property
    def rdma_rkey(self) -> int:
        return self.remote_rkey

    def __str__(self) -> str:
        return table(
            WR_ID=self.wr_id,
            Num_SGE=self.num_sge,
            Opcode=self.opcode,
            Send_flags=send_flags_to_str(self.send_flags),
            Imm_Data=self.imm_data,
        )


def _places(words: bytes) -> list[Place]:
    return [Place(*numbers) for numbers in SgeRecord.form.iter_unpack(words)]


def _checked(wr_id: int, opcode: int, num_sge: int, imm_data: int, send_flags: int) -> tuple[int, ...]:
    """Return the numbers of a SendRequest. Raise OverflowError for the first that does not fit."""
    wr_id, opcode = unsigned("wr_id", 64, wr_id), unsigned("opcode", 32, opcode)
    num_sge, imm_data = unsigned("num_sge", 32, num_sge), unsigned("imm_data", 32, imm_data)
    return opcode, unsigned("send_flags", 32, send_flags), wr_id, imm_data, 0, 0, 0, 0, num_sge, 0


def send_flags_to_str(flags: int) -> str:
    return name_flags(flags, _SEND_FLAGS)
