"""Congestion control of InfiniBand as a run has it: what MADs set in switches and adapters, else the usual figures.

    switch    a port that may send marks packets once its queue is above a threshold: one of `marking_rate`, in the
              mean, of those that are not smaller than `packet_size`
    adapter   each notification raises the index into its table by `ccti_increase`, every `ccti_timer` lowers it by one,
              down to `ccti_min`; an entry says how long a queue pair waits between packets, in packet times

(InfiniBand Architecture volume 1, annex A10. An entry waits for its multiplier shifted right by its shift, as Linux's
hfi1 does. A threshold of 1 is the highest and 15 the lowest, 0 marks nothing: sixteenths of what an input can hold.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.tables import SERVICE_LEVELS
from weft.wire.cc import (
    CACongestionSetting,
    CcAttribute,
    CongestionControlTable,
    SwitchCongestionSetting,
    SwitchPortCongestionSetting,
)

THRESHOLDS = 16
_TICK_PS = 1_024_000  # of ccti_timer
_PACKET_UNIT_BYTES = 64
_HAS_THRESHOLD, _HAS_MARKING_RATE = 1 << 2, 1 << 4  # of a switch's control map
_PORTS_PER_BLOCK, _BLOCK_ENTRIES = 32, 64
# Where nobody set anything. Switches as the congestion control manager in MLNX_OFED sets them (marking_rate 0xa,
# packet_size 0x200), from half of the buffer on; it makes the table to the size of the fabric, here an entry is an
# eighth of a packet time more than the last. The timer is that of Gran et al., IPDPS 2010.
USUAL_MARKS = (THRESHOLDS // 2, 10, 512)  # threshold, marking rate, bytes of a packet
_USUAL_TABLE, _USUAL_INCREASE, _USUAL_TIMER_PS = 1 / (1 + np.arange(128) / 8), 1, 150 * _TICK_PS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Adapters:
    """What all of them do, by SL; `rate`: [index] -> part of the line."""

    rate: NDArray[np.float64]
    increase: NDArray[np.int64]
    least: NDArray[np.int64]
    timer_ps: NDArray[np.int64]


def is_set(fabric: Fabric) -> bool:
    """Did anybody set up both ends: a switch that marks, and adapters that slow down?"""
    return bool(_settings(fabric, CcAttribute.SWITCH_CONGESTION_SETTING)) and bool(
        _settings(fabric, CcAttribute.CONGESTION_CONTROL_TABLE)
    )


def switch_marks(fabric: Fabric) -> NDArray[np.int64]:
    """int64[slot, threshold | marking rate | bytes of the smallest packet that is marked], of switches' ports."""
    marks = np.zeros((len(fabric.ports), 3), np.int64)
    if not is_set(fabric):
        marks[:] = USUAL_MARKS
        return marks
    for slot, raw in _settings(fabric, CcAttribute.SWITCH_CONGESTION_SETTING).items():
        found = SwitchCongestionSetting.unpack(raw)
        node = int(fabric.ports.node[slot])
        ports = slice(int(fabric.first_port[node]), int(fabric.first_port[node] + fabric.nodes.n_ports[node]) + 1)
        if found.control_map & _HAS_THRESHOLD:
            marks[ports, 0], marks[ports, 2] = found.threshold, found.packet_size * _PACKET_UNIT_BYTES
        if found.control_map & _HAS_MARKING_RATE:
            marks[ports, 1] = found.marking_rate
        for number in range(1, int(fabric.nodes.n_ports[node]) + 1):
            block, place = divmod(number, _PORTS_PER_BLOCK)
            own = fabric.tables.congestion.get((slot, int(CcAttribute.SWITCH_PORT_CONGESTION_SETTING) << 16 | block))
            if own is not None:
                element = SwitchPortCongestionSetting.unpack(own).element[place]
                if element.valid and not element.control_type:
                    sizes = element.packet_size * _PACKET_UNIT_BYTES
                    marks[slot + number] = element.threshold, element.cong_parm_marking_rate, sizes
    return marks


def adapters(fabric: Fabric) -> Adapters:
    """Refuses a fabric whose adapters are set up in two ways."""
    if not is_set(fabric):
        each = np.ones(SERVICE_LEVELS, np.int64)
        usual = (_USUAL_INCREASE * each, 0 * each, _USUAL_TIMER_PS * each)
        return Adapters(rate=_USUAL_TABLE, increase=usual[0], least=usual[1], timer_ps=usual[2])
    tables = {slot: _table(fabric, slot) for slot in _settings(fabric, CcAttribute.CONGESTION_CONTROL_TABLE)}
    settings = _settings(fabric, CcAttribute.CA_CONGESTION_SETTING)
    both = {slot: (tuple(table), bytes(settings.get(slot, b""))) for slot, table in tables.items()}
    first, *rest = both
    for other in rest:
        if both[other] != both[first]:
            names = [fabric.port(slot).name for slot in (first, other)]
            raise ConfigError(
                f"{names[0]} and {names[1]} have other congestion control tables: the packet engine has one for all; "
                "set them alike, or run with congestion control none"
            )
    found = CACongestionSetting.unpack(settings[first]) if first in settings else CACongestionSetting()
    used = np.array([found.control_map >> sl & 1 for sl in range(SERVICE_LEVELS)])
    of_sl = np.array([(one.ccti_increase, one.ccti_min, one.ccti_timer) for one in found.entry], np.int64)
    top = len(tables[first]) - 1
    return Adapters(
        rate=tables[first],
        increase=of_sl[:, 0] * used,
        least=np.minimum(of_sl[:, 1] * used, top),
        timer_ps=np.maximum(of_sl[:, 2], 1) * _TICK_PS,
    )


def _settings(fabric: Fabric, attribute: CcAttribute) -> dict[int, bytearray]:
    """By slot, of its first block."""
    return {slot: raw for (slot, key), raw in fabric.tables.congestion.items() if key == int(attribute) << 16}


def _table(fabric: Fabric, slot: int) -> NDArray[np.float64]:
    """[index] -> part of the line, up to the limit."""
    key = int(CcAttribute.CONGESTION_CONTROL_TABLE) << 16
    limit = CongestionControlTable.unpack(fabric.tables.congestion[slot, key]).ccti_limit
    rates = []
    for block in range(limit // _BLOCK_ENTRIES + 1):
        raw = fabric.tables.congestion.get((slot, key | block))
        entries = CongestionControlTable.unpack(raw).entry if raw is not None else ()
        rates += [1 / (1 + (one.cct_multiplier / (1 << one.cct_shift))) for one in entries]
    return np.array(rates[: limit + 1] or [1.0])
