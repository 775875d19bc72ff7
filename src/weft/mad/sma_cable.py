"""Answer CableInfo: a window into the memory of the module in a port."""

from __future__ import annotations

from weft.mad.devices import NONE, Devices
from weft.mad.modules import module_at
from weft.wire.cable_info import MEMORY_BYTES, MODULE_ADDRESS, WINDOW_BYTES, CableError, CableInfo
from weft.wire.modules import write_memory

_DATA = 64
_WINDOW = _DATA + 64 - WINDOW_BYTES


def get_cable_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    error, window = _window(devices, node, slot, modifier, CableInfo.unpack(smp, _DATA))
    smp[_WINDOW : _DATA + 64] = window.ljust(WINDOW_BYTES, b"\0")
    return error << 8


def _window(devices: Devices, node: int, slot: int, modifier: int, request: CableInfo) -> tuple[int, bytes]:
    requested = devices.port_slot(node, slot, modifier & 0xFF)
    if requested == NONE or requested == devices.first[node]:
        return CableError.INVALID_PORT, b""
    at, size = request.device_address, request.size_bytes
    if request.i2c_address != MODULE_ADDRESS:
        return CableError.INVALID_I2C_ADDRESS, b""
    if not 0 < size <= WINDOW_BYTES or at + size > MEMORY_BYTES:
        return CableError.INVALID_ADDRESS, b""
    module = module_at(devices, requested)
    if module is None:
        return CableError.NOT_CONNECTED, b""
    page = write_memory(module).get(request.page_number)
    if page is None:
        return CableError.INVALID_PAGE, b""
    return 0, page[at : at + size]
