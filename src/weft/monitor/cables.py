"""Read the modules of cables by CableInfo: identity, temperature, power.

    read_end(carrier, ports, slot)         one end, or the reason that it cannot be read
    Serials(carrier).read(reading)         the ports of each serial number, for a history

A switch answers for all its ports. Devices without CableInfo refuse it with a status; a subnet that does not answer at
all, as ibsim does, is not asked again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.mad.carrier import Address, Carrier, ask
from weft.monitor.columns import Column
from weft.monitor.poll import Reading
from weft.monitor.ports import Ports
from weft.wire.cable_info import WINDOW_BYTES, CableError, CableInfo
from weft.wire.mad import MadHeader, Method, Status
from weft.wire.modules import Module, read_module, read_serial
from weft.wire.smp import Smp, SmpAttribute

_DATA = 64
_TIMEOUT_MS, _RETRIES = 200, 2


class Unreadable(Exception):
    """The reason that a module cannot be read."""


class NoAnswer(Unreadable):
    """A device that does not answer CableInfo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CableEnd:
    """A port with a cable, and its module."""

    port: str
    peer: str  # empty: none
    module: Module | None
    reason: str  # why it cannot be read; empty: it was


def milliwatts_to_dbm(power_mw: float) -> float | None:
    """Return a power in dBm; None for no light."""
    return round(10 * math.log10(power_mw), 2) if power_mw > 0 else None


def read_end(carrier: Carrier, ports: Ports, slot: int) -> CableEnd:
    module, reason = None, ""
    try:
        module = read_module(_Memory(carrier, ports, slot).read)
    except Unreadable as error:
        reason = str(error)
    peer = int(ports.peer[slot])
    return CableEnd(port=ports.name(slot), peer=ports.name(peer) if peer >= 0 else "", module=module, reason=reason)


class _Memory:
    """The memory of the module in a port, read in windows that are kept."""

    def __init__(self, carrier: Carrier, ports: Ports, slot: int) -> None:
        self._carrier, self._windows = carrier, dict[tuple[int, int], bytes]()
        self._number = int(ports.number[slot])
        self._lid = int(ports.lid[slot])

    def read(self, page: int, address: int, size_bytes: int) -> bytes:
        half = address - address % 128  # a window does not cross into the other half
        begin = half + (address - half) // WINDOW_BYTES * WINDOW_BYTES
        found = b""
        while len(found) < address - begin + size_bytes:
            found += self._window(page, begin + len(found), half + 128)
        return found[address - begin :][:size_bytes]

    def _window(self, page: int, begin: int, end: int) -> bytes:
        key = page if begin >= 128 else 0, begin
        if key not in self._windows:
            self._windows[key] = self._get(*key, min(WINDOW_BYTES, end - begin))
        return self._windows[key]

    def _get(self, page: int, begin: int, size_bytes: int) -> bytes:
        if not self._lid:
            raise Unreadable("it has no LID: no subnet manager has configured it")
        request = CableInfo.pack(page_number=page, device_address=begin, size_bytes=size_bytes)
        smp = Smp.pack(
            method=Method.GET, attribute_id=SmpAttribute.CABLE_INFO, attribute_modifier=self._number, data=request
        )
        answer = ask(self._carrier, smp, Address(lid=self._lid), timeout_ms=_TIMEOUT_MS, retries=_RETRIES)
        if answer is None:
            raise NoAnswer("no answer")
        status = MadHeader.status.get(answer)
        if status & 0xFF:
            no_attribute = status & 0xFF == Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
            raise Unreadable("it has no CableInfo" if no_attribute else f"status {status:#x}")
        if status >> 8:
            raise Unreadable(_error_text(status >> 8))
        return CableInfo.unpack(answer, _DATA).data[:size_bytes]


def _error_text(code: int) -> str:
    return CableError(code).text if code in list(CableError) else f"error {code}"


class Serials:
    """The serial numbers in a subnet. A port is read again if its link has been down or leads elsewhere."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._known: dict[tuple[int, int], tuple[tuple[int, ...], str]] = {}  # GUID and port -> state, serial
        self._answers, self._has_answered = True, False

    def read(self, reading: Reading) -> dict[str, str]:
        """Return the ports of each serial number; a cable has it at both ends."""
        ports, known = reading.ports, dict[tuple[int, int], tuple[tuple[int, ...], str]]()
        by_serial: dict[str, list[str]] = {}
        guids = ports.fabric.nodes.guid[ports.fabric.ports.node]
        for slot in (ports.peer >= 0).nonzero()[0].tolist() if self._answers else ():
            key = int(guids[slot]), int(ports.number[slot])
            downs = int(reading.counters[slot, Column.LINK_DOWNED])
            state = int(ports.far_guid[slot]), int(ports.far_number[slot]), downs
            last = self._known.get(key)
            known[key] = last if last is not None and last[0] == state else (state, self._serial(ports, slot))
            if serial := known[key][1]:
                by_serial.setdefault(serial, []).append(ports.name(slot))
        self._known = known
        return {serial: " - ".join(sorted(names)) for serial, names in by_serial.items()}

    def _serial(self, ports: Ports, slot: int) -> str:
        if not self._answers:
            return ""
        serial = ""
        try:
            serial = read_serial(_Memory(self._carrier, ports, slot).read)
            self._has_answered = True
        except NoAnswer:
            self._answers = self._has_answered
        except Unreadable:
            self._has_answered = True
        return serial
