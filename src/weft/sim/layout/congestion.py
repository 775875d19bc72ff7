"""InfiniBand congestion control settings of a run: those set by MADs in switches and adapters, otherwise defaults.

    switch    a port with credits marks packets once its queue exceeds a threshold: on average one in `marking_rate`
              of the packets that are not smaller than `packet_size`
    adapter   each notification raises the index into its table by `ccti_increase`, every `ccti_timer` lowers it by one,
              down to `ccti_min`; an entry is the pause of a queue pair between packets, in packet times

(InfiniBand Architecture volume 1, annex A10. The pause of an entry is its multiplier shifted right by its shift, as in
Linux's hfi1. A threshold of 1 is the highest and 15 the lowest, 0 disables marking: sixteenths of an input buffer.)
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
_TICK_PS = 1_024_000  # unit of ccti_timer
_PACKET_UNIT_BYTES = 64
_HAS_THRESHOLD, _HAS_MARKING_RATE = 1 << 2, 1 << 4  # bits of a switch's control map
_PORTS_PER_BLOCK, _BLOCK_ENTRIES = 32, 64
# Defaults. Switches as set by the congestion control manager in MLNX_OFED (marking_rate 0xa, packet_size 0x200), from
# half of the buffer on. That manager sizes the table by the fabric; here each entry adds an eighth of a packet time.
# The timer is that of Gran et al., IPDPS 2010, for QDR; at a higher rate the same number of packets takes less time.
DEFAULT_MARKS = (THRESHOLDS // 2, 10, 512)  # threshold, marking rate, bytes of a packet
_DEFAULT_TABLE, _DEFAULT_INCREASE, _DEFAULT_TICKS = 1 / (1 + np.arange(128) / 8), 1, 150
_DEFAULT_LINE_GBIT_S = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Adapters:
    """The settings of all adapters, by SL; `rate`: [index] -> share of the line rate."""

    rate: NDArray[np.float64]
    increase: NDArray[np.int64]
    least: NDArray[np.int64]
    timer_ps: NDArray[np.int64]


def is_set(fabric: Fabric) -> bool:
    """Return whether both ends are configured: a switch that marks, and adapters that slow down."""
    return bool(_settings(fabric, CcAttribute.SWITCH_CONGESTION_SETTING)) and bool(
        _settings(fabric, CcAttribute.CONGESTION_CONTROL_TABLE)
    )


def switch_marks(fabric: Fabric) -> NDArray[np.int64]:
    """Return the marking settings of switch ports, int64[slot, threshold | marking rate | smallest marked packet in
    bytes].
    """
    marks = np.zeros((len(fabric.ports), 3), np.int64)
    if not is_set(fabric):
        marks[:] = DEFAULT_MARKS
        return marks
    for slot, raw in _settings(fabric, CcAttribute.SWITCH_CONGESTION_SETTING).items():
        setting = SwitchCongestionSetting.unpack(raw)
        node = int(fabric.ports.node[slot])
        ports = slice(int(fabric.first_port[node]), int(fabric.first_port[node] + fabric.nodes.n_ports[node]) + 1)
        if setting.control_map & _HAS_THRESHOLD:
            marks[ports, 0], marks[ports, 2] = setting.threshold, setting.packet_size * _PACKET_UNIT_BYTES
        if setting.control_map & _HAS_MARKING_RATE:
            marks[ports, 1] = setting.marking_rate
        for number in range(1, int(fabric.nodes.n_ports[node]) + 1):
            block, place = divmod(number, _PORTS_PER_BLOCK)
            own = fabric.tables.congestion.get((slot, int(CcAttribute.SWITCH_PORT_CONGESTION_SETTING) << 16 | block))
            if own is not None:
                element = SwitchPortCongestionSetting.unpack(own).element[place]
                if element.valid and not element.control_type:
                    sizes = element.packet_size * _PACKET_UNIT_BYTES
                    marks[slot + number] = element.threshold, element.cong_parm_marking_rate, sizes
    return marks


def adapters(fabric: Fabric, line_gbit_s: float) -> Adapters:
    """Return the settings of the adapters. Raise ConfigError if adapters differ."""
    if not is_set(fabric):
        each = np.ones(SERVICE_LEVELS, np.int64)
        ticks = max(1, round(_DEFAULT_TICKS * _DEFAULT_LINE_GBIT_S / line_gbit_s))
        return Adapters(
            rate=_DEFAULT_TABLE, increase=_DEFAULT_INCREASE * each, least=0 * each, timer_ps=ticks * _TICK_PS * each
        )
    tables = {slot: _table(fabric, slot) for slot in _settings(fabric, CcAttribute.CONGESTION_CONTROL_TABLE)}
    settings = _settings(fabric, CcAttribute.CA_CONGESTION_SETTING)
    both = {slot: (tuple(table), bytes(settings.get(slot, b""))) for slot, table in tables.items()}
    first, *rest = both
    for other in rest:
        if both[other] != both[first]:
            names = [fabric.port(slot).name for slot in (first, other)]
            raise ConfigError(
                f"{names[0]} and {names[1]} have different congestion control tables, "
                "but the packet engine uses one for all; "
                "make them equal, or use --congestion-control none"
            )
    setting = CACongestionSetting.unpack(settings[first]) if first in settings else CACongestionSetting()
    used = np.array([setting.control_map >> sl & 1 for sl in range(SERVICE_LEVELS)])
    of_sl = np.array([(entry.ccti_increase, entry.ccti_min, entry.ccti_timer) for entry in setting.entry], np.int64)
    top = len(tables[first]) - 1
    return Adapters(
        rate=tables[first],
        increase=of_sl[:, 0] * used,
        least=np.minimum(of_sl[:, 1] * used, top),
        timer_ps=np.maximum(of_sl[:, 2], 1) * _TICK_PS,
    )


def _settings(fabric: Fabric, attribute: CcAttribute) -> dict[int, bytearray]:
    """Return the first block of an attribute by slot."""
    return {slot: raw for (slot, key), raw in fabric.tables.congestion.items() if key == int(attribute) << 16}


def _table(fabric: Fabric, slot: int) -> NDArray[np.float64]:
    """Return the share of the line rate for each index, up to the limit."""
    key = int(CcAttribute.CONGESTION_CONTROL_TABLE) << 16
    limit = CongestionControlTable.unpack(fabric.tables.congestion[slot, key]).ccti_limit
    rates = []
    for block in range(limit // _BLOCK_ENTRIES + 1):
        raw = fabric.tables.congestion.get((slot, key | block))
        entries = CongestionControlTable.unpack(raw).entry if raw is not None else ()
        rates += [1 / (1 + (entry.cct_multiplier / (1 << entry.cct_shift))) for entry in entries]
    return np.array(rates[: limit + 1] or [1.0])
