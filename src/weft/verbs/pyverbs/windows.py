"""Memory windows: a part of a region opened to others under a key that is quickly taken back.

A window of type 1 is bound by `QP.bind_mw`, as often as one likes, and gets a new key each time; length 0 unbinds it.
One of type 2 is bound by a send request, with a key that the program chose, to one queue pair, and only while it is
unbound (InfiniBand Architecture volume 1, "Memory windows").

A queue pair puts a `Binding` into its send queue and calls `execute` when it is the binding's turn.
"""

from __future__ import annotations

import errno

from weft.verbs import enums as e
from weft.verbs.attributes.objects import PyverbsCM, Unsigned, inc_rkey, table
from weft.verbs.enums import ibv_mw_type, ibv_wc_status
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.regions import Region
from weft.verbs.pyverbs.memory_region import MR
from weft.verbs.pyverbs.pd import PD

_TYPE_1, _TYPE_2 = ibv_mw_type.IBV_MW_TYPE_1, ibv_mw_type.IBV_MW_TYPE_2
_NEEDS_LOCAL_WRITE = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_ATOMIC


def mwtype2str(mw_type: int) -> str:
    return ibv_mw_type(mw_type).name if mw_type in list(ibv_mw_type) else f"Unknown MW type ({mw_type})"


class MWBindInfo(PyverbsCM):
    """The part of a region to bind: `length` bytes from the region's address `addr`, with `mw_access_flags`."""

    addr = Unsigned(64)
    length = Unsigned(64)
    mw_access_flags = Unsigned(32)

    def __init__(self, mr: MR, addr: int, length: int, mw_access_flags: int) -> None:
        self.mr, self.addr, self.length, self.mw_access_flags = mr, addr, length, mw_access_flags

    def __str__(self) -> str:
        return "MWBindInfo:\n" + table(Addr=self.addr, Length=self.length, MW_access_flags=self.mw_access_flags)


class MWBind(PyverbsCM):
    """A request to bind a window of type 1."""

    send_flags = Unsigned(32)
    wr_id = Unsigned(64)

    def __init__(self, info: MWBindInfo, send_flags: int, wr_id: int = 0) -> None:
        self.info, self.send_flags, self.wr_id = info, send_flags, wr_id

    def __str__(self) -> str:
        return "MWBind:\n" + table(WR_id=self.wr_id, Send_flags=self.send_flags)


class MW(PyverbsCM):
    """A window of type `mw_type`. `region` is the adapter's entry for its key, closed while the window is unbound."""

    def __init__(self, pd: PD, mw_type: int) -> None:
        if mw_type not in list(ibv_mw_type):
            raise PyverbsRDMAError("Failed to allocate MW", errno.EINVAL, f"mw_type {mw_type} is neither 1 nor 2")
        self.type = ibv_mw_type(mw_type)
        self.regions = pd.ctx.adapter.regions
        key = self.regions.new_key()
        unbound = Region(key=key, pd=pd.key, address=0, length=0, access=0, base=0, is_open=False)
        self.region = self.regions.add(unbound)
        self.rkey = key
        self.handle = pd.ctx.handles.add(self)
        self.pd: PD | None = pd
        pd.add_ref(self)
        pd.windows.add(self)

    def unbind(self) -> None:
        """Unbind the window: its key gives no access."""
        region = self.region
        with self.regions.lock:
            region.is_open = False
            if region.parent is not None:
                region.parent.windows -= 1
                region.parent = None

    def rebind(self, info: MWBindInfo, rkey: int, qp_num: int) -> None:
        """Bind the window to a part of a region that was checked. The caller holds the adapter's lock."""
        self.unbind()
        region, parent = self.region, info.mr.region
        self.regions.drop(region)
        region.key = rkey
        if self.type == _TYPE_2:  # type 1 got its key when the request was posted
            self.rkey = rkey
        self.regions.add(region)
        if not info.length:
            return
        region.address, region.length, region.access = parent.place(info.addr), info.length, info.mw_access_flags
        region.device = parent.device
        region.base = 0 if info.mw_access_flags & e.IBV_ACCESS_ZERO_BASED else info.addr
        region.qp_num, region.parent, region.is_open = qp_num, parent, True
        parent.windows += 1

    def _release(self) -> None:
        with self.regions.lock:
            self.unbind()
            self.regions.drop(self.region)
        self.pd = None


class Binding:
    """A bind request in a send queue (`SendWork.window`): a window, the part of a region, and the window's new key.

    Without `rkey` the window is of type 1: its next key is chosen here and set as its `rkey` at once.
    """

    def __init__(self, mw: MW, info: MWBindInfo, rkey: int | None = None) -> None:
        self.mw, self.info = mw, info
        if mw.type != (_TYPE_1 if rkey is None else _TYPE_2):
            raise PyverbsRDMAError(
                "Failed to Bind MW",
                errno.EINVAL,
                f"the window is of type {mw.type:d}: bind_mw binds type 1, a send request type 2",
            )
        if rkey is None:
            rkey = mw.rkey = inc_rkey(mw.rkey)
        self.rkey = rkey

    def _wrong(self, pd: object) -> str:
        """Return the reason why the window cannot be bound; empty if it can."""
        mw, info, region = self.mw, self.info, self.info.mr.region
        if mw.pd is None:
            return "the window is closed"
        if not info.length and mw.type == _TYPE_1:
            return ""
        if mw.type == _TYPE_2 and (not info.length or mw.region.is_open or self.rkey >> 8 != mw.rkey >> 8):
            return "a window of type 2 must be unbound, with a length and a key that differs in its low 8 bits only"
        if mw.type == _TYPE_1 and info.mw_access_flags & e.IBV_ACCESS_ZERO_BASED:
            return "a window of type 1 cannot be zero-based"
        if not mw.region.pd is pd is region.pd:
            return "window, region and queue pair belong to different protection domains"
        if not region.is_open or not region.access & e.IBV_ACCESS_MW_BIND or not region.holds(info.addr, info.length):
            return "the region is closed, lacks IBV_ACCESS_MW_BIND, or does not cover all these bytes"
        if info.mw_access_flags & _NEEDS_LOCAL_WRITE and not region.access & e.IBV_ACCESS_LOCAL_WRITE:
            return "a window for writing needs a region with IBV_ACCESS_LOCAL_WRITE"
        return ""

    def execute(self, pd: object, qp_num: int) -> ibv_wc_status:
        with self.mw.regions.lock:  # region and window stay open between check and bind
            if self._wrong(pd):
                return ibv_wc_status.IBV_WC_MW_BIND_ERR
            self.mw.rebind(self.info, self.rkey, qp_num if self.mw.type == _TYPE_2 else 0)
        return ibv_wc_status.IBV_WC_SUCCESS
