"""Complete search for colourings of small graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Vertex = TypeVar("Vertex")


def find_colouring(neighbours: Mapping[Vertex, set[Vertex]], n_colours: int) -> dict[Vertex, int] | None:
    """Return a colour for each vertex so that neighbours differ; None if a complete search finds none."""
    colour: dict[Vertex, int] = {}

    def extend() -> bool:
        if len(colour) == len(neighbours):
            return True
        used = {v: {colour[o] for o in neighbours[v] if o in colour} for v in neighbours if v not in colour}
        vertex = max(used, key=lambda v: (len(used[v]), len(neighbours[v])))
        for choice in range(min(n_colours, max(colour.values(), default=-1) + 2)):  # unused colours are interchangeable
            if choice not in used[vertex]:
                colour[vertex] = choice
                if extend():
                    return True
                del colour[vertex]
        return False

    return colour if extend() else None
