"""Layouts: the kind of picture follows from the fabric.

A grid if the spec gives its sizes; a ring if links join groups directly, or if all switches have hosts and no tier is
above them; else tiers.
"""

from __future__ import annotations

from weft.draw.layout.grid import Grid, shape_of
from weft.draw.layout.ring import Ring
from weft.draw.layout.tiers import Tiers
from weft.draw.parts import Parts
from weft.draw.scene import Canvas
from weft.draw.wires import Wires

__all__: list[str] = []


def draw_layout(canvas: Canvas, wires: Wires) -> None:
    shape = shape_of(wires.parts)
    if shape is not None and (len(shape) > 1 or wires.parts.fabric.spec.startswith("mesh")):
        Grid(canvas, wires, shape).draw()
    elif _is_ring(wires.parts):
        Ring(canvas, wires).draw()
    else:
        Tiers(canvas, wires).draw()


def _is_ring(parts: Parts) -> bool:
    """Return whether links join groups or, without groups, all switches are in one level."""
    a, b = (end[parts.switch_links] for end in parts.ends)
    grouped = (parts.group[a] >= 0) & (parts.group[b] >= 0)
    if grouped.any():
        return bool((parts.group[a] != parts.group[b])[grouped].any())
    switches = parts.level[parts.is_switch]
    return len(a) > 0 and len(switches) > 2 and bool((switches <= 1).all())
