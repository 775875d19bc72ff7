"""The traffic as the kernels see it: messages split into packets, queue pairs, and their costs at the adapters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.tables import SERVICE_LEVELS
from weft.sim.adaptive import POLICIES
from weft.sim.engine import Network, Options
from weft.sim.layout.hosts import make_hosts
from weft.sim.layout.path_records import lid_offsets, path_records
from weft.sim.layout.records import MESSAGE, NONE, QP, FlowControl, Records, distinct_rows, fill, records
from weft.sim.layout.rules import OVERTAKING, Rules
from weft.sim.layout.wiring import Wiring
from weft.sim.traffic import PATH_SL, Operation, Traffic, Transport
from weft.wire.headers import AETH, DETH, GRH, RETH


@dataclass(frozen=True, kw_only=True, eq=False)
class Posting:
    """The messages of a run: those of the traffic, and the response data of each RDMA read."""

    messages: Records  # MESSAGE records
    p_key: NDArray[np.int64]  # [message], ANY: not checked
    back_p_key: NDArray[np.int64]  # for its acknowledgements
    mtu_bytes: NDArray[np.int64]  # limit of its path
    qps: Records  # QP records
    hosts: Records  # HOST records
    ack_ps: NDArray[np.int64]  # [host]
    size_bytes: NDArray[np.int32]  # [size] -> on the wire
    size_packets: NDArray[np.int64]  # [size] -> number of packets of this size
    ack_size: int
    successor_first: NDArray[np.int64]
    successors: NDArray[np.int32]
    last_of: NDArray[np.int64]  # [message of the traffic] -> the message that completes it


def post(wiring: Wiring, traffic: Traffic, options: Options, rules: Rules) -> Posting:
    """Check the traffic and split it into packets."""
    _refuse_bad_messages(wiring, traffic, options, rules)
    src, dst = (wiring.port_of_slot[ends] for ends in (traffic.src, traffic.dst))
    reads = np.flatnonzero(traffic.operation == Operation.READ)
    n, n_reads = len(traffic), len(reads)
    messages = records(n + n_reads, MESSAGE)
    whose = np.concatenate((np.arange(n), reads))  # [message] -> row of the traffic
    is_answer = np.arange(n + n_reads) >= n
    fill(
        messages,
        src=np.where(is_answer, dst[whose], src[whose]),
        dst=np.where(is_answer, src[whose], dst[whose]),
        finish_ps=NONE,
        acked_ps=NONE,
        next=NONE,
        branch=NONE,
    )
    lid = wiring.fabric.tables.lid[wiring.slot]
    mlid = traffic.mlid[whose]
    messages.dlid = np.where(mlid > 0, mlid, lid[messages.dst] + lid_offsets(wiring, messages, options))
    messages.slid = np.where(mlid > 0, mlid, lid[messages.src])  # a group sends no response
    messages.sl, p_key, mtu_bytes, rate_gbit_s = path_records(wiring, traffic.sl[whose], messages.src, messages.dlid)
    messages.back_sl, back_p_key, _, _ = path_records(wiring, traffic.sl[whose], messages.dst, messages.slid)
    mtu_bytes = np.minimum(mtu_bytes, options.mtu_bytes)
    is_request = (traffic.operation[whose] == Operation.READ) & ~is_answer
    messages.bytes = np.where(is_request, 0, traffic.size_bytes[whose])
    sizes, uses, ack_size = _packetize(
        messages, traffic, whose, is_request, mtu_bytes, _crosses_router(wiring, messages), rules
    )
    last_of = np.arange(n)
    last_of[reads] = np.arange(n, n + n_reads)
    first, successors, waits_for = _successors(traffic, last_of, reads, n + n_reads)
    messages.waits_for = waits_for
    messages.delay_ps[:n] = traffic.delay_ps
    messages.start_ps[:n] = traffic.start_ps
    _refuse_cycles(traffic, messages, first, successors)
    qps, hosts, ack_ps = _set_costs(wiring, traffic, messages, whose, is_answer, mtu_bytes, rate_gbit_s, options, rules)
    return Posting(
        messages=messages,
        p_key=p_key,
        back_p_key=back_p_key,
        mtu_bytes=mtu_bytes,
        qps=qps,
        hosts=hosts,
        ack_ps=ack_ps,
        size_bytes=sizes,
        size_packets=uses,
        ack_size=ack_size,
        successor_first=first,
        successors=successors,
        last_of=last_of,
    )


# -- checks -----------------------------------------------------------------------------------------------------------


def _refuse_bad_messages(wiring: Wiring, traffic: Traffic, options: Options, rules: Rules) -> None:
    if not len(traffic):
        raise ConfigError("the traffic has no messages")

    def refuse(rows: NDArray[np.bool_], rule: str) -> None:
        if rows.any():
            row = int(np.flatnonzero(rows)[0])
            src_name, dst_name = (wiring.fabric.port(int(ends[row])).name for ends in (traffic.src, traffic.dst))
            raise ConfigError(
                f"message {row}, {src_name} to {dst_name}, {int(traffic.size_bytes[row]):,} bytes: {rule}"
            )

    for ends, end in ((traffic.src, "sender"), (traffic.dst, "receiver")):
        if (bad := (ends < 0) | (ends >= len(wiring.port_of_slot))).any():
            row = int(np.flatnonzero(bad)[0])
            raise ConfigError(f"message {row}: its {end} is port slot {ends[row]}, the fabric has {len(wiring.slot):,}")
        port = wiring.port_of_slot[ends]
        refuse((port < 0) | (wiring.host[np.maximum(port, 0)] < 0), f"its {end} is not an adapter port on this network")
    to_one = (traffic.mlid == 0) & (traffic.reduction == 0)
    refuse(to_one & (traffic.src == traffic.dst), "sender and receiver are the same")
    refuse(traffic.size_bytes < 0, "its size is negative")
    refuse(traffic.size_bytes > 1 << 42, "its size is above 4 TiB")
    refuse((traffic.start_ps < 0) | (traffic.delay_ps < 0), "its start or delay is negative")
    refuse((traffic.sl < PATH_SL) | (traffic.sl >= SERVICE_LEVELS), "its service level must be 0 to 15")
    elsewhere = ~to_one & (options.network is not Network.INFINIBAND)
    refuse(elsewhere, f"multicast and reductions are simulated on InfiniBand only, not on {options.network}")
    refuse((traffic.mlid > 0) & (traffic.transport != Transport.UD), "multicast needs transport UD")
    refuse((traffic.reduction > 0) & (traffic.transport != Transport.UC), "a reduction needs transport UC")
    too_big = to_one & (traffic.transport == Transport.UD) & (traffic.size_bytes > options.mtu_bytes)
    refuse(too_big, f"a datagram (UD) is one packet of at most {options.mtu_bytes} bytes: use RC or UC")
    read_on_ud = (traffic.operation == Operation.READ) & (traffic.transport != Transport.RC)
    refuse(read_on_ud, "RDMA read needs transport RC")
    if options.network is Network.TCP or rules.uet:
        refuse(traffic.transport != Transport.RC, f"{str(options.network).upper()} needs transport RC")
    if ((traffic.after < 0) | (traffic.after >= len(traffic))).any():
        raise ConfigError(f"a message waits for an unknown one: messages are 0 to {len(traffic) - 1}")


def _refuse_cycles(
    traffic: Traffic, messages: Records, first: NDArray[np.int64], successors: NDArray[np.int32]
) -> None:
    """Raise ConfigError if messages wait for each other in a cycle."""
    in_cycle = np.ones(len(messages), np.bool_)
    for wave, _, _ in waves(first, successors, messages.waits_for):
        in_cycle[wave] = False
    if in_cycle.any():
        row = min(int(np.argmax(in_cycle)), len(traffic) - 1)
        raise ConfigError(
            f"message {row} waits for itself in a cycle of {in_cycle.sum()} messages: remove a dependency"
        )


def waves(
    first: NDArray[np.int64], to: NDArray[Any], waits_for: NDArray[Any]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield waves of messages: those without dependencies, then those that waited only for them, and so on, with
    `ranges`.
    """
    waits = waits_for.astype(np.int64)
    wave = np.flatnonzero(waits == 0)
    while len(wave):
        at, counts = ranges(first, wave)
        yield wave, at, counts
        np.subtract.at(waits, to[at], 1)
        wave = np.unique(to[at])
        wave = wave[waits[wave] == 0]


def ranges(first: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of all entries of these rows, row after row, and the number of each row."""
    counts = first[rows + 1] - first[rows]
    return np.repeat(first[rows] - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum())), counts


# -- messages ---------------------------------------------------------------------------------------------------------


def _crosses_router(wiring: Wiring, messages: Records) -> NDArray[np.bool_]:
    """Return a mask of the messages to another subnet, whose packets have a global route header."""
    subnet = wiring.fabric.tables.subnet
    if subnet is None:
        return np.zeros(len(messages), np.bool_)
    src, dst = (subnet[wiring.slot[ends]] for ends in (messages.src, messages.dst))
    different: NDArray[np.bool_] = src != dst
    return different


def _packetize(
    messages: Records,
    traffic: Traffic,
    whose: NDArray[np.int64],
    is_request: NDArray[np.bool_],
    mtu: NDArray[np.int64],
    crosses: NDArray[np.bool_],
    rules: Rules,
) -> tuple[NDArray[np.int32], NDArray[np.int64], int]:
    """Split the messages into packets; return [size] -> bytes on the wire, and the number of packets of each size."""
    payload = messages.bytes.astype(np.int64)
    count = np.maximum(-(-payload // mtu), 1)
    if (count > np.iinfo(np.int32).max).any():
        raise ConfigError("a message has over 2**31 packets: send it in parts")
    operation, transport = traffic.operation[whose], traffic.transport[whose]
    is_answer = (operation == Operation.READ) & ~is_request
    to_group = traffic.mlid[whose] > 0
    each_more = np.where(to_group, GRH.size + DETH.size, 0)  # it is split into datagrams
    each_more += np.where(crosses, GRH.size, 0)
    bare = rules.uet | to_group | (~is_answer & ~is_request & (rules.flow is FlowControl.DROP))
    # Extra headers in the first packet of a message; a read response has its own in the last one too.
    kinds = (bare, is_answer, is_request, transport == Transport.UD, operation == Operation.WRITE)
    first_more = np.select(kinds, (0, AETH.size, RETH.size, DETH.size, RETH.size))

    def on_wire(size: NDArray[np.int64]) -> NDArray[np.int64]:
        return -(-size // 4) * 4 + rules.header_bytes + each_more

    full = on_wire(mtu)
    last = on_wire(payload - (count - 1) * mtu) + np.where(count == 1, first_more, np.where(is_answer, AETH.size, 0))
    first = np.where(count == 1, last, full + first_more)
    sizes, index = _distinct_sizes(np.concatenate((first, full, last, [rules.ack_bytes])))
    if len(sizes) > np.iinfo(np.int16).max:
        raise ConfigError(f"the packets have {len(sizes):,} different sizes (limit 32,767): use fewer message sizes")
    n = len(messages)
    fill(messages, packets=count, first=index[:n], full=index[n : 2 * n], last=index[2 * n : 3 * n])
    uses = np.bincount(index[:n], minlength=len(sizes)) + np.bincount(index[2 * n : 3 * n], minlength=len(sizes))
    uses += np.bincount(index[n : 2 * n], np.maximum(count - 2, 0), minlength=len(sizes)).astype(np.int64)
    uses[index[-1]] += n
    return sizes.astype(np.int32), uses, int(index[-1])


def _distinct_sizes(size_bytes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sizes of packets in order, and the index of each packet's size. No packet exceeds the largest MTU."""
    used = np.zeros(int(size_bytes.max()) + 1, np.bool_)
    used[size_bytes] = True
    return np.flatnonzero(used), (np.cumsum(used) - 1)[size_bytes]


def _successors(
    traffic: Traffic, last_of: NDArray[np.int64], reads: NDArray[np.int64], n_messages: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return the messages that wait for each one, as CSR arrays, and the number that each waits for."""
    n = len(traffic)
    later = np.repeat(np.arange(n), np.diff(traffic.after_first))
    before = last_of[traffic.after]
    pairs = [np.column_stack((before, later)), np.column_stack((reads, last_of[reads]))]
    if traffic.outstanding and len(reads):  # a read is posted when the data of an earlier one has arrived
        pairs.append(_read_window(traffic, last_of, reads))
    arcs = np.concatenate(pairs)
    arcs = arcs[np.argsort(arcs[:, 0], kind="stable")]
    first = np.concatenate(([0], np.cumsum(np.bincount(arcs[:, 0], minlength=n_messages)))).astype(np.int64)
    return first, arcs[:, 1].astype(np.int32), np.bincount(arcs[:, 1], minlength=n_messages)


def _read_window(traffic: Traffic, last_of: NDArray[np.int64], reads: NDArray[np.int64]) -> NDArray[np.int64]:
    keys = np.column_stack([column[reads] for column in (traffic.src, traffic.dst, traffic.qp)])
    _, group = distinct_rows(keys)
    order = np.argsort(group, kind="stable")
    grouped, ordered = group[order], reads[order]
    k = traffic.outstanding
    same = grouped[k:] == grouped[:-k] if k < len(order) else np.zeros(0, bool)
    return (
        np.column_stack((last_of[ordered[:-k][same]], ordered[k:][same])) if len(same) else np.empty((0, 2), np.int64)
    )


# -- what it costs ----------------------------------------------------------------------------------------------------


def _set_costs(
    wiring: Wiring,
    traffic: Traffic,
    messages: Records,
    whose: NDArray[np.int64],
    is_answer: NDArray[np.bool_],
    mtu_bytes: NDArray[np.int64],
    rate_gbit_s: NDArray[np.float64],
    options: Options,
    rules: Rules,
) -> tuple[Records, Records, NDArray[np.int64]]:
    """Return queue pairs and hosts with their costs; set `qp` and `lead_ps` of the messages."""
    hosts, cost = make_hosts(wiring, options, rules)
    lid = np.where(traffic.mlid[whose] > 0, 0, messages.dlid)
    keys = np.column_stack(
        (messages.src, messages.dst, messages.sl, traffic.transport[whose], traffic.qp[whose], is_answer, lid)
    )
    unique, messages.qp = distinct_rows(keys)
    qps = records(len(unique), QP)
    owner = wiring.host[unique[:, 0]]
    answers = unique[:, 5].astype(bool)
    losses = can_lose(wiring, options, rules)
    # on a lossless network responses need no acknowledgement
    acked = (unique[:, 3] == Transport.RC) & (~answers | losses)
    host_gbit_s = wiring.port_rate_gbit_s[unique[:, 0]]
    line_gbit_s = host_gbit_s.astype(np.float64)
    np.minimum.at(line_gbit_s, messages.qp, rate_gbit_s)
    line_ps_per_kib, slowed = np.rint(1024 * 8_000 / line_gbit_s).astype(np.int64), line_gbit_s < host_gbit_s
    fill(
        qps,
        dst=unique[:, 1],
        host=owner,
        sl=unique[:, 2],
        flow=np.random.default_rng(options.seed).integers(1 << 30, size=len(unique)),  # stands for the UDP source port
        acked=acked,
        gap_ps=cost["gap_ps"][owner],
        ps_per_kib=cost["read_ps_per_kib"][owner],
        setup_ps=cost["setup_ps"][owner] + np.where(answers, cost["respond_ps"][owner], 0),
        window=np.where(acked & ~answers, traffic.outstanding, 0),
        rate=1.0,
        target=1.0,
        alpha=1.0,
        line_ps_per_kib=line_ps_per_kib,
        slowed=slowed,
        notified_ps=-(1 << 60),
        timer_ps=NONE,
        **dict.fromkeys(("unsent", "oldest", "last", "lost", "again", "next"), NONE),
    )
    if options.network is Network.TCP:
        qps.window_packets, qps.threshold = 10.0, 1e9  # RFC 6928
        qps.quick_acks = 16  # Linux: TCP_MAX_QUICKACKS at the start of a connection
        # A connection has one core at each end.
        qps.pace_ps_per_kib, qps.packet_ps = cost["read_ps_per_kib"][owner], cost["packet_ps"][owner]
        qps.receive_packet_ps = cost["receive_packet_ps"][wiring.host[unique[:, 1]]]
    qps.pace_ps_per_kib[slowed] = line_ps_per_kib[slowed]
    hosts.receive_ps = cost["receive_ps"]
    messages.lead_ps = _lead_ps(wiring, messages, is_answer, mtu_bytes, cost)
    _keep_order(messages)
    return qps, hosts, cost["ack_ps"]


def can_lose(wiring: Wiring, options: Options, rules: Rules) -> bool:
    """Return whether packets can be lost: by queues, bit errors, cut cables, or adapters that drop what overtakes."""
    cut = any(fault.startswith("cut:") for fault in options.faults)
    cut |= options.in_order and POLICIES[str(options.paths)].selection in OVERTAKING
    return cut or rules.flow is FlowControl.DROP or rules.uet or bool((wiring.ports.bytes_per_error > 0).any())


def _lead_ps(
    wiring: Wiring,
    messages: Records,
    is_answer: NDArray[np.bool_],
    mtu_bytes: NDArray[np.int64],
    cost: dict[str, NDArray[np.int64]],
) -> NDArray[np.int64]:
    """Return the time from the start of each message until its first packet can leave ([message]).

    An adapter has a whole packet before it sends it, and before it writes it to memory at the far end. Nothing in
    between
    depends on either time, so both are included here.
    """
    src, dst = (wiring.host[ends] for ends in (messages.src, messages.dst))
    inlined = (messages.bytes <= cost["inline_bytes"][src]) & ~is_answer
    packet = np.minimum(messages.bytes, mtu_bytes).astype(np.int64)
    both_ends = (packet * (cost["lone_ps_per_kib"][src] + cost["lone_ps_per_kib"][dst])) >> 10
    fetch = np.where(inlined, messages.bytes * cost["inline_ps"][src], cost["read_ps"][src] + both_ends)
    staged = np.where(messages.bytes > 0, cost["memory_ps"][src], 0)
    # No program takes part in a read response: subtract the receive cost of the request.
    begin = np.where(is_answer, -cost["receive_ps"][src], cost["post_ps"][src])
    lead_ps: NDArray[np.int64] = begin + fetch + staged
    return lead_ps


def _keep_order(messages: Records) -> None:
    """Keep each send queue in posting order: a small message waits for a large one posted before it."""
    shared = np.bincount(messages.qp) > 1  # with one message there is no order
    free = np.flatnonzero((messages.waits_for == 0) & shared[messages.qp])
    order = free[np.lexsort((messages.start_ps[free], messages.qp[free]))]
    ready_ps = messages.start_ps[order] + messages.lead_ps[order]
    qp = messages.qp[order].astype(np.int64)
    apart_ps = int(ready_ps.max(initial=0)) + 1  # separates the queue pairs
    in_order_ps = np.maximum.accumulate(ready_ps + qp * apart_ps) - qp * apart_ps
    messages.lead_ps[order] = in_order_ps - messages.start_ps[order]
