"""The door of congestion controls, and what one is: a file with a `Control`.

    def on_notification(qp, now_ps, table): qp.rate = max(qp.rate / 2, 0.01)          a receiver: the network is full
    def on_timer(qp, now_ps, table): qp.rate = min(qp.rate + 0.05, 1.0); return True   every qp.step_ps after that
    HALVING = Control(name="halving", networks=(Network.ROCE,), prepare=prepare, on_notification=..., on_timer=...)

The functions are kernels: the packet engine compiles them, keeps them, and calls them with one queue pair (its record,
`weft.sim.layout.records.QP`), the time, and a table of numbers that `prepare` made. They change the queue pair alone:
`qp.rate` is the part of the line at which it may send, `qp.window_packets` the packets that it may have in flight on a
network that drops. What they call in turn is marked with `weft.jit.part`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.plugins import Door

if TYPE_CHECKING:
    from weft.fabric.model import Fabric

NEVER_BYTES = 1 << 60  # no queue is so long
Kernel = Callable[[Any, int, Any], Any]  # of queue pair, time and table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ports:
    """What a control may want to know of the network before it begins."""

    fabric: Fabric
    slot: NDArray[np.int64]  # [port] -> of the fabric
    rate_gbit_s: NDArray[np.float64]  # [port]
    pause_bytes: NDArray[np.int64]  # [port] -> that an input holds before it pauses, where there are pauses
    room_bytes: int  # of the largest input buffer

    @property
    def line_gbit_s(self) -> float:
        return float(self.rate_gbit_s.max())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parameters:
    """How switches mark, how often receivers tell of it, and what the functions look up."""

    marks: NDArray[np.int64] | None = None  # as `State.marks` has them; None: nothing is marked
    notify_ps: int = 0  # between two notifications to one sender, at least
    table: NDArray[np.float64] = field(default_factory=lambda: np.ones(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A congestion control. What it does not say does not happen."""

    name: str
    networks: tuple[str, ...]  # that it is for
    prepare: Callable[[Ports, Any], Parameters] = lambda _ports, _qps: Parameters()  # may set fields of the queue pairs
    on_notification: Kernel | None = None  # a receiver tells that a packet was marked
    on_timer: Kernel | None = None  # from then on every qp.step_ps, while the rate is below 1 and it returns True
    on_ack: Kernel | None = None  # qp.newly_acked packets have arrived; in flight are what was before
    on_loss: Kernel | None = None  # on a network that drops: once for all that was in flight
    on_timeout: Kernel | None = None  # there: nothing was heard for long

    def __post_init__(self) -> None:
        windows = (self.on_ack, self.on_loss, self.on_timeout)
        if "tcp" in self.networks and None in windows:
            raise ConfigError(f"congestion control {self.name} is for tcp: it needs on_ack, on_loss and on_timeout")


_HERE = "weft.sim.packet.congestion"
CONTROLS: Door[Control] = Door(
    "weft.congestion",
    {
        # Nothing beyond what the transport does of its own accord: TCP's is reno.
        "none": Control(name="none", networks=("infiniband", "omni-path", "roce", "roce-v1")),
        "ib": f"{_HERE}.ib:IB",
        "dcqcn": f"{_HERE}.dcqcn:DCQCN",
        "reno": f"{_HERE}.reno:RENO",
    },
    "a weft.sim.congestion.Control of this name",
    lambda name, thing: isinstance(thing, Control) and thing.name == name,
)
