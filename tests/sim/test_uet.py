"""Ultra Ethernet: completion times as htsim's uec, limits of fluids, and each rule where it shows.

Stored outputs of htsim: github.com/ultraethernet/uet-htsim 40ccb052, validate_uec_sender.out. Its network here: 3-level
fat tree, 100 Gbit/s, 1 µs a link, store-and-forward, 2 MB a flow; a flow ends with its last acknowledgement.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import weft
from weft.errors import ConfigError, SubnetError
from weft.fabric import faults
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim import patterns
from weft.sim.engine import Options
from weft.sim.packet import plan
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Result
from weft.sim.traffic import Traffic

CABLE_M = 139.0  # 1 µs with the switch behind it
FLOW_BYTES = 2_000_000
LINE_BYTES_PER_US = 12_500
HTSIM = {"network": "uet", "switching": "store-and-forward", "mtu_bytes": 4032}


@cache
def tree(hosts: int, spec: str = "") -> Fabric:
    radix = {16: 4, 128: 8}[hosts]
    fabric = weft.load(f"fat-tree:hosts={hosts},radix={radix},levels=3,speed=100GbE{spec}")
    fabric = fabric.with_links(replace(fabric.links, length_m=np.full(len(fabric.links), CABLE_M, np.float32)))
    return route(fabric, RoutingOptions(adaptive=True)).fabric


def run(fabric: Fabric, messages: list[tuple[str, str, int]] | Traffic, **options: Any) -> Result:
    traffic = messages if isinstance(messages, Traffic) else Traffic.of(fabric, messages)
    return PacketEngine().run(fabric, traffic, Options(**(HTSIM | options)))


def acked_us(result: Result) -> NDArray[np.float64]:
    return np.asarray(result.acked_ps / 1e6)


def into_last(hosts: int, size_bytes: int = FLOW_BYTES) -> list[tuple[str, str, int]]:
    return [(f"h{i}", f"h{hosts}", size_bytes) for i in range(1, hosts)]


def permutation(hosts: int, seed: int = 1, **options: Any) -> Result:
    traffic = patterns.permutation(tree(hosts), size_bytes=FLOW_BYTES, seed=seed)
    return run(tree(hosts), traffic, seed=seed, **options)


# -- htsim ------------------------------------------------------------------------------------------------------------


def test_one_flow_takes_as_long_as_in_htsim():
    result = run(tree(16), [("h1", "h14", FLOW_BYTES)])
    assert acked_us(result)[0] == pytest.approx(176.2, rel=0.03)
    assert result.retransmitted.sum() == 0


def test_both_directions_at_once_take_as_long_as_in_htsim():
    result = run(tree(16), [("h1", "h14", FLOW_BYTES), ("h14", "h1", FLOW_BYTES)])
    assert acked_us(result) == pytest.approx([176.8, 176.8], rel=0.03)


@pytest.mark.parametrize(
    ("control", "most", "mean", "least_trimmed"),
    [("nscc", 2478.5, 2179.2, 400), ("rccc", 2464.4, 2444.9, 400), ("nscc-rccc", 2462.9, 2450.9, 400)],
)
def test_an_incast_of_15_ends_as_in_htsim(control: str, most: float, mean: float, least_trimmed: int):
    """The tail of NSCC is stored; the others are from the same program with -receiver_cc_only, and with both."""
    result = run(tree(16), into_last(16), congestion_control=control)
    assert acked_us(result).max() == pytest.approx(most, rel=0.05)
    assert acked_us(result).mean() == pytest.approx(mean, rel=0.10)
    assert result.retransmitted.sum() == result.use.trimmed_packets.sum() > least_trimmed


def test_an_incast_of_127_ends_as_in_htsim():
    result = run(tree(128), into_last(128))
    assert acked_us(result).max() == pytest.approx(21_029.3, rel=0.05)
    assert acked_us(result).mean() == pytest.approx(20_170.2, rel=0.10)


def test_two_short_flows_join_a_long_one_as_in_htsim():
    rows = [("h128", "h1", FLOW_BYTES), ("h96", "h1", 250_000), ("h62", "h1", 250_000)]
    traffic = Traffic.of(tree(128), rows, start_ps=[0, 40_000_000, 40_000_000])
    done_us = acked_us(run(tree(128), traffic))
    assert done_us[0] == pytest.approx(221.7, rel=0.10)
    assert done_us.min() == pytest.approx(114.1, rel=0.10)


def test_a_permutation_of_16_ends_as_in_htsim():
    each = [acked_us(permutation(16, seed)) for seed in range(1, 6)]
    assert np.mean([done.max() for done in each]) == pytest.approx(194.0, rel=0.05)
    assert np.mean(each) == pytest.approx(190.9, rel=0.05)


@pytest.mark.parametrize(
    ("paths", "most", "mean"),
    [("oblivious", 232.3, 200.0), ("bitmap", 201.0, 192.2), ("reps", 203.9, 196.0), ("mixed", 200.9, 192.6)],
)
def test_entropies_spread_a_permutation_of_128_as_in_htsim(paths: str, most: float, mean: float):
    """The program itself was run for these: -load_balancing_algo, 128 paths; only runs of 1,024 hosts are stored."""
    done_us = acked_us(permutation(128, paths=paths))
    assert done_us.max() == pytest.approx(most, rel=0.10)
    assert done_us.mean() == pytest.approx(mean, rel=0.05)


def test_a_slow_link_delays_a_permutation_as_in_htsim(monkeypatch: pytest.MonkeyPatch):
    """htsim's failed link has a quarter of its rate in one direction, from a core switch down."""
    usual = plan.make_wiring

    def with_slow_port(fabric: Fabric, *rest: Any) -> Any:
        wiring = usual(fabric, *rest)
        rates = np.concatenate((wiring.rate_gbit_s, [25.0]))
        wiring.ports.rate[wiring.port_of_slot[fabric.find_port("core1/1").slot]] = len(rates) - 1
        return replace(wiring, rate_gbit_s=rates)

    monkeypatch.setattr(plan, "make_wiring", with_slow_port)
    each = [acked_us(permutation(16, seed)) for seed in range(1, 6)]
    assert np.mean([done.max() for done in each]) == pytest.approx(238.2, rel=0.10)
    assert np.mean(each) == pytest.approx(202.6, rel=0.10)


# -- limits of fluids -------------------------------------------------------------------------------------------------


def test_the_last_byte_of_an_incast_arrives_when_its_bytes_have_passed_the_line():
    result = run(tree(16), into_last(16))
    packets = 15 * -(-FLOW_BYTES // 4032)
    on_wire = 15 * FLOW_BYTES + 122 * packets
    assert result.last_arrival_ps / 1e6 == pytest.approx(on_wire / LINE_BYTES_PER_US, rel=0.01)


def test_a_permutation_runs_at_the_line_rate():
    """A flow alone takes 162.7 µs on the wire; all of them at once take at most a sixth longer on the average."""
    alone = (FLOW_BYTES + 122 * -(-FLOW_BYTES // 4032)) / LINE_BYTES_PER_US
    result = permutation(128, ack_every_bytes=4000)
    assert alone < result.latency_ps.mean() / 1e6 < 7 / 6 * alone


# -- rules ------------------------------------------------------------------------------------------------------------


def test_one_entropy_collides_as_ecmp_does():
    assert acked_us(permutation(128, paths="ecmp")).mean() > 1.5 * acked_us(permutation(128)).mean()


def test_reps_and_bitmaps_avoid_a_slow_link_and_oblivious_senders_do_not():
    slow = route(faults.slow(tree(128), "spine1/5", "1x25GbE"), RoutingOptions(adaptive=True)).fabric
    traffic = patterns.permutation(slow, size_bytes=FLOW_BYTES, seed=1)
    tail = {
        paths: acked_us(run(slow, traffic, paths=paths)).max() for paths in ("oblivious", "bitmap", "reps", "mixed")
    }
    assert tail["oblivious"] > max(1.1 * tail["bitmap"], 1.1 * tail["mixed"], tail["reps"])


def test_gaps_detect_drops_long_before_the_timeout():
    result = run(tree(16), into_last(16), full_queue="drop")
    dropped, again = int(result.use.dropped_packets.sum()), int(result.retransmitted.sum())
    assert 0 < dropped <= again < 1.2 * dropped
    assert result.use.trimmed_packets.sum() == 0
    assert acked_us(result).max() == pytest.approx(2449.8, rel=0.05)  # of htsim with -disable_trim -sleek
    many = run(tree(128), into_last(128), full_queue="drop", paths="bitmap")
    assert acked_us(many).max() == pytest.approx(20_958.5, rel=0.05)
    assert acked_us(many).mean() == pytest.approx(20_175.1, rel=0.05)


def test_credits_of_links_lose_and_repeat_nothing():
    result = run(tree(16), into_last(16), full_queue="credits")
    assert result.done
    assert result.retransmitted.sum() == result.use.dropped_packets.sum() == result.use.trimmed_packets.sum() == 0


def test_links_that_retry_hide_bit_errors_from_the_transport():
    bad = route(faults.degrade(tree(16), "h1/1", 3e-7), RoutingOptions(adaptive=True)).fabric
    lost, hidden = (run(bad, [("h1", "h14", FLOW_BYTES)], link_retry=retry) for retry in (False, True))
    assert lost.use.corrupted_packets.sum() > 0
    assert lost.retransmitted.sum() > 0
    assert hidden.use.corrupted_packets.sum() > 0
    assert hidden.retransmitted.sum() == 0
    good = run(tree(16), [("h1", "h14", FLOW_BYTES)])
    retries = int(hidden.use.corrupted_packets.sum())
    assert good.last_arrival_ps < hidden.last_arrival_ps < good.last_arrival_ps + (retries + 1) * 4_000_000


def test_a_cut_link_is_left_after_the_timeout():
    traffic = patterns.permutation(tree(16), size_bytes=FLOW_BYTES, seed=2)
    cut, good = (run(tree(16), traffic, faults=faults) for faults in (("cut:spine1/3@50us-",), ()))
    assert cut.done
    assert cut.retransmitted.sum() > 100 > good.retransmitted.sum() == cut.use.trimmed_packets.sum()
    assert acked_us(cut).max() > acked_us(good).max() + 50


def test_a_context_gives_up_when_its_only_link_stays_cut():
    with pytest.raises(SubnetError, match="after 7 retries: a cable"):
        run(tree(16), [("h1", "h14", FLOW_BYTES)], faults=("cut:h1/1@50us-",))


def test_receivers_acknowledge_every_16_kib_unless_told():
    often, usual = (run(tree(16), [("h1", "h14", FLOW_BYTES)], ack_every_bytes=size).packets for size in (4000, 0))
    packets = -(-FLOW_BYTES // 4032)
    assert often == 2 * packets
    assert usual == pytest.approx(packets * 1.25, rel=0.02)


@pytest.mark.parametrize("control", ["rccc", "nscc-rccc"])
def test_a_message_posted_long_after_another_gets_credits(control: str):
    traffic = Traffic.of(tree(16), [("h1", "h14", 500_000)] * 2, start_ps=[0, 400_000_000])
    first, second = run(tree(16), traffic, congestion_control=control).latency_ps
    assert second == pytest.approx(first, rel=0.4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"network": "roce", "full_queue": "drop"}, "--full-queue changes nothing on roce"),
        ({"network": "roce", "link_retry": True}, "--link-retry changes nothing on roce"),
        ({"network": "tcp", "ack_every_bytes": 4000}, "--ack-every changes nothing on tcp"),
        ({"network": "roce", "paths": "reps"}, "--paths reps is for --network uet, whose senders choose it"),
        ({"in_order": True}, "UET puts its bytes in order itself"),
        ({"congestion_control": "dcqcn"}, "dcqcn is for roce and roce-v1, not for uet"),
        ({"crossbar": "one-read-port"}, "leave it out with TCP, Ultra Ethernet"),
    ],
)
def test_options_that_change_nothing_are_refused(options: dict[str, Any], says: str):
    with pytest.raises(ConfigError, match=says):
        run(tree(16), [("h1", "h14", 1000)], **options)
