"""What a fabric costs and draws: its switches, adapters and cables, at the prices and watts that are known.

    bill = bill_of(weft.load("superpod:su=1"), read_prices())     on the floor of a usual room
    bill.total, bill.per_gpu             low and high, of what has a price
    bill.missing                         what has none, and is not in the sum
    bill.power_w                         of which `inside_w` is drawn in the servers
    bill.beside                          less the cards that its servers are sold with
    bill.cluster                         that with the servers, where these have a price

Cables are those of the floor plan, by length, as they are ordered. Cards and what is plugged into them draw their power
from a server, whose own figure has it already. Racks and people are not here.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.prices import FIBRE, Band, Price, Prices
from weft.plan.floor.cables import Cabling, cable
from weft.plan.floor.parts import Part, list_parts
from weft.plan.floor.racks import place
from weft.plan.floor.room import Room

KINDS = ("switch", "adapter", "cable", "transceiver", "fibre")
_NOTHING = Band(low_usd=0.0, high_usd=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A line of a bill."""

    kind: str  # switch, adapter, cable, transceiver, fibre, server
    name: str  # in the catalog, or what is known of it
    count: int
    price: Price | None = None  # of one
    power_w: float | None = None  # of all; None: not known
    inside_w: float = 0.0  # of that, what is drawn in servers
    length_m: float | None = None
    order: str = ""  # what a vendor calls it
    note: str = ""

    @property
    def total(self) -> Band:
        return self.price * self.count if self.price else _NOTHING

    def __str__(self) -> str:
        return f"{self.count:,} × {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """All that makes a fabric, in the order switches, adapters, cables; and the servers that it is for."""

    items: tuple[Item, ...]
    servers: tuple[Item, ...] = ()
    gpus: int = 0
    links: int = 0

    @property
    def total(self) -> Band:
        """Of what has a price."""
        return _sum(self.items)

    @property
    def low_usd(self) -> float:
        return self.total.low_usd

    @property
    def high_usd(self) -> float:
        return self.total.high_usd

    @property
    def per_gpu(self) -> Band | None:
        """None where there are no GPUs, or no sum."""
        return self.total * (1 / self.gpus) if self.gpus and self.complete else None

    @property
    def lines(self) -> tuple[Item, ...]:
        """Cables of all lengths together: nothing of a line but its name, price and note."""
        return tuple(line for kind in KINDS for line in self.of_kind(kind))

    @property
    def missing(self) -> tuple[Item, ...]:
        """What has no price, and is not in the sum."""
        return tuple(line for line in self.lines if line.price is None)

    @property
    def complete(self) -> bool:
        """Have at least the switches and the adapters a price? Cables alone would make a dear fabric look cheap."""
        return not any(item.kind in ("switch", "adapter") for item in self.missing)

    @property
    def power_w(self) -> float:
        """Of switches and of what is plugged into them and into adapters, where it is known."""
        return sum(item.power_w for item in self.items if item.power_w is not None)

    @property
    def inside_w(self) -> float:
        """Of that, what is drawn in servers."""
        return sum(item.inside_w for item in self.items)

    @property
    def powerless(self) -> tuple[Item, ...]:
        """What draws a power that is not known. That of adapters is in their server's."""
        return tuple(item for item in self.items if item.power_w is None and item.kind != "adapter")

    @property
    def cluster(self) -> Band | None:
        """With the servers; None where their price is not known."""
        if not self.servers or not self.complete or any(item.price is None for item in self.servers):
            return None
        return _sum(self.servers) + self.beside

    @property
    def beside(self) -> Band:
        """What is bought beside the servers: all but the cards that are in their price.

        A VPI card serves InfiniBand and Ethernet of its rate. Where a fabric takes others, those that a server is sold
        with stay in it, unused and paid for.
        """
        cards = {one.name: one.card for one in catalog.adapters()}
        there: Counter[object] = Counter()
        for item in self.servers:
            box = _box(item.name)
            for name, count in box.sold_with.items() if box else ():
                there[cards[name]] += count * item.count
        bought = []
        for item in self.items:
            card = cards.get(item.name) if item.kind == "adapter" else None
            used = min(item.count, there[card])
            there[card] -= used
            bought.append(replace(item, count=item.count - used))
        return _sum(bought)

    @property
    def cluster_w(self) -> float | None:
        """With the servers at their most; None where theirs is not known."""
        drawn = [item.power_w for item in self.servers if item.power_w is not None]
        if not drawn or len(drawn) < len(self.servers):
            return None
        return sum(drawn) + self.power_w - self.inside_w

    def count(self, kind: str) -> int:
        return sum(item.count for item in self.items if item.kind == kind)

    def of_kind(self, kind: str) -> tuple[Item, ...]:
        """Its lines."""
        counts: Counter[tuple[str, Price | None, str]] = Counter()
        for item in self.items:
            if item.kind == kind:
                counts[item.name, item.price, item.note] += item.count
        return tuple(
            Item(kind=kind, name=name, count=count, price=price, note=note)
            for (name, price, note), count in counts.items()
        )

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
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
    """A line for each item, dollars and watts of all of its count; servers are not in it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for item in bill.items:
        sums = {"low_usd": item.total.low_usd, "high_usd": item.total.high_usd} if item.price else {}
        writer.writerow(_facts(item) | sums)
    return text.getvalue()


# -- what there is ----------------------------------------------------------------------------------------------------


def bill_of(fabric: Fabric, prices: Prices, room: Room | None = None) -> Bill:
    """Placed and cabled in a room, a usual one unless told: what it takes."""
    return make_bill(cable(place(fabric, room or Room())), prices)


def make_bill(cabling: Cabling, prices: Prices) -> Bill:
    """Switches, adapters that have a network cable, and network cables."""
    fabric = cabling.fabric
    return Bill(
        items=(*_switches(fabric, prices), *_adapters(fabric, prices), *_cables(cabling, prices)),
        servers=tuple(_servers(cabling, prices)),
        gpus=len(fabric.of_kind(NodeKind.GPU)),
        links=len(cabling),
    )


def _models(fabric: Fabric, nodes: np.ndarray) -> list[str]:
    names = (*fabric.models, "")  # -1: unknown
    return [names[model] for model in fabric.nodes.model[nodes].tolist()]


def _switches(fabric: Fabric, prices: Prices) -> list[Item]:
    known = {one.name: one for one in catalog.switches()}
    nodes = fabric.of_kind(NodeKind.SWITCH)
    kinds = Counter(zip(_models(fabric, nodes), fabric.nodes.n_ports[nodes].tolist(), strict=True))
    found: Counter[Item] = Counter()
    for (model, ports), count in sorted(kinds.items()):
        found[_switch(known.get(model), model, ports, prices)] += count
    return [
        replace(item, count=count, power_w=None if item.power_w is None else count * item.power_w)
        for item, count in found.items()
    ]


def _switch(box: catalog.Switch | None, model: str, ports: int, prices: Prices) -> Item:
    """One of them. A port beyond the model's is the one that a switch shows for SHARP."""
    if box is None:
        return Item(kind="switch", name=model or "switch of unknown model", count=1)
    note = ""
    if ports not in {n for whole in (box.ports, *box.breakout.values()) for n in (whole, whole + 1)}:
        note = f"no product: a {box.name} has {box.ports} ports; priced by the port"
        power_w = None if box.power_w is None else box.power_w * ports / box.ports
        name = f"{ports}-port {box.line[0].name} switch"
        box = msgspec.structs.replace(box, name=name, ports=ports, power_w=power_w)
    return Item(kind="switch", name=box.name, count=1, price=prices.of(box), power_w=box.power_w, note=note)


def _adapters(fabric: Fabric, prices: Prices) -> list[Item]:
    """Cards: two ports of a dual-port card are two nodes and one card."""
    known = {one.name: one for one in catalog.adapters()}
    ends = np.concatenate([nodes[fabric.network_links] for nodes in fabric.link_nodes])
    plugged = np.intersect1d(ends, fabric.of_kind(NodeKind.HCA))
    counts = sorted(Counter(_models(fabric, plugged)).items())
    return [_adapter(known.get(name), name, ports, prices) for name, ports in counts]


def _adapter(card: catalog.Adapter | None, model: str, ports: int, prices: Prices) -> Item:
    if card is None:
        return Item(kind="adapter", name=model or "adapter of unknown model", count=ports)
    cards = -(-ports // card.ports)
    power_w = None if card.power_w is None else cards * card.power_w
    price = prices.of(card)
    return Item(kind="adapter", name=card.name, count=cards, price=price, power_w=power_w, inside_w=power_w or 0.0)


def _cables(cabling: Cabling, prices: Prices) -> list[Item]:
    made = {entry.name: entry for entry in cabling.parts}
    return [_part(part, made[part.entry], prices) for part in list_parts(cabling)]


def _part(part: Part, entry: catalog.Cable, prices: Prices) -> Item:
    """As it is ordered: a twin-port cable has two links, a transceiver at a switch mostly two ports."""
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


def _servers(cabling: Cabling, prices: Prices) -> list[Item]:
    racks = cabling.racks
    models = Counter(racks.models[box] for box in np.flatnonzero(racks.tier == 0).tolist())
    return [server_item(model, count, prices) for model, count in sorted(models.items())]


def _box(model: str) -> catalog.Server | None:
    return catalog.server(model.partition("+")[0]) if catalog.is_server(model) else None


def server_item(model: str, count: int, prices: Prices) -> Item:
    box = _box(model)
    if box is None:
        return Item(kind="server", name=model or "server of unknown model", count=count)
    power_w = None if box.power_w is None else count * box.power_w
    return Item(kind="server", name=model, count=count, price=prices.of(box), power_w=power_w)
