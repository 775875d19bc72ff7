"""Causes and consequences for given changes: the link, the kind of fault, and the text."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.monitor.clinic import Ward, ward

from weft.errors import ConfigError
from weft.monitor.columns import Column
from weft.monitor.diagnose import diagnose
from weft.monitor.health import Health, health
from weft.monitor.signs import look, supported_rate
from weft.monitor.suspects import Diagnosis, Suspect
from weft.monitor.traffic_trouble import senders_of_marked
from weft.wire.port_info import LinkSpeed

UPLINK, DOWNLINK = "leaf1/33", "leaf1/1"  # to spine1/1 and h1/1
TICK_S = 22e-9


def only(diagnosis: Diagnosis) -> Suspect:
    (suspect,) = diagnosis.suspects
    return suspect


def words(suspect: Suspect) -> str:
    return " ".join((*suspect.evidence, suspect.action))


def wait(one: Ward, port: str, share: float, load_share: float) -> None:
    one.count(port, Column.PORT_XMIT_WAIT, int(share * one.change.seconds / TICK_S))
    bits = one.ports.rate_gbit_s[one.slot(port)] * 1e9 * one.change.seconds
    one.change.delta[one.slot(port), Column.PORT_XMIT_DATA_WORDS] = int(load_share * bits / 32)


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_healthy_fabric_has_no_suspect(seed: int) -> None:
    diagnosis = diagnose([ward(seed=seed).change])
    assert diagnosis.is_well
    assert not diagnosis.notes
    assert diagnosis.symbol_ber == pytest.approx(1e-15, rel=0.5)
    assert diagnosis.ports == 2 * diagnosis.links  # ports without a cable do not count


def test_a_cable_that_errs_both_ways_is_named_by_both_ports_with_numbers() -> None:
    item = ward()
    item.count(UPLINK, Column.SYMBOL_ERROR, 12)
    item.count("spine1/1", Column.SYMBOL_ERROR, 8)
    suspect = only(diagnose([item.change]))
    assert (suspect.ends, suspect.kind) == ((UPLINK, "spine1/1"), "bad cable")
    assert suspect.confidence > 0.99
    for output in ("12 symbol errors in 20 s", "8.0e+12 bits", "1.5e-12", "PDR plugin allows 1e-14", "both directions"):
        assert output in words(suspect)
    assert f"Swap the cable of {UPLINK} to spine1/1" in suspect.action


def test_an_end_whose_counters_are_unknown_is_named_as_such() -> None:
    item = ward()
    item.count(UPLINK, Column.SYMBOL_ERROR, 12)
    unknown = replace(item.change, known=item.change.known.copy())
    unknown.known[item.slot("spine1/1")] = False
    assert only(diagnose([unknown])).evidence[1] == "spine1/1 does not report its errors."


def test_values_of_ends_that_do_not_answer_are_0() -> None:
    well = SimpleNamespace(links=SimpleNamespace(ends=np.array([[0, 1], [2, -1]])))
    assert Health.at_ends(well, np.array([5, 6, 7])).tolist() == [[5, 6], [7, 0]]


def test_two_errors_at_a_port_are_chance_and_six_are_not() -> None:
    """The published rate of 1e-14 gives 0.08 expected errors in 20 s: one of 3,072 counts is 2 in most fabrics, and 6
    in few.
    """
    item = ward(ber=0.0)
    item.count(UPLINK, Column.SYMBOL_ERROR, 2)
    assert diagnose([item.change]).is_well
    item.count(UPLINK, Column.SYMBOL_ERROR, 4)
    assert only(diagnose([item.change])).ends[0] == UPLINK


def test_repeated_checks_need_stronger_evidence() -> None:
    """Each of 864 looks a day would call one healthy fabric in a hundred ill, and so nearly nine a day."""
    item = ward(ber=0.0)
    item.count(UPLINK, Column.SYMBOL_ERROR, 5)
    assert not diagnose([item.change]).is_well
    assert diagnose([item.change], looks=864).is_well
    item.count(UPLINK, Column.SYMBOL_ERROR, 3)
    assert not diagnose([item.change], looks=864).is_well


def test_errors_one_way_leave_three_that_may_be_to_blame() -> None:
    item = ward()
    item.count(UPLINK, Column.SYMBOL_ERROR, 300)
    suspect = only(diagnose([item.change]))
    assert "the transmitter of spine1/1, that direction of the cable, or the receiver of leaf1/33" in words(suspect)


def test_nearly_equal_counts_at_both_ends_are_errors_in_both_directions() -> None:
    """A difference of one in a hundred of 600,000 errors is not random, but no sign of one direction either."""
    item = ward()
    item.count(UPLINK, Column.SYMBOL_ERROR, 321_051)
    item.count("spine1/1", Column.SYMBOL_ERROR, 317_581)
    assert "both directions, as with a bad cable" in words(only(diagnose([item.change])))


def test_errors_one_way_blame_no_direction_if_the_other_end_is_unknown() -> None:
    item = ward()
    item.count(UPLINK, Column.SYMBOL_ERROR, 300)
    item.forget("spine1/1")
    assert "that direction of the cable" not in words(only(diagnose([item.change])))


def test_confidence_is_one_minus_the_probability_over_all_tests() -> None:
    """The chance of 6 or more errors where 0.08 are expected, times the number of tests."""
    item = ward(ber=0.0)
    item.count(UPLINK, Column.SYMBOL_ERROR, 6)
    diagnosis = diagnose([item.change])
    tail = 1 - sum(math.exp(-0.08) * 0.08**n / math.factorial(n) for n in range(6))
    assert 1 - only(diagnosis).confidence == pytest.approx(diagnosis.tests * tail, rel=1e-3)


def test_only_known_counts_are_tested() -> None:
    """Symbols and packets at both ends, symbols of both together, and how often the link went down."""
    item = ward("fat-tree:hosts=4,levels=2,radix=4")
    links = len(item.ports.fabric.links)

    def tests() -> int:
        return look(health([item.change])).tests

    assert tests() == 6 * links
    item.forget("h1/1")
    assert tests() == 6 * links - 2
    item.forget(item.peer("h1/1"))
    assert tests() == 6 * links - 6


def test_one_reading_says_nothing() -> None:
    with pytest.raises(ConfigError, match="poll at least twice"):
        diagnose([])


def test_the_longer_one_looks_the_less_it_takes() -> None:
    """3e-14 for 20 s is one error in four; for three hours it is 130."""
    short, long = ward(ber=0), ward(ber=0, seconds=3 * 3600)
    for item in (short, long):
        item.count(UPLINK, Column.SYMBOL_ERROR, round(3e-14 * 400e9 * item.change.seconds))
    assert diagnose([short.change]).is_well
    assert "allows 1e-15" in words(only(diagnose([long.change])))


def test_counts_of_several_changes_add_up_and_what_is_unknown_adds_no_time() -> None:
    item = ward(ber=0)
    item.count(UPLINK, Column.SYMBOL_ERROR, 5)
    unknown = replace(item.change, known=item.change.known.copy())
    unknown.known[item.slot(UPLINK)] = False
    well = health([item.change, unknown, item.change])
    assert well.counts[item.slot(UPLINK), Column.SYMBOL_ERROR] == 10
    assert well.known_s[item.slot(UPLINK), Column.SYMBOL_ERROR] == 40
    assert well.symbol_ber[item.slot(UPLINK)] == pytest.approx(10 / (400e9 * 40))


def test_errors_in_one_of_many_intervals_may_be_a_burst() -> None:
    good, bad = ward(ber=0), ward(ber=0)
    bad.count(UPLINK, Column.SYMBOL_ERROR, 300)
    assert "in one of 4 intervals" in words(only(diagnose([good.change, bad.change, good.change, good.change])))
    assert "intervals" not in words(only(diagnose([good.change, bad.change, bad.change, good.change])))


def test_damaged_packets_tell_where_symbols_are_not_counted() -> None:
    item = ward()
    item.change.known[:, Column.SYMBOL_ERROR] = False
    item.count(UPLINK, Column.PORT_RCV_ERRORS, 40)
    assert only(diagnose([item.change])).ends[0] == UPLINK


@pytest.mark.parametrize("column", [Column.PORT_RCV_REMOTE_PHYSICAL_ERRORS, Column.PORT_RCV_ERRORS])
def test_a_switch_that_received_a_marked_or_damaged_packet_does_not_damage_them_itself(column: Column) -> None:
    for received, blamed in ((0, True), (1, False)):
        item = ward(ber=0.0)
        item.count("h1/1", Column.PORT_RCV_REMOTE_PHYSICAL_ERRORS, 10_000)
        item.count(UPLINK, column, received)
        assert bool(senders_of_marked(health([item.change]))) is blamed


@pytest.mark.parametrize(
    ("more", "fewer", "is_one_way"),
    [(100, 0, True), (100, 3, True), (100, 85, False), (100, 100, False), (2, 0, False), (6, 1, False)],
)
def test_a_direction_is_blamed_only_if_errors_differ_significantly(more: int, fewer: int, is_one_way: bool) -> None:
    item = ward(ber=0.0)
    item.count(UPLINK, Column.SYMBOL_ERROR, more)
    item.count("spine1/1", Column.SYMBOL_ERROR, fewer)
    assert int(look(health([item.change])).is_one_way.sum()) == is_one_way


def test_overruns_and_malformed_packets_are_no_cables_doing() -> None:
    item = ward()
    item.count(UPLINK, Column.PORT_RCV_ERRORS, 40)
    item.count(UPLINK, Column.BUFFER_OVERRUN, 40)
    assert diagnose([item.change]).is_well


def test_packets_marked_as_damaged_point_to_where_that_was() -> None:
    item = ward()
    item.count(UPLINK, Column.SYMBOL_ERROR, 900)
    item.count(UPLINK, Column.PORT_RCV_ERRORS, 700)
    for host in ("h1/1", "h2/1"):
        item.count(host, Column.PORT_RCV_REMOTE_PHYSICAL_ERRORS, 350)
    suspect = only(diagnose([item.change]))
    assert suspect.ends[0] == UPLINK
    assert "2 ports received 700 packets already marked as damaged" in words(suspect)


def test_switch_that_marks_good_packets_is_the_suspect() -> None:
    item = ward()
    item.count(DOWNLINK, Column.PORT_RCV_REMOTE_PHYSICAL_ERRORS, 350)
    suspect = only(diagnose([item.change]))
    assert (suspect.ends, suspect.kind) == (("h1/1", DOWNLINK), "bad port")


# -- which part ------------------------------------------------------------------------------------------------------


def test_a_port_that_erred_on_another_cable_too_is_bad_itself() -> None:
    item = ward()
    item.count(UPLINK, Column.SYMBOL_ERROR, 300)
    far_number = item.ports.far_number.copy()
    far_number[item.slot(UPLINK)] = 60  # was cabled to another port of the spine
    before = replace(item.change, ports=replace(item.ports, far_number=far_number))
    suspect = only(diagnose([before, item.change]))
    assert health([before, item.change]).changes_with_errors[item.slot(UPLINK)] == 1  # about this cable
    assert suspect.kind == "bad port"
    assert "leaf1/33 counted 300 symbol errors on another cable too" in words(suspect)


def test_unknown_error_counts_on_a_previous_cable_add_no_bits() -> None:
    item = ward()
    far_number = item.ports.far_number.copy()
    far_number[item.slot(UPLINK)] = 60
    before = replace(item.change, ports=replace(item.ports, far_number=far_number), known=item.change.known.copy())
    assert health([before, item.change]).bits_before[item.slot(UPLINK)] == pytest.approx(20 * 400e9)
    before.known[item.slot(UPLINK), Column.SYMBOL_ERROR] = False
    assert health([before, item.change]).bits_before[item.slot(UPLINK)] == 0


def test_two_links_of_a_cage_at_both_ends_are_one_twin_cable() -> None:
    item = ward()
    for port in ("leaf1/33", "leaf1/34"):  # to spine1/1 and spine1/2
        item.count(port, Column.SYMBOL_ERROR, 300)
    suspect = only(diagnose([item.change]))
    assert suspect.kind == "bad cable"
    assert "twin-port cable" in words(suspect)
    assert "cage 17 of leaf1" in suspect.action


def test_two_links_of_a_cage_to_two_hosts_are_one_transceiver() -> None:
    item = ward()
    for port in ("leaf1/1", "leaf1/2"):
        item.count(port, Column.SYMBOL_ERROR, 300)
    suspect = only(diagnose([item.change]))
    assert suspect.kind == "bad transceiver"
    assert "cage 1 of leaf1" in suspect.action


def test_two_bad_cables_at_one_switch_are_two_and_four_are_the_switch() -> None:
    item = ward("fat-tree:hosts=512,switch=QM9700")
    for port in ("leaf1/1", "leaf1/5"):
        item.count(port, Column.SYMBOL_ERROR, 300)
    assert len(diagnose([item.change]).suspects) == 2
    for port in ("leaf1/9", "leaf1/33"):
        item.count(port, Column.SYMBOL_ERROR, 300)
    suspect = only(diagnose([item.change]))
    assert (suspect.ends, suspect.kind) == (("leaf1",), "bad switch")
    assert "4 links of leaf1 are conspicuous" in suspect.evidence[0]
    assert "firmware of leaf1 first" in suspect.action


def test_a_switch_whose_links_are_all_bad_is_one_suspect_beside_another_bad_cable() -> None:
    """There are more bad links than a fabric's cables explain, and still one switch explains most of them."""
    item = ward("fat-tree:hosts=64,radix=16")
    for number in range(1, 17):
        item.count(f"leaf4/{number}", Column.SYMBOL_ERROR, 300 + number)
    item.count("leaf2/3", Column.SYMBOL_ERROR, 200)
    assert [(suspect.kind, suspect.ends[0]) for suspect in diagnose([item.change]).suspects] == [
        ("bad switch", "leaf4"),
        ("bad cable", "leaf2/3"),
    ]


def test_the_worst_is_first() -> None:
    item = ward()
    item.count("leaf1/3", Column.SYMBOL_ERROR, 30)
    item.count("leaf2/33", Column.SYMBOL_ERROR, 3000)
    assert [suspect.ends[0] for suspect in diagnose([item.change]).suspects] == ["leaf2/33", "leaf1/3"]


def test_where_everything_is_bad_no_cable_is() -> None:
    item = ward(ber=1e-12)
    diagnosis = diagnose([item.change])
    assert diagnosis.is_well
    assert "The whole fabric has errors: 1.0e-12 of all bits, and 512 of 512 links" in diagnosis.notes[0]
    item.count(UPLINK, Column.SYMBOL_ERROR, 800)
    assert only(diagnose([item.change])).ends[0] == UPLINK


def test_very_many_at_once_have_something_in_common() -> None:
    item = ward()
    for number in range(1, 33):
        item.count(f"leaf{1 + number % 8}/{number}", Column.SYMBOL_ERROR, 300)
    diagnosis = diagnose([item.change])
    assert len(diagnosis.suspects) == 32
    assert "32 of 512 links are bad at once" in diagnosis.notes[0]


# -- up and down -----------------------------------------------------------------------------------------------------


def test_a_link_between_switches_that_goes_down_once_is_a_suspect() -> None:
    item = ward()
    for port in (UPLINK, "spine1/1"):
        item.count(port, Column.LINK_DOWNED, 1)
    suspect = only(diagnose([item.change]))
    assert suspect.kind == "flapping"
    assert "went down once in 20 s, counted by leaf1/33 and spine1/1" in words(suspect)


def test_a_port_that_counts_alone_was_switched_off() -> None:
    item = ward()
    item.count(UPLINK, Column.LINK_DOWNED, 3)
    assert diagnose([item.change]).is_well


def test_a_host_that_restarts_is_no_bad_cable_though_its_switch_counts() -> None:
    item = ward()
    item.count(DOWNLINK, Column.LINK_DOWNED, 3)
    item.change.is_reset[item.slot("h1/1")] = True
    diagnosis = diagnose([item.change])
    assert diagnosis.is_well
    assert "h1/1 - leaf1/1" in diagnosis.notes[0]
    assert "A restarting host looks like that" in diagnosis.notes[0]


def test_a_host_that_is_silent_after_its_link_went_down_may_be_off() -> None:
    item = ward()
    item.count(DOWNLINK, Column.LINK_DOWNED, 2)
    item.forget("h1/1")
    assert diagnose([item.change]).is_well


def test_a_hosts_link_that_goes_down_time_and_again_while_both_ends_count_is_flapping() -> None:
    item = ward(seconds=600)
    for times, is_well in ((1, True), (1, False)):
        for port in (DOWNLINK, "h1/1"):
            item.count(port, Column.LINK_DOWNED, times)
        assert diagnose([item.change]).is_well is is_well


def test_a_link_that_is_down_now_keeps_its_name() -> None:
    item = ward()
    for port in (UPLINK, "spine1/1"):
        item.count(port, Column.LINK_DOWNED, 1)
    item.set(UPLINK, peer=-1, rate_gbit_s=0, state=1)
    assert only(diagnose([item.change])).ends == (UPLINK, "spine1/1")


# -- width and speed -------------------------------------------------------------------------------------------------


def test_a_link_below_what_both_ends_support_is_degraded() -> None:
    item = ward()
    item.set(UPLINK, width_active=1, rate_gbit_s=100)
    suspect = only(diagnose([item.change]))
    assert suspect.kind == "degraded link"
    assert "It runs at 1xNDR, 100 Gbit/s" in words(suspect)
    assert "both support 4xNDR" in words(suspect)
    assert "If the new one is just as slow, try other ports" in suspect.action


def test_the_supported_speed_is_the_fastest_of_both_ends() -> None:
    item = ward()
    item.ports.speed_supported[item.slot(UPLINK)] = int(LinkSpeed.SDR)
    item.ports.speed_supported[item.slot(DOWNLINK)] = int(LinkSpeed.SDR)
    item.ports.speed_supported[item.slot("h1/1")] = int(LinkSpeed.DDR)
    well = health([item.change])
    _, speed = supported_rate(well)
    by_port = {well.ports.name(int(end)): int(speed[at]) for at, ends in enumerate(well.links.ends) for end in ends}
    assert (by_port[UPLINK], by_port[DOWNLINK], by_port["h2/1"]) == (LinkSpeed.SDR, 0, LinkSpeed.NDR)


def test_a_link_whose_one_end_can_do_no_more_is_as_it_should_be() -> None:
    item = ward()
    item.set(DOWNLINK, width_active=2, rate_gbit_s=200)
    item.ports.width_supported[item.slot("h1/1")] = 2
    assert diagnose([item.change]).is_well


def test_rate_of_most_links_is_the_intended_rate() -> None:
    item = ward()
    item.ports.width_active[:] = np.minimum(item.ports.width_active, 2)
    assert diagnose([item.change]).is_well


# -- traffic ---------------------------------------------------------------------------------------------------------


def test_a_host_that_takes_too_little_is_the_root_of_what_waits() -> None:
    item = ward()
    wait(item, DOWNLINK, 0.8, 0.2)
    wait(item, "spine1/1", 0.6, 0.3)  # sends to leaf1
    wait(item, "leaf2/33", 0.5, 0.3)  # sends to spine1
    diagnosis = diagnose([item.change])
    suspect = only(diagnosis)
    assert (suspect.ends[0], suspect.kind) == ("h1/1", "overloaded receiver")
    for output in ("80% of the time", "took 80 of 400 Gbit/s", "2 ports before it waited too"):
        assert output in words(suspect)
    assert not diagnosis.notes


def test_congestion_is_no_fault_and_its_root_is_named() -> None:
    item = ward()
    wait(item, DOWNLINK, 0.3, 0.99)  # some devices count turns of other VLs as waits
    for port in ("spine1/1", "spine2/1"):
        wait(item, port, 0.7, 0.3)
    diagnosis = diagnose([item.change])
    assert diagnosis.is_well
    assert "3 ports waited" in diagnosis.notes[0]
    assert "leaf1/1 (99% full)" in diagnosis.notes[0]


def test_a_full_port_is_named_even_if_only_one_port_waits_for_it() -> None:
    item = ward(load_share=0.5)
    wait(item, DOWNLINK, 0.0, 0.99)
    wait(item, "spine1/1", 0.7, 0.3)
    assert "1 port waited" in diagnose([item.change]).notes[0]
    assert "leaf1/1 (99% full)" in diagnose([item.change]).notes[0]


def test_a_full_cable_beside_an_idle_one_is_noted() -> None:
    item = ward(load_share=0.05)
    wait(item, "leaf1/33", 0.0, 0.99)  # 33 and 34 lead to spine1
    wait(item, "h1/1", 0.7, 0.3)
    assert "from leaf1 to spine1" in diagnose([item.change]).notes[1]
    for number in range(34, 65):
        wait(item, f"leaf1/{number}", 0.0, 0.5)
    assert len(diagnose([item.change]).notes) == 1


def test_a_cable_whose_counters_are_unknown_is_not_an_idle_one() -> None:
    item = ward(load_share=0.5)
    wait(item, "leaf1/33", 0.0, 0.99)
    wait(item, "h1/1", 0.7, 0.3)
    item.forget("leaf1/34")
    assert len(diagnose([item.change]).notes) == 1


def test_packets_without_a_way_on_are_the_tables_fault() -> None:
    item = ward()
    for column in (Column.PORT_RCV_SWITCH_RELAY_ERRORS, Column.DLID_MAPPING):
        item.count(UPLINK, column, 5000)
    suspect = only(diagnose([item.change]))
    assert suspect.kind == "misrouted"
    assert "forwarding table of leaf1" in suspect.action


def test_multicast_that_comes_back_is_no_fault() -> None:
    item = ward()
    for column in (Column.PORT_RCV_SWITCH_RELAY_ERRORS, Column.LOOPING):
        item.count(UPLINK, column, 5000)
    assert diagnose([item.change]).is_well


def test_a_report_is_plain_data() -> None:
    item = ward()
    item.count(UPLINK, Column.SYMBOL_ERROR, 300)
    report = diagnose([item.change]).report()
    assert report["suspects"][0]["ends"] == (UPLINK, "spine1/1")
    assert "strength" not in report["suspects"][0]
