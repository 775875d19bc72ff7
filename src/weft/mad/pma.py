"""Implement the performance management agent: port counters, limited to the width of the requested attribute.

Counters that every engine keeps are columns of `fabric.counters`, those of error correction of `Devices.fec`; the
others, errors and discards by cause, traffic by VL and SL, are in `Devices.details` under their field's name. There is
one counter behind PortCounters and PortCountersExtended: a reset through either resets both. Port 255 is all ports of a
node, added up. (InfiniBand Architecture volume 1, "Performance Management".)
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from weft.fabric.counters import Counter, FecCounter
from weft.mad import samples
from weft.mad.devices import NONE, Devices
from weft.wire.fields import Numbers
from weft.wire.format import Format
from weft.wire.mad import ClassPortInfo, Method, Status
from weft.wire.perf import (
    ALL_PORTS,
    ATTRIBUTES,
    PerfAttribute,
    PerfCapability,
    PerfCapability2,
    PortCounters,
    PortCountersExtended,
    PortSelect,
)

DATA = 64
_END = DATA + 192
_INVALID = int(Status.INVALID_FIELD)
_COLUMNS = {
    name: Counter[column]
    for name, column in {
        "symbol_error_counter": "SYMBOL_ERROR",
        "link_error_recovery_counter": "LINK_ERROR_RECOVERY",
        "link_downed_counter": "LINK_DOWNED",
        "port_xmit_data": "PORT_XMIT_DATA_WORDS",
        "port_rcv_data": "PORT_RCV_DATA_WORDS",
    }.items()
} | {counter.name.lower(): counter for counter in Counter}
_FEC = {("fec_correctable_block_ctr_lane", lane): lane for lane in range(12)} | {
    ("port_fec_correctable_block_ctr", 0): int(FecCounter.CORRECTED_BLOCKS),
    ("port_fec_uncorrectable_block_ctr", 0): int(FecCounter.UNCORRECTED_BLOCKS),
    ("port_fec_corrected_symbol_ctr", 0): int(FecCounter.CORRECTED_SYMBOLS),
}
_SELECTS = ("port_select", "counter_select", "counter_select2")
_OLD_ORDER = (
    "symbol_error_counter",
    "link_error_recovery_counter",
    "link_downed_counter",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "vl15_dropped",
)
_DATA_ORDER = ("port_xmit_data", "port_rcv_data", "port_xmit_pkts", "port_rcv_pkts")
_CAST_ORDER = tuple(f"port_{cast}_{way}_pkts" for cast in ("unicast", "multicast") for way in ("xmit", "rcv"))
_SELECTED: dict[type[Format], tuple[str, ...]] = {  # CounterSelect bits that do not follow the fields
    PortCounters: (*_OLD_ORDER, *_DATA_ORDER, "port_xmit_wait", "qp1_dropped"),
    PortCountersExtended: (*_DATA_ORDER, *_CAST_ORDER, *("",) * 8, *_OLD_ORDER, "port_xmit_wait", "qp1_dropped"),
}
_MOST = (1 << 63) - 1  # fabric counter
_SPECIAL = (
    PerfAttribute.CLASS_PORT_INFO,
    PerfAttribute.PORT_SAMPLES_CONTROL,
    PerfAttribute.PORT_SAMPLES_RESULT,
)
_CLASS_INFO = ClassPortInfo.pack(
    capability_mask=PerfCapability.ALL_PORT_SELECT
    | PerfCapability.EXTENDED_WIDTH
    | PerfCapability.XMIT_WAIT
    | PerfCapability.RS_FEC_COUNTERS
    | PerfCapability.QP1_DROPPED,
    capability_mask2=PerfCapability2.ADDITIONAL_PORT_COUNTERS_EXTENDED,
    resp_time_value=16,
).ljust(192, b"\0")


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout of an attribute's counters. An entry is: shift from the end, maximum, location, bit of CounterSelect.

    Where it is: a column of `fabric.counters` or `Devices.fec`, or name and index in `Devices.details`. CounterSelect2
    is above the bits of CounterSelect.
    """

    form: type[Format]
    columns: tuple[tuple[int, int, int, int], ...]
    details: tuple[tuple[int, int, tuple[str, int], int], ...]
    fec: tuple[tuple[int, int, int, int], ...]  # columns of `Devices.fec`
    header: int  # bytes at its start that are sent back as they came
    select: int  # width of CounterSelect


def _layout(form: type[Format]) -> _Layout:
    """Read it off the format: bits of CounterSelect follow the fields."""
    narrow = form.fields["counter_select"].width
    columns, details, fec = [], [], []
    order = _SELECTED.get(form) or [name for name in form.fields if name not in _SELECTS]
    bits = itertools.count()
    for name in order:
        field = form.fields.get(name)
        if field is None:  # a bit that selects nothing
            next(bits)
            continue
        count, each = (field.count, field.each) if isinstance(field, Numbers) else (1, field.width)
        for index in range(count):
            shift, most, bit = 8 * form.size - field.bit - (index + 1) * each, (1 << each) - 1, next(bits)
            if name in _COLUMNS:
                columns.append((shift, most, int(_COLUMNS[name]), bit))
            elif (name, index) in _FEC:
                fec.append((shift, most, _FEC[name, index], bit))
            else:
                details.append((shift, most, (name, index), bit))
    first = min(field.bit for name, field in form.fields.items() if name not in _SELECTS)
    return _Layout(form, tuple(columns), tuple(details), tuple(fec), first // 8, narrow)


_LAYOUTS = {int(attribute): _layout(form) for attribute, form in ATTRIBUTES.items() if attribute not in _SPECIAL}


def answer(devices: Devices, slot: int, mad: bytearray) -> bool:
    """Turn a MAD of this class that came in at `slot` into its response; False if there is none."""
    method, attribute = mad[3], mad[16] << 8 | mad[17]
    if mad[0] != 1 or mad[2] != 1:
        devices.odd["version"] += 1
        status = int(Status.BAD_VERSION)
    elif method not in (Method.GET, Method.SET):
        if method == Method.TRAP_REPRESS:
            return False
        status = Status.METHOD_NOT_SUPPORTED
    elif attribute == PerfAttribute.CLASS_PORT_INFO and method == Method.GET:
        mad[DATA:_END] = _CLASS_INFO
        status = 0
    elif attribute in (PerfAttribute.PORT_SAMPLES_CONTROL, PerfAttribute.PORT_SAMPLES_RESULT):
        status = samples.answer(devices, slot, mad)
    elif attribute in _LAYOUTS:
        status = _counters(devices, slot, mad, _LAYOUTS[attribute])
    else:
        status = Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    mad[3] = 0x81
    mad[4:6] = (0, status)
    return True


def selected(devices: Devices, slot: int, port: int) -> list[int]:
    """Return the slots that PortSelect selects; none if there is no such port."""
    node = devices.node_of[slot]
    if port == ALL_PORTS:
        return list(devices.ports_of(node))
    requested = devices.port_slot(node, slot, port)
    # An adapter has no port 0.
    return [requested] if requested != NONE and (port or devices.is_switch[node]) else []


def _counters(devices: Devices, slot: int, mad: bytearray, layout: _Layout) -> int:
    slots = selected(devices, slot, PortSelect.port_select.get(mad, DATA))
    if not slots:
        mad[DATA + layout.header : _END] = bytes(_END - DATA - layout.header)
        return _INVALID
    if mad[3] == Method.SET:
        for slot in slots:
            devices.count_port(slot)
        _reset(devices, slots, mad, layout)
    values = devices.counters(slots[0])
    for slot in slots[1:]:
        values = [a + b for a, b in zip(values, devices.counters(slot), strict=True)]
    whole = 0
    for shift, most, column, _ in layout.columns:
        value = values[column]
        if value:
            whole |= (value if value < most else most) << shift
    if layout.fec and "fec" in vars(devices):
        counted = devices.fec[slots].sum(axis=0).tolist()
        for shift, most, column, _ in layout.fec:
            whole |= min(counted[column], most) << shift
    if devices.details:
        whole |= _in_detail(devices, slots, layout)
    raw = whole.to_bytes(layout.form.size, "big").ljust(_END - DATA, b"\0")
    mad[DATA + layout.header : _END] = raw[layout.header :]
    return 0


def _in_detail(devices: Devices, slots: list[int], layout: _Layout) -> int:
    whole = 0
    for shift, most, (name, index), _ in layout.details:
        value = sum(devices.details.get((slot, name, index), 0) for slot in slots)
        whole |= min(value, most) << shift
    return whole


def _reset(devices: Devices, slots: list[int], mad: bytearray, layout: _Layout) -> None:
    """Set the selected counters to the values of the Set, which is nearly always 0."""
    form = layout.form
    select = form.fields["counter_select"].get(mad, DATA)
    if "counter_select2" in form.fields:
        select |= form.fields["counter_select2"].get(mad, DATA) << layout.select
    whole = int.from_bytes(mad[DATA : DATA + form.size], "big")
    for shift, most, column, bit in layout.columns:
        if select >> bit & 1:
            devices.fabric.counters[slots, column] = whole >> shift & most & _MOST
    for shift, most, column, bit in layout.fec:
        if select >> bit & 1:
            devices.fec[slots, column] = whole >> shift & most
    for shift, most, (name, index), bit in layout.details:
        if select >> bit & 1:
            for slot in slots:
                devices.details[slot, name, index] = whole >> shift & most
