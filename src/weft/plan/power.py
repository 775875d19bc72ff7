"""Power feeds and cooling of racks: PDUs, the load of a feed, and the air that carries the heat away.

    for supply in find_supplies(plan.racks):
        print(supply.rack, supply.power_w, supply.pdus, supply.air_m3_h)

A rack has `feeds` independent feeds (A and B), each with PDUs enough for the whole rack, so that it survives the loss
of all but one. All power becomes heat. Racks that are delivered whole have PDUs or busbars of their own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from weft.plan.floor.racks import Racks

_AIR_J_PER_M3_K = 1_206  # 1.2 kg/m3 times 1,005 J/(kg K): dry air of 20 °C at sea level
_BTU_H_PER_W = 3.412
_SECONDS = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The power and the cooling of a rack; figures are for the greatest draw."""

    rack: str
    row: int  # from 0
    power_w: float
    limit_w: float | None  # None: of the rack's maker
    feeds: int
    pdus: int  # 0: the rack has its own
    feed_w: float  # the load of a feed while all work
    heat_btu_h: float
    air_m3_h: float


def find_supplies(racks: Racks) -> list[Supply]:
    """Return the supply of each rack."""
    room, drawn, limits = racks.room, racks.rack_power_w.tolist(), racks.limit_w.tolist()
    whole = np.zeros(len(racks.names), bool)
    whole[racks.rack[racks.is_rack]] = True
    return [
        Supply(
            rack=name,
            row=row,
            power_w=power_w,
            limit_w=limit_w if limit_w < float("inf") else None,
            feeds=room.feeds,
            pdus=0 if own else room.feeds * max(1, -int(-power_w // room.pdu_w)),
            feed_w=power_w / room.feeds,
            heat_btu_h=power_w * _BTU_H_PER_W,
            air_m3_h=power_w / (_AIR_J_PER_M3_K * room.air_delta_k) * _SECONDS,
        )
        for name, row, power_w, limit_w, own in zip(
            racks.names, racks.row.tolist(), drawn, limits, whole.tolist(), strict=True
        )
    ]


def sum_supplies(supplies: Sequence[Supply]) -> dict[str, float]:
    """Return the totals as `--json` prints them."""
    return {
        "pdus": sum(supply.pdus for supply in supplies),
        "heat_btu_h": sum(supply.heat_btu_h for supply in supplies),
        "air_m3_h": sum(supply.air_m3_h for supply in supplies),
    }


def to_csv(supplies: Sequence[Supply]) -> str:
    """Return a CSV line for each rack."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names := [*Supply.__dataclass_fields__])
    for cells in map(attrgetter(*names), supplies):
        writer.writerow(round(cell) if isinstance(cell, float) else cell for cell in cells)
    return text.getvalue()
