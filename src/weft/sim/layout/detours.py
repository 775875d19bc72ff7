"""The intermediate switches of non-minimal paths, as the packet engine sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.forwarding import DATA_VLS
from weft.routing.detours import Detour, find_detours
from weft.routing.engine import Options as RoutingOptions
from weft.routing.graph import switch_graph
from weft.sim.layout.wiring import Wiring
from weft.wire.port_info import PortInfo


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedDetours:
    lid: NDArray[np.int32]  # LIDs of the intermediate switches
    group: NDArray[np.int32]  # [switch]
    lid_group: NDArray[np.int32]  # [lid] -> group of its switch
    switch_first: NDArray[np.int64]  # [switch] -> its port 0 in the wiring
    path_sl: NDArray[np.uint8]  # [switch, lid]
    ends_in_group: bool = False
    in_first_group: bool = False


NO_DETOURS = PlannedDetours(
    lid=np.zeros(1, np.int32),
    group=np.zeros(1, np.int32),
    lid_group=np.zeros(1, np.int32),
    switch_first=np.zeros(1, np.int64),
    path_sl=np.zeros((1, 1), np.uint8),
)


def check_lanes(wiring: Wiring, detour: Detour, vls: int) -> None:
    """Raise ConfigError if the ports have too few lanes for each part of a path to use this many."""
    fabric, tables = wiring.fabric, wiring.fabric.tables
    lanes = RoutingOptions().max_vls
    if tables.runs:
        plugged = wiring.slot[wiring.ports.peer >= 0]
        lanes = int(np.array(DATA_VLS)[tables.of_ports(PortInfo.operational_vls)[plugged]].min())
    if (needed := vls * detour.parts) > lanes:
        raise ConfigError(
            f"--paths {detour.name.lower()} on {fabric.spec} needs {needed} VLs, {vls} for each of the {detour.parts} "
            f"parts of a path, and the ports have {lanes}: use --paths table"
        )


def plan_detours(wiring: Wiring) -> PlannedDetours:
    """Return the intermediate switches; raise ConfigError without any."""
    fabric, tables = wiring.fabric, wiring.fabric.tables
    found = find_detours(fabric)
    graph = switch_graph(fabric, tables.lid.astype(np.int32), tables.lmc)
    lid_group = np.full(tables.lft.shape[1], -1, np.int32)
    lid_group[graph.lid] = found.group[graph.at]
    path_sl = np.ascontiguousarray(tables.path_sl) if "path_sl" in vars(tables) else NO_DETOURS.path_sl
    return PlannedDetours(
        lid=found.lid,
        group=found.group,
        lid_group=lid_group,
        switch_first=wiring.port_of_slot[fabric.first_port[wiring.switch_nodes]],
        path_sl=path_sl,
        ends_in_group=found.ends_in_group,
        in_first_group=found.in_first_group,
    )
