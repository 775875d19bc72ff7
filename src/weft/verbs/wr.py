"""Work requests: what a program posts to a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.verbs.enums import IBV_SEND_SIGNALED, IBV_WR_SEND, ibv_send_flags, ibv_wr_opcode
from weft.verbs.mem_alloc import read
from weft.verbs.objects import PyverbsCM, Unsigned, inc_rkey, table
from weft.verbs.pyverbs_error import PyverbsUserError
from weft.verbs.text import name_flags
from weft.verbs.transport.memory import Place

if TYPE_CHECKING:
    from weft.verbs.addr import AH
    from weft.verbs.eec import EEC
    from weft.verbs.mr import MW, MWBindInfo

_WITHOUT_DATA = {ibv_wr_opcode.IBV_WR_LOCAL_INV, ibv_wr_opcode.IBV_WR_BIND_MW, ibv_wr_opcode.IBV_WR_SEND_WITH_INV}
_SEND_FLAGS = {int(flag): flag.name for flag in ibv_send_flags}


class SGE(PyverbsCM):
    """A scatter/gather element: a piece of registered memory."""

    addr = Unsigned(64)
    length = Unsigned(32)
    lkey = Unsigned(32)

    def __init__(self, addr: int, length: int, lkey: int) -> None:
        self.addr, self.length, self.lkey = addr, length, lkey

    def read(self, length: int, offset: int) -> bytes:
        return read(self.addr, length, offset)

    def __str__(self) -> str:
        return table(Address=hex(self.addr), Length=self.length, Key=hex(self.lkey))


def _places(sg: Sequence[SGE] | None, num_sge: int) -> list[Place]:
    if num_sge > len(sg or ()):
        raise PyverbsUserError(f"num_sge = {num_sge}, but sg has {len(sg or ())} elements")
    return [Place(sge.addr, sge.length, sge.lkey) for sge in (sg or ())[:num_sge]]


class RecvWR(PyverbsCM):
    """A place for one message; `places` are the elements as they were when it was made.

    Without an element it takes messages that carry none of their own, such as RDMA WRITE with immediate.
    """

    wr_id = Unsigned(64)
    num_sge = Unsigned(32)

    def __init__(
        self, wr_id: int = 0, num_sge: int = 0, sg: Sequence[SGE] | None = None, next_wr: RecvWR | None = None
    ) -> None:
        self.wr_id, self.num_sge, self.next_wr = wr_id, num_sge, next_wr
        self.places = _places(sg, num_sge)

    def __str__(self) -> str:
        return table(WR_ID=self.wr_id, Num_SGE=self.num_sge)


class SendWR(PyverbsCM):
    """One thing to do; `places` are the elements as they were when it was made.

    `imm_data` is in network order, as in C, and holds the key where the opcode invalidates one. The fields of the other
    `set_...` functions stand under their names in verbs.h, with what they belong to in front.
    """

    wr_id = Unsigned(64)
    num_sge = Unsigned(32)
    opcode = Unsigned(32)
    send_flags = Unsigned(32)
    imm_data = Unsigned(32)
    remote_addr = Unsigned(64)  # of RDMA and atomics
    remote_rkey = Unsigned(32)
    compare_add = Unsigned(64)
    swap = Unsigned(64)
    remote_qpn = Unsigned(32)  # of datagrams
    remote_qkey = Unsigned(32)
    remote_srqn = Unsigned(32)  # of XRC
    eec_num = Unsigned(32)  # of reliable datagrams
    rkey = Unsigned(32)  # that a window gets when it is bound

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
        if opcode not in _WITHOUT_DATA and (num_sge < 1 or sg is None):
            raise PyverbsUserError("A WR needs at least one SGE")
        self.__dict__.update(_UNSET)
        self.wr_id, self.opcode, self.num_sge, self.imm_data = wr_id, opcode, num_sge, imm_data
        self.send_flags, self.next_wr = send_flags, next_wr
        self.places = _places(sg, num_sge)
        self.ah: AH | None = None
        self.mw: MW | None = None
        self.bind_info: MWBindInfo | None = None

    @property
    def sg_list(self) -> list[SGE]:
        return [SGE(place.address, place.length, place.lkey) for place in self.places]

    @sg_list.setter
    def sg_list(self, val: SGE) -> None:
        """One element instead of the others."""
        self.places = [Place(val.addr, val.length, val.lkey)]

    def set_wr_ud(self, ah: AH, rqpn: int, rqkey: int) -> None:
        self.ah, self.remote_qpn, self.remote_qkey = ah, rqpn, rqkey

    def set_wr_rd(self, eec: EEC | int, rqpn: int, rqkey: int) -> None:
        """Weft's own: the EE context that leads there, or its number. What RDMA needs is set besides."""
        self.eec_num = eec if isinstance(eec, int) else eec.eec_num
        self.remote_qpn, self.remote_qkey = rqpn, rqkey

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        self.remote_rkey, self.remote_addr = rkey, addr

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        """`compare_add` is what a FETCH_AND_ADD adds."""
        self.remote_rkey, self.remote_addr, self.compare_add, self.swap = rkey, addr, compare_add, swap

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


_UNSET = dict.fromkeys((name for name, field in vars(SendWR).items() if isinstance(field, Unsigned)), 0)


def send_flags_to_str(flags: int) -> str:
    return name_flags(flags, _SEND_FLAGS)
