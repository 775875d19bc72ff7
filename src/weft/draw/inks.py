"""Colours: of links by generation or by a metric, and of other elements by their role.

The palette builds on those of Okabe and Ito and of Paul Tol, which are distinguishable with any colour vision. Red is
reserved for bad links, which are also dashed and circled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.draw.parts import Parts
from weft.draw.scene import Ink, Role, TextStyle
from weft.errors import ConfigError
from weft.fabric.rates import speeds

BAD = 0  # index of the first ink of every scene
NEUTRAL = 1

ALWAYS = (Ink(light="#d7191c", dark="#ff5a4f"), Ink(light="#9aa5b1", dark="#6b7683"))

# By speed; within a technology from pale and warm to strong and cold as they get faster.
_SPEED_INKS = {
    "SDR": "#9a9a9a",
    "DDR": "#b8a765",
    "QDR": "#999933",
    "FDR10": "#7f9a4e",
    "FDR": "#2f8f5b",
    "EDR": "#e69f00",
    "HDR": "#3ea2dc",
    "NDR": "#0b6fb8",
    "XDR": "#aa4499",
    "GDR": "#6a51a3",
    "10GbE": "#a8a29a",
    "25GbE": "#b9a88a",
    "40GbE": "#a89f6b",
    "50GbE": "#8f9e6a",
    "100GbE": "#c98b2b",
    "200GbE": "#44aa99",
    "400GbE": "#009e73",
    "800GbE": "#cc79a7",
    "OPA-100": "#8c6bb1",
    "OPA-400": "#7a4a8c",
    "NVLink3": "#a8c860",
    "NVLink4": "#86ad2e",
    "NVLink5": "#6a9114",
    "PCIe3": "#c4bcb4",
    "PCIe4": "#b0a89f",
    "PCIe5": "#9c938a",
    "PCIe6": "#887f76",
}
_OTHER_SPEED = "#777777"

# Low to high, in even steps of lightness: towards dark on white paper, towards light on black.
_RAMP_LIGHT = ("#d3dde6", "#9ecae1", "#5aa7d1", "#3276b8", "#54449a", "#5b1a78", "#3c0753")
_RAMP_DARK = ("#2d3845", "#33527a", "#4a6fc0", "#8a76d6", "#c987c9", "#f0a99c", "#fde3a0")
RAMP_STEPS = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxStyle:
    """The fill and outline of a box, on white and on black paper."""

    fill: Ink
    stroke: Ink
    corner: float = 2.0


def _style(fill: str, stroke: str, dark_fill: str, dark_stroke: str, corner: float = 2.0) -> BoxStyle:
    return BoxStyle(fill=Ink(light=fill, dark=dark_fill), stroke=Ink(light=stroke, dark=dark_stroke), corner=corner)


PAPER = Ink(light="#ffffff", dark="#14181d")
BOX_STYLES = {
    Role.FRAME: _style("#f4f6f9", "#d5dce4", "#1b2128", "#323c47", 6.0),
    Role.BLOCK: _style("#e9edf2", "#cdd5de", "#242c35", "#3b4652"),
    Role.CORE: _style("#1d2b3a", "#1d2b3a", "#c3cfdb", "#c3cfdb", 3.0),
    Role.SPINE: _style("#33475b", "#33475b", "#9db0c2", "#9db0c2", 3.0),
    Role.LEAF: _style("#55708b", "#55708b", "#7690a9", "#7690a9", 3.0),
    Role.HOST: _style("#ffffff", "#8593a1", "#222a33", "#7b8896"),
    Role.CELL: _style("#9aa5b1", "none", "#6b7683", "none", 0.0),
    Role.HCA: _style("#dcebf7", "#7ba7cc", "#1f3a52", "#4d7ea8"),
    Role.GPU: _style("#e6f2d3", "#86ad2e", "#33421a", "#86ad2e"),
    Role.NVSWITCH: _style("#cfe3a4", "#6a9114", "#43571e", "#a8c860"),
    Role.PCIE: _style("#efece8", "#b0a89f", "#35322e", "#9c938a"),
    Role.CPU: _style("#ebe6f4", "#9d8ec4", "#322c44", "#9d8ec4"),
    Role.MARK: _style("none", "#d7191c", "none", "#ff5a4f"),
    Role.OUTLINE: _style("none", "#d7191c", "none", "#ff5a4f"),
}
TEXT_STYLES = {
    TextStyle.TITLE: Ink(light="#18222d", dark="#e8edf2"),
    TextStyle.LABEL: Ink(light="#2b3947", dark="#cfd8e1"),
    TextStyle.FAINT: Ink(light="#6c7885", dark="#8d99a6"),
    TextStyle.INVERSE: Ink(light="#ffffff", dark="#10151a"),
    TextStyle.ALARM: Ink(light="#c01518", dark="#ff7a70"),
    TextStyle.PORT: Ink(light="#4d5a67", dark="#a9b5c1"),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColorScheme:
    """The ink of each link, and the labels of the legend."""

    inks: tuple[Ink, ...]
    of_link: NDArray[np.int16]  # [link] -> ink of a good link; bad ones have BAD
    speeds: dict[int, str] = field(default_factory=dict)  # ink -> label
    metric: NDArray[np.float64] | None = None  # [link], NaN if unknown
    metric_label: str = ""
    low: float = 0.0
    high: float = 0.0

    def strength(self, value: float) -> float:
        """Return the position of a value between the lowest and the highest: 0 to 1."""
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5

    def ramp_ink(self, value: float) -> int:
        """Return the ink of a value; minus infinity is unknown."""
        if value == -math.inf:
            return NEUTRAL
        return len(ALWAYS) + round(self.strength(value) * (RAMP_STEPS - 1))


def ink_by_speed(parts: Parts) -> ColorScheme:
    """Return a fixed ink for each generation; narrower links are paler."""
    fabric = parts.fabric
    kind = fabric.links.speed.astype(np.int32) << 16 | fabric.links.width  # whole columns are slow to sort
    used, of_link = np.unique(kind, return_inverse=True)
    inks, labels = list(ALWAYS), {}
    for speed, width in zip((used >> 16).tolist(), (used & 0xFFFF).tolist(), strict=True):
        line = speeds()[speed]
        colour = _SPEED_INKS.get(line.name, _OTHER_SPEED)
        if width != line.default_width:
            colour = _mix(colour, "#ffffff", 0.45)
        labels[len(inks)] = line.label(width)
        inks.append(Ink(light=colour, dark=_mix(colour, "#ffffff", 0.15)))
    return ColorScheme(inks=tuple(inks), of_link=(len(ALWAYS) + of_link).astype(np.int16), speeds=labels)


def ink_by_metric(metric: NDArray[np.float64], label: str) -> ColorScheme:
    """Return a sequential scale from 0, or from the lowest value if that is negative."""
    finite = metric[np.isfinite(metric)]
    low, high = min(0.0, float(finite.min(initial=0.0))), float(finite.max(initial=0.0))
    ramp = [Ink(light=_along(_RAMP_LIGHT, i), dark=_along(_RAMP_DARK, i)) for i in range(RAMP_STEPS)]
    step = np.zeros(len(metric)) if high == low else (metric - low) / (high - low)
    of_link = np.where(np.isfinite(metric), len(ALWAYS) + np.rint(np.nan_to_num(step) * (RAMP_STEPS - 1)), NEUTRAL)
    return ColorScheme(
        inks=(*ALWAYS, *ramp), of_link=of_link.astype(np.int16), metric=metric, metric_label=label, low=low, high=high
    )


def check_metric(parts: Parts, metric: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one number per link, NaN if unknown; raise ConfigError for another shape or infinite values."""
    try:
        values = np.asarray(metric, np.float64)
    except (TypeError, ValueError):
        raise ConfigError("the metric is not an array of numbers: give one for each link, NaN if unknown") from None
    count = len(parts.fabric.links)
    if values.shape != (count,):
        shape = " x ".join(f"{n:,}" for n in values.shape) or "one"
        raise ConfigError(f"the metric has {shape} values, the fabric has {count:,} links: give one for each link")
    if np.isinf(values).any():
        link = parts.fabric.link(int(np.isinf(values).argmax()))
        raise ConfigError(f"the metric of {link} is infinite; give NaN if unknown")
    return values


def _along(ramp: tuple[str, ...], step: int) -> str:
    place = step / (RAMP_STEPS - 1) * (len(ramp) - 1)
    index = min(int(place), len(ramp) - 2)
    return _mix(ramp[index], ramp[index + 1], place - index)


def _mix(colour: str, other: str, share: float) -> str:
    """Mix `colour` with a share of `other`."""
    mixed = (
        round(int(colour[i : i + 2], 16) * (1 - share) + int(other[i : i + 2], 16) * share) for i in range(1, 7, 2)
    )
    return "#" + "".join(f"{value:02x}" for value in mixed)
