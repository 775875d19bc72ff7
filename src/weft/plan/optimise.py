"""Move switches to reduce the cost of cables: fewer optical links first, then lower price, then fewer metres.

    saving = optimise(place(fabric), read_prices())
    saving.after.racks        the new floor plan; servers do not move
    print(saving)

A random search with a seed; the result is never worse than the start, but not always the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.fabric import catalog
from weft.fabric.prices import Prices
from weft.plan.bill import make_bill
from weft.plan.floor.cables import Cabling, cable
from weft.plan.floor.racks import Racks
from weft.plan.floor.runs import Runs, find_runs
from weft.plan.floor.trays import measure
from weft.units import format_items

if TYPE_CHECKING:
    from weft.plan.search import Floor  # imports the compiler

ROUNDS = 40  # the search can be stopped after each
MOVES_PER_SWITCH = 100  # in a round
MOST_MOVES = 40_000  # in a round
_OPTICAL = 1e4  # extra cost of an optical link, above any price
_OUT_OF_REACH = 1e9  # above the cost of any plan
_HOT, _COLD = 3e4, 1e-3  # start: sometimes accept another optical link; end: accept nothing worse


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Saving:
    """The saving from moving switches: the cabling before and after."""

    before: Cabling
    after: Cabling
    usd: tuple[float, float]  # saved on cables, at the low and at the high price of each
    seed: int
    rounds: int  # of the search

    @property
    def optics(self) -> tuple[int, int]:
        """The number of optical links before and after."""
        return int(self.before.optical.sum()), int(self.after.optical.sum())

    @property
    def metres(self) -> tuple[float, float]:
        """The metres of cable as sold, before and after."""
        return float(self.before.length_m.sum()), float(self.after.length_m.sum())

    @property
    def moved(self) -> int:
        """The number of moved switches."""
        old, new = self.before.racks, self.after.racks
        return int(np.sum((old.rack != new.rack) | (old.u != new.u)))

    @property
    def emptied(self) -> tuple[str, ...]:
        """The racks that are no longer needed."""
        racks = self.after.racks
        return tuple(racks.names[rack] for rack in range(len(racks.names)) if not (racks.rack == rack).any())

    def __str__(self) -> str:
        (before, after), (long_m, short_m) = self.optics, self.metres
        low, high = sorted(self.usd)
        money = round(low) or round(high)
        saved = f"{low:,.0f} to {high:,.0f} USD" if money else f"{long_m - short_m:,.0f} m and no money"
        return (
            f"{format_items(self.moved, 'switch')} moved: {before:,} optical links become {after:,}, {long_m:,.0f} m "
            f"of cable {short_m:,.0f} m; that saves {saved}"
        )


def optimise(
    racks: Racks,
    prices: Prices,
    *,
    seed: int = 1,
    rounds: int = ROUNDS,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Saving:
    """Search for a number of rounds or until `stop` returns true; call `progress` with rounds done and total.

    The first round finds most of the saving, and takes a tenth of a second for 1,000 GPUs.
    """
    from weft.plan.search import total_cost, try_moves

    start = cable(racks)
    runs = find_runs(racks.fabric, racks.box_of, racks.tier)
    floor = _floor(racks, runs, prices)
    best, best_cost = racks, total_cost(floor)
    cost, state, stamp, done = best_cost, seed % 2147483646 + 1, 0, 0
    moves = min(MOST_MOVES, MOVES_PER_SWITCH * len(floor.switches))
    while done < rounds and len(floor.switches) and not stop():
        # The first round accepts improvements only, so that stopping early has a result.
        heat = _COLD if done == 0 else _HOT * (_COLD / _HOT) ** (done / (ROUNDS - 1))
        saved, state, stamp = try_moves(floor, moves, heat, state, stamp)
        cost, done = cost - saved, done + 1
        if cost < best_cost - 1e-6:
            best_cost = cost
            best = replace(racks, rack=floor.rack.astype(np.int32), u=floor.u.astype(np.int16))
        if progress is not None:
            progress(done, rounds)
    after = cable(best)
    if best is racks or _rank(after, prices) >= _rank(start, prices):
        after = start
    usd = tuple(was - now for was, now in zip(cost_usd(start, prices), cost_usd(after, prices), strict=True))
    return Saving(before=start, after=after, usd=(usd[0], usd[1]), seed=seed, rounds=done)


def cost_usd(cabling: Cabling, prices: Prices) -> tuple[float, float]:
    """Return the low and high cost of cables, transceivers and fibres with a known price."""
    items = [item.total for item in make_bill(cabling, prices).items if item.kind in ("cable", "transceiver", "fibre")]
    return sum(item.low_usd for item in items), sum(item.high_usd for item in items)


def _rank(cabling: Cabling, prices: Prices) -> tuple[int, float, float]:
    return int(cabling.optical.sum()), sum(cost_usd(cabling, prices)), float(cabling.route_m.sum())


def _floor(racks: Racks, runs: Runs, prices: Prices) -> Floor:
    from weft.plan.search import Floor

    room, count = racks.room, len(racks.names)
    is_switch = racks.tier > 0
    needs_u = racks.height_u.astype(np.int64) + np.where(is_switch, room.switch_gap_u, 0)
    needs_u = np.minimum(needs_u, room.rack_u)
    occupied = np.zeros((count, room.rack_u + room.switch_gap_u + 2), np.int8)
    for rack, u, units in zip(racks.rack.tolist(), racks.u.tolist(), needs_u.tolist(), strict=True):
        occupied[rack, u : u + units] += 1
    every = np.arange(count, dtype=np.int32)
    a, b = np.repeat(every, count), np.tile(every, count)
    along_m = measure(racks, a, b)[0].reshape(count, count)
    group, kind, reach_m, cost = _groups(runs, prices)
    order = np.argsort(group, kind="stable")
    first_of_box, groups = _of_boxes(runs, group, len(racks.boxes))
    return Floor(
        rack=racks.rack.astype(np.int64),
        u=racks.u.astype(np.int64),
        occupied=occupied,
        free_w=room.filled_w - racks.rack_power_w,
        switches=np.flatnonzero(is_switch).astype(np.int64),
        height_u=racks.height_u.astype(np.int64),
        needs_u=needs_u,
        power_w=np.nan_to_num(racks.power_w),
        first=np.concatenate(([0], np.cumsum(np.bincount(group, minlength=len(kind))))).astype(np.int64),
        low=runs.low_box[order].astype(np.int64),
        high=runs.high_box[order].astype(np.int64),
        kind=kind,
        first_of_box=first_of_box,
        groups=groups,
        counted=np.zeros(len(kind), np.int64),
        along_m=along_m,
        neighbour=np.argsort(along_m, axis=1, kind="stable")[:, :5].astype(np.int64),
        reach_m=reach_m,
        cost=cost,
        tray_m=room.tray_m,
        slack_m=room.slack_m,
        rack_u=room.rack_u,
    )


def _groups(
    runs: Runs, prices: Prices
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return [cable] -> group, [group] -> kind, and for each kind the cost of a link by length."""
    kind_of_cable = np.zeros(len(runs.link), np.int64)
    steps: list[list[tuple[float, float]]] = []
    alone = ~runs.whole
    for mask, parts in runs.kinds():
        for whole in (True, False):
            kind_of_cable[mask & (runs.whole == whole)] = len(steps)
            fit = [part for part in parts if whole or part.links == 1]
            steps.append([(part.reach_m, _link_cost(part, prices)) for part in fit])
        if parts[0].links == 1:
            alone |= mask
    joints = int(runs.joint.max(initial=-1)) + 1
    label = np.where(alone, joints + np.arange(len(runs.link)), runs.joint)
    _, first, group = np.unique(label, return_index=True, return_inverse=True)
    most = max((len(of_kind) for of_kind in steps), default=0)
    table = np.array([[*of_kind, *[(np.inf, _OUT_OF_REACH)] * (most + 1 - len(of_kind))] for of_kind in steps])
    table = table.reshape(len(steps), most + 1, 2)
    return group.astype(np.int64), kind_of_cable[first], table[:, :, 0].copy(), table[:, :, 1].copy()


def _link_cost(part: catalog.Cable, prices: Prices) -> float:
    price = prices.link(part)
    usd = (price.low_usd + price.high_usd) / 2 if price else 50.0 * part.medium
    return (_OPTICAL if part.optical else 0.0) + usd


def _of_boxes(runs: Runs, group: NDArray[np.int64], boxes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the groups with a cable of each box, box after box."""
    box = np.concatenate((runs.low_box, runs.high_box))
    pairs = np.unique(np.stack((box, np.concatenate((group, group)))), axis=1)
    first = np.searchsorted(pairs[0], np.arange(boxes + 1))
    return first.astype(np.int64), pairs[1].astype(np.int64)
