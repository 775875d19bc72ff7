"""What an engine of `sim` is asked with; it runs traffic over a fabric and says when everything arrived (`result`).

    result = PacketEngine().run(route(weft.load("star:hosts=4")).fabric, traffic, Options(seed=1))

Engines never touch the forwarding tables: they run those that the fabric carries, weft's, OpenSM's or a real cluster's.
`tests/conformance/sim.py` holds the suite that every engine must pass.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from weft.errors import ConfigError, UnknownName
from weft.sim.adaptive import POLICIES
from weft.sim.congestion import CONTROLS

Progress = Callable[[int, int], None]  # messages delivered, messages in all


class Network(enum.StrEnum):
    """The rules of the network: who may send, which way, and what happens when it is full."""

    INFINIBAND = "infiniband"  # credits, forwarding tables
    OMNI_PATH = "omni-path"  # credits too, other headers and adapters
    ROCE = "roce"  # RoCEv2: pause frames, ECN, DCQCN, ECMP
    ROCE_V1 = "roce-v1"  # the same in bare Ethernet frames: it cannot cross a router
    TCP = "tcp"  # drop-tail, windows, kernel copies, ECMP


class Paths(enum.StrEnum):
    """How a switch picks among the ports that lead to a destination. There may be other ways: `weft.sim.adaptive`."""

    TABLE = "table"  # the one port of the forwarding table
    ADAPTIVE = "adaptive"  # the emptiest port of the group, packet by packet; adapters place out of order
    ECMP = "ecmp"  # a hash of the flow picks from the group
    SPRAY = "spray"  # any port of the group, packet by packet


class Switching(enum.StrEnum):
    CUT_THROUGH = "cut-through"
    STORE_AND_FORWARD = "store-and-forward"


class CongestionControl(enum.StrEnum):
    """weft's own; there may be others behind the door, `weft.sim.congestion.CONTROLS`."""

    NONE = "none"
    IB = "ib"  # FECN, BECN and the congestion control table of Annex A10
    DCQCN = "dcqcn"
    RENO = "reno"  # TCP's


class Memory(enum.StrEnum):
    """Where the payload lies at both ends."""

    HOST = "host"
    GPUDIRECT = "gpudirect"  # the adapter reads and writes GPU memory
    STAGED = "staged"  # GPU memory, copied through host memory on both sides


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run. Returned in the result with every default filled in."""

    seed: int = 1
    network: Network | None = None  # None: as the links speak; Ethernet is RoCEv2
    paths: str | None = None  # None: the table on InfiniBand and Omni-Path, ECMP on Ethernet
    switching: Switching = Switching.CUT_THROUGH
    congestion_control: str | None = None  # None: DCQCN on RoCE, else none
    memory: Memory = Memory.HOST
    routed: bool = False  # Ethernet: the switches are IP routers, a subnet ends at its leaf, as in most large Clos
    mtu_bytes: int = 0  # payload of a packet; 0: 4096, TCP 8960, Omni-Path 8192
    buffer_bytes: int = 0  # input buffer of a port for each VL; 0: two round trips of the link and four packets
    skip_tolerance: float = 0.0  # rates steady within this part are carried forward; 0: every packet is run
    ack_timeout_exponent: int = 14  # of RC: 4.096 µs × 2 to this power, as `ibv_modify_qp` takes it
    watch: tuple[str, ...] = ()  # ports whose output queue is sampled, `leaf1/3`
    watch_every_ps: int = 1_000_000
    stop_at_ps: int = 0  # end the run then, finished or not; 0: when all has arrived

    def __post_init__(self) -> None:
        for name, kind, door in (
            ("network", Network, ()),
            ("paths", Paths, POLICIES),
            ("switching", Switching, ()),
            ("congestion_control", CongestionControl, CONTROLS),
            ("memory", Memory, ()),
        ):
            given = getattr(self, name)
            if given in list(kind):
                object.__setattr__(self, name, kind(given))
            elif given is not None and given not in door:
                raise UnknownName(f"kind of {name.replace('_', ' ')}", str(given), list(door or kind))
        for name, low, high, why in (
            ("mtu_bytes", 0, 65_536, "256 to 4096 on InfiniBand, 0 for the usual one"),
            ("buffer_bytes", 0, 1 << 30, "0 for two round trips of the link"),
            ("skip_tolerance", 0, 0.5, "0 runs every packet"),
            ("ack_timeout_exponent", 1, 31, "the field has 5 bits"),
            ("watch_every_ps", 1, 1 << 50, "picoseconds"),
            ("stop_at_ps", 0, 1 << 52, "picoseconds"),
        ):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} {getattr(self, name)} is not from {low} to {high}: {why}")
