"""What stands under `nodes`: new nodes, servers of a template, or more about nodes that are there already."""

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
from weft.fabric.files.lab.document import Document, Place, Struct
from weft.fabric.files.lab.hardware import find_model, kind_of, ports_of
from weft.fabric.files.lab.links import join
from weft.fabric.files.lab.ranges import expand
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.servers import add_servers
from weft.ids import Guid, Lid

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
class Thing:
    """An entry, and what it means. One that is neither server nor kind is about nodes that are there already."""

    names: list[str]
    place: Place
    told: NodeEntry
    template: str = ""
    kind: NodeKind | None = None
    model: str = ""
    n_ports: int = 0

    @property
    def is_new(self) -> bool:
        return bool(self.template) or self.kind is not None


def add_nodes(doc: Document, keys: list[str], start: Fabric) -> Fabric:
    """The fabric `start` and the nodes of these entries; inside servers, the cables too."""
    things = [_understand(doc, ("nodes", key)) for key in keys]
    _check_names(doc, things, start)
    bare = _build(doc, things, start)
    fabric = _identify(doc, things, start, bare)
    fabric.tables.port_info[: len(start.ports)] = start.tables.port_info
    _set_lids(doc, things, fabric)
    return fabric


def default_box(name: str, kind: NodeKind) -> str:
    """The server that a node sits in if nobody says: the one that its name begins with."""
    if kind in (NodeKind.SWITCH, NodeKind.AGGREGATION, NodeKind.ROUTER):
        return ""
    server, slash, _ = name.partition("/")
    return server if slash or kind == NodeKind.HCA else ""


# -- what it means -------------------------------------------------------------------------------------------------


def _understand(doc: Document, place: Place) -> Thing:
    told = doc.convert(place, NodeEntry)
    try:
        names = expand(str(place[-1]))
    except ConfigError as error:
        doc.refuse_because(place, error)
    for key in ("guid", "port_guid", "lid") if len(names) > 1 else ():
        _forbid(doc, place, told, key, "on a range: it is that of one node")
    if told.server is not None:
        for key in ("kind", "model", "ports", "box"):
            _forbid(doc, place, told, key, "beside a server: the template says what is in it")
        template = _look_up(doc, (*place, "server"), catalog.server).name
        return Thing(names=names, place=place, told=told, template=template)
    if told.kind is None and told.model is None:
        for key in ("ports", "box", "group"):
            _forbid(doc, place, told, key, "without kind, model or server: only those make a node")
        return Thing(names=names, place=place, told=told)
    kind, model, n_ports = _kind(doc, place, told), find_model(told.model), told.ports
    if n_ports is None and model is not None:
        n_ports = ports_of(model)
    if n_ports is None:
        doc.refuse(place, "the number of ports, or a model of the catalog: {kind: switch, ports: 36}")
    name = model.name if model else told.model or ""
    return Thing(names=names, place=place, told=told, kind=kind, model=name, n_ports=n_ports)


def _forbid(doc: Document, place: Place, told: NodeEntry, key: str, why: str) -> None:
    if getattr(told, key) is not None:
        doc.refuse((*place, key), f"no {key} {why}")


def _kind(doc: Document, place: Place, told: NodeEntry) -> NodeKind:
    if told.kind is not None:
        if told.kind not in KINDS:
            doc.refuse_because((*place, "kind"), UnknownName("kind of node", told.kind, KINDS))
        return KINDS[told.kind]
    model = _look_up(doc, (*place, "model"), catalog.find)
    if not isinstance(model, catalog.Switch | catalog.Adapter):
        doc.refuse((*place, "model"), f"a switch or an adapter: this is a {model.kind}")
    return kind_of(model)


def _look_up(doc: Document, place: Place, search: Callable[[str], T]) -> T:
    try:
        return search(doc.at(place))
    except ConfigError as error:
        doc.refuse_because(place, error)


def _check_names(doc: Document, things: list[Thing], start: Fabric) -> None:
    """No name twice; a node that is told more about must be there."""
    seen = dict.fromkeys([*start.node_index, *start.server_index], "what the file starts from")
    for thing in things:
        for name in thing.names if thing.is_new else ():
            if name in seen:
                doc.refuse(thing.place, f"a new name: {name} is in {seen[name]}")
            seen[name] = f"line {doc.line(thing.place)}"


# -- the nodes themselves ------------------------------------------------------------------------------------------


def _build(doc: Document, things: list[Thing], start: Fabric) -> Fabric:
    """Nodes and the insides of servers; identity comes later, cables after that."""
    builder = FabricBuilder(str(doc.path))
    _replay(builder, start)
    alike = groupby((t for t in things if t.is_new), key=lambda t: (t.template, t.kind, t.model))
    for (template, kind, model), group in alike:
        batch = list(group)
        names = [name for thing in batch for name in thing.names]
        told = [thing.told for thing in batch for _ in thing.names]
        groups = [int(builder.add_groups([t.group])[0]) if t.group else -1 for t in told]
        if template:
            add_servers(builder, template, names, group=groups)
            continue
        hardware = find_model(model)
        boxes = [_box(name, kind, t) for name, t in zip(names, told, strict=True)]
        builder.add_nodes(
            kind,
            names,
            n_ports=[thing.n_ports for thing in batch for _ in thing.names],
            model=model,
            vendor_id=hardware.vendor_id if hardware else 0,
            device_id=hardware.device_id if hardware else 0,
            server=[int(builder.add_servers([box])[0]) if box else -1 for box in boxes],
            group=groups,
        )
    try:
        return builder.build()
    except ConfigError as error:
        _blame(doc, things, error)


def _box(name: str, kind: NodeKind, told: NodeEntry) -> str:
    return told.box if told.box is not None else default_box(name, kind)


def _replay(builder: FabricBuilder, start: Fabric) -> None:
    """Add the nodes of a fabric, in order: so its port slots come first, and keep their numbers."""
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


def _blame(doc: Document, things: list[Thing], error: ConfigError) -> NoReturn:
    """Find the entry that cannot be built on its own; if each can, the whole is at fault."""
    for thing in things:
        builder = FabricBuilder("")
        builder.add_nodes(NodeKind.HCA, thing.names, n_ports=1)
        try:
            builder.build()
        except ConfigError as own:
            doc.refuse_because(thing.place, own)
    doc.refuse_because(("nodes",), error)


# -- what it is called ---------------------------------------------------------------------------------------------


def _identify(doc: Document, things: list[Thing], start: Fabric, bare: Fabric) -> Fabric:
    """The same nodes with the descriptions, ids and GUIDs that they have from the start or that the file gives them."""
    named = list(_named(doc, things, bare))
    guid = _choose_guids(doc, named, start, bare)
    before = np.concatenate((start.nodes.guid, bare.nodes.guid[len(start.nodes) :]))
    system_guid = np.concatenate((start.nodes.system_guid, bare.nodes.system_guid[len(start.nodes) :]))
    system_guid = np.where(system_guid == before, guid, system_guid)
    port_guid = _choose_port_guids(doc, named, start, bare, guid)
    description = list(bare.nodes.description)
    vendor_id, device_id = bare.nodes.vendor_id.copy(), bare.nodes.device_id.copy()
    enhanced_port_0 = bare.nodes.enhanced_port_0.copy()
    for thing, node in named:
        told = thing.told
        if told.description is not None:
            description[node] = told.description
        if told.system_guid is not None:
            system_guid[node] = _guid(doc, (*thing.place, "system_guid"), told.system_guid)
        if told.vendor_id is not None:
            vendor_id[node] = _id(doc, (*thing.place, "vendor_id"), told.vendor_id)
        if told.device_id is not None:
            device_id[node] = _id(doc, (*thing.place, "device_id"), told.device_id)
        if told.base_port_0 is not None:
            enhanced_port_0[node] = not told.base_port_0
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


def _choose_guids(doc: Document, named: list[tuple[Thing, int]], start: Fabric, bare: Fabric) -> NDArray[np.uint64]:
    """Those of the start, then those that are told; what was made up gives way to them."""
    guid = bare.nodes.guid.copy()
    guid[: len(start.nodes)] = start.nodes.guid
    told = {node: (thing.place, thing.told.guid) for thing, node in named if thing.told.guid is not None}
    given = {int(guid[node]): start.nodes.name[node] for node in range(len(start.nodes)) if node not in told}
    for node, (place, text) in told.items():
        guid[node] = value = _guid(doc, (*place, "guid"), text)
        if value in given:
            doc.refuse((*place, "guid"), f"another GUID: {given[value]} has this one")
        given[value] = bare.nodes.name[node]
    beyond = len(guid) << 8  # as far as made-up GUIDs reach, so that those that move stay apart
    for node in range(len(start.nodes), len(guid)):
        while given.get(int(guid[node]), bare.nodes.name[node]) != bare.nodes.name[node]:
            guid[node] += np.uint64(beyond)
    return guid


def _choose_port_guids(
    doc: Document, named: list[tuple[Thing, int]], start: Fabric, bare: Fabric, guid: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """They follow from the node's, unless the start has others or they are told."""
    node, is_switch = bare.ports.node, bare.nodes.kind == NodeKind.SWITCH
    port_guid = guid[node] + np.where(is_switch[node], 0, bare.ports.number).astype(np.uint64)
    kept = guid[start.ports.node] == start.nodes.guid[start.ports.node]
    port_guid[: len(start.ports)][kept] = start.ports.guid[kept]
    for thing, i in named:
        last, place = int(bare.nodes.n_ports[i]), (*thing.place, "port_guid")
        own = range(last + 1) if is_switch[i] else [min(1, last)]
        for port, value in _by_port(doc, place, thing.told.port_guid, own, last).items():
            port_guid[bare.first_port[i] + port] = _guid(doc, place, value)
    return port_guid


def _set_lids(doc: Document, things: list[Thing], fabric: Fabric) -> None:
    """A switch has its LID at port 0, an adapter one at each port."""
    for thing, node in _named(doc, things, fabric):
        last = int(fabric.nodes.n_ports[node])
        own = [0] if fabric.nodes.kind[node] == NodeKind.SWITCH else [min(1, last)]
        for key, put in (("lid", fabric.tables.lid.__setitem__), ("lmc", fabric.tables.set_lmc)):
            values = _by_port(doc, (*thing.place, key), getattr(thing.told, key), own, last)
            for port, value in values.items():
                put(fabric.first_port[node] + port, value)


def _named(doc: Document, things: list[Thing], fabric: Fabric) -> Iterator[tuple[Thing, int]]:
    """The nodes that entries say more about."""
    for thing in things:
        if thing.is_new and all(getattr(thing.told, key) is None for key in _IDENTITY):
            continue
        for name in thing.names:
            node = fabric.node_index.get(name)
            if node is None and thing.template:
                doc.refuse(thing.place, f"nothing more about a server of many nodes: say it of {name}/mlx5_0")
            if node is None:
                unknown = UnknownName("node", name, fabric.node_index, "A new one needs kind, model or server.")
                doc.refuse_because(thing.place, unknown)
            yield thing, node


def _by_port(
    doc: Document, place: Place, value: V | dict[int, V] | None, own: Iterable[int], last: int
) -> dict[int, V]:
    """Port -> value, of one value for the node's own ports, or of one for each."""
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
