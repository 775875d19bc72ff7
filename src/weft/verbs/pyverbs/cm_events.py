"""Define the events of connections and their channels."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable

from weft.verbs.attributes.address import AHAttr
from weft.verbs.attributes.objects import PyverbsObject
from weft.verbs.cm.connection import CmNotice
from weft.verbs.enums.cm import rdma_cm_event_type
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.context import the_adapter
from weft.verbs.pyverbs.events import wait_for

Owner = Callable[["CMEvent"], rdma_cm_event_type]  # handles an event of an identifier and returns the type to report
Datagrams = tuple[AHAttr, int, int]  # destination: address, queue pair number, Q_Key


class CMEventChannel(PyverbsObject):
    """A queue of events from connection identifiers."""

    def __init__(self) -> None:
        self.events: deque[tuple[Owner, CmNotice]] = deque()
        self._is_open = True

    def next(self) -> tuple[Owner, CmNotice] | None:
        if not self._is_open:
            raise PyverbsRDMAError("Failed to create CMEvent", errno.EBADF, "the channel is closed")
        return self.events.popleft() if self.events else None

    def close(self) -> None:
        self._is_open = False


class CMEvent(PyverbsObject):
    """The next event of a channel. `datagrams` is the destination for datagrams, if the event has one: see UDParam."""

    def __init__(self, channel: CMEventChannel) -> None:
        on_event, self.told = wait_for(the_adapter(), channel.next)
        self.private_data = self.told.private_data
        self.status = self.told.status  # of a failure: a negative errno, or the reason code of the peer
        self.datagrams: Datagrams | None = None
        self.event_type = on_event(self)

    def event_str(self) -> str:
        return rdma_cm_event_type(self.event_type).name

    def ack_cm_event(self) -> None:
        """Acknowledge the event. Nothing is to be freed."""

    def close(self) -> None:
        self.ack_cm_event()
