"""Traffic classes on virtual lanes: how they share a congested link.

    SL 0   VL 0   low table     traffic without a class, such as path queries: the rest of the link
    SL 1   VL 1   high table    sent first; after `high_limit` units of 4 KiB one packet of the low table is sent
    SL 2   VL 2   low table     by weight

On a congested link the high table gets high_limit / (high_limit + 1), for packets of 4 KiB: at least half, and never
all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.fabric.tables import SERVICE_LEVELS
from weft.sm.conf.qos_options import QosOptions, VlWeights
from weft.sm.qos.tables import COMMON_ENTRIES, PACKET_WEIGHT, weights_of
from weft.tenants.intent import Class, IntentError

REST = "no class"
LEAST_PERCENT = 1  # for traffic without a class
_OFF = ((0, 0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The lane of a traffic class, with its requested and its resulting share."""

    name: str
    sl: int
    vl: int
    is_high: bool
    asked_percent: float
    given_percent: float  # share of a congested link, with packets of 4 KiB


def check_shares(classes: Mapping[str, Class]) -> None:
    """Check the shares of all classes. Raise IntentError if some would starve others or cannot be configured."""
    for name, traffic_class in classes.items():
        if not 1 <= traffic_class.share < 100:
            raise IntentError(("class", name, "share"), f"share must be 1 to 99 %, got {traffic_class.share:g}")
    total = sum(traffic_class.share for traffic_class in classes.values())
    if total > 100 - LEAST_PERCENT:
        last = [*classes][-1]
        why = "more than a link" if total > 100 else "which leaves nothing for traffic without a class"
        raise IntentError(
            ("class", last, "share"),
            f"the shares add up to {total:g} %, {why}: leave at least {LEAST_PERCENT} % free",
        )
    high = sum(traffic_class.share for traffic_class in classes.values() if traffic_class.priority == "high")
    if 0 < high < 50:
        name = next(name for name, traffic_class in classes.items() if traffic_class.priority == "high")
        raise IntentError(
            ("class", name, "share"),
            f'priority = "high" needs at least 50 % in total, got {high:g}: a port sends at least one high-priority '
            'packet for each other packet; raise the share, or use priority = "low"',
        )


def lay_lanes(classes: Mapping[str, Class], sls: Mapping[str, int]) -> tuple[QosOptions, tuple[Lane, ...]]:
    """Return the QoS options and the lanes of checked classes. `sls`: their service levels, from 1."""
    order = sorted(classes, key=sls.__getitem__)
    vls = {REST: 0} | {name: vl for vl, name in enumerate(order, 1)}
    high = {name: traffic_class.share for name, traffic_class in classes.items() if traffic_class.priority == "high"}
    low = {REST: 100 - sum(traffic_class.share for traffic_class in classes.values())}
    low |= {name: traffic_class.share for name, traffic_class in classes.items() if name not in high}
    tables = [_entries(table, vls) for table in (high, low)]
    limit = max(1, round(sum(high.values()) / sum(low.values()))) if high else 0
    options = QosOptions(
        high_limit=limit,
        vlarb_high=tables[0] or _OFF,
        vlarb_low=tables[1],
        sl2vl=tuple(vls[next((name for name in order if sls[name] == sl), REST)] for sl in range(SERVICE_LEVELS)),
    )
    of_tables = (limit / (limit + 1), 1 / (limit + 1)) if high else (0, 1)
    parts = _parts(tables[0]) | _parts(tables[1])
    lanes = [
        Lane(
            name=name,
            sl=sls.get(name, 0),
            vl=vl,
            is_high=name in high,
            asked_percent=(high | low)[name],
            given_percent=round(100 * of_tables[name in low] * parts[vl], 1),
        )
        for name, vl in vls.items()
    ]
    return options, tuple(lanes)


def _parts(entries: VlWeights) -> dict[int, float]:
    """Return the share of each lane in the packets that a table lets pass."""
    packets: dict[int, int] = {}
    for vl, units in entries:
        packets[vl] = packets.get(vl, 0) - (-units // PACKET_WEIGHT)
    return {vl: n / sum(packets.values()) for vl, n in packets.items()}


def _entries(shares: Mapping[str, float], vls: Mapping[str, int]) -> VlWeights:
    if not shares:
        return ()
    entries = weights_of({vls[name]: share for name, share in shares.items()})
    if len(entries) > COMMON_ENTRIES:
        smallest = min(shares, key=shares.__getitem__)
        most = max(shares, key=shares.__getitem__)
        place = ("class", most if smallest == REST else smallest, "share")
        raise IntentError(
            place,
            f"{shares[smallest]:g} % for {smallest} and {shares[most]:g} % for {most} need {len(entries)} entries of "
            f"the arbitration table, which has {COMMON_ENTRIES}: choose shares that are closer to each other",
        )
    return entries
