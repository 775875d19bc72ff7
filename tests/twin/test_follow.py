"""A follower's model equals the subnet after every change, and never changes it."""

from __future__ import annotations

import itertools
import random
import sys
import time
import zlib
from dataclasses import replace

import numpy as np
import pytest
from tests.patience import wait_until

import weft
from weft.cli import main
from weft.cli.follow import _poll
from weft.errors import SubnetError
from weft.fabric import files
from weft.fabric.files.opensm_routes import fdbs_text
from weft.fabric.tables import NO_ROUTE
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.monitor.columns import Column
from weft.monitor.poll import Poller
from weft.routing.route import route
from weft.sm.run import SubnetManager
from weft.twin.facts import error_facts, read_facts
from weft.twin.follow import Follower
from weft.twin.history import History, compare
from weft.twin.source import Files, RunningSubnet
from weft.wire.bulk import fill
from weft.wire.port_info import Capability, PortInfo


@pytest.fixture
def lab():
    with Lab(weft.load("fat-tree:hosts=16,radix=8")) as running:
        sweep(running)
        yield running


def sweep(lab):
    carrier = IbsimCarrier("h1", lab.sockname)
    try:
        SubnetManager(carrier).run(once=True)
    finally:
        carrier.close()


def test_a_cable_that_moves_is_followed_by_its_serial_number(lab):
    carrier = IbsimCarrier("h2", lab.sockname)
    history, clock = History("sqlite://"), itertools.count(1)
    follower = Follower(RunningSubnet(Poller(carrier)), history, clock=lambda: float(next(clock)))
    follower.poll()
    serials = {ports: name for (kind, name), ports in history.state().items() if kind == "cable"}
    assert len(serials) == 16 + 2 * 16  # a copper cable for each host, two transceivers for each cable of a spine
    lab.swap("h1/1", "h5/1")
    sweep(lab)
    moved: dict[str, tuple[str, str]] = {}

    def all_have_moved():  # serial numbers are read with the counters, which may not be due at a poll
        moved.update({each.name: (each.before, each.after) for each in follower.poll() if each.kind == "cable"})
        return len(moved) == 2

    wait_until(all_have_moved)
    first, second = "h1/1 - leaf1/1", "h5/1 - leaf2/1"
    assert moved == {serials[first]: (first, second), serials[second]: (second, first)}
    assert [each.after for each in history.changes(name=serials[first])] == [second]
    carrier.close()


def test_the_model_equals_the_subnet_after_random_faults(lab):
    carrier = IbsimCarrier("h2", lab.sockname)
    history, clock = History("sqlite://"), itertools.count(1)
    follower = Follower(RunningSubnet(Poller(carrier)), history, clock=lambda: float(next(clock)))
    rng, states = random.Random(1), []
    cables = [link.a.name for link in map(lab.fabric.link, range(len(lab.fabric.links)))]
    cables = [name for name in cables if not name.startswith("h")]
    assert follower.poll() == []
    states.append(history.state())
    for number in range(12):
        if number % 3 == 2:
            lab.fix()
        else:
            lab.break_cable(rng.choice(cables))
        if rng.random() < 0.5:
            sweep(lab)
        tables = lab.fabric.tables.lft.copy()
        changes = follower.poll()
        assert (lab.fabric.tables.lft == tables).all()
        states.append(history.state())
        now = lab.fabric_now()
        expected = {
            end.name: other.name
            for link in map(now.link, range(len(now.links)))
            for end, other in ((link.a, link.b), (link.b, link.a))
        }
        model = {name: value.split()[0] for (kind, name), value in states[-1].items() if kind == "link"}
        assert model == expected
        assert changes == compare(changes[0].at_s if changes else 0.0, states[-2], states[-1])
    carrier.close()
    for at, state in enumerate(states, 1):
        assert history.state(float(at)) == state


def test_tables_partitions_manager_and_errors_are_facts(lab):
    carrier = IbsimCarrier("h2", lab.sockname)
    follower = Follower(RunningSubnet(Poller(carrier)), History("sqlite://"))
    follower.poll()
    carrier.close()
    facts = read_facts(follower.fabric)
    assert facts["manager", "h1"] == f"LID {facts['lid', 'h1/1']}"
    assert facts["routes", "leaf1"].startswith(f"{len([key for key in facts if key[0] == 'lid'])} LIDs, checksum ")
    assert facts["pkeys", "h1/1"] == "0xffff"
    assert facts["node", "leaf1"].startswith("switch 0x")
    follower.fabric.tables.lft[0, 1] ^= 1
    changed = compare(0.0, facts, read_facts(follower.fabric))
    assert [(each.kind, each.name) for each in changed] == [("routes", "leaf1")]


def test_counters_that_cannot_be_read_stay_and_a_subnet_that_does_not_answer_is_reported(lab):
    carrier = IbsimCarrier("h2", lab.sockname)
    poller = Poller(carrier)
    follower = Follower(RunningSubnet(poller), History("sqlite://"))
    lab.break_cable("leaf1/5")
    sweep(lab)
    follower.poll()
    poller.poll = refuse  # type: ignore[method-assign]
    assert [each.kind for each in follower.poll() if each.kind == "errors"] == []
    carrier.close()
    assert "no answer, trying again: " in _poll(Quiet(follower.fabric))[0]
    with pytest.raises(SubnetError):
        _poll(Quiet(None))


def refuse(view):
    raise SubnetError("no counters")


class Quiet:
    """A follower whose subnet does not answer."""

    def __init__(self, fabric):
        self.fabric = fabric

    def poll(self, changed):
        raise SubnetError("no node answers")


def test_facts_of_tables_are_those_of_each_port_switch_and_manager():
    fabric = route(weft.load("star:hosts=2")).fabric
    tables = fabric.tables
    hosts = [fabric.find_port(name).slot for name in ("h1/1", "h2/1")]
    tables.pkey[:] = 0
    tables.pkey[hosts[0], :3] = (0x7FFF, 0, 0x8001)
    info = tables.port_info
    info[:] = 0
    lids, managers = np.zeros(len(info), np.int64), np.zeros(len(info), np.int64)
    lids[hosts], managers[hosts] = (4, 5), 5
    fill(info, PortInfo.lid, lids)
    fill(info, PortInfo.master_sm_lid, managers)
    facts = read_facts(fabric)
    assert {key: value for key, value in facts.items() if key[0] in ("lid", "pkeys", "manager")} == {
        ("lid", "h1/1"): "4",
        ("lid", "h2/1"): "5",
        ("pkeys", "h1/1"): "0x7fff 0x8001",
        ("manager", "h2"): "LID 5",
    }
    table = tables.lft[0]
    used = np.flatnonzero(table != NO_ROUTE)
    checksum = zlib.crc32(table[: used[-1] + 1].tobytes())
    assert facts["routes", "leaf1"] == f"{len(used)} LIDs, checksum {checksum:08x}"
    managers[hosts[0]], lids[hosts[0]] = 9, 1
    fill(info, PortInfo.master_sm_lid, managers)
    fill(info, PortInfo.lid, lids)
    fill(info, PortInfo.capability_mask, np.full(len(info), Capability.IS_SM))  # ports without a LID are none
    table[:] = NO_ROUTE
    facts = read_facts(fabric)
    assert {node: text for (kind, node), text in facts.items() if kind == "manager"} == {
        "h1": "LID 1, not the master",
        "h2": "LID 5",
        "LID 9": "LID 9",
    }
    assert facts["routes", "leaf1"] == "0 LIDs, checksum 00000000"
    assert {name: value for (kind, name), value in facts.items() if kind == "link"} == {
        "h1/1": "leaf1/1 4xNDR",
        "leaf1/1": "h1/1 4xNDR",
        "h2/1": "leaf1/2 4xNDR",
        "leaf1/2": "h2/1 4xNDR",
    }
    assert facts["node", "h1"].startswith("hca 0x")


def test_facts_of_errors_are_the_counters_that_are_known_and_not_zero(lab):
    carrier = IbsimCarrier("h2", lab.sockname)
    poller = Poller(carrier)
    follower = Follower(RunningSubnet(poller), History("sqlite://"))
    assert follower.size == "nothing"
    follower.poll()
    reading = poller.poll()
    carrier.close()
    assert follower.size == "22 nodes, 32 links"
    counters, known = np.zeros_like(reading.counters), np.ones_like(reading.known)
    counters[3, [Column.SYMBOL_ERROR, Column.LINK_DOWNED, Column.PORT_XMIT_DISCARDS]] = 7, 2, 1
    counters[4, [Column.LINK_ERROR_RECOVERY, Column.PORT_RCV_ERRORS]] = 3, 4
    counters[5, Column.PORT_XMIT_DATA_WORDS] = 100
    known[3, Column.LINK_DOWNED] = False
    changed = replace(reading, counters=counters, known=known)
    errors = {name: value for (kind, name), value in error_facts(changed).items() if kind == "errors"}
    assert errors == {
        reading.ports.name(3): "symbol_error 7, port_xmit_discards 1",
        reading.ports.name(4): "link_error_recovery 3, port_rcv_errors 4",
    }


def test_the_commands_refuse_wrong_times_and_empty_histories(tmp_path, monkeypatch, capsys):
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["weft", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code), printed.out, printed.err

    path = str(tmp_path / "fabric.db")
    history = History(path)
    status, _, err = run("history", "--database", path)
    assert (status, "has no poll yet" in err) == (2, True)
    history.record(1.0, {("link", "leaf1/5"): "spine1/1"})
    history.record(2.0, {("link", "leaf1/5"): "spine1/2"})
    status, out, _ = run("history", "leaf1/5", "--database", path)
    assert (status, "spine1/1" in out, "spine1/2" in out) == (0, True, True)
    status, out, _ = run("diff", "1970-01-01T00:00:01+00:00", "now", "--database", path)
    assert (status, "spine1/2" in out) == (1, True)
    assert run("diff", "10m", "--database", path)[0] == 0
    status, _, err = run("diff", "last week", "--database", path)
    assert (status, "'last week' is not a time: write yesterday" in err) == (2, True)
    status, _, err = run("history", "leaf9", "--database", path)
    assert (status, "the history has no leaf9" in err) == (2, True)
    assert run("follow", "--every", "0")[0] == 2
    history.close()


def test_files_are_read_again_when_they_change_and_damaged_ones_are_reported(tmp_path):
    fabric = route(weft.load("star:hosts=3")).fabric
    path, tables = tmp_path / "fabric.db_csv", tmp_path / "opensm.fdbs"
    files.write(fabric, path)
    tables.write_text(fdbs_text(fabric))
    follower = Follower(Files(str(path), tables), History("sqlite://"))
    assert _poll(follower) == []
    facts = follower._history.state()
    assert facts["link", "h1/1"] == "leaf1/1 4xNDR"
    assert facts["routes", "leaf1"].startswith("4 LIDs, checksum ")
    assert not any(kind == "pkeys" for kind, _ in facts)
    assert _poll(follower) == []
    broken = route(fabric.without("h3")).fabric
    files.write(broken, path)
    assert "opensm.fdbs" in _poll(follower)[0]  # routes of another moment
    tables.write_text(fdbs_text(broken))
    changes = "\n".join(_poll(follower))
    assert "link h3/1: leaf1/3 4xNDR -> gone" in changes
    whole = path.read_text()
    path.write_text(whole[: whole.index("END_LINKS")])
    (line,) = _poll(follower)
    assert "cannot read the file, trying again: " in line
    assert "END_LINKS before the end of the file" in line
    guid = int(fabric.nodes.guid[fabric.node_index["leaf1"]])
    path.write_text(f"{whole}\nSTART_PM_INFO\nNodeGUID,PortNumber,SymbolErrorCounter\n{guid:#x},2,9\nEND_PM_INFO\n")
    (line,) = _poll(follower)
    assert line.endswith("errors leaf1/2: new, symbol_error 9")
    path.unlink()
    assert "cannot read the file, trying again: there is neither a file nor" in _poll(follower)[0]


def test_a_file_is_refused_with_contents_that_it_does_not_have(tmp_path, monkeypatch, capsys):
    path = tmp_path / "fabric.db_csv"
    files.write(weft.load("star:hosts=3"), path)
    (tmp_path / "policy.toml").write_text("proved = true\n")
    damaged = tmp_path / "damaged.db_csv"
    damaged.write_text("START_NODES\n")
    for words, reason in (
        ((str(path), "--policy", str(tmp_path / "policy.toml")), "needs a running subnet or --tables"),
        ((str(path), "--lab", "x"), "use SPEC or a running subnet"),
        (("--tables", str(path)), "--tables needs SPEC"),
        ((str(damaged),), "damaged.db_csv:1: "),
    ):
        database = str(tmp_path / "fabric.db")
        monkeypatch.setattr(sys, "argv", ["weft", "follow", *words, "--times", "1", "--database", database])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code, reason in capsys.readouterr().err) == (2, True)


def test_counters_are_read_without_another_walk(lab):
    """The model has just walked what changed."""
    carrier = IbsimCarrier("h2", lab.sockname)
    poller = Poller(carrier)
    poller._walk = refuse  # type: ignore[method-assign]
    source = RunningSubnet(poller)
    follower = Follower(source, History("sqlite://"))
    follower.poll()
    assert len(source._reading.ports) == len(follower.fabric.ports)
    lab.break_cable("h9/1")
    source._due_s = 0.0
    follower.poll()
    carrier.close()
    assert len(source._reading.ports) == len(follower.fabric.ports) < len(lab.fabric.ports)


def test_traps_put_off_the_counters_for_a_while(lab):
    carrier = IbsimCarrier("h2", lab.sockname)
    poller = Poller(carrier)
    source = RunningSubnet(poller)
    source.refresh()
    source._due_s = time.monotonic() - 1
    assert source.read_ports(is_urgent=True) == {}
    assert source._reading is None
    source._due_s = time.monotonic() - 6
    source.read_ports(is_urgent=True)
    carrier.close()
    assert source._reading is not None
