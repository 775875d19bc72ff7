"""The registry of congestion controls. A control is a module with a `Control`:

    def on_notification(qp, now_ps, table): qp.rate = max(qp.rate / 2, 0.01)          # on a CNP or BECN
    def on_timer(qp, now_ps, table): qp.rate = min(qp.rate + 0.05, 1.0); return True   # every qp.step_ps after it
    HALVING = Control(name="halving", networks=(Network.ROCE,), prepare=prepare, on_notification=..., on_timer=...)

The functions are kernels: the packet engine compiles them, caches them, and calls them with one queue pair (its record,
`weft.sim.layout.records.QP`), the time, and a table of numbers that `prepare` made. They change only the queue pair:
`qp.rate` is the share of the line rate at which it may send, `qp.window_packets` the number of packets that it may have
in flight on a network that drops. Mark functions that they call with `weft.jit.part`.

A control with `on_packet` has every packet of a reliable connection acknowledged, and is called with each
acknowledgement:

    def on_packet(qp, now_ps, table, fields, hops): qp.window_bytes = ...

`qp.rtt_ps` is the round trip of the packet, `qp.ecn_echo` whether a switch marked it, `qp.ack_psn` its number and
`qp.sent_psn` that of the next new packet, `qp.in_flight` the packets (of `qp.packet_bytes`) sent and not acknowledged.
`hops` has a record for each switch on the way of the packet (in-band telemetry): `queue_bytes`, `sent_bytes`,
`rate_gbit_s`, `time_ps`, `port`. `fields` has as many numbers of the queue pair's own as `Parameters.fields` says. The
function sets `qp.window_bytes`, the limit of the bytes in flight (0: none; one packet may always be in flight), or
`qp.rate`, or both; on TCP `qp.window_packets`. Data that an RDMA read returns is not acknowledged, so it is not
controlled.

A control with `on_arrival` too lets the receiving adapter decide when the acknowledgement of a packet leaves, so that
acknowledgements can be credits:

    def on_arrival(qp, now_ps, table, fields, hops): return 0    # picoseconds to wait

On Ultra Ethernet `on_packet` is called for ACKs of several packets, for NACKs and for timeouts: `qp.cause`
(`weft.sim.packet.uet.records.Cause`) says which. `qp.acked_bytes` have arrived, or were lost; `qp.rtt_ps` is 0 if
the packet was sent more than once; there is no telemetry.

`fields` are numbers of the adapter, shared by all connections that it receives from: the packets of this message that
have not arrived, all packets of it, the bytes of a full one on the wire, then as many as `Parameters.receiver_fields`
says. The acknowledgement of the last packet of a message is never delayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.plugins import Registry

if TYPE_CHECKING:
    from weft.fabric.model import Fabric

NEVER_BYTES = 1 << 60  # longer than any queue
MILLION = 1_000_000  # shares of marked packets are in parts per million
Kernel = Callable[[Any, int, Any], Any]  # (queue pair, time, table)
PacketKernel = Callable[[Any, int, Any, Any, Any], Any]  # (queue pair, time, table, own fields, hops)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ports:
    """The network as a congestion control sees it when it prepares."""

    fabric: Fabric
    slot: NDArray[np.int64]  # [port] -> slot in the fabric
    rate_gbit_s: NDArray[np.float64]  # [port]
    pause_bytes: NDArray[np.int64]  # [port] -> fill level at which an input sends a pause frame
    room_bytes: int  # size of the largest input buffer
    network_rtt_ps: int = 0  # Ultra Ethernet: the longest round trip without queues
    trims: bool = False  # Ultra Ethernet: a full queue trims packets

    @property
    def line_gbit_s(self) -> float:
        return float(self.rate_gbit_s.max())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parameters:
    """The marking by switches, the notifications by receivers, and the table for the kernels."""

    marks: NDArray[np.int64] | None = None  # as in `State.marks`; None: no marking
    notify_ps: int = 0  # least time between two notifications to one sender
    table: NDArray[np.float64] = field(default_factory=lambda: np.ones(1))
    fields: int = 0  # numbers that each queue pair keeps for `on_packet`, at first 0
    receiver_fields: int = 0  # numbers that each adapter keeps for `on_arrival`, after the first three


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A congestion control. A hook that is None does nothing."""

    name: str
    networks: tuple[str, ...]  # networks that it supports
    prepare: Callable[[Ports, Any], Parameters] = lambda _ports, _qps: Parameters()  # may set fields of the queue pairs
    on_notification: Kernel | None = None  # a receiver reports a marked packet
    on_timer: Kernel | None = None  # then every qp.step_ps, while the rate is below 1 and it returns True
    on_ack: Kernel | None = None  # qp.newly_acked packets were acknowledged; `in flight` still includes them
    on_loss: Kernel | None = None  # on a network that drops: once for all packets in flight
    on_timeout: Kernel | None = None  # on a network that drops: no acknowledgement within the timeout
    on_packet: PacketKernel | None = None  # each packet is acknowledged, with the telemetry of the switches
    on_arrival: PacketKernel | None = None  # at the receiver, with `on_packet`: how long the acknowledgement waits
    grants: bool = False  # Ultra Ethernet: receivers give credits

    def __post_init__(self) -> None:
        windows = (self.on_ack, self.on_loss, self.on_timeout)
        if "tcp" in self.networks and None in windows:
            raise ConfigError(f"congestion control {self.name} is for tcp: it needs on_ack, on_loss and on_timeout")
        if self.on_arrival is not None and (self.on_packet is None or "tcp" in self.networks):
            raise ConfigError(f"congestion control {self.name} has on_arrival: it needs on_packet, and is not for tcp")


_HERE = "weft.sim.packet.congestion"
CONTROLS: Registry[Control] = Registry(
    "weft.congestion",
    {
        # Only the transport's own mechanism; TCP's is reno.
        "none": Control(name="none", networks=("infiniband", "omni-path", "roce", "roce-v1")),
        "ib": f"{_HERE}.ib:IB",
        "dcqcn": f"{_HERE}.dcqcn:DCQCN",
        "spectrum-x": f"{_HERE}.dcqcn:SPECTRUM_X",
        "hpcc": f"{_HERE}.hpcc:HPCC",
        "swift": f"{_HERE}.swift:SWIFT",
        "timely": f"{_HERE}.timely:TIMELY",
        "credits": f"{_HERE}.credits:CREDITS",
        "reno": f"{_HERE}.reno:RENO",
        "dctcp": f"{_HERE}.dctcp:DCTCP",
        "nscc": f"{_HERE}.nscc:NSCC",
        "rccc": Control(name="rccc", networks=("uet",), grants=True),
        "nscc-rccc": f"{_HERE}.nscc:NSCC_RCCC",
    },
    "a weft.sim.congestion.Control of this name",
    lambda name, control: isinstance(control, Control) and control.name == name,
)
