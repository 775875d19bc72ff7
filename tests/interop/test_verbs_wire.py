"""tshark and scapy read the packets of queue pairs: captured live traffic over UDP sockets."""

from __future__ import annotations

import subprocess
import warnings

import pytest
from tests.patience import PATIENCE_S
from tests.verbs.wires import Host, connect, loopback_address

from weft.verbs.carriers.roce.carrier import RoceCarrier
from weft.verbs.enums import ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca.segment import Service
from weft.wire.headers import Opcode

_GUESSES = ("rpcordma", "smb_direct", "smc", "nvme-rdma", "lnet", "iser")  # tshark's heuristic dissectors of payloads
W = ibv_wr_opcode


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A capture of a SEND of three packets, a WRITE with immediate, a READ, an atomic, and UC, on one socket pair."""
    path = tmp_path_factory.mktemp("wire") / "live.pcap"
    with path.open("wb") as file:
        carriers = RoceCarrier(loopback_address(5), capture=file), RoceCarrier(loopback_address(6))
        try:
            a, b = (Host.over(carrier) for carrier in carriers)
            to_b, to_a = (carriers[1].gid, carriers[0].gid), (carriers[0].gid, carriers[1].gid)
            mine, theirs = connect(a, b, to_b, to_a)
            b.receive(theirs, 1, 0, 3000)
            b.receive(theirs, 2, 0, 0)
            a.send(mine, 1, 0, 2500)
            a.send(mine, 2, 0, 100, W.IBV_WR_RDMA_WRITE_WITH_IMM, va=b.at, rkey=b.region.key, immediate=0x1234)
            a.send(mine, 3, 0, 1500, W.IBV_WR_RDMA_READ, va=b.at, rkey=b.region.key)
            a.send(mine, 4, 0, 8, W.IBV_WR_ATOMIC_CMP_AND_SWP, va=b.at, rkey=b.region.key, compare=1, swap=2)
            unreliable, far = connect(a, b, to_b, to_a, Service.UC)
            b.receive(far, 3, 0, 100)
            a.send(unreliable, 5, 0, 50)
            for _ in range(50):
                a.adapter.progress()
                b.adapter.progress()
            assert [status for _, status in a.done()] == [int(ibv_wc_status.IBV_WC_SUCCESS)] * 5
        finally:
            for carrier in carriers:
                carrier.close()
    return path


def test_tshark_sees_every_operation_in_order(peer, capture):
    switched_off = [word for guess in _GUESSES for word in ("--disable-protocol", guess)]
    fields = ["-e", "infiniband.bth.opcode", "-e", "infiniband.bth.destqp", "-e", "_ws.malformed"]
    command = [peer("tshark"), "-r", str(capture), "-T", "fields", *fields, *switched_off]
    output = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    rows = [line.split("\t") for line in output.splitlines()]
    assert not [row for row in rows if len(row) > 2 and row[2]]
    opcodes = [Opcode(int(row[0], 0)) for row in rows]
    sent = [item for item in opcodes if "ACKNOWLEDGE" not in item.name and "RESPONSE" not in item.name]
    assert sent == [
        Opcode.RC_SEND_FIRST,
        Opcode.RC_SEND_MIDDLE,
        Opcode.RC_SEND_LAST,
        Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
        Opcode.RC_RDMA_READ_REQUEST,
        Opcode.RC_COMPARE_SWAP,
        Opcode.UC_SEND_ONLY,
    ]
    answers = [item for item in opcodes if item not in sent]
    assert {Opcode.RC_ACKNOWLEDGE, Opcode.RC_ATOMIC_ACKNOWLEDGE} <= set(answers)
    reads = [Opcode.RC_RDMA_READ_RESPONSE_FIRST, Opcode.RC_RDMA_READ_RESPONSE_LAST]
    assert [item for item in answers if "READ" in item.name] == reads


def test_scapy_finds_every_icrc_right(capture):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("scapy.contrib.roce", reason="scapy is not installed: pip install scapy")
        from scapy.contrib.roce import BTH
        from scapy.utils import rdpcap

        frames = rdpcap(str(capture))
    assert len(frames) >= 12
    for frame in frames:
        raw = bytes(frame)
        again = frame.copy()
        again[BTH].icrc = None
        assert bytes(again)[-4:] == raw[-4:]
