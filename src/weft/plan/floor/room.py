"""The room: racks in rows, aisles, and cable trays above the racks.

      row A  | A01 | A02 | A03 |...          a tray above every row, racks_per_row long
        |                                     cross trays from row to row, at both ends and in the middle
      row B  | B01 | B02 | B03 |...

read_room(Path("room.toml"))        any fields of Room, the others by default: racks_per_row = 12
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from weft.errors import ConfigError
from weft.fabric.files.lab.document import Document

PLACES = ("middle", "end", "top")  # for leaves
_PLACES_IN_WORDS = "middle, end or top"
_SHORT_ROW = 20  # two scalable units of 8 racks with a network rack each, and racks for spines
_FILLED_W = 47_000  # four DGX H100 at 10.2 kW and four leaves at 1.3 kW with their optics
UNIT_M = 0.04445  # a rack unit: 1.75 inches (EIA-310)


class Room(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A room; lengths ending in `_m` are in metres, heights ending in `_u` in rack units."""

    racks_per_row: int = 0  # 0: 20, or for many racks so that the hall is about square (`row_for`)
    rack_u: int = 48  # four DGX H100 of 8U take 32; the rest is for switches, patch panels and power
    rack_power_w: float | None = None  # limit of every rack; None: `_FILLED_W`, without a limit for delivered racks
    rack_width_m: float = 0.6  # the usual 19-inch cabinet, one tile of a raised floor
    rack_depth_m: float = 1.2  # a DGX H100 is 0.9 m deep; behind it are cables and power strips
    aisle_m: float = 1.2  # space for a server lift in the cold aisle; hot aisles are assumed to be as wide
    tray_m: float = 2.6  # above the floor: a rack of 48U is 2.3 m high, plus working space
    cross_trays: int = 3  # from row to row: at both ends of the rows and in the middle
    slack_m: float = 0.3  # at each end: from the port to the side of the rack, bends, and slack
    switch_gap_u: int = 1  # free units above every switch for its cables: a network rack takes 24 switches
    feeds: int = 2  # independent power feeds of a rack: A and B, of which each can carry it alone
    pdu_w: float = 18_400  # of a PDU: 32 A of three phases at 415 V, loaded to 80 %
    air_delta_k: float = 15.0  # by which air is warmer behind a rack than before it
    switches: Literal["middle", "end", "top"] = "middle"  # leaves: amid the servers, at the row's end, on top of racks

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value, least = getattr(self, name), _LEAST.get(name, 0)
            if name in _WHOLE and not (isinstance(value, int) and least <= value < 10_000):
                raise ConfigError(f"{name} = {value}: must be a whole number from {least} to 9,999")
            if name not in _WHOLE and name != "switches" and value is not None and not least <= value < 1e9:
                raise ConfigError(f"{name} = {value}: must be {least:g} or more")
        if self.switches not in PLACES:
            raise ConfigError(f"switches = {self.switches!r}: must be {_PLACES_IN_WORDS}")
        if self.tray_m < self.rack_u * UNIT_M:
            least_m = self.rack_u * UNIT_M
            raise ConfigError(
                f"tray_m = {self.tray_m:g} is below the top of racks of {self.rack_u}U, {least_m:.2f} m; set tray_m = "
                f"{least_m + 0.3:.1f} or rack_u = {int(self.tray_m / UNIT_M)}"
            )

    @property
    def filled_w(self) -> float:
        """Return the power limit of a rack that is filled in the room, as opposed to one delivered whole."""
        return _FILLED_W if self.rack_power_w is None else self.rack_power_w

    def row_for(self, racks: float) -> int:
        """Return the racks per row for a total: as set, or so that the hall is about square."""
        square = round((racks * self.row_pitch_m / self.rack_width_m) ** 0.5)
        return self.racks_per_row or max(_SHORT_ROW, min(square, 9_999))

    @property
    def row_pitch_m(self) -> float:
        """The distance between the trays of two adjacent rows."""
        return self.rack_depth_m + self.aisle_m


_WHOLE = ("racks_per_row", "rack_u", "cross_trays", "switch_gap_u", "feeds")
_LEAST: dict[str, float] = {
    "rack_u": 1,
    "rack_power_w": 1,
    "rack_width_m": 0.1,
    "rack_depth_m": 0.1,
    "cross_trays": 1,
    "feeds": 1,
    "pdu_w": 1,
    "air_delta_k": 1,
}


def read_room(path: Path) -> Room:
    """Read a room from a TOML file."""
    document = Document.load(path, otherwise=".toml")
    if isinstance(document.data, dict) and document.data.get("switches", PLACES[0]) not in PLACES:
        document.refuse(("switches",), _PLACES_IN_WORDS)
    try:
        return document.convert((), Room)
    except ConfigError as error:
        name = str(error).partition(" = ")[0]
        if name in Room.__struct_fields__:
            document.refuse_because((name,), error)
        raise
