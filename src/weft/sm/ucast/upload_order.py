"""Order the writes of forwarding tables in a subnet that is in use, so that no packet loops.

Blocks are written in waves: all writes of a wave may be under way at once, done in any order, and the next wave begins
when all have been answered. Between two waves, and in the middle of one, every entry is either the old one or the new.

For one destination let `old` and `new` be the next switches, each free of circles, and call a switch *changed* where
they differ. The rule: a changed switch is written after the next changed one on its new path (Francois and Bonaventure,
"Avoiding transient loops during the convergence of link-state routing protocols", 2007; RFC 6976, ordered FIB). Then no
state on the way has a circle: at a written switch the rest of the new path is all written, or the same as before, so
from there the packet follows the new path for good; until it comes to one it follows the old path. A switch that is not
changed needs no place in the order: its entry is the old and the new one at once, both sentences hold for it.

Two things make this cheap.

*Most changes need no order.* A circle of any mix lies in one strongly connected component of the graph with both, the
old and the new edges. So the rule is kept only where the next changed switch is in the same component. Proof: take a
circle in some state. It is not all old edges. So it has a written changed switch, and goes on along its new path to the
next changed switch; that one is on the circle, thus in the same component, thus written. So it goes on, and the circle
is all new edges: there is none. After a fault both tables mostly lead nearer to the destination, hardly any component
has two switches, and most plans are one wave.

*A block is one write for 64 destinations.* Their orders may contradict each other: A after B for one, B after A for
another. Then entries of the lightest such demand are first written as 255, which drops packets, and what they should
be is written in a last wave of its own. Dropping is safe at any time, as it only takes an edge away; and when the last
wave begins no old entry is left, so any mix of the rest is a part of the new tables. So packets of those destinations
are lost on those switches between two waves, instead of running in a circle; `dropped_entries` says how many entries.

*A switch that returns is written first.* Where a table drops everything, as after power-up, and no old entry of another
switch leads to it, a wave of its own goes before all others: else neighbours would send packets to a switch that has no
routes yet. It is safe: a packet that leaves such switches follows old entries from there, which never lead back.

What this does not promise:

- After a write that failed, later waves may write no block of the same number: their order counted on it. Blocks of
  other numbers are of other destinations, and go on. So do all, if the block that stays drops everything: no circle
  goes through it.
- Order cannot help where the old entries are not known (`known`). Such rows are taken to drop everything, as a switch
  does after power-up, and written whole; what they do until then is unknown.
- Old tables that have circles keep them until the entries are replaced.
- *Freedom from deadlock.* Old and new tables may each be free of credit loops and a mix of them have one, also by
  packets that the old tables sent on their way (Duato, Lysne, Pang and Pinkston, "Part I: a theory for deadlock-free
  dynamic network reconfiguration", 2005). No order of writes rules that out, and this one does not try. Such a circle
  drains: switches discard a packet that waited for HOQLife at the head of a queue, or for LifeTimeValue in the switch,
  and the senders repeat it. Where both are set to infinite (20 and above) it would stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import SimulationBug
from weft.fabric.tables import NO_ROUTE
from weft.sm.ucast.upload_waits import BLOCK, NOT_WRITTEN, order_blocks, scratch_for


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wave:
    """A set of blocks that may be written at the same time."""

    switch: NDArray[np.int32]  # [write] -> row
    block: NDArray[np.int32]  # [write]
    ports: NDArray[np.uint8]  # [write, 64] -> what to write


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UploadPlan:
    waves: tuple[Wave, ...]
    changed_entries: int  # differing entries of known rows, and used entries of unknown rows
    dropped_entries: int  # those that drop packets until the last wave


def plan_upload(
    far: NDArray[np.int32],
    old: NDArray[np.uint8],
    new: NDArray[np.uint8],
    *,
    in_use: bool,
    known: NDArray[np.bool_] | None = None,
) -> UploadPlan:
    """Plan waves of the blocks that differ. A subnet without traffic takes one.

    far       [switch, port] -> switch at the other end, -1 for adapters and where nothing is plugged in
    old, new  [switch, lid] -> out port; whole blocks of 64 LIDs
    known     [switch] -> are the old entries those in the switch? All, if left out
    """
    if old.shape != new.shape or old.shape[1] % BLOCK or len(far) != len(old):
        raise SimulationBug(f"tables of {old.shape} and {new.shape} for {len(far)} switches: not the same whole blocks")
    unknown = np.zeros(len(old), bool) if known is None else ~known
    if unknown.any():
        old = np.where(unknown[:, None], np.uint8(NO_ROUTE), old)
    n, blocks = len(old), old.shape[1] // BLOCK
    differs = old != new
    todo = differs.reshape(n, blocks, BLOCK).any(axis=2) | unknown[:, None]
    waves = []
    if in_use and (early := todo & _idle(far, old)[:, None]).any():
        waves.append(_wave(early, new))
        old, todo = np.where(early.any(axis=1)[:, None], new, old), todo & ~early
    first, wave, dropped = new, np.where(todo, 0, NOT_WRITTEN).astype(np.int32), 0
    if in_use:
        first = new.copy()
        dropped = order_blocks(far, old, new, todo, first, wave, scratch_for(n))
    waves += [_wave(wave == number, first) for number in range(int(wave.max(initial=NOT_WRITTEN)) + 1)]
    if dropped:
        waves.append(_wave((first != new).reshape(n, blocks, BLOCK).any(axis=2), new))
    return UploadPlan(waves=tuple(waves), changed_entries=int(differs.sum()), dropped_entries=dropped)


def _idle(far: NDArray[np.int32], old: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return [switch] -> whether its table drops everything, and no table leads to it."""
    idle: NDArray[np.bool_] = (old == NO_ROUTE).all(axis=1)
    for here, port in np.argwhere((far >= 0) & idle[far]).tolist():
        if (old[here] == port).any():
            idle[far[here, port]] = False
    return idle


def _wave(chosen: NDArray[np.bool_], tables: NDArray[np.uint8]) -> Wave:
    """Block by block, so that writes in a row go to different switches."""
    block, switch = np.nonzero(chosen.T)
    ports = tables.reshape(*chosen.shape, BLOCK)[switch, block]
    return Wave(switch=switch.astype(np.int32), block=block.astype(np.int32), ports=ports)
