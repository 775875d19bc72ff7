r"""Traffic over planes: each packet, message or queue pair of an adapter takes one of them.

    packet        packets take turns among the planes, and the receiver places them out of order: a message of
                  n packets on P planes sends ceil(n/P) over the busiest
    message       messages of an adapter take turns
    queue-pair    a hash of the queue pair picks the plane: one flow never exceeds the rate of one plane

Planes share nothing but the adapters. Where all are equal and packets take turns, every plane carries the same traffic,
and one run of one plane gives the times of all. Otherwise the planes are written out (`weft.fabric.planes.expand`),
each message becomes one in each plane that it uses, and it has arrived when the last of them has. A plane in which
either end has no cable, or from which no router leads to the other subnet, is not used for that pair.

Adapters that place packets in order only (`in_order`) cannot let packets of a message take turns: without another
choice their queue pairs take one plane each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SubnetError
from weft.fabric.joined_subnets import join_subnets
from weft.fabric.model import Fabric
from weft.fabric.planes import expand
from weft.sim.engine import Options, PlaneChoice, Progress
from weft.sim.layout.rules import fill_in
from weft.sim.result import NEVER, Result
from weft.sim.traffic import Traffic

MOST_EXPANDED_PORTS = 2_000_000  # beyond that, a message of fewer packets than planes counts in full in one plane
_GOLDEN, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # of splitmix64

Run = Callable[[Fabric, Traffic, Options, Progress | None], Result]


def run_over_planes(
    run: Run, fabric: Fabric, traffic: Traffic, options: Options | None, progress: Progress | None
) -> Result:
    """Run traffic of whole adapters by an engine that runs traffic of ports; with one plane these are the same."""
    options = options or Options()
    fabric = join_subnets(fabric)
    if fabric.planes == 1:
        if options.plane_choice is not None:
            raise ConfigError(f"--plane-choice changes nothing: {fabric.spec} has one plane. Leave it out")
        return run(fabric, traffic, options, progress)
    if options.in_order and options.plane_choice is PlaneChoice.PACKET:
        raise ConfigError(
            "--plane-choice packet sends one message by several planes, whose packets overtake each other: leave out "
            "--in-order, or use --plane-choice queue-pair"
        )
    default = PlaneChoice.QUEUE_PAIR if options.in_order else PlaneChoice.PACKET
    options = replace(options, plane_choice=options.plane_choice or default)
    packets = _packets(fabric, traffic, options)
    if options.plane_choice is PlaneChoice.PACKET and fabric.multiplicity > 1:
        small = bool((packets < fabric.planes)[_leaves_server(fabric, traffic)].any())
        if not small or len(fabric.ports) * fabric.planes > MOST_EXPANDED_PORTS:
            result = run(fabric, _share(fabric, traffic, packets, options), options, progress)
            packets_sent, hops = result.packets * fabric.planes, result.packet_hops * fabric.planes
            return replace(result, traffic=traffic, packets=packets_sent, packet_hops=hops)
    whole = expand(fabric)
    parts = _spread(fabric, whole, traffic, packets, options)
    return _fold(run(whole, parts.traffic, options, progress), parts, whole, fabric, traffic)


def _packets(fabric: Fabric, traffic: Traffic, options: Options) -> NDArray[np.int64]:
    mtu_bytes = fill_in(fabric, options)[0].mtu_bytes
    return np.maximum(-(-traffic.size_bytes // mtu_bytes), 1)


def _leaves_server(fabric: Fabric, traffic: Traffic) -> NDArray[np.bool_]:
    """Return a mask of the messages over the network; others go over NVLink or PCIe."""
    link = fabric.ports.link[traffic.src]
    network: NDArray[np.bool_] = (link < 0) | fabric.network_links[link]
    return network


def _share(fabric: Fabric, traffic: Traffic, packets: NDArray[np.int64], options: Options) -> Traffic:
    """Return the traffic of the busiest plane."""
    share = _plane_bytes(traffic.size_bytes, packets, fabric.planes, 0, fill_in(fabric, options)[0].mtu_bytes)
    return replace(traffic, size_bytes=np.where(_leaves_server(fabric, traffic), share, traffic.size_bytes))


def _plane_bytes(
    size_bytes: NDArray[np.int64], packets: NDArray[np.int64], planes: int | NDArray[np.int64], turn: int, mtu: int
) -> NDArray[np.int64]:
    """Return the bytes of messages in the plane that takes packets `turn`, `turn + planes`, ...; the last is short."""
    mine = (packets - turn + planes - 1) // planes
    has_last = (packets - 1) % planes == turn
    whole = mine * mtu
    share: NDArray[np.int64] = np.where(has_last, whole - packets * mtu + size_bytes, whole)
    return share


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """The messages of an expanded fabric, and the message of the caller that each is a part of."""

    traffic: Traffic
    message: NDArray[np.int64]  # [part], in order


def _spread(fabric: Fabric, whole: Fabric, traffic: Traffic, packets: NDArray[np.int64], options: Options) -> _Parts:
    """Return the messages in each plane."""
    src, dst = (_slots(fabric, whole, ends) for ends in (traffic.src, traffic.dst))
    network = np.isin(whole.ports.node[src], whole.ports.node[_network_slots(whole)])
    usable = _usable(whole, src, dst, network)
    n_usable = usable.sum(axis=1)
    if not n_usable.all():
        row = int(np.flatnonzero(n_usable == 0)[0])
        ends = " and ".join(fabric.port(int(slot[row])).name for slot in (traffic.src, traffic.dst))
        raise SubnetError(f"{ends} have no plane in common that has cables at both ends and a route")
    nth = np.argsort(~usable, axis=1, kind="stable")  # [message, n] -> the n-th plane that it can use
    first = _first_turn(traffic, options) % n_usable
    sprays = network & (options.plane_choice is PlaneChoice.PACKET) & (traffic.mlid == 0) & (traffic.reduction == 0)
    mtu_bytes = fill_in(fabric, options)[0].mtu_bytes
    rows, planes, sizes = [], [], []
    every = np.arange(len(traffic))
    for turn in range(whole.planes):
        used = np.where(sprays, turn < np.minimum(n_usable, packets), turn == 0)
        plane = nth[every, (first + turn) % n_usable]
        share = _plane_bytes(traffic.size_bytes, packets, n_usable, turn, mtu_bytes)
        rows.append(every[used])
        planes.append(plane[used])
        sizes.append(np.where(sprays, share, traffic.size_bytes)[used])
    order = np.argsort(np.concatenate(rows), kind="stable")
    message, plane = np.concatenate(rows)[order], np.concatenate(planes)[order]
    after_first, after = _parts_after(traffic, message)
    columns = {
        name: getattr(traffic, name)[message]
        for name in ("start_ps", "delay_ps", "sl", "operation", "transport", "qp", "mlid", "reduction")
    }
    spread = replace(
        traffic,
        src=(src[message] + plane).astype(np.int32),
        dst=(dst[message] + plane).astype(np.int32),
        size_bytes=np.concatenate(sizes)[order],
        after_first=after_first,
        after=after,
        **columns,
    )
    return _Parts(traffic=spread, message=message)


def _slots(fabric: Fabric, whole: Fabric, slots: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the same ports of the expanded fabric; of an adapter its port in the first plane."""
    if fabric is whole:
        ports = fabric.ports
        of_plane = np.isin(ports.node[slots], ports.node[_network_slots(whole)]) & (ports.number[slots] <= whole.planes)
        return np.where(of_plane, fabric.first_port[ports.node[slots]] + 1, slots).astype(np.int32)
    moved = whole.first_port[fabric.ports.node[slots]] + fabric.ports.number[slots]
    return moved.astype(np.int32)


def _network_slots(whole: Fabric) -> NDArray[np.int32]:
    """Return the ports with a network cable."""
    links = whole.links.take(whole.network_links)
    return np.concatenate((links.a, links.b))


def _usable(
    whole: Fabric, src: NDArray[np.int32], dst: NDArray[np.int32], network: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return whether both ends have a cable and a route, bool[message, plane]."""
    plugged = whole.ports.link >= 0
    last = len(plugged) - 1
    ends = [(np.minimum(src + plane, last), np.minimum(dst + plane, last)) for plane in range(whole.planes)]
    columns = [plugged[a] & plugged[b] & has_route(whole, a, b) for a, b in ends]
    usable: NDArray[np.bool_] = np.stack(columns, axis=1)
    usable[~network] = False
    usable[~network, 0] = True
    return usable


def has_route(whole: Fabric, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return whether the switch of each sender has a route to the receiver: a plane may have lost its routers."""
    tables = whole.tables
    if tables.subnet is None:
        return np.ones(len(src), bool)
    row = tables.switch_row[whole.ports.node[whole.ports.peer[src]]]
    route: NDArray[np.bool_] = (row < 0) | (tables.lft[row, tables.lid[dst]] != tables.no_route)
    return route


def _first_turn(traffic: Traffic, options: Options) -> NDArray[np.int64]:
    """Return the turn at which each message begins: its number among those of its sender, or the hash of its flow."""
    if options.plane_choice is PlaneChoice.QUEUE_PAIR:
        key = traffic.src.astype(np.uint64) << np.uint64(40) | traffic.dst.astype(np.uint64) << np.uint64(16)
        key = (key ^ traffic.qp.astype(np.uint64) ^ np.uint64(options.seed) << np.uint64(8)) * _GOLDEN
        key = (key ^ key >> np.uint64(30)) * _MIX
        return (key >> np.uint64(33)).astype(np.int64)
    order = np.argsort(traffic.src, kind="stable")
    sender = traffic.src[order]
    turn = np.empty(len(traffic), np.int64)
    turn[order] = np.arange(len(traffic)) - np.searchsorted(sender, sender)
    return turn


def _parts_after(traffic: Traffic, message: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the parts that each part waits for: all parts of the messages that its message waits for."""
    first = np.searchsorted(message, np.arange(len(traffic) + 1))
    n_after = np.diff(first)[traffic.after]  # parts of each entry of `after`
    ends = np.concatenate(([0], np.cumsum(n_after)))
    per_message = ends[traffic.after_first[1:]] - ends[traffic.after_first[:-1]]
    flat = np.repeat(first[traffic.after] - ends[:-1], n_after) + np.arange(int(ends[-1]))
    count = per_message[message]
    after_first = np.concatenate(([0], np.cumsum(count)))
    begin = ends[traffic.after_first[:-1]][message]
    picked = np.repeat(begin - after_first[:-1], count) + np.arange(int(after_first[-1]))
    return after_first.astype(np.int64), flat[picked].astype(np.int32)


def _fold(result: Result, parts: _Parts, whole: Fabric, fabric: Fabric, traffic: Traffic) -> Result:
    """Return the result for the caller's messages: each has arrived when its last part has."""
    first = np.searchsorted(parts.message, np.arange(len(traffic)))

    def last(times_ps: NDArray[np.int64]) -> NDArray[np.int64]:
        never = np.logical_or.reduceat(times_ps == NEVER, first)
        latest: NDArray[np.int64] = np.where(never, NEVER, np.maximum.reduceat(times_ps, first))
        return latest

    moved = replace(traffic, src=_slots(fabric, whole, traffic.src), dst=_slots(fabric, whole, traffic.dst))
    if not len(traffic):
        return replace(result, traffic=moved)
    return replace(
        result,
        traffic=moved,
        start_ps=np.minimum.reduceat(result.start_ps, first),
        finish_ps=last(result.finish_ps),
        acked_ps=last(result.acked_ps),
        retransmitted=np.add.reduceat(result.retransmitted, first).astype(np.int32),
    )
