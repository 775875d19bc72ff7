"""Packets of a run as frames: the file agrees with the simulator's counters."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.frames import packet_of, write_capture
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Result
from weft.sim.traffic import Traffic
from weft.wire.headers import AETH, BTH, LRH, RETH, Opcode, Syndrome
from weft.wire.packet import Link, Packet, icrc_is_right
from weft.wire.roce import FRAMING_BYTES, IPv4

ROWS = [("h2", "h1", 30_000), ("h3", "h1", 30_000), ("h4", "h1", 9001), ("h2", "h1", 1)]


def routed(spec: str) -> Fabric:
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def capture(fabric: Fabric, columns: dict[str, Any] | None = None, **options: Any) -> Result:
    columns = {"operation": [0, 1, 2, 0], "qp": [0, 0, 0, 1]} if columns is None else columns
    traffic = Traffic.of(fabric, ROWS, **columns)
    return PacketEngine().run(fabric, traffic, Options(capture=("leaf1/1",), paths="table", **options))


@pytest.mark.parametrize("spec", ["star:hosts=4", "star:hosts=4,speed=400GbE"])
def test_frames_have_the_bytes_that_the_ports_count(spec: str):
    """On Ethernet without preamble, checksum and gap."""
    result = capture(routed(spec))
    frames = result.frames
    assert frames is not None
    packets = [packet_of(frames, row).pack() for row in range(len(frames))]
    link = Link.ETHERNET if "GbE" in spec else Link.INFINIBAND
    framing = FRAMING_BYTES if link is Link.ETHERNET else 0
    port = result.fabric.find_port("leaf1/1")
    for at, name in enumerate(frames.port):
        mine = [packet for packet, leaves in zip(packets, frames.leaves, strict=True) if leaves == at]
        slot = result.fabric.find_port(name).slot
        assert slot in (port.slot, port.peer.slot)
        assert len(mine) == result.use.xmit_packets[slot]
        assert sum(map(len, mine)) + framing * len(mine) == result.use.xmit_bytes[slot]
    for packet in packets:
        assert icrc_is_right(packet, link)
        assert Packet.parse(packet, link).pack() == packet
    assert (np.diff(frames.time_ps) >= 0).all()


def test_opcodes_and_numbers_follow_the_messages():
    frames = capture(routed("star:hosts=4")).frames
    assert frames is not None
    to_h1 = frames.leaves == frames.port.index("leaf1/1")
    for operation, first in ((Opcode.RC_RDMA_WRITE_FIRST, 6), (Opcode.RC_SEND_FIRST, 0)):
        rows = np.flatnonzero(to_h1 & (frames.opcode >= operation) & (frames.opcode <= operation + 2))
        assert frames.opcode[rows].tolist() == [first] + [first + 1] * 6 + [first + 2]
        assert frames.psn[rows].tolist() == list(range(8))
        assert frames.asks_ack[rows].tolist() == [False] * 7 + [True]
    packets = [packet_of(frames, row) for row in range(len(frames))]
    first_write = next(packet for packet in packets if packet[BTH].opcode == Opcode.RC_RDMA_WRITE_FIRST)
    assert first_write[RETH].dma_len == 30_000
    request = [packet for packet in packets if packet[BTH].opcode == Opcode.RC_RDMA_READ_REQUEST]
    assert [packet[RETH].dma_len for packet in request] == [9001]
    answers = [packet for packet in packets if Opcode.RC_RDMA_READ_RESPONSE_FIRST <= packet[BTH].opcode <= 0x10]
    assert sum(len(packet.payload) for packet in answers) == 9004  # with padding
    acks = [packet for packet in packets if packet[BTH].opcode == Opcode.RC_ACKNOWLEDGE]
    assert len(acks) == 4  # one for the read request, which the simulator acknowledges as well as answers
    assert {packet[LRH].dlid for packet in acks} < {packet[LRH].slid for packet in packets if packet not in acks}


def test_lost_packets_bring_naks():
    fabric = faults.degrade(routed("star:hosts=4"), "h2/1", 2e-5)
    result = capture(fabric, columns={"operation": 0}, ack_timeout_exponent=4)
    frames = result.frames
    assert frames is not None
    naks = [packet_of(frames, row)[AETH].syndrome for row in np.flatnonzero(frames.is_nak)]
    assert set(naks) == {Syndrome.NAK_PSN_SEQUENCE_ERROR}
    assert result.retransmitted.sum() > 0


def test_marks_of_switches_are_in_the_headers():
    fabric = routed("star:hosts=9,speed=400GbE")
    traffic = Traffic.of(fabric, [(f"h{i}", "h1", 1 << 20) for i in range(2, 10)])
    result = PacketEngine().run(fabric, traffic, Options(capture=("h1/1",)))
    frames = result.frames
    assert frames is not None
    is_data = frames.opcode < Opcode.RC_ACKNOWLEDGE
    assert (frames.marked & is_data).sum() == result.use.marked_packets.sum() > 0
    assert {packet_of(frames, row)[IPv4].ecn for row in np.flatnonzero(frames.marked & is_data)[:5]} == {3}
    assert (frames.opcode == Opcode.CNP).any()


def test_a_capture_changes_nothing_else():
    fabric = routed("star:hosts=4")
    traffic = Traffic.of(fabric, ROWS)
    digests = {
        PacketEngine().run(fabric, traffic, Options(capture=ports)).digest() for ports in ((), ("leaf1/1", "h2/1"))
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("spec", "options", "rule"),
    [
        ("star:hosts=4", {"capture": ("leaf1/9",)}, "has no cable"),
        ("star:hosts=4,speed=400GbE", {"capture": ("leaf1/1",), "network": "tcp"}, "not for tcp"),
        ("star:hosts=4", {"capture": ("leaf1/1",), "skip_tolerance": 0.1}, "skip tolerance"),
    ],
)
def test_captures_of_other_traffic_are_refused(spec: str, options: dict[str, Any], rule: str):
    fabric = routed(spec)
    with pytest.raises(ConfigError, match=rule):
        PacketEngine().run(fabric, Traffic.of(fabric, ROWS[:1]), Options(paths="table", **options))


def test_a_capture_has_the_suffix_of_pcapng(tmp_path: Path):
    frames = capture(routed("star:hosts=4")).frames
    assert frames is not None
    with pytest.raises(ConfigError, match=r"suffix must be \.pcapng"):
        write_capture(tmp_path / "run.pcap", frames)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("spec", ["star:hosts=4", "star:hosts=4,speed=400GbE"])
def test_wireshark_reads_the_same_opcodes_and_numbers(tmp_path: Path, spec: str):
    frames = capture(routed(spec)).frames
    assert frames is not None
    write_capture(tmp_path / "run.pcapng", frames)
    fields = (
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
        "infiniband.bth.destqp",
        "frame.interface_name",
        "_ws.malformed",
    )
    command = ["tshark", "-r", str(tmp_path / "run.pcapng"), "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seen = [line.split("\t") for line in done.stdout.splitlines()]
    columns = (frames.opcode, frames.psn, frames.destination_qp)
    assert [[int(cell, 0) for cell in line[:3]] for line in seen] == np.column_stack(columns).tolist()
    assert [line[3] for line in seen] == [frames.port[at] for at in frames.leaves.tolist()]
    assert not any(line[4] for line in seen if len(line) > 4)
