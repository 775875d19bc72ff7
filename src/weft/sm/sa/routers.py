"""Find the routers that lead to other subnets, from the ports of each router as the last sweep read them.

The port that a sweep reached is in this subnet; the others are in adjacent ones, and their PortInfo has the prefix that
the manager of each gave them. Several routers to a subnet share its ports: `choose_router` picks one for each, of the
routers in the order of their GUIDs.
"""

from __future__ import annotations

from weft.fabric.subnets import choose_router
from weft.ids import Gid
from weft.sm.discovery.adjacent import adjacent_prefixes
from weft.sm.sa.context import Context

_GUID = (1 << 64) - 1


def routers_to(sa: Context, dgid: int) -> tuple[int, ...]:
    """Return the ports of the routers to a GID of another subnet, the first choice first.

    A GID with a floating LID that routers have enabled is reached by those alone, first by that of the tables.
    """
    gid = Gid(dgid)
    if flid := flid_to(sa, dgid):
        assert sa.state.flids is not None
        return sa.state.flids.there[flid]
    ports = sa.once(routers_by_prefix).get(gid.subnet_prefix, ())
    first = choose_router(dgid & _GUID, len(ports)) if ports else 0
    return ports[first:] + ports[:first]


def flid_to(sa: Context, dgid: int) -> int:
    """Return the floating LID that leads to a GID of another subnet; 0 if routers have enabled none."""
    flid = Gid(dgid).flid
    return flid if sa.state.flids is not None and flid in sa.state.flids.there else 0


def routers_by_prefix(sa: Context) -> dict[int, tuple[int, ...]]:
    """Return the prefixes of adjacent subnets, with the ports of the routers that lead there."""
    return adjacent_prefixes(sa.view)
