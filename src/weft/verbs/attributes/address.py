"""Define GIDs, global routes and address handle attributes."""

from __future__ import annotations

import copy
from dataclasses import InitVar, dataclass, field
from typing import Any

from weft.verbs.attributes.objects import PyverbsObject, Unsigned, table
from weft.verbs.attributes.text import gid_to_raw, raw_to_gid
from weft.verbs.errors import PyverbsUserError

NODE_GUID = 0x0077_65FF_FE66_7401  # the EUI-64 of the locally administered address 02:77:65:66:74:01
GID_TABLE_LEN = 8
NO_GID = bytes(16)
_IPV4_PREFIX = bytes(10) + b"\xff\xff"


class GID(PyverbsObject):
    """A GID, the 128-bit address of a port: a subnet prefix and a GUID, or with RoCE an IP address."""

    def __init__(self, val: str | None = None) -> None:
        self.raw = NO_GID if val is None else gid_to_raw(val)

    @classmethod
    def of(cls, raw: bytes) -> GID:
        gid = cls()
        gid.raw = bytes(raw)
        return gid

    @property
    def gid(self) -> str:
        return raw_to_gid(self.raw)

    @gid.setter
    def gid(self, val: str) -> None:
        self.raw = gid_to_raw(val)

    def __str__(self) -> str:
        return self.gid


class _Address:
    """A field that holds a GID: read as text, written as text or as a `GID`. Its default in a dataclass is no GID."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.slot = f"raw_{name}"

    def __get__(self, obj: object, owner: type) -> str:
        return raw_to_gid(getattr(obj, self.slot)) if obj is not None else ""

    def __set__(self, obj: object, val: str | GID | None) -> None:
        raw = val.raw if isinstance(val, GID) else gid_to_raw(val) if val else NO_GID
        setattr(obj, self.slot, raw)


@dataclass(eq=False)
class GRH(PyverbsObject):
    """A Global Route Header, as in front of the data of a received datagram."""

    sgid: _Address = _Address()
    dgid: _Address = _Address()
    version_tclass_flow: Unsigned = Unsigned(32)
    paylen: Unsigned = Unsigned(16)
    next_hdr: Unsigned = Unsigned(8)
    hop_limit: Unsigned = Unsigned(8, 1)

    def __str__(self) -> str:
        return table(
            DGID=self.dgid,
            SGID=self.sgid,
            version_tclass_flow=self.version_tclass_flow,
            paylen=self.paylen,
            next_header=self.next_hdr,
            hop_limit=self.hop_limit,
        )


@dataclass(eq=False)
class GlobalRoute(PyverbsObject):
    """The contents of the Global Route Header of packets to send."""

    dgid: _Address = _Address()
    raw_dgid: bytes = field(init=False, repr=False)
    flow_label: Unsigned = Unsigned(32)
    sgid_index: Unsigned = Unsigned(8)
    hop_limit: Unsigned = Unsigned(8, 1)
    traffic_class: Unsigned = Unsigned(8)

    def __str__(self) -> str:
        rest = {name: value for name, value in vars(self).items() if name != "raw_dgid"}
        return table(DGID=self.dgid, **rest)


class _OfRoute:
    """A field of the global route of an address; None if the address is not global."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: AHAttr, owner: type) -> Any:
        return getattr(obj.route, self.name) if obj.is_global else None

    def __set__(self, obj: AHAttr, val: object) -> None:
        if obj.is_global or self.name != "dgid":
            setattr(obj.route, self.name, val)


@dataclass(eq=False)
class AHAttr(PyverbsObject):
    """An address: a LID with its path, and a global route if it is global.

    `route` is the global part, also while `is_global` is 0.
    """

    dlid: Unsigned = Unsigned(16)
    sl: Unsigned = Unsigned(8)
    src_path_bits: Unsigned = Unsigned(8)
    static_rate: Unsigned = Unsigned(8)
    is_global: Unsigned = Unsigned(8)
    port_num: Unsigned = Unsigned(8, 1)
    gr: InitVar[GlobalRoute | None] = None
    dgid = _OfRoute()
    flow_label = _OfRoute()
    sgid_index = _OfRoute()
    hop_limit = _OfRoute()
    traffic_class = _OfRoute()

    def __post_init__(self, gr: GlobalRoute | None) -> None:
        if self.is_global and gr is None:
            raise PyverbsUserError("Global AH Attr is created but gr parameter is None")
        self.route = copy.copy(gr) if self.is_global and gr is not None else GlobalRoute(hop_limit=0)

    def copy(self) -> AHAttr:
        """Return an independent copy."""
        duplicate = copy.copy(self)
        duplicate.route = copy.copy(self.route)
        return duplicate

    def __str__(self) -> str:
        lines = table(
            port_num=self.port_num,
            sl=self.sl,
            source_path_bits=self.src_path_bits,
            dlid=self.dlid,
            static_rate=self.static_rate,
            is_global=self.is_global,
        )
        if self.is_global:
            lines += str(self.route).replace("DGID", "dgid").replace("traffic class", "traffic_class")
        return "".join(f"  {line}\n" for line in lines.splitlines())


def read_route(header: bytes) -> tuple[GlobalRoute, bytes]:
    """Return the route back to the sender, and the destination GID, from the 40 bytes in front of a datagram's data.

    With RoCE over IPv4 these are 20 undefined bytes and the IPv4 header.
    """
    if header[0] >> 4 != 6 and header[20] >> 4 == 4:
        ip = header[20:]
        sender, own = _IPV4_PREFIX + ip[12:16], _IPV4_PREFIX + ip[16:20]
        return GlobalRoute(GID.of(sender), hop_limit=0xFF, traffic_class=ip[1]), own
    first = int.from_bytes(header[:4], "big")
    route = GlobalRoute(
        GID.of(header[8:24]), flow_label=first & 0xFFFFF, hop_limit=header[7], traffic_class=first >> 20 & 0xFF
    )
    return route, header[24:40]
