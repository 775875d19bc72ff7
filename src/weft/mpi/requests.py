"""Requests for non-blocking operations, and statuses of received messages."""
# ruff: noqa: N802 - the names are mpi4py's

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.collectives.live.message_queue import MessageQueue, Receiving, Sending
from weft.errors import ConfigError
from weft.mpi.datatypes import DATATYPES, Datatype

ANY_SOURCE, ANY_TAG, PROC_NULL, UNDEFINED = -1, -1, -2, -32766


class Status:
    """The status of the last message received with it."""

    def __init__(self) -> None:
        self.source, self.tag, self.count, self.error = ANY_SOURCE, ANY_TAG, 0, 0

    def take(self, message: Receiving | None) -> None:
        """Store source, tag and length of a message; None stands for a receive from PROC_NULL."""
        self.source, self.tag, self.count = PROC_NULL, ANY_TAG, 0
        if message is not None and message.source is not None and message.tag is not None:
            self.source, self.tag, self.count = message.source, message.tag, message.length

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_error(self) -> int:
        return self.error

    def Get_count(self, datatype: Datatype = DATATYPES["BYTE"]) -> int:
        """Return the number of items of this type; UNDEFINED if the message has a fraction of one."""
        return UNDEFINED if self.count % datatype.size else self.count // datatype.size

    Get_elements = Get_count

    def Is_cancelled(self) -> bool:
        return False


class Request:
    """A pending send or receive; it becomes false once waited for. `read` decodes a received object."""

    def __init__(
        self,
        queue: MessageQueue | None,
        operation: Sending | Receiving | None,
        read: Callable[[Receiving], Any] | None = None,
    ) -> None:
        self._queue, self._operation, self._read = queue, operation, read
        self._is_open = True

    def __bool__(self) -> bool:
        return self._is_open

    def wait(self, status: Status | None = None) -> Any:
        """Wait until the operation is complete; return the object of a receive, else None."""
        if self._is_open and self._queue is not None and self._operation is not None:
            self._queue.wait(self._operation)
        return self._end(status)

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Return whether the operation is complete, and the received object."""
        if self._is_pending():
            return False, None
        return True, self._end(status)

    def Wait(self, status: Status | None = None) -> bool:
        self.wait(status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        return self.test(status)[0]

    def _is_pending(self) -> bool:
        if not self._is_open or self._queue is None or self._operation is None:
            return False
        return not self._queue.test(self._operation)

    def _end(self, status: Status | None) -> Any:
        message = self._operation if isinstance(self._operation, Receiving) and self._is_open else None
        self._is_open = False
        if status is not None:
            status.take(message)
        return self._read(message) if self._read is not None and message is not None else None

    # -- several ------------------------------------------------------------------------------------------------------

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[Any]:
        statuses_or_none = _statuses_for(requests, statuses)
        return [request.wait(status) for request, status in zip(requests, statuses_or_none, strict=True)]

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def testall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[bool, list[Any] | None]:
        """Return whether all operations are complete, and then their objects."""
        if any(request._is_pending() for request in requests):
            return False, None
        return True, cls.waitall(requests, statuses)

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        return cls.testall(requests, statuses)[0]

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """Wait until one operation is complete; return its index and object, or UNDEFINED if none is pending."""
        pending = [request for request in requests if request]
        if not pending:
            return UNDEFINED, None
        queue = next((request._queue for request in pending if request._queue is not None), None)

        def first() -> int | None:
            done = (
                index
                for index, request in enumerate(requests)
                if request and (request._operation is None or request._operation.is_done)
            )
            return next(done, None)

        if queue is not None:
            queue.wait_until(lambda: first() is not None, "Waitany")
        index = first()
        assert index is not None
        return index, requests[index].wait(status)

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        return cls.waitany(requests, status)[0]


def _statuses_for(requests: Sequence[Request], statuses: list[Status] | None) -> Sequence[Status | None]:
    if statuses is None:
        return [None] * len(requests)
    if len(statuses) < len(requests):
        raise ConfigError(f"{len(statuses)} statuses for {len(requests)} requests; give one for each request")
    return statuses[: len(requests)]
