"""The key `nodes`: new nodes, servers of a template, or more keys for existing nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, NoReturn, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, UnknownName
from weft.fabric import catalog
from weft.fabric.build import MAX_PORTS, FabricBuilder
from weft.fabric.files.lab.document import Document, Struct
from weft.fabric.files.lab.links import find_model, join, kind_of, ports_of
from weft.fabric.files.lab.ranges import expand
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.servers import add_servers
from weft.ids import Guid, Lid
from weft.schemas import Place

KINDS = {kind.name.lower(): kind for kind in NodeKind}
T = TypeVar("T")
V = TypeVar("V", int, str | int)

_Ports = Annotated[int, msgspec.Meta(ge=0, le=MAX_PORTS)]
_Lid = Annotated[int, msgspec.Meta(ge=0, lt=Lid.FIRST_MULTICAST)]
_Lmc = Annotated[int, msgspec.Meta(ge=0, le=7)]
_Hex = str | int  # TOML has hexadecimal numbers, YAML is read as text


class NodeEntry(Struct):
    kind: str | None = None
    model: str | None = None
    server: str | None = None
    ports: _Ports | None = None
    box: str | None = None
    group: str | None = None
    description: str | None = None
    vendor_id: _Hex | None = None
    device_id: _Hex | None = None
    guid: _Hex | None = None
    system_guid: _Hex | None = None
    port_guid: str | int | dict[int, _Hex] | None = None
    lid: _Lid | dict[int, _Lid] | None = None
    lmc: _Lmc | dict[int, _Lmc] | None = None
    base_port_0: bool | None = None


_IDENTITY = ("description", "vendor_id", "device_id", "guid", "system_guid", "port_guid", "lid", "lmc", "base_port_0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedEntry:
    """A parsed entry. Without template and kind it is about existing nodes."""

    names: list[str]
    place: Place
    entry: NodeEntry
    template: str = ""
    kind: NodeKind | None = None
    model: str = ""
    n_ports: int = 0

    @property
    def is_new(self) -> bool:
        return bool(self.template) or self.kind is not None


def add_nodes(doc: Document, keys: list[str], start: Fabric) -> Fabric:
    """Return the fabric `start` with the nodes of these entries, and the links inside servers."""
    items = [_parse(doc, ("nodes", key)) for key in keys]
    _check_names(doc, items, start)
    bare = _build(doc, items, start)
    fabric = _identify(doc, items, start, bare)
    fabric.tables.port_info[: len(start.ports)] = start.tables.port_info
    _set_lids(doc, items, fabric)
    return fabric


def build_defaults(doc: Document, keys: list[str]) -> Fabric:
    """Return the nodes of entries without identity keys, with all values derived and no links."""
    start = FabricBuilder("").build()
    items = [_parse(doc, ("nodes", key)) for key in keys]
    _check_names(doc, items, start)
    return _build(doc, items, start, wired=False)


def default_box(name: str, kind: NodeKind) -> str:
    """Return the default server of a node: the one that its name begins with."""
    if kind in (NodeKind.SWITCH, NodeKind.AGGREGATION, NodeKind.ROUTER):
        return ""
    server, slash, _ = name.partition("/")
    return server if slash or kind == NodeKind.HCA else ""


# -- parsing -------------------------------------------------------------------------------------------------------


def _parse(doc: Document, place: Place) -> ParsedEntry:
    entry = doc.convert(place, NodeEntry)
    try:
        names = expand(str(place[-1]))
    except ConfigError as error:
        doc.refuse_because(place, error)
    for key in ("guid", "port_guid", "lid") if len(names) > 1 else ():
        _forbid(doc, place, entry, key, "for a range: it belongs to one node")
    if entry.server is not None:
        for key in ("kind", "model", "ports", "box"):
            _forbid(doc, place, entry, key, "with a server: the template defines it")
        template = _look_up(doc, (*place, "server"), catalog.server).name
        return ParsedEntry(names=names, place=place, entry=entry, template=template)
    if entry.kind is None and entry.model is None:
        for key in ("ports", "box", "group"):
            _forbid(doc, place, entry, key, "without kind, model or server")
        return ParsedEntry(names=names, place=place, entry=entry)
    kind, model, n_ports = _kind(doc, place, entry), find_model(entry.model), entry.ports
    if n_ports is None and model is not None:
        n_ports = ports_of(model)
    if n_ports is None:
        doc.refuse(place, "the number of ports, or a model of the catalog: {kind: switch, ports: 36}")
    name = model.name if model else entry.model or ""
    return ParsedEntry(names=names, place=place, entry=entry, kind=kind, model=name, n_ports=n_ports)


def _forbid(doc: Document, place: Place, entry: NodeEntry, key: str, why: str) -> None:
    if getattr(entry, key) is not None:
        doc.refuse((*place, key), f"no {key} {why}")


def _kind(doc: Document, place: Place, entry: NodeEntry) -> NodeKind:
    if entry.kind is not None:
        if entry.kind not in KINDS:
            doc.refuse_because((*place, "kind"), UnknownName("kind of node", entry.kind, KINDS))
        return KINDS[entry.kind]
    model = _look_up(doc, (*place, "model"), catalog.find)
    if not isinstance(model, catalog.Switch | catalog.Adapter):
        doc.refuse((*place, "model"), f"a switch or an adapter: this is a {model.kind}")
    return kind_of(model)


def _look_up(doc: Document, place: Place, search: Callable[[str], T]) -> T:
    try:
        return search(doc.at(place))
    except ConfigError as error:
        doc.refuse_because(place, error)


def _check_names(doc: Document, items: list[ParsedEntry], start: Fabric) -> None:
    """Refuse duplicate names of new nodes."""
    defined = dict.fromkeys([*start.node_index, *start.server_index], "the topology that the file starts from")
    for item in items:
        for name in item.names if item.is_new else ():
            if name in defined:
                doc.refuse(item.place, f"a new name: {name} is in {defined[name]}")
            defined[name] = f"line {doc.line(item.place)}"


# -- the nodes themselves ------------------------------------------------------------------------------------------


def _build(doc: Document, items: list[ParsedEntry], start: Fabric, *, wired: bool = True) -> Fabric:
    """Build nodes and, if `wired`, the links inside servers; identity and cables are added later."""
    builder = FabricBuilder(str(doc.path))
    _replay(builder, start)
    batches = groupby((t for t in items if t.is_new), key=lambda t: (t.template, t.kind, t.model))
    for (template, kind, model), group in batches:
        batch = list(group)
        names = [name for item in batch for name in item.names]
        entry = [item.entry for item in batch for _ in item.names]
        groups = [int(builder.add_groups([t.group])[0]) if t.group else -1 for t in entry]
        if template:
            add_servers(builder, template, names, group=groups, wired=wired)
            continue
        hardware = find_model(model)
        boxes = [_box(name, kind, t) for name, t in zip(names, entry, strict=True)]
        builder.add_nodes(
            kind,
            names,
            n_ports=[item.n_ports for item in batch for _ in item.names],
            model=model,
            vendor_id=hardware.vendor_id if hardware else 0,
            device_id=hardware.device_id if hardware else 0,
            server=[int(builder.add_servers([box])[0]) if box else -1 for box in boxes],
            group=groups,
        )
    try:
        return builder.build()
    except ConfigError as error:
        _blame(doc, items, error)


def _box(name: str, kind: NodeKind, entry: NodeEntry) -> str:
    return entry.box if entry.box is not None else default_box(name, kind)


def _replay(builder: FabricBuilder, start: Fabric) -> None:
    """Add the nodes of a fabric in order, so that its port slots come first and keep their numbers."""
    builder.add_servers(start.servers)
    builder.add_groups(start.groups)
    nodes = start.nodes
    for (kind, model), group in groupby(range(len(nodes)), key=lambda i: (int(nodes.kind[i]), int(nodes.model[i]))):
        rows = np.array(list(group))
        some = nodes.take(rows)
        builder.add_nodes(
            NodeKind(kind),
            some.name,
            descriptions=some.description,
            n_ports=some.n_ports,
            model=start.models[model] if model >= 0 else "",
            vendor_id=some.vendor_id,
            device_id=some.device_id,
            server=some.server,
            group=some.group,
        )


def _blame(doc: Document, items: list[ParsedEntry], error: ConfigError) -> NoReturn:
    """Refuse the entry that cannot be built on its own; if each can, refuse all of them."""
    for item in items:
        builder = FabricBuilder("")
        builder.add_nodes(NodeKind.HCA, item.names, n_ports=1)
        try:
            builder.build()
        except ConfigError as own:
            doc.refuse_because(item.place, own)
    doc.refuse_because(("nodes",), error)


# -- identity ------------------------------------------------------------------------------------------------------


def _identify(doc: Document, items: list[ParsedEntry], start: Fabric, bare: Fabric) -> Fabric:
    """Return the same nodes with the descriptions, ids and GUIDs of the start fabric or of the file."""
    named = list(_named(doc, items, bare))
    guid = _choose_guids(doc, named, start, bare)
    before = np.concatenate((start.nodes.guid, bare.nodes.guid[len(start.nodes) :]))
    system_guid = np.concatenate((start.nodes.system_guid, bare.nodes.system_guid[len(start.nodes) :]))
    system_guid = np.where(system_guid == before, guid, system_guid)
    port_guid = _choose_port_guids(doc, named, start, bare, guid)
    description = list(bare.nodes.description)
    vendor_id, device_id = bare.nodes.vendor_id.copy(), bare.nodes.device_id.copy()
    enhanced_port_0 = bare.nodes.enhanced_port_0.copy()
    for item, node in named:
        entry = item.entry
        if entry.description is not None:
            description[node] = entry.description
        if entry.system_guid is not None:
            system_guid[node] = _guid(doc, (*item.place, "system_guid"), entry.system_guid)
        if entry.vendor_id is not None:
            vendor_id[node] = _id(doc, (*item.place, "vendor_id"), entry.vendor_id)
        if entry.device_id is not None:
            device_id[node] = _id(doc, (*item.place, "device_id"), entry.device_id)
        if entry.base_port_0 is not None:
            enhanced_port_0[node] = not entry.base_port_0
    nodes = replace(
        bare.nodes,
        description=tuple(description),
        guid=guid,
        system_guid=system_guid,
        vendor_id=vendor_id,
        device_id=device_id,
        enhanced_port_0=enhanced_port_0,
    )
    links = join(start.links, bare.links)
    return Fabric.assemble(bare.spec, nodes, links, port_guid, bare.models, bare.servers, bare.groups)


def _choose_guids(
    doc: Document, named: list[tuple[ParsedEntry, int]], start: Fabric, bare: Fabric
) -> NDArray[np.uint64]:
    """Return the GUIDs of the start fabric and of the file; generated GUIDs avoid them."""
    guid = bare.nodes.guid.copy()
    guid[: len(start.nodes)] = start.nodes.guid
    requested = {node: (item.place, item.entry.guid) for item, node in named if item.entry.guid is not None}
    owners = {int(guid[node]): start.nodes.name[node] for node in range(len(start.nodes)) if node not in requested}
    for node, (place, text) in requested.items():
        guid[node] = value = _guid(doc, (*place, "guid"), text)
        if value in owners:
            doc.refuse((*place, "guid"), f"another GUID: {owners[value]} has this one")
        owners[value] = bare.nodes.name[node]
    beyond = len(guid) << 8  # beyond all generated GUIDs, so that moved ones stay distinct
    for node in range(len(start.nodes), len(guid)) if owners else ():
        while owners.get(int(guid[node]), bare.nodes.name[node]) != bare.nodes.name[node]:
            guid[node] += np.uint64(beyond)
    return guid


def _choose_port_guids(
    doc: Document, named: list[tuple[ParsedEntry, int]], start: Fabric, bare: Fabric, guid: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Return the port GUIDs: derived from the node's, unless the start fabric or the file has others."""
    node, is_switch = bare.ports.node, bare.nodes.kind == NodeKind.SWITCH
    port_guid = guid[node] + np.where(is_switch[node], 0, bare.ports.number).astype(np.uint64)
    unchanged = guid[start.ports.node] == start.nodes.guid[start.ports.node]
    port_guid[: len(start.ports)][unchanged] = start.ports.guid[unchanged]
    for item, i in named:
        last, place = int(bare.nodes.n_ports[i]), (*item.place, "port_guid")
        own = range(last + 1) if is_switch[i] else [min(1, last)]
        for port, value in _by_port(doc, place, item.entry.port_guid, own, last).items():
            port_guid[bare.first_port[i] + port] = _guid(doc, place, value)
    return port_guid


def _set_lids(doc: Document, items: list[ParsedEntry], fabric: Fabric) -> None:
    """Set LIDs and LMCs: a switch has one at port 0, an adapter one at each port."""
    for item, node in _named(doc, items, fabric):
        last = int(fabric.nodes.n_ports[node])
        own = [0] if fabric.nodes.kind[node] == NodeKind.SWITCH else [min(1, last)]
        for key, put in (("lid", fabric.tables.lid.__setitem__), ("lmc", fabric.tables.set_lmc)):
            values = _by_port(doc, (*item.place, key), getattr(item.entry, key), own, last)
            for port, value in values.items():
                put(fabric.first_port[node] + port, value)


def _named(doc: Document, items: list[ParsedEntry], fabric: Fabric) -> Iterator[tuple[ParsedEntry, int]]:
    """Yield the nodes whose entries have identity keys."""
    for item in items:
        if item.is_new and all(getattr(item.entry, key) is None for key in _IDENTITY):
            continue
        for name in item.names:
            node = fabric.node_index.get(name)
            if node is None and item.template:
                doc.refuse(item.place, f"no identity for a server of several nodes: use a key {name}/mlx5_0")
            if node is None:
                unknown = UnknownName("node", name, fabric.node_index, "A new one needs kind, model or server.")
                doc.refuse_because(item.place, unknown)
            yield item, node


def _by_port(
    doc: Document, place: Place, value: V | dict[int, V] | None, own: Iterable[int], last: int
) -> dict[int, V]:
    """Return port -> value: one value for the node's own ports, or one for each."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        return dict.fromkeys(own, value)
    for port in value:
        if not 0 <= port <= last:
            doc.refuse(place, f"ports from 0 to {last}")
    return value


def _guid(doc: Document, place: Place, value: str | int) -> int:
    try:
        guid = Guid.parse(value) if isinstance(value, str) else Guid(value)
    except ConfigError as error:
        doc.refuse_because(place, error)
    if guid == 0:
        doc.refuse(place, f"a GUID that is not 0: {Guid.example}")
    return guid


def _id(doc: Document, place: Place, value: str | int) -> int:
    try:
        number = int(value, 0) if isinstance(value, str) else value
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 31:
        doc.refuse(place, "a number of at most 31 bits, such as 0x02c9")
    return number
