"""Unmodified programs over weft's own libibumad: messages of many MADs, many programs, second ports.

OpenSM's SA replies with tables that need RMPP, and saquery counts the records of weft's SA.
"""

from __future__ import annotations

import errno
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from weft.fabric.spec import load
from weft.lab import preload
from weft.mad import faults
from weft.mad.devices import MAD_BITS
from weft.wire.mad import Method
from weft.wire.smp import DirectedSmp, SmpAttribute

_SPEC = importlib.util.spec_from_file_location("interop_hosts", Path(__file__).with_name("hosts.py"))
HOSTS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(HOSTS)

pytestmark = pytest.mark.interop

TWO_PORTS = """\
vendid=0x2c9
devid=0xd2f2
sysimgguid=0x100
switchguid=0x100(100)
Switch	8 "S-0000000000000100"		# "sw1" enhanced port 0 lid 0 lmc 0
[1]	"H-0000000000000200"[1](201) 		# "h1" lid 0 4xHDR
[2]	"H-0000000000000200"[2](202) 		# "h1" lid 0 4xHDR
[3]	"H-0000000000000300"[1](301) 		# "h2" lid 0 4xHDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x200
caguid=0x200
Ca	2 "H-0000000000000200"		# "h1"
[1](201) 	"S-0000000000000100"[1]		# lid 0 lmc 0 "sw1" lid 0 4xHDR
[2](202) 	"S-0000000000000100"[2]		# lid 0 lmc 0 "sw1" lid 0 4xHDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x300
caguid=0x300
Ca	1 "H-0000000000000300"		# "h2"
[1](301) 	"S-0000000000000100"[3]		# lid 0 lmc 0 "sw1" lid 0 4xHDR
"""

PATIENT = """
import ctypes, sys
library = ctypes.CDLL(None)
assert library.umad_init() >= 0
port = library.umad_open_port(None, 0)
agent = library.umad_register(port, 0x81, 1, 0, None)
room = (ctypes.c_ubyte * (library.umad_size() + 256))()
mad = ctypes.addressof(room) + library.umad_size()
smp = bytes.fromhex(sys.argv[1])
ctypes.memmove(mad, smp, len(smp))
room[28:30] = b"\\xff\\xff"  # the LID: permissive
assert library.umad_send(port, agent, room, 256, 100, 0) >= 0
assert library.umad_recv(port, room, ctypes.byref(ctypes.c_int(256)), -1) == agent
print(int.from_bytes(bytes(room[4:8]), sys.byteorder), ctypes.string_at(mad, 256)[12:16].hex())
"""


@pytest.fixture
def hosts(tmp_path, peer) -> Iterator[Callable[[str], Any]]:
    peer("cc")
    library = preload.library()
    running: list[Any] = []

    def serve(spec: str) -> Any:
        running.append(HOSTS.Hosts(load(spec), tmp_path, library, peer))
        return running[-1]

    yield serve
    for item in running:
        item.close()


def test_saquery_gets_tables_that_are_longer_than_a_mad(hosts):
    lab = hosts("fat-tree:hosts=16,radix=8")
    nodes = len(lab.subnet.devices.nodes)
    with lab.opensm("h1"):
        for host in ("h1", "h7"):  # the SA's host, and another
            records = lab.run(host, "saquery")
            assert len(re.findall("NodeRecord dump", records)) == nodes
            assert set(re.findall(r"NodeDescription\.+(.*)", records)) == set(
                lab.subnet.devices.fabric.nodes.description
            )
        assert len(re.findall("PathRecord dump", lab.run("h7", "saquery", "-p"))) == nodes**2
        lids = re.findall(r"EndPortLid\.+(\d+)", lab.run("h7", "saquery", "PIR"))
        assert len(lids) == 16 + 6 * (8 + 1)
        item = lab.run("h7", "saquery", "PR", "--src-to-dst", "1:2")
        assert len(re.findall("PathRecord dump", item)) == 1  # and no record from the padding of its MAD


def test_a_table_comes_whole_over_a_cable_that_loses_segments(hosts):
    lab = hosts("fat-tree:hosts=16,radix=8")
    with lab.opensm("h1"):
        devices = lab.subnet.devices
        faults.degrade(devices, devices.fabric.find_port("h7/1").slot, 0.05 / MAD_BITS)
        result = lab.run("h7", "saquery", "-p", "-t", "10000")
        assert len(re.findall("PathRecord dump", result)) == len(devices.nodes) ** 2


def test_more_programs_than_ibsim_takes(hosts):
    lab = hosts("fat-tree:hosts=16,radix=8")
    with lab.opensm("h1"):
        running = [lab.start(f"h{n}", "saquery", "-x") for n in range(2, 17)]
        result = [item.communicate(timeout=PATIENCE_S)[0] for item in running]
    from_both_ends = 2 * len(lab.subnet.devices.fabric.links)
    assert [len(re.findall("LinkRecord", text)) for text in result] == [from_both_ends] * 15


def test_a_second_port_is_its_own(hosts, tmp_path):
    (tmp_path / "two-ports.net").write_text(TWO_PORTS)
    lab = hosts(str(tmp_path / "two-ports.net"))
    with lab.opensm("h2"):
        assert lab.run("h1", "ibstat", "-p").split() == ["0x0000000000000201", "0x0000000000000202"]
        lids = [re.search(r"Base lid: (\d+)", lab.run("h1", "ibstat", "mlx5_0", n))[1] for n in ("1", "2")]
        assert lids[0] != lids[1]
        for port in ("1", "2"):
            requests = lab.run("h1", "smpquery", "-P", port, "-D", "nodeinfo", f"0,{port}")
            assert re.search(r"LocalPort:\.+" + port, requests)  # the switch's port that the request entered


def test_an_unanswered_request_comes_back_as_timed_out(hosts):
    """A requester that waits receives it. smpquery polls exactly as long as the request may take: on a busy machine
    its own poll ends first, and it prints the error that was in errno before.
    """
    lab = hosts("fat-tree:hosts=8,radix=8")
    faults.pull_cable(lab.subnet.devices, lab.subnet.devices.fabric.find_port("h2/1").slot)
    smp = DirectedSmp.pack(
        method=Method.GET, attribute_id=SmpAttribute.NODE_INFO, hop_count=2, initial_path=b"\0\1\2", transaction_id=7
    )
    assert lab.run("h1", sys.executable, "-c", PATIENT, smp.hex()).split() == [str(errno.ETIMEDOUT), smp.hex()[24:32]]
    requests = lab.start("h1", "smpquery", "-t", "100", "-D", "nodeinfo", "0,1,2")
    requests.communicate(timeout=PATIENCE_S)
    assert requests.returncode != 0


def test_programs_end_with_their_lab(hosts):
    """As they would with their host. OpenSM without a lab would log errors until the disk is full."""
    lab = hosts("fat-tree:hosts=8,radix=8")
    with lab.opensm("h1") as running:
        lab.close()
        out, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1
    assert "the lab has ended" in out
    assert (lab.folder / "opensm.log").stat().st_size < 100_000


def test_is_sm_is_set_while_a_manager_runs_and_two_cannot_share_a_port(hosts):
    lab = hosts("fat-tree:hosts=8,radix=8")

    def is_sm() -> bool:
        return "IsSM" in lab.run("h3", "smpquery", "-D", "portinfo", "0,1,1", "1").replace("IsSMdisabled", "")

    assert not is_sm()
    with lab.opensm("h1"):
        assert is_sm()
        lab.run("h1", "opensm", "-o", "-f", str(lab.folder / "second.log"))
        assert "bind failed" in (lab.folder / "second.log").read_text()
    assert not is_sm()
