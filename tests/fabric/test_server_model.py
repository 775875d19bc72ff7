"""Servers of a dump with their inner devices: as if the fabric had been built with such servers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.collectives.nccl.cluster import from_fabric
from weft.collectives.ranks import compute_servers, pick_servers, place
from weft.errors import ConfigError, UnknownName
from weft.fabric import files
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.fabric.server_model import attach_server_model
from weft.fabric.spec import as_kinds, load
from weft.routing.route import route


@pytest.fixture(scope="module")
def built() -> Fabric:
    return load("star:hosts=3,server=dgx-a100")


@pytest.fixture
def dump(built: Fabric, tmp_path: Path) -> Path:
    path = tmp_path / "star.net"
    files.write(built, path, "ibnetdiscover")
    return path


def test_a_dump_has_gpus_again_where_they_were(built: Fabric, dump: Path) -> None:
    """All but the adapters for storage, which no cable leads to; the wires end where they did."""
    again = load(f"{dump} as dgx*=dgx-a100")
    stored = {f"dgx{n}/mlx5_{m}" for n in (1, 2, 3) for m in (4, 5, 10, 11)}
    assert set(again.nodes.name) == set(built.nodes.name) - stored

    def wires(fabric: Fabric) -> set[tuple[str, ...]]:
        ends = ((str(link.a.node.name), str(link.b.node.name), link.label) for link in fabric.all_links())
        return {(*sorted(ends[:2]), ends[2]) for ends in ends if not stored & set(ends[:2])}

    assert wires(again) == wires(built)
    assert from_fabric(again) == from_fabric(built)
    assert place(again).rail_of.tolist() == place(built).rail_of.tolist()
    assert len(set(again.nodes.guid.tolist())) == len(again.nodes)


def test_values_of_the_dump_are_kept(dump: Path) -> None:
    """Names, GUIDs, LIDs, forwarding and SL to VL: adapters only get a port more, behind theirs."""
    bare = route(load(str(dump))).fabric
    bare.tables.sl2vl[:] = np.arange(len(bare.tables.sl2vl))[:, None] % 15
    bare.counters[:] = np.arange(len(bare.counters))[:, None]
    whole = attach_server_model(bare, {"dgx1": "dgx-a100", "dgx2..3": "dgx-a100+ConnectX-6"})
    for name, node in bare.node_index.items():
        now = whole.node_index[name]
        assert whole.nodes.guid[now] == bare.nodes.guid[node]
        ports = np.arange(bare.nodes.n_ports[node] + 1)
        old, new = bare.first_port[node] + ports, whole.first_port[now] + ports
        for column in ("lid", "lmc"):
            assert (getattr(whole.tables, column)[new] == getattr(bare.tables, column)[old]).all()
        assert (whole.counters[new] == bare.counters[old]).all()
        assert (whole.ports.guid[new] == bare.ports.guid[old]).all()
        assert whole.tables.sl2vl[whole.tables.first_pair[now]][0] == bare.tables.sl2vl[bare.tables.first_pair[node]][0]
    assert (whole.tables.lft == bare.tables.lft).all()
    assert whole["dgx1/mlx5_0/1"].peer.node.name == "leaf1"
    assert whole["dgx1/mlx5_0/2"].peer.node.name == "dgx1/pcie0"
    assert compute_servers(whole) == ("dgx1", "dgx2", "dgx3")


def test_adapters_that_firmware_numbered_are_those_of_the_driver(dump: Path) -> None:
    text = dump.read_text()
    for number in range(12):
        text = text.replace(f' mlx5_{number}"', f' HCA-{number + 1}"')
    dump.write_text(text)
    assert "dgx1/HCA-1" in load(str(dump))
    whole = load(f"{dump} as dgx*=dgx-a100")
    assert whole["dgx1/mlx5_9"].description == "dgx1 HCA-10"
    assert from_fabric(whole).nics == 8


def test_a_lone_adapter_is_one_of_its_server(tmp_path: Path) -> None:
    path = tmp_path / "hosts.net"
    files.write(load("star:hosts=2"), path, "ibnetdiscover")
    path.write_text(path.read_text().replace("h1 mlx5_0", "h1 mlx5_6"))
    whole = load(f"{path} as h1=dgx-h100")
    assert whole.find_node("h1/mlx5_6").server == whole.find_server("h1")
    assert len(whole.of_kind(NodeKind.GPU)) == 8
    assert whole.links_of(Technology.NVLINK).sum() == 8 * 18
    assert len(load(f"{path} as h2=host").nodes) == len(load(str(path)).nodes)


def test_servers_are_picked_by_range_or_number_among_those_with_gpus(dump: Path) -> None:
    whole = load(f"{dump} as dgx2..3=dgx-a100")
    assert pick_servers(whole, "2") == ("dgx2", "dgx3")
    assert pick_servers(whole, "dgx1..2,dgx3") == ("dgx1", "dgx2", "dgx3")
    assert pick_servers(whole, "dgx[2-3]") == ("dgx2", "dgx3")
    with pytest.raises(UnknownName, match="no server 'dgx7'; did you mean"):
        pick_servers(whole, "dgx1,dgx7")
    with pytest.raises(ConfigError, match=r"--servers 3: .* has 2"):
        pick_servers(whole, "3")


def test_brackets_are_those_of_a_hostlist() -> None:
    """`dgx[1-16]` has sixteen servers, as in --jobs and --hosts; a class of characters would have dgx1 and dgx6."""
    fabric = load("superpod:su=2,servers=64")
    wanted = tuple(f"dgx{number}" for number in (*range(1, 17), *range(33, 49)))
    assert pick_servers(fabric, "dgx[1-16],dgx[33-48]") == wanted
    assert pick_servers(fabric, "dgx[1-16,33-48]") == wanted
    assert pick_servers(fabric, "dgx[9-10], dgx4..5") == ("dgx9", "dgx10", "dgx4", "dgx5")
    assert pick_servers(fabric, "dgx[1-2]?")[:2] == ("dgx10", "dgx11")
    with pytest.raises(UnknownName, match="no server 'dgx65'"):
        pick_servers(fabric, "dgx[64-65]")
    with pytest.raises(ConfigError, match=r"invalid 'dgx\[ab\]' in hostlist"):
        pick_servers(fabric, "dgx[ab]")


def test_server_models_take_a_hostlist(dump: Path) -> None:
    whole = load(as_kinds(str(dump), "dgx[1,3]=dgx-a100"))
    assert compute_servers(whole) == ("dgx1", "dgx3")


@pytest.mark.parametrize(
    ("kinds", "error", "says"),
    [
        ("luna-*=dgx-a100", UnknownName, r"no server matching 'luna-\*'; did you mean dgx1, dgx2 or dgx3"),
        ("dgx1..4=dgx-a100", UnknownName, r"no server 'dgx4'; .*\n  1 of dgx1..4 are not in .*matches existing ones"),
        ("dgx*=dgx-a10", UnknownName, "did you mean dgx-a100"),
        ("dgx*=dgx-b200+ConnectX-6", ConfigError, "dgx1 has an adapter 'mlx5_0' .* dgx-b200.* has mlx5_4"),
        (
            "dgx*=dgx-h100",
            ConfigError,
            "dgx1/mlx5_0 is a ConnectX-6 .* a ConnectX-7 in dgx-h100: .*dgx-h100.ConnectX-6",
        ),
        ("dgx*=host-hdr", ConfigError, "dgx1 has 8 adapters .* host-hdr has 1: match other"),
        ("dgx*=dgx-a100,dgx1=host", ConfigError, r"dgx1 is dgx-a100 by dgx\* and host by dgx1"),
        ("dgx*", ConfigError, r"'dgx\*' is not PATTERN=TEMPLATE: write luna-\*=dgx-a100"),
        ("dgx1=host,dgx1=host", ConfigError, "dgx1 is given twice"),
    ],
)
def test_servers_that_are_not_so_are_refused(dump: Path, kinds: str, error: type[ConfigError], says: str) -> None:
    with pytest.raises(error, match=says):
        load(as_kinds(str(dump), kinds))


def test_only_bare_servers_of_files_get_a_model(built: Fabric) -> None:
    with pytest.raises(ConfigError, match=r"dgx1 of .* already contains dgx1/gpu0"):
        attach_server_model(built, {"dgx1": "dgx-a100"})
    with pytest.raises(ConfigError, match="--as is for files; a topology takes server="):
        as_kinds("star:hosts=3", "h*=dgx-a100")


def test_selene_is_458_dgx_a100(selene: Fabric) -> None:
    whole = attach_server_model(selene, {"luna-*": "dgx-a100"})
    assert len(whole.of_kind(NodeKind.GPU)) == 458 * 8
    assert whole.network_links.sum() == selene.network_links.sum()
    assert len(compute_servers(whole)) == 458
    assert from_fabric(whole, pick_servers(whole, "luna-0001..4")).nic_gbit_s == 200
