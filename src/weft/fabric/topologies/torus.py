"""Torus and mesh of any dimension: each switch to its neighbours, in a torus also the last to the first.

    sw1 --- sw2 --- sw3        mesh:2x3 is this; torus:2x3 also has the cables sw3 - sw1 and sw6 - sw4
     |       |       |
    sw4 --- sw5 --- sw6

Switches count up with the last dimension fastest. Ports are the same on all of them, whether plugged in or not: 1
leads ahead (+) in the first dimension and 2 back (-), 3 and 4 in the second, ...; the hosts come after. A torus of
size 2 has one cable between its two switches, as a mesh has, not two in parallel.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from weft.fabric.model import Fabric
from weft.fabric.topologies.builder import ROW_M, Builder, Dims, HostsPerSwitch, ServerName, Switching, number
from weft.fabric.topologies.registry import topology


@topology("torus", example="torus:4x4x4,hosts=2")
def torus(
    dims: Dims,
    *,
    hosts: HostsPerSwitch = 1,
    server: ServerName = "host",
    **switching: Unpack[Switching],
) -> Fabric:
    """Connect a grid of switches whose rows close to rings."""
    return _build(Builder("torus", server=server, **switching), dims, hosts, wrap=True)


@topology("mesh", example="mesh:4x4")
def mesh(
    dims: Dims,
    *,
    hosts: HostsPerSwitch = 1,
    server: ServerName = "host",
    **switching: Unpack[Switching],
) -> Fabric:
    """Connect a grid of switches."""
    return _build(Builder("mesh", server=server, **switching), dims, hosts, wrap=False)


def _build(builder: Builder, dims: tuple[int, ...], hosts: int, *, wrap: bool) -> Fabric:
    grid_ports, host_ports = 2 * len(dims), hosts * builder.rails
    builder.check_ports(grid_ports + host_ports, f"{grid_ports} for {len(dims)} dimensions, {host_ports} for hosts")
    builder.check_size(math.prod(dims), math.prod(dims) * hosts)
    switches = builder.add_leaves(number("sw", math.prod(dims)), hosts, first_port=grid_ports + 1)
    index = np.arange(len(switches))
    for axis, size in enumerate(dims):
        stride = math.prod(dims[axis + 1 :])
        place = index // stride % size
        closes = wrap and size > 2
        near = index if closes else index[place < size - 1]
        ahead = np.where(place < size - 1, index + stride, index - (size - 1) * stride)[near]
        builder.connect(switches[near], 2 * axis + 1, switches[ahead], 2 * axis + 2, ROW_M)
    return builder.build()
