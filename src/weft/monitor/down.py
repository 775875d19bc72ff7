"""Suspects without counters: cables, switches and hosts that are down, and duplicate GUIDs.

a switch does not answer, but a node at one of its cables does    the switch, not each of its cables
all adapters of a server are missing                              the server
other missing cables                                              the cable
nodes behind a switch that is down                                none: they are a consequence
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from weft.fabric.cabling_warnings import DuplicateGuid
from weft.fabric.files.hostlist import natural
from weft.monitor.ports import Cable, Ports, cabling_of, node_of
from weft.monitor.suspects import Kind, Suspect
from weft.wire.port_info import PortPhysicalState, PortState

_SURE = 1.0  # a port's state is no estimate
_FEW = 3  # names in a sentence


@dataclass(frozen=True, slots=True)
class Down:
    """A suspect that is down, and the ports of the cables that it explains."""

    suspect: Suspect
    ports: frozenset[str]


def suspects_down(ports: Ports) -> list[Down]:
    """Return suspects for missing cables, switches and hosts, and for ports with duplicate GUIDs."""
    duplicates = [Down(_duplicate(duplicate), frozenset()) for duplicate in ports.duplicates]
    left_out = {duplicate.loser for duplicate in ports.duplicates}
    missing = [
        cable
        for cable in missing_cables(ports)
        if not left_out.intersection((*cable, node_of(cable[0]), node_of(cable[1])))
    ]
    return [*duplicates, *_down(ports, missing)] if missing else duplicates


def absent_hosts(ports: Ports, down: list[Down]) -> list[str]:
    """Return the hosts and adapters that do not answer, at the cables that are down."""
    nodes = {node_of(end) for item in down for end in item.ports}
    return sorted(nodes - set(ports.fabric.nodes.name) - set(ports.expected.switches), key=natural)


def note_recabled(ports: Ports) -> list[str]:
    """Note planned cables of which a port has another cable now."""
    names = [" - ".join(cable) for cable in ports.recabled]
    if not names:
        return []
    return [
        f"{_count(len(names), 'cable')} of the plan are plugged in elsewhere: {_some(names)}. `weft audit` says where."
    ]


def missing_cables(ports: Ports) -> list[Cable]:
    """Return the cables that the fabric should have and a walk did not see."""
    return ports.expected.missing(cabling_of(ports.fabric))


def _down(ports: Ports, missing: list[Cable]) -> Iterator[Down]:
    present = set(ports.fabric.nodes.name)
    cables: dict[str, list[Cable]] = defaultdict(list)  # missing ones, by node that is gone
    for cable in missing:
        for node in {node_of(end) for end in cable} - present:
            cables[node].append(cable)
    switches = [node for node in cables if node in ports.expected.switches]
    explained = {cable for node in switches for cable in cables[node]}
    for node in switches:
        if any(node_of(end) in present for cable in cables[node] for end in cable):
            yield Down(_switch(ports, node, cables[node], present), _ends(cables[node]))
    for server, adapters in _servers(cables, present, explained).items():
        lost = [cable for node in adapters for cable in cables[node]]
        explained.update(lost)
        yield Down(_server(server, lost), _ends(lost))
    yield from (Down(_link(ports, cable, present), frozenset(cable)) for cable in missing if cable not in explained)


def _ends(cables: list[Cable]) -> frozenset[str]:
    return frozenset(end for cable in cables for end in cable)


def _servers(cables: dict[str, list[Cable]], present: set[str], explained: set[Cable]) -> dict[str, list[str]]:
    """Return the servers that have lost all their adapters, two or more."""
    adapters: dict[str, list[str]] = defaultdict(list)
    for node, lost in cables.items():
        if "/" in node and not explained.intersection(lost):
            adapters[node_of(node)].append(node)
    alive = {node_of(node) for node in present}
    return {server: nodes for server, nodes in adapters.items() if len(nodes) > 1 and server not in alive}


def _switch(ports: Ports, switch: str, lost: list[Cable], present: set[str]) -> Suspect:
    far = [end for cable in lost for end in cable if node_of(end) != switch]
    behind = [end for end in far if node_of(end) not in present and node_of(end) not in ports.expected.switches]
    evidence = [f"{switch} does not answer, and none of its {_count(len(lost), 'cable')} is up: {_some(far)}."]
    if behind:
        evidence.append(f"{_count(len(behind), 'host port')} behind it cannot be reached: {_some(behind)}.")
    action = f"Check the power and the management of {switch}; its cables come after that."
    return _suspect((switch,), "switch down", evidence, action)


def _server(server: str, lost: list[Cable]) -> Suspect:
    near = [end for cable in lost for end in cable if not node_of(end).startswith(f"{server}/")]
    evidence = [f"No adapter of {server} answers, and {_count(len(lost), 'cable')} to it are down: {_some(near)}."]
    return _suspect((server,), "host down", evidence, f"Check whether {server} is switched on.")


def _link(ports: Ports, cable: Cable, present: set[str]) -> Suspect:
    ends = sorted(cable, key=lambda end: (node_of(end) not in present, node_of(end) not in ports.expected.switches))
    evidence = [_state(ports, end) if node_of(end) in present else f"{node_of(end)} does not answer." for end in ends]
    absent = [node_of(end) for end in ends if node_of(end) not in present]
    action = f"Plug the cable of {ends[0]} to {ends[1]} in again, or replace it."
    if absent:
        action = f"Check whether {absent[0]} is switched on; else plug the cable of {ends[0]} in again, or replace it."
    elif any("Disabled" in sentence for sentence in evidence):
        action = "Enable the port again (ibportstate LID PORT enable) unless it was disabled on purpose."
    return _suspect(tuple(ends), "link down", evidence, action)


def _state(ports: Ports, name: str) -> str:
    """Describe a port that should have a link: `leaf1/5 is Down (Polling).`"""
    if name not in ports.fabric:
        return f"{node_of(name)} has no port {name.rpartition('/')[2]}: the plan has another device there."
    slot = ports.fabric.find_port(name).slot
    state, physical = PortState(int(ports.state[slot])), PortPhysicalState(int(ports.physical[slot]))
    return f"{name} is {state.name.title()} ({physical.word})."


def _duplicate(duplicate: DuplicateGuid) -> Suspect:
    return _suspect(
        (duplicate.loser, duplicate.winner),
        "duplicate GUID",
        [f"{duplicate}.", "A subnet manager serves only one of them, so the other has no LID and no paths."],
        f"Give {duplicate.loser} a GUID of its own: restore the one in its firmware, or replace the adapter.",
    )


def _suspect(ends: tuple[str, ...], kind: Kind, evidence: list[str], action: str) -> Suspect:
    return Suspect(ends=ends, kind=kind, confidence=_SURE, evidence=tuple(evidence), action=action)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _some(names: list[str]) -> str:
    """Return the first few names and the number of others."""
    more = f" and {len(names) - _FEW:,} more" if len(names) > _FEW else ""
    return f"{', '.join(sorted(names)[:_FEW])}{more}"
