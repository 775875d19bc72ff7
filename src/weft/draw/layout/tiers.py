"""Tiers: cores and spines on top, leaves below, hosts at the bottom in their racks.

Switches of an appendix above the top tier are on the right, nodes without a path to the hosts at the bottom.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from weft.draw.layout import inside
from weft.draw.layout.bands import Band, Cluster, Rack, stack
from weft.draw.layout.detail import (
    Detail,
    choose_detail,
    cluster_gap,
    cluster_pad,
    cluster_width,
    pitches,
    rack_gap,
    rack_width,
)
from weft.draw.layout.painter import Painter
from weft.draw.layout.tier_lines import Anchors, draw_lines
from weft.draw.parts import Parts, count, host_noun, span
from weft.draw.scene import Box, Canvas, Role, TextStyle, fit, text_width
from weft.draw.wires import Wires

_LEAST_WIDTH = 520.0
_LABEL_GAP = 14.0  # between the row labels and the picture
_LEVEL_HEIGHT, _BARE_HEIGHT, _UPRIGHT_HEIGHT, _UPRIGHT_WIDTH = 26.0, 14.0, 120.0, 24.0  # heights and width of switches
_LEVEL_WIDTH, _LINK_WIDTH = 140.0, 12.0  # the largest width of a switch, or for each of its links
_FRAME_PAD = 9.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """A range of the horizontal axis."""

    left: float
    right: float

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2

    @property
    def width(self) -> float:
        return self.right - self.left

    def shrunk(self, by: float) -> _Span:
        return _Span(left=self.left + by, right=self.right - by)

    def split(self, weights: list[float], gap: float) -> list[_Span]:
        """Split in proportion to the weights, with gaps between."""
        scale = (self.width - gap * (len(weights) - 1)) / sum(weights) if weights else 0.0
        lefts = itertools.accumulate((weight * scale + gap for weight in weights), initial=self.left)
        return [_Span(left=left, right=left + w * scale) for left, w in zip(lefts, weights, strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row of switches."""

    level: int
    switches: tuple[int, ...]
    where: _Span

    @property
    def pitch(self) -> float:
        return self.where.width / len(self.switches)


class Tiers:
    def __init__(self, canvas: Canvas, wires: Wires) -> None:
        self.canvas, self.wires, self.parts = canvas, wires, wires.parts
        self.painter = Painter(canvas=canvas, wires=wires)
        self.anchors = Anchors(self.parts)
        self.stack = stack(self.parts)
        self.degree = np.bincount(np.concatenate(self.parts.ends), minlength=len(self.parts))
        hosts = self._every_host()
        names = [self.parts.names[host] for host in hosts]
        self.level = choose_detail(self.stack, names, self.painter.rails, inside.size(self.parts, hosts))
        self.width = max(self.level.width, _LEAST_WIDTH)
        self.pitch = pitches(self.stack)
        self.clusters = [(band, self._cluster_spans(band)) for band in self.stack.bands]
        self.racks = self._rack_spans()
        self.rows = self._rows()
        self.row_y, self.row_height = self._heights()

    def draw(self) -> None:
        for band, spans in self.clusters:
            for cluster, where in zip(band.clusters, spans, strict=True):
                frame = self._frame(band, cluster, where)
                inner = where.shrunk(cluster_pad(cluster))
                for level in band.levels:
                    if len(switches := cluster.switches(level)) > 1:
                        y, height = self.row_y[level], self.row_height[level]
                        self.anchors.put_row(switches, inner.middle, y, inner.width, height, frame)
        for row in self.rows:
            self._draw_row(row)
        self._draw_apart()
        for rack, where in self.racks:
            if rack.hosts:
                self._draw_hosts(rack, where)
        self._draw_cut_off()
        self._captions()
        self._row_labels()
        draw_lines(self.painter, self.anchors, single_lines=self.single_lines)

    # -- positions ----------------------------------------------------------------------------------------------------

    def _every_host(self) -> list[int]:
        return sorted(host for cluster in self.stack.bands[0].clusters for rack in cluster.racks for host in rack.hosts)

    def _cluster_spans(self, band: Band) -> list[_Span]:
        weights = [cluster_width(c, self.pitch, self.level.host_width, self.level.rows) for c in band.clusters]
        return _Span(left=0.0, right=self.width).split(weights, cluster_gap(band, self.pitch))

    def _rack_spans(self) -> list[tuple[Rack, _Span]]:
        band, spans = self.clusters[0]
        spans_of_racks: list[tuple[Rack, _Span]] = []
        for cluster, where in zip(band.clusters, spans, strict=True):
            weights = [rack_width(r, self.pitch[1], self.level.host_width, self.level.rows) for r in cluster.racks]
            inner = where.shrunk(cluster_pad(cluster)).split(weights, rack_gap(self.pitch))
            spans_of_racks += zip(cluster.racks, inner, strict=True)
        return spans_of_racks

    def _rows(self) -> list[_Row]:
        rows = [_Row(level=1, switches=rack.leaves, where=where) for rack, where in self.racks]
        for band, spans in self.clusters:
            for cluster, where in zip(band.clusters, spans, strict=True):
                inner = where.shrunk(cluster_pad(cluster))
                rows += [_Row(level=level, switches=row, where=inner) for level, row in cluster.rows.items()]
        return [row for row in rows if row.switches]

    def _heights(self) -> tuple[dict[int, float], dict[int, float]]:
        """Return middle and height of the boxes of each level, with names across, upright or none, as all fit."""
        gap = min(max(0.16 * self.width, 110.0), 360.0)
        y, middles, heights = 0.0, {}, {}
        for level in range(self.stack.top, 0, -1):
            rows = [row for row in self.rows if row.level == level]
            longest = max((text_width(self.parts.names[s], 9) for row in rows for s in row.switches), default=0.0)
            pitch = min((row.pitch for row in rows), default=0.0)
            upright = min(longest + 12, _UPRIGHT_HEIGHT) if pitch >= 14 else _BARE_HEIGHT
            heights[level] = _LEVEL_HEIGHT if longest + 4 <= pitch * 0.84 else upright
            middles[level] = y + heights[level] / 2
            y += heights[level] + gap
        return middles, heights

    @cached_property
    def single_lines(self) -> bool:
        """Return whether each host has separate lines, rather than each leaf one stem to all its hosts."""
        shared = any(len(rack.leaves) > 1 for rack, _ in self.racks)
        return self.level.is_named or (shared and self.level.rows == 1 and self.level.detail is Detail.CELLS)

    @cached_property
    def host_top(self) -> float:
        bottom = self.row_y[1] + self.row_height[1] / 2
        return bottom + (min(max(0.07 * self.width, 90.0), 170.0) if self.single_lines else 22.0)

    @property
    def host_bottom(self) -> float:
        return self.host_top + self.level.rows * self.level.host_height

    # -- drawing ---------------------------------------------------------------------------------------------------

    def _frame(self, band: Band, cluster: Cluster, where: _Span) -> int:
        """Draw a frame around a cluster with a name or several elements, unless it is alone; return its box or -1."""
        levels = [level for level in band.levels if cluster.count(level)]
        has_hosts = any(rack.hosts for rack in cluster.racks)
        several = len(levels) > 1 or any(cluster.count(level) > 1 for level in levels) or self.level.is_named
        if not (cluster.name or (len(band.clusters) > 1 and several)):
            return -1
        edges = [self.row_y[level] + side * self.row_height[level] / 2 for level in levels for side in (-1, 1)]
        top = min([*edges, self.host_top] if has_hosts else edges) - _FRAME_PAD
        bottom = self.host_bottom + 8 if has_hosts else max(edges) + _FRAME_PAD
        title = cluster.name or span([self.parts.names[s] for s in cluster.switches(levels[0])] if levels else [])
        return self._frame_box(where, top, bottom, title)

    def _frame_box(self, where: _Span, top: float, bottom: float, title: str) -> int:
        y, height = (top + bottom) / 2, bottom - top
        return self.canvas.box(Box(x=where.middle, y=y, width=where.width, height=height, role=Role.FRAME, title=title))

    def _draw_row(self, row: _Row) -> None:
        height = self.row_height[row.level]
        for i, switch in enumerate(row.switches):
            x = row.where.left + (i + 0.5) * row.pitch
            widest = max(_LEVEL_WIDTH, _LINK_WIDTH * int(self.degree[switch]))
            width = min(row.pitch * 0.84, widest if height <= _LEVEL_HEIGHT else _UPRIGHT_WIDTH)
            self._draw_switch(switch, x, self.row_y[row.level], width, height)

    def _draw_switch(self, switch: int, x: float, y: float, width: float, height: float) -> None:
        self.painter.switch(switch, x, y, width, height)
        self.anchors.put([switch], x, y, width, height, self.painter.box[switch])

    def _draw_hosts(self, rack: Rack, where: _Span) -> None:
        level_of_detail, y = self.level, self.host_top
        if level_of_detail.detail is Detail.BLOCK:
            width = min(where.width, 60.0)
            block = self.painter.block(rack.hosts, where.middle, y, width, level_of_detail.host_height, whole=True)
            self.anchors.put(rack.hosts, where.middle, y, width, 0.0, block)
            return
        columns = math.ceil(len(rack.hosts) / level_of_detail.rows)
        widest = {Detail.INSIDE: level_of_detail.host_width, Detail.NAMED: 84.0, Detail.TALL: 24.0, Detail.CELLS: 14.0}
        pitch = min(where.width / columns, widest[level_of_detail.detail])
        if level_of_detail.detail is Detail.CELLS:
            size = (columns * pitch + 3, level_of_detail.rows * level_of_detail.host_height + 4)
            block = self.painter.block(rack.hosts, where.middle, y - 2, *size, whole=False)
            if not self.single_lines:
                self.anchors.put(rack.hosts, where.middle, y - 2, columns * pitch, 0.0, block)
        left = where.middle - (columns - 1) * pitch / 2
        for i, host in enumerate(rack.hosts):
            row, column = divmod(i, columns)
            self._draw_host(host, left + column * pitch, y + row * level_of_detail.host_height, pitch)

    def _draw_host(self, host: int, x: float, y: float, pitch: float) -> None:
        height = self.level.host_height
        if self.level.detail is Detail.INSIDE:
            inside.draw_server(self.painter, host, x, y, pitch - 16, height)
        elif self.level.detail is Detail.CELLS:
            self.painter.cells(host, x, y, pitch, height)
        else:
            self.painter.named(host, x, y, pitch - 3, height, upright=self.level.detail is Detail.TALL)
        if self.single_lines:
            self.anchors.put([host], x, y, pitch - 3, 0.0, self.painter.box[host])

    # -- appendix -----------------------------------------------------------------------------------------------------

    def _draw_apart(self) -> None:
        """Draw switches above the top tier, on the right, in the rows that they mirror."""
        rows = self.stack.apart
        if not rows:
            return
        widest = max(len(row) for row in rows.values())
        left = self.width + 40
        where = _Span(left=left, right=left + widest * (90.0 if widest <= 6 else 16.0))
        edges = [self.row_y[level] + side * self.row_height[level] / 2 for level in rows for side in (-1, 1)]
        top, bottom = min(edges) - 12, max(edges) + 12
        self._frame_box(where.shrunk(-8), top, bottom, "switches that lead to no host")
        self.canvas.text(where.middle, top - 10, "lead to no host", 10, style=TextStyle.FAINT)
        for level, switches in rows.items():
            self._draw_row(_Row(level=level, switches=switches, where=where))

    def _draw_cut_off(self) -> None:
        cut_off = self.stack.cut_off
        self.painter.cut_off(cut_off, 0.0, self.host_bottom + 76, self.width)
        for part in cut_off:
            box = self.canvas.boxes[self.painter.box[part]]
            self.anchors.put([part], box.x, box.y, box.width, box.height, self.painter.box[part])

    # -- names -----------------------------------------------------------------------------------------------------

    def _captions(self) -> None:
        """Draw the names of clusters and of unnamed hosts at the bottom; none of them if one does not fit."""
        band, spans = self.clusters[0]
        hosts = [
            span([self.parts.names[host] for rack in cluster.racks for host in rack.hosts]) for cluster in band.clusters
        ]
        y = self.host_bottom + 20
        for texts, style in (([c.name for c in band.clusters], TextStyle.LABEL), (hosts, TextStyle.FAINT)):
            unneeded = not any(texts) or (texts is hosts and (self.level.is_named or len(hosts) == 1))
            if not unneeded and all(text_width(t, 10) <= s.width for t, s in zip(texts, spans, strict=True)):
                for text, where in zip(texts, spans, strict=True):
                    self.canvas.text(where.middle, y, text, 10, style=style)
                y += 14

    def _row_labels(self) -> None:
        for band in self.stack.bands:
            for level in band.levels:
                row = sorted(switch for cluster in band.clusters for switch in cluster.switches(level))
                self._row_label(row, self.row_y[level])
        self._row_label(self._every_host(), (self.host_top + self.host_bottom) / 2)

    def _row_label(self, row: list[int], y: float) -> None:
        if row:
            names = fit(span([self.parts.names[part] for part in row]), 11, 200)
            self.canvas.text(-_LABEL_GAP, y - 7, names, 11, anchor="end")
            self.canvas.text(-_LABEL_GAP, y + 7, _contents_of(self.parts, row), 10, style=TextStyle.FAINT, anchor="end")


def _contents_of(parts: Parts, row: list[int]) -> str:
    """Return `32 × QM9700`, or the number of switches of different models."""
    if not parts.is_switch[row[0]]:
        return count(len(row), host_noun(parts))
    models = {parts.fabric.find_node(parts.names[switch]).model for switch in row}
    return f"{len(row):,} × {models.pop()}" if len(models) == 1 and "" not in models else count(len(row), "switch")
