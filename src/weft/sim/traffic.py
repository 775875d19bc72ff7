"""Traffic: messages with sizes, start times and dependencies, stored as columns.

    traffic = Traffic.of(fabric, [("h1", "h2", 1 << 20), ("h3", "h2", 1 << 20)])
    traffic = patterns.permutation(fabric, size_bytes=2_000_000, seed=1)

A message starts at `start_ps`, or, if it waits for others, `delay_ps` after the last of them was delivered. Messages
with the same sender, receiver and queue pair number are sent in the order of their start. Switches that reduce (SHARP)
add the messages of one `reduction`; each has arrived when its sender has the result.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.views import Node, Port, Server


class Operation(enum.IntEnum):
    WRITE = 0  # RDMA write: data to the receiver, without a receive request there
    SEND = 1  # uses a receive buffer that the receiver has posted
    READ = 2  # RDMA read: a request to the receiver, whose data comes back


class Transport(enum.IntEnum):
    RC = 0  # reliable connection: acknowledged, retransmitted
    UC = 1  # unreliable connection: neither
    UD = 2  # unreliable datagram: neither; at most one packet, except to a multicast group


PATH_SL = -1  # the service level that the subnet manager assigned to the path


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """A set of messages, one row each."""

    description: str
    src: NDArray[np.int32]  # port slot in the fabric
    dst: NDArray[np.int32]
    size_bytes: NDArray[np.int64]
    start_ps: NDArray[np.int64]
    delay_ps: NDArray[np.int64]  # after the last message that it waits for
    sl: NDArray[np.int8]  # PATH_SL: that of the path
    operation: NDArray[np.int8]
    transport: NDArray[np.int8]
    qp: NDArray[np.int32]  # distinguishes queue pairs of one sender and receiver
    mlid: NDArray[np.int32]  # multicast group, with `dst` = `src`; 0: unicast
    reduction: NDArray[np.int32]  # switches add all messages of one number, with `dst` = `src`; 0: none
    after_first: NDArray[np.int64]  # [message + 1] -> index of its first entry in `after`
    after: NDArray[np.int32]  # messages that must be delivered first
    outstanding: int = 0  # messages that a queue pair may have unacknowledged; 0: no limit

    def __len__(self) -> int:
        return len(self.src)

    def take(self, rows: NDArray[np.bool_]) -> Traffic:
        """Return some of the messages. Raise ConfigError if messages depend on each other."""
        if len(self.after):
            raise ConfigError(f"messages of {self.description} wait for each other, so none can be left out")
        columns = (field.name for field in fields(self) if field.name not in ("description", "outstanding"))
        columns_of_rows = {name: getattr(self, name)[rows] for name in columns if not name.startswith("after")}
        return replace(self, **columns_of_rows, after_first=np.zeros(int(rows.sum()) + 1, np.int64))

    @property
    def total_bytes(self) -> int:
        return int(self.size_bytes.sum())

    @classmethod
    def make(
        cls,
        src: ArrayLike,
        dst: ArrayLike,
        size_bytes: ArrayLike,
        *,
        description: str = "",
        start_ps: ArrayLike = 0,
        delay_ps: ArrayLike = 0,
        sl: ArrayLike = PATH_SL,
        operation: ArrayLike = Operation.WRITE,
        transport: ArrayLike = Transport.RC,
        qp: ArrayLike = 0,
        mlid: ArrayLike = 0,
        reduction: ArrayLike = 0,
        after: Sequence[Sequence[int]] | tuple[NDArray[np.int64], NDArray[np.int32]] = (),
        outstanding: int = 0,
    ) -> Traffic:
        """Make traffic from port slots.

        A scalar applies to all messages; `after` is a list per message, or CSR arrays.
        """
        sources = np.atleast_1d(np.asarray(src, np.int32))
        n = len(sources)

        def column(value: ArrayLike, dtype: Any) -> NDArray[Any]:
            return np.ascontiguousarray(np.broadcast_to(np.asarray(value, dtype), n))

        if isinstance(after, tuple) and len(after) == 2 and isinstance(after[0], np.ndarray):
            first, flat = after[0].astype(np.int64), np.asarray(after[1], np.int32)
        else:
            lists: list[Sequence[int]] = [list(waits_for) for waits_for in after] or [[]] * n
            first = np.concatenate(([0], np.cumsum(list(map(len, lists))))).astype(np.int64)
            flat = np.array([message for waits_for in lists for message in waits_for], np.int32)
        return cls(
            description=description,
            src=sources,
            dst=column(dst, np.int32),
            size_bytes=column(size_bytes, np.int64),
            start_ps=column(start_ps, np.int64),
            delay_ps=column(delay_ps, np.int64),
            sl=column(sl, np.int8),
            operation=column(operation, np.int8),
            transport=column(transport, np.int8),
            qp=column(qp, np.int32),
            mlid=column(mlid, np.int32),
            reduction=column(reduction, np.int32),
            after_first=first,
            after=flat,
            outstanding=outstanding,
        )

    @classmethod
    def of(cls, fabric: Fabric, messages: Iterable[tuple[str, str, int]], **columns: Any) -> Traffic:
        """Make traffic from (sender, receiver, bytes) by name; the other columns are those of `make`."""
        rows = list(messages)
        names = dict.fromkeys(name for sender, receiver, _ in rows for name in (sender, receiver))
        slots = {name: find_host_port(fabric, name) for name in names}
        src, dst = [slots[sender] for sender, _, _ in rows], [slots[receiver] for _, receiver, _ in rows]
        return cls.make(src, dst, [size for _, _, size in rows], **columns)


def find_host_port(fabric: Fabric, name: str) -> int:
    """Return the slot of a host port by name: a port, an adapter, or a server's first adapter with a network cable."""
    node_or_port = fabric[name]
    if isinstance(node_or_port, Port):
        slots = [node_or_port.slot]
    else:
        nodes = (
            [node_or_port]
            if isinstance(node_or_port, Node)
            else list(node_or_port.nodes)
            if isinstance(node_or_port, Server)
            else []
        )
        slots = [port.slot for node in nodes for port in node.ports]
    for slot in slots:
        link = fabric.ports.link[slot]
        kind = fabric.nodes.kind[fabric.ports.node[slot]]
        if link >= 0 and fabric.network_links[link] and kind in (NodeKind.HCA, NodeKind.ROUTER):
            return slot
    raise ConfigError(
        f"{name} cannot send or receive: it has no adapter port with a network cable; "
        f"give a server, an adapter or a port of one"
    )
