from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from weft.errors import ConfigError, UnknownName
from weft.fabric import faults
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import islands
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.fabric.topologies import fat_tree, star


def configured() -> Fabric:
    """Return a fabric with a different LID, table entry and counter everywhere."""
    fabric = fat_tree(8, radix=4)
    rng = np.random.default_rng(1)
    fabric.tables.lid[:] = rng.permutation(len(fabric.ports)) + 1
    for table in (fabric.tables.lft, fabric.tables.sl2vl, fabric.tables.pkey):
        table[:] = rng.integers(0, 200, table.shape)
    fabric.counters[:] = rng.integers(0, 1 << 40, fabric.counters.shape)
    return fabric


def digest(fabric: Fabric) -> list[object]:
    """Return a digest of everything that a fault must not change in the original."""
    columns = [
        fabric.links.speed,
        fabric.links.width,
        fabric.links.bit_error_rate,
        fabric.ports.peer,
        fabric.nodes.guid,
    ]
    tables = [fabric.tables.lid, fabric.tables.lft, fabric.tables.sl2vl, fabric.tables.pkey, fabric.counters]
    return [fabric.nodes.name, *(array.tobytes() for array in columns + tables)]


FAULTS: dict[str, Callable[[Fabric], Fabric]] = {
    "remove_link": lambda fabric: faults.remove_link(fabric, "leaf2/3"),
    "degrade": lambda fabric: faults.degrade(fabric, "leaf2/3", 1e-9),
    "slow": lambda fabric: faults.slow(fabric, "leaf2/3", "1xSDR"),
    "kill a switch": lambda fabric: faults.kill(fabric, "spine1"),
    "kill a server": lambda fabric: faults.kill(fabric, "h3"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_original_stays_as_it_was(fault):
    fabric = configured()
    before = digest(fabric)
    broken = fault(fabric)
    broken.tables.lid[:] = 0
    broken.tables.lft[:] = 0
    broken.counters[:] = 0
    assert digest(fabric) == before


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_names_guids_lids_tables_and_counters_of_the_rest_survive(fault):
    fabric = configured()
    broken = fault(fabric)
    for node in (broken.node(i) for i in range(len(broken.nodes))):
        old = fabric.find_node(node.name)
        assert (node.guid, node.lid, node.description, node.group) == (old.guid, old.lid, old.description, old.group)
        for port in node.ports:
            was = fabric.find_port(port.name)
            assert (port.guid, port.lid) == (was.guid, was.lid)
            assert np.array_equal(broken.counters[port.slot], fabric.counters[was.slot])
            assert np.array_equal(broken.tables.pkey[port.slot], fabric.tables.pkey[was.slot])
        if node.kind == NodeKind.SWITCH:
            rows = broken.tables.switch_row[node.index], fabric.tables.switch_row[old.index]
            assert np.array_equal(broken.tables.lft[rows[0]], fabric.tables.lft[rows[1]])
    assert {str(link) for link in broken.all_links()} <= {str(link) for link in fabric.all_links()}


def test_a_pulled_cable_leaves_both_of_its_ports_empty():
    fabric = star(4)
    broken = faults.remove_link(fabric, "leaf1/3")
    assert broken["leaf1/3"].peer is None
    assert broken["h3/1"].peer is None
    assert len(broken.links) == 3
    assert str(broken["leaf1/4"].peer) == "h4/1"


def test_a_cable_can_be_named_by_either_of_its_ports():
    fabric = star(4)
    assert faults.remove_link(fabric, "h3/1")["leaf1/3"].peer is None


def test_a_bad_cable_errs_and_the_others_do_not():
    broken = faults.degrade(star(4), "leaf1/2", 1e-8)
    assert [port.link.bit_error_rate for port in broken["leaf1"].ports[:4]] == [0, 1e-8, 0, 0]


def test_a_slow_cable_comes_up_narrower_or_slower():
    fabric = star(4, speed="EDR")
    assert faults.slow(fabric, "leaf1/2", "1xSDR")["h2/1"].link.label == "1xSDR"
    assert faults.slow(fabric, "leaf1/2", "QDR")["h2/1"].link.label == "4xQDR"
    assert faults.slow(fabric, "leaf1/2", "QDR")["h1/1"].link.label == "4xEDR"


def test_a_dead_switch_takes_its_cables_along():
    fabric = fat_tree(8, radix=4)
    broken = faults.kill(fabric, "spine1")
    assert "spine1" not in broken
    assert len(broken.links) == len(fabric.links) - len(fabric["spine1"].peers)
    assert len(islands(broken)) == 1


def test_a_dead_switch_takes_along_the_aggregation_node_inside_it():
    builder = FabricBuilder("with SHARP")
    switches = builder.add_nodes(NodeKind.SWITCH, ["leaf1", "leaf2"], n_ports=3)
    inside = builder.add_nodes(NodeKind.AGGREGATION, ["leaf1/sharp", "leaf2/sharp"], n_ports=1)
    builder.add_links(switches, 3, inside, 1, "HDR")
    builder.add_links(switches[0], 1, switches[1], 1, "HDR")
    assert faults.kill(builder.build(), "leaf1").nodes.name == ("leaf2", "leaf2/sharp")


def test_a_dead_server_goes_with_all_that_is_in_it():
    fabric = load("star:2,server=dgx-h100")
    broken = faults.kill(fabric, "dgx1")
    assert broken.servers == ("dgx2",)
    assert {node.server.name for node in broken.hcas} == {"dgx2"}
    assert len(broken.nodes) == 1 + len(fabric["dgx2"].nodes)


def test_a_dead_tray_goes_with_its_gpus_and_adapters_and_leaves_the_rack():
    fabric = load("superpod:su=1,server=gb300-nvl72,servers=2")
    broken = faults.kill(fabric, "nvl1/tray3")
    removed = {node.name for node in fabric["nvl1"].nodes} - {node.name for node in broken["nvl1"].nodes}
    numbers = {"gpu": 12, "pcie": 12, "cpu": 6}
    inside = {f"nvl1/{stem}{n + more}" for stem, n in numbers.items() for more in range(2 if stem == "cpu" else 4)}
    assert removed == inside | {f"nvl1/mlx5_{n}" for n in range(18, 24)}
    assert sum(fabric.network_links) - sum(broken.network_links) == 4
    assert faults.kill(load("superpod:su=1,server=gb300-nvl72+36rails,servers=2"), "nvl1/tray17")["nvl1/gpu67"]
    for name, says in (("nvl1/tray18", "nvl1 has tray0 to tray17"), ("dgx1/tray0", "dgx1 has no trays")):
        with pytest.raises(ConfigError, match=f"there is no {name}: {says}"):
            faults.kill(load("star:1,server=dgx-h100") if name.startswith("dgx") else fabric, name)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda fabric: faults.remove_link(fabric, "leaf1/9"), "leaf1/9 has no cable"),
        (lambda fabric: faults.remove_link(fabric, "leaf1/0"), "leaf1/0 has no cable"),
        (lambda fabric: faults.degrade(fabric, "leaf1/1", 2), "bit error rate of leaf1/1 must be in"),
        (lambda fabric: faults.degrade(fabric, "leaf1/1", float("nan")), "must be in"),
        (lambda fabric: faults.slow(fabric, "leaf1/1", "4xXDR"), "cannot fall back to 4xXDR: it runs at 4xNDR"),
        (lambda fabric: faults.slow(fabric, "leaf1/1", "100GbE"), "cannot fall back to 100GbE"),
        (lambda fabric: faults.slow(fabric, "leaf1/1", "3xSDR"), "no width 3x"),
        (lambda fabric: faults.kill(fabric, "leaf1/1"), "leaf1/1 is a port: kill takes a node or a server"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(fault, message):
    with pytest.raises(ConfigError, match=message):
        fault(star(4))


def test_faults_of_missing_elements_are_refused():
    fabric = star(4)
    for fault in (faults.remove_link, faults.kill):
        with pytest.raises(UnknownName, match="leaf2"):
            fault(fabric, "leaf2")
    with pytest.raises(UnknownName, match="no port 'leaf1'"):
        faults.remove_link(fabric, "leaf1")


def test_changes_are_logged():
    fabric = faults.remove_link(faults.kill(load("fat-tree:hosts=32,radix=8"), "spine1"), "leaf2/6")
    assert fabric.changes == ("killed spine1", "removed the cable of leaf2/6")
