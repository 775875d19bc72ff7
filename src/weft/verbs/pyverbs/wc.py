"""Work completions: what a program reads of work that is done, and the words for its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from weft.verbs.attributes.objects import PyverbsObject, Rare, table, unsigned
from weft.verbs.attributes.text import name_flags
from weft.verbs.enums import ibv_create_cq_wc_flags

_STATUS = (
    "success",
    "local length error",
    "local QP op error",
    "local EEC op error",
    "local protection error",
    "WR flush error",
    "memory window bind error",
    "bad response error",
    "local access error",
    "remote invalidate request error",
    "remote access error",
    "remote op error",
    "retry exceeded error",
    "RNR retry exceeded",
    "local RDD violation error",
    "remote invalidate RD request error",
    "remote abort error",
    "invalidate EECN error",
    "invalidate EEC state error",
    "WC fatal error",
    "response timeout error",
    "general error",
)
_OPCODES = {
    0: "Send",
    1: "RDMA write",
    2: "RDMA read",
    3: "Compare and swap",
    4: "Fetch and add",
    5: "Bind Memory window",
    6: "Local invalidate",
    7: "TSO",
    8: "Flush",
    9: "Atomic write",
    0x80: "Receive",
    0x81: "Receive RDMA with immediate",
    0x82: "Tag matching - add",
    0x83: "Tag matching - delete",
    0x84: "Tag matching - sync",
    0x85: "Tag matching - receive",
    0x86: "Tag matching - no tag",
}
_FLAGS = {
    1: "GRH",
    2: "With immediate",
    4: "IP csum OK",
    8: "With invalidate",
    16: "TM sync request",
    32: "TM match",
    64: "TM data valid",
}
_CREATE_FLAGS = {int(flag): flag.name for flag in ibv_create_cq_wc_flags}


def cqe_status_to_str(status: int) -> str:
    return _STATUS[status] if 0 <= status < len(_STATUS) else "Unknown CQE status"


def cqe_opcode_to_str(opcode: int) -> str:
    return _OPCODES.get(opcode, f"Unknown CQE opcode {opcode}")


def cqe_flags_to_str(flags: int) -> str:
    return name_flags(flags, _FLAGS)


def create_wc_flags_to_str(flags: int) -> str:
    return name_flags(flags, _CREATE_FLAGS)


def _field(name: str, bits: int, place: int) -> property:
    """Return a property for the number at a place of a completion, checked to fit into `bits`."""

    def read(wc: WC) -> int:
        return wc.numbers[place]

    def write(wc: WC, value: SupportsIndex | float) -> None:
        number = unsigned(name, bits, value)
        wc.numbers = (*wc.numbers[:place], number, *wc.numbers[place + 1 :])

    return property(read, write)


class WC(PyverbsObject):
    """A work completion. `imm_data` is in network order, as in C, or the key where `wc_flags` has IBV_WC_WITH_INV.

    If `status` is not IBV_WC_SUCCESS, only `wr_id`, `qp_num` and `vendor_err` are valid besides. `numbers` are its
    fields in the order of `shm.layout`.
    """

    wr_id, qp_num = _field("wr_id", 64, 0), _field("qp_num", 32, 1)
    status, opcode = _field("status", 32, 2), _field("opcode", 32, 3)
    byte_len, imm_data = _field("byte_len", 32, 4), _field("imm_data", 32, 5)
    wc_flags, src_qp = _field("wc_flags", 32, 6), _field("src_qp", 32, 7)
    slid, sl = _field("slid", 16, 8), _field("sl", 8, 9)
    pkey_index, dlid_path_bits = _field("pkey_index", 16, 10), _field("dlid_path_bits", 8, 11)
    vendor_err = _field("vendor_err", 32, 12)

    def __init__(
        self,
        wr_id: int = 0,
        status: int = 0,
        opcode: int = 0,
        vendor_err: int = 0,
        byte_len: int = 0,
        qp_num: int = 0,
        src_qp: int = 0,
        imm_data: int = 0,
        wc_flags: int = 0,
        pkey_index: int = 0,
        slid: int = 0,
        sl: int = 0,
        dlid_path_bits: int = 0,
    ) -> None:
        self.numbers: Sequence[int] = (0,) * 13
        self.wr_id, self.status, self.opcode, self.vendor_err = wr_id, status, opcode, vendor_err
        self.byte_len, self.qp_num, self.src_qp, self.imm_data = byte_len, qp_num, src_qp, imm_data
        self.wc_flags, self.pkey_index, self.slid, self.sl = wc_flags, pkey_index, slid, sl
        self.dlid_path_bits = dlid_path_bits

    def __str__(self) -> str:
        return table(
            WR_ID=self.wr_id,
            status=cqe_status_to_str(self.status),
            opcode=cqe_opcode_to_str(self.opcode),
            vendor_error=self.vendor_err,
            byte_length=self.byte_len,
            QP_num=self.qp_num,
            source_QP=self.src_qp,
            WC_flags=cqe_flags_to_str(self.wc_flags),
            pkey_index=self.pkey_index,
            slid=self.slid,
            sl=self.sl,
            imm_data=self.imm_data,
            dlid_path_bits=self.dlid_path_bits,
        )


def completion_of(numbers: Sequence[int]) -> WC:
    """Return a completion of the adapter, without the checks for values that a program sets."""
    wc = _new(WC)
    wc.numbers = numbers
    return wc


_new = object.__new__


class PollCqAttr(PyverbsObject):
    """The options for polling an extended completion queue: none, as in libibverbs."""

    comp_mask = Rare(32)


class WcTmInfo(PyverbsObject):
    """The tag-matching fields of a completion. weft's adapter has no tag matching."""

    tag = Rare(64)
    priv = Rare(32)
