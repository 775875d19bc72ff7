"""The price and power of a fabric: switches, adapters and cables.

    bill = bill_of(weft.load("superpod:su=1"), read_prices())     in a default room
    bill.total, bill.per_gpu             low and high price of priced items
    bill.missing                         items without a price, not in the sum
    bill.power_w                         of which `inside_w` is drawn inside servers
    bill.beside                          without the cards that servers include
    bill.cluster                         with servers, if they have a price

Cables are those of the floor plan, by length, as they are ordered. Cards and their plugs draw power from a server,
whose own figure includes it. Racks and labour are not included.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.prices import DIRECTOR_PARTS, FIBRE, Band, Price, Prices
from weft.plan.floor.cables import Cabling, cable
from weft.plan.floor.parts import Part, list_parts
from weft.plan.floor.racks import Racks, place
from weft.plan.floor.room import Room

KINDS = ("switch", "board", "adapter", "cable", "transceiver", "fibre")
_NOTHING = Band(low_usd=0.0, high_usd=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A line of a bill."""

    kind: str  # switch, board of a director, adapter, cable, transceiver, fibre, server
    name: str  # in the catalog, or a description
    count: int
    price: Price | None = None  # each
    power_w: float | None = None  # total; None: unknown
    inside_w: float = 0.0  # part of power_w drawn inside servers
    length_m: float | None = None
    order: str = ""  # the vendor's part number
    note: str = ""

    @property
    def total(self) -> Band:
        return self.price * self.count if self.price else _NOTHING

    def __str__(self) -> str:
        return f"{self.count:,} × {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A bill: switches, adapters and cables of a fabric, and its servers."""

    items: tuple[Item, ...]
    servers: tuple[Item, ...] = ()
    gpus: int = 0
    links: int = 0

    @property
    def total(self) -> Band:
        """The total of priced items."""
        return _sum(self.items)

    @property
    def low_usd(self) -> float:
        return self.total.low_usd

    @property
    def high_usd(self) -> float:
        return self.total.high_usd

    @property
    def per_gpu(self) -> Band | None:
        """The price per GPU; None without GPUs or with missing prices."""
        return self.total * (1 / self.gpus) if self.gpus and self.complete else None

    @property
    def lines(self) -> tuple[Item, ...]:
        """The lines of the bill with cables of all lengths summed: name, count, price and note only."""
        return tuple(line for kind in KINDS for line in self.of_kind(kind))

    @property
    def missing(self) -> tuple[Item, ...]:
        """The lines without a price, which are not in the total."""
        return tuple(line for line in self.lines if line.price is None)

    @property
    def complete(self) -> bool:
        """The bill has a price for all switches and adapters; without them the total would be far too low."""
        return not any(item.kind in ("switch", "board", "adapter") for item in self.missing)

    @property
    def power_w(self) -> float:
        """The known power of switches, adapters and their plugs."""
        return sum(item.power_w for item in self.items if item.power_w is not None)

    @property
    def inside_w(self) -> float:
        """The part of the power that is drawn inside servers."""
        return sum(item.inside_w for item in self.items)

    @property
    def powerless(self) -> tuple[Item, ...]:
        """The items of unknown power, without adapters, which are part of their server's power."""
        return tuple(item for item in self.items if item.power_w is None and item.kind != "adapter")

    @property
    def cluster(self) -> Band | None:
        """The price with servers; None if their price is unknown."""
        if not self.servers or not self.complete or any(item.price is None for item in self.servers):
            return None
        return _sum(self.servers) + self.beside

    @property
    def beside(self) -> Band:
        """The price of items bought in addition to the servers: all but the cards that servers include.

        A VPI card serves InfiniBand and Ethernet at its rate. If a fabric needs other cards, the included ones stay in
        the server, unused and paid for.
        """
        cards = {adapter.name: adapter.card for adapter in catalog.adapters()}
        included: Counter[object] = Counter()
        for item in self.servers:
            box = _box(item.name)
            for name, count in box.sold_with.items() if box else ():
                included[cards[name]] += count * item.count
        bought = []
        for item in self.items:
            card = cards.get(item.name) if item.kind == "adapter" else None
            used = min(item.count, included[card])
            included[card] -= used
            bought.append(replace(item, count=item.count - used))
        return _sum(bought)

    @property
    def cluster_w(self) -> float | None:
        """The power with servers at their maximum; None if theirs is unknown."""
        drawn = [item.power_w for item in self.servers if item.power_w is not None]
        if not drawn or len(drawn) < len(self.servers):
            return None
        return sum(drawn) + self.power_w - self.inside_w

    def count(self, kind: str) -> int:
        return sum(item.count for item in self.items if item.kind == kind)

    def of_kind(self, kind: str) -> tuple[Item, ...]:
        """Return the lines of a kind."""
        counts: Counter[tuple[str, Price | None, str]] = Counter()
        for item in self.items:
            if item.kind == kind:
                counts[item.name, item.price, item.note] += item.count
        return tuple(
            Item(kind=kind, name=name, count=count, price=price, note=note)
            for (name, price, note), count in counts.items()
        )

    def report(self) -> dict[str, Any]:
        """Return the bill as `--json` prints it."""
        per_gpu, cluster = self.per_gpu, self.cluster
        return {
            "low_usd": self.low_usd,
            "high_usd": self.high_usd,
            "per_gpu_usd": (per_gpu.low_usd, per_gpu.high_usd) if per_gpu else None,
            "cluster_usd": (cluster.low_usd, cluster.high_usd) if cluster else None,
            "power_w": self.power_w,
            "power_in_servers_w": self.inside_w,
            "cluster_power_w": self.cluster_w,
            "items": [_facts(item) for item in self.items],
            "servers": [_facts(item) for item in self.servers],
            "without_price": [str(item) for item in self.missing],
            "without_power": sorted({item.name for item in self.powerless}),
        }


def _sum(items: Iterable[Item]) -> Band:
    return sum((item.total for item in items), _NOTHING)


def _facts(item: Item) -> dict[str, Any]:
    price = item.price
    return {
        "kind": item.kind,
        "name": item.name,
        "order": item.order,
        "length_m": item.length_m,
        "count": item.count,
        "price_usd": (price.low_usd, price.high_usd) if price else None,
        "power_w": item.power_w,
        "source": price.source if price else "",
        "date": str(price.date) if price else "",
        "weak": price.weak if price else None,
        "note": item.note,
    }


_COLUMNS = (
    "kind",
    "name",
    "order",
    "length_m",
    "count",
    "low_usd",
    "high_usd",
    "power_w",
    "source",
    "date",
    "weak",
    "note",
)


def to_csv(bill: Bill) -> str:
    """Return a CSV line for each item with total dollars and watts, without servers."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for item in bill.items:
        sums = {"low_usd": item.total.low_usd, "high_usd": item.total.high_usd} if item.price else {}
        writer.writerow(_facts(item) | sums)
    return text.getvalue()


# -- items ------------------------------------------------------------------------------------------------------------


def bill_of(fabric: Fabric, prices: Prices, room: Room | None = None) -> Bill:
    """Place and cable a fabric in a room, by default the standard one, and return its bill."""
    return make_bill(cable(place(fabric, room or Room())), prices)


def make_bill(cabling: Cabling, prices: Prices) -> Bill:
    """Return the bill of a cabling: switches, adapters with a network cable, and network cables."""
    fabric = cabling.fabric
    return Bill(
        items=list_items(fabric, cabling, prices),
        servers=list_servers(cabling.racks, prices),
        gpus=len(fabric.of_kind(NodeKind.GPU)),
        links=len(cabling),
    )


def list_items(fabric: Fabric, cabling: Cabling, prices: Prices) -> tuple[Item, ...]:
    """Return the lines for the switches and adapters of a fabric, and for the cables of a cabling."""
    return (*_switches(fabric, prices), *_adapters(fabric, prices), *_cables(cabling, prices))


def _models(fabric: Fabric, nodes: np.ndarray) -> list[str]:
    names = (*fabric.models, "")  # -1: unknown
    return [names[model] for model in fabric.nodes.model[nodes].tolist()]


def _switches(fabric: Fabric, prices: Prices) -> list[Item]:
    by_name = {switch.name: switch for switch in catalog.switches()}
    nodes = fabric.of_kind(NodeKind.SWITCH)
    models = _models(fabric, nodes)
    directors = [by_name[name] for name in dict.fromkeys(models) if name in by_name and by_name[name].chassis]
    items: Counter[Item] = Counter()
    for director in directors:
        is_chip = np.array([name == director.name for name in models], bool)
        items += _director(director, fabric, nodes[is_chip], prices)
        nodes, models = nodes[~is_chip], [name for name in models if name != director.name]
    kinds = Counter(zip(models, fabric.nodes.n_ports[nodes].tolist(), strict=True))
    for (model, ports), count in sorted(kinds.items()):
        items[_switch(by_name.get(model), model, ports, prices)] += count
    return [
        replace(item, count=count, power_w=None if item.power_w is None else count * item.power_w)
        for item, count in items.items()
    ]


def _director(director: catalog.Switch, fabric: Fabric, chips: NDArray[np.integer], prices: Prices) -> Counter[Item]:
    """Return the parts of all directors of a model as they are sold: chassis, boards and management modules."""
    chassis = director.chassis
    assert chassis is not None
    n_chassis = len(set(fabric.nodes.system_guid[chips].tolist()))
    boards = {re.sub(r"-U\d+$", "", fabric.nodes.name[chip]) for chip in chips.tolist()}
    leaf, spine = (sum(bool(re.search(rf"-{letter}\d+$", board)) for board in boards) for letter in "LS")
    counts = (n_chassis, leaf, spine, n_chassis * chassis.management_modules)
    parts = zip(DIRECTOR_PARTS, counts, (0, chassis.leaf_chips, 1, 0), strict=True)
    return Counter(
        {
            Item(
                kind="switch" if part == "chassis" else "board",
                name=f"{director.name} {part}",
                count=1,
                price=prices.part(director, part, n_chips),
                power_w=None if director.power_w is None else n_chips * director.power_w,
                note=f"{n_chips} chips of {director.ports} ports" if n_chips > 1 else "",
            ): count
            for part, count, n_chips in parts
        }
    )


def _switch(box: catalog.Switch | None, model: str, ports: int, prices: Prices) -> Item:
    """Return the item for one switch. One port more than the model has is the internal port for SHARP."""
    if box is None:
        return Item(kind="switch", name=model or "switch of unknown model", count=1)
    note = ""
    if ports not in {n for whole in (box.ports, *box.breakout.values()) for n in (whole, whole + 1)}:
        note = f"not a product: a {box.name} has {box.ports} ports; priced per port"
        power_w = None if box.power_w is None else box.power_w * ports / box.ports
        name = f"{ports}-port {box.line[0].name} switch"
        box = msgspec.structs.replace(box, name=name, ports=ports, power_w=power_w)
    return Item(kind="switch", name=box.name, count=1, price=prices.of(box), power_w=box.power_w, note=note)


def _adapters(fabric: Fabric, prices: Prices) -> list[Item]:
    """Return the cards; two ports of a dual-port card are two nodes but one card."""
    by_name = {adapter.name: adapter for adapter in catalog.adapters()}
    ends = np.concatenate([nodes[fabric.network_links] for nodes in fabric.link_nodes])
    plugged = np.intersect1d(ends, fabric.of_kind(NodeKind.HCA))
    counts = sorted(Counter(_models(fabric, plugged)).items())
    return [_adapter(by_name.get(name), name, ports, prices) for name, ports in counts]


def _adapter(card: catalog.Adapter | None, model: str, ports: int, prices: Prices) -> Item:
    if card is None:
        return Item(kind="adapter", name=model or "adapter of unknown model", count=ports)
    cards = -(-ports // card.ports)
    power_w = None if card.power_w is None else cards * card.power_w
    price = prices.of(card)
    return Item(kind="adapter", name=card.name, count=cards, price=price, power_w=power_w, inside_w=power_w or 0.0)


def _cables(cabling: Cabling, prices: Prices) -> list[Item]:
    entries = {entry.name: entry for entry in cabling.parts}
    return [_part(part, entries[part.entry], prices) for part in list_parts(cabling)]


def _part(part: Part, entry: catalog.Cable, prices: Prices) -> Item:
    """Return the item for a part; a twin-port cable has two links, a transceiver at a switch usually two ports."""
    name, each = part.name, -(-part.ends // part.count)
    if part.kind == "cable":
        name, price = entry.name, prices.cable(entry, -(-each // 2))
    elif part.kind == "transceiver":
        price = prices.transceiver(name, entry, each)
    else:
        price = prices.named(name, (FIBRE,))
    drawn_w = 0.0 if part.kind == "fibre" else entry.power_w
    return Item(
        kind=part.kind,
        name=name,
        count=part.count,
        price=price,
        power_w=None if drawn_w is None else drawn_w * part.ends,
        inside_w=(drawn_w or 0.0) * part.at_adapters,
        length_m=part.length_m,
        order="" if name == part.name else part.name,
    )


def list_servers(racks: Racks, prices: Prices, among: NDArray[np.bool_] | None = None) -> tuple[Item, ...]:
    """Return the lines for the servers of racks, or for those `among` some of the boxes."""
    boxes = np.flatnonzero((racks.tier == 0) & (True if among is None else among))
    models = Counter(racks.models[box] for box in boxes.tolist())
    return tuple(server_item(model, count, prices) for model, count in sorted(models.items()))


def _box(model: str) -> catalog.Server | None:
    return catalog.server(model.partition("+")[0]) if catalog.is_server(model) else None


def server_item(model: str, count: int, prices: Prices) -> Item:
    box = _box(model)
    if box is None:
        return Item(kind="server", name=model or "server of unknown model", count=count)
    power_w = None if box.power_w is None else count * box.power_w
    return Item(kind="server", name=model, count=count, price=prices.of(box), power_w=power_w)
