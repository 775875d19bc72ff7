"""The costs that MPI adds to a message.

    eager        the data goes at once: copied into a buffer of the library, and out of one at the other end
    rendezvous   a request goes first; the receiver answers, or reads the data itself. Nothing is copied, but the
                 memory of both must be registered: kept in a cache, as all libraries do, or paid for every time.
                 Over EFA the receiver grants one window of the data after the other

    |-- send_us + copy --|------- link -------|-- receive_us + copy --|                                    eager
    |-- send_us --|- link of a request -|- rendezvous_us -|------- link -------|-- receive_us --|          rendezvous

Inside a node the link is shared memory, whose bandwidth all processes of the node share; without it, the adapter, which
sends to itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.collectives.mpi.interconnect import Interconnect
from weft.collectives.mpi.times import MpiTimes, times
from weft.errors import find_named
from weft.sim.engine import Network

Floats = NDArray[np.float64]
SRD = "SRD"  # EFA's transport
_MAPPED = frozenset(("posix", "sysv", "xpmem"))  # shared memory that carries any message; cma and knem only long ones
_RDMA = (
    "rc",
    "rc_x",
    "rc_v",
    "rc_mlx5",
    "rc_verbs",
    "ud",
    "ud_x",
    "ud_v",
    "ud_mlx5",
    "ud_verbs",
    "dc",
    "dc_x",
    "dc_mlx5",
)
_NETWORKS = ("ib", *_RDMA, "tcp")
_TLS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("all", "sm", "shm", "mm"), _MAPPED),
    **{each: frozenset((each,)) for each in sorted(_MAPPED)},
    **dict.fromkeys((*_NETWORKS, "self", "cma", "knem", "rdmacm"), frozenset[str]()),
}


def loopback(ucx_tls: str) -> bool:
    """Return whether these transports, in the syntax of UCX_TLS, exclude shared memory."""
    if not ucx_tls:
        return False
    names = ucx_tls.removeprefix("^").split(",")
    named = frozenset[str]().union(*(find_named("transport of UCX_TLS", each, _TLS) for each in names))
    return named == _MAPPED if ucx_tls.startswith("^") else not named


def uses_datagrams(ucx_tls: str, n_ranks: int) -> bool:
    """Return whether UCX sends by datagrams: so many ranks, and no dynamically connected transport (dc)."""
    if not ucx_tls or n_ranks <= times().datagrams.most_connected:
        return False
    kinds = {name.split("_")[0] for name in ucx_tls.lower().removeprefix("^").split(",")}
    if ucx_tls.startswith("^"):
        return "dc" in kinds and not kinds & {"ud", "ib"}
    return "ud" in kinds and not kinds & {"dc", "ib", "all"}


def reaches_others(ucx_tls: str) -> bool:
    """Return whether one of these transports leaves the node."""
    return not ucx_tls or ucx_tls.startswith("^") or bool({"all", *_NETWORKS} & {*ucx_tls.lower().split(",")})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cost:
    """The costs of messages, a row for each, in microseconds."""

    send: Floats  # the sender is busy
    request: Floats  # until a request is there; 0: the data goes at once
    ready: Floats  # both ends, after the request and when the receiver is ready
    flight: Floats  # transfer of the data
    receive: Floats  # the receiver is busy

    @property
    def total(self) -> Floats:
        """Return the time of a message alone, with the receiver waiting."""
        return self.send + self.request + self.ready + self.flight + self.receive


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The message rules of a library."""

    eager_bytes: int
    tcp_eager_bytes: int
    handshakes: int
    cached: bool = True  # registered memory is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The costs of messages over a network, and inside its nodes."""

    interconnect: Interconnect
    rules: Rules
    loopback: bool = False  # no shared memory: the processes of a node talk through its adapter

    def between(self, size_bytes: Floats, more_us: Floats | float = 0.0, us_per_byte: Floats | float = 0.0) -> Cost:
        """Return the cost over the network; `more_us` and `us_per_byte` are added by the path and by contention."""
        constants = times()
        flight = self.interconnect.lone_us(size_bytes) + more_us + size_bytes * us_per_byte
        request = np.asarray(self.interconnect.lone_us(1.0)) + more_us
        if self.interconnect.network is Network.TCP:
            return self._over_tcp(constants, size_bytes, flight, request)
        if self.interconnect.carrier == SRD:
            return self._over_srd(constants, size_bytes, flight, request)
        message = constants.message
        eager = size_bytes <= self.rules.eager_bytes
        piece = np.where(eager, np.minimum(size_bytes, message.copy_bytes), 0) / message.copy_gbyte_s / 1e3
        stream = 1 / constants.stream_gbyte_s(self.interconnect.adapter) / 1e3
        slower = np.maximum(stream - self.interconnect.us_per_byte - us_per_byte, 0.0)
        rest = np.where(eager, np.maximum(size_bytes - message.copy_bytes, 0), 0) * slower
        registered = 0.0 if self.rules.cached else 1.0
        register = registered * (
            constants.registration.overhead_us + size_bytes * constants.registration.ns_per_byte / 1e3
        )
        return Cost(
            send=message.send_us + piece + np.where(eager, 0.0, register),
            request=np.where(eager, 0.0, self.rules.handshakes * request),
            ready=np.where(eager, 0.0, message.rendezvous_us + register),
            flight=flight,
            receive=message.receive_us + piece + rest,
        )

    def _over_tcp(self, constants: MpiTimes, size_bytes: Floats, flight: Floats, request: Floats) -> Cost:
        tcp = constants.tcp
        eager = size_bytes <= self.rules.tcp_eager_bytes
        copied = np.where(eager, size_bytes, 0.0) / tcp.copy_gbyte_s / 1e3
        return Cost(
            send=tcp.send_us + copied / 2,
            request=np.where(eager, 0.0, request),
            ready=np.where(eager, 0.0, request + tcp.rendezvous_us),
            flight=flight,
            receive=tcp.receive_us + copied / 2,
        )

    def _over_srd(self, constants: MpiTimes, size_bytes: Floats, flight: Floats, request: Floats) -> Cost:
        """Return the cost over EFA: beyond the eager limit the receiver grants one window after the other."""
        message, srd = constants.message, constants.srd
        eager = size_bytes <= srd.eager_bytes
        n_windows = np.ceil(size_bytes / srd.window_bytes)
        copied = np.where(eager, np.minimum(size_bytes, message.copy_bytes), 0) / message.copy_gbyte_s / 1e3
        return Cost(
            send=message.send_us + copied,
            request=np.where(eager, 0.0, request),
            ready=np.where(eager, 0.0, request),
            flight=flight + np.where(eager, 0.0, (n_windows - 1) * 2 * request),
            receive=message.receive_us + copied,
        )

    def inside(self, size_bytes: Floats, sharing: Floats | float = 1.0) -> Cost:
        """Return the cost in shared memory, with `sharing` messages of a node at a time."""
        shared = times().shared
        eager = size_bytes <= shared.eager_bytes
        us_per_byte = np.maximum(1 / shared.core_gbyte_s, np.asarray(sharing) / shared.node_gbyte_s) / 1e3
        crowd_us = (np.asarray(sharing) - 1) * shared.crowd_ns / 1e3
        none = np.zeros_like(size_bytes)
        copied_us = np.where(eager, size_bytes, 0.0) / times().message.copy_gbyte_s / 1e3  # into the shared buffer
        return Cost(
            send=shared.send_us + copied_us,
            request=np.where(eager, 0.0, shared.flight_us),
            ready=np.where(eager, 0.0, shared.rendezvous_us),
            flight=shared.flight_us + crowd_us + size_bytes * us_per_byte,
            receive=shared.receive_us + none,
        )
