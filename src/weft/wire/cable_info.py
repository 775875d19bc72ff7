"""CableInfo, the vendor attribute 0xFF60 of subnet management: 48 bytes of the memory of a cable's module.

The layout is that of Linux's mlx4 driver, which reads the module of its own port by this attribute. A Get names an I2C
address (0x50 is the module), a page and a byte in it; the modifier is the port of the node, as in PortInfo. Errors are
in the upper byte of the MAD's status, as `CableError`. What the memory means is in `weft.wire.modules`.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from enum import IntEnum

from weft.wire.fields import bits, octets, reserved
from weft.wire.format import Format

MODULE_ADDRESS = 0x50  # I2C
WINDOW_BYTES = 48
MEMORY_BYTES = 256  # addressable at once: 128 that all pages share, and 128 of a page


class CableInfo(Format, size=64):
    """The attribute 0xFF60."""

    i2c_address = bits(8, default=MODULE_ADDRESS)
    page_number = bits(8)
    device_address = bits(16)
    _ = reserved(16)
    size_bytes = bits(16)
    _ = reserved(64)
    data = octets(WINDOW_BYTES)


class CableError(IntEnum):
    """The reason that a module cannot be read."""

    INVALID_PORT = 1
    NOT_SUPPORTED = 2
    NOT_CONNECTED = 3
    NO_EEPROM = 4
    INVALID_PAGE = 5
    INVALID_ADDRESS = 6
    INVALID_I2C_ADDRESS = 7
    QSFP_VIOLATION = 8
    I2C_BUSY = 9

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    CableError.INVALID_PORT: "invalid port",
    CableError.NOT_SUPPORTED: "not supported by this port",
    CableError.NOT_CONNECTED: "no cable is connected",
    CableError.NO_EEPROM: "the cable has no memory",
    CableError.INVALID_PAGE: "no such page",
    CableError.INVALID_ADDRESS: "address and size do not lie within a page",
    CableError.INVALID_I2C_ADDRESS: "no such I2C address",
    CableError.QSFP_VIOLATION: "a cable ignores its module select signal",
    CableError.I2C_BUSY: "the I2C bus is busy",
}
