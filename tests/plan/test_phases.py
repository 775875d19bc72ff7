"""Phases of a plan: parts, bills and dates."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path

import pytest

from weft.errors import ConfigError
from weft.plan.bill import Item
from weft.plan.phases import Phase, Schedule, Step, _servers, read_schedule, to_csv
from weft.plan.plan import Plan, make_plan
from weft.plan.request import Request
from weft.plan.site import Wishes
from weft.plan.size import size

_FILE = """
[[phase]]
name = "pilot"
date = 2027-03-01
servers = 10
[[phase]]
date = 2027-06-01
gpus = 256
[[phase]]
name = "all"
date = 2027-09-01
servers = 64
[lead_weeks]
switch = 20
cable = 8
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    path = tmp_path_factory.mktemp("phases") / "phases.toml"
    path.write_text(_FILE)
    return make_plan(size(Request(gpus=512)), wishes=Wishes(phases=path, lead_weeks=10))


def _counts(items: tuple[Item, ...]) -> Counter[tuple[str, str, float | None]]:
    counts: Counter[tuple[str, str, float | None]] = Counter()
    for item in items:
        counts[item.kind, item.order or item.name, item.length_m] += item.count
    return counts


def test_the_phases_together_are_the_plan(plan: Plan) -> None:
    together = sum((_counts(phase.items) for phase in plan.site.phases), Counter())
    assert together == _counts((*plan.bill.items, *plan.bill.servers))
    assert sum(phase.total.high_usd for phase in plan.site.phases) == pytest.approx(plan.bill.total.high_usd)


def test_a_phase_has_the_switches_above_its_servers(plan: Plan) -> None:
    """Ten of 64 servers need the leaves of the first unit and all spines; the second unit has the other leaves."""
    pilot, second, last = plan.site.phases
    assert [phase.count("switch") for phase in (pilot, second, last)] == [8 + 8, 0, 8]
    assert [(phase.servers, phase.gpus) for phase in (pilot, second, last)] == [(10, 80), (32, 256), (64, 512)]
    assert [phase.count("server") for phase in (pilot, second, last)] == [10, 22, 32]
    assert [phase.count("adapter") for phase in (pilot, second, last)] == [80, 176, 256]


def test_parts_are_ordered_by_their_lead_times(plan: Plan) -> None:
    pilot = plan.site.phases[0]
    assert pilot.order_by("switch") == datetime.date(2027, 3, 1) - datetime.timedelta(weeks=20) == pilot.first_order
    assert pilot.order_by("cable") == datetime.date(2027, 1, 4)
    assert pilot.order_by("server") == datetime.date(2027, 3, 1) - datetime.timedelta(weeks=10)
    assert plan.site.phases[1].first_order == datetime.date(2027, 6, 1) - datetime.timedelta(weeks=10)  # no switches
    lines = to_csv(plan.site.phases).splitlines()
    assert len(lines) == 1 + sum(len(phase.items) for phase in plan.site.phases)
    assert any(line.startswith("pilot,2027-03-01,2026-10-12,switch,QM9700,,16,") for line in lines)


def test_a_phase_reports_its_price_without_servers(plan: Plan) -> None:
    phase: Phase = plan.site.phases[1]
    report = phase.report()
    assert report["order_by"] == "2027-03-23"
    assert report["usd"] == (phase.total.low_usd, phase.total.high_usd)
    assert phase.total.high_usd < sum(item.total.high_usd for item in phase.items)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("servers = 64", "servers = 63", "give the last phase servers = 64"),
        ("servers = 10", "servers = 40", "must grow"),
        ("2027-06-01", "2027-01-01", "must be later than"),
        ("gpus = 256", "", "needs servers = N or gpus = N"),
        ("switch = 20", "switches = 20", "one of switch, board"),
        ("cable = 8", "cable = -8", "weeks from 0 up"),
        ("date = 2027-03-01", 'date = "soon"', "date"),
    ],
)
def test_wrong_schedules_are_refused(tmp_path: Path, plan: Plan, old: str, new: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(_FILE.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        make_plan(plan.size, wishes=Wishes(phases=path))


def test_phases_of_hosts_without_gpus_are_given_by_servers() -> None:
    hosts, phase = size(Request(servers=4, server="host")).fabric, {"date": datetime.date(2027, 3, 1)}
    assert _servers(Schedule(phase=[Step(servers=4, **phase)]), hosts) == [4]
    with pytest.raises(ConfigError, match="these servers have no GPUs: give phases with servers = N"):
        _servers(Schedule(phase=[Step(gpus=4, **phase)]), hosts)


def test_a_plan_that_grows_has_no_phases(tmp_path: Path) -> None:
    path = tmp_path / "phases.toml"
    path.write_text(_FILE)
    with pytest.raises(ConfigError, match="leave out --grow-to"):
        make_plan(size(Request(gpus=64, grow_to=512)), wishes=Wishes(phases=path))
    assert read_schedule(path).lead_weeks == {"switch": 20, "cable": 8}


def test_a_phase_buys_only_cables_with_both_ends_in_use(plan: Plan) -> None:
    """Four cages of two ports on each of 10, 22 and 32 servers."""
    counts = [_counts(phase.items)["transceiver", "MMA4Z00-NS-FLT", None] for phase in plan.site.phases]
    assert counts == [40, 88, 128]
