"""Captures of a lab's cable have every frame that the ports at its ends count, and leave no state when they end."""

from __future__ import annotations

import errno
import io
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.lab.capture import _Recording
from weft.lab.lab import Lab
from weft.lab.metered_paths import clean_path
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.walk import walk
from weft.sm.run import SubnetManager
from weft.wire.headers import BTH, DETH, LRH, Opcode
from weft.wire.packet import Link, Packet
from weft.wire.pcap import Erf
from weft.wire.smp import DirectedSmp

CABLE = ("leaf1/3", "spine1/1")
_PACKET_BLOCK, _HEAD_BYTES = 6, 28


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(weft.load("fat-tree:hosts=8,radix=4"), "captured") as up:
        with closing(IbsimCarrier("h1", up.sockname)) as carrier:
            SubnetManager(carrier).run(once=True)
        yield up


@contextmanager
def capture(lab: Lab, path, **how) -> Iterator[dict[str, int]]:
    """Capture at the cable while the context is open; its result is filled at the end."""
    ended, result = threading.Event(), dict[str, int]()

    def work() -> None:
        def progress(packets: int, most: int) -> None:
            if ended.is_set():
                raise InterruptedError

        with suppress(InterruptedError):
            result.update(lab.capture(CABLE[0], str(path), progress=progress, **how))

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: lab.subnet.devices.tap is not None or not thread.is_alive())
    yield result
    ended.set()
    thread.join(PATIENCE_S)


def frames(path) -> list[tuple[int, bytes]]:
    """Return the interface and the frame of each packet of a file, without Endace's header."""
    data, at, result = path.read_bytes(), 0, []
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == _PACKET_BLOCK:
            interface, _, _, size, _ = struct.unpack_from("<IIIII", data, at + 8)
            result.append((interface, data[at + _HEAD_BYTES + Erf.size : at + _HEAD_BYTES + size]))
        at += length
    return result


def sent(lab: Lab) -> list[int]:
    """Return the number of packets that each end of the cable sent."""
    devices, fabric = lab.subnet.devices, lab.fabric
    return [
        lab.server.call(lambda end=end: devices.counters(fabric.find_port(end).slot)[Counter.PORT_XMIT_PKTS])
        for end in CABLE
    ]


def test_mads_of_a_walk_are_all_there_once_each_way(lab, tmp_path):
    with closing(IbsimCarrier("h2", lab.sockname)) as carrier:
        walk(carrier)  # so that a kernel answers later SMPs
        before = sent(lab)
        with capture(lab, tmp_path / "x.pcapng"):
            walk(carrier)
        after = sent(lab)
    result = frames(tmp_path / "x.pcapng")
    assert [sum(interface == end for interface, _ in result) for end in (0, 1)] == [
        now - then for then, now in zip(before, after, strict=True)
    ]
    assert len(result) > 10
    for _, frame in result:
        packet = Packet.parse(frame, Link.INFINIBAND)
        assert (packet[LRH].vl, packet[BTH].dest_qp, packet[DETH].src_qp, packet[DETH].q_key) == (15, 0, 0, 0)
        assert packet.pack() == frame
        assert DirectedSmp.unpack(packet.payload).mgmt_class == 0x81


def lids(lab: Lab) -> dict[str, int]:
    """Return the LIDs of all hosts by name."""
    return {host.name: int(lab.fabric.tables.lid[host.port(1).slot]) for host in lab.fabric.hcas}


def behind(lab: Lab) -> list[str]:
    """Return the hosts to which packets of h1 cross the cable."""
    row = lab.fabric.tables.switch_row[lab.fabric.node_index["leaf1"]]
    return [host for host, lid in lids(lab).items() if lab.fabric.tables.lft[row, lid] == int(CABLE[0][-1])]


def test_data_packets_are_captured_as_the_link_carries_them_until_there_are_enough(lab, tmp_path):
    to = lids(lab)[behind(lab)[0]]
    headers = LRH(slid=lids(lab)["h1"], dlid=to), BTH(opcode=Opcode.UC_SEND_ONLY, dest_qp=77, p_key=0xFFFF)
    raw = Packet(headers, b"data").pack()
    with capture(lab, tmp_path / "x.pcapng", packets=2) as result:
        for _ in range(3):
            assert lab.send_packet("h1", raw).delivered
        wait_until(lambda: result)
    assert result == {"packets": 2, "bytes": 2 * len(raw)}
    assert frames(tmp_path / "x.pcapng") == [(0, raw)] * 2
    assert lab.subnet.devices.tap is None


def test_programs_share_no_memory_over_a_cable_that_is_captured(lab, tmp_path):
    devices, to = lab.subnet.devices, {host: lid for host, lid in lids(lab).items() if host != "h1"}
    slot = lab.fabric.find_port("h1/1").slot

    def clean() -> set[str]:
        return {host for host, lid in to.items() if clean_path(devices, slot, lid, 0, 0xFFFF, 256) is not None}

    assert clean() == {*to}
    with capture(lab, tmp_path / "x.pcapng"):
        assert clean() == {*to} - {*behind(lab)}
    assert clean() == {*to}


@pytest.mark.parametrize(
    ("port", "name", "says"),
    [
        ("leaf1", "x", "leaf1 has 4 cables: name the port of one"),
        ("leaf9/1", "x", "there is no"),
        ("leaf1/3", "no/such/folder/x", "cannot be written: No such file"),
        ("leaf1/3", "/dev/full", "cannot be written: No space left"),
    ],
)
def test_invalid_capture_is_refused(lab, tmp_path, port, name, says):
    with pytest.raises(ConfigError, match=says):
        lab.capture(port, str(tmp_path / name), seconds=1)
    assert lab.subnet.devices.tap is None


def test_one_capture_at_a_time(lab, tmp_path):
    with capture(lab, tmp_path / "x"), pytest.raises(ConfigError, match="another capture runs"):
        lab.capture("leaf1/4", str(tmp_path / "y"), seconds=1)


def test_a_disk_that_is_full_ends_the_capture_and_not_the_lab():
    class Full(io.BytesIO):
        def write(self, data, /):
            if self.tell() > 400:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    recording = _Recording.start(Full(), {1: "leaf1/3", 2: "spine1/1"}, None)
    for _ in range(3):
        recording.take(1, bytes(290))
    assert (recording.packets, recording.is_over, recording.failure) == (1, True, "No space left on device")
