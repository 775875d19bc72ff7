"""Spare parts: enough that with a given probability no part runs out before a replacement arrives.

    spares = find_spares([(plan.cabling, plan.bill)], rates, probability=0.99, lead_weeks=12)

Failures of n parts with a rate are Poisson: their number in the lead time has the mean n * rate * time. Each of k
kinds of parts has the fewest spares that are enough with the probability p^(1/k), so that all kinds are with p or more.
A link fails as often whatever it is made of: a cable has the rate of its links, a transceiver half of that for each of
its ports.
"""

from __future__ import annotations

import csv
import datetime
import io
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

import msgspec

from weft.errors import ConfigError
from weft.fabric.files.lab.document import Document
from weft.plan.bill import Bill
from weft.plan.floor.cables import Cabling
from weft.plan.floor.parts import list_parts

_WEEKS = 52.18  # in a year
_Key = tuple[str, str, float | None]  # kind, part number, length
_MOST = 0.9999  # sums of rounded terms come no closer to 1 with many kinds of parts


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The failures of a part in a year."""

    per_year: float
    source: str
    date: datetime.date

    def __post_init__(self) -> None:
        if not 0 <= self.per_year < math.inf:
            raise ConfigError(f"per_year = {self.per_year}: must be 0 or more")


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rates by kind of part; None: as weft's."""

    switch: Rate | None = None
    link: Rate | None = None
    adapter: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """The spares of a part."""

    kind: str
    part: str  # to order
    length_m: float | None
    installed: int
    failures_per_year: float  # expected, of all installed
    spares: int


def read_rates(path: Path | None = None) -> dict[str, Rate]:
    """Return the rates: weft's, replaced by those of a TOML file name by name."""
    own = files("weft.plan").joinpath("failures.toml").read_text("utf-8")
    rates = msgspec.structs.asdict(msgspec.toml.decode(own, type=Rates))
    if path is not None:
        given = msgspec.structs.asdict(Document.load(path, otherwise=".toml").convert((), Rates))
        rates |= {name: rate for name, rate in given.items() if rate is not None}
    return rates


def find_spares(
    bought: Sequence[tuple[Cabling, Bill]], rates: Mapping[str, Rate], *, probability: float, lead_weeks: float
) -> tuple[Spare, ...]:
    """Return the spares of every part of some networks; fibres, which have no rate of their own, have none."""
    if not 0 < probability <= _MOST:
        raise ConfigError(
            f"--spares must be a probability above 0 and up to {_MOST}, such as 0.99, got {probability:g}"
        )
    if not 0 < lead_weeks < math.inf:
        raise ConfigError(f"--lead-weeks must be above 0, got {lead_weeks:g}")
    installed = _installed(bought, rates)
    each = probability ** (1 / max(len(installed), 1))
    return tuple(
        Spare(
            kind=kind,
            part=part,
            length_m=length_m,
            installed=count,
            failures_per_year=per_year,
            spares=fewest(per_year * lead_weeks / _WEEKS, each),
        )
        for (kind, part, length_m), (count, per_year) in installed.items()
    )


def _installed(bought: Sequence[tuple[Cabling, Bill]], rates: Mapping[str, Rate]) -> dict[_Key, tuple[int, float]]:
    """Return the number and the failures in a year of each part, by kind, part number and length."""
    counts: Counter[_Key] = Counter()
    per_year: dict[_Key, float] = defaultdict(float)
    of_kind = {"switch": rates["switch"], "board": rates["switch"], "adapter": rates["adapter"]}
    for item in (item for _, bill in bought for item in bill.items):
        if rate := of_kind.get(item.kind):
            key: _Key = (item.kind, item.order or item.name, None)
            counts[key] += item.count
            per_year[key] += item.count * rate.per_year
    for part in (part for cabling, _ in bought for part in list_parts(cabling)):
        if part.ends:
            key = (part.kind, part.name, part.length_m)
            counts[key] += part.count
            per_year[key] += part.ends / 2 * rates["link"].per_year
    return {key: (count, per_year[key]) for key, count in counts.items()}


def fewest(mean: float, probability: float) -> int:
    """Return the smallest number that a Poisson variable of this mean does not exceed with the probability."""
    number, below = 0, math.exp(-mean)
    while below < probability:
        number += 1
        below += math.exp(number * math.log(mean) - mean - math.lgamma(number + 1))
    return number


def to_csv(spares: tuple[Spare, ...]) -> str:
    """Return a CSV line for each part."""
    text = io.StringIO()
    writer = csv.DictWriter(text, Spare.__dataclass_fields__, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(spare) for spare in spares)
    return text.getvalue()
