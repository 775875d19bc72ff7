"""What a queue pair is made with, and what it is changed by."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from weft.verbs.enums import IBV_MTU_1024, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPT_UD
from weft.verbs.errors import PyverbsUserError
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.pyverbs.addr import AHAttr
from weft.verbs.pyverbs.objects import PyverbsCM, PyverbsObject, Unsigned, table
from weft.verbs.pyverbs.text import (
    access_flags_to_str,
    mig_state_to_str,
    mtu_to_str,
    name_flags,
    qp_state_to_str,
    qp_type_to_str,
)

if TYPE_CHECKING:
    from weft.verbs.pyverbs.cq import CQ, CQEX
    from weft.verbs.pyverbs.eec import RDD
    from weft.verbs.pyverbs.pd import PD
    from weft.verbs.pyverbs.srq import SRQ
    from weft.verbs.pyverbs.xrcd import XRCD

_MASKS = {1: "PD", 2: "XRCD", 4: "Create Flags", 8: "Max TSO header", 16: "Indirection Table", 32: "RX hash"}
_CREATE_FLAGS = {
    1: "Block self mcast loopback",
    2: "Scatter FCS",
    4: "CVLAN stripping",
    8: "Source QPN",
    16: "PCI write end padding",
}  # pyverbs numbers them from 0, which is not what they are in verbs.h


@dataclass(eq=False)
class QPCap(PyverbsObject):
    """How much fits into a queue pair."""

    max_send_wr: Unsigned = Unsigned(32, 1)
    max_recv_wr: Unsigned = Unsigned(32, 10)
    max_send_sge: Unsigned = Unsigned(32, 1)
    max_recv_sge: Unsigned = Unsigned(32, 1)
    max_inline_data: Unsigned = Unsigned(32)

    def take(self, cap: QPCap | None) -> None:
        """The values of another; 0 where nothing was said."""
        for name in _NAMES:
            setattr(self, name, getattr(cap, name) if cap is not None else 0)

    def only_cap(self) -> QPCap:
        """A copy, without what a `QPInitAttr` has besides."""
        return QPCap(*(getattr(self, name) for name in _NAMES))

    def _lines(self, indent: str) -> str:
        values = {f"{indent}{name.replace('_wr', '_WR').replace('sge', 'SGE')}": getattr(self, name) for name in _NAMES}
        return table(**values)

    def __str__(self) -> str:
        return self._lines("")


_NAMES = [field.name for field in fields(QPCap)]


class QPInitAttr(QPCap):
    """`cap` is a copy, as in pyverbs: to change one value, write to `max_send_wr` and the like.

    `rdd`, which pyverbs has not, is the domain of a queue pair for reliable datagrams.
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
    """With what only some queue pairs have; `comp_mask` says which of it is meant."""

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


class QPAttr(PyverbsObject):
    """Attributes of modify and query; the masks say which are meant. Addresses and `cap` are copies."""

    qp_state = Unsigned(32)
    cur_qp_state = Unsigned(32)
    path_mtu = Unsigned(32)
    path_mig_state = Unsigned(32)
    qkey = Unsigned(32)
    rq_psn = Unsigned(32)
    sq_psn = Unsigned(32)
    dest_qp_num = Unsigned(32)
    qp_access_flags = Unsigned(32)
    pkey_index = Unsigned(16)
    alt_pkey_index = Unsigned(16)
    en_sqd_async_notify = Unsigned(8)
    sq_draining = Unsigned(8)
    max_rd_atomic = Unsigned(8)
    max_dest_rd_atomic = Unsigned(8)
    min_rnr_timer = Unsigned(8)
    port_num = Unsigned(8)
    timeout = Unsigned(8)
    retry_cnt = Unsigned(8)
    rnr_retry = Unsigned(8)
    alt_port_num = Unsigned(8)
    alt_timeout = Unsigned(8)
    rate_limit = Unsigned(32)

    def __init__(
        self,
        qp_state: int = IBV_QPS_INIT,
        cur_qp_state: int = IBV_QPS_RESET,
        port_num: int = 1,
        path_mtu: int = IBV_MTU_1024,
    ) -> None:
        self.__dict__.update(_UNSET)
        self.qp_state, self.cur_qp_state = qp_state, cur_qp_state
        self.port_num, self.path_mtu = port_num, path_mtu
        self._cap = QPCap(0, 0, 0, 0, 0)
        self._ah_attr, self._alt_ah_attr = AHAttr(port_num=0), AHAttr(port_num=0)

    @property
    def cap(self) -> QPCap:
        return self._cap.only_cap()

    @cap.setter
    def cap(self, val: QPCap) -> None:
        self._cap.take(val)

    @property
    def ah_attr(self) -> AHAttr:
        return self._ah_attr.copy()

    @ah_attr.setter
    def ah_attr(self, val: AHAttr | None) -> None:
        if val is not None:
            self._ah_attr = val.copy()

    @property
    def alt_ah_attr(self) -> AHAttr:
        return self._alt_ah_attr.copy()

    @alt_ah_attr.setter
    def alt_ah_attr(self, val: AHAttr | None) -> None:
        if val is not None:
            self._alt_ah_attr = val.copy()

    def __str__(self) -> str:
        head = {
            "QP state": qp_state_to_str(self.qp_state),
            "QP current state": qp_state_to_str(self.cur_qp_state),
            "Path MTU": mtu_to_str(self.path_mtu),
            "Path mig. state": mig_state_to_str(self.path_mig_state),
            "QKey": self.qkey,
            "RQ PSN": self.rq_psn,
            "SQ PSN": self.sq_psn,
            "Dest QP number": self.dest_qp_num,
            "QP access flags": access_flags_to_str(self.qp_access_flags),
        }
        tail = {
            "PKey index": self.pkey_index,
            "Alt. PKey index": self.alt_pkey_index,
            "En. SQD async notify": self.en_sqd_async_notify,
            "SQ draining": self.sq_draining,
            "Max RD atomic": self.max_rd_atomic,
            "Max dest. RD atomic": self.max_dest_rd_atomic,
            "Min RNR timer": self.min_rnr_timer,
            "Port number": self.port_num,
            "Timeout": self.timeout,
            "Retry counter": self.retry_cnt,
            "RNR retry": self.rnr_retry,
            "Alt. port number": self.alt_port_num,
            "Alt. timeout": self.alt_timeout,
            "Rate limit": self.rate_limit,
        }
        addresses = f"AH Attr:\n{self._ah_attr}Alt. AH Attr:\n{self._alt_ah_attr}"
        return table(**head) + f"QP caps:\n{self._cap}" + addresses + table(**tail)


_UNSET = dict.fromkeys((name for name, field in vars(QPAttr).items() if isinstance(field, Unsigned)), 0)


@dataclass(eq=False)
class ECE(PyverbsCM):
    """Enhanced connection establishment: what two adapters of one vendor agree on besides."""

    vendor_id: Unsigned = Unsigned(32)
    options: Unsigned = Unsigned(32)
    comp_mask: Unsigned = Unsigned(32)

    def __str__(self) -> str:
        values = {"Vendor ID": self.vendor_id, "Options": self.options, "Comp Mask": self.comp_mask}
        return "ECE:\n" + table(**{name: hex(value) for name, value in values.items()})


@dataclass(eq=False)
class QPRateLimitAttr(PyverbsObject):
    """How fast a queue pair may send: kilobits a second, 0 for as fast as it can."""

    rate_limit: Unsigned = Unsigned(32)
    max_burst_sz: Unsigned = Unsigned(32)
    typical_pkt_sz: Unsigned = Unsigned(16)
    comp_mask: Unsigned = Unsigned(32)

    def __str__(self) -> str:
        names = ("Rate limit (kbps)", "Max burst size", "Typical packet size", "Comp mask")
        return table(**dict(zip(names, vars(self).values(), strict=True)))
