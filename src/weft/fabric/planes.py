r"""Planes: an adapter port as several ports of a share of its rate, each in a network of its own.

    one port of 800 Gbit/s               compact: one plane that stands for four      expanded: every plane by itself

      |   |   |   |   4 × 200 Gbit/s           leaf1                                  p1-leaf1  p2-leaf1  p3-leaf1 ...
    plane 1  2  3   4                            |                                        |         |         |
                                            dgx1/mlx5_0/1                         dgx1/mlx5_0/1     /2        /3   ...

Planes never meet but in the adapters, and all are built alike. So a fabric of `planes=4` models one of them, with
`multiplicity` 4: counts, cables and rates of the network are fourfold, memory and routing are not. `expand` writes out
every plane where they differ (a fault in one of them): port n of an adapter is then in plane n, and switches are called
`p2-leaf3`. Each plane is a subnet of its own, with the same LIDs.

A lost plane, `fabric.without("plane2")`, costs one share of the bandwidth, and no connection.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.build import default_guids
from weft.fabric.columns import LinkColumns, NodeColumns
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import Tables
from weft.fabric.views import Node, Port

_OF_PLANE = (NodeKind.SWITCH, NodeKind.AGGREGATION, NodeKind.ROUTER)
_PLANE = re.compile(r"plane([1-9][0-9]*)")


def plane_number(name: str) -> int | None:
    """Return the number of a plane by its name, `plane2`; None for other names."""
    match = _PLANE.fullmatch(name)
    return int(match[1]) if match else None


def in_network(fabric: Fabric) -> NDArray[np.bool_]:
    """Return a mask of the nodes that every plane has: switches outside servers, and what is inside them."""
    kind = fabric.nodes.kind
    member: NDArray[np.bool_] = np.isin(kind, _OF_PLANE) & (fabric.nodes.server < 0)
    return member  # switches of a server join its GPUs


def expand(fabric: Fabric) -> Fabric:
    """Return the fabric with all planes written out; itself, if it has one plane or is expanded."""
    if fabric.multiplicity == 1:
        return fabric
    planes, network, old = fabric.planes, in_network(fabric), fabric.nodes
    plugged = _plugged_adapters(fabric)
    node = np.concatenate((np.arange(len(old)), np.tile(np.flatnonzero(network), planes - 1)))
    plane = np.concatenate((np.ones(len(old), np.int64), np.repeat(np.arange(2, planes + 1), network.sum())))
    n_ports = old.n_ports[node] + np.where(plugged[node], planes - 1, 0).astype(np.int16)
    nodes = _copy_nodes(old, node, plane, network[node], n_ports)
    counts = n_ports.astype(np.int64) + 1
    first = np.cumsum(counts) - counts
    number = np.arange(int(counts.sum())) - np.repeat(first, counts)
    old_number = np.where(np.repeat(plugged[node], counts), _shared_number(number, planes), number)
    old_slot = np.repeat(fabric.first_port[node], counts) + old_number
    of_switch = np.repeat(nodes.kind == NodeKind.SWITCH, counts)
    guids = np.repeat(nodes.guid, counts) + np.where(of_switch, 0, number).astype(np.uint64)
    links = _copy_links(fabric, plugged, first, planes)
    whole = Fabric.assemble(fabric.spec, nodes, links, guids, fabric.models, fabric.servers, fabric.groups)
    tables = _copy_tables(fabric.tables, whole.tables, node, old_slot)
    return replace(
        whole, tables=tables, counters=fabric.counters[old_slot], changes=fabric.changes, planes=planes, expanded=True
    )


def holding(fabric: Fabric, name: str) -> Fabric:
    """Return the fabric that has a part of this name: expanded, if it is a part of one plane (`p2-leaf3/17`)."""
    if fabric.multiplicity == 1:
        return fabric
    if name not in fabric:
        whole = expand(fabric)
        return whole if name in whole else fabric
    element = fabric[name]
    if isinstance(element, Node | Port):
        node = element.node if isinstance(element, Port) else element
        if in_network(fabric)[node.index]:
            raise ConfigError(f"{name} is in each of {fabric.planes} planes: name it in one of them, p1-{name}")
    return expand(fabric) if isinstance(element, Port) else fabric


def split_planes(fabric: Fabric) -> list[tuple[NDArray[np.bool_], Fabric]]:
    """Return each plane of an expanded fabric, as a mask of its nodes and a fabric of one plane."""
    network, name = in_network(fabric), fabric.nodes.name
    plane = np.zeros(len(name), np.int64)
    plane[network] = [int(name[i].partition("-")[0][1:]) for i in np.flatnonzero(network).tolist()]
    parts = []
    for number in np.unique(plane[network]).tolist():
        keep = ~network | (plane == number)
        parts.append((keep, replace(fabric.subset(keep), planes=1, expanded=False)))
    return parts


def remove_plane(fabric: Fabric, number: int) -> Fabric:
    """Return the fabric without one of its planes."""
    if number > fabric.planes:
        raise ConfigError(f"plane{number}: {fabric.spec} has planes 1 to {fabric.planes}")
    if not fabric.expanded:
        return replace(fabric, planes=fabric.planes - 1).changed(f"killed plane{number}")
    keep = [not name.startswith(f"p{number}-") for name in fabric.nodes.name]
    rest = fabric.subset(np.array(keep) | ~in_network(fabric))
    return rest.changed(f"killed plane{number}")


def _plugged_adapters(fabric: Fabric) -> NDArray[np.bool_]:
    """Return a mask of the adapters with a network cable."""
    plugged = np.zeros(len(fabric.nodes), bool)
    for ends in fabric.link_nodes:
        plugged[ends[fabric.network_links]] = True
    plugged &= fabric.nodes.kind == NodeKind.HCA
    return plugged


def _shared_number(number: NDArray[np.int64], planes: int) -> NDArray[np.int64]:
    """Return the port in the compact fabric of port `number` of an adapter with one port for each plane."""
    return np.where(number <= planes, np.minimum(number, 1), number - planes + 1)


def _copy_nodes(
    old: NodeColumns,
    node: NDArray[np.int64],
    plane: NDArray[np.int64],
    network: NDArray[np.bool_],
    n_ports: NDArray[np.int16],
) -> NodeColumns:
    """Return the nodes of all planes: switches get the prefix of their plane, and copies a GUID of their own."""
    copied = old.take(node)
    names, descriptions = list(copied.name), list(copied.description)
    for i in np.flatnonzero(network).tolist():
        names[i], descriptions[i] = f"p{plane[i]}-{names[i]}", f"p{plane[i]}-{descriptions[i]}"
    guid, system_guid = copied.guid.copy(), copied.system_guid.copy()
    new = np.arange(len(old), len(node))
    guid[new] = default_guids(len(node))[new]
    system_guid[new] = guid[new]
    return replace(
        copied,
        name=tuple(names),
        description=tuple(descriptions),
        guid=guid,
        system_guid=system_guid,
        n_ports=n_ports,
    )


def _copy_links(fabric: Fabric, plugged: NDArray[np.bool_], first: NDArray[np.int64], planes: int) -> LinkColumns:
    """Return the links of all planes; those inside servers once."""
    old, ports, network = fabric.links, fabric.ports, in_network(fabric)
    rank = np.cumsum(network) - 1  # [node] -> its place among the nodes of a plane
    copies, parts = int(network.sum()), []
    for plane in range(planes):
        chosen = np.ones(len(old), bool) if plane == 0 else fabric.network_links
        part = old.take(chosen)
        ends = {}
        for end in ("a", "b"):
            slot = getattr(part, end)
            node, number = ports.node[slot].astype(np.int64), ports.number[slot].astype(np.int64)
            adapter = plugged[node]
            inside = adapter & (number > 1)  # PCIe: behind the ports of the planes
            number = np.where(inside, number + planes - 1, np.where(adapter, number + plane, number))
            if plane:
                copied = len(fabric.nodes) + (plane - 1) * copies + rank[node]
                node = np.where(network[node], copied, node)
            ends[end] = (first[node] + number).astype(np.int32)
        parts.append(replace(part, **ends))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.stacked(part)
    return whole


def _copy_tables(old: Tables, new: Tables, node: NDArray[np.int64], slot: NDArray[np.int64]) -> Tables:
    """Fill the tables of all planes with those of one."""
    existing = vars(old)
    rows = old.switch_row[node]
    rows = rows[rows >= 0]
    for name in ("lft", "mft", "path_sl", "ar_group"):
        if name in existing:
            setattr(new, name, existing[name][rows])
    for name in ("vl_arbitration", "pkey", "port_info", "fdr10", "addresses", "subnet"):
        if name in existing:
            setattr(new, name, existing[name][slot])
    if "ar_ports" in existing:
        new.ar_ports = existing["ar_ports"]
    if "switch_info" in existing:
        new.switch_info = existing["switch_info"][node]
    if "sl2vl" in existing:
        for i, (first, then) in enumerate(zip(old.first_pair[node].tolist(), new.first_pair.tolist(), strict=True)):
            last = int(new.first_pair[i + 1]) if i + 1 < len(node) else len(new.sl2vl)
            count = last - then
            if old.switch_row[node[i]] >= 0:
                new.sl2vl[then:last] = existing["sl2vl"][first : first + count]
            else:
                new.sl2vl[then:last] = existing["sl2vl"][first + min(1, count - 1)]
    return new
