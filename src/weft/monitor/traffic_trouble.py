"""What is wrong with traffic while all cables are good: receivers that are too slow, tables that lead nowhere.

Ports that wait form a tree: each waits for a switch whose own ports wait, or are full. At its root is a full port,
where many send to one or few, which is congestion and no fault; or a host that takes less than its cable brings.
Packets that were damaged go on, marked, and every port behind counts them (PortRcvRemotePhysicalErrors): they point
back to where nobody marked them before.
"""

from __future__ import annotations

import numpy as np

from weft.monitor import evidence
from weft.monitor.columns import Column
from weft.monitor.health import Health, Slots
from weft.monitor.suspects import Suspect
from weft.monitor.thresholds import thresholds

_SURE = 0.99
_FEW = 3  # names in a sentence


def overloaded_receivers(well: Health) -> tuple[list[Suspect], Slots]:
    """Hosts that leave the port before them waiting, though their cable is not full; and the ports that they hold."""
    limit, ports = thresholds().wait_share, well.ports
    faces_host = well.is_switch & (ports.peer >= 0) & ~well.is_switch[ports.peer]
    slow = np.flatnonzero(faces_host & (well.wait_share > limit.limit) & (well.load < 1 - limit.limit))
    found, held = [], [slow]
    for slot in sorted(slow.tolist(), key=lambda slot: -well.wait_share[slot]):
        name, host = ports.name(slot), ports.name(int(ports.peer[slot]))
        taken = well.load[slot] * ports.rate_gbit_s[slot]
        held.append(waiting_for(well, slot))
        said = [
            f"{name} had packets for {host} and no credits {well.wait_share[slot]:.0%} of the time "
            f"(PortXmitWait, ticks of 22 ns); {limit.name} warns at {limit.limit:.0%}.",
            f"{host} took {taken:,.3g} of {ports.rate_gbit_s[slot]:,.4g} Gbit/s: its cable is not what is full.",
        ]
        if len(held[-1]):
            said.append(f"{evidence.number(len(held[-1]), 'port')} before it waited too: a consequence.")
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
    return found, np.unique(np.concatenate(held))


def waiting_for(well: Health, root: int) -> Slots:
    """Ports that wait, by way of others that do, for the node of this port to send."""
    ports, limit = well.ports, thresholds().wait_share.limit
    node = ports.fabric.ports.node
    waits = (well.wait_share > limit) & (ports.peer >= 0)
    to = np.where(ports.peer >= 0, node[ports.peer], -1)
    found = np.zeros(len(ports), bool)
    nodes = {int(node[root])}
    while nodes:
        more = waits & np.isin(to, [*nodes]) & ~found
        more[root] = False
        found |= more
        nodes = set(node[np.flatnonzero(more)].tolist())
    return np.flatnonzero(found)


def note_congestion(well: Health, explained: Slots) -> list[str]:
    """Full ports that others wait for."""
    limit, ports = thresholds().wait_share.limit, well.ports
    waits = well.wait_share > limit
    waits[explained] = False
    if not waits.any():
        return []
    full = np.flatnonzero((well.load >= 1 - limit) & (ports.peer >= 0))
    waited_for = {slot: len(waiting_for(well, slot)) for slot in full.tolist()}
    worst = sorted((slot for slot, count in waited_for.items() if count), key=lambda slot: -waited_for[slot])[:_FEW]
    names = ", ".join(f"{ports.name(slot)} ({well.load[slot]:.0%} full)" for slot in worst)
    lead = f", for example for {names}" if worst else ""
    waiting = evidence.number(int(waits.sum()), "port")
    return [
        f"Congestion: {waiting} waited for credits more than {limit:.0%} of the time{lead}. That is load, no fault."
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
