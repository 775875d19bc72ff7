"""Another fabric between the same servers: their number, their rails and the topology stay."""

from __future__ import annotations

import pytest

import weft
from weft.compare.comparison import default_interconnects, recable
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.files import write
from weft.fabric.rates import Technology


@pytest.mark.parametrize("wire", catalog.interconnects(), ids=lambda wire: wire.name)
def test_every_fabric_joins_the_same_servers_by_the_same_rails(wire: catalog.Interconnect) -> None:
    (fabric,) = recable("superpod:su=1,servers=4", [wire])
    assert fabric.servers == ("dgx1", "dgx2", "dgx3", "dgx4")
    assert {node.model for node in fabric.switches} == {wire.switch}
    for server in range(1, 5):
        ports = [fabric[f"dgx{server}/{name}/1"] for name in catalog.server("dgx-h100").compute]
        assert [port.link.label for port in ports] == [catalog.adapter(wire.adapter).label] * 8
        assert {port.node.model for port in ports} == {wire.adapter}


def test_a_switch_with_fewer_ports_makes_more_units() -> None:
    """Half the 40 ports of QM8700 hold 20 servers; 32 of them are two units, with 8 leaves each."""
    (fabric,) = recable("superpod:su=1", [catalog.interconnect("hdr")])
    assert fabric.spec == "superpod:su=2,server=dgx-h100+ConnectX-6,servers=32,switch=QM8700"
    assert len(fabric.servers) == 32
    assert sum(node.name.startswith("leaf") for node in fabric.switches) == 16


def test_few_servers_take_the_fewest_switches_and_ufm_keeps_its_place() -> None:
    """A unit with four servers is a whole unit as a spec; in a comparison of fabrics it has only what would be
    bought.
    """
    ndr, xdr = (catalog.interconnect(name) for name in ("ndr", "xdr"))
    (few,) = recable("superpod:su=1,servers=4", [ndr])
    assert (few.spec, len(few.switches)) == ("superpod:su=1,servers=4,leaves=1,switch=QM9700", 1)
    (wide,) = recable("superpod:su=1,ufm=2", [xdr])
    assert wide.spec == "superpod:su=1,server=dgx-h100+ConnectX-8,servers=31,leaves=4,ufm=2,switch=Q3400"
    assert wide.servers[-2:] == ("ufm1", "ufm2")
    (requests,) = recable("superpod:su=1,servers=4,leaves=8", [ndr])
    assert len(requests.switches) == 12


def test_only_the_cable_options_of_the_spec_are_replaced() -> None:
    spec = "fat-tree:hosts=4,server=dgx-h100+ConnectX-8,oversubscription=2,speed=NDR,switch=Q3400,radix=36"
    (fabric,) = recable(spec, [catalog.interconnect("roce-400")])
    assert fabric.spec == "fat-tree:hosts=4,server=dgx-h100+ConnectX-7-EN,oversubscription=2,switch=SN5400,radix=36"
    assert fabric.links_of(Technology.ETHERNET).sum() == fabric.network_links.sum()


def test_servers_without_gpus_are_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"no servers with GPUs.*give server=, as in .*server=dgx-h100"):
        recable("fat-tree:hosts=16", [catalog.interconnect("ndr")])


def test_a_fabric_that_the_topology_cannot_have_is_named() -> None:
    with pytest.raises(ConfigError, match=r"eth-100-tcp cannot be cabled: star: hosts=8 need 64 ports, SN2700 has 32"):
        recable("star:hosts=8,server=dgx-h100", [catalog.interconnect("ndr"), catalog.interconnect("eth-100-tcp")])


@pytest.fixture
def file(tmp_path) -> str:
    write(weft.load("star:hosts=2,server=dgx-h100"), tmp_path / "two.yaml")
    return str(tmp_path / "two.yaml")


def test_a_file_can_only_be_compared_as_its_own_fabric(file: str) -> None:
    assert [wire.name for wire in default_interconnects(file, ["hdr"])] == ["ndr"]
    (fabric,) = recable(file, [catalog.interconnect("ndr")])
    assert fabric.spec == file
    with pytest.raises(
        ConfigError,
        match=r"links of NDR, and hdr has HDR: the cables of a file cannot be changed. Give a topology spec",
    ):
        recable(file, [catalog.interconnect("hdr")])


def test_a_file_on_ethernet_is_no_cloud(tmp_path) -> None:
    write(weft.load("star:hosts=2,server=dgx-h100+ConnectX-7-EN"), tmp_path / "two.yaml")
    assert [wire.name for wire in default_interconnects(str(tmp_path / "two.yaml"), ["hdr"])] == [
        "roce-400",
        "eth-400-tcp",
    ]


def test_a_file_whose_links_no_fabric_of_the_catalog_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has links of FDR, and no fabric of the catalog has those. Give a topology"):
        default_interconnects("old.yaml", ["hdr"], fabric=weft.load("star:hosts=2,speed=FDR"))


def test_a_topology_is_compared_with_the_usual_fabrics() -> None:
    assert [wire.name for wire in default_interconnects("superpod:su=1", ["hdr", "ndr"])] == ["hdr", "ndr"]


def test_a_fabric_that_was_read_is_not_read_again(file: str) -> None:
    """A pipe could not be."""
    fabric = weft.load(file)
    (wire,) = default_interconnects("gone.yaml", ["hdr"], fabric=fabric)
    assert recable("gone.yaml", [wire], fabric=fabric) == [fabric]
