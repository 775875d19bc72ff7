"""What a fabric costs: its switches, adapters and cables at the prices that are known.

    bill = bill_of(weft.load("superpod:su=1"), read_prices())
    bill.low_usd, bill.high_usd          the sum of what has a price
    bill.missing                         what has none, and is not in the sum

Servers, racks and people are not here; electricity is in `upkeep`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.fabric import catalog
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.prices import Price, Prices
from weft.fabric.rates import speeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A line of a bill."""

    kind: str  # switch, adapter, cable
    name: str  # in the catalog, or what is known of it
    count: int
    price: Price | None = None  # of one

    @property
    def low_usd(self) -> float:
        return self.count * self.price.low_usd if self.price else 0.0

    @property
    def high_usd(self) -> float:
        return self.count * self.price.high_usd if self.price else 0.0

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
        """What has no price."""
        return tuple(item for item in self.items if item.price is None)

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
                {
                    "kind": one.kind,
                    "name": one.name,
                    "count": one.count,
                    "price_usd": (one.price.low_usd, one.price.high_usd) if one.price else None,
                }
                for one in self.items
            ],
            "without_price": [str(item) for item in self.missing],
        }


def bill_of(fabric: Fabric, prices: Prices) -> Bill:
    """Switches, adapters that have a network cable, and network cables of a fabric."""
    return Bill(items=(*_switches(fabric, prices), *_adapters(fabric, prices), *_cables(fabric, prices)))


def _switches(fabric: Fabric, prices: Prices) -> list[Item]:
    known = {one.name: prices.of(one) for one in catalog.switches()}
    models = Counter(node.model or "switch of unknown model" for node in fabric.switches)
    return [Item(kind="switch", name=name, count=n, price=known.get(name)) for name, n in sorted(models.items())]


def _adapters(fabric: Fabric, prices: Prices) -> list[Item]:
    """Cards: two ports of a dual-port card are two nodes and one card."""
    known = {one.name: one for one in catalog.adapters()}
    ends = np.concatenate([nodes[fabric.network_links] for nodes in fabric.link_nodes])
    plugged = np.intersect1d(ends, fabric.of_kind(NodeKind.HCA)).tolist()
    models = Counter(fabric.node(index).model or "adapter of unknown model" for index in plugged)
    items = []
    for name, ports in sorted(models.items()):
        card = known.get(name)
        cards = -(-ports // card.ports) if card else ports
        items.append(Item(kind="adapter", name=name, count=cards, price=prices.of(card) if card else None))
    return items


def _cables(fabric: Fabric, prices: Prices) -> list[Item]:
    links, network = fabric.links, fabric.network_links
    columns = (links.speed, links.width, links.medium, links.length_m)
    kinds = Counter(zip(*(column[network].tolist() for column in columns), strict=True))
    found: Counter[tuple[str, Price | None]] = Counter()
    for (speed, width, medium, length_m), count in kinds.items():
        cable = _cable(speeds()[speed].name, Medium(medium), length_m)
        unknown = f"{speeds()[speed].label(width)} cable"
        found[(cable.name, prices.of(cable)) if cable else (unknown, None)] += count
    items = [Item(kind="cable", name=name, count=n, price=price) for (name, price), n in found.items()]
    return sorted(items, key=lambda item: item.name)


def _cable(speed: str, medium: Medium, length_m: float) -> catalog.Cable | None:
    """The shortest of this medium that reaches; None where length or medium is not known, or none is made."""
    reaching = [
        cable
        for cable in catalog.cables()
        if speed in cable.speeds and cable.medium is medium and 0 < length_m <= cable.reach_m
    ]
    return min(reaching, key=lambda cable: cable.reach_m, default=None)
