"""What a fabric costs: its switches, adapters and cables at the catalog's prices.

    bill = make_bill(weft.load("superpod:su=1"))
    bill.low_usd, bill.high_usd          the sum of what has a price
    bill.missing                         what has none, and is not in the sum

Prices are bands from weak sources (`weft catalog NAME` tells which); servers, racks, power and people are not here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.fabric import catalog
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A line of a bill."""

    kind: str  # switch, adapter, cable
    name: str  # in the catalog, or what is known of it
    count: int
    price_usd: tuple[float, float] | None = None  # of one, low and high

    @property
    def low_usd(self) -> float:
        return self.count * self.price_usd[0] if self.price_usd else 0.0

    @property
    def high_usd(self) -> float:
        return self.count * self.price_usd[1] if self.price_usd else 0.0

    def __str__(self) -> str:
        return f"{self.count:,} × {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """All that makes a fabric, in the order switches, adapters, cables."""

    items: tuple[Item, ...]

    @property
    def low_usd(self) -> float:
        return sum(item.low_usd for item in self.items)

    @property
    def high_usd(self) -> float:
        return sum(item.high_usd for item in self.items)

    @property
    def missing(self) -> tuple[Item, ...]:
        """What the catalog has no price for."""
        return tuple(item for item in self.items if item.price_usd is None)

    @property
    def complete(self) -> bool:
        """Have at least the switches and the adapters a price? Cables alone would make a dear fabric look cheap."""
        return not any(item.kind != "cable" for item in self.missing)

    def count(self, kind: str) -> int:
        return sum(item.count for item in self.items if item.kind == kind)

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "low_usd": self.low_usd,
            "high_usd": self.high_usd,
            "items": [
                {"kind": one.kind, "name": one.name, "count": one.count, "price_usd": one.price_usd}
                for one in self.items
            ],
            "without_price": [str(item) for item in self.missing],
        }


def make_bill(fabric: Fabric) -> Bill:
    """Switches, adapters that have a network cable, and network cables of a fabric."""
    return Bill(items=(*_switches(fabric), *_adapters(fabric), *_cables(fabric)))


def _switches(fabric: Fabric) -> list[Item]:
    known = {one.name: one.price_usd for one in catalog.switches()}
    models = Counter(node.model or "switch of unknown model" for node in fabric.switches)
    return [Item(kind="switch", name=name, count=n, price_usd=known.get(name)) for name, n in sorted(models.items())]


def _adapters(fabric: Fabric) -> list[Item]:
    """Cards: two ports of a dual-port card are two nodes and one card."""
    known = {one.name: one for one in catalog.adapters()}
    ends = np.concatenate([nodes[fabric.network_links] for nodes in fabric.link_nodes])
    plugged = np.intersect1d(ends, fabric.of_kind(NodeKind.HCA)).tolist()
    models = Counter(fabric.node(index).model or "adapter of unknown model" for index in plugged)
    items = []
    for name, ports in sorted(models.items()):
        card = known.get(name)
        cards = -(-ports // card.ports) if card else ports
        items.append(Item(kind="adapter", name=name, count=cards, price_usd=card.price_usd if card else None))
    return items


def _cables(fabric: Fabric) -> list[Item]:
    links, network = fabric.links, fabric.network_links
    columns = (links.speed, links.width, links.medium, links.length_m)
    kinds = Counter(zip(*(column[network].tolist() for column in columns), strict=True))
    found: Counter[tuple[str, tuple[float, float] | None]] = Counter()
    for (speed, width, medium, length_m), count in kinds.items():
        cable = _cable(speeds()[speed].name, Medium(medium), length_m)
        unknown = f"{speeds()[speed].label(width)} cable"
        found[(cable.name, cable.price_usd) if cable else (unknown, None)] += count
    items = [Item(kind="cable", name=name, count=n, price_usd=price) for (name, price), n in found.items()]
    return sorted(items, key=lambda item: item.name)


def _cable(speed: str, medium: Medium, length_m: float) -> catalog.Cable | None:
    """The shortest of this medium that reaches; None where length or medium is not known, or none is made."""
    reaching = [
        cable
        for cable in catalog.cables()
        if speed in cable.speeds and cable.medium is medium and 0 < length_m <= cable.length_m[1]
    ]
    return min(reaching, key=lambda cable: cable.length_m[1], default=None)
