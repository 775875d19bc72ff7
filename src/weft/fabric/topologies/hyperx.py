"""HyperX: a grid of switches, all-to-all along every dimension (Ahn, Binkert, Davis, McLaren, Schreiber 2009).

     .-------------.
    sw1 --- sw2 --- sw3          hyperx:2x3: a switch is one cable from all that differ from it in one coordinate;
     |       |       |           size 2 in every dimension is a hypercube, one dimension a full mesh
    sw4 --- sw5 --- sw6
     '-------------'

Switches count up with the last dimension fastest. Ports: the hosts first, then for each dimension those to the other
switches of the row, in their order.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from weft.fabric.model import Fabric
from weft.fabric.topologies.builder import ROW_M, Builder, Dims, HostsPerSwitch, ServerName, Switching, number
from weft.fabric.topologies.registry import topology


@topology("hyperx", example="hyperx:4x4,hosts=4")
def hyperx(
    dims: Dims,
    *,
    hosts: HostsPerSwitch = 1,
    server: ServerName = "host",
    **switching: Unpack[Switching],
) -> Fabric:
    """Connect a grid of switches, all-to-all along every dimension."""
    builder = Builder("hyperx", server=server, **switching)
    host_ports, grid_ports = hosts * builder.rails, sum(dims) - len(dims)
    builder.check_ports(host_ports + grid_ports, f"{host_ports} for hosts, {grid_ports} to switches")
    builder.check_size(math.prod(dims), math.prod(dims) * hosts)
    switches = builder.add_leaves(number("sw", math.prod(dims)), hosts)
    index = np.arange(len(switches))
    first_port = host_ports + 1
    for axis, size in enumerate(dims):
        stride = math.prod(dims[axis + 1 :])
        begins = index[index // stride % size == 0]
        rows = begins[:, None] + stride * np.arange(size)
        builder.connect_all(switches[rows], first_port, ROW_M)
        first_port += size - 1
    return builder.build()
