r"""Star: all servers on one switch.

        leaf1
     / / | \ \ \
    h1 h2 h3 ...

h1 is in port 1, h2 in port 2, and so on; a server with more rails has as many ports in a row.

A director is one box with a Clos of two levels inside, and a subnet manager sees its chips: dir1-L01-U2 is the second
chip of leaf board 1, dir1-S03-U1 that of spine board 3. Leaf boards are filled in order, and only those in use are
bought; every spine board is, since each leaf chip has a link to each.
"""

from __future__ import annotations

from typing import Annotated, Unpack

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.build import default_guids
from weft.fabric.kinds import Medium, NodeKind
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
    builder = Builder("star", server=server, takes_director=True, **switching)
    director = builder.switch.chassis
    if director and switching.get("radix"):
        raise ConfigError(f"star: radix is not for the director {builder.switch.name}; leave it out")
    needed, ports = hosts * builder.rails, builder.switch.box_ports if director else builder.radix
    if needed > ports:
        raise ConfigError(
            f"star: hosts={hosts} need {needed:,} ports, {builder.switch.name} has {ports}: "
            f"use fat-tree:hosts={hosts}, or fewer hosts"
        )
    adapters = builder.add_hosts(hosts)
    if director:
        _plug_director(builder, director, adapters.ravel())
        return builder.build()
    builder.plug_hosts(adapters.ravel(), builder.add_switches(["leaf1"]), np.arange(1, needed + 1))
    return builder.build()


def _plug_director(builder: Builder, chassis: catalog.Chassis, adapters: NDArray[np.int32]) -> None:
    """Add the chips of a director, the links between its boards, and a cable from each adapter, in order."""
    down = builder.radix // 2
    boards, parallel = -(-len(adapters) // (down * chassis.leaf_chips)), down // chassis.spine_boards
    system_guid = int(default_guids(builder.n_nodes + 1)[-1])  # of its first chip
    places = [f"L{board:02}/U{chip + 1}" for board in range(1, boards + 1) for chip in range(chassis.leaf_chips)]
    leaves = _add_chips(builder, places, system_guid)
    spines = _add_chips(builder, [f"S{board:02}/U1" for board in range(1, chassis.spine_boards + 1)], system_guid)
    leaf, spine, link = np.ogrid[: len(leaves), : len(spines), :parallel]
    up, back = down + 1 + spine * parallel + link, 1 + leaf * parallel + link
    builder.add_links(leaves[leaf], up, spines[spine], back, builder.line, medium=Medium.BOARD)
    chip, port = np.divmod(np.arange(len(adapters)), down)
    builder.plug_hosts(adapters, leaves[chip], port + 1)


def _add_chips(builder: Builder, places: list[str], system_guid: int) -> NDArray[np.int32]:
    """Add chips of the director dir1 with the names and descriptions that ibnetdiscover prints."""
    switch = builder.switch
    return builder.add_nodes(
        NodeKind.SWITCH,
        [f"dir1-{place.replace('/', '-')}" for place in places],
        descriptions=[f"MF0;dir1:M{switch.name}/{place}" for place in places],
        n_ports=switch.ports,
        model=switch.name,
        vendor_id=switch.vendor_id,
        device_id=switch.device_id,
        system_guid=system_guid,
    )
