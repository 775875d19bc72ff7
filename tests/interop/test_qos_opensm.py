"""weft reads OpenSM's options for quality of service and sets the same tables and levels.

On ibsim smpquery reads back OpenSM's tables; a lab also keeps those of port 0 of switches and the high-priority limits,
which ibsim does not keep.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.errors import FileError
from weft.fabric.files import ibnetdiscover
from weft.fabric.kinds import NodeKind
from weft.ids import Gid
from weft.lab.lab import Lab
from weft.sm.conf.options import read_options
from weft.sm.qos.policy import PortIdentity, parse_policy
from weft.sm.qos.tables import fill_qos
from weft.wire.port_info import PortInfo
from weft.wire.smp import SwitchInfo

pytestmark = pytest.mark.interop

_NUMBER = itertools.count()
NET = """
Switch\t4 "S1"
[1]\t"H1"[1]
[2]\t"H2"[1]
[3]\t"S2"[3]
[4]\t"S2"[4]

Switch\t4 "S2"
[1]\t"H3"[1]
[3]\t"S1"[3]
[4]\t"S1"[4]

Hca\t2 "H1"
[1]\t"S1"[1]

Hca\t1 "H2"
[1]\t"S1"[2]

Hca\t1 "H3"
[1]\t"S2"[1]
"""
WAYS = {"H1": "0", "S1": "0,1", "H2": "0,1,2", "S2": "0,1,3", "H3": "0,1,3,1"}  # from H1, port by port
VLS = {"VL0": 1, "VL0-1": 2, "VL0-3": 3, "VL0-7": 4, "VL0-14": 5}
SETTINGS = """
qos TRUE
qos_high_limit 6
qos_vlarb_high 0:4,3:7
qos_vlarb_low 0:0,1:64,2:128,9:192,4:0,5:64,14:64,7:255,6:11,13:17
qos_sl2vl 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
qos_ca_sl2vl 14,13,12,11,10,9,8,7,6,5,4,3,2,1,0,7
qos_ca_vlarb_high 1:9,14:8
qos_sw0_high_limit 9
qos_sw0_sl2vl 5,4,5,5,5,5,5,5,5,5,5,5,5,5,5,6
qos_swe_vlarb_low 3:33,12:44
"""


class Managed:
    """A lab, and OpenSM on its host h1."""

    def __init__(self, spec: str, folder: Path, opensm: str) -> None:
        self.lab = Lab(weft.load(spec), f"qos-{next(_NUMBER)}-{folder.name[-12:]}")
        self.folder, self.log = folder, folder / "osm.log"
        self.words = [opensm, "-f", str(self.log), "-D", "0x83", "-d", "2"]
        self.caches = {"OSM_CACHE_DIR": str(folder), "OSM_TMP_DIR": str(folder)}
        self.running: subprocess.Popen[str] | None = None

    def bring_up(self, *arguments: str) -> None:
        self.lab.run("h1", *self.words, "-o", *arguments, folder=self.folder, timeout_s=PATIENCE_S, **self.caches)
        assert "SUBNET UP" in self.log.read_text()

    def keep_up(self, *arguments: str) -> None:
        words = [*self.words, "-s", "0", *arguments]
        self.running = self.lab.start("h1", *words, folder=self.folder, **self.caches)
        wait_until(
            lambda: self.log.exists() and "SUBNET UP" in self.log.read_text(),
            lambda: f"{self.log.read_text()[-1500:] if self.log.exists() else ''}\nSUBNET UP",
        )

    def end(self) -> None:
        if self.running is not None:
            self.running.terminate()
            self.running.wait(timeout=PATIENCE_S)
        self.lab.stop()


@pytest.fixture
def managed(peer, tmp_path) -> Iterator[Callable[[str], Managed]]:
    result: list[Managed] = []

    def start(spec: str) -> Managed:
        result.append(Managed(spec, tmp_path, peer("opensm")))
        result[-1].lab.__enter__()
        return result[-1]

    yield start
    for item in result:
        item.end()


def test_the_template_that_opensm_writes_is_read_without_a_remark(peer, tmp_path):
    """All its names are known; options that weft does not use have OpenSM's default."""
    path = tmp_path / "opensm.conf"
    subprocess.run([peer("opensm"), "-c", str(path)], capture_output=True, check=True, cwd=tmp_path)
    options = read_options(path)
    assert options.ignored == ()
    assert (options.sminfo_polling_timeout_ms, options.max_wire_smps, options.routing_engine) == (10_000, 4, ("auto",))


def rows_of(text: str) -> list[list[int]]:
    """Return the numbers of lines such as `ports: in 1, out 2: | 0| 1|` or `VL    : |0x0 |0x1 |`."""
    return [
        [int(n, 0) for n in re.findall(r"\w+", line.partition("|")[2])] for line in text.splitlines() if "|" in line
    ]


@pytest.mark.parametrize("max_op_vls", [2, 4])
def test_smpquery_reads_back_what_weft_would_have_written(ibsim, tmp_path, max_op_vls):
    (tmp_path / "osm.conf").write_text(f"{SETTINGS}max_op_vls {max_op_vls}\n")
    sim = ibsim(NET)
    fabric = ibnetdiscover.read(tmp_path / "net")
    caches = {"OSM_CACHE_DIR": str(tmp_path), "OSM_TMP_DIR": str(tmp_path)}
    for _ in range(2):  # the first sweep writes tables for the number of lanes before its own change of it
        sim.run("opensm", "-o", "-F", "osm.conf", "-f", str(tmp_path / "osm.log"), host="H1", **caches)

    def ask(what: str, slot: int) -> str:
        way = WAYS[fabric.nodes.name[fabric.ports.node[slot]]]
        return sim.run("smpquery", "-D", what, way, str(fabric.ports.number[slot]), host="H1")

    cabled = np.flatnonzero(fabric.ports.peer >= 0)
    vls, caps = np.zeros((2, len(fabric.ports)), np.uint8)
    arbitration = {}
    for slot in cabled.tolist():
        vls[slot] = VLS[re.search(r"OperVLs:\.*(\S+)", ask("portinfo", slot))[1]]
        arbitration[slot] = ask("vlarb", slot)
        caps[slot] = int(re.search(r"LowCap (\d+) HighCap \1", arbitration[slot])[1])
    assert set(vls[cabled]) == {max_op_vls}

    tables = fabric.tables.like()
    qos = read_options(tmp_path / "osm.conf").port_qos
    assert fill_qos(tables, fabric, qos, operational_vls=vls, vlarb_high_cap=caps, vlarb_low_cap=caps) == ()
    for slot in cabled.tolist():
        node, number = int(fabric.ports.node[slot]), int(fabric.ports.number[slot])
        low, high = (table[: caps[slot]].T.tolist() for table in tables.vl_arbitration[slot])
        assert rows_of(arbitration[slot]) == [*low, *high]
        width = int(fabric.nodes.n_ports[node]) + 1
        rows = tables.first_pair[node] + number
        if fabric.nodes.kind[node] == NodeKind.SWITCH:
            rows = rows + width * np.arange(width)
        assert rows_of(ask("sl2vl", slot))[1:] == np.atleast_2d(tables.sl2vl[rows]).tolist()


def test_a_lab_holds_after_opensm_what_weft_would_have_written(managed, tmp_path):
    """Every table of every port with a cable, and of port 0 of switches."""
    path = tmp_path / "opensm.conf"
    path.write_text(SETTINGS)
    item = managed("fat-tree:hosts=8,radix=4")
    for info in item.lab.subnet.devices.switch_info.values():
        SwitchInfo.enhanced_port_0.set(info, 1)  # else OpenSM leaves port 0 alone
    item.bring_up("-F", str(path))
    fabric, port_info = item.lab.fabric, item.lab.subnet.devices.port_info

    def column(field: Any) -> NDArray[np.uint8]:
        return np.array([0 if info is None else field.get(info) for info in port_info], np.uint8)

    expected = fabric.tables.like()
    fill_qos(
        expected,
        fabric,
        read_options(path).port_qos,
        operational_vls=column(PortInfo.operational_vls),
        vlarb_high_cap=column(PortInfo.vl_arbitration_high_cap),
        vlarb_low_cap=column(PortInfo.vl_arbitration_low_cap),
    )
    is_switch = fabric.nodes.kind[fabric.ports.node] == NodeKind.SWITCH
    present = (fabric.ports.peer >= 0) | is_switch & (fabric.ports.number == 0)
    for table in ("vl_arbitration", "vl_high_limit"):
        assert np.array_equal(getattr(fabric.tables, table)[present], getattr(expected, table)[present]), table
    assert set(expected.vl_high_limit[present]) == {6, 9}
    for node in range(len(fabric.nodes)):
        slots = int(fabric.first_port[node]) + np.arange(int(fabric.nodes.n_ports[node]) + 1)
        shape = (len(slots),) * (2 if fabric.nodes.kind[node] == NodeKind.SWITCH else 1)
        rows = (int(fabric.tables.first_pair[node]) + np.arange(np.prod(shape)).reshape(shape))[..., present[slots]]
        assert np.array_equal(fabric.tables.sl2vl[rows], expected.sl2vl[rows]), fabric.nodes.name[node]


POLICY = """
port-groups
    port-group   # by GUID
        name: Storage Targets
        port-guid: {h3}-{h4}
    end-port-group
    port-group
        name: by name
        port-name: "{h5_name}/P1"
    end-port-group
    port-group
        name: SM
        node-type: SELF
    end-port-group
end-port-groups
qos-setup
end-qos-setup
qos-levels
    qos-level
        name: default
        sl: 1
    end-qos-level
    qos-level
        name: whole set
        use: everything there is # but this
        sl: 2
        mtu-limit: 3
        rate-limit: 3
        packet-life: 9
    end-qos-level
    qos-level
        name: low
        sl: 3
    end-qos-level
end-qos-levels
qos-match-rules
    qos-match-rule
        qos-class: 7-9,11
        qos-level-name: WHOLESET
    end-qos-match-rule
    qos-match-rule
        source: sm
        destination: storage targets
        qos-level-name: low
    end-qos-match-rule
    qos-match-rule
        source: By Name
        qos-level-name: low
    end-qos-match-rule
    qos-match-rule
        service-id: 0x77, 9000-8000
        pkey: 0x7fff
        qos-level-name: whole set
    end-qos-match-rule
end-qos-match-rules
qos-ulps
    default : 9
    sdp, port-num 30000 : 4
    sdp : 5
    rds : 6
    iser, port-num 900-0x400 : 7
    any, source-target-port-guid {h6}, {h7} : 8
    srp, target-port-guid {h5} : 10
    any, source-port-guid {h7} : 11
    ipoib : 12
end-qos-ulps
"""


QUERIES: list[tuple[str, str, dict[str, int]]] = [
    ("h8", "h4", {}),
    ("h8", "h4", {"qos_class": 8}),
    ("h8", "h4", {"qos_class": 10}),
    ("h1", "h4", {}),
    ("h1", "h8", {}),
    ("h8", "h1", {"service_id": 0x77}),  # the rule asks for a P_Key too
    ("h8", "h1", {"service_id": 0x77, "p_key": 0xFFFF}),
    ("h8", "h1", {"service_id": 8500, "p_key": 0x7FFF}),
    ("h8", "h1", {"service_id": 0x78, "p_key": 0x7FFF}),
    ("h8", "h1", {"service_id": 0x10000 + 30000}),
    ("h8", "h1", {"service_id": 0x10000 + 30001}),
    ("h8", "h1", {"service_id": 0x10648CA}),
    ("h8", "h1", {"service_id": 0x1060000 + 900}),
    ("h8", "h1", {"service_id": 0x1060CBC}),
    ("h6", "h7", {}),  # both ends are among the GUIDs
    ("h6", "h8", {}),  # one end is
    ("h8", "h6", {}),
    ("h7", "h8", {}),
    ("h8", "h5", {}),
    ("h5", "h8", {}),
]


def test_saquery_gets_the_level_that_weft_would_give(managed, tmp_path):
    item = managed("fat-tree:hosts=8,radix=4")
    fabric = item.lab.fabric
    port = {name: fabric.find_port(f"{name}/1") for name in ("h1", "h3", "h4", "h5", "h6", "h7", "h8")}
    text = POLICY.format(
        **{name: f"0x{int(item.guid):x}" for name, item in port.items()}, h5_name=port["h5"].node.description
    )
    (tmp_path / "policy.conf").write_text(text)
    policy = parse_policy(text, "policy.conf")
    item.keep_up("-Q", "-Y", str(tmp_path / "policy.conf"))

    def identity(name: str) -> PortIdentity:
        return PortIdentity(
            guid=int(port[name].guid), node_description=port[name].node.description, is_self=name == "h1"
        )

    def ask(source: str, destination: str, said: dict[str, int]) -> tuple[int, ...]:
        """Return the SL, MTU, rate and packet life of OpenSM's path record."""
        gids = ["--sgid", str(Gid.of(int(port[source].guid))), "--dgid", str(Gid.of(int(port[destination].guid)))]
        flags = {"p_key": "--pkey", "qos_class": "--qos_class", "service_id": "--service_id"}
        words = [word for key, value in said.items() for word in (flags[key], hex(value))]
        out = item.lab.run("h1", "saquery", "PR", *gids, *words, folder=tmp_path, timeout_s=PATIENCE_S).stdout
        result = {key: int(value, 0) for key, value in re.findall(r"(\w+)\.\.+(0x\w+)$", out, re.MULTILINE)}
        return result["sl"], *(result[key] & 0x3F for key in ("mtu", "rate", "pkt_life"))

    without = ask("h8", "h4", {})[1:]
    levels = set()
    for source, destination, said in QUERIES:
        level = policy.level_for(source=identity(source), destination=identity(destination), **said)
        limits = (level.mtu_limit, level.rate_limit, level.packet_life)
        expected = tuple(limit or usual for limit, usual in zip(limits, without, strict=True))
        assert ask(source, destination, said) == (level.sl, *expected), (source, destination, said)
        levels.add(level.sl)
    assert levels == {1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12}


LEVELS = "qos-levels\nqos-level\nname: DEFAULT\nsl: 0\nend-qos-level\nend-qos-levels\n"


def levels(*lines: str) -> str:
    body = "\n".join(lines)
    return f"{LEVELS}qos-levels\nqos-level\n{body}\nend-qos-level\nend-qos-levels\n"


def rules(*lines: str) -> str:
    body = "\n".join(lines)
    return f"{LEVELS}qos-match-rules\nqos-match-rule\n{body}\nend-qos-match-rule\nend-qos-match-rules\n"


FILES = {  # policy -> does OpenSM accept it?
    LEVELS: True,
    "": False,
    "qos-ulps\ndefault:3\nend-qos-ulps\n": True,
    "qos-ulps\nend-qos-ulps\n": False,
    f"{LEVELS}port-groups\nend-port-groups\n": False,
    f"{LEVELS}port-groups\nport-group\nnode-type: ca,Self\nend-port-group\nend-port-groups\n": False,
    f"{LEVELS}port-groups\nport-group\nname: a\nport-name: h1/1\nend-port-group\nend-port-groups\n": False,
    f"{LEVELS}port-groups\nport-group\nname: a\nnode-type: ca,,self\nend-port-group\nend-port-groups\n": False,
    f"{LEVELS}qos-ulps\nsrp : 3\nend-qos-ulps\n": False,
    f"{LEVELS}qos-ulps\nsdp, port-num 65536 : 3\nend-qos-ulps\n": False,
    f"{LEVELS}qos-ulps\nANY , pkey 1-2,5 :3\nend-qos-ulps\n": True,
    f"{LEVELS}qos-setup\nend-qos-setup\nqos-match-rules\nend-qos-match-rules\n": True,
    f"{LEVELS}end-qos-levels\n": False,
    levels("name: a"): False,
    levels("sl: 1"): False,
    levels("name: a", "sl: 1", "sl: 1"): False,
    levels("name: a", "sl: 1", "mtu-limit: 6"): False,
    levels("name: a", "sl: 1", "rate-limit: 1"): False,
    levels("name: a", "sl: 1", "use: a, b: c # d", "pkey: 3-1", "pkey: 7", "path-bits: 1,2"): True,
    rules("qos-level-name: none"): False,
    rules("source: none", "qos-level-name: default"): False,
    rules("qos-class: 7"): False,
    rules("qos-class: 7-", "qos-level-name: default"): False,
    rules("qos-class: 7 - 9 , 11", "qos-level-name: Default"): True,
}


@pytest.mark.parametrize("text", FILES)
def test_weft_refuses_the_policies_that_opensm_refuses(managed, tmp_path, text):
    (tmp_path / "policy.conf").write_text(text)
    item = managed("star:2")
    item.bring_up("-Q", "-Y", str(tmp_path / "policy.conf"))
    assert ("in QoS policy file" not in item.log.read_text() and "Syntax error" not in item.log.read_text()) == FILES[
        text
    ]
    if FILES[text]:
        parse_policy(text, "policy.conf")
    else:
        with pytest.raises(FileError):
            parse_policy(text, "policy.conf")
