"""Files for Wireshark and tcpdump: pcap, and pcapng with a name for each interface.

    with open("run.pcap", "wb") as file:
        pcap = PcapWriter(file, LinkType.ERF)
        pcap.write(packet.pack(), time_ps=1_500)

pcap has nanoseconds, pcapng the picoseconds of simulated time. An InfiniBand frame goes from its LRH to its VCRC. It
needs ERF, Endace's header, which the writers add: INFINIBAND is libpcap's link type for it, but Wireshark (4.0, and its
sources of 2026) does not support that number.
(draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng, and www.tcpdump.org/linktypes.html.)
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import BinaryIO

from weft.errors import ConfigError
from weft.wire.fields import bits
from weft.wire.format import Format

SNAP_BYTES = 65_535
_PS_PER_NS = 1_000
_NS_PER_S = 1_000_000_000


class LinkType(IntEnum):
    """The first header of a frame."""

    ETHERNET = 1
    ERF = 197  # Endace's header, then an InfiniBand frame
    INFINIBAND = 247  # an InfiniBand frame


class Erf(Format, size=16):
    """The header of Endace's extensible record format; type 21 is InfiniBand. Its time is little-endian, in 2^-32 s."""

    timestamp = bits(64)
    type = bits(8, default=21)
    flags = bits(8, default=4)  # records vary in length
    rlen = bits(16)
    lctr = bits(16)
    wlen = bits(16)


def _with_link_header(link_type: LinkType, frame: bytes, time_ps: int) -> bytes:
    """Return a frame with the header of its link type."""
    if link_type is not LinkType.ERF:
        return frame
    ticks = (time_ps << 32) // (_PS_PER_NS * _NS_PER_S)
    stamp = int.from_bytes(ticks.to_bytes(8, "little"), "big")
    return Erf.pack(timestamp=stamp, rlen=Erf.size + len(frame), wlen=len(frame)) + frame


class PcapWriter:
    """A pcap file with one link type, times in nanoseconds."""

    def __init__(self, file: BinaryIO, link_type: LinkType) -> None:
        self._file, self._link_type = file, link_type
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP_BYTES, link_type))

    def write(self, frame: bytes, time_ps: int) -> None:
        frame = _with_link_header(self._link_type, frame, time_ps)
        seconds, nanoseconds = divmod(time_ps // _PS_PER_NS, _NS_PER_S)
        self._file.write(struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)) + frame)


class PcapngWriter:
    """A pcapng file with named interfaces, one for each captured port; times in picoseconds."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._link_types, self._ps_per_unit = file, list[LinkType](), list[int]()
        self._block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + _option(4, b"weft"))

    def add_interface(self, name: str, link_type: LinkType, *, is_wall_clock: bool = False) -> int:
        """Declare an interface; return its number for `write`.

        is_wall_clock: times count from 1970 and are in nanoseconds, since picoseconds since then do not fit.
        """
        decimals = 9 if is_wall_clock else 12
        options = _option(2, name.encode()) + _option(9, bytes((decimals,))) + _option(0, b"")
        self._ps_per_unit.append(10 ** (12 - decimals))
        self._block(1, struct.pack("<HHI", link_type, 0, SNAP_BYTES) + options)
        self._link_types.append(link_type)
        return len(self._link_types) - 1

    def write(self, frame: bytes, time_ps: int, interface: int = 0) -> None:
        if not 0 <= interface < len(self._link_types):
            raise ConfigError(f"interface {interface} of {len(self._link_types)}: use a number from add_interface")
        frame = _with_link_header(self._link_types[interface], frame, time_ps)
        units = time_ps // self._ps_per_unit[interface]
        head = struct.pack("<IIIII", interface, units >> 32, units & 0xFFFFFFFF, len(frame), len(frame))
        self._block(6, head + frame + bytes(-len(frame) % 4))

    def _block(self, kind: int, body: bytes) -> None:
        length = 12 + len(body)
        self._file.write(struct.pack("<II", kind, length) + body + struct.pack("<I", length))


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
