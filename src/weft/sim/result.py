"""What a run found: when every message arrived, what every port did, and what it cost to find out."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.fabric.counters import Counter
from weft.fabric.model import Fabric
from weft.fabric.notebook import shown_by
from weft.sim.engine import Network, Options, Progress
from weft.sim.traffic import Traffic
from weft.version import __version__
from weft.wire.crc import VCRC_BYTES

NEVER = -1  # the time of what did not happen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PortUse:
    """What every port slot of the fabric did. Bytes are those on the wire, headers included."""

    xmit_bytes: NDArray[np.int64]
    xmit_packets: NDArray[np.int64]
    busy_ps: NDArray[np.int64]  # sending
    xmit_wait_ps: NDArray[np.int64]  # something to send, and no credit, or paused
    queue_peak_bytes: NDArray[np.int64]  # most that waited to leave through the port
    buffer_peak_bytes: NDArray[np.int64]  # most in the input buffer of one VL
    corrupted_packets: NDArray[np.int64]  # arrived with a bit error, and were dropped
    dropped_packets: NDArray[np.int64]  # found the output queue full
    marked_packets: NDArray[np.int64]  # FECN or ECN set here
    pauses: NDArray[np.int64]  # pause frames sent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupUse:
    """Of that, what was for multicast groups, by port slot. Packets on the wire when the run ended are not in it."""

    xmit_packets: NDArray[np.int64]
    rcv_packets: NDArray[np.int64]
    copies: NDArray[np.int64]  # that the port of an adapter, or port 0 of a switch, took
    counters: NDArray[np.int64]  # [slot, Counter] -> what the end of the others adds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueSamples:
    """Bytes that waited in the output queues of the watched ports, over time."""

    port: tuple[str, ...]
    time_ps: NDArray[np.int64]
    queue_bytes: NDArray[np.int64]  # [time, port]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Result:
    """A finished run."""

    engine: str
    fabric: Fabric
    traffic: Traffic
    options: Options  # with the defaults filled in
    start_ps: NDArray[np.int64]  # [message], when its dependencies let it go
    finish_ps: NDArray[np.int64]  # [message], all of it delivered; NEVER
    acked_ps: NDArray[np.int64]  # [message], the sender knows; NEVER for those without acknowledgement
    retransmitted: NDArray[np.int32]  # [message], packets sent again
    use: PortUse
    groups: GroupUse | None = None
    samples: QueueSamples
    packets: int  # sent by hosts, acknowledgements included
    packet_hops: int  # packets times links crossed
    events: int
    skipped_ps: int  # simulated time that was carried forward, not run
    wall_s: float

    def __repr__(self) -> str:
        arrived = int((self.finish_ps != NEVER).sum())
        return (
            f"<Result of {self.fabric.spec} by the {self.engine} engine: {arrived} of {len(self.traffic)} messages, "
            f"the last after {self.last_arrival_ps / 1e6:.1f} us, seed {self.options.seed}>"
        )

    def _repr_html_(self) -> str:
        """What it came to and, of a fabric that fits, how busy its cables were: in a notebook."""
        return shown_by("weft.sim.plots:show_result", self)

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each message."""
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
        """When the last message had arrived."""
        return int(self.finish_ps.max(initial=0))

    @property
    def done(self) -> bool:
        return bool((self.finish_ps != NEVER).all())

    @property
    def latency_ps(self) -> NDArray[np.int64]:
        """[message], from its start to its delivery; NEVER where it was not."""
        return np.where(self.finish_ps == NEVER, NEVER, self.finish_ps - self.start_ps)

    @property
    def goodput_gbit_s(self) -> float:
        """Payload of all delivered messages over the time from the first start to the last arrival."""
        arrived = self.finish_ps != NEVER
        if not arrived.any():
            return 0.0
        span_ps = self.last_arrival_ps - int(self.start_ps[arrived].min())
        return float(self.traffic.size_bytes[arrived].sum()) * 8_000 / max(span_ps, 1)

    @property
    def utilisation(self) -> NDArray[np.float64]:
        """[port slot], part of the run that it was sending."""
        return self.use.busy_ps / max(self.last_arrival_ps, 1)

    def link_metric(self, per_port: NDArray[Any]) -> NDArray[np.float64]:
        """[link], the larger of its two directions: what `draw` colours by; NaN off the network."""
        links = self.fabric.links
        worst = np.maximum(per_port[links.a], per_port[links.b]).astype(np.float64)
        return np.where(self.fabric.network_links, worst, np.nan)

    def digest(self) -> str:
        """A hash of all that was simulated: the same run gives the same."""
        said = hashlib.sha256()
        uses = _columns(self.use) + ([] if self.groups is None else _columns(self.groups))
        for column in (self.start_ps, self.finish_ps, self.acked_ps, self.retransmitted, *uses):
            said.update(np.ascontiguousarray(column).tobytes())
        return said.hexdigest()

    def write_counters(self) -> None:
        """Add what the ports did to the fabric's counters, as performance management would have counted."""
        ports, use = self.fabric.ports, self.use
        counters = self.fabric.counters
        plugged = np.flatnonzero(ports.peer >= 0)
        peer = ports.peer[plugged]
        ends_bytes = VCRC_BYTES if self.options.network is Network.INFINIBAND else 0  # of a packet, and not counted
        words = (use.xmit_bytes - ends_bytes * use.xmit_packets) // 4
        counters[:, Counter.PORT_XMIT_DATA_WORDS] += words
        counters[:, Counter.PORT_XMIT_PKTS] += use.xmit_packets
        counters[:, Counter.PORT_UNICAST_XMIT_PKTS] += use.xmit_packets
        counters[:, Counter.PORT_XMIT_WAIT] += use.xmit_wait_ps // XMIT_WAIT_TICK_PS
        counters[:, Counter.PORT_XMIT_DISCARDS] += use.dropped_packets
        counters[plugged, Counter.PORT_RCV_DATA_WORDS] += words[peer]
        counters[plugged, Counter.PORT_RCV_PKTS] += use.xmit_packets[peer]  # damaged ones too, as of data
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
        """The run in figures, as `--json` prints it."""
        arrived = self.finish_ps != NEVER
        latency_us = self.latency_ps[arrived] / 1e6
        kinds: dict[str, Any] = {"min": np.min, "mean": np.mean, "max": np.max}
        kinds |= {f"p{p}": partial(np.percentile, q=p) for p in (50, 99, 99.9)}
        trouble = ("corrupted_packets", "dropped_packets", "marked_packets", "pauses")
        return {
            "weft": __version__,
            "engine": self.engine,
            "spec": self.fabric.spec,
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
            "packet_hops_per_s": self.packet_hops / self.wall_s if self.wall_s else 0.0,
            "last_arrival_ps": self.last_arrival_ps,
            "skipped_ps": self.skipped_ps,
            "goodput_gbit_s": self.goodput_gbit_s,
            "latency_us": {name: float(of(latency_us)) for name, of in kinds.items()} if arrived.any() else {},
            "retransmitted": int(self.retransmitted.sum()),
            **{name: int(getattr(self.use, name).sum()) for name in trouble},
            "digest": self.digest(),
            "queues": self._queues(),
        } | ({} if self.groups is None else {"copies": self._copies(self.groups)})

    def _queues(self) -> dict[str, dict[str, Any]]:
        """Return the samples of each watched port, until all had arrived."""
        samples = self.samples
        until = samples.time_ps <= max(self.last_arrival_ps, 1)
        return {
            name: {
                "every_us": self.options.watch_every_ps / 1e6,
                "most_bytes": int(samples.queue_bytes[until, column].max(initial=0)),
                "bytes": samples.queue_bytes[until, column].tolist(),
            }
            for column, name in enumerate(samples.port)
        }

    def _copies(self, groups: GroupUse) -> dict[str, int]:
        """By name, the ports that took datagrams for a group, and how many."""
        return {
            self.fabric.port(slot).name: int(groups.copies[slot]) for slot in np.flatnonzero(groups.copies).tolist()
        }


XMIT_WAIT_TICK_PS = 22_000  # PortXmitWait counts ticks, whose length is the vendor's; on ConnectX about 22 ns


def _columns(use: PortUse | GroupUse) -> list[NDArray[np.int64]]:
    return [getattr(use, name) for name in use.__slots__]


class Engine(Protocol):
    """The seam of `sim`: runs traffic over a fabric."""

    name: str

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        """Raises ConfigError before the clock starts if it cannot; SubnetError if the traffic can never arrive."""
