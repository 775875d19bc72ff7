"""Wait for traps of a subnet: a link that changed, a subnet manager that came or went.

    with TrapListener(attach) as traps:
        traps.wait(1.0)                 returns at once after a trap, with the LIDs that traps name

A subscription is with the subnet administrator. Without one, `wait` only waits, and subscribes later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from typing import Self

from weft.errors import WeftError
from weft.mad.carrier import Carrier
from weft.tenants.violations import Watch
from weft.wire.notice import LinkStateDetails, LocalChangesDetails, Trap

_DETAILS: dict[int, type[LinkStateDetails | LocalChangesDetails]] = {
    Trap.LINK_STATE_CHANGED: LinkStateDetails,
    Trap.LOCAL_CHANGES: LocalChangesDetails,
}
TRAPS = (Trap.LINK_STATE_CHANGED, Trap.LOCAL_CHANGES)
_MOST = 4096  # LIDs that wait; polls find what others name
_TURN_S = 0.1
_RENEWED_S = 60.0  # a restarted subnet manager has no subscriptions
_AGAIN_S = 5.0  # after a failure
_SETTLE_S = 0.02  # other links often fall with the first


class TrapListener:
    """A thread that listens for traps. Use it as a context manager."""

    def __init__(self, attach: Callable[[], Carrier]) -> None:
        self._attach = attach
        self._came, self._ended = threading.Event(), threading.Event()
        self._lids: deque[int] = deque(maxlen=_MOST)
        self._thread = threading.Thread(target=self._run, name="traps", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait(self, seconds: float) -> frozenset[int]:
        """Wait for a trap or the end of a time; return the LIDs of the switches and ports that traps named."""
        if self._came.wait(max(seconds, 0.0)):
            time.sleep(_SETTLE_S)
            self._came.clear()
        return frozenset(self._lids.popleft() for _ in range(len(self._lids)))

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with closing(self._attach()) as carrier, Watch(carrier, traps=TRAPS) as watch:
                    self._listen(watch)
            except (WeftError, OSError):  # no subnet administrator: polls go on without traps
                self._ended.wait(_AGAIN_S)

    def _listen(self, watch: Watch) -> None:
        until_s = time.monotonic() + _RENEWED_S
        while not self._ended.is_set() and time.monotonic() < until_s:
            for notice in watch.notices(_TURN_S):
                form = _DETAILS.get(int(notice.trap_number))
                if form is not None:
                    self._lids.append(form.unpack(notice.data_details).lid_addr)
                self._came.set()
