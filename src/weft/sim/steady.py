"""A load that goes on and on: which rates jobs get on the tables as they are, and which ports wait.

    steady = settle(fabric, [Job(name="train", pattern="ring", hosts=slots, share=0.8)], Ills())
    steady.job_gbit_s                       what each job achieves
    counts = advance(steady, 60.0, rng)     of `steady_counts`: what the ports count in a minute

Each pair of a job is a flow along the path that the forwarding tables have, at its max-min fair rate: links, what a
host wants to send and what a receiver takes are shared (`flow.fair`). A port that is above a bottleneck has something
to send at all times: what it does not send, it waits. Errors cost what a reliable connection does about them: it sends
again all that was under way when it hears of a loss, W packets; and when what it sends again is lost too, or the word
of it, nothing happens until its timeout is over. Of its rate 1 / (1 + p W + p p T) is left, with T in packets.

Not here: queues, lanes and their weights, congestion control, acknowledgements; a flow has one path also where
switches route adaptively. `tests/crosscheck/test_steady.py` holds it to the packet engine where both know the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, UnknownName
from weft.fabric.forwarding import ANY, Reason, matching
from weft.fabric.kernels.forwarding import arrays, walk_all
from weft.fabric.model import Fabric
from weft.fabric.timing import timings
from weft.routing.patterns import Flows, shift
from weft.sim.engine import Network, Options, Switching
from weft.sim.fec import has_fec, raw_rates
from weft.sim.flow.fair import fair_rates
from weft.sim.layout.rules import RULES, ack_bytes
from weft.sim.layout.wiring import wire
from weft.wire.crc import VCRC_BYTES
from weft.wire.port_info import PortInfo

MOST_FLOWS = 2_000_000
GOOD_BER, GOOD_SPREAD, WORST_GOOD_BER = 1e-17, 0.5, 1e-15  # of cables that nobody calls bad: median, decades, most
RETRY_S = 4.096e-6 * 2 ** Options().ack_timeout_exponent  # that a sender waits to hear something
_RULES = RULES[Network.INFINIBAND]
_AT_ONCE = 1 << 16  # paths that are followed
_HARDLY = 1 - 1e-6  # part of the time: who sends less is slowed down
_STORES = 8  # one host in so many is a storage server
NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """Hosts that send to each other for ever; `hosts` are port slots, in the order of its ranks."""

    name: str
    pattern: str
    hosts: NDArray[np.int64]
    share: float = 1.0  # of its line rate, that each host wants to send, to all its partners the same
    seed: int = 1  # of a permutation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ills:
    """What is wrong beside what the fabric itself says: bit error rates of its links, and links that are missing."""

    takes: Mapping[int, float] = field(default_factory=dict)  # slot of a host -> share of its line rate that it takes
    seed: int = 1  # of how good the good cables are


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steady:
    """Rates per second and shares of the time, [slot] unless it says otherwise."""

    fabric: Fabric
    jobs: tuple[Job, ...]
    job_wanted_gbit_s: NDArray[np.float64]  # [job] -> of payload
    job_gbit_s: NDArray[np.float64]  # [job] -> of payload that arrives
    # [job] -> what its slowest pair gets of what it wants: who waits for all, waits for it.
    job_slowest: NDArray[np.float64]
    bit_error_rate: NDArray[np.float64]  # of what a port receives, after error correction
    symbol_error_rate: NDArray[np.float64]  # before it; 0 on lines that have none
    line_gbit_s: NDArray[np.float64]  # 0 where no link is up
    packets_s: NDArray[np.float64]  # that leave
    words: NDArray[np.float64]  # of a packet that leaves, as PortXmitData counts them; mean
    busy: NDArray[np.float64]  # share of the time in which it sends
    wait: NDArray[np.float64]  # in which it has something to send, and may not
    hop_first: NDArray[np.int64]  # [flow + 1]
    hop: NDArray[np.int32]  # slots by which flows leave, hop by hop
    flow_packets_s: NDArray[np.float64]
    lost: tuple[tuple[int, Reason, int], ...]  # where flows end before their time, why, and how many


def _ring(n: int, _: np.random.Generator) -> Flows:
    return shift(n, 1)


def _all_to_all(n: int, _: np.random.Generator) -> Flows:
    return np.concatenate([shift(n, by) for by in range(1, n)])


def _permutation(n: int, rng: np.random.Generator) -> Flows:
    """A random ring: nobody sends to itself."""
    order = rng.permutation(n)
    return np.column_stack((order, np.roll(order, -1))).astype(np.int32)


def _incast(n: int, _: np.random.Generator) -> Flows:
    senders = np.arange(1, n, dtype=np.int32)
    return np.column_stack((senders, np.zeros_like(senders)))


def _storage(n: int, _: np.random.Generator) -> Flows:
    """The first hosts are servers; each of the others reads from one and writes to it."""
    stores = max(1, n // _STORES)
    clients = np.arange(stores, n, dtype=np.int32)
    servers = (clients - stores) % stores
    return np.concatenate((np.column_stack((clients, servers)), np.column_stack((servers, clients)))).astype(np.int32)


PATTERNS: dict[str, Callable[[int, np.random.Generator], Flows]] = {
    "ring": _ring,
    "all-to-all": _all_to_all,
    "permutation": _permutation,
    "incast": _incast,
    "storage": _storage,
}


def check_job(job: Job) -> None:
    if job.pattern not in PATTERNS:
        raise UnknownName("pattern of a load", job.pattern, PATTERNS)
    if len(job.hosts) < 2:
        raise ConfigError(f"job {job.name} has {len(job.hosts)} host: nobody sends to itself, give 2 or more")
    if len(np.unique(job.hosts)) < len(job.hosts):
        raise ConfigError(f"job {job.name} has a host twice: give each once")
    if job.pattern == "all-to-all" and len(job.hosts) ** 2 > MOST_FLOWS:  # before they are made
        raise ConfigError(
            f"job {job.name} is all-to-all among {len(job.hosts):,} hosts, {len(job.hosts) ** 2:,} pairs: at most "
            f"{MOST_FLOWS:,} go. Make several jobs of it, or a permutation"
        )
    if not 0 < job.share <= 1:
        raise ConfigError(f"job {job.name} wants {job.share:g} of line rate: give a share above 0, at most 1 (80%)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """All flows of all jobs that their tables let through."""

    job: NDArray[np.int64]
    dst: NDArray[np.int64]
    wants_gbit_s: NDArray[np.float64]  # on the wire
    job_wants_gbit_s: NDArray[np.float64]  # [job] -> the sum, with those that are not let through
    job_is_whole: NDArray[np.bool_]  # [job] -> are all let through?
    hop_first: NDArray[np.int64]
    hop: NDArray[np.int32]
    lost: tuple[tuple[int, Reason, int], ...]


def settle(fabric: Fabric, jobs: Sequence[Job], ills: Ills | None = None) -> Steady:
    """The rates of a fabric as it is now: cables that are up, and the tables that somebody wrote."""
    ills = ills or Ills()
    for job in jobs:
        check_job(job)
    line_gbit_s, packet_gbit_s, arrival_ps = _lines(fabric)
    pairs = _pairs(fabric, jobs, packet_gbit_s)
    error_rate = bit_error_rates(fabric, ills)
    payload_bytes = _payload_bytes(fabric, pairs)
    packet_bytes = payload_bytes + _RULES.header_bytes
    rate, held_at = _share(pairs, pairs.wants_gbit_s, packet_gbit_s, ills)
    losses, packets_s = _losses(fabric, pairs, error_rate, packet_bytes, arrival_ps), rate * 1e9 / (8 * packet_bytes)
    active, useful = losses.active(packets_s), 1 / (1 + losses.again(packets_s))
    if (stalls := active < _HARDLY).any():  # what these do not send others may
        wants = np.where(stalls, rate * active, pairs.wants_gbit_s)
        rate, held_at = _share(pairs, wants, packet_gbit_s, ills)
        packets_s = rate * 1e9 / (8 * packet_bytes)
    n_slots, flow = len(fabric.ports), np.repeat(np.arange(len(rate)), np.diff(pairs.hop_first))
    by_slot = [
        _sums(pairs.hop, one[flow], n_slots) for one in (packets_s, packets_s * (packet_bytes - VCRC_BYTES) / 4, rate)
    ]
    slowest = pairs.job_is_whole.astype(np.float64)
    np.minimum.at(slowest, pairs.job, rate * useful / np.maximum(pairs.wants_gbit_s, 1e-9))
    busy = np.minimum(by_slot[2] / np.maximum(packet_gbit_s, 1e-9), 1.0)
    return Steady(
        fabric=fabric,
        jobs=tuple(jobs),
        job_wanted_gbit_s=pairs.job_wants_gbit_s * _RULES.mtu_bytes / (_RULES.mtu_bytes + _RULES.header_bytes),
        job_gbit_s=_sums(pairs.job, rate * useful * payload_bytes / packet_bytes, len(jobs)),
        job_slowest=slowest,
        bit_error_rate=error_rate,
        symbol_error_rate=has_fec(fabric) * raw_rates(error_rate, WORST_GOOD_BER, ills.seed),
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


def bit_error_rates(fabric: Fabric, ills: Ills) -> NDArray[np.float64]:
    """[slot] -> of what it receives. Good cables differ, and none is perfect."""
    decades = np.random.default_rng(ills.seed).normal(np.log10(GOOD_BER), GOOD_SPREAD, len(fabric.ports))
    good = np.minimum(10.0**decades, WORST_GOOD_BER)
    return np.where(fabric.ports.link >= 0, np.maximum(fabric.receive_error_rate, good), 0.0)


def _lines(fabric: Fabric) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """[slot] -> Gbit/s of the line, and of packets on it; from the first byte until the far end has it."""
    wiring = wire(fabric, _RULES, Switching.CUT_THROUGH)
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


def _pairs(fabric: Fabric, jobs: Sequence[Job], packet_gbit_s: NDArray[np.float64]) -> _Pairs:
    """Who sends to whom, how much, and on which way."""
    ranks = [PATTERNS[job.pattern](len(job.hosts), np.random.default_rng(job.seed)) for job in jobs]
    if sum(map(len, ranks)) > MOST_FLOWS:
        raise ConfigError(
            f"{sum(map(len, ranks)):,} pairs are too many to share links among: at most {MOST_FLOWS:,} go"
        )
    no_ends = np.zeros((0, 2), np.int64)
    ends = np.concatenate([no_ends, *(job.hosts[one] for job, one in zip(jobs, ranks, strict=True))])
    of_job = np.repeat(np.arange(len(jobs)), [len(one) for one in ranks])
    wants = _wants(jobs, of_job, ends[:, 0], packet_gbit_s)
    dlid, p_key = fabric.tables.lid[ends[:, 1]].astype(np.int64), _common_keys(fabric, ends)
    known = np.flatnonzero((dlid > 0) & (p_key != 0))  # others have no path record, and send nothing
    pairs_of, wanted = np.bincount(of_job, minlength=len(jobs)), _sums(of_job, wants, len(jobs))
    of_job, ends, wants = of_job[known], ends[known], wants[known]
    packets = np.column_stack((ends[:, 0], dlid[known], _levels(fabric, ends, dlid[known]), p_key[known], 0 * known))
    seen = arrays(fabric)
    hops, reasons, last, ways = [], [], [], []
    for begin in range(0, len(packets), _AT_ONCE):
        walks = walk_all(seen, np.ascontiguousarray(packets[begin : begin + _AT_ONCE]))
        there = walks.reason == Reason.ARRIVED
        hops.append(walks.hops[there])
        ways.append(walks.out[there][np.arange(walks.out.shape[1]) < walks.hops[there][:, None]])
        reasons.append(walks.reason)
        last.append(walks.end)
    reason, end = (np.concatenate([np.zeros(0, np.int64), *parts]) for parts in (reasons, last))
    arrived = reason == Reason.ARRIVED
    stuck, times = np.unique(np.column_stack((end, reason))[~arrived], axis=0, return_counts=True)
    return _Pairs(
        job=of_job[arrived],
        dst=ends[arrived, 1],
        wants_gbit_s=wants[arrived],
        job_wants_gbit_s=wanted,
        job_is_whole=np.bincount(of_job[arrived], minlength=len(jobs)) == pairs_of,
        hop_first=np.concatenate(([0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *hops])))).astype(np.int64),
        hop=np.concatenate([np.zeros(0, np.int32), *ways]).astype(np.int32),
        lost=tuple((int(at), Reason(int(why)), int(n)) for (at, why), n in zip(stuck, times, strict=True)),
    )


def _wants(
    jobs: Sequence[Job], job: NDArray[np.int64], src: NDArray[np.int64], packet_gbit_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[flow] -> Gbit/s on the wire: its part of what its sender wants; who has no cable wants what the others do."""
    if not len(job):
        return np.zeros(0)
    _, sender, flows = np.unique(np.column_stack((job, src)), axis=0, return_inverse=True, return_counts=True)
    line = np.where(packet_gbit_s[src] > 0, packet_gbit_s[src], packet_gbit_s.max())
    share = np.array([one.share for one in jobs])
    wants: NDArray[np.float64] = share[job] * line / flows[sender.ravel()]
    return wants


def _levels(fabric: Fabric, ends: NDArray[np.int64], dlid: NDArray[np.int64]) -> NDArray[np.int64]:
    """The SL that the routing engine gives, if it said so."""
    tables = fabric.tables
    if "path_sl" not in vars(tables):
        return np.zeros(len(ends), np.int64)
    leaf = tables.switch_row[fabric.ports.node[fabric.ports.peer[ends[:, 0]]]]
    return np.where(leaf >= 0, tables.path_sl[leaf, dlid], 0).astype(np.int64)


def _common_keys(fabric: Fabric, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first P_Key of each sender that its receiver takes; 0: they have none in common."""
    if "pkey" not in vars(fabric.tables):
        return np.full(len(ends), ANY)
    hosts, index = np.unique(ends, return_inverse=True)
    tables, which = np.unique(fabric.tables.pkey[hosts], axis=0, return_inverse=True)
    keys = tables.tolist()
    both, of = np.unique(which.ravel()[index.reshape(-1, 2)], axis=0, return_inverse=True)
    found = [next((k for k in keys[a] if matching(keys[b], k) != NONE), 0) for a, b in both.tolist()]
    return np.array(found, np.int64)[of.ravel()]


def _payload_bytes(fabric: Fabric, pairs: _Pairs) -> NDArray[np.int64]:
    """[flow] -> of a packet: the least MTU on its way."""
    if not fabric.tables.runs or not len(pairs.job):
        return np.full(len(pairs.job), _RULES.mtu_bytes)
    mtu_bytes = 128 << fabric.tables.of_ports(PortInfo.neighbor_mtu).astype(np.int64)
    return np.minimum.reduceat(mtu_bytes[pairs.hop], pairs.hop_first[:-1])


# -- rates ------------------------------------------------------------------------------------------------------------


def _share(
    pairs: _Pairs, wants_gbit_s: NDArray[np.float64], packet_gbit_s: NDArray[np.float64], ills: Ills
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """[flow] -> Gbit/s on the wire; and what holds it: hop of its way, one more for the receiver, NONE for itself.

    Behind the ports stand two more links for each flow: what its receiver takes, and what it wants.
    """
    n, hops, flows = len(packet_gbit_s), np.diff(pairs.hop_first), np.arange(len(pairs.job))
    takes = np.ones(n)
    takes[list(ills.takes)] = list(ills.takes.values())
    first = pairs.hop_first + 2 * np.arange(len(pairs.hop_first))
    link = np.zeros(first[-1], np.int32)
    is_hop = np.ones(len(link), bool)
    is_hop[first[1:] - 1] = is_hop[first[1:] - 2] = False
    link[is_hop] = pairs.hop
    link[first[1:] - 2], link[first[1:] - 1] = n + pairs.dst, 2 * n + flows
    rate, held_by = fair_rates(first, link, np.concatenate((packet_gbit_s, takes * packet_gbit_s, wants_gbit_s)))
    flow = np.repeat(flows, hops + 2)
    place = np.arange(len(link)) - first[flow]
    held_at = np.full(len(rate), NONE)
    held = (link == held_by[flow]) & (place <= hops[flow])
    held_at[flow[held]] = place[held]
    return rate, held_at


def _is_blocked(pairs: _Pairs, held_at: NDArray[np.int64], n_slots: int) -> NDArray[np.bool_]:
    """[slot] -> is it on the way of a flow, before what holds that back?"""
    hops = np.diff(pairs.hop_first)
    flow = np.repeat(np.arange(len(hops)), hops)
    before = np.arange(len(pairs.hop)) - pairs.hop_first[flow] < held_at[flow]
    found = np.zeros(n_slots, bool)
    found[pairs.hop[before]] = True
    return found


class _Losses(NamedTuple):
    """[flow] -> what errors do to a reliable connection."""

    lost: NDArray[np.float64]  # part of its packets
    round_trip_s: NDArray[np.float64]
    # Of its losses, those that only a timeout mends: the packet is lost again, or the NAK.
    times_out: NDArray[np.float64]

    def again(self, packets_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Packets sent again for each that arrives: what was lost, what told of it, what was under way till then."""
        packets: NDArray[np.float64] = self.lost * (2 + self.round_trip_s * packets_s)
        return packets

    def active(self, packets_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Part of the time in which it does not wait for a timeout."""
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
    there, back = (np.add.reduceat(error_rate[slots], begins) for slots in (fabric.ports.peer[pairs.hop], pairs.hop))
    lost, nak_lost = -np.expm1(-there * 8 * packet_bytes), -np.expm1(-back * 8 * ack_bytes(_RULES))
    ack_s = timings().of_adapter("", _RULES.technology).ack_ns * 1e-9
    return _Losses(
        lost=lost,
        round_trip_s=2e-12 * np.add.reduceat(arrival_ps[pairs.hop], begins) + ack_s,
        times_out=(lost + nak_lost) / np.maximum(1 - lost, 1e-9),
    )
