"""Prices of parts: bands in USD, each with its source and its date.

prices = read_prices()                       weft's own, catalog/prices.toml: all rough estimates
prices = read_prices(Path("quotes.toml"))    yours before weft's, name by name; the format is the same
prices.of(catalog.switch("QM9700"))          its own price, or its ports at the default; None if unknown

QM9700 = { usd = 14_500, source = "offer 4711", date = 2026-11-02 }
"my-server.yaml" = { usd = 310_000, source = "offer 4712", date = 2026-11-02 }
"InfiniBand switch port" = { usd = [400, 600], source = "last year's offers", date = 2025-12-01 }
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from weft.errors import FileError, UnknownName, find_named
from weft.fabric import catalog
from weft.fabric.files.lab.document import Document, Struct
from weft.fabric.kinds import Medium
from weft.fabric.rates import Speed, Technology, parse_label

ELECTRICITY = "kWh of electricity"
YEARS, PUE = "years of use", "PUE"  # figures that are not in dollars
_MAKERS = {Technology.INFINIBAND: "InfiniBand", Technology.ETHERNET: "Ethernet", Technology.OMNI_PATH: "Omni-Path"}
_CABLES = {Medium.DAC: "DAC cable", Medium.ACC: "ACC cable", Medium.AOC: "AOC cable"}  # per link
DIRECTOR_PARTS = ("chassis", "leaf board", "spine board", "management module")
TRANSCEIVER, FIBRE = "transceiver port", "fibre"
MANAGEMENT_SWITCH, COPPER = "management switch of 48 × 1GbE", "Cat 6 cable"  # no price was found for either
_FAST, _FAST_GBIT_S = "800G", 800  # parts of this rate have separate default prices
_HINT = "`weft catalog` lists parts."
_FORM = 'one number or a band [low, high] of USD from 0 up: { usd = [400, 600], source = "...", date = 2026-11-02 }'


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A range in US dollars."""

    low_usd: float
    high_usd: float

    def __add__(self, other: Band) -> Band:
        return Band(low_usd=self.low_usd + other.low_usd, high_usd=self.high_usd + other.high_usd)

    def __mul__(self, factor: float) -> Band:
        return Band(low_usd=factor * self.low_usd, high_usd=factor * self.high_usd)

    def __str__(self) -> str:
        """Format as `32,000 to 64,000` or `12,000`."""
        low, high = (f"{usd:,.0f}" if usd >= 10 else f"{usd:g}" for usd in (self.low_usd, self.high_usd))
        return low if low == high else f"{low} to {high}"

    @property
    def short(self) -> str:
        """The range in short: `1.3 to 2.2 million`, `9.0 to 12 thousand`."""
        unit, name = (1e6, "million") if self.high_usd >= 1e6 else (1e3, "thousand")
        low, high = (
            f"{usd:,.0f}" if usd >= 10 else f"{usd:.1f}" for usd in (self.low_usd / unit, self.high_usd / unit)
        )
        return f"{low} {name}" if low == high else f"{low} to {high} {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price(Band):
    """The price of one part."""

    source: str
    date: datetime.date
    weak: bool = False  # for no particular model, or not from a seller

    def times(self, count: int, unit: str = "ports") -> Price:
        """Return the price of so many units together."""
        if count == 1:
            return self
        low, high = count * self.low_usd, count * self.high_usd
        return replace(self, low_usd=low, high_usd=high, source=f"{self.source}; times {count} {unit}")

    def report(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        band = (self.low_usd, self.high_usd)
        return {"usd": band, "source": self.source, "date": str(self.date), "weak": self.weak}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The price lists in order of precedence: a user's price for all ports comes before weft's for one switch."""

    layers: tuple[Mapping[str, Price], ...]
    path: Path | None = None  # the user's price list

    def of(self, entry: catalog.Entry) -> Price | None:
        """Return the price of a switch, an adapter, a server or an ordered cable; None if unknown."""
        match entry:
            case catalog.Switch():
                port = f"{_MAKERS[entry.technology]} switch port"
                return self.named(entry.name, _defaults(port, entry.rate_gbit_s), entry.ports)
            case catalog.Adapter():
                card = f"{_MAKERS[entry.technology]} adapter"
                return self.named(entry.name, _defaults(card, entry.ports * entry.rate_gbit_s))
            case catalog.Server():
                return self.named(_template_name(entry.box))  # such as `dgx-h100+ConnectX-8`
            case catalog.Cable() if entry.transceivers is None:
                return self.cable(entry, entry.links)
        return None

    def part(self, director: catalog.Switch, part: str, chips: int) -> Price | None:
        """Return the price of a part of a director, by default that of the ports of its chips."""
        port = f"{_MAKERS[director.technology]} switch port"
        defaults = _defaults(port, director.rate_gbit_s) if chips else ()
        return self.named(f"{director.name} {part}", defaults, chips * director.ports)

    def cable(self, entry: catalog.Cable, links: int) -> Price | None:
        """Return the price of a cable that carries so many links; a leg of a splitter may be unused."""
        return self.named(entry.name, (_CABLES[entry.medium],), links, "links")

    def transceiver(self, name: str, entry: catalog.Cable, ports: int) -> Price | None:
        """Return the price of a transceiver of these optics that serves so many ports."""
        rate_gbit_s = max(Speed.rate_gbit_s(*parse_label(speed)) for speed in entry.speeds)
        return self.named(name, _defaults(TRANSCEIVER, rate_gbit_s), ports)

    def link(self, cable: catalog.Cable) -> Band | None:
        """Return the cost of one link: half of a twin-port cable, or two ports of transceivers and a fibre."""
        if cable.transceivers is None:
            price = self.of(cable)
            return None if price is None else price * (1 / cable.links)
        ports = max(
            switch.ports_at(speed) // switch.cages
            for switch in catalog.switches()
            for speed in set(switch.speeds) & set(cable.speeds)
            if not cable.cages or switch.cage in cable.cages
        )
        at_switch, at_adapter = cable.transceivers
        cage = self.transceiver(at_switch, cable, ports)
        port, fibre = self.transceiver(at_adapter, cable, 1), self.named(cable.part, (FIBRE,))
        return cage * (1 / ports) + port + fibre if cage and port and fibre else None

    def figure(self, name: str) -> float:
        """Return a figure that weft always has: `YEARS`, `PUE`."""
        return next(quotes[name].low_usd for quotes in self.layers if name in quotes)

    def named(self, name: str, defaults: Sequence[str] = (), count: int = 1, unit: str = "ports") -> Price | None:
        """Return the price under this name, or so many times the first default that a file has."""
        for quotes in self.layers:
            if name in quotes:
                return quotes[name]
            for default in defaults:
                if default in quotes:
                    return quotes[default].times(count, unit)
        return None


def _defaults(name: str, rate_gbit_s: float) -> tuple[str, ...]:
    """Return the names of default prices for parts of this rate, the more specific first."""
    return (f"{_FAST} {name}", name) if rate_gbit_s >= _FAST_GBIT_S else (name,)


def read_prices(path: Path | None = None) -> Prices:
    """Return weft's own prices, preceded by those of a file."""
    return Prices(layers=(_own(),) if path is None else (_read(path), _own()), path=path)


@cache
def _own() -> Mapping[str, Price]:
    with files("weft.fabric").joinpath("catalog/prices.toml").open(encoding="utf-8") as file:
        return _read(Path(file.name))


class _Figure(Struct):
    value: float
    source: str
    date: datetime.date
    weak: bool = False


class _Quote(Struct):
    usd: float | tuple[float, float]
    source: str
    date: datetime.date
    weak: bool = False


def _read(path: Path) -> Mapping[str, Price]:
    document = Document.load(path, otherwise=".toml")
    if not isinstance(document.data, dict):
        document.refuse((), f"names of parts, each with {_FORM}")
    quotes: dict[str, Price] = {}
    for name in document.data:
        part = _part_name(document, name)
        if part in quotes:
            raise FileError(path, document.line((name,)), name, f"another name: {part} already has a price")
        quotes[part] = _price(document, name, _Figure if part in (YEARS, PUE) else _Quote)
    return quotes


def _template_name(box: str) -> str:
    """Return the file name of a template in a file, without its folder; any other name unchanged."""
    return Path(box).name if catalog.is_template_file(box) else box


def _part_name(document: Document, name: str) -> str:
    if catalog.is_template_file(name):
        return _template_name(name)
    try:
        return find_named("part or default price", name, dict(zip(_names(), _names(), strict=True)), _HINT)
    except UnknownName as error:
        raise FileError(document.path, document.line((name,)), name, f"a part that can have a price: {error}") from None


def _price(document: Document, name: str, form: type[_Quote] | type[_Figure]) -> Price:
    if not isinstance(document.at((name,)), dict):
        document.refuse((name,), _FORM)
    quote = document.convert((name,), form)
    band = quote.value if isinstance(quote, _Figure) else quote.usd
    low, high = band if isinstance(band, tuple) else (band, band)
    if not 0 <= low <= high < math.inf:
        document.refuse((name, "value" if isinstance(quote, _Figure) else "usd"), _FORM)
    if not quote.source.strip():
        document.refuse((name, "source"), "the source of the price: an offer, a page, a table")
    return Price(low_usd=low, high_usd=high, source=quote.source, date=quote.date, weak=quote.weak)


@cache
def _names() -> tuple[str, ...]:
    """Return the names of all parts and defaults that can have a price."""
    boxes = [entry.name for entry in (*catalog.switches(), *catalog.adapters(), *catalog.servers())]
    boxes += [f"{entry.name} {part}" for entry in catalog.switches() if entry.chassis for part in DIRECTOR_PARTS]
    cables = [cable.name for cable in catalog.cables() if cable.transceivers is None]
    optical = [cable for cable in catalog.cables() if cable.transceivers]
    parts = [(*(cable.transceivers or ()), cable.flat_transceiver, cable.part) for cable in optical]
    optics = [name for names in parts for name in names if name]
    kinds = [f"{maker} {kind}" for maker in _MAKERS.values() for kind in ("adapter", "switch port")]
    return (
        *boxes,
        *cables,
        *dict.fromkeys(optics),
        *kinds,
        *(f"{_FAST} {kind}" for kind in (*kinds, TRANSCEIVER)),
        *_CABLES.values(),
        TRANSCEIVER,
        FIBRE,
        MANAGEMENT_SWITCH,
        COPPER,
        ELECTRICITY,
        YEARS,
        PUE,
    )
