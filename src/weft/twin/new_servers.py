"""Add servers at free ports of a fabric: like the present ones, at switches where present ones are.

    larger = add_servers(fabric, 32)

A new server has the adapters of a present one, and a cable from each to the same switch. The switches with the most
free ports come first. Present nodes keep their indices, GUIDs, LIDs and tables; new nodes follow them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from weft.errors import ConfigError
from weft.fabric.columns import LinkColumns
from weft.fabric.joined import carry_over
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.routing.lids import assign_lids
from weft.units import format_items

_NUMBERED = re.compile(r"(.*?)(\d+)")
_GUIDS = 256  # of a node: its own, and one for each port


@dataclass(frozen=True, slots=True)
class _Template:
    """A present server: its adapters, and the port and link of each of their cables."""

    name: str
    nodes: tuple[int, ...]
    cables: tuple[tuple[int, int], ...]  # (port slot, link)


def add_servers(fabric: Fabric, count: int) -> Fabric:
    """Return the fabric with more servers; raise ConfigError if ports are missing."""
    if count < 1:
        raise ConfigError(f"--add-servers must be above 0, got {count}")
    if fabric.planes > 1:
        raise ConfigError("--add-servers needs a fabric of one plane: give one plane as a file")
    free = _free_ports(fabric)
    templates = _templates(fabric, free)
    chosen: list[tuple[_Template, list[int]]] = []
    while len(chosen) < count:
        template = max(templates, key=lambda each: _room(fabric, each, free), default=None)
        if template is None or not _room(fabric, template, free):
            raise ConfigError(
                f"only {len(chosen):,} of {count:,} servers find free ports beside present ones; "
                "`weft grow` adds switches and moves cables"
            )
        switches = [int(fabric.ports.node[fabric.ports.peer[slot]]) for slot, _ in template.cables]
        chosen.append((template, [free[switch].pop(0) for switch in switches]))
    return _extended(fabric, chosen)


def _free_ports(fabric: Fabric) -> dict[int, list[int]]:
    """Return the slots of free ports of each switch."""
    ports, free = fabric.ports, defaultdict[int, list[int]](list)
    is_free = (ports.peer < 0) & (ports.number > 0) & (fabric.nodes.kind[ports.node] == NodeKind.SWITCH)
    for slot in np.flatnonzero(is_free).tolist():
        free[int(ports.node[slot])].append(slot)
    return free


def _templates(fabric: Fabric, free: dict[int, list[int]]) -> list[_Template]:
    """Return a present server for each set of switches that has free ports."""
    nodes: dict[str, list[int]] = defaultdict(list)
    for node in fabric.of_kind(NodeKind.HCA).tolist():
        nodes[fabric.nodes.name[node].partition("/")[0]].append(node)
    by_switches: dict[tuple[int, ...], _Template] = {}
    for name, adapters in nodes.items():
        slots = [slot for node in adapters for slot in _cabled(fabric, node)]
        switches = tuple(int(fabric.ports.node[fabric.ports.peer[slot]]) for slot in slots)
        if switches and all(free[switch] for switch in switches):
            cables = tuple((slot, int(fabric.ports.link[slot])) for slot in slots)
            by_switches.setdefault(switches, _Template(name, tuple(adapters), cables))
    return [*by_switches.values()]


def _cabled(fabric: Fabric, node: int) -> list[int]:
    """Return the ports of an adapter with a cable to a switch of the network."""
    first = int(fabric.first_port[node])
    slots = range(first + 1, first + int(fabric.nodes.n_ports[node]) + 1)
    return [slot for slot in slots if fabric.ports.peer[slot] >= 0 and fabric.network_links[fabric.ports.link[slot]]]


def _room(fabric: Fabric, template: _Template, free: dict[int, list[int]]) -> int:
    """Return how many servers like this one still fit at its switches."""
    switches = [int(fabric.ports.node[fabric.ports.peer[slot]]) for slot, _ in template.cables]
    return min(len(free[switch]) // switches.count(switch) for switch in switches)


def _extended(fabric: Fabric, chosen: list[tuple[_Template, list[int]]]) -> Fabric:
    copied = np.array([node for template, _ in chosen for node in template.nodes])
    names = _new_names(fabric, chosen)
    first_guid = int(max(fabric.nodes.guid.max(), fabric.ports.guid.max())) // _GUIDS + 1
    guids = (first_guid + np.arange(len(copied), dtype=np.uint64)) * np.uint64(_GUIDS)
    nodes = replace(
        fabric.nodes.take(copied),
        name=names,
        description=names,
        guid=guids,
        system_guid=guids,
        server=np.full(len(copied), -1, np.int32),
    )
    port_guids = [fabric.ports.guid]
    for guid, n_ports in zip(guids, nodes.n_ports.tolist(), strict=True):
        port_guids.append(guid + np.arange(n_ports + 1, dtype=np.uint64))
    larger = Fabric.assemble(
        fabric.spec,
        fabric.nodes.stacked(nodes),
        fabric.links.stacked(_new_links(fabric, chosen)),
        np.concatenate(port_guids),
        fabric.models,
        fabric.servers,
        fabric.groups,
    )
    carry_over(larger.tables, fabric.tables, np.zeros(0, np.int32), np.zeros(0, np.int64))
    larger.tables.lid[:] = assign_lids(larger, int(fabric.tables.lmc.max(initial=0)))[0]
    return replace(larger, changes=(*fabric.changes, f"added {format_items(len(chosen), 'server')}"))


def _new_names(fabric: Fabric, chosen: list[tuple[_Template, list[int]]]) -> tuple[str, ...]:
    """Return the names of the new adapters: the next numbers after those of present servers with the same prefix."""
    last: dict[str, int] = defaultdict(int)
    for name in fabric.nodes.name:
        if match := _NUMBERED.fullmatch(name.partition("/")[0]):
            last[match[1]] = max(last[match[1]], int(match[2]))
    names = []
    for template, _ in chosen:
        match = _NUMBERED.fullmatch(template.name)
        prefix = match[1] if match else f"{template.name}-"
        last[prefix] += 1
        for node in template.nodes:
            _, slash, device = fabric.nodes.name[node].partition("/")
            names.append(f"{prefix}{last[prefix]}{slash}{device}")
    return tuple(names)


def _new_links(fabric: Fabric, chosen: list[tuple[_Template, list[int]]]) -> LinkColumns:
    """Return the links of the new servers, each like that of its template."""
    ends, copied = [], []
    begin = len(fabric.ports)
    for template, switch_ports in chosen:
        place = {}
        for node in template.nodes:
            place[node] = begin
            begin += int(fabric.nodes.n_ports[node]) + 1
        for (slot, link), switch_port in zip(template.cables, switch_ports, strict=True):
            ends.append((place[int(fabric.ports.node[slot])] + int(fabric.ports.number[slot]), switch_port))
            copied.append(link)
    a, b = np.array(ends, np.int32).T
    return replace(fabric.links.take(np.array(copied)), a=a, b=b)
