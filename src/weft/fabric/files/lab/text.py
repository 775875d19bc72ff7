"""Write a fabric as a lab file: complete servers as templates, neighbours as ranges, and no derivable values.

Derivable values are found by reading back: the shortest entries are parsed, and all values that then differ (a GUID, a
LID, a description) are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.build import FabricBuilder
from weft.fabric.files.lab.document import FORMAT, Document
from weft.fabric.files.lab.links import Device, default_line, devices, find_model, kind_of, ports_of
from weft.fabric.files.lab.nodes import build_defaults, default_box
from weft.fabric.files.lab.ranges import RANGE, compress, runs
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds
from weft.fabric.servers import add_servers
from weft.fabric.views import Node
from weft.ids import Guid

Entry = dict[str, Any]
Shape = tuple[Any, ...]

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")
_QUALITY = ("speed", "width", "medium", "length_m", "bit_error_rate", "good_end")
_WORDS_OF_YAML = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def spell(fabric: Fabric) -> str:
    """Return the text of the lab file."""
    for name in (*fabric.nodes.name, *fabric.servers):
        if ".." in name and RANGE.search(name):
            raise ConfigError(f"{name!r} cannot be written to a lab file: two dots between digits are a range there")
    whole = _whole_servers(fabric)
    entries = _entries(fabric, whole)
    _add_identity(fabric, entries)
    cables = _cables(fabric, whole)
    lines = [f"# A weft lab file, from {''.join(map(_quoted, fabric.spec))}", f"format: {FORMAT}"]
    lines.append("nodes:" if entries else "nodes: {}")
    lines += [f"  {_scalar(name)}: {_flow(entry)}" for name, entry in _nodes_in_ranges(entries)]
    lines.append("links:" if cables[0] else "links: []")
    lines += [f"  - {cable}" for cable in _cables_in_ranges(*cables)]
    return "\n".join(lines) + "\n"


# -- nodes ---------------------------------------------------------------------------------------------------------


def _entries(fabric: Fabric, whole: dict[int, str]) -> dict[str, Entry]:
    """Return the entries that define the nodes, in their order; a complete server is at its first node."""
    entries: dict[str, Entry] = {}
    seen = set[int]()
    for index, server in enumerate(fabric.nodes.server.tolist()):
        if server in seen:
            continue
        node = fabric.node(index)
        if server in whole:
            seen.add(server)
            entries[fabric.servers[server]] = {"server": whole[server], **_group(node)}
        else:
            entries[node.name] = _entry(node)
    return entries


def _entry(node: Node) -> Entry:
    """Return the entry of a single node. A model of the catalog implies the kind, and usually the number of ports."""
    entry: Entry = {}
    model, n_ports = find_model(node.model), int(node.fabric.nodes.n_ports[node.index])
    if model is None or kind_of(model) != node.kind:
        entry["kind"] = node.kind.name.lower()
    if node.model:
        entry["model"] = node.model
    if model is None or ports_of(model) != n_ports:
        entry["ports"] = n_ports
    box = node.server.name if node.server else ""
    if box != default_box(node.name, node.kind):
        entry["box"] = box
    return {**entry, **_group(node)}


def _group(node: Node) -> Entry:
    return {"group": node.group} if node.group else {}


def _add_identity(fabric: Fabric, entries: dict[str, Entry]) -> None:
    """Read the entries back, and add all values that differ."""
    ranges = dict(_nodes_in_ranges(entries))
    document = Document(path=Path("lab"), data={"nodes": ranges}, text="")
    rebuilt = build_defaults(document, list(ranges))
    lids: dict[str, NDArray[Any]] = {"lid": fabric.tables.lid, "lmc": fabric.tables.lmc}
    own_guids, numbered = (set(fabric.ports.node[ports].tolist()) for ports in (_own_guids(fabric), _numbered(fabric)))
    for index in _different_nodes(fabric, rebuilt).tolist():
        node = fabric.node(index)
        more = _identity(node, rebuilt.find_node(node.name))
        if index in own_guids:
            more |= _port_guid(node)
        if index in numbered:
            more |= _lids(node, lids)
        entries.setdefault(node.name, {}).update(more)


def _own_guids(fabric: Fabric) -> NDArray[np.bool_]:
    """Return the ports with a GUID that does not follow from the node's."""
    nodes, ports = fabric.nodes, fabric.ports
    counts = (nodes.kind != NodeKind.SWITCH)[ports.node]
    own: NDArray[np.bool_] = ports.guid != nodes.guid[ports.node] + np.where(counts, ports.number, 0).astype(np.uint64)
    return own


def _numbered(fabric: Fabric) -> NDArray[np.bool_]:
    """Return the ports with a LID."""
    numbered: NDArray[np.bool_] = (fabric.tables.lid != 0) | (fabric.tables.lmc != 0)
    return numbered


def _different_nodes(fabric: Fabric, rebuilt: Fabric) -> NDArray[np.intp]:
    """Return the nodes that reading back does not reproduce."""
    ours, theirs = fabric.nodes, rebuilt.nodes
    same_order = theirs.name == ours.name
    place = np.arange(len(ours))
    if not same_order:
        place = np.array([rebuilt.node_index[name] for name in ours.name], np.intp)
    described = theirs.description if same_order else map(theirs.description.__getitem__, place.tolist())
    differs = np.fromiter(map(str.__ne__, ours.description, described), bool, len(ours))
    for key in ("vendor_id", "device_id", "guid", "system_guid"):
        differs |= getattr(ours, key) != getattr(theirs, key)[place]
    differs |= (ours.kind == NodeKind.SWITCH) & (ours.enhanced_port_0 != theirs.enhanced_port_0[place])
    differs[fabric.ports.node[_own_guids(fabric) | _numbered(fabric)]] = True
    return np.flatnonzero(differs)


def _identity(node: Node, rebuilt: Node) -> Entry:
    ours, theirs, i, j = node.fabric.nodes, rebuilt.fabric.nodes, node.index, rebuilt.index
    more: Entry = {}
    if node.description != rebuilt.description:
        more["description"] = node.description
    for key in ("vendor_id", "device_id"):
        if (value := int(getattr(ours, key)[i])) != getattr(theirs, key)[j]:
            more[key] = f"{value:#06x}"
    if node.guid != rebuilt.guid:
        more["guid"] = str(node.guid)
    follows = theirs.system_guid[j] == theirs.guid[j]
    if ours.system_guid[i] != (ours.guid[i] if follows else theirs.system_guid[j]):
        more["system_guid"] = str(Guid(int(ours.system_guid[i])))
    if node.kind == NodeKind.SWITCH and ours.enhanced_port_0[i] != theirs.enhanced_port_0[j]:
        more["base_port_0"] = str(not ours.enhanced_port_0[i]).lower()
    return more


def _port_guid(node: Node) -> Entry:
    """Return port GUIDs that do not follow from the node's: one value if all are equal, or only the first differs."""
    first, n_slots = int(node.fabric.first_port[node.index]), int(node.fabric.nodes.n_ports[node.index]) + 1
    guids = node.fabric.ports.guid[first : first + n_slots]
    is_switch = node.kind == NodeKind.SWITCH
    follow = np.uint64(node.guid) + np.arange(n_slots, dtype=np.uint64) * np.uint64(not is_switch)
    own = {port: str(Guid(int(guids[port]))) for port in np.flatnonzero(guids != follow).tolist()}
    single = len(own) == n_slots and len(set(own.values())) == 1 if is_switch else list(own) == [1]
    return {"port_guid": next(iter(own.values())) if single else own} if own else {}


def _lids(node: Node, lids: dict[str, NDArray[Any]]) -> Entry:
    first, n_slots = int(node.fabric.first_port[node.index]), int(node.fabric.nodes.n_ports[node.index]) + 1
    own = 0 if node.kind == NodeKind.SWITCH else min(1, n_slots - 1)
    entry: Entry = {}
    for key, column in lids.items():
        values = column[first : first + n_slots]
        set_values = {port: int(values[port]) for port in np.flatnonzero(values).tolist()}
        if set_values:
            entry[key] = set_values[own] if list(set_values) == [own] else set_values
    return entry


def _nodes_in_ranges(entries: dict[str, Entry]) -> Iterator[tuple[str, Entry]]:
    """Yield each entry with its names; an entry with a GUID or LID has one name."""
    names = list(entries)
    alone = {"guid", "port_guid", "lid"}
    texts = [repr(entry) if entry.keys().isdisjoint(alone) else f"{name} alone" for name, entry in entries.items()]
    for first, last in runs([names], texts):
        yield compress(names[first], names[last]), entries[names[first]]


# -- servers of a template -----------------------------------------------------------------------------------------


def _whole_servers(fabric: Fabric) -> dict[int, str]:
    """Return the template of each server that has exactly the devices of a template."""
    templates = _templates() | {shape: name for name in fabric.models if _is_variant(name) for shape in _variant(name)}
    shapes = _shapes(fabric)
    distinct = {id(shape): shape for shape in shapes.values()}
    template_of = {key: templates.get(shape) for key, shape in distinct.items()}
    whole = {server: name for server, shape in shapes.items() if (name := template_of[id(shape)]) is not None}
    # A node elsewhere with the server's name would be mistaken for it.
    return {
        server: template
        for server, template in whole.items()
        if (node := fabric.node_index.get(fabric.servers[server])) is None or fabric.nodes.server[node] == server
    }


@cache
def _templates() -> dict[Shape, str]:
    """Return the template of each shape; of templates with the same shape, the first."""
    shapes: dict[Shape, str] = {}
    for template in catalog.servers():
        shapes.setdefault(_shape_of(template.name), template.name)
    return shapes


def _is_variant(name: str) -> bool:
    """Return whether a name is not in the catalog: a variant with other cards, or a template file."""
    return "+" in name or catalog.is_template_file(name)


def _variant(name: str) -> list[Shape]:
    """Return the shape of a server with other cards or fewer rails, `dgx-h100+ConnectX-8`; empty if invalid."""
    try:
        return [_shape_of(name)]
    except ConfigError:
        return []


def _shape_of(template: str) -> Shape:
    builder = FabricBuilder(template)
    add_servers(builder, template, ["x"])
    return _shapes(builder.build())[0]


def _shapes(fabric: Fabric) -> dict[int, Shape]:
    """Return the shape of each server: its devices and links, without values that differ between servers."""
    inside = _Inside(fabric)
    shapes: dict[tuple[bytes, ...], Shape] = {}
    result: dict[int, Shape] = {}
    for server, key in enumerate(inside.keys()):
        result[server] = shapes.get(key) or shapes.setdefault(key, inside.shape(server))
    return result


class _Inside:
    """The devices of servers as numbers, so that servers with equal numbers share one shape."""

    def __init__(self, fabric: Fabric) -> None:
        nodes, ports, links, (a, b) = fabric.nodes, fabric.ports, fabric.links, fabric.link_nodes
        self.models = (*fabric.models, "")  # the last entry serves index -1
        count = len(fabric.servers)
        node = np.argsort(nodes.server, kind="stable")
        node = node[np.searchsorted(nodes.server[node], 0) :]
        of = nodes.server[node]
        self.first_node = np.searchsorted(of, np.arange(count + 1))
        names = [nodes.name[n].removeprefix(fabric.servers[s]) for n, s in zip(node.tolist(), of.tolist(), strict=True)]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}  # of parts, by their names
        part = np.fromiter(map(numbers.__getitem__, names), np.int32, len(names))
        self.parts = list(numbers)
        group = nodes.group[node]
        same_group = group == group[self.first_node[of]] if len(node) else group == group
        self.of_node = (part, nodes.kind[node], nodes.model[node], nodes.n_ports[node], same_group)
        part_of = np.full(len(nodes), -1, np.int32)
        part_of[node] = part
        link = np.flatnonzero((nodes.server[a] == nodes.server[b]) & (nodes.server[a] >= 0))
        link = link[np.argsort(nodes.server[a[link]], kind="stable")]
        self.first_link = np.searchsorted(nodes.server[a[link]], np.arange(count + 1))
        ends = [(part_of[ports.node[slot]], ports.number[slot]) for slot in (links.a[link], links.b[link])]
        self.of_link = (*ends[0], *ends[1], *(getattr(links, key)[link] for key in _QUALITY))

    def keys(self) -> list[tuple[bytes, bytes]]:
        """Return a key for each server; servers with equal devices and links have the same."""
        return [*zip(_split(self.of_node, self.first_node), _split(self.of_link, self.first_link), strict=True)]

    def shape(self, server: int) -> Shape:
        parts, wires = (
            zip(*(column[first[server] : first[server + 1]].tolist() for column in columns), strict=True)
            for first, columns in ((self.first_node, self.of_node), (self.first_link, self.of_link))
        )
        name = self.parts.__getitem__
        spelled = [(*sorted(((name(a), n), (name(b), m))), *quality) for a, n, b, m, *quality in wires]
        inside = ((name(part), kind, self.models[model], n_ports, same) for part, kind, model, n_ports, same in parts)
        return tuple(inside), tuple(sorted(spelled))


def _split(columns: Sequence[NDArray[Any]], first: NDArray[np.intp]) -> list[bytes]:
    """Return the bytes of the rows of each part; `first` has the row at which each begins, and the end."""
    parts = [np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.itemsize) for column in columns]
    rows = np.concatenate(parts, axis=1)
    text, ends = rows.tobytes(), (first * rows.shape[1]).tolist()
    return [text[begin:end] for begin, end in pairwise(ends)]


# -- links ---------------------------------------------------------------------------------------------------------


def _cables(fabric: Fabric, whole: dict[int, str]) -> tuple[list[str], list[str], list[str]]:
    """Return the first ends, second ends and other keys of the cables that are not inside a complete server."""
    inside = np.zeros(len(fabric.servers) + 1, bool)  # the last entry serves index -1
    inside[list(whole)] = True
    nodes, links = fabric.nodes, fabric.links
    a, b = fabric.link_nodes
    written = np.flatnonzero((nodes.server[a] != nodes.server[b]) | ~inside[nodes.server[a]])
    # Sorted along the switches, cables of one switch are neighbours: dgx1..32/mlx5_0, leaf1/1..32.
    is_switch = nodes.kind == NodeKind.SWITCH
    along = np.where(is_switch[a], links.a, links.b)
    written = written[np.lexsort((along[written], is_switch[a[written]] & is_switch[b[written]]))]
    # The port of an adapter is omitted if a reader would choose the same.
    only = (nodes.n_ports == 1) | (inside[nodes.server] & (fabric.network_ports == 1))
    bare = (only & (nodes.kind == NodeKind.HCA)).tolist()
    some, device = links.take(written), devices(fabric)
    ends = [end[written].tolist() for end in (a, b)]
    first, second = (
        [nodes.name[n] if bare[n] else f"{nodes.name[n]}/{p}" for n, p in zip(end, number, strict=True)]
        for end, number in zip(ends, (fabric.ports.number[slot].tolist() for slot in (some.a, some.b)), strict=True)
    )
    quality = cache(_quality)  # most cables share few qualities
    columns = (getattr(some, key) for key in _QUALITY)
    kinds = ([device[n] for n in end] for end in ends)
    return first, second, list(map(quality, *kinds, *(column.tolist() for column in columns)))


def _quality(
    a: Device, b: Device, speed: int, width: int, medium: int, length_m: float, bit_error_rate: float, good_end: int
) -> str:
    """Return speed, length, medium and errors, if they are not the defaults."""
    keys, line = [], speeds()[speed]
    if default_line(a, b) != (line, width):
        keys.append(f"speed: {line.label(width)}")
    if length_m:
        keys.append(f"length_m: {_number(np.float32(length_m))}")
    if medium != Medium.UNKNOWN:
        keys.append(f"medium: {Medium(medium).name.lower()}")
    if bit_error_rate:
        keys.append(f"bit_error_rate: {_number(bit_error_rate)}")
    if good_end:
        keys.append(f"good_end: {good_end}")
    return ", ".join(keys)


def _cables_in_ranges(a: list[str], b: list[str], quality: list[str]) -> Iterator[str]:
    for first, last in runs([a, b], quality):
        ends = ", ".join(_scalar(compress(end[first], end[last])) for end in (a, b))
        yield f"{{ends: [{ends}], {quality[first]}}}" if quality[first] else f"[{ends}]"


# -- YAML ----------------------------------------------------------------------------------------------------------


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    return _scalar(value) if isinstance(value, str) else str(value)


def _scalar(text: str) -> str:
    """Return a plain scalar if every YAML reader takes it for the same text, else a quoted one."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS_OF_YAML:
        return text
    return '"' + "".join(map(_quoted, text)) + '"'


def _quoted(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _number(value: float | np.float32) -> str:
    """Format a number exactly and as short as possible; YAML 1.1 needs a point before an exponent."""
    mantissa, e, exponent = str(value).partition("e")
    if not e:
        return mantissa.removesuffix(".0")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"
