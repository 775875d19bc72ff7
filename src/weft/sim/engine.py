"""The options of an engine of `sim`, which runs traffic over a fabric and returns when each message arrived (`result`).

    result = PacketEngine().run(route(weft.load("star:hosts=4")).fabric, traffic, Options(seed=1))

Engines use the forwarding tables that the fabric carries, from weft, OpenSM or a real cluster, and never change them.
Every engine must pass the conformance tests in `tests/conformance/sim.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from weft.errors import ConfigError, UnknownName
from weft.sim.adaptive import POLICIES
from weft.sim.congestion import CONTROLS
from weft.sim.link_faults import parse_link_fault

Progress = Callable[[int, int], None]  # messages delivered, messages in all


class Network(enum.StrEnum):
    """The rules of a network: flow control, path selection, and behaviour when buffers are full."""

    INFINIBAND = "infiniband"  # credits, forwarding tables
    OMNI_PATH = "omni-path"  # credits too, other headers and adapters
    ROCE = "roce"  # RoCEv2: pause frames, ECN, DCQCN, ECMP
    ROCE_V1 = "roce-v1"  # the same in plain Ethernet frames: it cannot cross a router
    SPECTRUM_X = "spectrum-x"  # RoCE whose switches choose the path of each packet: adaptive routing
    UET = "uet"  # Ultra Ethernet: trimming, NSCC, entropies chosen by the sender
    MRC = "mrc"  # multipath RoCE: the same with RoCE's headers, by the bitmap
    SRD = "srd"  # Amazon's scalable reliable datagrams: the same without trimming, by REPS
    TCP = "tcp"  # drop-tail, windows, kernel copies, ECMP


class Paths(enum.StrEnum):
    """The choice of paths. Plugins add others: `weft.sim.adaptive`."""

    TABLE = "table"  # the one port of the forwarding table
    MINIMAL = "minimal"  # the same, under the name used with dragonflies
    VALIANT = "valiant"  # by a random intermediate switch: `weft.routing.detours`
    UGAL = "ugal"  # minimal or by an intermediate switch, by the queues at the first switch
    PAR = "par"  # the same, and switches on the minimal path decide again
    LMC = "lmc"  # the table, with a LID of the destination that the sender chooses for each message
    # the port of the group with the shortest queue, for each packet; adapters place packets out of order
    ADAPTIVE = "adaptive"
    ECMP = "ecmp"  # a hash of the flow picks from the group
    SPRAY = "spray"  # a random port of the group, for each packet
    OBLIVIOUS = "oblivious"  # these are of UET: ECMP by an entropy that the sender gives each packet, in turn
    BITMAP = "bitmap"  # in turn, without those of marked, trimmed and lost packets
    REPS = "reps"  # those that acknowledgements bring back without a mark
    MIXED = "mixed"  # the same, or else by the bitmap


class FullQueue(enum.StrEnum):
    """The behaviour of a full switch queue of Ultra Ethernet."""

    TRIM = "trim"  # it leaves only the header of a packet, and the receiver asks for it again
    DROP = "drop"
    CREDITS = "credits"  # it is never full: credit-based flow control on each link


class Switching(enum.StrEnum):
    CUT_THROUGH = "cut-through"
    STORE_AND_FORWARD = "store-and-forward"


class Crossbar(enum.StrEnum):
    """The crossbar of a switch."""

    OUTPUT_QUEUED = "output-queued"  # reads any packets of an input at once
    ONE_READ_PORT = "one-read-port"  # reads the packets of an input, on each VL, one after the other


class PlaneChoice(enum.StrEnum):
    """The unit of traffic that takes one plane of an adapter port (`weft.sim.planes`)."""

    PACKET = "packet"  # packets take turns
    MESSAGE = "message"  # messages of an adapter take turns
    QUEUE_PAIR = "queue-pair"  # by a hash


class CongestionControl(enum.StrEnum):
    """The built-in congestion controls. Plugins add others: `weft.sim.congestion.CONTROLS`."""

    NONE = "none"
    IB = "ib"  # FECN, BECN and the congestion control table of Annex A10
    DCQCN = "dcqcn"
    SPECTRUM_X = "spectrum-x"  # DCQCN, with marks only in front of receivers
    HPCC = "hpcc"  # by in-band telemetry
    SWIFT = "swift"  # by round trips, as TIMELY
    TIMELY = "timely"
    CREDITS = "credits"  # of the receiver
    RENO = "reno"  # TCP's
    DCTCP = "dctcp"  # TCP's with ECN
    NSCC = "nscc"  # Ultra Ethernet's: a window of the sender, by round trips and marks
    RCCC = "rccc"  # Ultra Ethernet's: credits of the receiver
    NSCC_RCCC = "nscc-rccc"  # both


class Memory(enum.StrEnum):
    """The memory that holds the payload at both ends."""

    HOST = "host"
    GPUDIRECT = "gpudirect"  # the adapter reads and writes GPU memory
    STAGED = "staged"  # GPU memory, copied through host memory on both sides


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run. The result contains them with every default filled in."""

    seed: int = 1
    network: Network | None = None  # None: by the links; Ethernet means RoCEv2
    paths: str | None = None  # None: the table on InfiniBand and Omni-Path, mixed on UET, ECMP on other Ethernet
    plane_choice: PlaneChoice | None = None  # None: packet, on adapters with several planes
    full_queue: FullQueue | None = None  # UET; None: trim
    link_retry: bool = False  # UET: a link sends packets with bit errors again
    ack_every_bytes: int = 0  # UET: received without an acknowledgement; 0: 16 KiB
    in_order: bool = False  # adapters place packets in order only: one that overtakes another looks like a loss
    switching: Switching = Switching.CUT_THROUGH
    crossbar: Crossbar = Crossbar.OUTPUT_QUEUED
    congestion_control: str | None = None  # None: DCQCN on RoCE, NSCC on UET, else none
    memory: Memory = Memory.HOST
    routed: bool = False  # Ethernet: each switch is an IP router and each leaf a subnet, as in most large Clos networks
    mtu_bytes: int = 0  # payload of a packet; 0: 4096, TCP 8960, Omni-Path 8192
    buffer_bytes: int = 0  # input buffer of a port for each VL; 0: two round trips of the link and four packets
    skip_tolerance: float = 0.0  # extrapolate rates that are steady within this fraction; 0: simulate every packet
    ack_timeout_exponent: int = 14  # RC timeout, 4.096 µs × 2 to this power, as in `ibv_modify_qp`
    faults: tuple[str, ...] = ()  # of links during the run: `cut:leaf1/33@20us-80us` (`weft.sim.link_faults`)
    watch: tuple[str, ...] = ()  # ports whose output queue is sampled: `leaf1/3`
    watch_every_ps: int = 1_000_000
    capture: tuple[str, ...] = ()  # ports whose packets are recorded, in both directions of their cables
    threads: int = 0  # of the packet engine, which never change a result; 0: all cores where several can run
    stop_at_ps: int = 0  # end the run then, finished or not; 0: when all messages have arrived

    def __post_init__(self) -> None:
        for name, builtin, registry in (
            ("network", Network, ()),
            ("paths", Paths, POLICIES),
            ("plane_choice", PlaneChoice, ()),
            ("full_queue", FullQueue, ()),
            ("switching", Switching, ()),
            ("crossbar", Crossbar, ()),
            ("congestion_control", CongestionControl, CONTROLS),
            ("memory", Memory, ()),
        ):
            value = getattr(self, name)
            if value in list(builtin):
                object.__setattr__(self, name, builtin(value))
            elif value is not None and value not in registry:
                raise UnknownName(f"{name.replace('_', ' ')}", str(value), list(registry or builtin))
        for fault in self.faults:
            parse_link_fault(fault)
        if self.seed < 0:
            raise ConfigError(f"--seed must be 0 or more, got {self.seed}")
        for name, low, high, why in (
            ("mtu_bytes", 0, 65_536, "256 to 4096 on InfiniBand, 0 for the usual one"),
            ("ack_every_bytes", 0, 1 << 20, "0 for 16 KiB"),
            ("buffer_bytes", 0, 1 << 30, "0 for two round trips of the link"),
            ("skip_tolerance", 0, 0.5, "0 runs every packet"),
            ("ack_timeout_exponent", 1, 31, "the field has 5 bits"),
            ("watch_every_ps", 1, 1 << 50, "picoseconds"),
            ("threads", 0, 1024, "0 for all cores"),
            ("stop_at_ps", 0, 1 << 52, "picoseconds"),
        ):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} = {getattr(self, name)} must be {low} to {high} ({why})")
