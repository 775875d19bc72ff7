"""A subnet is followed by UFM's REST interface: weft serve's, and ports as UFM's documentation has them."""

from __future__ import annotations

import sys

import pytest

from weft.cli import main
from weft.errors import SubnetError
from weft.serve.embedded import Ufm as Server
from weft.tenants.drivers.ufm_rest import UfmClient
from weft.twin.facts import read_facts
from weft.twin.follow import Follower
from weft.twin.history import History
from weft.twin.ufm_source import Ufm, read_ports

URL = "https://ufm.example"


def port(name, peer="N/A", **more):
    """Return a port with the fields that UFM's documentation shows."""
    guid, _, number = name.partition("_")
    description = "Switch IB Port" if guid.startswith("7") else "Computer IB Port"
    return {
        "description": description,
        "number": int(number or 0),
        "physical_state": "Link Up",
        "logical_state": "Active",
        "lid": 3,
        "mtu": 4096,
        "active_speed": "EDR",
        "active_width": "4x",
        "systemID": guid,
        "node_description": f"leaf-{guid[-1]}:{number}" if "Switch" in description else f"node-{guid[-1]} mlx5_0",
        "name": name,
        "guid": guid,
        "peer": peer,
    } | more


PORTS = [
    port("248a0703002e61d1_1", "7cfe90030097cef0_21", lid=1),
    port("248a0703002e61d2_1", "7cfe90030097cef0_22", lid=2, active_speed=None, active_width=None),
    port("7cfe90030097cef0_21", "248a0703002e61d1_1"),
    port("7cfe90030097cef0_22", "248a0703002e61d2_1", active_speed="HDR", active_width="2x"),
    port("7cfe90030097cef0_23", active_speed="N/A", active_width=None),
]


def test_ports_as_documented_are_a_fabric():
    facts = read_facts(read_ports(PORTS, URL))
    assert facts["link", "node-1/1"] == "leaf-0/21 4xEDR"
    assert facts["link", "leaf-0/22"] == "node-2/1 2xHDR"
    assert facts["node", "leaf-0"] == "switch 0x7cfe90030097cef0"
    assert {name: lid for (kind, name), lid in facts.items() if kind == "lid"} == {
        "node-1/1": "1",
        "node-2/1": "2",
        "leaf-0/0": "3",
    }


@pytest.mark.parametrize(
    ("ports", "reason"),
    [
        ({"error": "x"}, "is no list of ports"),
        ([*PORTS, port("x")], "'x' is not the name of a port"),
        ([*PORTS, port("248a0703002e61d3_1", "9cfe_1")], "the peer of 248a0703002e61d3_1, 9cfe_1, is not among its"),
    ],
)
def test_answers_that_are_not_as_documented_are_refused(ports, reason):
    with pytest.raises(SubnetError, match=reason):
        read_ports(ports, URL)


def test_a_follower_of_weft_serve_sees_cables_and_lids(monkeypatch, capsys, tmp_path):
    with Server("fat-tree:hosts=6,radix=4") as server:
        follower = Follower(Ufm(UfmClient(server.url, token=server.token)), History("sqlite://"))
        assert follower.poll() == []
        links = {name: value for (kind, name), value in read_facts(follower.fabric).items() if kind == "link"}
        true = {
            end.name: f"{far.name} {link.label}"
            for link in map(server.fabric.link, range(len(server.fabric.links)))
            for end, far in ((link.a, link.b), (link.b, link.a))
        }
        assert links == true
        assert follower.poll() == []
        monkeypatch.setenv("WEFT_UFM_TOKEN", server.token)
        words = ["weft", "follow", "--ufm", server.url, "--times", "1", "--database", str(tmp_path / "fabric.db")]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None)
        assert "following " in capsys.readouterr().out
        monkeypatch.setattr(sys, "argv", [*words, "--lab", "x"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code, "use --ufm alone" in capsys.readouterr().err) == (2, True)
