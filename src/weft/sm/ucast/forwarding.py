"""Forwarding tables: computed on what was discovered, close to what is there, and written where they differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.tables import NO_ROUTE
from weft.routing.engine import Options
from weft.routing.route import Routing, reroute, route
from weft.sm.discovery.known import BLOCK, Known
from weft.sm.discovery.view import View, ranges
from weft.sm.sender import Sender
from weft.sm.ucast.upload_order import plan_upload
from weft.wire.bulk import column, fill
from weft.wire.smp import SmpAttribute, SwitchInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """The result of an upload."""

    blocks: int
    entries: int  # that differ from before
    waves: int
    dropped_entries: int  # that drop packets for a moment, so that none runs in a circle
    refused: tuple[str, ...]  # switches


def compute_routes(view: View, contents: Known, options: Options, before: Routing | None, anew: bool) -> Routing:
    """Compute tables for the subnet with as few entries as possible that differ from those in the switches.

    `before`: by the engine and the root of then, whatever the options say. `anew`: whatever is in the switches.
    """
    if anew:
        return route(view.fabric, options)
    switches = np.flatnonzero(view.is_switch)
    previous = np.where(contents.routes[switches, None], contents.tables.lft, np.uint8(NO_ROUTE))
    return route(view.fabric, options, previous) if before is None else reroute(view.fabric, before, previous)


def read_forwarding(sender: Sender, view: View, contents: Known) -> None:
    """Read tables that another manager wrote: to stay close to them, and to find differences."""
    switches = np.flatnonzero(view.is_switch & ~contents.routes)
    top = column(view.switch_info[switches], SwitchInfo.linear_fdb_top).astype(np.int64)
    switches, top = switches[top > 0], top[top > 0]
    if not len(switches):
        return
    blocks = top // BLOCK + 1
    owner = np.repeat(np.arange(len(switches)), blocks)
    number = ranges(np.zeros_like(blocks), blocks)
    data, came = sender.get(view.to_nodes(switches[owner]), SmpAttribute.LINEAR_FORWARDING_TABLE, number)
    tables = contents.tables
    tables.lft = _wide(tables.lft, _columns(int(top.max()) + 1))
    rows = tables.switch_row[switches[owner]]
    blocked = tables.lft.reshape(len(tables.lft), -1, BLOCK)
    blocked[rows[came], number[came]] = data[came]
    complete = np.ones(len(switches), bool)
    complete[owner[~came]] = False
    contents.routes[switches[complete]] = True
    contents.top[switches[complete]] = top[complete]


def upload_forwarding(sender: Sender, view: View, contents: Known, *, in_use: bool, life_time: int) -> Uploaded:
    """Write the blocks that differ, in an order in which no packet can run in a circle.

    `life_time` is the code of how long a packet may stay in a switch.
    """
    tables = view.fabric.tables
    expected = _wide(tables.lft, _columns(tables.lft.shape[1]))
    lids = expected.shape[1]
    old = _wide(contents.tables.lft, lids)
    expected = _wide(expected, old.shape[1])
    switches = np.flatnonzero(view.is_switch)
    plan = sender.aside(lambda: plan_upload(_far(view), old, expected, known=contents.routes[switches], in_use=in_use))
    contents.tables.lft = old
    refused: set[int] = set()
    blocks = 0
    _write_switch_info(sender, view, contents, lids - 1, life_time, refused)
    blocked = old.reshape(len(old), old.shape[1] // BLOCK, BLOCK)
    failed = np.zeros(blocked.shape[1], bool)
    for wave in plan.waves:
        go = ~failed[wave.block]  # the order of a block number counts on all its earlier writes
        rows, number, ports = wave.switch[go], wave.block[go], wave.ports[go]
        nodes = switches[rows]
        route = view.to_nodes(nodes)
        _, took = sender.set(route, SmpAttribute.LINEAR_FORWARDING_TABLE, number.astype(np.int64), ports)
        blocked[rows[took], number[took]] = ports[took]
        leads = (blocked[rows, number] != NO_ROUTE).any(axis=1)
        failed[number[~took & leads]] = True
        refused.update(nodes[~took].tolist())
        blocks += len(nodes)
    contents.routes[switches] = True
    contents.routes[list(refused)] = False
    names = view.fabric.nodes.name
    return Uploaded(
        blocks=blocks,
        entries=plan.changed_entries,
        waves=len(plan.waves),
        dropped_entries=plan.dropped_entries,
        refused=tuple(names[node] for node in sorted(refused)),
    )


def _write_switch_info(
    sender: Sender, view: View, contents: Known, top: int, life_time: int, refused: set[int]
) -> None:
    """Write LinearFDBTop and the packet lifetime, and clear PortStateChange."""
    rows = view.switch_info.copy()
    current = column(rows, SwitchInfo.linear_fdb_top).astype(np.int64)
    changed = column(rows, SwitchInfo.port_state_change) > 0
    other_life = column(rows, SwitchInfo.life_time_value) != life_time
    nodes = np.flatnonzero(view.is_switch & ((current != top) | changed | other_life))
    data = rows[nodes]
    fill(data, SwitchInfo.linear_fdb_top, top)
    fill(data, SwitchInfo.life_time_value, life_time)
    fill(data, SwitchInfo.port_state_change, 1)  # writing one clears it
    answered, took = sender.set(view.to_nodes(nodes), SmpAttribute.SWITCH_INFO, 0, data)
    view.switch_info[nodes[took]] = answered[took, : SwitchInfo.size]
    contents.top[np.flatnonzero(view.is_switch)] = top
    contents.top[nodes[~took]] = -1
    refused.update(nodes[~took].tolist())


def _far(view: View) -> NDArray[np.int32]:
    """Return int32[switch row, port] -> row of the switch at the other end, -1 if there is none."""
    fabric = view.fabric
    rows = fabric.tables.switch_row
    far = np.full((int(rows.max(initial=-1)) + 1, int(fabric.nodes.n_ports.max(initial=0)) + 1), -1, np.int32)
    slots = view.plugged[view.is_switch[fabric.ports.node[view.plugged]]]
    ports = fabric.ports
    far[rows[ports.node[slots]], ports.number[slots]] = rows[ports.node[ports.peer[slots]]]
    return far


def _columns(lids: int) -> int:
    return -(-lids // BLOCK) * BLOCK


def _wide(lft: NDArray[np.uint8], lids: int) -> NDArray[np.uint8]:
    more = max(0, lids - lft.shape[1])
    return np.pad(lft, ((0, 0), (0, more)), constant_values=NO_ROUTE) if more else lft
