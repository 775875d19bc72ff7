"""Attach server models to the servers of a discovered fabric: GPUs, NVLinks and PCIe, which discovery does not see.

    attach_server_model(fabric, {"luna-*": "dgx-a100"})           all that match; `?` is any one character
    attach_server_model(fabric, {"luna-[0001-0032,0040]": "dgx-a100"})     a hostlist, as in Slurm
    attach_server_model(fabric, {"luna-0001..32": "dgx-a100"})    a range, whose servers must all exist

Cables, names, GUIDs, LIDs and tables do not change. An adapter of the dump is the template's adapter with the same
device name: `luna-0001/mlx5_4` is mlx5_4; `HCA-5`, as firmware and older drivers number them, is mlx5_4 too and is
renamed. It gets one more port for PCIe, after those of the network. Adapters of the template that the dump lacks, such
as those on a separate storage network, are left out.
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
from weft.fabric.build import FabricBuilder, default_guids
from weft.fabric.columns import NodeColumns
from weft.fabric.files import hostlist
from weft.fabric.files.lab import ranges
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.servers import add_servers

_NUMBERED = re.compile(r"HCA-([1-9][0-9]{0,3})")


def attach_server_model(fabric: Fabric, kinds: Mapping[str, str]) -> Fabric:
    """Return the fabric with the devices of a template in the servers that match each pattern."""
    for template, servers in _by_template(fabric, kinds).items():
        fabric = _attach(fabric, template, servers)
    models = ", ".join(f"{pattern} is {template}" for pattern, template in kinds.items())
    return fabric.changed(f"attached server models: {models}")


def _by_template(fabric: Fabric, kinds: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the servers of each template, in the order of the fabric."""
    chosen: dict[str, tuple[str, str]] = {}  # server -> pattern, template
    for pattern, template in kinds.items():
        name = catalog.server(template).name
        for server in match_servers(fabric, pattern):
            if server in chosen:
                raise ConfigError(
                    f"{server} is {chosen[server][1]} by {chosen[server][0]} and {name} by {pattern}: "
                    "change a pattern so that it matches only one"
                )
            chosen[server] = pattern, name
    servers: dict[str, list[str]] = {}
    for server in fabric.servers:
        if server in chosen:
            servers.setdefault(chosen[server][1], []).append(server)
    return servers


def match_servers(fabric: Fabric, pattern: str) -> list[str]:
    """Return the servers of a name, a pattern (`luna-*`), a range (`luna-0001..32`) or a hostlist (`luna-[0001-0032]`).

    Brackets are Slurm's, as in all other lists of hosts: `dgx[1-16]` has sixteen names and is no class of characters.
    """
    words = hostlist.expand(pattern) if "[" in pattern else [pattern]
    return [name for word in words for name in _match(fabric, word)]


def _match(fabric: Fabric, pattern: str) -> list[str]:
    """Return the servers that match a pattern, a name or a range; at least one."""
    if not set(pattern) & set("*?"):
        names = ranges.expand(pattern)
        missing = [name for name in names if name not in fabric.server_index]
        if missing and len(names) > 1:
            hint = f"{len(missing)} of {pattern} are not in {fabric.spec}: a pattern with '*' matches existing ones."
            raise UnknownName("server", missing[0], fabric.servers, hint)
        return [fabric.find_server(name).name for name in names]
    matches = [server for server in fabric.servers if fnmatchcase(server, pattern)]
    if not matches:
        raise UnknownName("server matching", pattern, fabric.servers, f"`weft show {fabric.spec}` lists them.")
    return matches


def _attach(fabric: Fabric, template: str, servers: list[str]) -> Fabric:
    builder = FabricBuilder(fabric.spec)
    add_servers(builder, template, servers)
    inside = builder.build()
    adapters = _adapters(fabric, catalog.server(template), servers)
    merged, added = _merge(fabric, inside, adapters)
    n_ports = fabric.nodes.n_ports.copy()
    if len(inside.nodes) > len(servers):  # a plain host is its adapter, and has no PCIe side
        n_ports[list(adapters.values())] += 1
    names = list(fabric.nodes.name)
    for name, node in adapters.items():
        names[node] = name
    old = replace(fabric.nodes, name=tuple(names), n_ports=n_ports)
    new = _with_identity(fabric, inside.nodes.take(added), inside)
    models = tuple(dict.fromkeys((*fabric.models, *inside.models)))
    new = replace(new, model=_renumber(new.model, inside.models, models))
    nodes = old.stacked(new)
    if len(set(nodes.name)) < len(nodes):
        repeated = next(name for name in new.name if name in fabric.node_index)
        raise ConfigError(f"{fabric.spec} already has a node {repeated}, which {template} would add")
    return _assemble(fabric, inside, nodes, models, merged)


def _adapters(fabric: Fabric, template: catalog.Server, servers: list[str]) -> dict[str, int]:
    """Return the node of each adapter by name (of a plain host, the host's name); raise ConfigError if they differ."""
    devices = (*template.compute, *template.storage, *template.spare)
    plain = len(devices) == 1 and not template.cpus
    card = dict.fromkeys(template.storage, template.storage_adapter)
    adapters: dict[str, int] = {}
    for name in servers:
        nodes = fabric.find_server(name).nodes
        device_node = next((node for node in nodes if node.kind != NodeKind.HCA), None)
        if device_node is not None:
            raise ConfigError(f"{name} of {fabric.spec} already contains {device_node.name}: use bare servers")
        if len(nodes) > len(devices):
            raise ConfigError(
                f"{name} has {len(nodes)} adapters in {fabric.spec}, {template.name} has {len(devices)}: "
                f"match other servers, or write a template with all of them (`weft server`)"
            )
        for node in nodes:
            device = _device(name, node.name, node.description)
            if device not in devices:
                raise ConfigError(
                    f"{name} has an adapter {device!r} in {fabric.spec}, {template.name} has {', '.join(devices)}: "
                    f"use a template that has it, such as a file of your own (`weft server`)"
                )
            _check_card(fabric, node.name, node.model, card.get(device, template.compute_adapter), template)
            key = name if plain else f"{name}/{device}"
            if key in adapters:
                raise ConfigError(f"{name} has two adapters {device} in {fabric.spec}: names must be unique")
            adapters[key] = node.index
    return adapters


def _device(server: str, name: str, description: str) -> str:
    """Return the device name: `mlx5_4` for `luna-0001/mlx5_4`, for `h1` described as `h1 mlx5_4`, and for `HCA-5`."""
    device = name.removeprefix(f"{server}/") if name != server else description.strip().partition(" ")[2].strip()
    numbered = _NUMBERED.fullmatch(device)
    return f"mlx5_{int(numbered[1]) - 1}" if numbered else device


def _check_card(fabric: Fabric, name: str, model: str, card: str, template: catalog.Server) -> None:
    """Raise ConfigError if the chip of a card in the dump is not that of the template's card."""
    if not model or not card:
        return
    actual, expected = catalog.adapter(model), catalog.adapter(card)
    if not (actual.device_id and expected.device_id):
        return
    if (actual.vendor_id, actual.device_id) != (expected.vendor_id, expected.device_id):
        raise ConfigError(
            f"{name} is a {actual.name} in {fabric.spec}, but a {expected.name} in {template.name}: "
            f"use another template, or this one with that card, {template.box}+{actual.name}"
        )


def _merge(fabric: Fabric, inside: Fabric, adapters: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the new index of each node of `inside` (-1 for adapters that the dump lacks), and the nodes to add."""
    merged = np.array([adapters.get(name, -1) for name in inside.nodes.name], np.int64)
    added = np.flatnonzero(inside.nodes.kind != NodeKind.HCA)
    merged[added] = len(fabric.nodes) + np.arange(len(added))
    return merged, added


def _with_identity(fabric: Fabric, new: NodeColumns, inside: Fabric) -> NodeColumns:
    """Return the new nodes with unused GUIDs and the indices of their servers."""
    base = default_guids(1)[0]
    generated = fabric.nodes.guid[(fabric.nodes.guid >= base) & (fabric.nodes.guid < base + np.uint64(1 << 32))]
    first = int((generated.max() - base) >> np.uint64(8)) + 1 if len(generated) else 0
    guid = default_guids(first + len(new))[first:]
    server = np.array([fabric.server_index[inside.servers[index]] for index in new.server.tolist()], np.int32)
    return replace(new, guid=guid, system_guid=guid, server=server)


def _renumber(model: NDArray[np.int16], old: tuple[str, ...], new: tuple[str, ...]) -> NDArray[np.int16]:
    number = np.array([*(new.index(name) for name in old), -1], np.int16)  # the last entry maps -1
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
    new_slot = first_port[fabric.ports.node] + fabric.ports.number  # [slot] -> its new number
    port_guid = np.repeat(nodes.guid, slots) + (np.arange(int(slots.sum())) - np.repeat(first_port, slots)).astype(
        np.uint64
    )
    port_guid[new_slot] = fabric.ports.guid
    ends = []
    for end in (inside.links.a, inside.links.b):
        node, number = merged[inside.ports.node[end]], inside.ports.number[end].astype(np.int64)
        # The PCIe port of a template's adapter becomes the last port of the existing adapter.
        fitted = (node >= 0) & (node < len(fabric.nodes))
        ends.append((node, np.where(fitted, nodes.n_ports[node], number)))
    present = (ends[0][0] >= 0) & (ends[1][0] >= 0)
    slot = [(first_port[node] + number)[present].astype(np.int32) for node, number in ends]
    wires = replace(inside.links.take(present), a=slot[0], b=slot[1])
    a, b = new_slot[fabric.links.a].astype(np.int32), new_slot[fabric.links.b].astype(np.int32)
    links = replace(fabric.links, a=a, b=b).stacked(wires)
    whole = Fabric.assemble(fabric.spec, nodes, links, port_guid, models, fabric.servers, fabric.groups)
    whole.counters[new_slot] = fabric.counters
    return replace(whole, tables=fabric.tables.grown(nodes.n_ports, new_slot), changes=fabric.changes)
