"""The result of a run: when every message arrived, what every port did, and the run time."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from weft.fabric.counters import Counter
from weft.fabric.model import Fabric
from weft.fabric.notebook import render_with
from weft.sim.engine import Network, Options, Progress
from weft.sim.frames import Frames
from weft.sim.traffic import Traffic
from weft.sim.trust import Trust, find_trust
from weft.version import __version__
from weft.wire.crc import VCRC_BYTES

NEVER = -1  # the time of an event that did not happen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PortUse:
    """The activity of every port slot of the fabric. Bytes are those on the wire, including headers."""

    xmit_bytes: NDArray[np.int64]
    xmit_packets: NDArray[np.int64]
    busy_ps: NDArray[np.int64]  # time spent sending
    xmit_wait_ps: NDArray[np.int64]  # had packets to send, but no credit or was paused
    queue_peak_bytes: NDArray[np.int64]  # largest amount queued for the port
    buffer_peak_bytes: NDArray[np.int64]  # largest fill of the input buffer of one VL
    corrupted_packets: NDArray[np.int64]  # arrived with a bit error and were dropped
    dropped_packets: NDArray[np.int64]  # dropped because the output queue was full or the cable was cut
    trimmed_packets: NDArray[np.int64]  # trimmed to their header because the output queue was full (UET)
    marked_packets: NDArray[np.int64]  # FECN or ECN set here
    pauses: NDArray[np.int64]  # pause frames sent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupUse:
    """The multicast part of the port use, by port slot. Packets on the wire at the end of the run are not included."""

    xmit_packets: NDArray[np.int64]
    rcv_packets: NDArray[np.int64]
    copies: NDArray[np.int64]  # datagrams accepted by an adapter port, or by port 0 of a switch
    counters: NDArray[np.int64]  # [slot, Counter] -> counters of copies that were not delivered


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PortSamples:
    """The watched ports over time; each array is [time, port]."""

    port: tuple[str, ...]
    time_ps: NDArray[np.int64]
    queue_bytes: NDArray[np.int64]  # in the output queue at that time
    utilisation: NDArray[np.float64]  # since the sample before: share of the time that the port was sending
    blocked: NDArray[np.float64]  # likewise: it had packets, but no credit or was paused
    pauses: NDArray[np.int64]  # likewise: pause frames that it sent
    credit_bytes: NDArray[np.float64]  # that it may send at that time; NaN without credits
    allowed_rate: NDArray[np.float64]  # mean share of the line rate that its queue pairs may use; NaN: none sends

    @classmethod
    def none(cls) -> Self:
        """Return the samples of no port."""
        whole, real = np.zeros((0, 0), np.int64), np.zeros((0, 0))
        return cls(
            port=(),
            time_ps=np.zeros(0, np.int64),
            queue_bytes=whole,
            utilisation=real,
            blocked=real,
            pauses=whole,
            credit_bytes=real,
            allowed_rate=real,
        )

    def quantities(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("port", "time_ps")}

    def until(self, end_ps: int) -> Self:
        """Return the samples up to a time."""
        shown = self.time_ps <= max(end_ps, 1)
        arrays: dict[str, Any] = {name: values[shown] for name, values in self.quantities().items()}
        return replace(self, time_ps=self.time_ps[shown], **arrays)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Result:
    """A finished run."""

    engine: str
    fabric: Fabric
    traffic: Traffic
    options: Options  # with the defaults filled in
    start_ps: NDArray[np.int64]  # [message], when its dependencies were met
    finish_ps: NDArray[np.int64]  # [message], completely delivered; NEVER
    acked_ps: NDArray[np.int64]  # [message], acknowledged to the sender; NEVER for unacknowledged transports
    retransmitted: NDArray[np.int32]  # [message], packets sent again
    use: PortUse
    groups: GroupUse | None = None
    samples: PortSamples
    frames: Frames | None = None  # of captured ports
    packets: int  # sent by hosts, including acknowledgements
    packet_hops: int  # packets times links traversed
    events: int
    skipped_ps: int  # simulated time that was extrapolated, not simulated
    wall_s: float
    threads: int = 1  # that ran it; the result does not depend on their number
    note: str = ""  # the reason why one thread ran a large fabric
    choice: str = ""  # the reason why `--engine auto` chose this engine

    def __repr__(self) -> str:
        arrived = int((self.finish_ps != NEVER).sum())
        return (
            f"<Result of {self.fabric.spec} by the {self.engine} engine: {arrived} of {len(self.traffic)} messages, "
            f"the last after {self.last_arrival_ps / 1e6:.1f} us, seed {self.options.seed}>"
        )

    def _repr_html_(self) -> str:
        """Show the result in a notebook, with the fabric if it fits."""
        return render_with("weft.sim.plots:show_result", self)

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row for each message."""
        import pandas as pd

        traffic, name = self.traffic, self.fabric.port
        return pd.DataFrame(
            {
                "src": [name(slot).name for slot in traffic.src.tolist()],
                "dst": [name(slot).name for slot in traffic.dst.tolist()],
                "size_bytes": traffic.size_bytes,
                "start_ps": self.start_ps,
                "finish_ps": self.finish_ps,
                "retransmitted": self.retransmitted,
            }
        )

    @property
    def last_arrival_ps(self) -> int:
        """The time at which the last message had arrived."""
        return int(self.finish_ps.max(initial=0))

    @property
    def trust(self) -> Trust | None:
        """The agreement of this engine with the packet engine on random workloads; None for the packet engine."""
        return find_trust(self.engine, self.options.network)

    @property
    def done(self) -> bool:
        return bool((self.finish_ps != NEVER).all())

    @property
    def latency_ps(self) -> NDArray[np.int64]:
        """The time from the start of each message to its delivery ([message]); NEVER if it was not delivered."""
        return np.where(self.finish_ps == NEVER, NEVER, self.finish_ps - self.start_ps)

    @property
    def goodput_gbit_s(self) -> float:
        """The payload of all delivered messages over the time from the first start to the last arrival."""
        arrived = self.finish_ps != NEVER
        if not arrived.any():
            return 0.0
        span_ps = self.last_arrival_ps - int(self.start_ps[arrived].min())
        return float(self.traffic.size_bytes[arrived].sum()) * 8_000 / max(span_ps, 1)

    @property
    def utilisation(self) -> NDArray[np.float64]:
        """The share of the run in which each port was sending ([port slot])."""
        return self.use.busy_ps / max(self.last_arrival_ps, 1)

    def link_metric(self, per_port: NDArray[Any]) -> NDArray[np.float64]:
        """Return the larger value of the two directions of each link ([link]), for `draw`; NaN off the network."""
        links = self.fabric.links
        worst = np.maximum(per_port[links.a], per_port[links.b]).astype(np.float64)
        return np.where(self.fabric.network_links, worst, np.nan)

    def digest(self) -> str:
        """Return a hash of everything simulated; equal runs have equal digests."""
        digest = hashlib.sha256()
        uses = _columns(self.use) + ([] if self.groups is None else _columns(self.groups))
        for column in (self.start_ps, self.finish_ps, self.acked_ps, self.retransmitted, *uses):
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()

    def write_counters(self) -> None:
        """Add the activity of the ports to the fabric's counters, as performance management counts it."""
        ports, use = self.fabric.ports, self.use
        counters = self.fabric.counters
        plugged = np.flatnonzero(ports.peer >= 0)
        peer = ports.peer[plugged]
        ends_bytes = VCRC_BYTES if self.options.network is Network.INFINIBAND else 0  # per packet, not counted
        words = (use.xmit_bytes - ends_bytes * use.xmit_packets) // 4
        counters[:, Counter.PORT_XMIT_DATA_WORDS] += words
        counters[:, Counter.PORT_XMIT_PKTS] += use.xmit_packets
        counters[:, Counter.PORT_UNICAST_XMIT_PKTS] += use.xmit_packets
        counters[:, Counter.PORT_XMIT_WAIT] += use.xmit_wait_ps // XMIT_WAIT_TICK_PS
        counters[:, Counter.PORT_XMIT_DISCARDS] += use.dropped_packets
        counters[plugged, Counter.PORT_RCV_DATA_WORDS] += words[peer]
        counters[plugged, Counter.PORT_RCV_PKTS] += use.xmit_packets[peer]  # including damaged packets
        counters[plugged, Counter.PORT_UNICAST_RCV_PKTS] += use.xmit_packets[peer]
        counters[:, Counter.PORT_RCV_ERRORS] += use.corrupted_packets
        counters[:, Counter.SYMBOL_ERROR] += use.corrupted_packets
        if self.groups is not None:
            counters += self.groups.counters
            counters[:, Counter.PORT_UNICAST_XMIT_PKTS] -= self.groups.xmit_packets
            counters[:, Counter.PORT_MULTICAST_XMIT_PKTS] += self.groups.xmit_packets
            counters[:, Counter.PORT_UNICAST_RCV_PKTS] -= self.groups.rcv_packets
            counters[:, Counter.PORT_MULTICAST_RCV_PKTS] += self.groups.rcv_packets

    def report(self) -> dict[str, Any]:
        """Return the run in figures, as printed by `--json`."""
        arrived = self.finish_ps != NEVER
        latency_us = self.latency_ps[arrived] / 1e6
        kinds: dict[str, Any] = {"min": np.min, "mean": np.mean, "max": np.max}
        kinds |= {f"p{p}": partial(np.percentile, q=p) for p in (50, 99, 99.9)}
        trouble = ("corrupted_packets", "dropped_packets", "trimmed_packets", "marked_packets", "pauses")
        return {
            "weft": __version__,
            "engine": self.engine,
            "spec": self.fabric.spec,
            "choice": self.choice,
            "trust": self.trust.report() if self.trust else None,
            "changes": self.fabric.changes,
            "traffic": self.traffic.description,
            "options": asdict(self.options),
            "seed": self.options.seed,
            "messages": len(self.traffic),
            "delivered": int(arrived.sum()),
            "payload_bytes": self.traffic.total_bytes,
            "packets": self.packets,
            "packet_hops": self.packet_hops,
            "events": self.events,
            "wall_s": self.wall_s,
            "threads": self.threads,
            "note": self.note,
            "packet_hops_per_s": self.packet_hops / self.wall_s if self.wall_s else 0.0,
            "last_arrival_ps": self.last_arrival_ps,
            "skipped_ps": self.skipped_ps,
            "goodput_gbit_s": self.goodput_gbit_s,
            "latency_us": {name: float(of(latency_us)) for name, of in kinds.items()} if arrived.any() else {},
            "retransmitted": int(self.retransmitted.sum()),
            **{name: int(getattr(self.use, name).sum()) for name in trouble},
            "digest": self.digest(),
            "watched": self._watched(),
        } | ({} if self.groups is None else {"copies": self._copies(self.groups)})

    def _watched(self) -> dict[str, dict[str, Any]]:
        """Return the samples of each watched port, until all had arrived; quantities that it does not have are left
        out.
        """
        shown = self.samples.until(self.last_arrival_ps)
        return {
            name: {
                "every_us": self.options.watch_every_ps / 1e6,
                "most_queue_bytes": int(shown.queue_bytes[:, column].max(initial=0)),
                **{
                    quantity: [None if np.isnan(value) else value for value in values[:, column].tolist()]
                    for quantity, values in shown.quantities().items()
                    if not np.isnan(values[:, column]).all()
                },
            }
            for column, name in enumerate(shown.port)
        }

    def _copies(self, groups: GroupUse) -> dict[str, int]:
        """Return how many multicast datagrams each port received, by port name."""
        return {
            self.fabric.port(slot).name: int(groups.copies[slot]) for slot in np.flatnonzero(groups.copies).tolist()
        }


XMIT_WAIT_TICK_PS = 22_000  # PortXmitWait counts ticks, whose length is the vendor's; on ConnectX about 22 ns


def _columns(use: PortUse | GroupUse) -> list[NDArray[np.int64]]:
    return [getattr(use, name) for name in use.__slots__]


class Engine(Protocol):
    """An engine of `sim`: runs traffic over a fabric."""

    name: str

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        """Run the traffic.

        Raise ConfigError before it starts if the input is invalid, SubnetError if a message can never arrive.
        """
