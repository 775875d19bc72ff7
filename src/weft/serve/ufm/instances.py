"""Dynamic telemetry instances: named selections of counters and ports, served as CSV.

    POST app/telemetry/instances/pdr_dynamic {"counters": [...], "requested_guids": [{"guid": ..., "ports": [1, 2]}]}
    GET  http://HOST:PORT/csv/xcset/pdr_dynamic

UFM starts a process for each. Here the service's monitor reads all counters, so an instance is a selection.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.serve.desired import ConflictError, NotFoundError
from weft.serve.ufm.counters import COUNTERS, find_counter
from weft.serve.ufm.telemetry import Selection

_MOST = 100
_Name = Annotated[str, msgspec.Meta(max_length=100)]


class RequestedPorts(msgspec.Struct, kw_only=True):
    """The requested ports of a node."""

    guid: _Name  # node GUID
    ports: Annotated[list[int], msgspec.Meta(max_length=1000)]


class InstanceOrder(msgspec.Struct, kw_only=True):
    """A request for an instance. Its sampling interval is ignored: the monitor samples once a second."""

    counters: Annotated[list[_Name], msgspec.Meta(max_length=500)] | None = None
    requested_guids: Annotated[list[RequestedPorts], msgspec.Meta(max_length=100_000)] | None = None
    sample_rate: float | None = None
    configuration: dict[str, Any] = {}
    base_config: str = ""
    ttl: str = ""
    is_registered_discovery: bool = False
    is_async: bool = False


class Instances:
    """The running instances by name."""

    def __init__(self) -> None:
        self._started: dict[str, InstanceOrder] = {}

    def put(self, name: str, order: InstanceOrder) -> None:
        """Start or change an instance; a request without counters or ports keeps the current ones."""
        before = self._started.get(name)
        if before is None and len(self._started) >= _MOST:
            raise ConflictError(f"there are {_MOST} telemetry instances already: delete one first")
        if before is not None:
            order.counters = before.counters if order.counters is None else order.counters
            order.requested_guids = before.requested_guids if order.requested_guids is None else order.requested_guids
        _selection(order)
        self._started[name] = order

    def remove(self, name: str) -> None:
        self._started.pop(self._check(name))

    def selection(self, name: str) -> Selection:
        return _selection(self._started[self._check(name)])

    def names(self) -> list[str]:
        return list(self._started)

    def _check(self, name: str) -> str:
        if name not in self._started:
            raise NotFoundError(f"there is no telemetry instance {name[:100]!r}")
        return name


def _selection(order: InstanceOrder) -> Selection:
    counters = COUNTERS if order.counters is None else tuple(find_counter(name) for name in order.counters)
    if order.requested_guids is None:
        return Selection(counters)
    names = (
        f"{requested.guid.removeprefix('0x')}_{port}" for requested in order.requested_guids for port in requested.ports
    )
    return Selection(counters, frozenset(names))
