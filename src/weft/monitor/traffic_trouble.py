"""What is wrong with traffic while all cables are good: receivers that are too slow, tables that lead nowhere.

Ports that wait form a tree: each waits for a switch whose own ports wait, or are full. At its root is a full port,
where many send to one or few, which is congestion and no fault; or a host that takes less than its cable brings.
Packets that were damaged go on, marked, and every port behind counts them (PortRcvRemotePhysicalErrors): they point
back to where nobody marked them before.
"""

from __future__ import annotations

import numpy as np

from weft.monitor import evidence
from weft.monitor.columns import Column, Flags
from weft.monitor.health import Health, Slots
from weft.monitor.suspects import Suspect
from weft.monitor.thresholds import thresholds

_SURE = 0.99
_FEW = 3  # names in a sentence
_MOST_TREES = 10  # that are counted


def overloaded_receivers(well: Health) -> tuple[list[Suspect], Slots]:
    """Hosts that leave the port before them waiting, though their cable is not full; and the ports that they hold."""
    limit, ports = thresholds().wait_share, well.ports
    faces_host = well.is_switch & (ports.peer >= 0) & ~well.is_switch[ports.peer]
    slow = np.flatnonzero(faces_host & (well.wait_share > limit.limit) & (well.load < 1 - limit.limit))
    found: list[Suspect] = []
    for slot in sorted(slow.tolist(), key=lambda slot: -well.wait_share[slot]):
        name, host = ports.name(slot), ports.name(int(ports.peer[slot]))
        taken = well.load[slot] * ports.rate_gbit_s[slot]
        said = [
            f"{name} had packets for {host} and no credits {well.wait_share[slot]:.0%} of the time "
            f"(PortXmitWait, ticks of 22 ns); {limit.name} warns at {limit.limit:.0%}.",
            f"{host} took {taken:,.3g} of {ports.rate_gbit_s[slot]:,.4g} Gbit/s: its cable is not what is full.",
        ]
        held = waiting_for(well, np.array([slot])) if len(found) < _MOST_TREES else ()
        if len(held):
            said.append(f"{evidence.number(len(held), 'port')} before it waited too: a consequence.")
        found.append(
            Suspect(
                ends=(host, name),
                kind="overloaded receiver",
                confidence=_SURE,
                evidence=tuple(said),
                action=f"See to the machine of {host}: PCIe width and speed, memory, busy processors. No cable is bad.",
                takes=float(well.load[slot]),
                strength=float(well.wait_share[slot]),
            )
        )
    return found, np.concatenate((slow, waiting_for(well, slow)))


def waiting_for(well: Health, roots: Slots) -> Slots:
    """Ports that wait, by way of others that do, for the nodes of these ports to send."""
    waits, to = _waits(well)
    node = well.ports.fabric.ports.node
    found, is_held = np.zeros(len(waits), bool), np.zeros(len(well.ports.fabric.nodes), bool)
    is_held[node[roots]] = True
    while True:
        more = waits & is_held[to] & ~found
        if not more.any():
            return np.flatnonzero(found)
        found |= more
        is_held[node[more]] = True


def _waits(well: Health) -> tuple[Flags, Slots]:
    """[slot] -> does it wait too long? And the node that it sends to."""
    ports = well.ports
    waits = (well.wait_share > thresholds().wait_share.limit) & (ports.peer >= 0)
    return waits, ports.fabric.ports.node[ports.peer].astype(np.int64)


def note_congestion(well: Health, explained: Slots) -> list[str]:
    """Full ports that others wait for."""
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
    waiting = evidence.number(int(waits.sum()), "port")
    return [
        f"Congestion: {waiting} waited for credits more than {limit:.0%} of the time{lead}. That is load, no fault.",
        *_idle_twins(well),
    ]


def _idle_twins(well: Health) -> list[str]:
    """Of parallel cables between two switches one is full and another idle: tables do not spread what they could."""
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
    names = ", ".join(" to ".join(ports.fabric.nodes.name[one] for one in pair) for pair in uneven[:_FEW])
    return [
        f"Uneven: of parallel cables one is full, another less than {limit:.0%} used, from {names}; "
        f"{evidence.number(len(uneven), 'bundle')} in all. Few flows do that; if it lasts, route again."
    ]


def misrouted(well: Health) -> list[Suspect]:
    """Switches that get packets which their tables do not lead on."""
    limit, ports = thresholds().relay, well.ports
    relay = well.count(Column.PORT_RCV_SWITCH_RELAY_ERRORS)
    causes = well.known_s[:, Column.DLID_MAPPING] > 0
    mapping = well.count(Column.DLID_MAPPING) + well.count(Column.VL_MAPPING)
    wrong = np.where(causes, mapping, relay)
    found = []
    for slot in sorted(np.flatnonzero(wrong > limit.limit).tolist(), key=lambda slot: -wrong[slot]):
        name, switch = ports.name(slot), ports.fabric.port(slot).node.name
        peer = ports.name(int(ports.peer[slot])) if ports.peer[slot] >= 0 else "nothing that answers"
        why = (
            f"{int(well.count(Column.DLID_MAPPING)[slot]):,} for LIDs without a way on, "
            f"{int(well.count(Column.VL_MAPPING)[slot]):,} for lanes that lead nowhere"
            if causes[slot]
            else "it does not tell why; multicast that comes back is counted here too"
        )
        found.append(
            Suspect(
                ends=(name, peer),
                kind="misrouted",
                confidence=_SURE if causes[slot] else 0.5,
                evidence=(
                    f"{switch} threw away {int(wrong[slot]):,} packets that came in at {name}: {why} "
                    f"(PortRcvSwitchRelayErrors; {limit.name} warns at {limit.limit:g}).",
                ),
                action=f"See the forwarding table of {switch}, and let the subnet manager sweep. The cable is good.",
                strength=float(wrong[slot]) / max(float(well.count(Column.PORT_RCV_PKTS)[slot]), 1.0),
            )
        )
    return found


def senders_of_marked(well: Health) -> list[Suspect]:
    """Nodes that send packets marked as damaged, though none came to them damaged or marked."""
    limit, ports = thresholds().remote_physical, well.ports
    node = ports.fabric.ports.node
    marked = well.count(Column.PORT_RCV_REMOTE_PHYSICAL_ERRORS)
    n_nodes = len(ports.fabric.nodes)
    silent = ports.is_cabled & (well.known_s[:, Column.PORT_RCV_REMOTE_PHYSICAL_ERRORS] <= 0)
    excused = np.bincount(node, (marked > 0) | (well.damaged > 0) | silent, n_nodes) > 0
    guilty = (marked > limit.limit) & (ports.peer >= 0) & ~excused[node[ports.peer]]
    found = []
    for slot in np.flatnonzero(guilty).tolist():
        name, sender = ports.name(slot), ports.name(int(ports.peer[slot]))
        at = ports.fabric.port(int(ports.peer[slot])).node.name
        found.append(
            Suspect(
                ends=(sender, name),
                kind="bad port",
                confidence=_SURE,
                evidence=(
                    f"{name} received {int(marked[slot]):,} packets that were marked as damaged before "
                    f"(PortRcvRemotePhysicalErrors; {limit.name} warns at {limit.limit:g}).",
                    f"{at} sent them, and no port of {at} received a damaged or a marked one: it damages them itself.",
                ),
                action=f"Have {at} mended: its memory or its chip is bad, not the cable.",
                strength=float(marked[slot]),
            )
        )
    return found
