"""A topology: a ring of switches.

    sw1 --- sw2 --- sw3 --- ... --- sw1        port 1 leads on, port 2 back, hosts are from port 3 up

The parameters are what a spec can say, `ring:8,hosts=2`; their annotations are what `weft topologies ring` prints.
"""

from __future__ import annotations

from typing import Annotated, Unpack

import numpy as np

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.topologies.builder import ROW_M, Builder, HostsPerSwitch, Switching, number
from weft.fabric.topologies.registry import topology


@topology("ring", example="ring:8,hosts=2")
def ring(
    switches: Annotated[int, "switches in the ring"], *, hosts: HostsPerSwitch = 1, **switching: Unpack[Switching]
) -> Fabric:
    """A ring of switches with hosts on each."""
    if switches < 3:
        raise ConfigError(f"ring: switches={switches} do not close a ring: give 3 or more")
    builder = Builder("ring", server="host", **switching)
    builder.check_ports(2 + hosts, f"2 for the ring, {hosts} for hosts")
    row = builder.add_leaves(number("sw", switches), hosts, first_port=3)
    builder.connect(row, 1, np.roll(row, -1), 2, ROW_M)
    return builder.build()


ENTRY_POINTS = {"weft.topologies": {"ring": ring}}  # for weft --plugin ring.py; a package has them in pyproject.toml
