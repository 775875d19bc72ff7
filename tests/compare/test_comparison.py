"""The comparison: its statements follow from the runs and from closed forms."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import pytest

from weft.collectives.nccl.band import band_of as band_of_time
from weft.collectives.nccl.calibration import compare as against
from weft.collectives.nccl.calibration import runs
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.network import Pattern
from weft.compare.band import band_of
from weft.compare.comparison import compare
from weft.compare.formatting import show_band, show_longer, show_parts, show_time, show_usd
from weft.compare.job import parse_job
from weft.compare.outcome import Comparison, Outcome
from weft.compare.published import published
from weft.errors import ConfigError
from weft.fabric import catalog, files
from weft.fabric.prices import Price
from weft.fabric.spec import load
from weft.plan.bill import Bill, Item
from weft.units import gbyte_s

SMALL = "superpod:su=1,servers=2"


def of(found: Comparison, name: str) -> Outcome:
    return next(outcome for outcome in found.outcomes if outcome.interconnect.name == name)


def test_faster_links_carry_more_and_headers_take_little(found: Comparison) -> None:
    """An InfiniBand adapter with adaptive routing uses the part of its line that headers leave: 96 to 100 %."""
    for name in ("ndr", "hdr"):
        item = of(found, name)
        part = item.networks[Pattern.RING].adapter_gbyte_s / gbyte_s(item.cluster.nic_gbit_s)
        assert 0.96 < part < 1
    assert of(found, "ndr").time_us < of(found, "hdr").time_us < of(found, "eth-100-tcp").time_us
    assert (found.fastest.interconnect.network, found.slowest.interconnect.name) == ("infiniband", "eth-100-tcp")


def test_hashes_collide_on_ethernet_and_the_words_name_the_port(found: Comparison) -> None:
    """Two flows on one cable halve both, whatever the adapters could do."""
    roce = of(found, "roce-400")
    assert roce.bottleneck is not None
    assert roce.bottleneck.load >= 1.5
    ideal = of(found, "ndr").networks[Pattern.RING].adapter_gbyte_s
    assert roce.networks[Pattern.RING].adapter_gbyte_s == pytest.approx(ideal / roce.bottleneck.load, rel=0.02)
    assert f"Flows that hash to the same port share it: {roce.bottleneck.port}, to {roce.bottleneck.peer}" in roce.why
    assert of(found, "ndr").bottleneck is None


def test_a_slot_that_is_slower_than_the_line_is_named(found: Comparison) -> None:
    xdr = of(found, "xdr")
    assert xdr.networks[Pattern.RING].adapter_gbyte_s < 65  # 16 lanes of PCIe 5 at 504 Gbit/s
    (ring,) = compare("superpod:su=1", parse_job("all_reduce:1G"), ["xdr"]).outcomes
    assert "because the server's slots are 16xPCIe5 and the card supports 16xPCIe6" in ring.why


def test_kernel_copies_bound_tcp(found: Comparison) -> None:
    tcp = of(found, "eth-100-tcp")
    assert tcp.networks[Pattern.RING].adapter_gbyte_s < 0.5 * gbyte_s(tcp.cluster.nic_gbit_s)
    assert "the kernel copies every byte" in tcp.why


def test_the_parts_add_up_to_the_time(found: Comparison) -> None:
    for outcome in found.outcomes:
        assert sum(outcome.parts_us.values()) == pytest.approx(outcome.time_us)
        assert found.speedup(outcome) == pytest.approx(found.slowest.time_us / outcome.time_us)


def test_the_curves_go_through_the_figures_of_the_table(found: Comparison) -> None:
    for outcome in found.outcomes:
        (at_size,) = [point for point in outcome.by_size if point.at == 1 << 30]
        (at_servers,) = [point for point in outcome.by_servers if point.at == found.servers]
        assert at_size.time_us == pytest.approx(outcome.time_us)
        assert at_servers.time_us == pytest.approx(outcome.time_us)
        assert at_servers.bus_gbyte_s == pytest.approx(outcome.bus_gbyte_s)


def test_every_time_has_its_band(found: Comparison) -> None:
    """Bands of the table and of every point of the curves; those of fabrics without published runs are wider."""
    for outcome in found.outcomes:
        for point in (*outcome.by_size, *outcome.by_servers):
            assert point.band.low_us < point.time_us < point.band.high_us
        assert outcome.band.kinds
        assert outcome.report()["band_us"] == [outcome.band.low_us, outcome.band.high_us]
        assert outcome.report()["by_size"][0]["band_us"] == [
            outcome.by_size[0].band.low_us,
            outcome.by_size[0].band.high_us,
        ]
        (at_size,) = [point for point in outcome.by_size if point.at == 1 << 30]
        assert at_size.band == outcome.band


def test_a_band_is_shown_in_the_units_of_its_ends() -> None:
    assert show_band(4_660, 6_420) == "4.66 to 6.42 ms"
    assert show_band(730, 1_200) == "730 µs to 1.20 ms"


def test_a_trace_takes_as_long_as_its_calls_together(tmp_path) -> None:
    path = tmp_path / "step.csv"
    path.write_text("all_reduce,64M,3\nall_to_all,1M,2\n")
    (item,) = compare(SMALL, parse_job(f"trace:{path}"), ["ndr"]).outcomes
    alone = [
        estimate(item.cluster, call.collective, call.size_bytes, networks=item.networks) for call in item.job.calls
    ]
    assert item.time_us == pytest.approx(3 * alone[0].time_us + 2 * alone[1].time_us)
    assert sum(item.parts_us.values()) == pytest.approx(item.time_us)
    assert set(item.networks) == set(Pattern)


def test_only_the_patterns_of_the_job_are_run() -> None:
    (item,) = compare(SMALL, parse_job("all_to_all:1M"), ["ndr"]).outcomes
    assert set(item.networks) == {Pattern.PAIRS}


def test_the_same_seed_gives_the_same_and_the_report_is_json(found: Comparison) -> None:
    again = compare(found.spec, found.job, [outcome.interconnect.name for outcome in found.outcomes])
    assert json.loads(json.dumps(again.report())) == json.loads(json.dumps(found.report()))


def test_servers_are_counted_before_anything_runs() -> None:
    job = parse_job("all_reduce:1M")
    three = compare(SMALL.replace("servers=2", "servers=3"), job, ["ndr"])
    assert [point.at for point in three.outcomes[0].by_servers] == [2, 3, 4, 8, 16]
    assert compare(SMALL.replace("servers=2", "servers=3"), job, ["ndr"], servers=2).gpus == 16
    for servers in (0, 3):
        with pytest.raises(ConfigError, match=rf"--servers {servers}: .* has 2"):
            compare(SMALL, job, ["ndr"], servers=servers)
    with pytest.raises(ConfigError, match="needs 2 or more, since GPUs of one server need no fabric"):
        compare(SMALL, job, ["ndr"], servers="dgx2")


def test_servers_of_one_kind_are_compared_beside_others(tmp_path) -> None:
    """A dump is not changed; the job runs on the named servers, whichever they are."""
    path = tmp_path / "dump.txt"
    files.write(load("star:hosts=5,server=dgx-a100"), path, "ibnetdiscover")
    mixed = f"{path} as dgx1=dgx-a100+4rails,dgx2..5=dgx-a100"
    with pytest.raises(ConfigError, match=r"more kinds, dgx-a100, dgx-a100.4rails: .* --servers names those of one"):
        compare(mixed, parse_job("all_reduce:1M"))
    result = compare(mixed, parse_job("all_reduce:1M"), servers="dgx3..5")
    assert (result.servers, result.gpus, result.picked) == (3, 24, "dgx3..5")
    assert "The HDR InfiniBand fabric of all 5 servers costs" in result.finding


def test_fabrics_are_named_once_and_at_least_one() -> None:
    job = parse_job("all_reduce:1M")
    with pytest.raises(ConfigError, match="fabric ndr is named twice"):
        compare(SMALL, job, ["ndr", "NDR"])
    with pytest.raises(ConfigError, match="no fabric is named: give --fabrics with some of ndr"):
        compare(SMALL, job, [])


def test_the_finding_has_the_fastest_the_slowest_and_the_prices(found: Comparison) -> None:
    best, worst = found.fastest, found.slowest
    output = found.finding
    assert output.startswith(f"On 32 GPUs all_gather of 1 GiB takes {show_time(best.time_us)} (")
    assert f"times as long with {worst.interconnect.label}." in output
    assert f"The {best.interconnect.label} fabric costs {show_usd(best.bill)} USD" in output
    longer = 100 * (of(found, "ndr").time_us / best.time_us - 1)
    assert f"NDR InfiniBand takes as long and costs {show_usd(of(found, 'ndr').bill)}." in output
    assert longer < 0.1  # the sixteen channels of a ring limit both


def test_the_cheapest_of_the_fabrics_that_are_about_as_fast_is_named() -> None:
    """NDR and RoCE differ by a few switches' latency; RoCE costs half as much."""
    result = compare("superpod:su=1,servers=16", parse_job("all_reduce:1G"), ["xdr", "ndr", "roce-400", "hdr"])
    ndr, roce = of(result, "ndr"), of(result, "roce-400")
    assert result.fastest is of(result, "xdr")
    assert abs(roce.time_us / ndr.time_us - 1) < 0.05
    assert roce.bill.high_usd < ndr.bill.high_usd
    assert f"% longer and costs {show_usd(roce.bill)}." in result.finding
    assert f"{roce.interconnect.label} takes " in result.finding
    assert show_usd(ndr.bill) not in result.finding


@pytest.mark.parametrize(
    ("fabrics", "sentence"), [(1, "The catalog has no price."), (2, "The catalog has no price for any of them.")]
)
def test_fabrics_without_prices_are_said_to_have_none(found: Comparison, fabrics: int, sentence: str) -> None:
    unpriced = Bill(items=(Item(kind="switch", name="x", count=1),))
    outcomes = tuple(replace(outcome, bill=unpriced) for outcome in found.outcomes[:fabrics])
    assert sentence in replace(found, outcomes=outcomes).finding


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (1.0, "as long"),
        (1.004, "as long"),
        (1.024, "2.4 % longer"),
        (1.99, "99 % longer"),
        (1.995, "2.0 times as long"),
        (1.996, "2.0 times as long"),
        (2.4, "2.4 times as long"),
        (12.3, "12 times as long"),
    ],
)
def test_a_longer_time_is_a_percentage_below_twice_and_a_factor_above(ratio: float, shown: str) -> None:
    assert show_longer(ratio) == shown


def test_a_collective_is_bound_by_latency_while_data_moves_for_less_than_half_of_it(found: Comparison) -> None:
    ndr, near_half = of(found, "ndr"), 0
    for point in ndr.by_size:
        job = parse_job(f"all_gather:{point.at}")
        item = replace(ndr, job=job, estimates=(estimate(ndr.cluster, job.leading.collective, point.at),))
        share = item.parts_us.get("data", 0.0) / item.time_us
        near_half += 1 / 3 < share < 1 / 2
        assert (item.bound == "latency") == (share < 1 / 2)
    assert near_half


def test_times_within_tolerance_are_reported_equal() -> None:
    """They differ by the latency of a few switches."""
    result = compare(SMALL, parse_job("all_reduce:8G"), ["ndr", "roce-400"])
    assert 1 < result.slowest.time_us / result.fastest.time_us < 1.005
    assert "with NDR InfiniBand, and as long with RoCE on 400G Ethernet." in result.finding


def test_few_servers_are_billed_the_few_switches_that_they_need() -> None:
    """Four DGX H100 have 32 ports: one QM9700, not the 12 switches of a whole unit."""
    (item,) = compare("superpod:su=1,servers=4", parse_job("all_reduce:1M"), ["ndr"]).outcomes
    assert [str(line) for line in item.bill.lines][:2] == ["1 × QM9700", "32 × ConnectX-7"]
    assert item.bill.links == 32


def test_beside_a_time_stands_how_far_weft_is_off_in_published_runs(found: Comparison) -> None:
    """The published runs have the same network and speed, and a size at most 4 times larger or smaller."""
    ndr = of(found, "ndr").published
    like = [run for run in runs() if (run.network, run.cluster.nic_gbit_s) == ("infiniband", 400)]
    errors = [abs(item.error) for run in like for item in against(run) if 1 << 28 <= item.size_bytes <= 1 << 32]
    assert (ndr.times, ndr.worst) == (len(errors), max(errors))
    assert set(ndr.runs) <= {run.name for run in like}
    assert f"ndr {100 * ndr.worst:.0f} %" in found.trust
    assert not of(found, "xdr").published.runs
    assert "No published run of xdr" in found.trust
    errors, prices = found.short_trust[:-31], found.short_trust[-31:]
    assert found.trust.startswith(errors)
    assert prices == "All prices are rough estimates."


def test_times_money_and_shares_are_shown_short() -> None:
    assert [show_time(us) for us in (0.5, 10, 10.5, 12.34, 100, 999, 5_470, 1.2e6)] == [
        "0.50 µs",
        "10.0 µs",
        "10.5 µs",
        "12.3 µs",
        "100 µs",
        "999 µs",
        "5.47 ms",
        "1.20 s",
    ]
    for count, low, high, output in ((3, 4e5, 9e5, "1.2 to 2.7 million"), (1, 9e3, 12e3, "9.0 to 12 thousand")):
        price = Price(low_usd=low, high_usd=high, source="an offer", date=datetime.date(2026, 11, 2))
        assert show_usd(Bill(items=(Item(kind="switch", name="x", count=count, price=price),))) == output
    assert show_usd(Bill(items=(Item(kind="switch", name="x", count=1),))) == "no price"
    assert show_parts({"launch": 1, "steps": 50, "data": 149, "pipeline": 0.1}) == "data 74, steps 25"


def test_a_network_without_published_runs_is_not_checked() -> None:
    none = published(catalog.interconnect("roce-200"), 200, 1 << 30)
    assert str(none) == "not checked"
    assert none.report() == {"runs": [], "times": 0, "worst_error": 0.0, "servers": 0}
    assert str(replace(none, runs=("a",), worst=0.214)) == "21 % off, 1 run"
    assert str(replace(none, runs=("a", "b"))) == "0 % off, 2 runs"


def test_a_band_of_a_cluster_unlike_any_published_one_has_the_reason(found: Comparison) -> None:
    job = parse_job("all_gather:1G")
    huge = estimate(replace(of(found, "ndr").cluster, nodes=100_000), job.leading.collective, job.leading.size_bytes)
    assert band_of([(job.leading, huge)] * 2).far == band_of_time(huge).far != ()


def test_a_transport_is_beside_runs_over_itself_alone() -> None:
    large = 1 << 30
    assert published(catalog.interconnect("efa-400"), 400, large).runs == ("h100-efa-2", "b200-efa-4")
    assert published(catalog.interconnect("tcpxo-200"), 200, large).runs == ("h100-tcpxo-2-gather", "h100-tcpxo-2")
    over_slingshot = published(catalog.interconnect("slingshot-11"), 200, 1 << 26).runs
    assert {name.rpartition("slingshot")[0] for name in over_slingshot} == {"gh200-"}
    assert "h100-efa-2" not in published(catalog.interconnect("roce-400"), 400, large).runs
    assert not published(catalog.interconnect("roce-200"), 200, large).runs


def test_packets_that_are_sprayed_fill_what_hashes_of_flows_leave_empty(found: Comparison) -> None:
    """The same line between leaves; and a step between virtual machines is longer."""
    roce = of(found, "roce-400").networks[Pattern.RING]
    (result,) = compare(found.spec, found.job, ["efa-400"]).outcomes
    efa = result.networks[Pattern.RING]
    assert efa.adapter_gbyte_s > 1.2 * roce.adapter_gbyte_s
    assert (efa.transport, roce.transport) == ("srd", "")
    assert efa.step_us == pytest.approx(roce.step_us + 18.1, abs=0.1)  # 20 us through one switch


def test_racks_of_trays_are_compared_by_the_rack() -> None:
    result = compare("superpod:su=2,server=gb200-nvl72,servers=2", parse_job("all_reduce:4G"), ["ndr", "hdr"])
    ndr, hdr = result.outcomes
    assert (result.servers, result.gpus, ndr.cluster.nics) == (2, 144, 72)
    assert hdr.fabric.spec == "superpod:su=2,server=gb200-nvl72+ConnectX-6,switch=QM8700"
    assert ndr.bound == "NVLink"  # 72 adapters, even of HDR, carry more than one GPU takes
    assert hdr.time_us == pytest.approx(ndr.time_us, rel=0.01)
