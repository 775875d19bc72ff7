"""Define the attributes of new queue pairs."""

from __future__ import annotations

from weft.verbs.attributes.objects import Unsigned, table
from weft.verbs.attributes.text import name_flags, qp_type_to_str
from weft.verbs.enums import IBV_QPT_UD
from weft.verbs.errors import PyverbsUserError
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.pyverbs.cq import CQ, CQEX
from weft.verbs.pyverbs.eec import RDD
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp_attributes import QPCap
from weft.verbs.pyverbs.srq import SRQ
from weft.verbs.pyverbs.xrcd import XRCD

_MASKS = {1: "PD", 2: "XRCD", 4: "Create Flags", 8: "Max TSO header", 16: "Indirection Table", 32: "RX hash"}
_CREATE_FLAGS = {
    1: "Block self mcast loopback",
    2: "Scatter FCS",
    4: "CVLAN stripping",
    8: "Source QPN",
    16: "PCI write end padding",
}  # pyverbs numbers them from 0, unlike verbs.h


class QPInitAttr(QPCap):
    """The attributes of a new queue pair. `cap` is a copy, as in pyverbs: to change a value, set `max_send_wr` etc.

    `rdd` is the domain of a queue pair for reliable datagrams; pyverbs does not have it.
    """

    qp_type = Unsigned(32)
    sq_sig_all = Unsigned(32)

    def __init__(
        self,
        qp_type: int = IBV_QPT_UD,
        qp_context: object = None,
        scq: CQ | CQEX | None = None,
        rcq: CQ | CQEX | None = None,
        srq: SRQ | None = None,
        cap: QPCap | None = None,
        sq_sig_all: int = 1,
        rdd: RDD | None = None,
    ) -> None:
        self.take(cap)
        self.qp_type, self.sq_sig_all = qp_type, sq_sig_all
        self.qp_context, self.srq, self.rdd = qp_context, srq, rdd
        self.send_cq, self.recv_cq = _checked(scq), _checked(rcq)

    @property
    def cap(self) -> QPCap:
        return self.only_cap()

    @cap.setter
    def cap(self, val: QPCap) -> None:
        self.take(val)

    def __str__(self) -> str:
        head = {"QP type": qp_type_to_str(self.qp_type), "SQ sig. all": self.sq_sig_all}
        return table(**head) + "QP caps:\n" + self._lines("    ")


def _checked(cq: CQ | CQEX | None) -> CQ | CQEX | None:
    if cq is not None and not isinstance(getattr(cq, "core", None), CompletionQueue):
        raise PyverbsUserError(f"Expected CQ/CQEX, got {type(cq)}")
    return cq


class QPInitAttrEx(QPInitAttr):
    """The attributes of a new extended queue pair; `comp_mask` selects those that are set."""

    comp_mask = Unsigned(32)
    create_flags = Unsigned(32)
    max_tso_header = Unsigned(16)
    source_qpn = Unsigned(32)
    send_ops_flags = Unsigned(64)

    def __init__(
        self,
        qp_type: int = IBV_QPT_UD,
        qp_context: object = None,
        scq: CQ | CQEX | None = None,
        rcq: CQ | CQEX | None = None,
        srq: SRQ | None = None,
        cap: QPCap | None = None,
        sq_sig_all: int = 0,
        comp_mask: int = 0,
        pd: PD | None = None,
        xrcd: XRCD | None = None,
        create_flags: int = 0,
        max_tso_header: int = 0,
        source_qpn: int = 0,
        hash_conf: object = None,
        ind_table: object = None,
        send_ops_flags: int = 0,
        rdd: RDD | None = None,
    ) -> None:
        super().__init__(qp_type, qp_context, scq, rcq, srq, cap, sq_sig_all, rdd)
        self.comp_mask, self.pd, self.xrcd, self.create_flags = comp_mask, pd, xrcd, create_flags
        self.max_tso_header, self.source_qpn, self.send_ops_flags = max_tso_header, source_qpn, send_ops_flags
        self.hash_conf, self.ind_table = hash_conf, ind_table

    def mask_to_str(self, mask: int) -> str:
        return name_flags(mask, _MASKS)

    def flags_to_str(self, flags: int) -> str:
        return name_flags(flags, _CREATE_FLAGS)

    def __str__(self) -> str:
        tail = {
            "comp mask": self.mask_to_str(self.comp_mask),
            "create flags": self.flags_to_str(self.create_flags),
            "max TSO header": self.max_tso_header,
            "Source QPN": self.source_qpn,
        }
        return super().__str__() + table(**tail)
