"""The inference workload: layouts, the objective, and the fabrics on which replicas of several servers depend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.advise import serving
from weft.advise.advice import advise
from weft.advise.case import Case
from weft.advise.formatting import reasons, report
from weft.advise.rows import Bench, Point
from weft.advise.serving import Serving, Unserved
from weft.advise.workloads import options
from weft.errors import ConfigError

DENSE = Case(workload="inference", servers=2, model="llama3-8b")


@pytest.fixture(autouse=True)
def _small_replicas(monkeypatch):
    monkeypatch.setattr(serving, "MOST_SERVERS", 2)


def test_replicas_within_a_server_are_as_fast_on_every_fabric():
    advice = advise(DENSE)
    assert len({row.seconds for row in advice.rows}) == 1
    assert all(row.timed.waits == 0 and row.timed.inside_servers for row in advice.rows)
    assert advice.verdict.best.price_usd == min(row.price_usd for row in advice.verdict.chosen)
    assert any("sends nothing over the fabric" in reason for reason in reasons(advice))
    assert {row["layout"] for row in report(advice)["fabrics"]} == {advice.verdict.best.timed.layout}


def test_experts_on_two_servers_wait_for_the_fabric_and_longer_over_tcp():
    """The weights of DeepSeek-V3 in fp8 are larger than the memory of eight H100."""
    case = Case(workload="inference", servers=2, model="deepseek-v3", weights="fp8")
    work = Serving(case)
    first, *_, tcp = (work.run(option) for option in options(case))
    assert tcp.seconds > 5 * first.seconds
    assert 0 < first.waits < tcp.waits < 1
    assert not first.inside_servers
    with pytest.raises(Unserved, match="no replica of deepseek-v3 on up to 1 servers"):
        work.guess(options(case)[0], replace(case, servers=1))


def test_twice_the_servers_give_twice_the_tokens():
    bench = Bench(DENSE)
    times = [row.seconds for row in bench.rows()]
    assert [row.seconds for row in bench.rows(Point(case=replace(DENSE, servers=4)))] == pytest.approx(
        [seconds / 2 for seconds in times]
    )


def test_the_objective_limits_the_users_of_a_replica():
    """A shorter time per output token needs smaller batches, so that a token costs more."""
    option = options(DENSE)[0]
    times = [Serving(replace(DENSE, tpot_s=limit_s)).run(option).seconds for limit_s in (0.05, 0.01, 0.005)]
    assert times[0] < times[1] < times[2]
    with pytest.raises(ConfigError, match=r"keeps 0\.1 ms per output token: give a smaller --model"):
        advise(replace(DENSE, tpot_s=1e-4))


def test_an_unknown_format_of_weights_is_refused():
    with pytest.raises(ConfigError, match="no --weights format 'int3'"):
        advise(replace(DENSE, weights="int3"))
