"""Records of what is in the subnet: nodes, ports, links, switches, and the tables in them.

A kind of record is made for the whole subnet at once, as an array, and kept until the next sweep; a query picks rows.
Those of tables within tables (forwarding, SL to VL) would be tens of megabytes: they are made for the LID of the query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from weft.sm.sa import record_tables as tables
from weft.sm.sa.context import Context, Handler, Reply
from weft.sm.sa.record_tables import Nodes, Rows, Table, bits_set, has_component, matching, without_component
from weft.wire.fields import Bits
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo
from weft.wire.sa import PortInfoRecord, SaAttribute, SaMad, SaStatus

RECORDS_MAX = 1 << 20  # 16 MiB of SL to VL, of which a switch has one for each pair of ports
_MATCH_BITS = 1 << 31  # bit of the attribute modifier: match capabilities that are set in the query, ignore others
_FULL_PORT_INFO = 0x80  # bit of `options`: report FDR speeds, which old programs do not know
_QDR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of record and how it is built, for some nodes; in `lids` any LID of a port stands for that port."""

    attribute: SaAttribute
    make: Callable[..., Table]  # (context, nodes)
    is_kept: bool = True
    count: Callable[[Context, Nodes], int] | None = None  # attributes with large responses
    lids: tuple[str, ...] = ("lid",)
    ports: tuple[str, ...] = ()  # components that count for switches only: of other nodes the LID says which port


def find(kind: Kind, sa: Context, request: SaMad, source_slot: int, mask: int) -> Rows | SaStatus:
    """Return the records that match a query and that its sender may see."""
    form = kind.attribute.form
    directory, query = sa.directory, bytearray(request.data[: form.size])
    nodes = None
    for name in kind.lids:
        if has_component(form, mask, name):
            slot = directory.slot_at(form.fields[name].get(query))
            if slot < 0:
                return np.zeros((0, form.size), np.uint8)
            form.fields[name].set(query, int(directory.lid[slot]))
            nodes = sa.view.fabric.ports.node[slot : slot + 1].astype(np.intp)
    if kind.count is not None and kind.count(sa, nodes) > RECORDS_MAX:
        return SaStatus.NO_RESOURCES
    table = sa.once(kind.make) if kind.is_kept else kind.make(sa, nodes)
    matches = matching(form, table.rows, bytes(query), mask)
    if any(has_component(form, mask, name) for name in kind.ports):
        for name in kind.ports:
            mask = without_component(form, mask, name)
        on_any_port = matching(form, table.rows, bytes(query), mask)
        of_switch = sa.view.is_switch[sa.view.fabric.ports.node[table.slots[on_any_port, 0]]]
        matches = np.union1d(matches, on_any_port[~of_switch])
    visible = directory.visible(source_slot)
    return table.rows[matches[visible[table.slots[matches]].all(axis=1)]]


def answer(kind: Kind, sa: Context, request: SaMad, source_slot: int) -> Reply:
    rows = find(kind, sa, request, source_slot, request.component_mask)
    return Reply(rows) if isinstance(rows, SaStatus) else Reply(records=rows)


def answer_port_info(kind: Kind, sa: Context, request: SaMad, source_slot: int) -> Reply:
    """Match capabilities bit by bit if requested; show an M_Key of the options to trusted clients, weft's to none."""
    mask = without_component(PortInfoRecord, request.component_mask, "options")
    options = request.data[PortInfoRecord.options.bit // 8] if mask != request.component_mask else 0
    at = PortInfoRecord.port_info.bit // 8
    loose: list[Bits] = []
    if request.attribute_modifier & _MATCH_BITS:
        for field in (PortInfo.capability_mask, PortInfo.capability_mask2):
            if has_component(PortInfoRecord, mask, f"port_info.{field.name}"):
                mask = without_component(PortInfoRecord, mask, f"port_info.{field.name}")
                loose.append(field)
    rows = find(kind, sa, request, source_slot, mask)
    if isinstance(rows, SaStatus):
        return Reply(rows)
    for field in loose:
        rows = rows[bits_set(rows, field, request.data, at)]
    rows = rows.copy()
    rows[:, PortInfoRecord.options.bit // 8] = options
    if not (sa.is_trusted(request) and sa.state.options.m_key):
        rows[:, at : at + 8] = 0
    if not options & _FULL_PORT_INFO:
        _show_qdr(rows, at)
    return Reply(records=rows)


def _show_qdr(rows: Rows, at: int) -> None:
    """Show extended speeds as QDR to programs that do not know them."""
    fast = rows[:, at + PortInfo.link_speed_ext_active.bit // 8] >> 4 > 0
    for field in (PortInfo.link_speed_supported, PortInfo.link_speed_active, PortInfo.link_speed_enabled):
        shift = 0 if field.bit % 8 else 4
        rows[fast, at + field.bit // 8] |= _QDR << shift


def answer_p_keys(kind: Kind, sa: Context, request: SaMad, source_slot: int) -> Reply:
    """Answer trusted requests only."""
    if not sa.is_trusted(request):
        return Reply(SaStatus.REQUEST_INVALID)
    return answer(kind, sa, request, source_slot)


_KINDS = (
    Kind(attribute=SaAttribute.NODE_RECORD, make=tables.node_records),
    Kind(attribute=SaAttribute.PORT_INFO_RECORD, make=tables.port_info_records, lids=("endport_lid",)),
    Kind(attribute=SaAttribute.LINK_RECORD, make=tables.link_records, lids=("from_lid", "to_lid")),
    Kind(attribute=SaAttribute.SWITCH_INFO_RECORD, make=tables.switch_info_records),
    Kind(attribute=SaAttribute.GUID_INFO_RECORD, make=tables.guid_info_records),
    Kind(attribute=SaAttribute.SM_INFO_RECORD, make=tables.sm_info_records, is_kept=False),
    Kind(attribute=SaAttribute.LINEAR_FORWARDING_TABLE_RECORD, make=tables.forwarding_records, is_kept=False),
    Kind(attribute=SaAttribute.MULTICAST_FORWARDING_TABLE_RECORD, make=tables.multicast_records, is_kept=False),
    Kind(attribute=SaAttribute.P_KEY_TABLE_RECORD, make=tables.p_key_records, ports=("port_num",), is_kept=False),
    Kind(
        attribute=SaAttribute.VL_ARBITRATION_TABLE_RECORD,
        make=tables.arbitration_records,
        ports=("output_port_num",),
        is_kept=False,
    ),
    Kind(
        attribute=SaAttribute.SL_TO_VL_MAPPING_TABLE_RECORD,
        make=tables.sl2vl_records,
        ports=("input_port_num", "output_port_num"),
        is_kept=False,
        count=tables.count_sl2vl,
    ),
)
_OWN_WAYS = {SaAttribute.PORT_INFO_RECORD: answer_port_info, SaAttribute.P_KEY_TABLE_RECORD: answer_p_keys}
HANDLERS: dict[tuple[int, int], Handler] = {  # Get and GetTable find the same
    (kind.attribute, method): partial(_OWN_WAYS.get(kind.attribute, answer), kind)
    for kind in _KINDS
    for method in (Method.GET, Method.GET_TABLE)
}
