"""Quality of service at the ports: which lane a service level takes, and how lanes share a link.

    packet -- its service level --> SL to VL table --> a virtual lane --> VL arbitration --> the link
              (path record)         of the port                          high table first, up to a limit,
                                                                         then the low one, both by weight

`fill_qos` writes what OpenSM writes, with one difference: of an arbitration table with room for 64 entries OpenSM fills
32, by a slip in its arithmetic, and weft all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import SERVICE_LEVELS, VL_ARBITRATION_ENTRIES, Tables
from weft.sm.conf.qos_options import DATA_VLS, DROP, MOST_WEIGHT, Qos, QosOptions, VlWeights, require
from weft.units import format_items

NO_LIMIT = 255
PACKET_WEIGHT = 64  # a packet of 4 KiB: an entry of less lets a whole packet pass all the same
_PACKET_BLOCKS = 65  # of 64 bytes: 4 KiB with headers
COMMON_ENTRIES = 8  # of a table, on most devices
_LOW, _HIGH = 0, 1
_CA, _SW0, _SWE, _RTR = range(4)
_CODES = 6  # OperationalVLs: 1 VL0, 2 VL0-1, 3 VL0-3, 4 VL0-7, 5 VL0-14; 0 on a port that never was up


# -- into the tables ---------------------------------------------------------------------------------------------------


def fill_qos(
    tables: Tables,
    fabric: Fabric,
    qos: Qos | None,
    *,
    operational_vls: NDArray[np.uint8],
    vlarb_high_cap: NDArray[np.uint8],
    vlarb_low_cap: NDArray[np.uint8],
) -> tuple[str, ...]:
    """Write what every port should hold into tables fresh from a routing engine; returns what is worth a line in a log.

    The arrays are by port slot, as PortInfo says it: `operational_vls` is its code, the one that the port is about to
    get. Port 0 of a switch is filled whether it is enhanced or not; only where it is does it have such tables.

    Where QoS is off (None) nothing is written. Where the engine itself needs lanes to be free of deadlock, as dfsssp
    and dragonfly do, its SL to VL tables stay: other ones would undo the proof.
    """
    if qos is None:
        return ()
    kinds = (qos.ca, qos.sw0, qos.swe, qos.rtr)
    kind = _kind_of_ports(fabric)
    code = np.clip(operational_vls, 1, _CODES - 1).astype(np.intp)  # OpenSM too takes 0 for VL0 alone
    _fill_arbitration(tables, kinds, kind * _CODES + code, vlarb_high_cap, vlarb_low_cap)
    if "sl2vl" in vars(tables) and tables.sl2vl.any():
        return _engine_vls(tables, qos.swe)
    _fill_sl2vl(tables, fabric, kinds, kind * _CODES + code, code)
    return ()


def _kind_of_ports(fabric: Fabric) -> NDArray[np.intp]:
    """Return [port slot] -> _CA, _SW0, _SWE or _RTR."""
    by_node = np.full(max(NodeKind) + 1, _CA)
    by_node[NodeKind.SWITCH], by_node[NodeKind.ROUTER] = _SWE, _RTR
    kind: NDArray[np.intp] = by_node[fabric.nodes.kind][fabric.ports.node]
    kind[(kind == _SWE) & (fabric.ports.number == 0)] = _SW0
    return kind


def _wrap(vls: NDArray[np.intp], code: int) -> NDArray[np.intp]:
    """Map lanes to those of a port with this code, as OpenSM does: 1, 2, 4 or 8 lanes repeat, 15 are all there."""
    return vls & (1 << max(code - 1, 0)) - 1


def _fill_arbitration(
    tables: Tables,
    kinds: Sequence[QosOptions],
    choice: NDArray[np.intp],
    vlarb_high_cap: NDArray[np.uint8],
    vlarb_low_cap: NDArray[np.uint8],
) -> None:
    """Fill the arbitration tables by kind and code, cut to the capacity of the port."""
    templates = np.zeros((len(kinds) * _CODES, 2, VL_ARBITRATION_ENTRIES, 2), np.uint8)
    for row in range(len(templates)):
        options = kinds[row // _CODES]
        for table, entries in ((_LOW, options.vlarb_low), (_HIGH, options.vlarb_high)):
            pairs = np.array(entries)
            templates[row, table, : len(pairs), 0] = _wrap(pairs[:, 0], row % _CODES)
            templates[row, table, : len(pairs), 1] = pairs[:, 1]
    limits = np.repeat(np.array([options.high_limit for options in kinds], np.uint8), _CODES)
    np.take(templates, choice, axis=0, out=tables.vl_arbitration)
    for table, cap in ((_LOW, vlarb_low_cap), (_HIGH, vlarb_high_cap)):
        for room in np.unique(cap[cap < VL_ARBITRATION_ENTRIES]).tolist():
            tables.vl_arbitration[cap == room, table, room:] = 0
    has_tables = (vlarb_low_cap > 0) | (vlarb_high_cap > 0)  # a port with one lane has nothing to arbitrate
    tables.vl_high_limit[:] = np.where(has_tables, limits[choice], 0)


def _fill_sl2vl(
    tables: Tables,
    fabric: Fabric,
    kinds: Sequence[QosOptions],
    choice: NDArray[np.intp],
    code: NDArray[np.intp],
) -> None:
    """Fill the SL to VL rows, by the port by which packets leave. Packets of a switch to itself use port 0's row."""
    templates = np.zeros((len(kinds) * _CODES, SERVICE_LEVELS), np.uint8)
    for row in range(len(templates)):
        vls = np.array(kinds[row // _CODES].sl2vl)
        templates[row] = np.where(vls == DROP, DROP, _wrap(vls, row % _CODES))
    is_switch = fabric.nodes.kind == NodeKind.SWITCH
    ports = fabric.nodes.n_ports.astype(np.int64) + 1
    rows = np.where(is_switch, ports**2, ports)
    within = np.arange(len(tables.sl2vl)) - np.repeat(tables.first_pair, rows)
    out = np.repeat(fabric.first_port, rows) + within % np.repeat(ports, rows)
    port_0 = fabric.first_port[is_switch]
    leaving = choice.astype(np.uint8)
    leaving[port_0] = _SWE * _CODES + code[port_0]  # OpenSM counts port 0 among the others where packets come from one
    row_choice = leaving[out]
    row_choice[tables.first_pair[is_switch]] = choice[port_0]
    np.take(templates, row_choice, axis=0, out=tables.sl2vl)


def _engine_vls(tables: Tables, switches: QosOptions) -> tuple[str, ...]:
    """Return notes on lanes of the routing engine, and on those that arbitration would never serve."""
    used = np.flatnonzero(np.bincount(tables.sl2vl.ravel(), minlength=DROP + 1)[:DROP])
    served = {vl for vl, weight in (*(switches.vlarb_high or ()), *(switches.vlarb_low or ())) if weight}
    notes = ["the routing engine needs its lanes against deadlock: its SL to VL tables stay, qos_sl2vl is not written"]
    if starved := [str(vl) for vl in used.tolist() if vl not in served]:
        notes.append(f"VL {', '.join(starved)} of the routing engine has no weight in qos_swe_vlarb_high or _low")
    return tuple(notes)


def weight_notes(qos: Qos) -> tuple[str, ...]:
    """Return notes on different weights of a table that have the same effect on packets of 4 KiB.

    An entry sends while it has weight left and its last packet is sent whole. What it sends beyond its weight is not
    subtracted from its next turn.
    """
    notes = {}
    for kind in (qos.ca, qos.sw0, qos.swe, qos.rtr):
        for option, entries in (("vlarb_high", kind.vlarb_high), ("vlarb_low", kind.vlarb_low)):
            first: dict[int, int] = {}  # packets -> a weight that lets so many pass
            for weight in (weight for _, weight in entries or () if weight):
                packets = -(-weight // _PACKET_BLOCKS)
                if first.setdefault(packets, weight) != weight:
                    notes[option] = (
                        f"{option}: weights {first[packets]} and {weight} both mean {format_items(packets, 'packet')} "
                        f"of 4 KiB, as packets are sent whole; multiples of {PACKET_WEIGHT} differ"
                    )
    return tuple(notes.values())


# -- from shares of bandwidth ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The share of a contended link that a service level gets, as in Omni-Path's virtual fabrics."""

    name: str  # the QOSGroup, or the Virtual Fabric with its own QoS
    sl: int
    bandwidth_percent: float  # 0 where priority is high: it is not limited
    high_priority: bool = False


def from_shares(shares: Sequence[Share]) -> Qos:
    """Return a lane for each service level, with weights in proportion to bandwidth; high priority has no limit.

    Unused service levels map to the first lane without priority, so that management and stray packets get through.
    """
    percent = dict.fromkeys(sorted({share.sl for share in shares}), 0.0)
    for share in shares:
        percent[share.sl] += share.bandwidth_percent
    _check_shares(percent)
    high = {share.sl for share in shares if share.high_priority}
    vl_of_sl = {sl: vl for vl, sl in enumerate(percent)}
    stray = next((vl_of_sl[sl] for sl in percent if sl not in high), 0)
    general = QosOptions(
        high_limit=NO_LIMIT if high else 0,
        vlarb_high=weights_of({vl_of_sl[sl]: percent[sl] for sl in percent if sl in high}),
        vlarb_low=weights_of({vl_of_sl[sl]: percent[sl] for sl in percent if sl not in high}),
        sl2vl=tuple(vl_of_sl.get(sl, stray) for sl in range(SERVICE_LEVELS)),
    )
    return Qos.of(general)


def _check_shares(percent: dict[int, float]) -> None:
    for sl, part in percent.items():
        require(0 <= sl < SERVICE_LEVELS, "service level", sl, "from 0 to 15")
        require(part >= 1, f"the share of service level {sl} in percent,", part, "1 or more")
    require(1 <= len(percent) <= DATA_VLS, "a number of service levels", len(percent), "from 1 to 15, as data lanes")
    require(sum(percent.values()) <= 100, "the sum of all shares in percent,", sum(percent.values()), "100 at most")


def weights_of(percent: Mapping[int, float]) -> VlWeights:
    """Return weights of whole packets of 4 KiB, as close to the shares as `COMMON_ENTRIES` allow.

    Large weights are spread over several entries of 3 packets, or of 4 (255 units) if these are too many. Shares that
    differ too much for so few entries get more.
    """
    smallest = min(percent.values(), default=1)
    rounds = range(1, 3 * COMMON_ENTRIES + 1)  # packets of the smallest share
    first, *others = ({vl: round(part / smallest * n) for vl, part in percent.items()} for n in rounds)
    most = 3 if _entries_of(first, 3) <= COMMON_ENTRIES else 4
    fitting = [first, *(packets for packets in others if _entries_of(packets, most) <= COMMON_ENTRIES)]
    packets = min(fitting, key=lambda packets: _deviation(packets, percent))
    entries = {vl: -(-n // most) for vl, n in packets.items()}
    served = [
        (vl, min(PACKET_WEIGHT * len(range(turn, packets[vl], entries[vl])), MOST_WEIGHT))
        for turn in range(max(entries.values(), default=0))
        for vl in entries
        if turn < entries[vl]
    ]
    return tuple(served) or ((0, 0),)


def _entries_of(packets: Mapping[int, int], most: int) -> int:
    return sum(-(-n // most) for n in packets.values())


def _deviation(packets: Mapping[int, int], percent: Mapping[int, float]) -> float:
    """Return the largest difference of a share from the one that was asked for, as a part of it."""
    scale = sum(percent.values()) / max(sum(packets.values()), 1)
    return round(max((abs(packets[vl] * scale / part - 1) for vl, part in percent.items()), default=0), 6)
