"""Define the attributes by which queue pairs are modified and queried."""

from __future__ import annotations

from dataclasses import dataclass, fields

from weft.verbs.attributes.address import AHAttr
from weft.verbs.attributes.objects import PyverbsCM, PyverbsObject, Unsigned, table
from weft.verbs.attributes.text import access_flags_to_str, mig_state_to_str, mtu_to_str, qp_state_to_str
from weft.verbs.enums import IBV_MTU_1024, IBV_QPS_INIT, IBV_QPS_RESET


@dataclass(eq=False)
class QPCap(PyverbsObject):
    """The capacity of a queue pair."""

    max_send_wr: Unsigned = Unsigned(32, 1)
    max_recv_wr: Unsigned = Unsigned(32, 10)
    max_send_sge: Unsigned = Unsigned(32, 1)
    max_recv_sge: Unsigned = Unsigned(32, 1)
    max_inline_data: Unsigned = Unsigned(32)

    def take(self, cap: QPCap | None) -> None:
        """Copy the values of another capacity, or set all to 0."""
        for name in _NAMES:
            setattr(self, name, getattr(cap, name) if cap is not None else 0)

    def only_cap(self) -> QPCap:
        """Return a copy without the other fields of a `QPInitAttr`."""
        return QPCap(*(getattr(self, name) for name in _NAMES))

    def _lines(self, indent: str) -> str:
        values = {f"{indent}{name.replace('_wr', '_WR').replace('sge', 'SGE')}": getattr(self, name) for name in _NAMES}
        return table(**values)

    def __str__(self) -> str:
        return self._lines("")


_NAMES = [field.name for field in fields(QPCap)]


class _Address:
    """An address field that copies on read and write; writing None changes nothing."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: QPAttr, owner: type) -> AHAttr:
        return obj.__dict__[self.name].copy()  # type: ignore[no-any-return]

    def __set__(self, obj: QPAttr, val: AHAttr | None) -> None:
        if val is not None:
            obj.__dict__[self.name] = val.copy()


class QPAttr(PyverbsObject):
    """The attributes of modify and query; a mask selects them. Addresses and `cap` are copies."""

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
    ah_attr, alt_ah_attr = _Address(), _Address()

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
        self.ah_attr = self.alt_ah_attr = AHAttr(port_num=0)

    @property
    def cap(self) -> QPCap:
        return self._cap.only_cap()

    @cap.setter
    def cap(self, val: QPCap) -> None:
        self._cap.take(val)

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
        addresses = f"AH Attr:\n{self.ah_attr}Alt. AH Attr:\n{self.alt_ah_attr}"
        return table(**head) + f"QP caps:\n{self._cap}" + addresses + table(**tail)


_UNSET = dict.fromkeys((name for name, field in vars(QPAttr).items() if isinstance(field, Unsigned)), 0)


@dataclass(eq=False)
class ECE(PyverbsCM):
    """The options of enhanced connection establishment between two adapters of one vendor."""

    vendor_id: Unsigned = Unsigned(32)
    options: Unsigned = Unsigned(32)
    comp_mask: Unsigned = Unsigned(32)

    def __str__(self) -> str:
        values = {"Vendor ID": self.vendor_id, "Options": self.options, "Comp Mask": self.comp_mask}
        return "ECE:\n" + table(**{name: hex(value) for name, value in values.items()})


@dataclass(eq=False)
class QPRateLimitAttr(PyverbsObject):
    """The rate limit of a queue pair in kilobits per second; 0 for no limit."""

    rate_limit: Unsigned = Unsigned(32)
    max_burst_sz: Unsigned = Unsigned(32)
    typical_pkt_sz: Unsigned = Unsigned(16)
    comp_mask: Unsigned = Unsigned(32)

    def __str__(self) -> str:
        names = ("Rate limit (kbps)", "Max burst size", "Typical packet size", "Comp mask")
        return table(**dict(zip(names, vars(self).values(), strict=True)))
