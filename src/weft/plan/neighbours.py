"""A note where one server more costs less.

A fabric for one more server may have fewer switches, as a Dragonfly+ that reaches its next balanced size, or cheaper
cables.
"""

from __future__ import annotations

from dataclasses import replace

from weft.errors import ConfigError
from weft.fabric.prices import Band, Prices
from weft.plan.bill import Bill, bill_of
from weft.plan.floor.room import Room
from weft.plan.size import Size, size


def note_cheaper(sized: Size, bill: Bill, prices: Prices, room: Room) -> str | None:
    """Return a sentence if the fabric for one server more costs less at its low or at its high price."""
    request = sized.request
    if request is None or sized.grows or not bill.complete:
        return None
    more = len(sized.fabric.servers) - 2 * bool(request.ufm_hosts) + 1
    try:
        larger = bill_of(size(replace(request, gpus=None, servers=more)).fabric, prices, room)
    except ConfigError:  # it does not fit
        return None
    low, high = bill.total.low_usd - larger.total.low_usd, bill.total.high_usd - larger.total.high_usd
    if max(low, high) <= 0:
        return None
    saved = Band(low_usd=max(0.0, min(low, high)), high_usd=max(low, high))
    return f"The fabric for one server more, {more:,}, costs {saved} USD less."
