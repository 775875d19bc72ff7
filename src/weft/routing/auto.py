"""Auto: the engine that the cabling asks for, with the proof that its tables hold.

Tried in turn: dimension-order (is it a grid?), dragonfly (is it one?), fat-tree (is there something to climb?), dfsssp
(anything, if the ports have lanes enough), up-down (anything at all). An engine that cannot serve says why; tables that
the check finds incomplete or able to deadlock are thrown away, and the reason is in the notes. So what comes back is
complete and free of deadlock, always.
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
    """Name, tables and why."""
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
