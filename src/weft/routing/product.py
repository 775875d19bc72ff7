"""A torus, a mesh or a HyperX, found from the cabling alone: the switches as a product of rows, rings and full meshes.

A subnet manager sees switches and cables, no dimensions. The graph of a grid is the Cartesian product of its
dimensions, and a connected graph has one factorisation into primes (Sabidussi 1960, Vizing 1963). So the factors are
the dimensions, and a switch's place in one is the part that it is left in when the cables of that dimension are pulled.
A ring of four is the product of two pairs, and found as such.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.routing.graph import SwitchGraph
from weft.routing.kernels.product import FULL, RING, ROW, components_without, parallel_classes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Neighbours:
    """The switch graph with parallel links as one edge; edge e has `links[first_link[e] : first_link[e + 1]]`."""

    first: NDArray[np.int32]  # [switch + 1] -> first edge
    near: NDArray[np.int32]  # [edge]
    far: NDArray[np.int32]  # [edge]
    back: NDArray[np.int32]  # [edge] -> the edge in the other direction
    first_link: NDArray[np.int32]  # [edge + 1]
    links: NDArray[np.int32]  # edges of the switch graph


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dimension:
    kind: int  # ROW, RING or FULL
    size: int
    place: NDArray[np.int32]  # [switch] -> coordinate; in a row or a ring neighbours differ by one

    def __str__(self) -> str:
        return {ROW: "row", RING: "ring", FULL: "full mesh"}[self.kind] + f" of {self.size}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """Dimensions such that every switch has a place of its own, and a link to each that is next in one dimension."""

    dimensions: tuple[Dimension, ...]
    along: NDArray[np.int32]  # [edge of the neighbours] -> dimension that it points along


class NotAProduct(Exception):
    """What was found instead."""


def find_neighbours(graph: SwitchGraph) -> Neighbours:
    n = graph.n_switches
    links = np.lexsort((graph.port, graph.far, graph.near)).astype(np.int32)
    pairs, first_link = np.unique(graph.near[links].astype(np.int64) * n + graph.far[links], return_index=True)
    near, far = (ends.astype(np.int32) for ends in np.divmod(pairs, n))
    return Neighbours(
        first=np.searchsorted(near, np.arange(n + 1)).astype(np.int32),
        near=near,
        far=far,
        back=np.searchsorted(pairs, far.astype(np.int64) * n + near).astype(np.int32),
        first_link=np.append(first_link, len(links)).astype(np.int32),
        links=links,
    )


def factorise(net: Neighbours) -> Product:
    """The dimensions of a connected graph, or NotAProduct."""
    n = len(net.first) - 1
    if n < 2:
        return Product(dimensions=(), along=np.empty(0, np.int32))
    classes, along = np.unique(parallel_classes(net.first, net.far, net.back), return_inverse=True)
    if 2 ** len(classes) > n:
        raise NotAProduct("its switches do not form a grid")
    dimensions = []
    for which in range(len(classes)):
        place = components_without(net.first, net.far, along, which)
        dimensions.append(_dimension(net, along == which, place))
    grid = Product(dimensions=tuple(dimensions), along=along.astype(np.int32))
    verify(net, grid)
    return grid


def _dimension(net: Neighbours, mine: NDArray[np.bool_], place: NDArray[np.int32]) -> Dimension:
    """Which kind of factor its places and the links between them make."""
    size = int(place.max()) + 1
    steps = np.unique(place[net.near[mine]].astype(np.int64) * size + place[net.far[mine]])
    here, there = np.divmod(steps, size)
    degree = np.bincount(here, minlength=size)
    if (here == there).any() or size < 2:
        raise NotAProduct("its switches do not form a grid")
    if (degree == size - 1).all():
        return Dimension(kind=FULL, size=size, place=place)
    if degree.max() > 2:
        raise NotAProduct(f"it has a dimension of {size} places that is neither a row, nor a ring, nor a full mesh")
    first = np.searchsorted(here, np.arange(size + 1))
    ends = np.flatnonzero(degree == 1)
    order = [int(ends[0]) if len(ends) else 0]
    while len(order) < size:  # connected, so this comes to all
        next_to = there[first[order[-1]] : first[order[-1] + 1]].tolist()
        order.append(next(place for place in next_to if place not in order[-2:]))
    renamed = np.empty(size, np.int32)
    renamed[order] = np.arange(size, dtype=np.int32)
    return Dimension(kind=ROW if len(ends) else RING, size=size, place=renamed[place])


def verify(net: Neighbours, grid: Product) -> None:
    """One switch at each place, and for each all the neighbours that a grid has: then it is the product."""
    n, sizes = len(net.first) - 1, [d.size for d in grid.dimensions]
    number = np.zeros(n, np.int64)
    for d in grid.dimensions:
        number = number * d.size + d.place
    if math.prod(sizes) != n or len(np.unique(number)) != n:
        raise NotAProduct(f"{n} switches do not fill a grid of {'x'.join(map(str, sizes))}")
    for which, d in enumerate(grid.dimensions):
        near, far = net.near[grid.along == which], net.far[grid.along == which]
        if any((other.place[near] != other.place[far]).any() for other in grid.dimensions if other is not d):
            raise NotAProduct("it has links that lead along two dimensions at once")
        due = np.full(n, d.size - 1 if d.kind == FULL else 2)
        if d.kind == ROW:
            due[(d.place == 0) | (d.place == d.size - 1)] = 1
        if (np.bincount(near, minlength=n) != due).any():
            raise NotAProduct("some switches lack neighbours that a grid would give them")
