"""A continuous load: the rates that jobs reach with the current forwarding tables, and the ports that wait.

    steady = settle(fabric, [LoadJob(name="train", pattern="ring", hosts=slots, share=0.8)], Degradation())
    steady.job_gbit_s                       the rate that each job reaches
    counts = advance(steady, 60.0, rng)     in `steady_counts`: what the ports count in a minute

Each pair of a job is a flow along its path in the forwarding tables, at its max-min fair rate: links, the demand of a
sender and the rate that a receiver accepts are shared (`flow.fair`). A port upstream of a bottleneck always has data to
send; while it is not sending, it waits. The cost of errors is the recovery of a reliable connection: after a loss it
sends the W packets again that were in flight when the NAK arrived; if a retransmitted packet or the NAK is lost too, it
is idle until its timeout. The share 1 / (1 + p W + p p T) of its rate remains, with T in packets.

Not modelled: queues, VLs and their weights, congestion control, acknowledgements; a flow has one path even if switches
route adaptively. `tests/crosscheck/test_steady.py` compares it with the packet engine where both apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, UnknownName
from weft.fabric.forwarding import ANY, Reason, matching_key
from weft.fabric.kernels.forwarding import arrays, walk_all
from weft.fabric.model import Fabric
from weft.fabric.timing import timings
from weft.routing.patterns import Flows, incast, rail_rings, random_ring, shift, storage
from weft.sim.engine import Network, Options, Switching
from weft.sim.fec import has_fec, raw_rates
from weft.sim.flow.fair import fair_rates
from weft.sim.layout.rules import RULES
from weft.sim.layout.wiring import make_wiring
from weft.wire.crc import VCRC_BYTES
from weft.wire.headers import GRH
from weft.wire.port_info import PortInfo

MOST_FLOWS = 2_000_000
GOOD_BER, GOOD_SPREAD, WORST_GOOD_BER = 1e-17, 0.5, 1e-15  # healthy cables: median, spread in decades, upper bound
RETRY_S = 4.096e-6 * 2 ** Options().ack_timeout_exponent  # RC timeout of a sender
_RULES = RULES[Network.INFINIBAND]
_AT_ONCE = 1 << 16  # paths walked per call
_HARDLY = 1 - 1e-6  # share of the time; a flow that sends less is slowed by timeouts
NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadJob:
    """A group of hosts that send to each other continuously; `hosts` are port slots in rank order."""

    name: str
    pattern: str
    hosts: NDArray[np.int64]
    share: float = 1.0  # share of line rate that each host demands, split equally among its partners
    seed: int = 1  # for the pattern `permutation`


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Degradation:
    """The degradation beyond the bit error rates and missing links of the fabric itself."""

    # slot of a host -> share of its line rate that it accepts
    accept_share: Mapping[int, float] = field(default_factory=dict)
    seed: int = 1  # for the error rates of healthy cables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steady:
    """The rates per second and shares of time, [slot] unless noted."""

    fabric: Fabric
    jobs: tuple[LoadJob, ...]
    job_wanted_gbit_s: NDArray[np.float64]  # [job] -> payload demand
    job_gbit_s: NDArray[np.float64]  # [job] -> payload that arrives
    # [job] -> share of its demand that the slowest pair gets, which paces a synchronous job
    job_slowest: NDArray[np.float64]
    bit_error_rate: NDArray[np.float64]  # received data, after error correction
    symbol_error_rate: NDArray[np.float64]  # before error correction; 0 on lines without it
    line_gbit_s: NDArray[np.float64]  # 0 where no link is up
    packets_s: NDArray[np.float64]  # sent
    words: NDArray[np.float64]  # mean size of a sent packet, in the words of PortXmitData
    busy: NDArray[np.float64]  # share of the time spent sending
    wait: NDArray[np.float64]  # share of the time with packets to send, but no credit
    hop_first: NDArray[np.int64]  # [flow + 1]
    hop: NDArray[np.int32]  # slots by which flows leave, hop by hop
    flow_packets_s: NDArray[np.float64]
    lost: tuple[tuple[int, Reason, int], ...]  # slot where flows end early, the reason, and how many


PATTERNS: dict[str, Callable[[Fabric, NDArray[np.int64], np.random.Generator], Flows]] = {
    "ring": lambda fabric, hosts, rng: rail_rings(fabric, hosts),
    "all-to-all": lambda fabric, hosts, rng: np.concatenate([shift(len(hosts), by) for by in range(1, len(hosts))]),
    "permutation": lambda fabric, hosts, rng: random_ring(len(hosts), rng),
    "incast": lambda fabric, hosts, rng: incast(len(hosts)),
    "storage": lambda fabric, hosts, rng: storage(len(hosts)),
}


def job_pairs(fabric: Fabric, job: LoadJob) -> Flows:
    """Return the pairs of a job as indices of its hosts."""
    return PATTERNS[job.pattern](fabric, job.hosts, np.random.default_rng(job.seed))


def check_job(job: LoadJob) -> None:
    if job.pattern not in PATTERNS:
        raise UnknownName("load pattern", job.pattern, PATTERNS)
    if len(job.hosts) < 2:
        raise ConfigError(f"job {job.name} has {len(job.hosts)} host; give 2 or more")
    if len(np.unique(job.hosts)) < len(job.hosts):
        raise ConfigError(f"job {job.name} lists a host twice; list each once")
    if job.pattern == "all-to-all" and len(job.hosts) ** 2 > MOST_FLOWS:  # checked before they are built
        raise ConfigError(
            f"job {job.name}: all-to-all among {len(job.hosts):,} hosts makes {len(job.hosts) ** 2:,} pairs, the limit "
            f"is {MOST_FLOWS:,}. Split it into several jobs, or use a permutation"
        )
    if not 0 < job.share <= 1:
        raise ConfigError(f"job {job.name}: the share of line rate must be in (0, 1], got {job.share:g}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """The flows of all jobs that the tables deliver."""

    job: NDArray[np.int64]
    dst: NDArray[np.int64]
    wants_gbit_s: NDArray[np.float64]  # on the wire
    header_bytes: NDArray[np.int64]  # with a global route header to another subnet
    job_wants_gbit_s: NDArray[np.float64]  # [job] -> payload of all flows, including undelivered ones
    job_is_whole: NDArray[np.bool_]  # [job] -> all its flows are delivered
    hop_first: NDArray[np.int64]
    hop: NDArray[np.int32]
    lost: tuple[tuple[int, Reason, int], ...]


def settle(fabric: Fabric, jobs: Sequence[LoadJob], degradation: Degradation | None = None) -> Steady:
    """Compute the rates of a fabric with its current cables and forwarding tables."""
    degradation = degradation or Degradation()
    for job in jobs:
        check_job(job)
    line_gbit_s, packet_gbit_s, arrival_ps = _lines(fabric)
    pairs = _pairs(fabric, jobs, packet_gbit_s)
    error_rate = bit_error_rates(fabric, degradation)
    payload_bytes = _payload_bytes(fabric, pairs)
    packet_bytes = payload_bytes + pairs.header_bytes
    rate, held_at = _share(pairs, pairs.wants_gbit_s, packet_gbit_s, degradation)
    losses, packets_s = _losses(fabric, pairs, error_rate, packet_bytes, arrival_ps), rate * 1e9 / (8 * packet_bytes)
    active, useful = losses.active(packets_s), 1 / (1 + losses.again(packets_s))
    if (stalls := active < _HARDLY).any():  # their unused share goes to other flows
        wants = np.where(stalls, rate * active, pairs.wants_gbit_s)
        rate, held_at = _share(pairs, wants, packet_gbit_s, degradation)
        packets_s = rate * 1e9 / (8 * packet_bytes)
    n_slots, flow = len(fabric.ports), np.repeat(np.arange(len(rate)), np.diff(pairs.hop_first))
    by_slot = [
        _sums(pairs.hop, values[flow], n_slots)
        for values in (packets_s, packets_s * (packet_bytes - VCRC_BYTES) / 4, rate)
    ]
    slowest = pairs.job_is_whole.astype(np.float64)
    np.minimum.at(slowest, pairs.job, rate * useful / np.maximum(pairs.wants_gbit_s, 1e-9))
    busy = np.minimum(by_slot[2] / np.maximum(packet_gbit_s, 1e-9), 1.0)
    return Steady(
        fabric=fabric,
        jobs=tuple(jobs),
        job_wanted_gbit_s=pairs.job_wants_gbit_s,
        job_gbit_s=_sums(pairs.job, rate * useful * payload_bytes / packet_bytes, len(jobs)),
        job_slowest=slowest,
        bit_error_rate=error_rate,
        symbol_error_rate=has_fec(fabric) * raw_rates(error_rate, WORST_GOOD_BER, degradation.seed),
        line_gbit_s=line_gbit_s,
        packets_s=by_slot[0],
        words=by_slot[1] / np.maximum(by_slot[0], 1e-9),
        busy=busy,
        wait=np.where(_is_blocked(pairs, held_at, n_slots), 1 - busy, 0.0),
        hop_first=pairs.hop_first,
        hop=pairs.hop,
        flow_packets_s=packets_s,
        lost=pairs.lost,
    )


def _sums(index: NDArray[Any], values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    sums: NDArray[Any] = np.bincount(index, values, n)
    return sums


def bit_error_rates(fabric: Fabric, degradation: Degradation) -> NDArray[np.float64]:
    """Return the bit error rate of the data that each port receives ([slot]).

    Healthy cables differ, and none is perfect.
    """
    decades = np.random.default_rng(degradation.seed).normal(np.log10(GOOD_BER), GOOD_SPREAD, len(fabric.ports))
    good = np.minimum(10.0**decades, WORST_GOOD_BER)
    return np.where(fabric.ports.link >= 0, np.maximum(fabric.receive_error_rate, good), 0.0)


def _lines(fabric: Fabric) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return the line rate, the packet rate (both Gbit/s), and the propagation time of the first byte, by slot."""
    wiring = make_wiring(fabric, _RULES, Switching.CUT_THROUGH)
    cabled = wiring.ports.peer >= 0
    slots = wiring.slot[cabled]
    line, packets, arrival_ps = (
        np.zeros(len(fabric.ports)),
        np.zeros(len(fabric.ports)),
        np.zeros(len(fabric.ports), np.int64),
    )
    line[slots] = fabric.link_rate_gbit_s[fabric.ports.link[slots]]
    packets[slots] = wiring.port_rate_gbit_s[cabled]
    arrival_ps[slots] = wiring.arrival_ps[cabled]
    return line, packets, arrival_ps


# -- paths ------------------------------------------------------------------------------------------------------------


def _pairs(fabric: Fabric, jobs: Sequence[LoadJob], packet_gbit_s: NDArray[np.float64]) -> _Pairs:
    """Return the flows of all jobs with their demand and path."""
    ranks = [job_pairs(fabric, job) for job in jobs]
    if sum(map(len, ranks)) > MOST_FLOWS:
        raise ConfigError(
            f"{sum(map(len, ranks)):,} pairs are too many (limit {MOST_FLOWS:,}): use fewer or smaller jobs"
        )
    no_ends = np.zeros((0, 2), np.int64)
    ends = np.concatenate([no_ends, *(job.hosts[pairs] for job, pairs in zip(jobs, ranks, strict=True))])
    of_job = np.repeat(np.arange(len(jobs)), [len(pairs) for pairs in ranks])
    wants = _wants(jobs, of_job, ends[:, 0], packet_gbit_s)
    dlid, p_key = fabric.tables.lid[ends[:, 1]].astype(np.int64), _common_keys(fabric, ends)
    has_path = np.flatnonzero((dlid > 0) & (p_key != 0))  # others have no path record and send nothing
    headers = _header_bytes(fabric, ends)
    pairs_of = np.bincount(of_job, minlength=len(jobs))
    job_wants = _sums(of_job, wants * _RULES.mtu_bytes / (_RULES.mtu_bytes + headers), len(jobs))
    of_job, ends, wants, headers = of_job[has_path], ends[has_path], wants[has_path], headers[has_path]
    packets = np.column_stack(
        (ends[:, 0], dlid[has_path], _levels(fabric, ends, dlid[has_path]), p_key[has_path], 0 * has_path)
    )
    tables = arrays(fabric)
    hops, reasons, last, ways = [], [], [], []
    for begin in range(0, len(packets), _AT_ONCE):
        walks = walk_all(tables, np.ascontiguousarray(packets[begin : begin + _AT_ONCE]))
        arrives = walks.reason == Reason.ARRIVED
        hops.append(walks.hops[arrives])
        ways.append(walks.out[arrives][np.arange(walks.out.shape[1]) < walks.hops[arrives][:, None]])
        reasons.append(walks.reason)
        last.append(walks.end)
    reason, end = (np.concatenate([np.zeros(0, np.int64), *parts]) for parts in (reasons, last))
    arrived = reason == Reason.ARRIVED
    stuck, times = np.unique(np.column_stack((end, reason))[~arrived], axis=0, return_counts=True)
    return _Pairs(
        job=of_job[arrived],
        dst=ends[arrived, 1],
        wants_gbit_s=wants[arrived],
        header_bytes=headers[arrived],
        job_wants_gbit_s=job_wants,
        job_is_whole=np.bincount(of_job[arrived], minlength=len(jobs)) == pairs_of,
        hop_first=np.concatenate(([0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *hops])))).astype(np.int64),
        hop=np.concatenate([np.zeros(0, np.int32), *ways]).astype(np.int32),
        lost=tuple((int(at), Reason(int(why)), int(n)) for (at, why), n in zip(stuck, times, strict=True)),
    )


def _header_bytes(fabric: Fabric, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the headers of a packet of each flow: those to another subnet have a global route header too."""
    subnet = fabric.tables.subnet
    crosses = np.zeros(len(ends), np.bool_) if subnet is None else subnet[ends[:, 0]] != subnet[ends[:, 1]]
    return _RULES.header_bytes + GRH.size * crosses.astype(np.int64)


def _wants(
    jobs: Sequence[LoadJob], job: NDArray[np.int64], src: NDArray[np.int64], packet_gbit_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the demand of each flow in Gbit/s on the wire ([flow]): an equal part of its sender's demand.

    A sender without a cable demands what the fastest port could send.
    """
    if not len(job):
        return np.zeros(0)
    _, sender, flows = np.unique(np.column_stack((job, src)), axis=0, return_inverse=True, return_counts=True)
    line = np.where(packet_gbit_s[src] > 0, packet_gbit_s[src], packet_gbit_s.max())
    share = np.array([each.share for each in jobs])
    wants: NDArray[np.float64] = share[job] * line / flows[sender.ravel()]
    return wants


def _levels(fabric: Fabric, ends: NDArray[np.int64], dlid: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the SL that the routing engine assigned to each path, or 0."""
    tables = fabric.tables
    if "path_sl" not in vars(tables):
        return np.zeros(len(ends), np.int64)
    leaf = tables.switch_row[fabric.ports.node[fabric.ports.peer[ends[:, 0]]]]
    return np.where(leaf >= 0, tables.path_sl[leaf, dlid], 0).astype(np.int64)


def _common_keys(fabric: Fabric, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first P_Key of each sender that its receiver accepts; 0: they share no partition."""
    if "pkey" not in vars(fabric.tables):
        return np.full(len(ends), ANY)
    hosts, index = np.unique(ends, return_inverse=True)
    tables, table = np.unique(fabric.tables.pkey[hosts], axis=0, return_inverse=True)
    keys = tables.tolist()
    both, pair = np.unique(table.ravel()[index.reshape(-1, 2)], axis=0, return_inverse=True)
    common = [next((k for k in keys[a] if matching_key(keys[b], k) != NONE), 0) for a, b in both.tolist()]
    return np.array(common, np.int64)[pair.ravel()]


def _payload_bytes(fabric: Fabric, pairs: _Pairs) -> NDArray[np.int64]:
    """Return the payload of a packet of each flow: the smallest MTU on its path ([flow])."""
    if not fabric.tables.runs or not len(pairs.job):
        return np.full(len(pairs.job), _RULES.mtu_bytes)
    mtu_bytes = 128 << fabric.tables.of_ports(PortInfo.neighbor_mtu).astype(np.int64)
    return np.minimum.reduceat(mtu_bytes[pairs.hop], pairs.hop_first[:-1])


# -- rates ------------------------------------------------------------------------------------------------------------


def _share(
    pairs: _Pairs, wants_gbit_s: NDArray[np.float64], packet_gbit_s: NDArray[np.float64], degradation: Degradation
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the rate of each flow in Gbit/s on the wire, and the hop that limits it: hops + 1 is the receiver, NONE
    its demand.

    After the ports the link array has two more links per flow: the rate its receiver accepts, and its demand.
    """
    n, hops, flows = len(packet_gbit_s), np.diff(pairs.hop_first), np.arange(len(pairs.job))
    accepts = np.ones(n)
    accepts[list(degradation.accept_share)] = list(degradation.accept_share.values())
    first = pairs.hop_first + 2 * np.arange(len(pairs.hop_first))
    link = np.zeros(first[-1], np.int32)
    is_hop = np.ones(len(link), bool)
    is_hop[first[1:] - 1] = is_hop[first[1:] - 2] = False
    link[is_hop] = pairs.hop
    link[first[1:] - 2], link[first[1:] - 1] = n + pairs.dst, 2 * n + flows
    rate, held_by = fair_rates(first, link, np.concatenate((packet_gbit_s, accepts * packet_gbit_s, wants_gbit_s)))
    flow = np.repeat(flows, hops + 2)
    place = np.arange(len(link)) - first[flow]
    held_at = np.full(len(rate), NONE)
    held = (link == held_by[flow]) & (place <= hops[flow])
    held_at[flow[held]] = place[held]
    return rate, held_at


def _is_blocked(pairs: _Pairs, held_at: NDArray[np.int64], n_slots: int) -> NDArray[np.bool_]:
    """Return whether each port is on a flow's path upstream of its bottleneck ([slot])."""
    hops = np.diff(pairs.hop_first)
    flow = np.repeat(np.arange(len(hops)), hops)
    before = np.arange(len(pairs.hop)) - pairs.hop_first[flow] < held_at[flow]
    blocked = np.zeros(n_slots, bool)
    blocked[pairs.hop[before]] = True
    return blocked


class _Losses(NamedTuple):
    """The effect of errors on the reliable connection of each flow."""

    lost: NDArray[np.float64]  # share of its packets
    round_trip_s: NDArray[np.float64]
    # Share of its losses that only a timeout repairs: the retransmitted packet or the NAK is lost.
    times_out: NDArray[np.float64]

    def again(self, packets_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the packets sent again per delivered packet:

        the lost one, the one that revealed it, and those in flight.
        """
        packets: NDArray[np.float64] = self.lost * (2 + self.round_trip_s * packets_s)
        return packets

    def active(self, packets_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of the time in which a flow does not wait for a timeout."""
        sends = 1 + self.again(packets_s)
        part: NDArray[np.float64] = sends / (sends + self.lost * self.times_out * RETRY_S * packets_s)
        return part


def _losses(
    fabric: Fabric,
    pairs: _Pairs,
    error_rate: NDArray[np.float64],
    packet_bytes: NDArray[np.int64],
    arrival_ps: NDArray[np.int64],
) -> _Losses:
    if not len(pairs.job):
        return _Losses(np.zeros(0), np.zeros(0), np.zeros(0))
    begins = pairs.hop_first[:-1]
    forward, back = (np.add.reduceat(error_rate[slots], begins) for slots in (fabric.ports.peer[pairs.hop], pairs.hop))
    lost, nak_lost = -np.expm1(-forward * 8 * packet_bytes), -np.expm1(-back * 8 * _RULES.ack_bytes)
    ack_s = timings().of_adapter("", _RULES.technology).ack_ns * 1e-9
    return _Losses(
        lost=lost,
        round_trip_s=2e-12 * np.add.reduceat(arrival_ps[pairs.hop], begins) + ack_s,
        times_out=(lost + nak_lost) / np.maximum(1 - lost, 1e-9),
    )
