"""Files for Wireshark, byte by byte; tests/interop has tshark read them."""

from __future__ import annotations

import io
import struct

import pytest

from weft.errors import ConfigError
from weft.wire.pcap import SNAP_BYTES, Erf, LinkType, PcapngWriter, PcapWriter

FRAME = b"a frame of 20 bytes."


def blocks(data: bytes) -> list[tuple[int, bytes]]:
    """Return kind and body of each block of a pcapng file."""
    result, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        assert struct.unpack_from("<I", data, at + length - 4)[0] == length
        assert length % 4 == 0
        result.append((kind, data[at + 8 : at + length - 4]))
        at += length
    return result


def test_pcap_has_nanoseconds():
    file = io.BytesIO()
    PcapWriter(file, LinkType.ETHERNET).write(FRAME, time_ps=3_000_000_012_345)
    data = file.getvalue()
    assert struct.unpack_from("<IHHiIII", data) == (0xA1B23C4D, 2, 4, 0, 0, SNAP_BYTES, 1)
    assert struct.unpack_from("<IIII", data, 24) == (3, 12, 20, 20)
    assert data[40:] == FRAME


def test_pcapng_has_picoseconds_and_names():
    file = io.BytesIO()
    writer = PcapngWriter(file)
    first, second = (writer.add_interface(name, LinkType.ETHERNET) for name in ("h1/1", "leaf3/17"))
    writer.write(FRAME + b"!", time_ps=5 << 32 | 7, interface=second)
    section, item, two, packet = blocks(file.getvalue())
    assert (first, second) == (0, 1)
    assert section[0] == 0x0A0D0D0A
    assert b"h1/1" in item[1]
    assert b"leaf3/17" in two[1]
    assert struct.pack("<HHB", 9, 1, 12) in two[1]  # if_tsresol: 10^-12
    assert packet[0] == 6
    assert struct.unpack_from("<IIIII", packet[1]) == (1, 5, 7, 21, 21)
    assert packet[1][20:] == FRAME + b"!\0\0\0"


@pytest.mark.parametrize("writer", [PcapWriter, lambda file, link_type: _one_interface(file, link_type)])
def test_infiniband_has_endaces_header(writer):
    file = io.BytesIO()
    writer(file, LinkType.ERF).write(FRAME, time_ps=1_500_000_000_000)
    record = file.getvalue()[file.getvalue().index(FRAME) - Erf.size :]
    assert struct.unpack_from("<Q", record)[0] == 3 << 31  # 1.5 s in units of 2^-32 s
    erf = Erf.unpack(record)
    assert (erf.type, erf.rlen, erf.wlen) == (21, 36, 20)


def _one_interface(file, link_type) -> PcapngWriter:
    writer = PcapngWriter(file)
    writer.add_interface("ib0", link_type)
    return writer


def test_an_interface_that_was_not_added_is_refused():
    with pytest.raises(ConfigError, match="interface 0 of 0: use a number from add_interface"):
        PcapngWriter(io.BytesIO()).write(FRAME, 0)
