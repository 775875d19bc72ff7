"""`weft sim`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

import weft
from weft.cli import app
from weft.errors import ConfigError
from weft.fabric.files.opensm import write_dumps
from weft.routing.route import route
from weft.sim.files import read_traffic
from weft.sim.patterns import PATTERNS

TREE = "fat-tree:hosts=16,radix=8"
ETHERNET = "fat-tree:hosts=16,radix=8,speed=400GbE"
PODS = "superpod:su=1,servers=2"


def run(*arguments: str) -> None:
    app(["sim", *arguments])


def json_of(capsys, *arguments: str) -> dict:
    run(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_json_says_what_ran_and_what_came_out(capsys):
    facts = json_of(capsys, TREE, "--traffic", "incast", "--senders", "5", "--size", "64K", "--seed", "7")
    assert facts["weft"] == weft.__version__
    assert (facts["spec"], facts["seed"], facts["engine"]) == (TREE, 7, "packet")
    assert facts["options"]["network"] == "infiniband"
    assert facts["options"]["paths"] == "table"
    assert (facts["messages"], facts["delivered"], facts["payload_bytes"]) == (5, 5, 5 * 65_536)
    assert facts["traffic"] == "incast of 5 to h1/1 (seed 7)"
    assert facts["packets"] == 5 * 16 + 5
    assert facts["packet_hops"] > facts["packets"]
    assert facts["packet_hops_per_s"] == pytest.approx(facts["packet_hops"] / facts["wall_s"])
    assert facts["last_arrival_ps"] > 5 * 65_536 * 8_000 / 400
    assert facts["busiest_links"][0]["port"] == "leaf1/1"
    assert facts["goodput_per_sender_gbit_s"]["min"] < 400 / 5
    assert facts["routing"] == "routed by fat-tree"


def test_the_text_has_what_an_engineer_wants(capsys):
    run(TREE, "--size", "64K")
    printed = capsys.readouterr().out
    for words in (
        *(TREE, "permutation (seed 1): 16 messages of 64 KiB", "16 of 16 delivered", "µs", "goodput", "a sender"),
        *("median", "p99", "Busiest links", "utilisation %", "retransmitted", "dropped", "marked", "pauses"),
        *("packet-hops/s", f"weft {weft.__version__}, seed 1"),
    ):
        assert words in printed


@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "multicast"])
def test_every_pattern_runs(capsys, name):
    fabric = {"adversarial": "dragonfly:p=1,a=2,h=1", "tornado": "torus:5"}.get(name, PODS)
    facts = json_of(capsys, fabric, "--traffic", name, "--size", "4K")
    assert facts["delivered"] == facts["messages"] > 0


def test_the_same_seed_gives_the_same_run(capsys):
    digests = [json_of(capsys, TREE, "--size", "16K", "--seed", seed)["digest"] for seed in ("1", "1", "2")]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("network", ["roce", "roce-v1", "tcp"])
def test_ethernet_runs_by_hashed_paths(capsys, network):
    facts = json_of(capsys, ETHERNET, "--network", network, "--size", "64K")
    assert facts["options"]["network"] == network
    assert facts["options"]["paths"] == "ecmp"
    assert facts["delivered"] == 16


def test_options_reach_the_engine(capsys):
    arguments = {
        "paths": "adaptive",
        "switching": "store-and-forward",
        "memory": "gpudirect",
        "congestion-control": "ib",
    }
    arguments |= {"mtu": "2048", "buffer": "32K", "watch": "leaf1/1,leaf2/5", "watch-every-us": "0.5"}
    facts = json_of(
        capsys, TREE, "--size", "64K", *(word for key, value in arguments.items() for word in (f"--{key}", value))
    )
    result = facts["options"]
    assert (result["paths"], result["switching"], result["memory"]) == ("adaptive", "store-and-forward", "gpudirect")
    assert (result["congestion_control"], result["mtu_bytes"], result["buffer_bytes"]) == ("ib", 2048, 32_768)
    assert (result["watch"], result["watch_every_ps"]) == (["leaf1/1", "leaf2/5"], 500_000)


def test_a_pattern_can_be_kept_and_run_again(capsys, tmp_path):
    path = tmp_path / "kept.csv"
    remaining = json_of(capsys, TREE, "--size", "16K", "--write-traffic", str(path))
    again = json_of(capsys, TREE, "--traffic", str(path))
    assert remaining["digest"] == again["digest"]
    assert len(read_traffic(path, route(weft.load(TREE)).fabric)) == 16


def test_tables_of_opensm_are_run_as_they_are(capsys, tmp_path):
    """With tables that send all packets of a leaf through its first uplink: a quarter of the rate of weft's routes."""
    fabric = route(weft.load(TREE)).fabric
    lft = fabric.tables.lft
    lft[:4][(lft[:4] > 4) & (lft[:4] <= 8)] = 5
    write_dumps(fabric, tmp_path)
    subnet, arguments = str(tmp_path / "opensm-subnet.lst"), ("--traffic", "shift", "--distance", "4", "--size", "256K")
    values = json_of(capsys, subnet, "--tables", str(tmp_path), *arguments)
    own = json_of(capsys, subnet, *arguments)
    assert (values["routing"], own["routing"]) == (
        f"tables of {tmp_path}, lanes unknown: all paths share one",
        "routed by fat-tree",
    )
    assert {link["port"] for link in values["busiest_links"][:4]} <= {
        *(f"leaf{n}/5" for n in range(1, 5)),
        *(f"spine{n}/{m}" for n in (1, 2) for m in range(1, 9)),
    }
    assert values["last_arrival_ps"] > 2.5 * own["last_arrival_ps"]


def test_adapters_back_to_back_need_no_routes(capsys, tmp_path):
    lab = tmp_path / "pair.yaml"
    lab.write_text("nodes:\n  h1..2: {server: host}\nlinks:\n  - [h1, h2]\n")
    sent = tmp_path / "one.csv"
    sent.write_text("src,dst,size\nh1,h2,4K\n")
    facts = json_of(capsys, str(lab), "--traffic", str(sent))
    assert (facts["delivered"], facts["routing"]) == (1, "no switch to route")


def test_pictures_are_written_and_named(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(
        TREE,
        "--traffic",
        "incast",
        "--size",
        "64K",
        "--watch",
        "leaf1/1",
        "--picture-queue",
        "q.svg",
        "--picture",
        "h.svg",
    )
    printed = capsys.readouterr().out
    for name in ("q.svg", "h.svg"):
        assert "<svg" in (tmp_path / name).read_text()
        assert f"{name}: written" in printed


def test_a_sweep_prints_a_row_for_each_load_and_path(capsys, tmp_path):
    picture = tmp_path / "latency.svg"
    arguments = ("--sweep-load", "0.2,0.8", "--paths", "table,adaptive", "--duration-us", "10")
    run(TREE, *arguments, "--picture", str(picture))
    printed = capsys.readouterr().out
    assert [line.split()[:2] for line in printed.splitlines() if line.split()[:1] in (["table"], ["adaptive"])] == [
        ["table", "0.2"],
        ["table", "0.8"],
        ["adaptive", "0.2"],
        ["adaptive", "0.8"],
    ]
    assert "paths adaptive, p99" in picture.read_text()
    facts = json_of(capsys, TREE, *arguments)
    assert [(fact["load"], fact["options"]["paths"]) for fact in facts][1:3] == [(0.8, "table"), (0.2, "adaptive")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--traffic", "incst"), "did you mean incast"),
        (("--engine", "flwo"), "did you mean flow"),
        (("--traffic", "missing.csv"), "missing.csv"),
        (("--size", "1X"), "1X"),
        (("--load", "0.4"), "--load is for uniform, adversarial and tornado traffic, not for permutation"),
        (
            ("--traffic", "shift", "--duration-us", "4"),
            "--duration-us is for uniform, adversarial and tornado traffic, not for shift",
        ),
        (("--traffic", "uniform", "--load", "2"), "--load must be in (0, 1], got 2"),
        (("--traffic", "uniform", "--duration-us", "nan"), "--duration-us nan"),
        (("--traffic", "incast", "--senders", "99"), "--senders must be 1 to 15"),
        (("--traffic", "incast", "--receiver", "h99"), "h99"),
        (("--traffic", "mine.csv", "--size", "4K"), "leave out --size"),
        (("--network", "rose"), "did you mean roce"),
        (("--network", "roce"), "roce needs ethernet links"),
        (("--paths", "adaptiv"), "did you mean adaptive"),
        (("--switching", "cut"), "cut-through"),
        (("--memory", "gpu"), "did you mean gpudirect"),
        (("--congestion-control", "dcqcn"), "dcqcn"),
        (("--mtu", "10"), "--mtu must be 256 to 4096"),
        (("--buffer", "5x"), "5x"),
        (("--sl", "16"), "--sl must be 0 to 15"),
        (("--operation", "raed"), "did you mean read"),
        (("--transport", "ud"), "one packet"),
        (("--watch", "leaf1/99"), "leaf1/99"),
        (("--watch", "leaf1/1", "--watch-every-us", "0"), "--watch-every-us 0"),
        (("--picture-queue", "q.png"), "--watch"),
        (("--picture", "q.jpg"), ".svg, .png, .pdf, .html"),
        (("--picture", "nowhere/q.png"), "no folder nowhere"),
        (("--picture", "l.html", "--sweep-load", "0.1"), ".png"),
        (("--sweep-load", "0.1,x"), "--sweep-load 0.1,x"),
        (("--sweep-load", "0.1,2"), "--sweep-load 0.1,2"),
        (("--sweep-load", "0.1", "--traffic", "shift"), "not shift"),
        (("--sweep-load", "0.1", "--load", "0.2"), "--load is for a single run"),
        (("--sweep-load", "0.1", "--write-traffic", "t.csv"), "--write-traffic is for a single run"),
        (("--write-traffic", "t.xml"), ".csv or .json"),
        (("--tables", "nothing"), "nothing"),
        (("--tables", "nothing", "--routing-engine", "auto"), "leave out --routing-engine"),
        (("--routing-engine", "fattree"), "fat-tree"),
        (("--lmc", "1"), "--lmc adds LIDs that only --paths lmc uses"),
        (("--seed", "-1"), "--seed must be 0 or more"),
        (("--traffic", "multicast"), "weft traffic multicast"),
    ],
)
def test_bad_input_gets_one_clear_error_and_writes_nothing(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as refused:
        run(TREE, *arguments)
    assert words in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_given_tables_have_no_groups_for_adaptive_paths(tmp_path):
    write_dumps(route(weft.load(TREE)).fabric, tmp_path)
    with pytest.raises(ConfigError, match="needs groups of ports"):
        run(str(tmp_path / "opensm-subnet.lst"), "--tables", str(tmp_path), "--paths", "adaptive")


def test_the_status_of_bad_input_is_2():
    done = subprocess.run(
        [os.environ["WEFT_WARM"], "sim", TREE, "--traffic", "incst"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("weft: there is no traffic 'incst'")
    assert "Traceback" not in done.stderr
