"""The memory of pluggable modules: SFF-8636 (QSFP) and CMIS (OSFP, QSFP-DD), the fields that operators look at.

    memory = write_memory(module)              {page: 256 bytes}, of which the lower 128 are the same in all pages
    read_module(lambda page, at, size: ...)    a Module

SFF-8636, "Management Interface for 4-lane Modules and Cables", and OIF-CMIS, "Common Management Interface
Specification": temperature in 1/256 degrees, voltage in 100 uV, power in 0.1 uW, bias in
2 uA; lengths of cables in metres.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

Read = Callable[[int, int, int], bytes]  # page, address in its 256 bytes, number of bytes
QSFP, QSFP28, OSFP = "QSFP+", "QSFP28", "OSFP"
_IDENTIFIERS = {0x0D: QSFP, 0x11: QSFP28, 0x19: OSFP, 0x18: "QSFP-DD", 0x1E: "QSFP-CMIS"}
_CMIS = {0x18, 0x19, 0x1E}
PASSIVE_COPPER, ACTIVE_COPPER, OPTICAL = "passive copper", "active copper", "optical"
_FIRST_COPPER, _FIRST_ACTIVE = 0xA, 0xC  # technologies: optical below, then passive and active copper
_TECHNOLOGY = {OPTICAL: 0x0, PASSIVE_COPPER: 0xA, ACTIVE_COPPER: 0xC}
_SFF_LANES, _CMIS_LANES = 4, 8
_CMIS_POWER = 0x11  # the page with power and bias of lanes
_MOST_LENGTH_M = 255
_CMIS_BASES = (0.1, 1.0, 10.0, 100.0)  # m, of the two upper bits of the length


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module, or the end of a cable. Copper has no power; a passive one has no temperature either."""

    form: str
    vendor: str
    part: str
    serial: str
    revision: str
    technology: str
    length_m: float | None  # of a cable with fixed ends; None: a transceiver
    temperature_c: float | None = None
    supply_v: float | None = None
    receive_mw: tuple[float, ...] = ()  # each lane
    transmit_mw: tuple[float, ...] = ()
    bias_ma: tuple[float, ...] = ()


# -- reading ----------------------------------------------------------------------------------------------------------


def read_module(read: Read) -> Module:
    """Read a module by its memory map, which the first byte names."""
    identifier = read(0, 0, 1)[0]
    return _read_cmis(read, identifier) if identifier in _CMIS else _read_sff(read, identifier)


def read_serial(read: Read) -> str:
    """Return only the serial number."""
    is_cmis = read(0, 0, 1)[0] in _CMIS
    return _text(read(0, 166 if is_cmis else 196, 16))


def _read_sff(read: Read, identifier: int) -> Module:
    technology = _technology(read(0, 147, 1)[0] >> 4)
    length = read(0, 146, 1)[0]
    readings = read(0, 22, 36)
    is_passive, is_optical = technology == PASSIVE_COPPER, technology == OPTICAL
    return Module(
        form=_IDENTIFIERS.get(identifier, f"identifier {identifier:#04x}"),
        vendor=_text(read(0, 148, 16)),
        part=_text(read(0, 168, 16)),
        serial=_text(read(0, 196, 16)),
        revision=_text(read(0, 184, 2)),
        technology=technology,
        length_m=float(length) if length else None,
        temperature_c=None if is_passive else _temperature(readings[0:2]),
        supply_v=None if is_passive else _voltage(readings[4:6]),
        receive_mw=_powers(readings[12:20]) if is_optical else (),
        bias_ma=_biases(readings[20:28]) if is_optical else (),
        transmit_mw=_powers(readings[28:36]) if is_optical else (),
    )


def _read_cmis(read: Read, identifier: int) -> Module:
    technology = _technology(read(0, 212, 1)[0])
    length = read(0, 202, 1)[0]
    readings = read(0, 14, 4)
    is_passive, is_optical = technology == PASSIVE_COPPER, technology == OPTICAL
    lanes = read(_CMIS_POWER, 154, 48) if is_optical else b""
    return Module(
        form=_IDENTIFIERS[identifier],
        vendor=_text(read(0, 129, 16)),
        part=_text(read(0, 148, 16)),
        serial=_text(read(0, 166, 16)),
        revision=_text(read(0, 164, 2)),
        technology=technology,
        length_m=(length & 0x3F) * _CMIS_BASES[length >> 6] if length & 0x3F else None,
        temperature_c=None if is_passive else _temperature(readings[0:2]),
        supply_v=None if is_passive else _voltage(readings[2:4]),
        transmit_mw=_powers(lanes[0:16]),
        bias_ma=_biases(lanes[16:32]),
        receive_mw=_powers(lanes[32:48]),
    )


def _technology(code: int) -> str:
    return OPTICAL if code < _FIRST_COPPER else PASSIVE_COPPER if code < _FIRST_ACTIVE else ACTIVE_COPPER


def _text(field: bytes) -> str:
    return field.decode("ascii", "replace").replace("\0", " ").strip()


def _temperature(field: bytes) -> float:
    return float(int.from_bytes(field, "big", signed=True)) / 256


def _voltage(field: bytes) -> float:
    return int.from_bytes(field, "big") / 10_000


def _powers(field: bytes) -> tuple[float, ...]:
    return tuple(value / 10_000 for value in struct.unpack(f">{len(field) // 2}H", field))


def _biases(field: bytes) -> tuple[float, ...]:
    return tuple(value / 500 for value in struct.unpack(f">{len(field) // 2}H", field))


# -- writing ----------------------------------------------------------------------------------------------------------


def write_memory(module: Module) -> dict[int, bytes]:
    """Return the memory of a module by page."""
    identifier = next(code for code, form in _IDENTIFIERS.items() if form == module.form)
    return _write_cmis(module, identifier) if identifier in _CMIS else {0: _write_sff(module, identifier)}


def _write_sff(module: Module, identifier: int) -> bytes:
    memory = bytearray(256)
    memory[0] = memory[128] = identifier
    _put_readings(memory, module, temperature_at=22, voltage_at=26)
    _put_lanes(memory, 34, module.receive_mw, 10_000, _SFF_LANES)
    _put_lanes(memory, 42, module.bias_ma, 500, _SFF_LANES)
    _put_lanes(memory, 50, module.transmit_mw, 10_000, _SFF_LANES)
    memory[130] = 0x23 if module.length_m else 0x0C  # no separable connector, or MPO
    memory[146] = min(round(module.length_m or 0), _MOST_LENGTH_M)
    memory[147] = _TECHNOLOGY[module.technology] << 4
    _put_texts(memory, (148, 16, module.vendor), (168, 16, module.part), (184, 2, module.revision))
    memory[191] = sum(memory[128:191]) & 0xFF
    _put_texts(memory, (196, 16, module.serial))
    memory[223] = sum(memory[192:223]) & 0xFF
    return bytes(memory)


def _write_cmis(module: Module, identifier: int) -> dict[int, bytes]:
    memory = bytearray(256)
    memory[0] = memory[128] = identifier
    memory[1] = 0x50  # CMIS 5.0
    _put_readings(memory, module, temperature_at=14, voltage_at=16)
    _put_texts(memory, (129, 16, module.vendor), (148, 16, module.part), (164, 2, module.revision))
    _put_texts(memory, (166, 16, module.serial))
    memory[202] = _cmis_length(module.length_m)
    memory[203] = 0x23 if module.length_m else 0x0C
    memory[212] = _TECHNOLOGY[module.technology]
    memory[222] = sum(memory[128:222]) & 0xFF
    pages = {0: bytes(memory)}
    if module.technology == OPTICAL:
        memory[128:] = bytes(128)
        _put_lanes(memory, 154, module.transmit_mw, 10_000, _CMIS_LANES)
        _put_lanes(memory, 170, module.bias_ma, 500, _CMIS_LANES)
        _put_lanes(memory, 186, module.receive_mw, 10_000, _CMIS_LANES)
        pages[_CMIS_POWER] = bytes(memory)
    return pages


def _cmis_length(length_m: float | None) -> int:
    """Return a length as six bits and a base of 0.1 to 100 m, rounded up where a base cannot show it."""
    if not length_m:
        return 0
    base = next((step for step, unit in enumerate(_CMIS_BASES) if length_m <= 63 * unit), 3)
    return base << 6 | min(-int(-length_m // _CMIS_BASES[base]), 63)


def _put_readings(memory: bytearray, module: Module, *, temperature_at: int, voltage_at: int) -> None:
    if module.temperature_c is not None:
        memory[temperature_at : temperature_at + 2] = round(module.temperature_c * 256).to_bytes(2, "big", signed=True)
    if module.supply_v is not None:
        memory[voltage_at : voltage_at + 2] = round(module.supply_v * 10_000).to_bytes(2, "big")


def _put_lanes(memory: bytearray, at: int, values: tuple[float, ...], scale: int, lanes: int) -> None:
    for lane, value in enumerate(values[:lanes]):
        memory[at + 2 * lane : at + 2 * lane + 2] = min(round(value * scale), 0xFFFF).to_bytes(2, "big")


def _put_texts(memory: bytearray, *fields: tuple[int, int, str]) -> None:
    for at, size, text in fields:
        memory[at : at + size] = text.encode("ascii", "replace")[:size].ljust(size)
