"""Rails as subnets: parts of a fabric that has more ports than a subnet has LIDs."""

from __future__ import annotations

import numpy as np
import pytest

from weft.collectives.nccl import measure
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import place
from weft.fabric import faults
from weft.fabric.spec import load
from weft.ids import Lid
from weft.routing import rails
from weft.routing.rails import needs_subnets, rail_subnets
from weft.sim.perftest import prepare

SPEC = "superpod:su=3,radix=8"


def test_equal_rails_are_one_subnet() -> None:
    (part,) = rail_subnets(load(SPEC))
    assert len(part.rails) == 8
    assert len(part.fabric.hcas) == 12


def test_a_broken_rail_is_a_subnet_of_its_own() -> None:
    parts = rail_subnets(load(SPEC).without("leaf1/5"))
    assert sorted(len(part.rails) for part in parts) == [1, 7]


def test_ports_of_a_rail_keep_their_names() -> None:
    fabric = load(SPEC)
    (part,) = rail_subnets(fabric)
    slots = np.array([fabric.find_port(f"dgx{n}/{part.rails[0]}/1").slot for n in (1, 12)], np.int32)
    assert [part.fabric.port(int(slot)).name for slot in part.slots(slots)] == [
        fabric.port(int(slot)).name for slot in slots
    ]


def test_a_small_fabric_is_one_subnet() -> None:
    assert not needs_subnets(load(SPEC))


def test_hosts_that_are_one_adapter_have_no_rails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each host had a rail of its own, and 65,536 hosts were divided for hours instead of refused."""
    monkeypatch.setattr(rails, "Lid", type("FewLids", (), {"FIRST_MULTICAST": Lid(10)}))
    assert not needs_subnets(load("fat-tree:hosts=16,radix=8"))
    assert needs_subnets(load(SPEC))


def test_a_fabric_of_several_subnets_is_not_divided_by_rails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rails, "Lid", type("FewLids", (), {"FIRST_MULTICAST": Lid(50)}))
    assert needs_subnets(load("superpod:su=1,servers=8"))
    assert not needs_subnets(load("subnets:2,of=superpod:su=1,servers=8"))


def test_rail_by_rail_gives_the_rates_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure.measure(place(prepare(load(SPEC))), patterns=(Pattern.RING,)).networks[Pattern.RING]
    monkeypatch.setattr(rails, "Lid", type("FewLids", (), {"FIRST_MULTICAST": Lid(100)}))
    parts = measure.measure(place(load(SPEC)), patterns=(Pattern.RING,)).networks[Pattern.RING]
    assert parts.adapter_gbyte_s == pytest.approx(whole.adapter_gbyte_s, rel=0.02)
    assert parts.step_us == pytest.approx(whole.step_us, rel=0.02)


def test_servers_of_equal_kind_count_once() -> None:
    from weft.collectives.nccl.cluster import from_fabric

    fabric = load("superpod:su=1,servers=4")
    assert from_fabric(fabric).nodes == 4
    slow = faults.slow(fabric, "dgx3/mlx5_0/1", "4xHDR")
    assert (from_fabric(slow).nic_gbit_s, from_fabric(fabric).nic_gbit_s) == (200, 400)


def test_a_fabric_too_large_for_a_subnet_is_routed_rail_by_rail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from weft.cli.route import route

    monkeypatch.setattr(rails, "Lid", type("FewLids", (), {"FIRST_MULTICAST": Lid(100)}))
    route(SPEC)
    output = capsys.readouterr().out
    assert f"{SPEC} needs more LIDs than a subnet has; each rail is routed as a subnet." in output
    assert "8 equal rails, of which one is verified" in output
