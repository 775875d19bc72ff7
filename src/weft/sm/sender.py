"""MADs of the subnet manager from its port: sent in bulk, while it goes on answering the requests of others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.errors import SubnetError
from weft.mad.carrier import RETRIES, SMP_CLASSES, TIMEOUT_MS, Answers, Carrier, Lids, ask
from weft.mad.walk import DATA, Rows, directed, statuses
from weft.wire.mad import Method, MgmtClass
from weft.wire.smp import DirectedSmp, NodeInfo, SmpAttribute

_SA_METHODS = (Method.GET, Method.SET, Method.GET_TABLE, Method.GET_MULTI, Method.DELETE, Method.GET_TRACE_TABLE)
_SMP_METHODS = (Method.GET, Method.SET, Method.TRAP)
_OWN_MS, _OWN_RETRIES = 1000, 59  # a lab that has just begun looks at its fabric first


def attach(carrier: Carrier, m_key: int) -> int:
    """Ask for all that is a manager's; returns the GUID of the port."""
    for mgmt_class in SMP_CLASSES:
        carrier.register(mgmt_class, _SMP_METHODS)
    carrier.register(MgmtClass.SUBN_ADM, _SA_METHODS, class_version=2)
    answer = ask(carrier, get_own(SmpAttribute.NODE_INFO, m_key), timeout_ms=_OWN_MS, retries=_OWN_RETRIES)
    if answer is None:
        raise SubnetError(
            "the node of this port does not answer NodeInfo: is it up? If another subnet manager has set an M_Key, "
            "give that one: m_key or m_key_file in opensm.conf"
        )
    return int(NodeInfo.unpack(answer, DATA).port_guid)


def get_own(attribute: SmpAttribute, m_key: int) -> bytes:
    """Return a query to our own port, which needs no LID."""
    return DirectedSmp.pack(method=Method.GET, attribute_id=attribute, m_key=m_key)


_CHUNK = 4096  # MADs between two looks at what arrived: 50 ms or so
_LOOK_S = 0.02
T = TypeVar("T")
Route = tuple[Rows, NDArray[np.uint8]]  # path uint8[n, 64] and hops [n] of directed SMPs


class Sender:
    """The carrier, with time-outs, a count, and `between`, which answers what arrives within so many seconds."""

    def __init__(
        self,
        carrier: Carrier,
        *,
        timeout_ms: int = TIMEOUT_MS,
        retries: int = RETRIES,
        m_key: int = 0,
        between: Callable[[float], None] = lambda wait_s: None,
    ) -> None:
        self.carrier, self.timeout_ms, self.retries = carrier, timeout_ms, retries
        self.m_key, self.between = m_key, between
        self.mads = 0  # sent so far, retries not counted

    def exchange(
        self, mads: Rows, to: Lids | None = None, *, timeout_ms: int | None = None, retries: int | None = None
    ) -> Answers:
        """Exchange MADs as a carrier does."""
        answers, answered = np.zeros_like(mads), np.zeros(len(mads), bool)
        for begin in range(0, len(mads), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            answers[part], answered[part] = self.carrier.exchange(
                mads[part],
                None if to is None else to[part],
                timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
                retries=self.retries if retries is None else retries,
            )
            self.between(0.0)
        self.mads += len(mads)
        return answers, answered

    def get(self, route: Route, attribute: int, modifier: NDArray[np.int64] | int = 0) -> Answers:
        """Get an attribute at the end of each route: uint8[n, 64], and which were answered."""
        return self._ask(Method.GET, route, attribute, modifier, None)

    def set(self, route: Route, attribute: int, modifier: NDArray[np.int64] | int, data: Rows) -> Answers:
        """Write an attribute: what it is now, and which took it without complaint."""
        return self._ask(Method.SET, route, attribute, modifier, data)

    def _ask(
        self, method: Method, route: Route, attribute: int, modifier: NDArray[np.int64] | int, data: Rows | None
    ) -> Answers:
        """Send SMPs in chunks: those of a large subnet at once would take hundreds of megabytes."""
        path, hops = route
        count = len(path)
        modifiers = np.broadcast_to(np.asarray(modifier, np.int64), count)
        data_out, well = np.zeros((count, DATA), np.uint8), np.zeros(count, bool)
        for begin in range(0, count, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            rows = None if data is None else data[part]
            answers, answered = self.exchange(
                directed(path[part], hops[part], attribute, modifiers[part], method=method, data=rows, m_key=self.m_key)
            )
            data_out[part], well[part] = answers[:, DATA : 2 * DATA], answered & (statuses(answers) == 0)
        return data_out, well

    def aside(self, work: Callable[[], T]) -> T:
        """Compute in another thread, and answer meanwhile: a standby that hears nothing takes over."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            future = pool.submit(work)
            while not wait((future,), _LOOK_S).done:
                self.between(0.0)
            return future.result()
