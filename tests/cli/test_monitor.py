"""`weft monitor` and `weft top`, on a terminal and in programs."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest
import yaml
from tests.monitor.test_change import make_ports, make_reading

from weft.cli.output import console
from weft.cli.subnets import Subnet
from weft.cli.top import _headline, _picture, monitor, new_watch, top
from weft.errors import ConfigError
from weft.monitor.change import between
from weft.monitor.suspects import Diagnosis, Suspect
from weft.monitor.watch import Latest


def test_rules_are_printed(capsys):
    monitor(rules=True)
    groups = yaml.safe_load(capsys.readouterr().out)["groups"]
    assert "InfinibandBadCable" in {rule.get("alert") for group in groups for rule in group["rules"]}


def test_the_dashboard_is_printed(capsys):
    monitor(dashboard=True)
    assert json.loads(capsys.readouterr().out)["panels"]


def test_two_files_are_not_printed_at_once():
    with pytest.raises(ConfigError, match="--rules and --dashboard"):
        monitor(rules=True, dashboard=True)


@pytest.mark.parametrize(("took_s", "said"), [(100.0, " in 100.0 s   "), (1.0, " in 100.0 s on the lab's clock   ")])
def test_it_is_said_whose_seconds_they_are(took_s, said):
    ports = make_ports()
    before, after = (make_reading(ports, 0, at_s=at_s) for at_s in (0.0, 100.0))
    latest = Latest(every_s=1.0, reading=after, change=between(before, after), change_s=took_s)
    assert said in _headline(latest)


def test_top_names_the_five_worst_suspects_with_their_first_evidence():
    ports = make_ports()
    before, after = (make_reading(ports, 0, at_s=at_s) for at_s in (0.0, 1.0))
    suspects = tuple(
        Suspect(ends=(f"h{i}/1", "leaf1/1"), kind="bad cable", confidence=1.0, evidence=("7 errors",), action="")
        for i in range(9)
    )
    diagnosis = Diagnosis(
        suspects=suspects, notes=(), seconds=1.0, stamp_s=1.0, ports=2, links=1, tests=1, symbol_ber=0.0
    )
    latest = Latest(every_s=1.0, reading=after, change=between(before, after), change_s=1.0, diagnosis=diagnosis)
    output = console()
    with output.capture() as printed:
        output.print(_picture(latest, "load", 5))
    named = [line.split(":")[0] for line in printed.get().splitlines() if "7 errors" in line]
    assert named == [f"h{i}/1 - leaf1/1" for i in range(5)]


@pytest.mark.parametrize("every", [0.0, -1.0, float("nan"), 1e9])
def test_polls_have_time_between_them(every):
    with pytest.raises(ConfigError, match="--every"):
        monitor(every=every, subnet=Subnet(ibsim="nobody"))


def test_fewer_links_than_none_are_refused():
    with pytest.raises(ConfigError, match="--lines -1"):
        top(lines=-1, subnet=Subnet(ibsim="nobody"))


def test_where_nothing_runs_both_say_so():
    for command in (monitor, top):
        with pytest.raises(ConfigError, match="nobody"):
            command(subnet=Subnet(ibsim="nobody"))


def test_the_carrier_of_a_lab_that_is_gone_is_closed(monkeypatch):
    result = [Mock(**{"exchange.side_effect": ConfigError("mine is gone")}) for _ in range(3)]
    coming = iter(result)
    monkeypatch.setattr(Subnet, "attach", lambda _: next(coming))
    watch = new_watch(Subnet(ibsim="mine"), 10.0)
    assert [watch.tick().failure for _ in range(3)] == ["mine is gone"] * 3
    assert [carrier.close.call_count for carrier in result] == [1, 1, 0]
