"""Place boxes in racks.

    row A    A01   A02   A03   A04  |  A05   |  A06   A07   A08   A09        a unit: servers, its leaves amid them
    row B    ...                    |  B05, B06: spines and cores amid the hall

Servers fill racks from the bottom, as many as height and power allow, unit by unit. Switches fill from the top, near
the trays, each with a gap for its cables. `Room.switches` sets the position of leaves: in racks amid those of their
unit, at the end of its row, or at the top of its racks. A unit that fits into one rack has its leaves there, unless
they are at the end of the row. Switches above the leaves are in the middle of their group, or of the hall.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.plan.floor.boxes import NO_UNIT, Boxes, find_boxes
from weft.plan.floor.room import UNIT_M, Room


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Racks:
    """A floor plan. Columns of a row may be empty."""

    room: Room
    fabric: Fabric
    names: tuple[str, ...]  # [rack]: A01, A02, ... row B ..., row AA after Z
    row: NDArray[np.int32]  # [rack]
    column: NDArray[np.int32]  # [rack] place in its row, from 0
    boxes: tuple[str, ...]  # names of servers and switches
    models: tuple[str, ...]  # [box] catalog name, "" unknown
    tier: NDArray[np.int16]  # [box] 0 server, 1 leaf, 2 spine, 3 core
    box_of: NDArray[np.int32]  # [node] -> box, -1 none
    rack: NDArray[np.int32]  # [box]
    u: NDArray[np.int16]  # [box] lowest unit, 1 at the bottom
    height_u: NDArray[np.int16]  # [box]
    power_w: NDArray[np.float64]  # [box] maximum power, of a switch with its plugs; nan unknown
    is_rack: NDArray[np.bool_]  # [box] delivered as a whole rack, with its own power
    assumed: tuple[str, ...] = ()  # assumptions, as sentences

    def position(self, box: int) -> str:
        """Return the rack and lowest unit of a box: `A03-U12`."""
        return f"{self.names[self.rack[box]]}-U{self.u[box]}"

    @property
    def port_m(self) -> NDArray[np.float64]:
        """The height of each box's ports above the floor: its middle."""
        height_m: NDArray[np.float64] = (self.u - 1 + self.height_u / 2) * UNIT_M
        return height_m

    @property
    def rack_power_w(self) -> NDArray[np.float64]:
        """The known maximum power of each rack."""
        drawn_w = np.zeros(len(self.names))
        np.add.at(drawn_w, self.rack, np.nan_to_num(self.power_w))
        return drawn_w

    @property
    def limit_w(self) -> NDArray[np.float64]:
        """The power limit of each rack; a rack delivered whole has none unless the room sets `rack_power_w`."""
        given_w = np.full(len(self.names), float(self.room.filled_w))
        if self.room.rack_power_w is None:
            given_w[self.rack[self.is_rack]] = np.inf
        return given_w


def row_name(row: int) -> str:
    """Return the name of a row: A, B, ... Z, AA, AB, ..."""
    name = ""
    row += 1
    while row:
        row, letter = divmod(row - 1, 26)
        name = chr(ord("A") + letter) + name
    return name


def place(fabric: Fabric, room: Room = Room()) -> Racks:  # noqa: B008 - it is frozen
    """Place a fabric in racks; raise ConfigError for a box that fits into no rack."""
    boxes = find_boxes(fabric)
    _check(boxes, room)
    drawn_w = np.where(boxes.is_rack, room.filled_w, boxes.power_w)
    least = max(boxes.height_u.sum() / room.rack_u, np.nansum(drawn_w) / room.filled_w)
    hall = msgspec.structs.replace(room, racks_per_row=room.row_for(least))
    rows = _lay_rows(_make_blocks(boxes, hall), hall)
    rack, u = np.zeros(len(boxes.names), np.int32), np.zeros(len(boxes.names), np.int16)
    where: list[tuple[int, int]] = []
    for row, (first, stacks) in enumerate(rows):
        for column, stack in enumerate(stacks, first):
            for box, lowest in stack.positions():
                rack[box], u[box] = len(where), lowest
            where.append((row, column))
    return Racks(
        room=room,
        fabric=fabric,
        names=tuple(f"{row_name(row)}{column + 1:02d}" for row, column in where),
        row=np.array([row for row, _ in where], np.int32),
        column=np.array([column for _, column in where], np.int32),
        boxes=boxes.names,
        models=boxes.models,
        tier=boxes.tier,
        box_of=boxes.box_of,
        rack=rack,
        u=u,
        height_u=boxes.height_u,
        power_w=boxes.power_w,
        is_rack=boxes.is_rack,
        assumed=(*boxes.assumed, *note_own_power(boxes, room)),
    )


def _check(boxes: Boxes, room: Room) -> None:
    if not boxes.names:
        raise ConfigError("the fabric has neither servers nor switches, so there is nothing to place in racks")
    box = int(np.where(boxes.is_rack, 0, boxes.height_u).argmax())
    if not boxes.is_rack[box] and boxes.height_u[box] > room.rack_u:
        raise ConfigError(
            f"{_spell(boxes, box)} is {boxes.height_u[box]}U high and a rack has {room.rack_u}U; "
            f"set rack_u = {boxes.height_u[box]} or more"
        )
    limited = ~boxes.is_rack if room.rack_power_w is None else np.ones(len(boxes.names), bool)
    box = int(np.where(limited, np.nan_to_num(boxes.power_w), 0).argmax())
    if limited[box] and boxes.power_w[box] > room.filled_w:
        raise ConfigError(
            f"{_spell(boxes, box)} draws {boxes.power_w[box]:,.0f} W and a rack has {room.filled_w:,.0f} W; "
            f"set rack_power_w = {boxes.power_w[box]:.0f} or more"
        )


def note_own_power(boxes: Boxes, room: Room) -> Iterator[str]:
    """Yield a note for racks that are delivered whole and draw more than the limit of other racks."""
    if room.rack_power_w is None:
        for model in dict.fromkeys(np.array(boxes.models)[boxes.is_rack & (boxes.power_w > room.filled_w)].tolist()):
            each_w = boxes.power_w[boxes.models.index(model)]
            yield (
                f"each {model} is a rack that draws {each_w / 1000:,.0f} kW and needs its own feed; the limit of "
                f"{room.filled_w / 1000:,.0f} kW applies to other racks, rack_power_w in the room file to all"
            )


def _spell(boxes: Boxes, box: int) -> str:
    return f"{boxes.names[box]} ({boxes.models[box]})" if boxes.models[box] else boxes.names[box]


# -- racks being filled --------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Stack:
    """A rack being filled."""

    boxes: Boxes
    room: Room
    free_u: int
    free_w: float
    low: list[int] = field(default_factory=list)  # from the floor up
    high: list[int] = field(default_factory=list)  # from the top down

    def takes(self, some: Iterable[int]) -> bool:
        """Return whether all of these boxes fit."""
        some = list(some)
        return self._need_u(some) <= self.free_u and self._need_w(some) <= self.free_w

    def put(self, box: int, *, hang: bool) -> None:
        (self.high if hang else self.low).append(box)
        self.free_u -= self._need_u([box])
        self.free_w -= self._need_w([box])

    def positions(self) -> Iterable[tuple[int, int]]:
        """Yield each box with its lowest unit."""
        height, gap, u = self.boxes.height_u, self.room.switch_gap_u, 1
        for box in self.low:
            yield box, u
            u += self._need_u([box])
        u = self.room.rack_u + 1
        for box in self.high:
            u -= int(height[box]) + (gap if u - gap - int(height[box]) >= 1 else 0)
            yield box, u

    def _need_u(self, some: list[int]) -> int:
        """Return the units that boxes need; a switch that fills a whole rack has no gap."""
        tier, height, gap = self.boxes.tier, self.boxes.height_u, self.room.switch_gap_u
        need = sum(int(height[box]) + (gap if tier[box] else 0) for box in some)
        return min(need, self.room.rack_u) if len(some) == 1 else need

    def _need_w(self, some: list[int]) -> float:
        """Return the power that boxes need; a box delivered as a rack takes the whole rack."""
        whole, power_w = self.boxes.is_rack, self.boxes.power_w
        drawn_w = (self.room.filled_w if whole[box] else float(power_w[box]) for box in some)
        return sum(watts for watts in drawn_w if not math.isnan(watts))


@dataclass(slots=True, kw_only=True)
class _Block:
    """A block of adjacent racks: those of servers, and those of switches amid them or at the row's end."""

    servers: list[_Stack]
    network: list[_Stack]
    small: bool = False  # of units that fit into one rack

    def __len__(self) -> int:
        return len(self.servers) + len(self.network)

    def in_order(self) -> list[_Stack]:
        half = len(self.servers) // 2
        return [*self.servers[:half], *self.network, *self.servers[half:]]


def _new(boxes: Boxes, room: Room) -> _Stack:
    return _Stack(boxes=boxes, room=room, free_u=room.rack_u, free_w=room.filled_w)


def _fill(stacks: list[_Stack], some: Iterable[int], boxes: Boxes, room: Room) -> list[_Stack]:
    """Put boxes into the last rack, and into as many more as they need."""
    for box in some:
        if not stacks or not stacks[-1].takes([box]):
            stacks.append(_new(boxes, room))
        stacks[-1].put(box, hang=bool(boxes.tier[box]))
    return stacks


def _make_blocks(boxes: Boxes, room: Room) -> list[_Block]:
    """Return blocks of racks by group and unit, with upper switches in the middle of their group; the last block has
    the switches of the hall, and may be empty."""
    above = np.flatnonzero(boxes.unit == NO_UNIT)
    members = [np.flatnonzero(boxes.unit == unit).tolist() for unit in range(int(boxes.unit.max(initial=NO_UNIT)) + 1)]
    group_of = [int(boxes.group[unit].max()) for unit in members]
    blocks: list[_Block] = []
    for group in dict.fromkeys(group_of):
        of_group: list[_Block] = []
        for unit in (unit for unit, of in zip(members, group_of, strict=True) if of == group):
            _add_unit(of_group, unit, boxes, room)
        own = [] if group < 0 else above[boxes.group[above] == group].tolist()
        if own:
            of_group.insert(len(of_group) // 2, _Block(servers=[], network=_fill([], own, boxes, room)))
        blocks += of_group
    housed = np.isin(boxes.group[above], [group for group in group_of if group >= 0])
    rest = above[~housed]
    rest = rest[np.argsort(boxes.tier[rest], kind="stable")]
    return [*blocks, _Block(servers=[], network=_fill([], rest.tolist(), boxes, room))]


def _add_unit(blocks: list[_Block], unit: list[int], boxes: Boxes, room: Room) -> None:
    """Add a unit as a block of its own; units that fit into one rack may share a block."""
    servers = [box for box in unit if boxes.tier[box] == 0]
    leaves = [box for box in unit if boxes.tier[box]]
    at_end, hang = room.switches == "end", room.switches == "top"
    inside = servers if at_end else unit
    if not servers or not _new(boxes, room).takes(inside):
        stacks = _fill([], servers, boxes, room)
        left = _hang(stacks, leaves) if hang else leaves
        blocks.append(_Block(servers=stacks, network=_fill([], left, boxes, room)))
        return
    last = blocks[-1] if blocks and blocks[-1].small else None
    if last is None or not last.servers[-1].takes(inside):
        if last is None or not at_end or len(last) + 2 > room.racks_per_row:
            last = _Block(servers=[], network=[], small=True)
            blocks.append(last)
        last.servers.append(_new(boxes, room))
    half = len(servers) // 2
    for box in servers if at_end else [*servers[:half], *leaves, *servers[half:]]:
        last.servers[-1].put(box, hang=hang and box in leaves)
    if at_end:
        _fill(last.network, leaves, boxes, room)


def _hang(stacks: Sequence[_Stack], leaves: list[int]) -> list[int]:
    """Put leaves into racks of servers in turn, starting in the middle; return those that do not fit."""
    middle = (len(stacks) - 1) / 2
    left = []
    for leaf in leaves:
        with_room = [i for i, stack in enumerate(stacks) if stack.takes([leaf])]
        if with_room:
            stacks[min(with_room, key=lambda i: (len(stacks[i].high), abs(i - middle)))].put(leaf, hang=True)
        else:
            left.append(leaf)
    return left


# -- rows ----------------------------------------------------------------------------------------------------------


def _lay_rows(blocks: list[_Block], room: Room) -> list[tuple[int, list[_Stack]]]:
    """Return rows of racks with their first column; a block that does not fit into a row starts a new one."""
    *units, hall = blocks
    shared: list[list[_Block]] = []
    for block in units:
        if not shared or sum(map(len, shared[-1])) + len(block) > room.racks_per_row:
            shared.append([])
        shared[-1].append(block)
    rows = [part for of_row in shared for part in _cut(_in_order(of_row, room), room.racks_per_row)]
    upper = hall.in_order()
    with_room = [row for row in range(len(rows)) if len(rows[row]) + len(upper) <= room.racks_per_row]
    if with_room:
        row = rows[min(with_room, key=lambda row: abs(row - (len(rows) - 1) / 2))]
        half = len(row) // 2
        row[half:half] = upper
        return [(0, row) for row in rows]
    middle, widest = len(rows) // 2, max(map(len, rows), default=room.racks_per_row)
    own = [(max(0, widest - len(part)) // 2, part) for part in _cut(upper, room.racks_per_row)]
    return [*((0, row) for row in rows[:middle]), *own, *((0, row) for row in rows[middle:])]


def _in_order(blocks: list[_Block], room: Room) -> list[_Stack]:
    if room.switches == "end":
        servers = [stack for block in blocks for stack in block.servers]
        return servers + [stack for block in blocks for stack in block.network]
    return [stack for block in blocks for stack in block.in_order()]


def _cut(stacks: list[_Stack], most: int) -> list[list[_Stack]]:
    """Split racks into the fewest equal pieces that fit into a row."""
    pieces = -(-len(stacks) // most)
    return [stacks[len(stacks) * i // pieces : len(stacks) * (i + 1) // pieces] for i in range(pieces)]
