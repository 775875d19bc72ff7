"""Detect a torus, a mesh or a HyperX from the cabling: the switches as a product of rows, rings and full meshes.

A subnet manager sees switches and cables, no dimensions. The graph of a grid is the Cartesian product of its
dimensions, and a connected graph has a unique factorisation into primes (Sabidussi 1960, Vizing 1963). So the factors
are the dimensions, and the coordinate of a switch in one is the component that it is in when the cables of that
dimension are removed. A ring of four is the product of two pairs, and detected as such.
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
    """The switch graph with parallel links merged; edge e has the links `links[first_link[e] : first_link[e + 1]]`."""

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
    """The dimensions of a grid: every switch has its own coordinates, and a link to each neighbour in one dimension."""

    dimensions: tuple[Dimension, ...]
    along: NDArray[np.int32]  # [edge of the neighbours] -> dimension that it points along


class NotAProduct(Exception):
    """An error for a graph that is no grid: the reason."""


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
    """Return the dimensions of a connected graph, or raise NotAProduct."""
    n = len(net.first) - 1
    if n < 2:
        return Product(dimensions=(), along=np.empty(0, np.int32))
    classes, along = np.unique(parallel_classes(net.first, net.far, net.back), return_inverse=True)
    if 2 ** len(classes) > n:
        raise NotAProduct("its switches do not form a grid")
    dimensions = []
    for number in range(len(classes)):
        place = components_without(net.first, net.far, along, number)
        dimensions.append(_dimension(net, along == number, place))
    grid = Product(dimensions=tuple(dimensions), along=along.astype(np.int32))
    verify(net, grid)
    return grid


def _dimension(net: Neighbours, mine: NDArray[np.bool_], place: NDArray[np.int32]) -> Dimension:
    """Return the kind of factor that these coordinates and the links between them form."""
    size = int(place.max()) + 1
    steps = np.unique(place[net.near[mine]].astype(np.int64) * size + place[net.far[mine]])
    near, far = np.divmod(steps, size)
    degree = np.bincount(near, minlength=size)
    if (near == far).any() or size < 2:
        raise NotAProduct("its switches do not form a grid")
    if (degree == size - 1).all():
        return Dimension(kind=FULL, size=size, place=place)
    if degree.max() > 2:
        raise NotAProduct(f"it has a dimension of {size} places that is neither a row, nor a ring, nor a full mesh")
    first = np.searchsorted(near, np.arange(size + 1))
    ends = np.flatnonzero(degree == 1)
    order = [int(ends[0]) if len(ends) else 0]
    while len(order) < size:  # connected, so this reaches all
        next_to = far[first[order[-1]] : first[order[-1] + 1]].tolist()
        order.append(next(place for place in next_to if place not in order[-2:]))
    renamed = np.empty(size, np.int32)
    renamed[order] = np.arange(size, dtype=np.int32)
    return Dimension(kind=ROW if len(ends) else RING, size=size, place=renamed[place])


def verify(net: Neighbours, grid: Product) -> None:
    """Raise NotAProduct unless there is one switch at each position, with all the neighbours of a grid."""
    n, sizes = len(net.first) - 1, [d.size for d in grid.dimensions]
    number = np.zeros(n, np.int64)
    for d in grid.dimensions:
        number = number * d.size + d.place
    if math.prod(sizes) != n or len(np.unique(number)) != n:
        raise NotAProduct(f"{n} switches do not fill a grid of {'x'.join(map(str, sizes))}")
    for axis, d in enumerate(grid.dimensions):
        near, far = net.near[grid.along == axis], net.far[grid.along == axis]
        if any((other.place[near] != other.place[far]).any() for other in grid.dimensions if other is not d):
            raise NotAProduct("it has links that lead along two dimensions at once")
        expected = np.full(n, d.size - 1 if d.kind == FULL else 2)
        if d.kind == ROW:
            expected[(d.place == 0) | (d.place == d.size - 1)] = 1
        if (np.bincount(near, minlength=n) != expected).any():
            raise NotAProduct("some switches lack neighbours that a grid would give them")
