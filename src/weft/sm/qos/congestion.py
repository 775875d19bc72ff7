"""Congestion control as OpenSM sets it up: one set of thresholds for all switches, one set of rates for all adapters.

    batch = congestion_mads(fabric, options, unavailable)    LID-routed MADs of class 0x21, to every port that has a LID

The options are OpenSM's `cc_...`. A table of one entry, which OpenSM sends as zeros, is sent as it is. The CC_Key is
what the MADs carry, not one that is set. (InfiniBand Architecture volume 1, annex A10; OpenSM's
`osm_congestion_control.c`.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import SERVICE_LEVELS
from weft.sm.conf.options import Options
from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View
from weft.sm.sender import Sender
from weft.wire.bulk import column, pack_rows
from weft.wire.cc import (
    CACongestionEntry,
    CACongestionSetting,
    CcAttribute,
    CcMad,
    CongestionControlTable,
    CongestionControlTableEntry,
    SwitchCongestionSetting,
)
from weft.wire.mad import MadHeader, Method

_BLOCK = 64  # entries of the table in a MAD
_DATA = 64
_MASK_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    mads: NDArray[np.uint8]  # [n, 256]
    node: NDArray[np.int32]  # [n] -> the node that each is for
    lids: NDArray[np.int64]  # [n] -> where it goes


def switch_setting(options: Options) -> SwitchCongestionSetting:
    """Return the setting of all switches."""
    ((shift, multiplier),) = options.cc_sw_cong_setting_credit_starvation_return_delay
    delay = CongestionControlTableEntry(cct_shift=shift, cct_multiplier=multiplier)
    return SwitchCongestionSetting(
        control_map=options.cc_sw_cong_setting_control_map,
        victim_mask=options.cc_sw_cong_setting_victim_mask.to_bytes(_MASK_BYTES, "big"),
        credit_mask=options.cc_sw_cong_setting_credit_mask.to_bytes(_MASK_BYTES, "big"),
        threshold=options.cc_sw_cong_setting_threshold,
        packet_size=options.cc_sw_cong_setting_packet_size,
        cs_threshold=options.cc_sw_cong_setting_credit_starvation_threshold,
        cs_return_delay=int.from_bytes(delay.raw, "big"),
        marking_rate=options.cc_sw_cong_setting_marking_rate,
    )


def adapter_setting(options: Options) -> CACongestionSetting:
    """Return the setting of all adapters, by service level."""
    entries = [
        CACongestionEntry(
            ccti_timer=options.cc_ca_cong_setting_ccti_timer[sl],
            ccti_increase=options.cc_ca_cong_setting_ccti_increase[sl],
            trigger_threshold=options.cc_ca_cong_setting_trigger_threshold[sl],
            ccti_min=options.cc_ca_cong_setting_ccti_min[sl],
        )
        for sl in range(SERVICE_LEVELS)
    ]
    return CACongestionSetting(
        port_control=options.cc_ca_cong_setting_port_control,
        control_map=options.cc_ca_cong_setting_control_map,
        entry=entries,
    )


def rate_table(options: Options) -> tuple[CongestionControlTable, ...]:
    """Return the blocks of rates for adapters; the first is always sent."""
    rates = [CongestionControlTableEntry(cct_shift=shift, cct_multiplier=factor) for shift, factor in options.cc_cct]
    if not rates:
        return (CongestionControlTable(),)
    blocks = (rates[begin : begin + _BLOCK] for begin in range(0, len(rates), _BLOCK))
    return tuple(CongestionControlTable(ccti_limit=len(rates) - 1, entry=block) for block in blocks)


def congestion_mads(fabric: Fabric, options: Options, unavailable: NDArray[np.bool_]) -> Batch:
    """Return Sets for all switches and adapter ports with a LID, except those of `unavailable`.

    `unavailable` is bool[slot]: ports that said before that they do not know the class.
    """
    lid, ports = fabric.tables.lid, fabric.ports
    kind = fabric.nodes.kind[ports.node]
    due = (lid > 0) & ~unavailable
    switches = np.flatnonzero(due & (kind == NodeKind.SWITCH) & (ports.number == 0))
    adapters = np.flatnonzero(due & np.isin(kind, (NodeKind.HCA, NodeKind.AGGREGATION)))
    settings = [(switches, CcAttribute.SWITCH_CONGESTION_SETTING, 0, switch_setting(options).raw)]
    settings.append((adapters, CcAttribute.CA_CONGESTION_SETTING, 0, adapter_setting(options).raw))
    settings += [
        (adapters, CcAttribute.CONGESTION_CONTROL_TABLE, block, table.raw)
        for block, table in enumerate(rate_table(options))
    ]
    parts = [_sets(len(slots), attribute, block, raw, options.cc_key) for slots, attribute, block, raw in settings]
    slots = np.concatenate([slots for slots, *_ in settings])
    return Batch(
        mads=np.concatenate(parts),
        node=ports.node[slots].astype(np.int32),
        lids=lid[slots].astype(np.int64),
    )


def _sets(count: int, attribute: int, block: int, raw: bytes, cc_key: int) -> NDArray[np.uint8]:
    mads = pack_rows(
        CcMad,
        count,
        method=int(Method.SET),
        attribute_id=int(attribute),
        attribute_modifier=block,
        cc_key=np.uint64(cc_key),
    )
    mads[:, _DATA : _DATA + len(raw)] = np.frombuffer(raw, np.uint8)
    return mads


def set_up_congestion_control(sender: Sender, view: View, contents: Known, options: Options) -> list[str]:
    """Set up congestion control; return the nodes that do not support it, or have another CC_Key."""
    batch = congestion_mads(view.fabric, options, ~contents.fresh[view.fabric.ports.node])
    answers, answered = sender.exchange(batch.mads, batch.lids)
    took = answered & (column(answers, MadHeader.status) == 0)
    return [view.fabric.nodes.name[node] for node in np.unique(batch.node[~took]).tolist()]
