"""What was begun and is waited for later, and what is known of a message that came."""
# ruff: noqa: N802 - the names are mpi4py's

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.collectives.live.mail import Mail, Receiving, Sending
from weft.errors import ConfigError
from weft.mpi.datatypes import DATATYPES, Datatype

ANY_SOURCE, ANY_TAG, PROC_NULL, UNDEFINED = -1, -1, -2, -32766


class Status:
    """Of the last message that it was given for."""

    def __init__(self) -> None:
        self.source, self.tag, self.count, self.error = ANY_SOURCE, ANY_TAG, 0, 0

    def take(self, came: Receiving | None) -> None:
        """None: from nobody."""
        self.source, self.tag, self.count = PROC_NULL, ANY_TAG, 0
        if came is not None and came.source is not None and came.tag is not None:
            self.source, self.tag, self.count = came.source, came.tag, came.length

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_error(self) -> int:
        return self.error

    def Get_count(self, datatype: Datatype = DATATYPES["BYTE"]) -> int:
        """Items of this type; UNDEFINED if that is no whole number."""
        return UNDEFINED if self.count % datatype.size else self.count // datatype.size

    Get_elements = Get_count

    def Is_cancelled(self) -> bool:
        return False


class Request:
    """A message under way; `read` makes an object of what came. False as soon as it was waited for."""

    def __init__(
        self, mail: Mail | None, what: Sending | Receiving | None, read: Callable[[Receiving], Any] | None = None
    ) -> None:
        self._mail, self._what, self._read = mail, what, read
        self._is_open = True

    def __bool__(self) -> bool:
        return self._is_open

    def wait(self, status: Status | None = None) -> Any:
        """The object, if one was to come."""
        if self._is_open and self._mail is not None and self._what is not None:
            self._mail.wait(self._what)
        return self._end(status)

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Whether it is done, and the object."""
        if self._is_open and self._mail is not None and self._what is not None and not self._mail.test(self._what):
            return False, None
        return True, self._end(status)

    def Wait(self, status: Status | None = None) -> bool:
        self.wait(status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        return self.test(status)[0]

    def _end(self, status: Status | None) -> Any:
        came = self._what if isinstance(self._what, Receiving) and self._is_open else None
        self._is_open = False
        if status is not None:
            status.take(came)
        return self._read(came) if self._read is not None and came is not None else None

    # -- several ------------------------------------------------------------------------------------------------------

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[Any]:
        return [one.wait(status) for one, status in zip(requests, _as_many(statuses, requests), strict=True)]

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def testall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[bool, list[Any] | None]:
        """All objects as soon as all are here, and none before."""
        for one in requests:
            if one._is_open and one._mail is not None and one._what is not None and not one._mail.test(one._what):
                return False, None
        return True, cls.waitall(requests, statuses)

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        return cls.testall(requests, statuses)[0]

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """Which one is done, and its object; UNDEFINED if none is under way."""
        open_ones = [one for one in requests if one]
        if not open_ones:
            return UNDEFINED, None
        mail = next((one._mail for one in open_ones if one._mail is not None), None)

        def first() -> int | None:
            done = (n for n, one in enumerate(requests) if one and (one._what is None or one._what.is_done))
            return next(done, None)

        if mail is not None:
            mail.wait_until(lambda: first() is not None, "Waitany")
        number = first()
        assert number is not None
        return number, requests[number].wait(status)

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        return cls.waitany(requests, status)[0]


def _as_many(statuses: list[Status] | None, requests: Sequence[Request]) -> Sequence[Status | None]:
    if statuses is None:
        return [None] * len(requests)
    if len(statuses) < len(requests):
        raise ConfigError(f"{len(statuses)} statuses for {len(requests)} requests: give one for each")
    return statuses[: len(requests)]
