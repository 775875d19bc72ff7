"""Auto: pick the engine that suits the cabling, and check its tables.

Engines are tried in this order: dimension-order (for a grid), dragonfly, fat-tree (for a tree), dfsssp (any fabric,
if the
ports have enough lanes), up-down (any fabric). An engine that cannot route the fabric gives a reason; tables that the
check
finds incomplete or prone to deadlock are discarded, with the reason in the notes. The result is therefore always
complete and
free of deadlock.
"""

from __future__ import annotations

from weft.errors import SimulationBug
from weft.fabric.tables import Tables
from weft.routing import ENGINES
from weft.routing.check import check
from weft.routing.engine import CannotRoute, Options, Subnet
from weft.routing.islands import require_one_island

ORDER = ("dimension-order", "dragonfly", "fat-tree", "dfsssp", "up-down")


def pick(subnet: Subnet, options: Options) -> tuple[str, Tables, tuple[str, ...]]:
    """Return the name of the engine, its tables, and the reasons."""
    require_one_island(subnet)
    notes: list[str] = []
    for name in ORDER:
        try:
            tables = ENGINES[name].route(subnet, options)
        except CannotRoute as reason:
            notes.append(f"not {name}: {str(reason).splitlines()[0]}")
            continue
        verdict = check(subnet.fabric.configured(tables))
        if verdict.ok:
            return name, tables, (*notes, f"{name}: {ENGINES[name].guarantee}")
        notes.append(f"not {name}: {verdict.explain().splitlines()[0]}")
    raise SimulationBug(f"no engine routes {subnet.fabric.spec}: {'; '.join(notes)}")
