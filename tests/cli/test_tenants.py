"""`weft tenants`: its output, its questions, and its exit status."""

from __future__ import annotations

import json
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.tenants.memory import MemoryDriver
from tests.tenants.wanted import EXAMPLE, fabric

from weft.cli import app, tenant_drivers, tenants
from weft.cli.tenant_drivers import Where, find_driver
from weft.errors import ConfigError, UnknownName
from weft.fabric.spec import load
from weft.lab import registry
from weft.scenarios.managed import ManagedSubnet
from weft.sm.conf.options import Options
from weft.tenants.partitions import Allocation, Inventory
from weft.tenants.simulate import planned_inventory

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def driver(monkeypatch):
    result = MemoryDriver(fabric(8, ports=2))

    @contextmanager
    def find(where, pool=None):
        yield result

    monkeypatch.setattr(tenants, "find_driver", find)
    return result


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tenants.toml"
    path.write_text(textwrap.dedent(EXAMPLE))
    return str(path)


def weft(*words):
    """Run `weft tenants` and return the exit status."""
    try:
        app(["tenants", *words])
    except SystemExit as end:
        return end.code
    return 0


def rows(said, *first):
    return [words for line in said.splitlines() if (words := line.split()) and words[0] in first]


def test_a_plan_shows_changes_lanes_and_notes_and_changes_nothing(driver, file, capsys):
    assert weft("plan", file) == 3
    output = capsys.readouterr().out
    assert "  + acme=0x0100, SL 1, IPoIB\n      + h[1-2] full, index 0\n" in output
    assert (
        "Note: tenant beta: 0x0000000000009901 is not in the fabric now; it gets its P_Keys when it comes up\n"
        in output
    )
    assert rows(output, "mpi", "storage") == [
        ["mpi", "1", "1", "high", "50", "50"],
        ["storage", "2", "2", "low", "40", "40"],
    ]
    assert output.endswith("memory. Plan: 3 to create, 2 to change, 0 to destroy.\n")
    assert driver.writes == 0


def test_applied_tenants_are_shown_and_destroyed(driver, file, capsys):
    assert weft("apply", file, "--yes") == 0
    assert capsys.readouterr().out.endswith("Applied to memory.\n")
    assert weft("plan", file) == 0
    assert capsys.readouterr().out.endswith("memory. No changes: the fabric matches the intent.\n")
    assert weft() == 0
    output = capsys.readouterr().out
    assert "Ports are limited members of Default (0x7fff)" in output
    assert rows(output, "nas") == [["nas", "0x0101", "2", "h8", "h[1-2]"]]
    assert weft("destroy", file, "--yes") == 0
    assert weft("show") == 0
    assert "Ports are limited members of Default (0x7fff)" in capsys.readouterr().out
    assert weft("destroy", file, "--yes", "--open-default") == 0
    assert driver.allocation == Allocation()
    assert weft("show") == 0
    assert "reaches every other port" in capsys.readouterr().out


def test_programs_read_json(driver, file, capsys):
    assert weft("apply", file, "--yes", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [fact["action"] for fact in facts["changes"]] == ["create", "create", "create", "change", "create"]
    assert facts["lanes"][1] == {
        "class": "mpi", "sl": 1, "vl": 1, "priority": "high", "asked_percent": 50, "given_percent": 50,
    }  # fmt: skip
    assert weft("show", "--json") == 0
    (acme, *_) = json.loads(capsys.readouterr().out)["partitions"]
    assert acme["members"][0] == {
        "guid": "0x0000000000000101", "port": "h1/1", "is_there": True, "membership": "full", "index0": True,
    }  # fmt: skip


@pytest.mark.parametrize(("answer", "writes"), [("yes", 1), ("y", 0), ("", 0)])
def test_only_yes_is_yes(driver, file, monkeypatch, answer, writes):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    assert weft("apply", file) == (0 if writes else "nothing was changed")
    assert driver.writes == writes


def test_a_pipe_is_not_asked(driver, file, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(ConfigError, match="add --yes"):
        weft("apply", file)
    assert driver.writes == 0


def test_impossible_intent_is_refused_with_its_line(driver, tmp_path):
    (tmp_path / "bad.toml").write_text('[tenant.a]\nhosts = ["h99"]\n')
    with pytest.raises(ConfigError, match=r"bad\.toml:2: tenant a: there is no host 'h99'"):
        weft("plan", str(tmp_path / "bad.toml"))


@pytest.fixture
def ufm(monkeypatch, tmp_path):
    """A fabric that successive commands use."""
    result = MemoryDriver(fabric(8))

    @contextmanager
    def reach(where, pool=None):
        yield result

    monkeypatch.setattr(tenant_drivers, "reach", reach)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return result


def test_a_host_that_is_down_keeps_its_seat_from_one_command_to_the_next(ufm, tmp_path, capsys):
    file, at = tmp_path / "two.toml", ("--ufm", "https://ufm.example")
    file.write_text('[tenant.a]\nhosts = ["h[1-2]"]\n[tenant.b]\nhosts = ["h3"]\n')
    assert weft("apply", str(file), "--yes", *at) == 0
    ufm.ports = Inventory(tuple(port for port in ufm.ports.ports if port.host != "h2"))
    file.write_text(file.read_text().replace("h3", "h4"))
    assert weft("apply", str(file), "--yes", *at) == 0
    output = capsys.readouterr().out
    assert "Note: tenant a: h2/1 is not in the fabric now; it gets its P_Keys when it comes up\n" in output
    assert [[*item.members] for item in ufm.allocation.partitions.values()] == [[0x101, 0x201], [0x401]]
    assert weft("show", *at) == 0
    assert capsys.readouterr().out.endswith("\nOffline: h2\n")
    assert weft("show", "--json", *at) == 0
    (a, _) = json.loads(capsys.readouterr().out)["partitions"]
    assert [(item["port"], item["is_there"]) for item in a["members"]] == [("h1/1", True), ("h2/1", False)]
    file.write_text(file.read_text().replace("h4", "h44"))
    with pytest.raises(ConfigError, match="no host 'h44'"):
        weft("plan", str(file), *at)
    (memory,) = (tmp_path / "state/weft").iterdir()
    memory.write_text("{")
    with pytest.raises(ConfigError, match=r"https-ufm\.example\.ports: cannot read the remembered ports of memory"):
        weft("show", *at)


def test_remembered_hosts_end_with_the_lab(ufm, tmp_path, monkeypatch, capsys):
    """The next lab of that name may have the same hosts with other GUIDs, or the same GUIDs at other hosts."""
    file = tmp_path / "one.toml"
    file.write_text('[tenant.a]\nhosts = ["h8"]\n')
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(registry, "find", registry.entry)
    with registry.claim("mine"):
        assert weft("plan", str(file), "--lab", "mine") == 3
        ufm.ports = fabric(7)
        assert weft("plan", str(file), "--lab", "mine") == 3
        assert "tenant a: h8/1 is not in the fabric now" in capsys.readouterr().out
    with registry.claim("mine"), pytest.raises(ConfigError, match="no host 'h8'"):
        weft("plan", str(file), "--lab", "mine")


def test_ports_that_differ_from_what_was_told_are_shown_by_plan_and_repaired_by_apply(driver, file, capsys):
    assert weft("apply", file, "--yes") == 0
    driver.drift.append("h2/1: lacks P_Key 0x8100")
    capsys.readouterr()
    assert weft("plan", file) == 3
    assert "  ! h2/1: lacks P_Key 0x8100\n" in capsys.readouterr().out
    assert weft("apply", file, "--yes") == 0
    assert weft("plan", file) == 0


def test_prove_fails_where_the_fabric_is_open_and_the_intent_is_not(monkeypatch, tmp_path, capsys):
    """The manager never got the intent, or has lost it: without an intent that state is correct."""
    net = ManagedSubnet(load("star:hosts=4"), Options())

    @contextmanager
    def carrier(where):
        yield net.carrier

    @contextmanager
    def find(where, pool=None):
        yield MemoryDriver(planned_inventory(net.fabric))

    monkeypatch.setattr(tenants, "attached", carrier)
    monkeypatch.setattr(tenants, "find_driver", find)
    (tmp_path / "intent.toml").write_text('[tenant.red]\nhosts = ["h2"]\n[tenant.blue]\nhosts = ["h3"]\n')
    assert weft("prove") == 0
    assert capsys.readouterr().out.startswith("open")
    assert weft("prove", str(tmp_path / "intent.toml")) == 1
    output = capsys.readouterr().out
    assert output.startswith("NOT isolated")
    assert "h2/1 to h3/1 on 0xffff (Default)" in output


def test_an_unknown_action_is_refused(driver):
    with pytest.raises(UnknownName, match="no action 'aply'; did you mean apply"):
        weft("aply")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"ufm": "https://ufm", "state": "x"}, "use one of --state and --ufm"),
        ({"umad": "any"}, "--umad any has no effect here"),
        ({"ufm": "https://ufm", "lab": "mine"}, "--lab mine has no effect here"),
        ({"ufm": "https://ufm"}, "set WEFT_UFM_TOKEN, or WEFT_UFM_USER and WEFT_UFM_PASSWORD"),
        (
            {"opensm": Path("nowhere"), "opensm_pid": "x"},
            "no PID file of OpenSM at x: give its",
        ),
        ({"lab": "nobody"}, "lab"),
    ],
)
def test_one_fabric_is_named(flags, said, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=said), find_driver(Where(**flags)):
        pass


def test_a_policy_is_simulated_with_its_seed(capsys):
    assert (
        weft("simulate", str(EXAMPLES / "tenants.toml"), "star:hosts=8", "--messages", "40", "--seed", "3", "--json")
        == 0
    )
    facts = json.loads(capsys.readouterr().out)
    alone, before, after = (fact["p50_us"] for fact in facts["outcomes"])
    assert alone < after < before
    assert (facts["seed"], facts["tenant"], facts["load"]) == (3, "acme", "nas")
