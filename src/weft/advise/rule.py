"""The rule that makes an answer of rows. It is all that there is:

1. What costs more than the budget is left out, by the middle of its band.
2. A unit of work costs least on one of the others. Those within 5 % of it cost the same, as far as a model can tell:
   weft's training steps are 7 % off published ones in the mean, its collectives 9 %.
3. Of those, one that is cheaper to buy and not more than 5 % slower makes another needless.
4. If more than one is left, it is either of them: one is faster, the other cheaper. What the team knows comes first.

Vendor risk is not in it. It has a line of its own, and `flips` says from which weight on it would change the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.advise.case import Case
from weft.advise.rows import Row
from weft.compare.words import TIE

NOTHING = "none can be paid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The rows that are left, the one to take first; none where the budget pays for nothing."""

    chosen: tuple[Row, ...]
    too_dear: tuple[Row, ...]
    fastest: Row

    @property
    def answer(self) -> str:
        """InfiniBand, RoCE, Ethernet, or either of some."""
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
    order = {id(row): (row.price_usd, -place) for place, row in enumerate(rows)}  # among equals, the plainer
    left = [
        row
        for row in equal
        if not any(order[id(one)] < order[id(row)] and one.seconds <= row.seconds * (1 + TIE) for one in equal)
    ]
    left.sort(key=lambda row: (not _known(row, case.team), order[id(row)]))
    return Verdict(
        chosen=tuple(left),
        too_dear=tuple(row for row in rows if row.price_usd > budget),
        fastest=min(rows, key=lambda row: row.seconds),
    )


def _known(row: Row, team: str) -> bool:
    return bool(team) and (row.option.wire.network == "infiniband") == (team == "infiniband")
