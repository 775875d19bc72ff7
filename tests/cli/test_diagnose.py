"""`weft diagnose`, where docs/diagnose.md does not look."""

from __future__ import annotations

from contextlib import closing

import pytest

import weft
from weft.cli import app
from weft.errors import ConfigError
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.run import SubnetManager


@pytest.mark.parametrize(("words", "why"), [("--polls 1", "at least 2"), ("--every 0", "must be 0.1 to")])
def test_input_without_counters_is_refused(words, why):
    with pytest.raises(ConfigError, match=why):
        app(["diagnose", *words.split()])


def test_a_cable_of_the_plan_that_is_out_is_found_and_one_that_is_elsewhere_is_noted(tmp_path, capsys):
    """Only the plan knows the expected cables: ibsim's sockets do not."""
    spec = "fat-tree:hosts=8,radix=4"
    with Lab(weft.load(spec), f"planned-{tmp_path.name}"[:32]) as lab, closing(IbsimCarrier("h1", lab.sockname)) as h1:
        lab.break_cable("leaf1/3")
        SubnetManager(h1).run(once=True)
        words = ["diagnose", "--ibsim", lab.sockname, "--polls", "2", "--every", "0.1"]
        for plan, status in (([], 0), (["--plan", spec], 1)):
            with pytest.raises(SystemExit) as end:
                app([*words, *plan])
            assert end.value.code == status
        assert "1. link down: leaf1/3 - spine1/1" in capsys.readouterr().out
        with pytest.raises(SystemExit):
            app([*words, "--plan", "fat-tree:hosts=8,radix=8", "--json"])
        assert "of the plan are plugged in elsewhere: h3/1 - leaf1/3" in capsys.readouterr().out
