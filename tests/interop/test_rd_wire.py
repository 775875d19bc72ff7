"""tshark and scapy read reliable datagrams off a wire: live traffic over UDP sockets, captured.

tshark's InfiniBand dissector (4.0) mistakes these opcodes for Mellanox's dynamically connected transport and skips 8
bytes after the BTH that do not exist. Its dissector of Omni-Path, whose headers above the link layer are the same, does
not. So the test rewrites the packets with the link header of Omni-Path. (That dissector has a bug too: it reads the
AETH of an acknowledgement at the position of the RDETH, unlike its own list of headers, the standard and Linux.)
"""

from __future__ import annotations

import struct
import subprocess
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S
from tests.verbs.paths import Q_KEY, path, queue_pair, send
from tests.verbs.wires import Host, loopback_address

from weft.verbs.carriers.roce.carrier import RoceCarrier
from weft.verbs.enums import ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca.segment import NAK, RNR_NAK, Nak
from weft.wire.format import Format
from weft.wire.headers import AETH, BTH, DETH, LRH, RDETH, RETH, AtomicAckETH, AtomicETH, ImmDt, Opcode
from weft.wire.packet import Link, Packet
from weft.wire.pcap import Erf, LinkType

pytestmark = pytest.mark.interop
W = ibv_wr_opcode
OK = int(ibv_wc_status.IBV_WC_SUCCESS)
ERF_OMNI_PATH = 29
RNR_CODE = 14
# tshark's names for the fields of each header.
SHOWN: dict[type[Format], dict[str, str]] = {
    BTH: {"opcode": "opcode", "psn": "psn", "dest_qp": "destqp", "p_key": "p_key", "a": "a", "pad_cnt": "padcnt"},
    RDETH: {"ee_context": "eecnxt"},
    DETH: {"q_key": "q_key", "src_qp": "srcqp"},
    RETH: {"va": "va", "r_key": "r_key", "dma_len": "dmalen"},
    AETH: {"syndrome": "syndrome", "msn": "msn"},
    AtomicETH: {"va": "va", "r_key": "r_key", "swap_dt": "swapdt", "cmp_dt": "cmpdt"},
    AtomicAckETH: {"orig_rem_dt": "origremdt"},
    ImmDt: {"imm_dt": "data"},
}
NAMES = [f"opa.{form.__name__.lower()}.{name}" for form, fields in SHOWN.items() for name in fields.values()]


IN_ORDER = [
    Opcode.RD_SEND_FIRST,
    Opcode.RD_SEND_MIDDLE,
    Opcode.RD_SEND_LAST,
    Opcode.RD_ACKNOWLEDGE,
    Opcode.RD_SEND_ONLY_WITH_IMMEDIATE,
    Opcode.RD_ACKNOWLEDGE,
    Opcode.RD_RDMA_WRITE_FIRST,
    Opcode.RD_RDMA_WRITE_MIDDLE,
    Opcode.RD_RDMA_WRITE_LAST,
    Opcode.RD_ACKNOWLEDGE,
    Opcode.RD_RDMA_READ_REQUEST,
    Opcode.RD_RDMA_READ_RESPONSE_FIRST,
    Opcode.RD_RDMA_READ_RESPONSE_MIDDLE,
    Opcode.RD_RDMA_READ_RESPONSE_LAST,
    Opcode.RD_COMPARE_SWAP,
    Opcode.RD_ATOMIC_ACKNOWLEDGE,
    Opcode.RD_FETCH_ADD,
    Opcode.RD_ATOMIC_ACKNOWLEDGE,
    Opcode.RD_RDMA_WRITE_ONLY_WITH_IMMEDIATE,  # the receiver is not ready, so the operation is suspended
    Opcode.RD_ACKNOWLEDGE,
    Opcode.RD_RESYNC,
    Opcode.RD_ACKNOWLEDGE,
]
REFUSED = [Opcode.RD_SEND_ONLY, Opcode.RD_ACKNOWLEDGE, Opcode.RD_RESYNC, Opcode.RD_ACKNOWLEDGE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    capture: Path
    packets: list[Packet]
    ee: int
    far_ee: int
    senders: tuple[int, int]
    receiver: int


@pytest.fixture(scope="module")
def traffic(tmp_path_factory):
    """A capture of all operations on one path: one to a receiver that is not ready at first, one with a wrong Q_Key."""
    capture = tmp_path_factory.mktemp("wire") / "rd.pcap"
    with capture.open("wb") as file:
        carriers = RoceCarrier(loopback_address(7), capture=file), RoceCarrier(loopback_address(8))
        try:
            a, b = (Host.over(carrier) for carrier in carriers)
            for _ in range(5):
                queue_pair(b)  # so that no two numbers are the same
            gids = carriers[1].gid, carriers[0].gid
            ee, far_ee = path(a, b, gids, gids[::-1], timeout=0)  # none is lost, and none may be sent twice
            mine, other, theirs = queue_pair(a), queue_pair(a), queue_pair(b, min_rnr_timer=RNR_CODE)
            present = {"va": b.at, "rkey": b.region.key}
            b.receive(theirs, 1, 0, 3000)
            b.receive(theirs, 2, 0, 3000)
            send(a, mine, ee, theirs, 1, 0, 2501)
            send(a, mine, ee, theirs, 2, 0, 100, W.IBV_WR_SEND_WITH_IMM, immediate=0x1234)
            send(a, mine, ee, theirs, 3, 0, 3000, W.IBV_WR_RDMA_WRITE, **present)
            send(a, mine, ee, theirs, 4, 0, 3000, W.IBV_WR_RDMA_READ, **present)
            send(a, mine, ee, theirs, 5, 0, 8, W.IBV_WR_ATOMIC_CMP_AND_SWP, compare=1, swap=2, **present)
            send(a, mine, ee, theirs, 6, 0, 8, W.IBV_WR_ATOMIC_FETCH_AND_ADD, swap=2, **present)
            send(a, mine, ee, theirs, 7, 0, 100, W.IBV_WR_RDMA_WRITE_WITH_IMM, immediate=7, **present)
            assert ended(a, b, 6) == [(number, OK) for number in range(1, 7)]
            b.receive(theirs, 3, 0, 0)
            assert ended(a, b, 1) == [(7, OK)]
            send(a, other, ee, theirs, 8, 0, 10, q_key=Q_KEY + 1)
            assert ended(a, b, 1) == [(8, int(ibv_wc_status.IBV_WC_REM_INV_RD_REQ_ERR))]
        finally:
            for carrier in carriers:
                carrier.close()
    senders = mine.number, other.number
    result = packets(capture)
    return Traffic(
        capture=capture, packets=result, ee=ee.number, far_ee=far_ee.number, senders=senders, receiver=theirs.number
    )


def ended(a: Host, b: Host, count: int) -> list[tuple[int, int]]:
    """Run both adapters until there are this many completions and the packets in flight have arrived; return them."""
    done: list[tuple[int, int]] = []
    until_s = time.monotonic() + PATIENCE_S
    while len(done) < count and time.monotonic() < until_s:
        a.adapter.progress()
        b.adapter.progress()
        done += a.done()
    for _ in range(20):
        a.adapter.progress()
        b.adapter.progress()
    return done


def packets(capture: Path) -> list[Packet]:
    raw, at, result = capture.read_bytes(), 24, []
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at + 8)
        result.append(Packet.parse(raw[at + 16 : at + 16 + length], Link.ETHERNET))
        at += 16 + length
    return result


def tshark(program: str, capture: Path, names: list[str]) -> list[list[str]]:
    """Return these fields of every packet."""
    fields = [word for name in names for word in ("-e", name)]
    command = [program, "-r", str(capture), "-T", "fields", *fields]
    output = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    return [line.split("\t") for line in output.splitlines()]


def test_tshark_sees_every_operation_in_order(peer, traffic):
    rows = tshark(peer("tshark"), traffic.capture, [f"infiniband.bth.{name}" for name in ("opcode", "psn", "destqp")])
    opcodes = [Opcode(int(row[0], 0)) for row in rows]
    assert opcodes[: len(IN_ORDER)] == IN_ORDER
    assert opcodes[-4:] == REFUSED
    answered = {int(row[2], 0) for row, opcode in zip(rows, opcodes, strict=True) if opcode == Opcode.RD_ACKNOWLEDGE}
    assert answered == set(traffic.senders)


def test_tshark_finds_every_header_where_it_should_be(peer, traffic, tmp_path):
    """tshark shows every field of every header, and no field of a header that the packet lacks."""
    rows = tshark(peer("tshark"), omni_path(traffic.packets, tmp_path / "opa.pcap"), [*NAMES, "_ws.malformed"])
    assert len(rows) == len(traffic.packets)
    for packet, row in zip(traffic.packets, rows, strict=True):
        output = {name: int(value, 0) for name, value in zip(NAMES, row, strict=False) if value}
        expected = {
            f"opa.{form.__name__.lower()}.{name}": int(getattr(packet[form], field))
            for form, fields in SHOWN.items()
            for field, name in fields.items()
            if form in packet
        }
        if packet[BTH].opcode == Opcode.RD_ACKNOWLEDGE and "opa.rdeth.eecnxt" not in output:
            expected |= {"opa.aeth.syndrome": 0, "opa.aeth.msn": expected.pop("opa.rdeth.eecnxt")}
        assert output == expected
        assert row[len(NAMES) :] in ([], [""])


def omni_path(found: list[Packet], capture: Path) -> Path:
    """Write the same packets with the link header of Omni-Path."""
    with capture.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65_535, LinkType.ERF))
        for packet in found:
            at = packet.kinds.index(BTH)
            frame = Packet((LRH(dlid=4, slid=9), *packet.headers[at:]), packet.payload).pack()
            record = Erf(type=ERF_OMNI_PATH, rlen=Erf.size + len(frame), wlen=len(frame)).raw + frame
            file.write(struct.pack("<IIII", 0, 0, len(record), len(record)) + record)
    return capture


def test_headers_say_who_sends_to_whom_by_which_end(traffic):
    requests = [packet for packet in traffic.packets if DETH in packet]
    assert {packet[RDETH].ee_context for packet in requests} == {traffic.far_ee}
    assert {packet[BTH].dest_qp for packet in requests} == {traffic.receiver}
    assert {(packet[DETH].src_qp, packet[DETH].q_key) for packet in requests} == {
        (traffic.senders[0], Q_KEY),
        (traffic.senders[1], Q_KEY + 1),
    }
    answers = [packet for packet in traffic.packets if DETH not in packet]
    assert {packet[RDETH].ee_context for packet in answers} == {traffic.ee}
    syndromes = {packet[AETH].syndrome for packet in answers if AETH in packet}
    assert {RNR_NAK | RNR_CODE, NAK | Nak.INVALID_RD_REQUEST} <= syndromes


def test_scapy_finds_every_icrc_right(traffic):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("scapy.contrib.roce", reason="scapy is not installed: pip install scapy")
        from scapy.contrib import roce
        from scapy.utils import rdpcap

        frames = rdpcap(str(traffic.capture))
    assert len(frames) == len(traffic.packets)
    for frame in frames:
        again = frame.copy()
        again[roce.BTH].icrc = None
        assert bytes(again)[-4:] == bytes(frame)[-4:]
