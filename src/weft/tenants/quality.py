"""Classes of traffic on virtual lanes: how a link is shared that is contended for.

    SL 0   VL 0   low table     what has no class: the rest of the link. Path queries go here
    SL 1   VL 1   high table    goes first, and after `high_limit` units of 4 KiB a packet of the low table goes
    SL 2   VL 2   low table     by weight

Of a link that all lanes want, the high table has high_limit / (high_limit + 1), whatever a tenant sends: packets are
taken to have 4 KiB. So it never has less than half, and the others never nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.fabric.tables import SERVICE_LEVELS
from weft.sm.conf.qos_options import QosOptions, VlWeights
from weft.sm.qos.tables import weights_of
from weft.tenants.intent import Class, IntentError

REST = "no class"
LEAST_PERCENT = 1  # for what has no class
# Of an arbitration table. ConnectX adapters have 8; the standard asks for one for each data lane.
_ENTRIES = 8
_OFF = ((0, 0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What a class of traffic needs, and gets."""

    name: str
    sl: int
    vl: int
    is_high: bool
    asked_percent: float
    given_percent: float  # of a link that all lanes want, in packets of 4 KiB


def check_shares(classes: Mapping[str, Class]) -> None:
    """IntentError if some of these would starve others, or cannot be weighed against them."""
    for name, one in classes.items():
        if not 1 <= one.share < 100:
            raise IntentError(
                ("class", name, "share"), f"a share of {one.share:g} % is refused: it must be from 1 to 99"
            )
    total = sum(one.share for one in classes.values())
    if total > 100 - LEAST_PERCENT:
        last = [*classes][-1]
        why = "more than a link" if total > 100 else "nothing is left for what has no class, path queries among it"
        raise IntentError(
            ("class", last, "share"),
            f"all shares are {total:g} % together, {why}: leave {LEAST_PERCENT} % or more free",
        )
    high = sum(one.share for one in classes.values() if one.priority == "high")
    if 0 < high < 50:
        name = next(name for name, one in classes.items() if one.priority == "high")
        raise IntentError(
            ("class", name, "share"),
            f'priority = "high" with {high:g} % in all is refused: a port sends a packet that goes first for every '
            f"other packet at least, half of a link, so that the others could not have {100 - high:g} %: give 50 % or "
            'more, or take priority = "low"',
        )


def lay_lanes(classes: Mapping[str, Class], sls: Mapping[str, int]) -> tuple[QosOptions, tuple[Lane, ...]]:
    """Of classes whose shares are sound, and their service levels from 1 up."""
    order = sorted(classes, key=sls.__getitem__)
    vls = {REST: 0} | {name: vl for vl, name in enumerate(order, 1)}
    high = {name: one.share for name, one in classes.items() if one.priority == "high"}
    low = {REST: 100 - sum(one.share for one in classes.values())}
    low |= {name: one.share for name, one in classes.items() if name not in high}
    tables = [_entries(shares, vls) for shares in (high, low)]
    limit = max(1, round(sum(high.values()) / sum(low.values()))) if high else 0
    options = QosOptions(
        high_limit=limit,
        vlarb_high=tables[0] or _OFF,
        vlarb_low=tables[1],
        sl2vl=tuple(vls[next((name for name in order if sls[name] == sl), REST)] for sl in range(SERVICE_LEVELS)),
    )
    of_tables = (limit / (limit + 1), 1 / (limit + 1)) if high else (0, 1)
    given = {name: of_tables[name in low] * part for one in (high, low) for name, part in _parts(one).items()}
    lanes = [
        Lane(
            name=name,
            sl=sls.get(name, 0),
            vl=vl,
            is_high=name in high,
            asked_percent=(high | low)[name],
            given_percent=round(100 * given[name], 1),
        )
        for name, vl in vls.items()
    ]
    return options, tuple(lanes)


def _parts(shares: Mapping[str, float]) -> dict[str, float]:
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}


def _entries(shares: Mapping[str, float], vls: Mapping[str, int]) -> VlWeights:
    if not shares:
        return ()
    entries = weights_of({vls[name]: share for name, share in shares.items()})
    if len(entries) > _ENTRIES:
        smallest = min(shares, key=shares.__getitem__)
        most = max(shares, key=shares.__getitem__)
        place = ("class", most if smallest == REST else smallest, "share")
        raise IntentError(
            place,
            f"{shares[smallest]:g} % for {smallest} beside {shares[most]:g} % for {most} is refused: a turn is a "
            f"packet of 4 KiB at least, so the table would have {len(entries)} entries, and an adapter has room for "
            f"{_ENTRIES}: take shares that are closer to each other",
        )
    return entries
