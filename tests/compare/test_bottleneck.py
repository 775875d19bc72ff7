"""Crowds: cables between switches that have more to do than any adapter; a port that all send to is none."""

from __future__ import annotations

import pytest

import weft
from weft.compare.outcome import find_bottleneck
from weft.fabric import faults
from weft.routing.engine import Options as Routing
from weft.routing.route import route
from weft.sim.engine import Options, Paths
from weft.sim.flow.engine import FlowEngine
from weft.sim.patterns import incast
from weft.sim.result import Result
from weft.sim.traffic import Traffic


def run(fabric: weft.Fabric, pairs: list[tuple[str, str]], paths: Paths) -> Result:
    routed = route(fabric, Routing(adaptive=True)).fabric
    return FlowEngine().run(routed, Traffic.of(routed, [(a, b, 1 << 20) for a, b in pairs]), Options(paths=paths))


def test_a_port_to_a_host_is_no_bottleneck() -> None:
    fabric = route(weft.load("star:hosts=4")).fabric
    assert find_bottleneck(FlowEngine().run(fabric, incast(fabric, senders=3, size_bytes=1 << 20), Options())) is None


def test_a_cable_that_one_adapter_fills_is_no_bottleneck() -> None:
    """The adapter of h1 is at the first cable of the fabric."""
    cut = faults.remove_link(weft.load("fat-tree:hosts=4,levels=2,radix=4"), "leaf1/4")
    assert find_bottleneck(run(cut, [("h1", "h3"), ("h1", "h4")], Paths.TABLE)) is None


@pytest.mark.parametrize(("second_bytes", "load"), [(1 << 15, None), (1 << 18, 1.25)])
def test_a_cable_is_a_bottleneck_with_a_quarter_more_load_than_an_adapter_but_not_with_a_thirtieth(
    second_bytes: int, load: float | None
) -> None:
    cut = faults.remove_link(weft.load("fat-tree:hosts=4,levels=2,radix=4"), "leaf1/4")
    routed = route(cut, Routing(adaptive=True)).fabric
    traffic = Traffic.of(routed, [("h1", "h3", 1 << 20), ("h2", "h4", second_bytes)])
    bottleneck = find_bottleneck(FlowEngine().run(routed, traffic, Options(paths=Paths.TABLE)))
    assert (bottleneck and bottleneck.load) == (load and pytest.approx(load, rel=0.01))


@pytest.mark.parametrize(
    ("paths", "says"),
    [
        (Paths.TABLE, "The forwarding tables put what 2 adapters send on one cable: leaf1/3, to spine1"),
        (Paths.ADAPTIVE, "There are too few cables between switches: leaf1/3, to spine1, has to carry what 2 adapters"),
        (Paths.ECMP, r"Flows that hash to the same port share it: leaf1/3, to spine1, one of 1 such ports of leaf1"),
    ],
)
def test_a_bottleneck_names_the_cause_of_its_load(paths: Paths, says: str) -> None:
    tree = weft.load("fat-tree:hosts=4,levels=2,radix=4")
    whole = run(tree, [("h1", "h3"), ("h2", "h4")], Paths.ADAPTIVE)
    assert find_bottleneck(whole) is None
    cut = faults.remove_link(tree, "leaf1/4")
    bottleneck = find_bottleneck(run(cut, [("h1", "h3"), ("h2", "h4")], paths))
    assert bottleneck is not None
    assert bottleneck.load == pytest.approx(2, rel=0.01)
    assert str(bottleneck).startswith(says)
