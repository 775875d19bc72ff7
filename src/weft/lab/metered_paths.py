"""Grant metered paths: on a path without faults programs write to each other's memory, and the lab only counts.

A path is clean if a packet of the connection would reach the other end, and the answer would come back, whatever the
dice say: every port Active, no bad cable, P_Keys that match, an SL that has a VL, an MTU that fits. Then the lab grants
a meter in shared memory, where the sender counts what it would have sent. When counters are read, what the meters
counted since is added to every port that the packets would have passed, as `mad.packets` does.

Before anything changes that a path depends on, all are closed: senders ask again, and get
another one, or none and send packets.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from weft import runtime
from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.fabric.forwarding import HEADERS_BYTES, NONE, Path, Reason, matching_key
from weft.lab.places import far_end
from weft.lab.planes import leading_port, leads_to, usable_ports
from weft.mad import faults
from weft.mad.carrier import SMP_CLASSES
from weft.mad.devices import Devices
from weft.mad.routers import GlobalPath, walk_global
from weft.mad.subnet import Subnet
from weft.verbs.carriers.lab.connection import METERS
from weft.verbs.carriers.lab.ethernet_frames import ROCE_BTH_AT
from weft.verbs.shm.layout import MeterRecord
from weft.wire.headers import GRH, LRH
from weft.wire.mad import Method, MgmtClass
from weft.wire.smp import PERMISSIVE_LID

_READERS = (MgmtClass.PERF, MgmtClass.CONG_CTRL)
_COUNTS = attrgetter("requests", "request_bytes", "responses", "response_bytes")
_MOST = 1 << 50  # limit of one increase of a meter; more is not plausible


class Meters:
    """The meters of a program, in memory that it maps too."""

    def __init__(self) -> None:
        size = METERS * MeterRecord.size
        self.file = runtime.memory("meters", size)
        self.records = (MeterRecord * METERS).from_buffer(mmap.mmap(self.file, size))

    def close(self) -> None:
        os.close(self.file)


class Legs(NamedTuple):
    """The output slots of requests and responses, hop by hop."""

    forth: tuple[int, ...]
    back: tuple[int, ...]


@dataclass(slots=True, eq=False, kw_only=True)
class MeteredPath:
    """A metered path, with its legs in each plane; planes take turns."""

    meter: MeterRecord
    planes: tuple[Legs, ...]
    sl: int
    header_bytes: int  # per packet, before the BTH
    counted: tuple[int, ...] = (0, 0, 0, 0)


class MeteredPaths:
    """The metered paths of a lab. `is_timed`: meters have the latency of the path's links."""

    def __init__(self, devices: Devices, *, is_timed: bool = False) -> None:
        self.devices, self._is_timed = devices, is_timed
        self.elsewhere: set[int] = set()  # slots of hosts that are other machines: no memory is shared with them
        self._paths: dict[tuple[Meters, int], MeteredPath] = {}  # by whose meters they are, and index
        self._generation = devices.generation
        self._times: Callable[[tuple[int, ...]], tuple[int, int]] | None = None
        self.any_open = False

    def open(
        self,
        meters: Meters,
        index: int,
        slot: int,
        *,
        lid: int,
        sl: int,
        path_bits: int,
        p_key: int,
        mtu_bytes: int,
        gids: tuple[int, int] | None = None,
        hop_limit: int = 0,
    ) -> GlobalPath | None:
        """Open a path from a port to a LID, with `gids` through routers; return None if the path is not clean.

        A program uses a meter for one path only, since more than one of its queue pairs may look at it. The counts of a
        meter are never reset: a request in progress may be counted at any time.
        """
        if not 0 <= index < METERS:
            raise ConfigError(f"there are {METERS} meters: there is no {index}")
        meter, before = meters.records[index], self._paths.get((meters, index))
        if before is not None:
            meter.is_open = 0
            self._collect(before)
        devices = self.devices
        if slot in devices.ethernet:
            return self._open_ethernet(meters, index, slot, gids)
        ports = usable_ports(devices, slot)
        if len(ports) > 1:
            dgid = gids[0] if gids else NONE
            ports = [port for port in ports if leads_to(devices, port, dlid=lid, sl=sl, dgid=dgid, hop_limit=hop_limit)]
        legs, ways = [], []
        for port in ports or [leading_port(devices, slot)]:
            clean = self._clean_both_ways(port, lid, sl, path_bits, p_key, mtu_bytes, gids, hop_limit)
            if clean is None:
                return None
            ways.append(clean[0])
            legs.append(clean[1])
        header_bytes = LRH.size + (GRH.size if gids else 0)
        self._start(meters, index, MeteredPath(meter=meter, planes=tuple(legs), sl=sl, header_bytes=header_bytes))
        return ways[0]

    def _start(self, meters: Meters, index: int, path: MeteredPath) -> None:
        """Open the meter of a path."""
        meter, before = path.meter, self._paths.get((meters, index))
        if before is not None:
            path.counted = before.counted
        if self._is_timed:
            self._times = self._times or _times_of(self.devices)
            times = [self._times(each.forth) for each in path.planes]
            meter.latency_ns = max(latency for latency, _ in times)
            meter.byte_ps = round(max(byte_ps for _, byte_ps in times) / len(times))
        meter.is_open = 1
        self._paths[meters, index] = path
        self.any_open = True

    def _open_ethernet(self, meters: Meters, index: int, slot: int, gids: tuple[int, int] | None) -> GlobalPath | None:
        """Open a path between two Ethernet ports, by the IPv4 addresses that are their GIDs."""
        ethernet, tap = self.devices.ethernet, self.devices.tap
        end = ethernet.slot_at(gids[0]) if gids else None
        if end is None:
            return None
        forth, back = ethernet.path_between(slot, end), ethernet.path_between(end, slot)
        watched = tap.slots if tap is not None else frozenset[int]()
        if not forth or not back or self.elsewhere & {slot, end} or watched & {*forth, *back}:
            return None
        path = MeteredPath(meter=meters.records[index], planes=(Legs(forth, back),), sl=0, header_bytes=ROCE_BTH_AT)
        self._start(meters, index, path)
        return GlobalPath(Path(forth, (), end, Reason.ARRIVED), 0, 0)

    def _clean_both_ways(
        self,
        slot: int,
        lid: int,
        sl: int,
        path_bits: int,
        p_key: int,
        mtu_bytes: int,
        gids: tuple[int, int] | None,
        hop_limit: int,
    ) -> tuple[GlobalPath, Legs] | None:
        """Return the clean path from a port, and its legs there and back; None if it is not clean."""
        devices = self.devices
        dgid, sgid = gids or (NONE, NONE)
        way = clean_path(devices, slot, lid, sl, p_key, mtu_bytes, dgid, hop_limit)
        if way is None or self.elsewhere & {slot, way.path.end}:
            return None
        forth, is_routed = way.path, way.hop_limit != hop_limit
        keys = devices.keys(forth.end)
        answer_key = keys[matching_key(keys, p_key)]
        to = way.slid if is_routed else devices.lid(slot) + path_bits
        answers = clean_path(devices, forth.end, to, sl, answer_key, mtu_bytes, sgid, hop_limit)
        return (way, Legs(forth.out, answers.path.out)) if answers is not None else None

    def close_all(self) -> None:
        """Close all paths before a change. A request in progress may still be counted."""
        for path in self._paths.values():
            path.meter.is_open = 0
        self.any_open = False
        self._times = None

    def forget(self, meters: Meters) -> None:
        """Close and remove the paths of a program whose connection has ended; it may still run."""
        for key in [key for key in self._paths if key[0] is meters]:
            path = self._paths.pop(key)
            path.meter.is_open = 0
            self._collect(path)
        meters.close()

    def check(self) -> None:
        """Close paths if links changed other than by a MAD or a command."""
        if self._generation != self.devices.generation:
            self._generation = self.devices.generation
            self.close_all()

    # -- counting -----------------------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Add the counts of the meters to the counters of the ports."""
        for path in self._paths.values():
            self._collect(path)

    def _collect(self, path: MeteredPath) -> None:
        now = _COUNTS(path.meter)
        differences = (after - before for after, before in zip(now, path.counted, strict=True))
        new = [more if 0 <= more <= _MOST else 0 for more in differences]
        path.counted = now
        for place, legs in enumerate(path.planes):
            mine = [_share(count, place, len(path.planes)) for count in new]
            for out, number, size_bytes in ((legs.forth, mine[0], mine[1]), (legs.back, mine[2], mine[3])):
                if number:
                    self._count(out, number, (size_bytes + number * path.header_bytes) // 4, path.sl)

    def _count(self, out: tuple[int, ...], number: int, words: int, sl: int) -> None:
        devices = self.devices
        counters, details = devices.fabric.counters, devices.details
        for slot in out:
            far = far_end(devices, slot)
            for at, columns in ((slot, _SENT), (far, _RECEIVED)):
                for column, amount in zip(columns, (words, number, number), strict=True):
                    counters[at, column] += amount
            if slot not in devices.ethernet:  # which has no service levels
                details[slot, "port_xmit_data_sl", sl] += words
                details[far, "port_rcv_data_sl", sl] += words


def _share(count: int, place: int, places: int) -> int:
    """Return the part of a count for one of several planes."""
    return count * (place + 1) // places - count * place // places


_SENT = (Counter.PORT_XMIT_DATA_WORDS, Counter.PORT_XMIT_PKTS, Counter.PORT_UNICAST_XMIT_PKTS)
_RECEIVED = (Counter.PORT_RCV_DATA_WORDS, Counter.PORT_RCV_PKTS, Counter.PORT_UNICAST_RCV_PKTS)


class MeteredSubnet(Subnet):
    """A subnet that closes metered paths before a change by MADs, and collects counts before they are read."""

    metered_paths: MeteredPaths

    def send(
        self, slot: int, mad: bytes | bytearray, dlid: int = PERMISSIVE_LID, pkey_index: int | None = 0
    ) -> bytearray | None:
        paths = self.metered_paths
        if paths.any_open and len(mad) > 3 and mad[3] == Method.SET and mad[1] in SMP_CLASSES:
            paths.close_all()
        elif len(mad) > 1 and mad[1] in _READERS:
            paths.collect()
        return super().send(slot, mad, dlid, pkey_index)


# -- clean paths ------------------------------------------------------------------------------------------------------


def clean_path(
    devices: Devices,
    slot: int,
    lid: int,
    sl: int,
    p_key: int,
    mtu_bytes: int,
    dgid: int = NONE,
    hop_limit: int = 0,
) -> GlobalPath | None:
    """Return the path of `mad.packets.carry`, if nothing on it can stop or corrupt a packet. Count nothing.

    It ends at a router if there is no DGID, and is not clean then.
    """
    if not devices.is_active(slot):
        return None
    size_bytes = mtu_bytes + HEADERS_BYTES
    way = walk_global(
        devices, slot, dlid=lid, sl=sl, p_key=p_key, size_bytes=size_bytes, dgid=dgid, hop_limit=hop_limit
    )
    path = way.path
    bad = not devices.erring.isdisjoint(path.out)
    bad |= devices.tap is not None and not devices.tap.slots.isdisjoint(path.out)
    end = devices.node_of[path.end]
    ends_at_adapter = not devices.is_switch[end] and end not in devices.routers.nodes
    return way if path.reason is Reason.ARRIVED and ends_at_adapter and not bad else None


def _times_of(devices: Devices) -> Callable[[tuple[int, ...]], tuple[int, int]]:
    """Return a function from a path to its latency in ns, and ps per byte on its slowest link; as in `sim`."""
    from weft.sim.engine import Network, Switching
    from weft.sim.layout.rules import RULES
    from weft.sim.layout.wiring import make_wiring

    wiring = make_wiring(faults.fabric_now(devices), RULES[Network.INFINIBAND], Switching.CUT_THROUGH)
    gbit_s = wiring.port_rate_gbit_s

    def times(out: tuple[int, ...]) -> tuple[int, int]:
        if not out:
            return 0, 0  # it does not leave the adapter
        ports = wiring.port_of_slot[list(out)]
        return int(wiring.arrival_ps[ports].sum()) // 1000, round(8000 / float(gbit_s[ports].min()))

    return times
