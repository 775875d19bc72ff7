"""Servers of a discovered fabric, furnished: the GPUs, NVLinks and PCIe that no discovery tool sees.

    furnish(fabric, {"luna-*": "dgx-a100"})           names as a shell matches them
    furnish(fabric, {"luna-0001..32": "dgx-a100"})    a range: each must be there

Cables, names, GUIDs, LIDs and tables stay as they are. An adapter of the dump is that of the template with the same
device name: `luna-0001/mlx5_4` is mlx5_4; `HCA-5`, as firmware and older drivers number them, is mlx5_4 too, and is
called so from then on. It gets one more port, behind those of the network, for PCIe. What the template has and the dump
has not, adapters for storage on a network of their own say, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, UnknownName
from weft.fabric import catalog
from weft.fabric.build import FabricBuilder, made_up_guids
from weft.fabric.columns import NodeColumns
from weft.fabric.files.lab import ranges
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.servers import add_servers

_NUMBERED = re.compile(r"HCA-([1-9][0-9]{0,3})")


def furnish(fabric: Fabric, kinds: Mapping[str, str]) -> Fabric:
    """The same fabric, the servers of each pattern with all that their template has inside."""
    for template, servers in _by_template(fabric, kinds).items():
        fabric = _furnish(fabric, template, servers)
    told = ", ".join(f"{pattern} is {template}" for pattern, template in kinds.items())
    return fabric.changed(f"furnished its servers: {told}")


def _by_template(fabric: Fabric, kinds: Mapping[str, str]) -> dict[str, list[str]]:
    """Template -> servers, in the order of the fabric."""
    chosen: dict[str, tuple[str, str]] = {}  # server -> pattern, template
    for pattern, template in kinds.items():
        name = catalog.server(template).name
        for server in match_servers(fabric, pattern):
            if server in chosen:
                raise ConfigError(
                    f"{server} is {chosen[server][1]} by {chosen[server][0]} and {name} by {pattern}: "
                    "a server is of one kind. Name other servers in one of them"
                )
            chosen[server] = pattern, name
    found: dict[str, list[str]] = {}
    for server in fabric.servers:
        if server in chosen:
            found.setdefault(chosen[server][1], []).append(server)
    return found


def match_servers(fabric: Fabric, pattern: str) -> list[str]:
    """Those that a pattern of a shell matches, `luna-*`, or a name or a range, `luna-0001..32`; never none."""
    if not set(pattern) & set("*?["):
        names = ranges.expand(pattern)
        missing = [name for name in names if name not in fabric.server_index]
        if missing and len(names) > 1:
            hint = f"{len(missing)} of {pattern} are not in {fabric.spec}: a pattern, '*', takes those that are there."
            raise UnknownName("server", missing[0], fabric.servers, hint)
        return [fabric.find_server(name).name for name in names]
    found = [server for server in fabric.servers if fnmatchcase(server, pattern)]
    if not found:
        raise UnknownName("server of", pattern, fabric.servers, f"In {fabric.spec}: `weft show` tells its servers.")
    return found


def _furnish(fabric: Fabric, template: str, servers: list[str]) -> Fabric:
    builder = FabricBuilder(fabric.spec)
    add_servers(builder, template, servers)
    inside = builder.build()
    adapters = _adapters(fabric, catalog.server(template), servers)
    merged, kept = _merge(fabric, inside, adapters)
    n_ports = fabric.nodes.n_ports.copy()
    if len(inside.nodes) > len(servers):  # a plain host is its adapter, and has no PCIe side
        n_ports[list(adapters.values())] += 1
    names = list(fabric.nodes.name)
    for name, node in adapters.items():
        names[node] = name
    old = replace(fabric.nodes, name=tuple(names), n_ports=n_ports)
    new = _fresh(fabric, inside.nodes.take(kept), inside)
    models = tuple(dict.fromkeys((*fabric.models, *inside.models)))
    new = replace(new, model=_renumber(new.model, inside.models, models))
    nodes = old.stacked(new)
    if len(set(nodes.name)) < len(nodes):
        twice = next(name for name in new.name if name in fabric.node_index)
        raise ConfigError(f"{fabric.spec} has a node {twice} already: {template} would add another")
    return _assemble(fabric, inside, nodes, models, merged)


def _adapters(fabric: Fabric, template: catalog.Server, servers: list[str]) -> dict[str, int]:
    """`luna-0001/mlx5_0`, or the name of a plain host -> node; refuses servers that are of another kind."""
    known = (*template.compute, *template.storage, *template.spare)
    plain = len(known) == 1 and not template.cpus
    card = dict.fromkeys(template.storage, template.storage_adapter)
    found: dict[str, int] = {}
    for name in servers:
        nodes = fabric.find_server(name).nodes
        odd = next((node for node in nodes if node.kind != NodeKind.HCA), None)
        if odd is not None:
            raise ConfigError(f"{name} of {fabric.spec} has {odd.name} inside already: only bare servers are furnished")
        if len(nodes) > len(known):
            raise ConfigError(
                f"{name} has {len(nodes)} adapters in {fabric.spec}, {template.name} has {len(known)}: "
                f"name other servers, or give a template of your own that has them all (`weft server`)"
            )
        for node in nodes:
            device = _device(name, node.name, node.description)
            if device not in known:
                raise ConfigError(
                    f"{name} has an adapter {device!r} in {fabric.spec}, {template.name} has {', '.join(known)}: "
                    f"give a template with it, such as one of your own (`weft server`)"
                )
            _check_card(fabric, node.name, node.model, card.get(device, template.compute_adapter), template)
            key = name if plain else f"{name}/{device}"
            if key in found:
                raise ConfigError(f"{name} has two adapters {device} in {fabric.spec}: the devices of a server differ")
            found[key] = node.index
    return found


def _device(server: str, name: str, description: str) -> str:
    """`mlx5_4` of `luna-0001/mlx5_4`, of `h1` that says `h1 mlx5_4`, of `HCA-5`."""
    device = name.removeprefix(f"{server}/") if name != server else description.strip().partition(" ")[2].strip()
    numbered = _NUMBERED.fullmatch(device)
    return f"mlx5_{int(numbered[1]) - 1}" if numbered else device


def _check_card(fabric: Fabric, name: str, model: str, card: str, template: catalog.Server) -> None:
    """The dump knows the chip of a card: another than the template's makes it another server."""
    if not model or not card:
        return
    has, wants = catalog.adapter(model), catalog.adapter(card)
    if has.device_id and wants.device_id and (has.vendor_id, has.device_id) != (wants.vendor_id, wants.device_id):
        raise ConfigError(
            f"{name} is a {has.name} in {fabric.spec}, of {template.name} it is a {wants.name}: "
            f"give another template, or this one with that card, {template.box}+{has.name}"
        )


def _merge(fabric: Fabric, inside: Fabric, adapters: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[node of `inside`] -> its number in the whole, -1 for adapters that the dump has not; and which are added."""
    merged = np.array([adapters.get(name, -1) for name in inside.nodes.name], np.int64)
    kept = np.flatnonzero(inside.nodes.kind != NodeKind.HCA)
    merged[kept] = len(fabric.nodes) + np.arange(len(kept))
    return merged, kept


def _fresh(fabric: Fabric, new: NodeColumns, inside: Fabric) -> NodeColumns:
    """New nodes with GUIDs that nobody has, and the numbers of their servers."""
    base = made_up_guids(1)[0]
    made = fabric.nodes.guid[(fabric.nodes.guid >= base) & (fabric.nodes.guid < base + np.uint64(1 << 32))]
    first = int((made.max() - base) >> np.uint64(8)) + 1 if len(made) else 0
    guid = made_up_guids(first + len(new))[first:]
    server = np.array([fabric.server_index[inside.servers[one]] for one in new.server.tolist()], np.int32)
    return replace(new, guid=guid, system_guid=guid, server=server)


def _renumber(model: NDArray[np.int16], old: tuple[str, ...], new: tuple[str, ...]) -> NDArray[np.int16]:
    number = np.array([*(new.index(name) for name in old), -1], np.int16)  # the last serves -1
    return number[model]


def _assemble(
    fabric: Fabric,
    inside: Fabric,
    nodes: NodeColumns,
    models: tuple[str, ...],
    merged: NDArray[np.int64],
) -> Fabric:
    slots = nodes.n_ports.astype(np.int64) + 1
    first_port = np.cumsum(slots) - slots
    now = first_port[fabric.ports.node] + fabric.ports.number  # [slot] -> its number from here on
    port_guid = np.repeat(nodes.guid, slots) + (np.arange(int(slots.sum())) - np.repeat(first_port, slots)).astype(
        np.uint64
    )
    port_guid[now] = fabric.ports.guid
    ends = []
    for end in (inside.links.a, inside.links.b):
        node, number = merged[inside.ports.node[end]], inside.ports.number[end].astype(np.int64)
        # The one port of a template's adapter that has a wire inside is the last of the adapter that is there.
        fitted = (node >= 0) & (node < len(fabric.nodes))
        ends.append((node, np.where(fitted, nodes.n_ports[node], number)))
    there = (ends[0][0] >= 0) & (ends[1][0] >= 0)
    slot = [(first_port[node] + number)[there].astype(np.int32) for node, number in ends]
    wires = replace(inside.links.take(there), a=slot[0], b=slot[1])
    cables = replace(fabric.links, a=now[fabric.links.a].astype(np.int32), b=now[fabric.links.b].astype(np.int32))
    links = cables.stacked(wires)
    made = Fabric.assemble(fabric.spec, nodes, links, port_guid, models, fabric.servers, fabric.groups)
    made.counters[now] = fabric.counters
    return replace(made, tables=fabric.tables.grown(nodes.n_ports, now), changes=fabric.changes)
