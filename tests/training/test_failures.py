"""A fault in the middle of a job: routes of before and after, moments of retries, and jobs that end."""

from functools import cache
from math import inf

import numpy as np
import pytest

from weft.collectives.ranks import place
from weft.errors import ConfigError, UnknownName
from weft.fabric.faults import kill
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.routing.check import check
from weft.routing.route import route
from weft.sim.engine import Network
from weft.training.communication import OverFabric
from weft.training.failures import Disturbance, disturb, parse_fault, retries_of
from weft.training.gpu import Gpu
from weft.training.parallel import Layout
from weft.training.step import Step, run_step
from weft.training.transformer import find

LAYOUT = Layout(gpus=128, tp=4, global_batch=128, seq=4096)
ROUTING = route(load("fat-tree:hosts=16,server=dgx-h100"))
TIMEOUT_S = 4.096e-6 * 2**20  # 4.3 s


def step_on(fabric: Fabric) -> Step:
    return run_step(find("llama3-8b"), LAYOUT, Gpu.of("H100"), OverFabric(place(fabric), LAYOUT))


@cache
def before() -> Step:
    return step_on(ROUTING.fabric)


def hurt(fault: str, **given) -> Disturbance:
    return disturb(ROUTING, parse_fault(fault), step_on, before=before(), **given)


def test_a_slow_cable_makes_the_step_of_all_longer_by_what_its_collectives_take_longer():
    """Rings work in step: half the rate on one cable of a server is half the rate for every group."""
    slow = hurt("slow:dgx1/mlx5_0/1=4xHDR")
    assert slow.stands_s == 0
    assert slow.survives
    assert slow.changed_entries == 0
    assert slow.under is not None
    assert slow.under.parts["dp"] > 2 * before().parts["dp"]
    for part in ("products", "attention", "memory", "tp"):
        assert slow.under.parts[part] == before().parts[part]
    slower = hurt("slow:dgx1/mlx5_0/1=4xEDR")
    assert slower.slowdown > slow.slowdown > 1


def test_a_tray_of_a_rack_ends_the_job_with_all_its_ports():
    rack = load("superpod:su=2,server=gb200-nvl72,servers=2")
    fault = parse_fault("dead:nvl2/tray17")
    assert {rack.nodes.name[rack.ports.node[slot]] for slot in fault.ports(rack)} >= {"nvl2/gpu68", "nvl2/mlx5_140"}
    assert len(rack.nodes) - len(fault.break_(rack).nodes) == 14


def test_a_cable_between_switches_that_is_gone_hurts_less_than_one_that_is_slow():
    """The subnet manager leads around the first, and sees nothing wrong with the second."""
    tables, last = ROUTING.tables, ROUTING.fabric.find_port("dgx5/mlx5_0/1")  # leaf1 has dgx1 to dgx4
    port = f"leaf1/{tables.lft[0, tables.lid[last.slot]]}"
    removed, slow = hurt(f"cut:{port}"), hurt(f"slow:{port}=4xHDR")
    assert removed.changed_entries > 0
    assert slow.changed_entries == 0
    assert removed.slowdown < slow.slowdown


def test_a_dead_spine_is_led_around_and_its_routes_are_shared():
    observed = []
    dead = disturb(
        ROUTING, parse_fault("dead:spine1"), lambda fabric: observed.append(fabric) or step_on(fabric), before=before()
    )
    assert check(observed[0], hosts_only=True).ok
    assert 0 < dead.changed_entries < ROUTING.tables.lft.size / 2
    assert dead.cut_off == ()
    assert dead.survives
    assert dead.stands_s == pytest.approx(TIMEOUT_S)  # new routes after 1 s: the first try finds them
    assert dead.slowdown > 1.05


@pytest.mark.parametrize(
    ("lasts_s", "stands_s"),
    [(0.01, TIMEOUT_S), (5, 2 * TIMEOUT_S), (30, 7 * TIMEOUT_S), (31, inf)],
)
def test_a_flap_ends_with_the_first_try_after_it_or_ends_the_job(lasts_s, stands_s):
    flap = hurt(f"flap:dgx1/mlx5_0/1@{lasts_s}s")
    assert flap.cut_off == ("dgx1/mlx5_0",)
    assert flap.stands_s == pytest.approx(stands_s)
    assert flap.survives == (stands_s < inf)
    assert flap.under is None
    assert flap.slowdown is None
    assert flap.report()["stands_s"] == (pytest.approx(stands_s) if stands_s < inf else None)


def test_a_flap_between_switches_is_led_around_unless_it_is_over_before():
    long, short = hurt("flap:leaf1/40@5s", reroute_s=0.5), hurt("flap:leaf1/40@0.3s", reroute_s=0.5)
    assert (long.outage_s, short.outage_s) == (0.5, 0.3)
    assert long.changed_entries > 0
    assert short.under is None
    assert not hurt("flap:leaf1/40@60s", reroute_s=40).survives  # a subnet manager that is slow to see it


def test_a_job_that_lost_an_adapter_restarts_with_seven_of_eight_rails():
    """Two GPUs of that server share a rail then, and every ring is as slow as with a cable of half the rate."""
    cut = hurt("cut:dgx1/mlx5_0/1")
    assert (cut.survives, cut.under, cut.cut_off) == (False, None, ("dgx1/mlx5_0",))
    slow = hurt("slow:dgx1/mlx5_0/1=4xHDR")
    assert cut.report()["restarted_step_s"] > 1.1 * before().step_s
    assert cut.report()["restarted_step_s"] == pytest.approx(slow.report()["under_step_s"], rel=0.01)
    assert hurt("flap:dgx1/mlx5_0/1@60s").restarted is None


@pytest.mark.parametrize("fault", ["dead:dgx1/gpu3", "dead:dgx2"])
def test_a_job_that_lost_gpus_does_not_restart_on_the_rest(fault):
    assert hurt(fault).restarted is None


def test_a_leaf_that_dies_ends_the_job():
    dead = hurt("dead:leaf1")
    assert not dead.survives
    assert dead.restarted is None
    assert dead.under is None
    assert len(dead.cut_off) == 32


def test_the_last_spine_that_dies_ends_the_job_though_every_adapter_has_its_cable():
    last = route(kill(load("fat-tree:hosts=16,server=dgx-h100"), "spine2"))
    dead = disturb(last, parse_fault("dead:spine1"), step_on, before=before())
    assert not dead.survives
    assert dead.under is None
    assert dead.cut_off == ()


def test_a_shorter_timeout_wakes_the_job_sooner_and_kills_it_sooner():
    """14, NCCL's until 2.14: 67 ms, and half a second in all."""
    old = retries_of(Network.INFINIBAND, 14)
    assert hurt("flap:dgx1/mlx5_0/1@0.3s", retries=old).stands_s == pytest.approx(5 * 4.096e-6 * 2**14)
    assert not hurt("flap:dgx1/mlx5_0/1@5s", retries=old).survives


def test_tcp_waits_twice_as_long_each_time_and_gives_up_with_the_watchdog():
    tcp = retries_of(Network.TCP)
    assert np.allclose(tcp.tries_s[:5], [0.2, 0.6, 1.4, 3.0, 6.2])
    assert tcp.stands_s(5) == pytest.approx(6.2)
    assert tcp.gives_up_s == 600
    assert tcp.stands_s(601) == inf


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("dead", "KIND:WHERE"),
        ("slow:leaf1/3", "slow:leaf1/3=4xHDR"),
        ("flap:leaf1/3", "seconds"),
        ("flap:leaf1/3@soon", "seconds"),
        ("flap:leaf1/3@-1s", "seconds"),
    ],
)
def test_a_fault_that_is_none_is_refused(text, why):
    with pytest.raises(ConfigError, match=why):
        parse_fault(text)


def test_an_unknown_fault_or_place_is_named():
    with pytest.raises(UnknownName, match="dead"):
        parse_fault("ded:spine1")
    with pytest.raises(ConfigError, match="spine99"):
        hurt("dead:spine99")
    assert str(parse_fault("flap:dgx1/mlx5_0/1@5s")) == "flap:dgx1/mlx5_0/1@5s"
    assert str(parse_fault("slow:leaf1/3=4xHDR")) == "slow:leaf1/3=4xHDR"
