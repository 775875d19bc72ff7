"""The key `links`: cables between ports, or between devices that have a free one."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property, lru_cache
from typing import Annotated

import msgspec
import numpy as np

from weft.errors import ConfigError, UnknownName
from weft.fabric import catalog
from weft.fabric.columns import LinkColumns
from weft.fabric.files.lab.document import Document, Struct
from weft.fabric.files.lab.ranges import expand
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Speed, parse_label
from weft.schemas import Place

Model = catalog.Switch | catalog.Adapter


@lru_cache(maxsize=1024)
def find_model(name: str | None) -> Model | None:
    """Return the switch or adapter with this name, None if the catalog has none."""
    try:
        entry = catalog.find(name or "")
    except UnknownName:
        return None
    return entry if isinstance(entry, catalog.Switch | catalog.Adapter) else None


def kind_of(model: Model) -> NodeKind:
    return NodeKind.SWITCH if isinstance(model, catalog.Switch) else NodeKind.HCA


def ports_of(model: Model) -> int:
    """Return the number of ports of a node; each port of an adapter is a separate node."""
    return model.ports if isinstance(model, catalog.Switch) else 1


MEDIA = {medium.name.lower(): medium for medium in Medium}

Line = tuple[Speed, int]
Device = tuple[int, str]  # kind and model
_End = int | tuple[int, ...]  # a port slot, or nodes of which any free port will do


class LinkEntry(Struct):
    ends: tuple[str, str]
    speed: str | None = None
    length_m: Annotated[float, msgspec.Meta(ge=0, le=100_000)] = 0.0
    medium: str = "unknown"
    bit_error_rate: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    good_end: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0  # first or second of `ends`: it receives without errors


def plug(doc: Document, count: int, fabric: Fabric) -> Fabric:
    """Return the fabric with the cables of the file: first those of named ports, then those of nodes and servers."""
    panel = _Panel(doc, fabric)
    cables: list[tuple[Place, LinkEntry]] = []
    ends: list[_End] = []  # two of each cable
    for i in range(count):
        place: Place = ("links", i)
        entry = _parse(doc, place)
        pairs = panel.pair(place)
        cables += [(place, entry)] * len(pairs)
        ends += [end for pair in pairs for end in pair]
    slots = [0] * len(ends)
    for i in sorted(range(len(ends)), key=lambda i: _choice(ends[i])):
        slots[i] = panel.claim(cables[i // 2][0], ends[i])
    rows = []
    for (place, entry), a, b in zip(cables, slots[::2], slots[1::2], strict=True):
        speed, width = panel.line(place, entry, a, b)
        rows.append(
            (a, b, speed.index, width, MEDIA[entry.medium], entry.length_m, entry.bit_error_rate, entry.good_end)
        )
    names = [column.name for column in fields(LinkColumns)]
    columns = zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True)
    added = LinkColumns(**{name: np.array(column, getattr(fabric.links, name).dtype) for name, column in columns})
    return fabric.with_links(join(fabric.links, added))


def _choice(end: _End) -> int:
    """Return how many ports an end can use: 0 a port, 1 a node, 2 a server of several."""
    return 0 if isinstance(end, int) else min(len(end), 2)


def join(*some: LinkColumns) -> LinkColumns:
    """Concatenate link columns."""
    return LinkColumns(**{f.name: np.concatenate([getattr(s, f.name) for s in some]) for f in fields(LinkColumns)})


def _parse(doc: Document, place: Place) -> LinkEntry:
    if isinstance(doc.at(place), list):
        return LinkEntry(ends=doc.convert(place, tuple[str, str]))
    entry = doc.convert(place, LinkEntry)
    if entry.medium not in MEDIA:
        doc.refuse_because((*place, "medium"), UnknownName("medium", entry.medium, MEDIA))
    return entry


@lru_cache(maxsize=1024)
def default_line(a: Device, b: Device) -> Line | None:
    """Return the common line of two devices of the catalog: the slower one. None if it is undetermined."""
    lines = {device: model.line for device in (a, b) if (model := find_model(device[1]))}
    if not (a in lines and b in lines):
        return next(iter(lines.values()), None)
    if lines[a][0].technology is lines[b][0].technology:
        return min(lines[a], lines[b], key=lambda line: Speed.rate_gbit_s(*line))
    # Adapters support InfiniBand and Ethernet: the switch decides, if the adapter is fast enough.
    for switch, adapter in ((a, b), (b, a)):
        if switch[0] == NodeKind.SWITCH and adapter[0] == NodeKind.HCA:
            fits = Speed.rate_gbit_s(*lines[switch]) <= Speed.rate_gbit_s(*lines[adapter])
            return lines[switch] if fits else None
    return None


def devices(fabric: Fabric) -> list[Device]:
    """Return kind and model of each node."""
    models = (*fabric.models, "")  # the last entry serves index -1
    columns = zip(fabric.nodes.kind.tolist(), fabric.nodes.model.tolist(), strict=True)
    return [(kind, models[model]) for kind, model in columns]


class _Panel:
    """The ports of a fabric while cables are added."""

    def __init__(self, doc: Document, fabric: Fabric) -> None:
        self.doc, self.fabric = doc, fabric
        self._network_ports = fabric.network_ports
        self._free = fabric.ports.peer < 0
        self._devices = devices(fabric)
        self._claimed: dict[int, Place] = {}

    def pair(self, place: Place) -> list[tuple[_End, _End]]:
        """Return the two ends, or those of each cable of a range."""
        where = place if isinstance(self.doc.at(place), list) else (*place, "ends")
        a, b = (self._find((*where, i)) for i in (0, 1))
        if len(a) != len(b):
            # A device without a port number can take many cables.
            a, b = (end * len(other) if isinstance(end[0], tuple) else end for end, other in ((a, b), (b, a)))
        if len(a) != len(b):
            self.doc.refuse(where, f"the same number of ports at both ends, not {len(a)} and {len(b)}")
        return list(zip(a, b, strict=True))

    def _find(self, place: Place) -> list[_End]:
        text = self.doc.at(place)
        exact = self._exactly(text)
        if exact is not None:
            return [exact]
        try:
            return [self._member_of_range(name) for name in expand(text)]
        except ConfigError as error:
            self.doc.refuse_because(place, error)

    def _member_of_range(self, name: str) -> _End:
        end = self._exactly(name)
        if end is None:
            port = self.fabric[name]  # raises UnknownName with suggestions, except for port 0
            raise ConfigError(f"{port} is the management port of a switch: use port 1 and up")
        return end

    def _exactly(self, name: str) -> _End | None:
        fabric = self.fabric
        if name in fabric.node_index:
            return (fabric.node_index[name],)
        if name in self._adapters:
            return self._adapters[name]
        owner, _, number = name.rpartition("/")
        node = fabric.node_index.get(owner)
        if node is None or not (number.isascii() and number.isdecimal() and len(number) < 4):
            return None
        is_port = 1 <= int(number) <= fabric.nodes.n_ports[node]
        return int(fabric.first_port[node]) + int(number) if is_port else None

    @cached_property
    def _adapters(self) -> dict[str, tuple[int, ...]]:
        """Return the HCAs of each server."""
        adapters: dict[str, tuple[int, ...]] = dict.fromkeys(self.fabric.servers, ())
        for node in self.fabric.of_kind(NodeKind.HCA).tolist():
            server = int(self.fabric.nodes.server[node])
            if server >= 0:
                adapters[self.fabric.servers[server]] += (node,)
        return adapters

    def claim(self, place: Place, end: _End) -> int:
        """Return the port slot of an end: its own, or the first free one of its nodes."""
        slot = end if isinstance(end, int) else self._first_free(place, end)
        if not self._free[slot]:
            port, other = self.fabric.port(slot), self._claimed.get(slot)
            user = f"cabled on line {self.doc.line(other)}" if other else f"cabled to {port.peer}"
            self.doc.refuse(place, f"a free port: {port} is {user}")
        self._free[slot] = False
        self._claimed[slot] = place
        return slot

    def _first_free(self, place: Place, nodes: tuple[int, ...]) -> int:
        for node in nodes:
            first = int(self.fabric.first_port[node]) + 1
            free = np.flatnonzero(self._free[first : first + int(self._network_ports[node])])
            if len(free):
                return first + int(free[0])
        return self.doc.refuse(place, "a device with a free network port: all are in use")

    def line(self, place: Place, entry: LinkEntry, a: int, b: int) -> Line:
        if entry.speed is not None:
            try:
                return parse_label(entry.speed)
            except ConfigError as error:
                self.doc.refuse_because((*place, "speed"), error)
        line = default_line(*(self._devices[self.fabric.ports.node[slot]] for slot in (a, b)))
        if line is None:
            self.doc.refuse(place, "a speed, which the models of its ends do not determine: {ends: [...], speed: NDR}")
        return line
