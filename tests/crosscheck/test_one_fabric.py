"""All views of one fabric agree on reachability, VLs and counters.

A subnet manager brings up a fabric with partitions, QoS and faults drawn at random. Then the subnet administrator,
packets hop by hop, the path of an adapter's shared-memory writes, the packet engine, the flow engine and `weft check`
are compared for pairs of hosts.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.conftest import find_dump
from tests.crosscheck import views
from tests.crosscheck.views import Running

import weft
from weft.mad import faults
from weft.mad.devices import NONE

SPECS = [
    "fat-tree:hosts=12,radix=4,levels=3",
    "torus:5x5",
    "torus:6x5,hosts=2",
    "dragonfly:p=2,a=4,h=2",
    "hyperx:3x3,hosts=2",
    "star:hosts=5",
]
CASES = [(spec, seed, {}) for seed, spec in enumerate(SPECS)]
CASES += [
    ("dragonfly+:p=2,leaves=2,spines=2,h=1,g=3", 0, {}),
    ("mesh:3x4", 1, {"routing_engine": ("dfsssp",)}),
    ("torus:4x4,hosts=2", 2, {"routing_engine": ("dfsssp",)}),
    ("torus:4x4", 3, {"routing_engine": ("up-down",), "lmc": 1}),
    ("hyperx:3x3", 4, {"routing_engine": ("dfsssp",), "lmc": 2}),
    ("fat-tree:hosts=16,radix=8", 5, {"routing_engine": ("min-hop",), "lmc": 1}),
    ("random:6", 6, {}),
    ("random:7", 7, {"routing_engine": ("dfsssp",)}),
    ("random:8", 8, {"routing_engine": ("up-down",), "lmc": 2}),
]


def name_of(case: tuple) -> str:
    spec, seed, options = case
    return "-".join([spec, str(seed), *(f"{key}={value}" for key, value in options.items())])


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_every_view_of_the_fabric_is_of_the_same_fabric(case, tmp_path) -> None:
    spec, seed, options = case
    random = Random(seed)
    running = Running(views.fabric_called(spec), random, tmp_path, **options)
    between = views.between_switches(running.devices)
    for slot in random.sample(between, min(len(between), random.randint(0, 2))):
        if running.devices.peer(slot) != NONE:
            faults.pull_cable(running.devices, slot)
            running.net.settle()
    running.look()
    views.assert_same(running)
    if running.net.options.lmc:
        views.assert_every_lid_leads_there(running)


@pytest.mark.parametrize(("dump", "seed"), [("selene.compute.txt", 11), ("topograph_example.out", 12)])
def test_every_view_of_a_slice_of_a_real_fabric_is_of_the_same_fabric(dump, seed, tmp_path) -> None:
    random = Random(seed)
    running = Running(views.slice_of(weft.load(str(find_dump(dump))), seed), random, tmp_path)
    for slot in random.sample(views.between_switches(running.devices), 5):
        faults.pull_cable(running.devices, slot)
    running.net.settle()
    running.look()
    views.assert_same(running)


@pytest.mark.parametrize(
    ("spec", "seed"),
    [
        ("fat-tree:hosts=16,radix=8", 21),
        ("superpod:su=1,servers=4", 22),
        ("dragonfly+:p=2,leaves=2,spines=2,h=2,g=3", 23),
    ],
)
def test_packets_that_switches_send_where_they_like_take_ports_of_the_groups(spec, seed, tmp_path) -> None:
    random = Random(seed)
    engines = ("fat-tree", "up-down")  # in other engines a group has only parallel links
    running = Running(views.fabric_called(spec), random, tmp_path, adaptive_routing=True, routing_engine=engines)
    faults.pull_cable(running.devices, random.choice(views.between_switches(running.devices)))
    running.net.settle()
    running.look()
    views.assert_same(running)
    both = [pair for pair in running.row if pair[::-1] in running.row]
    assert views.assert_choices_are_allowed(running, random.sample(both, min(len(both), 12))) > 0
