"""Questions about more servers, other partitions and rounds of firmware are answered on the model."""

from __future__ import annotations

import json
import sys

import pytest

import weft
from weft.cli import main
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.routing.check import check
from weft.routing.route import route
from weft.tenants.intent import Intent, Tenant
from weft.twin import Change, ask
from weft.twin.new_servers import add_servers
from weft.twin.rounds import ask_rounds, split_rounds

HALF = "fat-tree:hosts=20,radix=12"  # leaf4 has four free ports
JOBS = ("train=all-to-all@90%",)


@pytest.fixture(scope="module")
def tree():
    return route(weft.load(HALF)).fabric


def test_new_servers_are_like_present_ones_and_present_ones_stay(tree):
    larger = add_servers(tree, 3)
    old = len(tree.nodes)
    assert larger.nodes.name[:old] == tree.nodes.name
    assert larger.nodes.name[old:] == ("h21", "h22", "h23")
    assert (larger.tables.lid[: len(tree.ports)] == tree.tables.lid).all()
    assert len(set(larger.nodes.guid.tolist())) == len(larger.nodes)
    assert len(set(larger.ports.guid[larger.ports.number > 0].tolist()) & set(tree.nodes.guid[:old].tolist())) <= old
    for name in ("h21/1", "h22/1", "h23/1"):
        port = larger.find_port(name)
        assert port.link.label == tree.find_port("h1/1").link.label
        assert port.peer.node.kind == NodeKind.SWITCH
    assert check(route(larger).fabric).ok


def test_servers_with_several_adapters_keep_their_rails():
    pod = weft.load("superpod:su=1,servers=2")
    larger = add_servers(pod, 1)
    devices = [name.partition("/")[2] for name in pod.nodes.name if name.startswith("dgx1/mlx5")]
    devices = [device for device in devices if pod.find_port(f"dgx1/{device}/1").peer is not None]
    assert len(devices) == 8
    for device in devices:
        peers = [larger.find_port(f"{server}/{device}/1").peer for server in ("dgx1", "dgx3")]
        assert peers[0].node.name == peers[1].node.name
        assert peers[0].number != peers[1].number


def test_more_servers_than_free_ports_are_refused(tree):
    with pytest.raises(ConfigError, match=r"only 4 of 10,000 servers find free ports .* `weft grow`"):
        add_servers(tree, 10_000)
    with pytest.raises(ConfigError, match="--add-servers must be above 0, got -1"):
        add_servers(tree, -1)


def test_an_answer_counts_new_hosts_and_the_cost_for_present_jobs(tree):
    answer = ask(tree, Change(new_servers=4), JOBS)
    assert (answer.new_hosts, answer.cut_off, answer.is_safe) == (4, (), True)
    assert answer.changed_entries > 0  # the new hosts' LIDs
    assert answer.jobs[0].after_gbit_s > 0


def test_another_intent_separates_hosts_and_the_job_across_tenants_stops(tree):
    intent = Intent(tenants={"blue": Tenant(hosts=("h[1-2]",)), "red": Tenant(hosts=("h[3-4]",))})
    jobs = ("within=ring:h[1-2]@50%", "across=ring:h2,h3@50%")
    answer = ask(tree, Change(tenants=intent), jobs)
    assert answer.partitions.lost_pairs == 20 * 19 // 2 - 2  # limited members of Default reach no other
    assert answer.partitions.gained_pairs == 0
    assert ("h1/1", "h3/1") in answer.partitions.lost
    within, across = answer.jobs
    assert (within.loss, across.after_gbit_s) == (0.0, 0.0)
    assert answer.is_safe


def test_rounds_of_reboots_cut_off_only_hosts_behind_them(tree):
    turns = list(ask_rounds(tree, split_rounds(["leaf1", "spine1", "h9"], 2), JOBS))
    assert [turn.reboots for turn in turns] == [("leaf1", "h9"), ("spine1",)]
    assert turns[0].cut_off == tuple(f"h{n}/1" for n in range(1, 7))
    assert not turns[0].is_safe
    assert turns[1].cut_off == ()
    assert turns[1].is_safe
    servers = list(ask_rounds(tree, split_rounds(["h1", "h2"], 1)))
    assert (servers[0].cut_off, servers[0].is_safe) == ((), True)
    with pytest.raises(ConfigError, match="--rounds must be 1 to 1, the number of reboots, got 2"):
        split_rounds(["leaf1"], 2)


def test_a_plane_and_a_slow_link_are_faults():
    planes = weft.load("fat-tree:hosts=8,radix=8,planes=2")
    answer = ask(planes, Change(faults=("dead:plane2",)))
    assert (answer.cut_off, answer.is_safe) == ((), True)


def test_the_command_asks_for_each_change(capsys, monkeypatch, tmp_path):
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["weft", "whatif", HALF, *words])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code), printed.out, printed.err

    (tmp_path / "tenants.toml").write_text('[tenant.blue]\nhosts = ["h[1-2]"]\n')
    status, out, _ = run("--add-servers", "2", "--tenants", str(tmp_path / "tenants.toml"), "--json")
    facts = json.loads(out)
    assert (status, facts["new_hosts"], facts["change"]["tenants"]) == (0, 2, ["blue"])
    assert facts["partitions"]["lost_pairs"] == 22 * 21 // 2 - 1
    status, out, _ = run("--add-servers", "2")
    assert "2 new servers with 2 ports: all 20 host ports stay connected" in out
    status, out, _ = run("--reboot", "spine[1-2]", "--rounds", "2", "--json")
    assert (status, [turn["reboots"] for turn in json.loads(out)]) == (0, [["spine1"], ["spine2"]])
    status, out, _ = run("--reboot", "leaf1")
    assert (status, "cut off" in out) == (1, True)
    status, _, err = run("--reboot", "leaf1", "--add-servers", "2")
    assert (status, "--reboot cannot be combined" in err) == (2, True)
    assert "--rounds needs --reboot" in run("--add-servers", "1", "--rounds", "2")[2]
