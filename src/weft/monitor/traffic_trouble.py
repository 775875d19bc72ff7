"""Traffic problems with good cables: slow receivers, and forwarding tables without a route.

Waiting ports form a tree: each waits for a switch whose own ports wait or are full. Its root is either a full port,
where many senders meet (congestion, not a fault), or a host that accepts less than its cable delivers. Damaged packets
are forwarded with a mark, and every port behind counts them (PortRcvRemotePhysicalErrors): the first node that sends
marked packets without receiving any is the cause.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.monitor.chance import thresholds
from weft.monitor.columns import Column, Flags
from weft.monitor.health import Health, Slots
from weft.monitor.suspects import Suspect
from weft.units import format_items

_SURE = 0.99
_FEW = 3  # names in a sentence
_MOST_TREES = 10  # for which waiting ports are counted


def overloaded_receivers(well: Health) -> tuple[list[Suspect], Slots]:
    """Return hosts that make the port before them wait though their link is not full, and the ports held up by them."""
    limit, ports = thresholds().wait_share, well.ports
    faces_host = well.is_switch & (ports.peer >= 0) & ~well.is_switch[ports.peer]
    slow = np.flatnonzero(faces_host & (well.wait_share > limit.limit) & (well.load < 1 - limit.limit))
    suspects: list[Suspect] = []
    for slot in sorted(slow.tolist(), key=lambda slot: -well.wait_share[slot]):
        name, host = ports.name(slot), ports.name(int(ports.peer[slot]))
        taken_gbit_s = well.load[slot] * ports.rate_gbit_s[slot]
        sentences = [
            f"{name} had packets for {host} and no credits {well.wait_share[slot]:.0%} of the time "
            f"(PortXmitWait, ticks of 22 ns); {limit.name} warns at {limit.limit:.0%}.",
            f"{host} took {taken_gbit_s:,.3g} of {ports.rate_gbit_s[slot]:,.4g} Gbit/s: its link is not full.",
        ]
        held = waiting_for(well, np.array([slot])) if len(suspects) < _MOST_TREES else ()
        if len(held):
            sentences.append(f"{format_items(len(held), 'port')} before it waited too: a consequence.")
        suspects.append(
            Suspect(
                ends=(host, name),
                kind="overloaded receiver",
                confidence=_SURE,
                evidence=tuple(sentences),
                action=f"Check the machine of {host}: PCIe width and speed, memory, processor load. The cable is good.",
                takes=float(well.load[slot]),
                strength=float(well.wait_share[slot]),
            )
        )
    return suspects, np.concatenate((slow, waiting_for(well, slow)))


def waiting_for(well: Health, roots: Slots) -> Slots:
    """Return the ports that wait, directly or through other waiting ports, for the nodes of these ports."""
    waits, to = _waits(well)
    node = well.ports.fabric.ports.node
    suspects, is_held = np.zeros(len(waits), bool), np.zeros(len(well.ports.fabric.nodes), bool)
    is_held[node[roots]] = True
    while True:
        more = waits & is_held[to] & ~suspects
        if not more.any():
            return np.flatnonzero(suspects)
        suspects |= more
        is_held[node[more]] = True


def _waits(well: Health) -> tuple[Flags, Slots]:
    """Return the slots that wait too long, and the node that each sends to."""
    ports = well.ports
    waits = (well.wait_share > thresholds().wait_share.limit) & (ports.peer >= 0)
    return waits, ports.fabric.ports.node[ports.peer].astype(np.int64)


def note_congestion(well: Health, explained: Slots) -> list[str]:
    """Note full ports that other ports wait for."""
    limit, ports = thresholds().wait_share.limit, well.ports
    waits, to = _waits(well)
    waits[explained] = False
    if not waits.any():
        return []
    at_node = np.bincount(to[waits], minlength=len(ports.fabric.nodes))[ports.fabric.ports.node]
    full = np.flatnonzero((well.load >= 1 - limit) & (ports.peer >= 0) & (at_node > 0))
    worst = full[np.argsort(-at_node[full], kind="stable")][:_FEW].tolist()
    names = ", ".join(f"{ports.name(slot)} ({well.load[slot]:.0%} full)" for slot in worst)
    lead = f", for example for {names}" if worst else ""
    waiting = format_items(int(waits.sum()), "port")
    return [
        f"Congestion: {waiting} waited for credits more than {limit:.0%} of the time{lead}. That is load, not a fault.",
        *_idle_twins(well),
    ]


def _idle_twins(well: Health) -> list[str]:
    """Note parallel cables between two switches of which one is full and another idle: routes are unbalanced."""
    limit, ports, node = thresholds().wait_share.limit, well.ports, well.ports.fabric.ports.node
    slots = np.flatnonzero(well.is_switch & (ports.peer >= 0) & (well.known_s[:, Column.PORT_XMIT_PKTS] > 0))
    slots = slots[well.is_switch[ports.peer[slots]]]
    bundles, bundle = np.unique(np.stack((node[slots], node[ports.peer[slots]])), axis=1, return_inverse=True)
    idle = well.load[slots] < limit
    is_uneven = np.zeros((2, bundles.shape[1]), bool)
    is_uneven[0, bundle.ravel()[idle]] = is_uneven[1, bundle.ravel()[well.load[slots] >= 1 - limit]] = True
    uneven = bundles[:, is_uneven.all(axis=0)].T.tolist()
    if not uneven:
        return []
    names = ", ".join(" to ".join(ports.fabric.nodes.name[index] for index in pair) for pair in uneven[:_FEW])
    return [
        f"Uneven: of parallel cables one is full, another less than {limit:.0%} used, from {names}; "
        f"{format_items(len(uneven), 'bundle')} in all. Few flows do that; if it lasts, route again."
    ]


def misrouted(well: Health, absent: Sequence[str] = ()) -> tuple[list[Suspect], list[str]]:
    """Return suspects for switches that receive packets without a route in their tables, and notes.

    While hosts are `absent` from the subnet, drops for LIDs without a route are a consequence, which a note reports:
    the subnet manager has removed the routes to these hosts.
    """
    limit, ports = thresholds().relay, well.ports
    relay = well.count(Column.PORT_RCV_SWITCH_RELAY_ERRORS)
    causes = well.known_s[:, Column.DLID_MAPPING] > 0
    mapping = well.count(Column.DLID_MAPPING) + well.count(Column.VL_MAPPING)
    wrong = np.where(causes, mapping, relay)
    is_wrong, to_absent = wrong > limit.limit, causes & (well.count(Column.VL_MAPPING) == 0) & bool(absent)
    suspects = []
    for slot in sorted(np.flatnonzero(is_wrong & ~to_absent).tolist(), key=lambda slot: -wrong[slot]):
        name, switch = ports.name(slot), ports.fabric.port(slot).node.name
        peer = ports.name(int(ports.peer[slot])) if ports.peer[slot] >= 0 else "a port that does not answer"
        why = (
            f"{int(well.count(Column.DLID_MAPPING)[slot]):,} for LIDs without a route, "
            f"{int(well.count(Column.VL_MAPPING)[slot]):,} for VLs without a mapping"
            if causes[slot]
            else "the cause is not reported, and may be multicast that returns to its source"
        )
        suspects.append(
            Suspect(
                ends=(name, peer),
                kind="misrouted",
                confidence=_SURE if causes[slot] else 0.5,
                evidence=(
                    f"{switch} dropped {int(wrong[slot]):,} packets received at {name}: {why} "
                    f"(PortRcvSwitchRelayErrors; {limit.name} warns at {limit.limit:g}).",
                ),
                action=f"Check the forwarding table of {switch}, and let the subnet manager sweep. The cable is good.",
                strength=float(wrong[slot]) / max(float(well.count(Column.PORT_RCV_PKTS)[slot]), 1.0),
            )
        )
    return suspects, _note_absent(well, np.flatnonzero(is_wrong & to_absent), absent)


def _note_absent(well: Health, slots: Slots, absent: Sequence[str]) -> list[str]:
    if not len(slots):
        return []
    names = ", ".join(well.ports.name(slot) for slot in slots[:_FEW].tolist()) + ", ..." * (len(slots) > _FEW)
    more = f" and {len(absent) - _FEW:,} more" * (len(absent) > _FEW)
    do = "does" if len(absent) == 1 else "do"
    return [
        f"{format_items(len(slots), 'port')} received packets for LIDs without a route ({names}). "
        f"{', '.join(absent[:_FEW])}{more} {do} not answer, and packets to an absent host are dropped. "
        "If it lasts when all hosts are back, check the forwarding tables."
    ]


def senders_of_marked(well: Health) -> list[Suspect]:
    """Return suspects for nodes that send marked packets without receiving damaged or marked ones."""
    limit, ports = thresholds().remote_physical, well.ports
    node = ports.fabric.ports.node
    marked = well.count(Column.PORT_RCV_REMOTE_PHYSICAL_ERRORS)
    n_nodes = len(ports.fabric.nodes)
    silent = ports.is_cabled & (well.known_s[:, Column.PORT_RCV_REMOTE_PHYSICAL_ERRORS] <= 0)
    excused = np.bincount(node, (marked > 0) | (well.damaged > 0) | silent, n_nodes) > 0
    guilty = (marked > limit.limit) & (ports.peer >= 0) & ~excused[node[ports.peer]]
    suspects = []
    for slot in np.flatnonzero(guilty).tolist():
        name, sender = ports.name(slot), ports.name(int(ports.peer[slot]))
        at = ports.fabric.port(int(ports.peer[slot])).node.name
        suspects.append(
            Suspect(
                ends=(sender, name),
                kind="bad port",
                confidence=_SURE,
                evidence=(
                    f"{name} received {int(marked[slot]):,} packets already marked as damaged "
                    f"(PortRcvRemotePhysicalErrors; {limit.name} warns at {limit.limit:g}).",
                    f"{at} sent them, and no port of {at} received a damaged or marked packet, so {at} damages them.",
                ),
                action=f"Have {at} repaired: its memory or chip is bad, not the cable.",
                strength=float(marked[slot]),
            )
        )
    return suspects
