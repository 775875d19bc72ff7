"""Paths through intermediate switches: which fabrics have them, and the proof that they cannot deadlock."""

from __future__ import annotations

from functools import cache

import pytest

import weft
from weft.errors import ConfigError
from weft.routing import check as checks
from weft.routing.check import check
from weft.routing.detours import Detour, find_detours
from weft.routing.route import route

LANES = {  # by the tables alone
    "dragonfly:p=1,a=4,h=1": 2,
    "dragonfly+:p=2,leaves=2,spines=2,h=2,g=4": 2,
    "torus:5x3": 2,
    "mesh:3x3": 1,
    "hyperx:3x3": 1,
}
KINDS = [kind for kind in Detour if kind]


@cache
def routed(spec: str) -> weft.Fabric:
    return route(weft.load(spec)).fabric


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", LANES)
def test_detours_cannot_deadlock_on_lanes_for_each_part(spec, kind):
    verdict = check(routed(spec), detour=kind)
    assert verdict.ok
    assert verdict.vls == LANES[spec] * kind.parts
    assert verdict.vls == LANES[spec] * (3 if kind is Detour.PAR else 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", LANES)
def test_without_the_lanes_of_a_part_the_check_finds_a_credit_loop(spec, kind, monkeypatch):
    of_all = checks.part_lanes

    def without_last(detour: Detour, vls: int) -> tuple[int, ...]:
        first, second, _ = of_all(detour, vls)
        return first, second, second

    monkeypatch.setattr(checks, "part_lanes", without_last)
    verdict = check(routed(spec), detour=kind)
    assert not verdict.ok
    assert len(verdict.credit_loop) > 1


def test_detours_of_a_dragonfly_go_through_any_switch_and_end_at_the_first_of_its_group():
    found = find_detours(routed("dragonfly:p=1,a=4,h=1"))
    assert len(found.lid) == 20
    assert len(set(found.group.tolist())) == 5
    assert (found.ends_in_group, found.in_first_group) == (True, True)


def test_detours_of_a_dragonfly_plus_end_at_leaves():
    found = find_detours(routed("dragonfly+:p=2,leaves=2,spines=2,h=2,g=4"))
    assert len(found.lid) == 4 * 2
    assert (found.ends_in_group, found.in_first_group) == (False, True)


def test_every_switch_of_a_torus_is_a_group():
    found = find_detours(routed("torus:5x3"))
    assert len(found.lid) == len(set(found.group.tolist())) == 15


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("fat-tree:hosts=16,radix=8", "has switches without hosts and is no Dragonfly"),
        ("star:hosts=4", "of 3 switches or more"),
    ],
)
def test_a_fabric_without_intermediate_switches_is_refused(spec, words):
    with pytest.raises(ConfigError, match=words):
        find_detours(routed(spec))


def test_the_check_of_detours_needs_paths_to_switches():
    with pytest.raises(ConfigError, match="--hosts-only excludes paths to switches"):
        check(routed("torus:5x3"), hosts_only=True, detour=Detour.UGAL)
