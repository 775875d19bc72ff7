"""Links on their way to become lines: bundling, stroke and tooltip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from weft.draw.inks import BAD, ColorScheme
from weft.draw.parts import Parts
from weft.draw.scene import Line, Points
from weft.fabric.kinds import Medium
from weft.fabric.rates import speeds
from weft.units import format_gbit_s

THICKEST = 9  # links of a bundle; more make no thicker stroke
_LISTED = 8  # links of a bundle in the tooltip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A set of links between the same two ends that look the same."""

    a: int  # ends, by the layout's numbering
    b: int
    links: tuple[int, ...]
    bad: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Wires:
    """The links of a fabric with their inks."""

    parts: Parts
    colors: ColorScheme

    def bundles(
        self, links: NDArray[np.integer], a: NDArray[np.integer], b: NDArray[np.integer], *, apart: bool = False
    ) -> list[Bundle]:
        """Return a bundle for each two ends and ink, or for each link if `apart`. Bad links are always separate."""
        order, first = self._group(links, a, b, apart=apart)
        edges, ordered = [*first.tolist(), len(links)], links[order].tolist()
        ends = (column[order[first]].tolist() for column in (a, b, self.parts.bad[links]))
        return [
            Bundle(a=start, b=end, links=tuple(ordered[i:j]), bad=is_bad)
            for (i, j), start, end, is_bad in zip(pairwise(edges), *ends, strict=True)
        ]

    def sizes(self, links: NDArray[np.integer], a: NDArray[np.integer], b: NDArray[np.integer]) -> NDArray[np.integer]:
        """Return the number of links in each of the `bundles`."""
        return np.diff(self._group(links, a, b, apart=False)[1], append=len(links))

    def _group(
        self, links: NDArray[np.integer], a: NDArray[np.integer], b: NDArray[np.integer], *, apart: bool
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return an order of the links in which bundles are neighbours, and the place of the first link of each."""
        bad = self.parts.bad[links]
        low, high = np.minimum(a, b), np.maximum(a, b)
        ink = np.zeros(len(links), np.int64) if self.colors.metric is not None else self.colors.of_link[links]
        single = np.where(bad | apart, 1 + np.arange(len(links)), 0)
        order = np.lexsort((links, single, ink, high, low))
        keys = np.stack((low, high, ink, single))[:, order]
        first = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))) if len(links) else order
        return order, first

    def line(self, bundle: Bundle, points: Points, crowd: int, boxes: tuple[int, int], names: tuple[str, str]) -> Line:
        """Return a bundle as a line among `crowd` others: the more lines, the finer."""
        width, opacity = self._stroke(bundle, crowd)
        return Line(
            points=points,
            ink=BAD if bundle.bad else self.ink(bundle.links),
            width=width,
            opacity=opacity,
            bad=bundle.bad,
            title=self.title(bundle.links, names),
            links=bundle.links,
            a=boxes[0],
            b=boxes[1],
        )

    def ink(self, links: Sequence[int]) -> int:
        """Return the ink of a link, or of the link with the highest metric among several."""
        if self.colors.metric is None or len(links) == 1:
            return int(self.colors.of_link[links[0]])
        return self.colors.ramp_ink(self.peak(links))

    def _stroke(self, bundle: Bundle, crowd: int) -> tuple[float, float]:
        """Return width and opacity."""
        if bundle.bad:
            return 2.2, 1.0
        fine = min(max(20 / math.sqrt(crowd + 1), 0.5), 1.6)
        clear = min(max(10 / math.sqrt(crowd + 1), 0.18), 0.9)
        if self.colors.metric is None:
            return fine * math.sqrt(min(len(bundle.links), THICKEST)), clear
        peak = self.peak(bundle.links)
        strength = max(self.colors.strength(peak), 0.0) * (1 - self._share(peak)) ** 2
        return fine * (0.6 + 3.0 * strength), clear + (1 - clear) * strength

    def _share(self, value: float) -> float:
        """Return the share of links with this value or more; a value that all links have is not highlighted."""
        values = self._finite_values
        return 1 - np.searchsorted(values, value) / len(values) if len(values) else 0.0

    @cached_property
    def _finite_values(self) -> NDArray[np.float64]:
        """The known values of the metric, sorted."""
        metric = np.zeros(0) if self.colors.metric is None else self.colors.metric
        return np.sort(metric[np.isfinite(metric)])

    def peak(self, links: Sequence[int]) -> float:
        """Return the highest metric of these links; minus infinity if none is known, so that they sort first."""
        if self.colors.metric is None:
            return -math.inf
        return float(np.nan_to_num(self.colors.metric[list(links)], nan=-math.inf).max())

    # -- tooltips -----------------------------------------------------------------------------------------------------

    def speed_label(self, link: int) -> str:
        links = self.parts.fabric.links
        return speeds()[int(links.speed[link])].label(int(links.width[link]))

    def name(self, link: int) -> str:
        """Return `leaf1/33 - spine1/1`."""
        fabric = self.parts.fabric
        ports, names = fabric.ports, fabric.nodes.name
        ends = (fabric.links.a[link], fabric.links.b[link])
        return " - ".join(f"{names[ports.node[slot]]}/{ports.number[slot]}" for slot in ends)

    def title(self, links: Sequence[int], names: tuple[str, str] | None = None) -> str:
        """Return a description of one link, or of a bundle with its first few links."""
        if len(links) == 1:
            return "\n".join([self.name(links[0]), *self.facts(links[0])])
        lines_of, some = self.parts.fabric.links, list(links)
        lanes = zip(lines_of.speed[some].tolist(), lines_of.width[some].tolist(), strict=True)
        kinds = [speeds()[speed].label(width) for speed, width in dict.fromkeys(lanes)]
        lines = [f"{len(links):,} links {', '.join(kinds)}"]
        if names:
            lines[0] = f"{names[0]} - {names[1]}: {lines[0]}"
        if self.colors.metric is not None:
            peak = self.peak(links)
            lines.append(f"{self._metric_name} {'unknown' if peak == -math.inf else f'up to {peak:.4g}'}")
        lines += [self.name(link) for link in links[:_LISTED]]
        return "\n".join([*lines, f"… and {len(links) - _LISTED:,} more"] if len(links) > _LISTED else lines)

    def facts(self, link: int) -> list[str]:
        """Return speed, cable and metric of a link, and its problems."""
        fabric = self.parts.fabric
        facts = [f"{self.speed_label(link)}, {format_gbit_s(fabric.link_rate_gbit_s[link])} Gbit/s"]
        medium, length_m = Medium(fabric.links.medium[link]), float(fabric.links.length_m[link])
        if medium not in (Medium.UNKNOWN, Medium.BOARD):
            cable = "transceivers" if medium is Medium.TRANSCEIVER else medium.name
            facts[0] += f", {cable} {length_m:g} m" if length_m else f", {cable}"
        if self.colors.metric is not None:
            value = self.colors.metric[link]
            facts.append(f"{self._metric_name} {'unknown' if math.isnan(value) else f'{value:.4g}'}")
        if self.parts.bad[link]:
            rate = float(fabric.links.bit_error_rate[link])
            facts.append(f"bit error rate {rate:.0e}" if rate > 0 else "slower than the links beside it")
        return facts

    @property
    def _metric_name(self) -> str:
        return self.colors.metric_label or "metric"
