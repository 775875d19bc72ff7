"""Read the quality-of-service options of opensm.conf per kind of port, such as `qos_ca_vlarb_high 0:4,1:64`.

OpenSM has one set of options for each kind of port: adapters, port 0 of switches, their other ports, routers. What a
kind leaves open the general set says, and what that leaves open OpenSM's own defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from weft.errors import ConfigError
from weft.fabric.tables import SERVICE_LEVELS, VL_ARBITRATION_ENTRIES

DATA_VLS = 15
DROP = 15  # in an SL to VL table: packets of this service level are thrown away
MOST_WEIGHT = 255  # in units of 64 bytes

VLARB_RULE = "up to 64 pairs VL:weight, VL from 0 to 14, weight from 0 to 255, as 0:4,1:64"
SL2VL_RULE = "16 lanes from 0 to 15, one for each service level, as 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,7"

VlWeights = tuple[tuple[int, int], ...]  # (VL, weight), in the order in which they are served


def require(good: bool, name: str, value: object, rule: str) -> None:
    if not good:
        raise ConfigError(f"{name} {value} is refused: it must be {rule}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QosOptions:
    """The QoS options of one kind of port; None uses the general set."""

    max_vls: int | None = None  # OpenSM reads it and uses it nowhere: `max_op_vls` is what limits lanes
    high_limit: int | None = None  # units of 4 KiB that the high table may send before the low one has its turn
    vlarb_high: VlWeights | None = None
    vlarb_low: VlWeights | None = None
    sl2vl: tuple[int, ...] | None = None  # by service level

    def __post_init__(self) -> None:
        require(self.max_vls is None or 1 <= self.max_vls <= DATA_VLS, "max_vls", self.max_vls, "from 1 to 15")
        require(self.high_limit is None or 0 <= self.high_limit <= 255, "high_limit", self.high_limit, "from 0 to 255")
        for name in ("vlarb_high", "vlarb_low"):
            entries: VlWeights | None = getattr(self, name)
            good = entries is None or (
                0 < len(entries) <= VL_ARBITRATION_ENTRIES
                and all(0 <= vl < DATA_VLS and 0 <= weight <= MOST_WEIGHT for vl, weight in entries)
            )
            require(good, name, entries, VLARB_RULE)
        good = self.sl2vl is None or (len(self.sl2vl) == SERVICE_LEVELS and all(0 <= vl <= DROP for vl in self.sl2vl))
        require(good, "sl2vl", self.sl2vl, SL2VL_RULE)

    def over(self, general: QosOptions) -> QosOptions:
        """Return these options, completed by the general ones."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        return QosOptions(**{name: getattr(general, name) if mine[name] is None else mine[name] for name in mine})


SILENT = QosOptions()
DEFAULTS = QosOptions(
    max_vls=DATA_VLS,
    high_limit=0,
    vlarb_high=((0, 4), *((vl, 0) for vl in range(1, DATA_VLS))),
    vlarb_low=((0, 0), *((vl, 4) for vl in range(1, DATA_VLS))),
    sl2vl=(*range(DATA_VLS), 7),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    """The QoS settings of every kind of port; no field is None."""

    ca: QosOptions
    sw0: QosOptions
    swe: QosOptions
    rtr: QosOptions

    @classmethod
    def of(
        cls,
        general: QosOptions = SILENT,
        *,
        ca: QosOptions = SILENT,
        sw0: QosOptions = SILENT,
        swe: QosOptions = SILENT,
        rtr: QosOptions = SILENT,
    ) -> Self:
        general = general.over(DEFAULTS)
        return cls(ca=ca.over(general), sw0=sw0.over(general), swe=swe.over(general), rtr=rtr.over(general))


# -- as opensm.conf writes it ------------------------------------------------------------------------------------------


def read_vlarb(text: str) -> VlWeights:
    """Read `0:4,1:64`; raise ValueError if it has another form."""
    pairs = [entry.split(":") for entry in text.split(",")]
    return tuple((int(vl, 0), int(weight, 0)) for vl, weight in pairs)


def write_vlarb(entries: VlWeights) -> str:
    return ",".join(f"{vl}:{weight}" for vl, weight in entries)
