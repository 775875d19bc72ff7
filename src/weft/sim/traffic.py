"""Traffic: messages with sizes, start times and dependencies, as columns.

    traffic = Traffic.of(fabric, [("h1", "h2", 1 << 20), ("h3", "h2", 1 << 20)])
    traffic = patterns.permutation(fabric, size_bytes=2_000_000, seed=1)

A message starts at `start_ps`, or, if it waits for others, `delay_ps` after the last of them was delivered. Messages
of one sender and receiver with the same queue pair number go in the order in which they start.
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
    WRITE = 0  # RDMA write: data to the receiver, which does not notice
    SEND = 1  # the receiver posted a buffer
    READ = 2  # RDMA read: a request goes out, the data comes back to the sender of the request


class Transport(enum.IntEnum):
    RC = 0  # reliable connection: acknowledged, retransmitted
    UC = 1  # unreliable connection: neither
    UD = 2  # unreliable datagram: neither, one packet at most; to a group as many as the message has


PATH_SL = -1  # the service level that the subnet manager gives for the path


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """One row for each message."""

    description: str
    src: NDArray[np.int32]  # port slot in the fabric
    dst: NDArray[np.int32]
    size_bytes: NDArray[np.int64]
    start_ps: NDArray[np.int64]
    delay_ps: NDArray[np.int64]  # after the last of those it waits for
    sl: NDArray[np.int8]  # PATH_SL: as the path says
    operation: NDArray[np.int8]
    transport: NDArray[np.int8]
    qp: NDArray[np.int32]  # a number that tells queue pairs of one sender and receiver apart
    mlid: NDArray[np.int32]  # of the group that it is for, whose `dst` is the sender itself; 0: for one receiver
    after_first: NDArray[np.int64]  # [message + 1] -> where its part of `after` begins
    after: NDArray[np.int32]  # messages that must be delivered before
    outstanding: int = 0  # messages that a queue pair may have unacknowledged; 0: any number

    def __len__(self) -> int:
        return len(self.src)

    def take(self, rows: NDArray[np.bool_]) -> Traffic:
        """Some of the messages, of traffic in which none waits for another."""
        if len(self.after):
            raise ConfigError(f"messages of {self.description} wait for each other: none of them can be left out")
        columns = (field.name for field in fields(self) if field.name not in ("description", "outstanding"))
        taken = {name: getattr(self, name)[rows] for name in columns if not name.startswith("after")}
        return replace(self, **taken, after_first=np.zeros(int(rows.sum()) + 1, np.int64))

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
        after: Sequence[Sequence[int]] | tuple[NDArray[np.int64], NDArray[np.int32]] = (),
        outstanding: int = 0,
    ) -> Traffic:
        """From port slots. A single value stands for all messages; `after` is a list for each, or CSR arrays."""
        sources = np.atleast_1d(np.asarray(src, np.int32))
        n = len(sources)

        def column(value: ArrayLike, dtype: Any) -> NDArray[Any]:
            return np.ascontiguousarray(np.broadcast_to(np.asarray(value, dtype), n))

        if isinstance(after, tuple) and len(after) == 2 and isinstance(after[0], np.ndarray):
            first, flat = after[0].astype(np.int64), np.asarray(after[1], np.int32)
        else:
            lists: list[Sequence[int]] = [list(one) for one in after] or [[]] * n
            first = np.concatenate(([0], np.cumsum([len(one) for one in lists]))).astype(np.int64)
            flat = np.array([i for one in lists for i in one], np.int32)
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
            after_first=first,
            after=flat,
            outstanding=outstanding,
        )

    @classmethod
    def of(cls, fabric: Fabric, messages: Iterable[tuple[str, str, int]], **columns: Any) -> Traffic:
        """From (sender, receiver, bytes) by name; the other columns as `make` takes them."""
        rows = list(messages)
        src = [find_host_port(fabric, sender) for sender, _, _ in rows]
        dst = [find_host_port(fabric, receiver) for _, receiver, _ in rows]
        return cls.make(src, dst, [size for _, _, size in rows], **columns)


def find_host_port(fabric: Fabric, name: str) -> int:
    """The slot of the port that a name means: a port, an adapter or a server's first adapter with a network cable."""
    thing = fabric[name]
    if isinstance(thing, Port):
        slots = [thing.slot]
    else:
        nodes = [thing] if isinstance(thing, Node) else list(thing.nodes) if isinstance(thing, Server) else []
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
