"""Weft's subnet manager in a lab: osmtest passes, saquery prints the same as with OpenSM, and cables may break.

Programs run on hosts through weft's own preload, which carries tables of many records. The manager runs over two
carriers: libibumad, where the lab segments long answers, and ibsim's sockets, where the manager does.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.fabric.files import ibnetdiscover
from weft.lab import preload, programs
from weft.lab.lab import Lab
from weft.routing.check import check
from weft.wire.port_info import PortInfo, PortState

pytestmark = pytest.mark.interop

_SPEC = importlib.util.spec_from_file_location("interop_managers", Path(__file__).with_name("managers.py"))
managers = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = managers
_SPEC.loader.exec_module(managers)

_NUMBER = itertools.count()
FABRIC = "fat-tree:hosts=8,radix=8,speed=HDR"  # small: osmtest queries every pair three times
TREE = "fat-tree:hosts=16,radix=8,speed=HDR"
ANSWER_MS = "500"  # short: osmtest waits four times as long where no answer is expected


class Managed:
    """A lab with weft's subnet manager at h1."""

    def __init__(self, spec: str, folder: Path, on: str, *options: str) -> None:
        self.fabric, self.folder = weft.load(spec), folder
        self.lab = Lab(self.fabric, f"sm-{next(_NUMBER)}-{os.getpid()}")
        self.lab.__enter__()
        self.manager, self.on, self.options = None, on, options

    def manage(self) -> None:
        environment: dict[str, str] = {}
        words = ["--on", self.on, *self.options]
        if self.on == "ibsim":
            words += ["--ibsim", self.lab.sockname, "--at", "h1"]
        else:
            environment = programs.environment(self.lab.host("h1"))
        self.manager = managers.Manager(self.folder / "sm", *words, **environment)

    def tool(self, host: str, *command: str) -> str:
        done = self.lab.run(host, *command, folder=self.folder, timeout_s=PATIENCE_S)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def states(self) -> set[PortState]:
        """Return the states of all ports with a connected cable."""
        devices = self.lab.subnet.devices
        up = [slot for slot in range(len(devices.cable)) if devices.peer(slot) >= 0]
        return {PortState(PortInfo.port_state.get(devices.info(slot))) for slot in up}

    def end(self) -> None:
        if self.manager is not None:
            self.manager.stop()
        self.lab.stop()


@pytest.fixture(scope="module", autouse=True)
def _preload() -> None:
    if preload.library() is None:
        pytest.skip("there is no C compiler for weft's preload: make peers")


@pytest.fixture(scope="module")
def both(peer, tmp_path_factory) -> Iterator[dict[str, Managed]]:
    """A lab for each carrier; osmtest starts in both at once, since it sleeps for most of its time."""
    for program in ("osmtest", "saquery"):
        peer(program)
    labs = {on: Managed(FABRIC, tmp_path_factory.mktemp(on), on) for on in ("umad", "ibsim")}
    running: list[subprocess.Popen[str]] = []
    try:
        for lab in labs.values():
            lab.manage()
        for lab in labs.values():
            lab.manager.wait_until_up()
            lab.tool("h3", "osmtest", "-f", "c", "-i", "inventory")
            words = ["osmtest", "-f", "a", "-i", "inventory", "-t", ANSWER_MS]
            lab.osmtest = lab.lab.start("h3", *words, folder=lab.folder)
            running.append(lab.osmtest)
        yield labs
    finally:
        for process in running:
            process.kill()
            process.wait()
        for lab in labs.values():
            lab.end()


@pytest.fixture(params=["umad", "ibsim"])
def managed(request, both) -> Managed:
    return both[request.param]


# -- tools ------------------------------------------------------------------------------------------------------------


def test_the_fabric_works(managed):
    """Every port is Active, and the switches' tables connect every pair."""
    assert managed.states() == {PortState.ACTIVE}
    assert check(managed.fabric).ok
    assert not managed.lab.errors.counts


def test_ibnetdiscover_sees_the_fabric_with_the_lids_of_the_dump(managed, tmp_path):
    path = tmp_path / "seen.txt"
    path.write_text(managed.tool("h3", "ibnetdiscover"), encoding="utf-8")
    observed = ibnetdiscover.read(path)
    assert managers.graph(observed) == managers.graph(managed.fabric)
    assert managers.lids(observed) == managers.lids(managed.fabric) == managers.lids(managed.manager.fabric())


def test_sminfo_names_the_master(managed):
    lid, guid = int(managed.fabric.find_node("h1").lid), int(managed.fabric["h1/1"].guid)
    output = managed.tool("h5", "sminfo")
    assert re.match(rf"sminfo: sm lid {lid} sm guid 0x{guid:x}, activity count \d+ priority 0 state 3 SMINFO_M", output)


@pytest.mark.parametrize("flow", ["m", "q"])
def test_osmtest_passes_a_flow(managed, flow):
    """The flows are multicast and the tables of quality of service."""
    output = managed.tool("h4", "osmtest", "-f", flow, "-i", "inventory")
    assert re.search(r'OSMTEST: TEST "[^"]+" PASS', output)


def test_osmtest_may_flood_it(managed):
    """A second of short and long answers, all paths and single paths, as fast as possible: none is lost or wrong."""
    folders = {kind: managed.folder / f"flood{kind}" for kind in "1234"}
    running = []
    for host, (kind, folder) in zip(("h4", "h5", "h6", "h7"), folders.items(), strict=True):
        folder.mkdir()
        words = ["osmtest", "-f", "f", f"-s{kind}", "-i", str(managed.folder / "inventory"), "-d2"]
        running.append(managed.lab.start(host, *words, folder=folder))
    time.sleep(1)
    assert [process.poll() for process in running] == [None] * 4
    for process in running:
        process.kill()
        process.wait()
    for folder in folders.values():
        output = (folder / "output").read_text()
        assert "Setting log level" in output
        assert " ERR " not in output


# -- beside OpenSM ----------------------------------------------------------------------------------------------------

# saquery's queries, and the lines that identify a record in each output.
ASKED = {
    "NR": ("lid",),
    "PIR": ("EndPortLid", "PortNum"),
    "LR": ("FromLID", "FromPort"),
    "SWI": ("LID",),
    "LFTR": ("LID", "Block"),
    "GIR": ("LID", "Block"),
    "PKTR": ("LID", "Port", "Block"),
    "SL2VL": ("LID", "InPort", "OutPort"),
    "VLAR": ("LID", "Port", "Block"),
    "SMIR": ("LID",),
    "MCMR": ("MGID",),
    "PR": ("slid", "dlid"),
}
WORDS = {"SWI": ["SwitchInfoRecord"], "SL2VL": ["SL2VLTableRecord"], "PKTR": ["--smkey", "1", "PKTR"]}
# Lines in which weft differs from OpenSM, and why.
DIFFERENT = {
    ("PIR", "PartEnforceInb"): "OpenSM lets switches check P_Keys even where all ports are full members of all",
    ("PIR", "PartEnforceOutb"): "the same",
    (
        "SWI",
        "LinearFDBTop",
    ): "OpenSM: the highest LID; weft: the last of its block, so that a new host changes it seldom",
    ("SWI", "MulticastFDBTop"): "OpenSM: 0, not set, until a group has members; weft: 0xBFFF, none",
    ("SMIR", "ActCount"): "it counts",
    ("PKTR", "Block"): "OpenSM answers in the byte order of its machine, and saquery shows it in that of its own",
    ("PR", "rate"): "OpenSM: 40 Gbit/s for paths to and from switches, whose port 0 has no link",
}

# The port by which the manager's own MAD reached a node. It depends on timing: OpenSM explores as answers arrive.
CHANCE = {("PIR", "LocalPort")}


def records(said: str, keys: tuple[str, ...]) -> dict[tuple[str, ...], list[str]]:
    """Return the records that saquery printed, by the lines that name them."""
    result = {}
    for part in re.split(r"^\w[\w ]*dump:$", said, flags=re.MULTILINE)[1:]:
        lines = [line.strip() for line in part.splitlines() if line.strip()]
        key = [next(line for line in lines if re.match(rf"{name}\W", line)) for name in keys]
        result[tuple(key)] = lines
    return result


def test_saquery_prints_what_it_prints_of_opensm(peer, tmp_path):
    """OpenSM brings the lab up and weft takes it over unchanged. All records of all tables agree, except DIFFERENT."""
    item = Managed("fat-tree:hosts=8,radix=4,speed=HDR", tmp_path, "umad")
    output: dict[str, list[str]] = {kind: [] for kind in ASKED}
    words = [peer("opensm"), "-f", "osm.log", "-e", "-s", "0", "-D", "0x83", "-d", "2"]
    caches = {"OSM_CACHE_DIR": str(tmp_path), "OSM_TMP_DIR": str(tmp_path)}
    opensm = item.lab.start("h1", *words, folder=tmp_path, **caches)
    try:
        log = tmp_path / "osm.log"
        wait_until(lambda: log.exists() and "SUBNET UP" in log.read_text(), "SUBNET UP")
        for kind, answers in output.items():
            answers.append(item.tool("h2", "saquery", *WORDS.get(kind, [kind])))
        opensm.terminate()
        opensm.wait(timeout=PATIENCE_S)
        lft = item.fabric.tables.lft.copy()
        item.manage()
        item.manager.wait_until_up()
        assert (item.fabric.tables.lft == lft).all()
        for kind, answers in output.items():
            answers.append(item.tool("h2", "saquery", *WORDS.get(kind, [kind])))
    finally:
        opensm.kill()
        opensm.wait()
        item.end()

    differences = set()
    for kind, (theirs, ours) in output.items():
        keys = tuple(key for key in ASKED[kind] if (kind, key) not in DIFFERENT)
        present, local = records(theirs, keys), records(ours, keys)
        assert len(present) > 0, kind
        assert present.keys() == local.keys(), kind
        for key, lines in present.items():
            differences |= {(kind, re.match(r"[\w ]*", line)[0]) for line in set(lines) ^ set(local[key])}
    assert differences - CHANCE == set(DIFFERENT)


# -- what happens while it runs ---------------------------------------------------------------------------------------


def test_a_broken_cable_is_told_by_trap_128_and_routed_around(tmp_path):
    """So is a repaired one. Only its two ends change their routes to hosts. No periodic sweep is due."""
    (tmp_path / "opensm.conf").write_text("sweep_interval 0\n")
    item = Managed(TREE, tmp_path, "umad", "-F", str(tmp_path / "opensm.conf"))
    try:
        item.manage()
        item.manager.wait_until_up()
        routes = item.fabric.tables.lft.copy()
        item.lab.break_cable("leaf1/5")
        item.manager.wait_for(lambda: item.manager.status.sweeps > 1, "a sweep after trap 128")
        assert "TRAP 128" in item.manager.log()
        standing = item.lab.fabric_now()
        assert len(standing.links) == len(item.fabric.links) - 1
        assert check(standing).ok
        ends = [port.node.name for port in (item.fabric["leaf1/5"], item.fabric["leaf1/5"].peer)]
        hosts = [int(host.lid) for host in item.fabric.hcas]
        changed = (item.fabric.tables.lft != routes)[:, hosts].any(axis=1)
        assert [switch.name for switch, differs in zip(item.fabric.switches, changed, strict=True) if differs] == ends

        sweeps = item.manager.status.sweeps
        item.lab.fix()
        item.manager.wait_for(lambda: item.manager.status.sweeps > sweeps, "a sweep after it came back")
        item.manager.wait_for(lambda: item.states() == {PortState.ACTIVE}, "every port Active")
        assert check(item.fabric).ok
        item.manager.wait_for(lambda: "LINK_APPEARED leaf1/5" in item.manager.log(), "the log")  # from either end
    finally:
        item.end()
    assert item.manager.process.returncode == 0


def test_the_commands_of_the_manual_work(peer, tmp_path, monkeypatch, warm):
    """weft up; weft sm; weft exec; weft sm status."""
    runtime = tmp_path / "r"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    peer("sminfo")

    def command(*words: str) -> str:
        done = subprocess.run(
            [warm, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    name = f"sm{os.getpid()}"
    command("up", "star:4", "--daemon", "--name", name)
    try:
        manager = managers.Manager(tmp_path / "sm", "--on", "lab", "--at", "h2", "--priority", "3")
        manager.wait_until_up()
        assert "priority 3 state 3 SMINFO_MASTER" in command("exec", "h1", "sminfo")
        status = command("sm", "status", "--state", str(tmp_path / "sm" / "state.json"))
        assert re.search(rf"at h2/1 of lab {name}: master, process \d+", status), status
        assert "1 switch, 4 adapters, 4 links" in status
        assert manager.stop() == 0
    finally:
        manager.stop()
        command("down")


# -- last: osmtest sleeps for ten seconds while the other tests run ----------------------------------------------------


def test_osmtest_passes_all_validations(managed):
    """They cover inventory, all single records and paths, requests that must fail, keys, services and their leases."""
    assert managed.osmtest.wait(timeout=PATIENCE_S) == 0, (managed.folder / "output").read_text()[-3000:]
    assert 'TEST "All Validations" PASS' in (managed.folder / "output").read_text()
