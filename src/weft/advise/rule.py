"""The complete rule that turns rows into an answer:

1. Drop fabrics that cost more than the budget, by the middle of their price band.
2. Find the lowest cost of a unit of work. Fabrics within 5 % of it count as equal, because the model cannot tell them
   apart: weft's training steps are 5 % off published ones in the mean, its collectives 8 %.
3. Of these, drop a fabric if another one is cheaper to buy and at most 5 % slower. A fabric about which only vendors'
   headlines are published must be 5 % cheaper than one with measurements.
4. If several remain, any of them will do: one is faster, another cheaper. The one that the team knows comes first.

Vendor risk is not part of the rule. It is reported separately, with the probability at which it would change the answer
(`sensitivity`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from weft.advise.case import Case
from weft.advise.rows import Row
from weft.compare.formatting import TIE
from weft.fabric.rates import read_data

NOTHING = "none can be paid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The remaining rows, the recommended one first; empty if the budget pays for no fabric."""

    chosen: tuple[Row, ...]
    too_dear: tuple[Row, ...]
    fastest: Row

    @property
    def answer(self) -> str:
        """The answer: InfiniBand, RoCE, Ethernet, or "either A or B"."""
        names = sorted({row.option.answer for row in self.chosen})
        if not names:
            return NOTHING
        return names[0] if len(names) == 1 else f"either {' or '.join(names)}"

    @property
    def best(self) -> Row | None:
        return self.chosen[0] if self.chosen else None


def decide(rows: Sequence[Row], case: Case) -> Verdict:
    budget = float("inf") if case.budget_usd is None else case.budget_usd
    paid = [row for row in rows if row.price_usd <= budget]
    least = min((row.unit_usd for row in paid), default=0.0)
    equal = [row for row in paid if row.unit_usd <= least * (1 + TIE)]
    order = {
        id(row): (_compared_usd(row), -place) for place, row in enumerate(rows)
    }  # of equals the later, simpler row
    left = [
        row
        for row in equal
        if not any(order[id(other)] < order[id(row)] and other.seconds <= row.seconds * (1 + TIE) for other in equal)
    ]
    left.sort(key=lambda row: (not _is_known_to_team(row, case.team), order[id(row)]))
    return Verdict(
        chosen=tuple(left),
        too_dear=tuple(row for row in rows if row.price_usd > budget),
        fastest=min(rows, key=lambda row: row.seconds),
    )


def _compared_usd(row: Row) -> float:
    return row.price_usd * (1 + TIE if row.option.interconnect.headlines_only else 1)


def _is_known_to_team(row: Row, team: str) -> bool:
    return bool(team) and (row.option.interconnect.network == "infiniband") == (team == "infiniband")


@cache
def facts() -> dict[str, Any]:
    return read_data("weft.advise", "facts.toml")
