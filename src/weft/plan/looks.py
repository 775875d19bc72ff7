"""The common parts of floor plan and elevations: tier colours, power of racks, labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.draw.parts import count
from weft.draw.scene import Ink, Role, TextStyle
from weft.draw.sheet import Legend
from weft.plan.floor.racks import Racks

# Pale, as background for text; red is reserved for errors.
TIER_INKS = (
    Ink(light="#dbe6f1", dark="#2c3a49"),
    Ink(light="#8ed1c2", dark="#1f6558"),
    Ink(light="#f3c04b", dark="#80600f"),
    Ink(light="#d493c6", dark="#7d3a6d"),
)
TIERS = ("server", "leaf switch", "spine switch", "core switch")


def looks_of(racks: Racks) -> NDArray[np.int64]:
    """Return an index into TIER_INKS for each box; a switch without a path to a server gets a leaf's colour."""
    return np.where(racks.tier < 0, 1, np.minimum(racks.tier, len(TIER_INKS) - 1)).astype(np.int64)


def add_tiers(legend: Legend, looks: NDArray[np.int64], first: int) -> None:
    """Add a legend entry for each tier in use; `first` is the ink of the servers."""
    for tier, number in enumerate(np.bincount(looks, minlength=len(TIERS)).tolist()):
        if number:
            legend.swatch(count(number, TIERS[tier]), Role.HOST, first + tier)


def contents(racks: Racks, selected: NDArray[np.bool_]) -> str:
    """Describe the selected racks: `14 racks, 32 servers, 12 switches, 347 kW`."""
    boxes = selected[racks.rack]
    servers = int(np.count_nonzero(boxes & (racks.tier == 0)))
    words = [
        count(int(selected.sum()), "rack"),
        count(servers, "server"),
        count(int(boxes.sum()) - servers, "switch"),
        str(power_of(racks, boxes)),
    ]
    return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """The total power of some boxes, as far as the catalog has it."""

    watts: float
    unknown: int = 0  # boxes of unknown power

    @property
    def figure(self) -> str:
        """The power in kW, short: `40.8`, `≥1.7`, `?`."""
        if self.unknown:
            return f"≥{_kilo(self.watts)}" if self.watts else "?"
        return _kilo(self.watts)

    def __str__(self) -> str:
        """Format the power: `40.8 kW`, `1.7 kW and 2 boxes of unknown power`."""
        if not self.unknown:
            return f"{_kilo(self.watts)} kW"
        left = f"{count(self.unknown, 'box')} of unknown power"
        return f"{_kilo(self.watts)} kW and {left}" if self.watts else left


def power_of(racks: Racks, boxes: NDArray[np.bool_] | slice) -> Power:
    power_w = racks.power_w[boxes]
    return Power(watts=float(np.nansum(power_w)), unknown=int(np.isnan(power_w).sum()))


def rack_powers(racks: Racks, selected: list[int]) -> list[Power]:
    """Return the power of each of these racks."""
    unknown = np.bincount(racks.rack, np.isnan(racks.power_w), minlength=len(racks.names)).astype(int)
    pairs = zip(racks.rack_power_w[selected].tolist(), unknown[selected].tolist(), strict=True)
    return [Power(watts=watts, unknown=boxes) for watts, boxes in pairs]


def _kilo(watts: float) -> str:
    return f"{watts / 1000:,.0f}" if watts >= 99_950 else f"{watts / 1000:.1f}"


def add_over_power(legend: Legend, racks: Racks, selected: NDArray[np.bool_]) -> None:
    """Add the number of selected racks over their power limit to the legend."""
    if over := int(np.count_nonzero(racks.rack_power_w[selected] > racks.limit_w[selected])):
        limit = Power(watts=racks.room.filled_w)
        legend.swatch(f"{count(over, 'rack')} over {limit}", Role.OUTLINE, style=TextStyle.ALARM)
