"""Dimension order: correct one coordinate after the other, always in the same order, by the shortest path.

Dally and Seitz, "Deadlock-free message routing in multiprocessor interconnection networks", 1987. It serves every
torus, mesh and HyperX (Ahn et al. 2009), of any dimension, with parallel links; `product` detects it.

    0 - 1 - 2 - 3 - 4 - 5      Rows and full meshes need one lane. A ring of five or more could deadlock. There a
    |                   |      path that crosses the dateline, the link from 5 to 0, takes lane 1 all along the ring,
    '----- dateline ----'      the others lane 0. So lane 0 does not use the dateline, nor lane 1 the link opposite, as
                               no path goes more than half way round: neither forms a cycle.

An SL2VL table knows the ports and the service level of a packet, not its path. So bit i of the service level tells
whether the path crosses the dateline of ring i, and a port along ring i takes bit i for the lane, as OpenSM's
torus-2QoS does: 2 lanes and 2**rings service levels.

Guarantee: shortest paths, no deadlock, on one lane, or on two where there are rings of five or more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric.tables import SERVICE_LEVELS, Tables
from weft.routing.engine import CannotRoute, Options, Subnet, require_vls, turned
from weft.routing.islands import require_one_island
from weft.routing.kernels.product import BACK, FULL, ON, RING, route_by_dimensions
from weft.routing.layers import fill_sl2vl
from weft.routing.product import Neighbours, NotAProduct, Product, factorise, find_neighbours

MOST_RINGS = 4  # a bit of the service level for each


class DimensionOrder:
    name = "dimension-order"
    guarantee = "shortest paths, no deadlock; two lanes where there are rings of five or more, else one"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        require_one_island(subnet)
        graph, tables = subnet.graph, subnet.new_tables()
        net = find_neighbours(graph)
        grid = _find_grid(subnet, net)
        rings = [i for i, d in enumerate(grid.dimensions) if d.kind == RING]
        _check_vls(subnet, options, len(rings))
        first_step, step = _steps(net, grid)
        column = np.full(tables.lft.shape[::-1], tables.no_route, tables.lft.dtype)
        path_sl = np.zeros(column.shape if rings else (0, 0), np.uint8)
        route_by_dimensions(
            np.array([d.kind for d in grid.dimensions], np.int32),
            np.array([d.size for d in grid.dimensions], np.int32),
            np.array([d.place for d in grid.dimensions], np.int32).reshape(-1, max(graph.n_switches, 1)).T.copy(),
            first_step,
            step,
            net.first_link,
            net.links,
            graph.port,
            graph.lid,
            graph.at,
            graph.out,
            graph.is_host,
            subnet.previous_by_lid,
            column,
            path_sl,
        )
        tables.lft = turned(column)
        if rings:
            tables.path_sl = turned(path_sl)
            _set_vls(subnet, tables, net, grid, rings)
        return tables


def _find_grid(subnet: Subnet, net: Neighbours) -> Product:
    try:
        return factorise(net)
    except NotAProduct as error:
        raise CannotRoute(
            f"dimension-order routing needs a torus, a mesh or a HyperX, and {subnet.fabric.spec} is not: {error}"
            f"{_odd_switches(subnet, net)}"
            '\n  Route with engine="dfsssp", or "up-down".'
        ) from None


def _odd_switches(subnet: Subnet, net: Neighbours) -> str:
    """Describe the few switches with fewer neighbours than all others, as where a torus has lost a cable."""
    degree = np.diff(net.first)
    usual = int(np.bincount(degree).argmax())
    odd = np.flatnonzero(degree < usual)
    if not 0 < len(odd) <= 4:
        return ""
    listed = ", ".join(f"{subnet.switch_name(int(s))} has {degree[s]}" for s in odd)
    return f"; {listed}, all others have {usual} neighbours"


def _check_vls(subnet: Subnet, options: Options, rings: int) -> None:
    if rings > MOST_RINGS:
        raise CannotRoute(
            f"dimension-order routing of {subnet.fabric.spec} needs a bit of the service level for each of its {rings} "
            f'rings, and there are {MOST_RINGS}\n  Route with engine="dfsssp", or "up-down".'
        )
    require_vls(subnet, options, DimensionOrder.name, 2 if rings else 1)


def _steps(net: Neighbours, grid: Product) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the first column of each dimension, and [switch, column] -> edge, -1 where none leads on."""
    widths = [d.size if d.kind == FULL else 2 for d in grid.dimensions]
    first = np.concatenate(([0], np.cumsum(widths, dtype=np.int64))).astype(np.int32)
    step = np.full((len(net.first) - 1, first[-1]), -1, np.int32)
    for number, d in enumerate(grid.dimensions):
        edges = np.flatnonzero(grid.along == number)
        near, far = d.place[net.near[edges]], d.place[net.far[edges]]
        way = far if d.kind == FULL else np.where((far - near) % d.size == 1, ON, BACK)
        step[net.near[edges], first[number] + way] = edges
    return first, step


def _set_vls(subnet: Subnet, tables: Tables, net: Neighbours, grid: Product, rings: list[int]) -> None:
    graph, fabric = subnet.graph, subnet.fabric
    out_kind = np.zeros(len(fabric.ports), np.intp)  # [port slot] -> 1 + ring that it leads along
    along = np.empty(len(graph.far), np.int32)
    along[net.links] = np.repeat(grid.along, np.diff(net.first_link))
    slots = fabric.first_port[graph.switches[graph.near]] + graph.port
    vls = np.zeros((1, 1 + len(rings), SERVICE_LEVELS), np.uint8)
    for bit, ring in enumerate(rings):
        out_kind[slots[along == ring]] = 1 + bit
        vls[0, 1 + bit] = np.arange(SERVICE_LEVELS) >> bit & 1
    fill_sl2vl(fabric, tables, np.zeros(len(fabric.ports), np.intp), out_kind, vls)
