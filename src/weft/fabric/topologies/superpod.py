r"""SuperPOD: scalable units of servers, rail-optimised (NVIDIA DGX SuperPOD reference architectures).

    spine1     spine2   ...              every leaf plugs into every spine
      |   \   /   |
      |   /   \   |
    leaf1      leaf2    ...    leaf8     one leaf for each rail; unit 2 has leaf9 to leaf16, and so on
      |          |               |
    rail 1     rail 2   ...    rail 8    server i of a unit is in port i of all its leaves

A unit has as many servers as half the ports of a leaf: 32 on QM9700 (DGX H100, B200), 20 on QM8700 (DGX A100). The
other half are uplinks, all of them cabled even where servers are missing. So the number of spines is a divisor of
that half: 1, 2, 3, 4, 8 units of 32 have 4, 8, 16, 16, 32. Where spines reach no further, each rail gets a group of
spines of its own (more than one, if it has more leaves than half the ports of a spine), and cores join the rails.
"""

from __future__ import annotations

from typing import Annotated, Unpack

import numpy as np

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.topologies.builder import Builder, ServerName, Switching, number
from weft.fabric.topologies.fat_tree import add_spines, add_spines_and_cores
from weft.fabric.topologies.registry import topology


@topology("superpod", example="superpod:su=2,server=dgx-a100")
def superpod(
    su: Annotated[int, "scalable units"],
    *,
    server: ServerName = "dgx-h100",
    servers: Annotated[int | None, "servers in all, if the last unit is not full"] = None,
    **switching: Unpack[Switching],
) -> Fabric:
    """Scalable units of servers with one leaf per rail, joined without oversubscription."""
    builder = Builder("superpod", server=server, **switching)
    half, rails = builder.radix // 2, builder.rails
    most = half * (builder.radix // rails)
    if su > most:
        raise ConfigError(
            f"superpod: su={su} cannot be joined: with {rails} rails, cores of {builder.radix} ports join {most} units"
        )
    builder.check_size(su * rails, su * half)
    servers = _check_servers(su, half, servers)

    groups = builder.add_groups(number("su", su))
    unit, place = np.divmod(np.arange(servers), half)
    adapters = builder.add_hosts(servers, group=groups[unit])
    leaves = builder.add_switches(number("leaf", su * rails), group=np.repeat(groups, rails)).reshape(su, rails)
    builder.plug_hosts(adapters, leaves[unit], place[:, None] + 1)
    if leaves.size <= builder.radix:
        add_spines(builder, leaves.ravel(), half + 1, half)
    else:
        blocks = -(-su // half)
        pods = [pod for rail in leaves.T for pod in np.array_split(rail, blocks)]
        add_spines_and_cores(builder, pods, half + 1, half)
    return builder.build()


def _check_servers(su: int, per_unit: int, servers: int | None) -> int:
    fewest, most = (su - 1) * per_unit + 1, su * per_unit
    if servers is None:
        return most
    if not fewest <= servers <= most:
        raise ConfigError(
            f"superpod: servers={servers} do not fill su={su}: units hold {per_unit} each, and only the last may have "
            f"fewer, so {fewest} to {most}"
        )
    return servers
