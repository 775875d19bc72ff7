"""weft's diags print the same as infiniband-diags on the same subnet: weft's own over libibumad, and ibsim.

The comparison leaves out data that no MAD carries: names and firmware of adapters, times, the order of nodes. It also
leaves out ibstatus, a shell script that reads the real /sys.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from weft.diags import tool
from weft.fabric.files import ibnetdiscover
from weft.fabric.files.naming import node_id
from weft.fabric.kinds import NodeKind
from weft.fabric.spec import load
from weft.lab import preload
from weft.mad.ibsim_client import IbsimCarrier

_SPEC = importlib.util.spec_from_file_location("interop_hosts", Path(__file__).with_name("hosts.py"))
HOSTS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(HOSTS)

pytestmark = pytest.mark.interop

FABRIC = "fat-tree:hosts=16,radix=8,speed=HDR"
# LIDs as OpenSM assigns them: 1 is the host where it runs, 2 its leaf.
ASKED = [
    "ibnetdiscover",
    "ibtracert 1 9",
    "ibtracert 1 2",
    "smpquery nodeinfo 1",
    "smpquery NI 2",
    "smpquery nodedesc 2",
    "smpquery portinfo 1 1",
    "smpquery portinfo 2 0",
    "smpquery portinfo 2 5",
    "smpquery -D portinfo 0,1 8",
    "smpquery switchinfo 2",
    "smpquery pkeys 1",
    "smpquery pkeys 2 3",
    "smpquery sl2vl 1",
    "smpquery sl2vl 2 1",
    "smpquery vlarb 1",
    "smpquery vlarb 2 1",
    "smpquery guidinfo 1",
    "smpquery -D nodeinfo 0,1,5",
]
COUNTERS = ["perfquery", "perfquery 2 1", "perfquery -x 2 1", "perfquery -a 2"]
ASK_ALL = """
import json, sys
from weft.diags import tool
from weft.mad.umad import UmadCarrier
carrier = UmadCarrier()
asked = [line.split() for line in json.load(sys.stdin)]
json.dump([tool(name)(carrier, arguments) for name, *arguments in asked], sys.stdout)
"""


def blocks(text: str) -> list[str]:
    """Return the blocks of nodes, sorted, without the time."""
    return sorted(block.strip() for block in re.sub(r"generated on .*", "", text).split("\n\n"))


def no_traffic(text: str) -> str:
    """Remove the values of traffic counters: the queries themselves advance them."""
    return re.sub(r"(Port\w*(?:Xmit|Rcv)(?:Data|Pkts):\.+)\d+", r"\1", text)


def no_driver(text: str) -> str:
    """Remove the lines of ibstat that only the driver knows."""
    return re.sub(r".*(CA '|CA type|Firmware version|Hardware version|Link layer).*\n", "", text)


@pytest.fixture
def hosts(tmp_path, peer):
    peer("cc")
    library = preload.library()
    result = HOSTS.Hosts(load(FABRIC), tmp_path, library, peer)
    yield result
    result.close()


def ask_on(lab: Any, host: str, asked: list[str]) -> list[str]:
    """Return the output of weft's tools on a host, all in one process with the preload."""
    running = lab.start(host, sys.executable, "-c", ASK_ALL, stdin=subprocess.PIPE)
    out, _ = running.communicate(json.dumps(asked), timeout=PATIENCE_S)
    assert running.returncode == 0, out[-2000:]
    result: list[str] = json.loads(out)
    return result


def test_on_a_host_of_weft_they_agree_with_infiniband_diags(hosts):
    requests = [*ASKED, *COUNTERS, "ibstat", "ibstat -p", "sminfo"]
    with hosts.opensm("h1"):
        real = [hosts.run("h1", *line.split()) for line in requests]
        ours = ask_on(hosts, "h1", requests)
    for line, theirs, mine in zip(requests, real, ours, strict=True):
        if line == "ibnetdiscover":
            assert blocks(mine) == blocks(theirs)
        elif line == "sminfo":
            assert re.sub(r"count \d+", "", mine) == re.sub(r"count \d+", "", theirs)
        else:
            assert no_driver(no_traffic(mine)) == no_driver(no_traffic(theirs)), line


@pytest.fixture
def on_ibsim(ibsim, tmp_path):
    """An ibsim with a fabric that OpenSM has brought up, and the ID of the host where OpenSM ran."""
    fabric = load(FABRIC)
    host = node_id(NodeKind.HCA, fabric.hcas[0].guid)
    running = ibsim(ibnetdiscover.to_text(fabric))
    where = {"OSM_CACHE_DIR": str(tmp_path), "OSM_TMP_DIR": str(tmp_path)}
    running.run("opensm", "-o", "-f", str(tmp_path / "opensm.log"), host=host, **where)
    return running, host


def test_on_ibsim_they_agree_with_infiniband_diags(on_ibsim):
    running, host = on_ibsim
    carrier = IbsimCarrier(host, running.name)
    for line in [*ASKED, *COUNTERS]:
        name, *arguments = line.split()
        theirs = running.run(name, *arguments, host=host)
        mine = tool(name)(carrier, arguments)
        if line == "ibnetdiscover":
            assert blocks(mine) == blocks(theirs)
        else:
            assert no_traffic(mine) == no_traffic(theirs), line
    carrier.close()
