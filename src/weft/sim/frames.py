"""Write the packets that crossed captured ports as frames for Wireshark: pcapng, with simulated time.

The payload is zeros, since the simulator has none; lengths, opcodes, sequence numbers, marks and checksums are right.
Queue pairs have numbers of their own, one for each end; an RDMA write goes to virtual address 0. The time of a frame is
that of its arrival at the other end of the cable, with cut-through of its first bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.sim.engine import Network
from weft.wire.format import Format
from weft.wire.headers import AETH, BTH, DETH, GRH, LRH, RETH, CNPPadding, Opcode, Syndrome
from weft.wire.opcodes import EXTENDED_HEADERS
from weft.wire.packet import Packet
from weft.wire.pcap import LinkType, PcapngWriter
from weft.wire.roce import UDP, Ethernet, EtherType, IPv4

CE = 3  # ECN: congestion experienced
_CAPABLE = 2  # ECN
_ROCE_DSCP = 26
_MAC = 0x02_00_00_00_00_00
_IP = 10 << 24
_SUFFIX = ".pcapng"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frames:
    """The captured packets of a run, in columns; addresses are LIDs, on Ethernet numbers of ports."""

    network: Network
    port: tuple[str, ...]  # names of the ports by which frames leave
    time_ps: NDArray[np.int64]
    leaves: NDArray[np.int64]  # index in `port`
    vl: NDArray[np.int64]
    sl: NDArray[np.int64]
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    source_qp: NDArray[np.int64]
    destination_qp: NDArray[np.int64]
    opcode: NDArray[np.int64]
    psn: NDArray[np.int64]
    payload_bytes: NDArray[np.int64]
    message_bytes: NDArray[np.int64]
    marked: NDArray[np.bool_]
    is_nak: NDArray[np.bool_]
    asks_ack: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.time_ps)


def check_capture_file(path: Path | str) -> None:
    """Refuse a name that is not of a capture."""
    if Path(path).suffix.lower() != _SUFFIX:
        raise ConfigError(f"{path} is not a capture: its suffix must be {_SUFFIX}")


def write_capture_of(path: Path | str, result: Any) -> None:
    """Write the captured packets of a result."""
    if result.frames is None:
        raise ConfigError(f"{path}: this run captured no port; name some in Options.capture")
    write_capture(path, result.frames)


def write_capture(path: Path | str, frames: Frames) -> None:
    """Write a pcapng file with an interface for each port."""
    check_capture_file(path)
    ethernet = frames.network in (Network.ROCE, Network.ROCE_V1)
    link = LinkType.ETHERNET if ethernet else LinkType.ERF
    try:
        with Path(path).open("wb") as file:
            writer = PcapngWriter(file)
            for name in frames.port:
                writer.add_interface(name, link)
            for row in range(len(frames)):
                writer.write(packet_of(frames, row).pack(), int(frames.time_ps[row]), int(frames.leaves[row]))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def packet_of(frames: Frames, row: int) -> Packet:
    """Return a captured packet with its headers."""
    bth = BTH(
        opcode=Opcode(int(frames.opcode[row])),
        dest_qp=int(frames.destination_qp[row]),
        psn=int(frames.psn[row]),
        a=int(frames.asks_ack[row]),
        **_notifications(frames, row),
    )
    headers = [*_below_bth(frames, row), bth, *(_extended(kind, frames, row) for kind in EXTENDED_HEADERS[bth.opcode])]
    return Packet(tuple(headers), bytes(int(frames.payload_bytes[row])))


def _notifications(frames: Frames, row: int) -> dict[str, int]:
    """Return the congestion bits of a BTH: RoCE marks the IP header instead, and a CNP has BECN by itself."""
    marked = int(frames.marked[row])
    if frames.opcode[row] == Opcode.CNP:
        return {"becn": 1}
    if frames.network in (Network.ROCE, Network.ROCE_V1):
        return {}
    return {"becn" if frames.opcode[row] == Opcode.RC_ACKNOWLEDGE else "fecn": marked}


def _below_bth(frames: Frames, row: int) -> list[Format]:
    source, destination = int(frames.source[row]), int(frames.destination[row])
    if frames.network is Network.INFINIBAND:
        return [LRH(vl=int(frames.vl[row]), sl=int(frames.sl[row]), dlid=destination, slid=source)]
    macs = {"destination": _MAC + destination, "source": _MAC + source}
    if frames.network is Network.ROCE_V1:
        gids = {"sgid": (0xFE80 << 112) + source, "dgid": (0xFE80 << 112) + destination}
        return [Ethernet(**macs, ether_type=EtherType.ROCE_V1), GRH(**gids)]
    ecn = CE if frames.marked[row] else _CAPABLE
    ip = IPv4(source=_IP + source, destination=_IP + destination, dscp=_ROCE_DSCP, ecn=ecn)
    port = 0xC000 | (int(frames.source_qp[row]) & 0x3FFF)
    return [Ethernet(**macs, ether_type=EtherType.IPV4), ip, UDP(source_port=port)]


def _extended(kind: type[Format], frames: Frames, row: int) -> Format:
    if kind is RETH:
        return RETH(va=0, r_key=1, dma_len=min(int(frames.message_bytes[row]), (1 << 31) - 1))
    if kind is AETH:
        syndrome = Syndrome.NAK_PSN_SEQUENCE_ERROR if frames.is_nak[row] else Syndrome.ACK_WITHOUT_CREDITS
        return AETH(syndrome=syndrome)
    if kind is DETH:
        return DETH(src_qp=int(frames.source_qp[row]))
    return CNPPadding(zeros=(0, 0))
