"""Define address handles, and export the classes of their attributes under pyverbs' names."""

from __future__ import annotations

import errno

from weft.verbs.attributes.address import GID, GRH, AHAttr, GlobalRoute, read_route
from weft.verbs.attributes.objects import PyverbsCM
from weft.verbs.attributes.text import raw_to_gid
from weft.verbs.enums import IBV_GID_TYPE_SYSFS_ROCE_V2, IBV_LINK_LAYER_ETHERNET, IBV_WC_GRH
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.mem_alloc import read
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.wc import WC
from weft.wire import headers

__all__ = ["AH", "GID", "GRH", "AHAttr", "GlobalRoute"]


class AH(PyverbsCM):
    """An address handle: an address that the adapter has checked. `attr` is a copy of its attributes.

    It is created from `attr`; or, for the reply to a datagram, from its completion `wc`, the address `grh` of the
    Global Route Header before its data, and `port_num`.
    """

    def __init__(
        self,
        pd: PD,
        *,
        attr: AHAttr | None = None,
        wc: WC | None = None,
        grh: int = 0,
        port_num: int = 1,
    ) -> None:
        if attr is not None:
            self.attr = attr.copy()
        elif wc is not None:
            self.attr = reply_address(pd.ctx, wc, grh, port_num)
        else:
            raise PyverbsUserError("AH needs attr, or wc with grh and port_num")
        self._check(pd.ctx)
        self.pd: PD | None = pd
        pd.add_ref(self)

    def _check(self, ctx: Context) -> None:
        attr = self.attr
        try:
            port = ctx.query_port(attr.port_num)
        except PyverbsRDMAError as error:
            raise _refused(f"there is no port {attr.port_num}") from error
        if not attr.is_global and port.link_layer == IBV_LINK_LAYER_ETHERNET:
            raise _refused(
                f"port {attr.port_num} is Ethernet, where an address needs a global route (is_global=1, gr=...)"
            )
        if attr.is_global and attr.route.sgid_index >= port.gid_tbl_len:
            raise _refused(f"sgid_index {attr.route.sgid_index}: port {attr.port_num} has {port.gid_tbl_len} GIDs")
        if attr.is_global and not any(ctx.query_gid(attr.port_num, attr.route.sgid_index).raw):
            raise _refused(f"sgid_index {attr.route.sgid_index}: that entry of the port's GID table is empty")

    def _release(self) -> None:
        self.pd = None


def reply_address(ctx: Context, wc: WC, grh: int, port_num: int) -> AHAttr:
    """Return the address of the sender of a received datagram."""
    attr = AHAttr(dlid=wc.slid, sl=wc.sl, src_path_bits=wc.dlid_path_bits, port_num=port_num)
    if wc.wc_flags & IBV_WC_GRH:
        attr.is_global = 1
        attr.route, dgid = read_route(read(grh, headers.GRH.size))
        attr.route.sgid_index = own_index(ctx, port_num, dgid)
    return attr


def own_index(ctx: Context, port_num: int, raw: bytes) -> int:
    """Return the index of a GID in the port's table; for an address with two entries that of RoCE v2."""
    table = range(ctx.query_port(port_num).gid_tbl_len)
    matches = [index for index in table if ctx.query_gid(port_num, index).raw == raw]
    if not matches:
        raise _refused(f"port {port_num} does not have {raw_to_gid(raw)}")
    return next((i for i in matches if ctx.query_gid_type(port_num, i) == IBV_GID_TYPE_SYSFS_ROCE_V2), matches[0])


def _refused(reason: str) -> PyverbsRDMAError:
    return PyverbsRDMAError("Failed to create AH", errno.EINVAL, reason)
