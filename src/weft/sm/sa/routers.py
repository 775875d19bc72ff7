"""Find the routers that lead to other subnets, from the ports of each router as the last sweep read them.

The port that a sweep reached is in this subnet; the others are in adjacent ones, and their PortInfo has the prefix that
the manager of each gave them. Several routers to a subnet share its ports: `choose_router` picks one for each, of the
routers in the order of their GUIDs.
"""

from __future__ import annotations

from weft.fabric.subnets import choose_router
from weft.sm.discovery.adjacent import adjacent_prefixes
from weft.sm.sa.context import Context

_GUID = (1 << 64) - 1


def routers_to(sa: Context, dgid: int) -> tuple[int, ...]:
    """Return the ports of the routers to a GID of another subnet, the first choice first."""
    ports = sa.once(_by_prefix).get(dgid >> 64, ())
    first = choose_router(dgid & _GUID, len(ports)) if ports else 0
    return ports[first:] + ports[:first]


def _by_prefix(sa: Context) -> dict[int, tuple[int, ...]]:
    return adjacent_prefixes(sa.view)
