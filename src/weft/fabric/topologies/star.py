r"""Star: all servers on one switch.

        leaf1
     / / | \ \ \
    h1 h2 h3 ...

h1 is in port 1, h2 in port 2, and so on; a server with more rails has as many ports in a row.
"""

from __future__ import annotations

from typing import Annotated, Unpack

import numpy as np

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.topologies.builder import Builder, ServerName, Switching
from weft.fabric.topologies.registry import topology


@topology("star", example="star:hosts=16")
def star(
    hosts: Annotated[int, "servers"],
    *,
    server: ServerName = "host",
    **switching: Unpack[Switching],
) -> Fabric:
    """Connect all servers to one switch."""
    builder = Builder("star", server=server, **switching)
    needed = hosts * builder.rails
    if needed > builder.radix:
        raise ConfigError(
            f"star: hosts={hosts} need {needed:,} ports, {builder.switch.name} has {builder.radix}: "
            f"use fat-tree:hosts={hosts}, or fewer hosts"
        )
    adapters = builder.add_hosts(hosts)
    builder.plug_hosts(adapters.ravel(), builder.add_switches(["leaf1"]), np.arange(1, needed + 1))
    return builder.build()
