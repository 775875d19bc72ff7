"""One bad cable: which jobs become slower, and how is it found?

    leaf1  A A B B     leaf2  A A B B     leaf3  A A B B     leaf4  A A B B        spines above

Two training jobs share all switches. In each step a job computes, then sums its gradients around a ring (reduce-
scatter and all-gather: 2 (n - 1) rounds in which every host sends a part to the next). A host sends its part of a round
when it has received the part of the round before, so that one slow hop slows the whole ring. The bad cable is the one
that job A, with static routes, uses from leaf1 to leaf2; job B never uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from weft.draw.chart import FAINT, titled_chart
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.counters import Counter
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.scenarios.experiment import run_packets
from weft.scenarios.finding import Finding
from weft.sim.engine import Options, Paths
from weft.sim.result import Result
from weft.sim.traffic import Traffic, find_host_port

CLAIM = (
    "A single bad cable degrades the entire fabric. One cable causing retransmissions affects every job on the fabric, "
    "not just the nodes connected to that cable. Finding it without monitoring is a needle-in-a-haystack exercise."
)
SOURCE = "InfiniBand Is Not Magic. Here's What It Actually Does."
TRUST = (
    "A packet with a bit error is dropped where it arrives. The rates are those after error correction, and "
    "after the link-level retransmission that newer links have; they are high, so that milliseconds show what "
    "takes hours. With adaptive routing a gap is no sign of a loss, and the model waits for the acknowledgement "
    "timeout; adapters that notice sooner pay less: see --ack-timeout."
)
RADIX = 8
HOSTS_PER_LEAF = RADIX // 2
COMPUTE_PS = 200_000_000  # before the gradients of a step are summed
RATES = (1e-8, 1e-7, 1e-6)
COLUMNS = (
    "routing",
    "bit error rate",
    "lost",
    "A sent again",
    "A step ms",
    "A slowdown",
    "B sent again",
    "B slowdown",
)
ROUTING = {Paths.TABLE: "static", Paths.ADAPTIVE: "adaptive"}
NOTICED = 1.005  # a smaller slowdown is not reported
ACK_TIMEOUT_PS = 4_096_000  # times 2 to the power of the exponent


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRun:
    """The results of one run: `[0]` is job A, `[1]` job B."""

    routing: str
    bit_error_rate: float
    step_ms: tuple[float, float]
    sent_again: tuple[int, int]
    errors: dict[str, int]  # port -> SymbolErrorCounter, if not 0


def run(
    *,
    hosts: Annotated[int, "Hosts of both jobs together: 8, 12, 16, ..."] = 16,
    size_bytes: Annotated[int, "Gradients that a job sums in each step, in bytes."] = 16 << 20,
    steps: Annotated[int, "Training steps."] = 4,
    bit_error_rates: Annotated[
        tuple[float, ...],
        "Bit error rate of the bad cable after error correction; repeat it for several runs.",
        "--bit-error-rate",
    ] = RATES,
    ack_timeout_exponent: Annotated[
        int, "Timeout of a queue pair: 4.096 µs times 2 to this power, as in `ibv_modify_qp`.", "--ack-timeout"
    ] = 14,
    seed: Annotated[int, "Random seed for the errors."] = 1,
) -> Finding:
    """Run both jobs at each error rate, with static and with adaptive routing."""
    if hosts % HOSTS_PER_LEAF or hosts < 2 * HOSTS_PER_LEAF:
        raise ConfigError(f"--hosts must fill two or more leaves of {HOSTS_PER_LEAF} (8, 12, 16, ...), got {hosts}")
    if not bit_error_rates or min(bit_error_rates) <= 0:
        raise ConfigError(f"--bit-error-rate must be above 0 (1e-8 is a bad cable), got {list(bit_error_rates)}")
    arguments = {
        "hosts": hosts,
        "size_bytes": size_bytes,
        "steps": steps,
        "bit_error_rates": list(bit_error_rates),
        "ack_timeout_exponent": ack_timeout_exponent,
        "seed": seed,
    }
    good = route(load(f"fat-tree:hosts={hosts},levels=2,radix={RADIX}"), RoutingOptions(adaptive=True)).fabric
    cable = find_cable(good, "leaf1", jobs(hosts)[0][HOSTS_PER_LEAF // 2])
    runs = [_measure(good, cable, paths, rate, arguments) for paths in ROUTING for rate in (0.0, *bit_error_rates)]
    figures = _figures(good, cable, runs, arguments)
    return Finding(
        scenario="bad-link",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{good.spec}: jobs A and B of {hosts // 2} hosts each, {steps} steps with a ring all-reduce of "
        f"{size_bytes / 1e6:,.1f} MB; the cable of {cable} errs",
        columns=COLUMNS,
        rows=tuple(_row(one_run, runs) for one_run in runs),
        finding=_sentence(cable, runs, figures),
        trust=TRUST,
        options=arguments,
        figures=figures,
    )


def jobs(hosts: int) -> tuple[list[str], list[str]]:
    """Return the first half of every leaf, and the second half."""
    half = HOSTS_PER_LEAF // 2
    names = [f"h{i}" for i in range(1, hosts + 1)]
    first = [names[i] for i in range(hosts) if i % HOSTS_PER_LEAF < half]
    return first, [name for name in names if name not in first]


def find_cable(fabric: Fabric, switch: str, host: str) -> str:
    """Return the port by which a switch sends to a host."""
    tables = fabric.tables
    row = tables.switch_row[fabric.find_node(switch).index]
    return f"{switch}/{tables.lft[row, tables.lid[find_host_port(fabric, host)]]}"


def ring_steps(fabric: Fabric, rings: Sequence[Sequence[str]], size_bytes: int, steps: int) -> tuple[Traffic, Any]:
    """Return the traffic of the jobs, and the job of each message; -1 for the empty messages at the end.

    Those stand for the next step: without them the loss of a ring's last packet would wait for the acknowledgement
    timeout, which does not happen in a job that continues.
    """
    rows: list[tuple[str, str, int]] = []
    after: list[list[int]] = []
    delay_ps: list[int] = []
    job: list[int] = []
    for number, ring in enumerate(rings):
        n = len(ring)
        rounds = 2 * (n - 1)
        begin = len(rows)
        for at in range(steps * rounds + 1):
            last = at == steps * rounds
            previous = begin + (at - 1) * n
            rows += [(ring[i], ring[(i + 1) % n], 0 if last else size_bytes // n) for i in range(n)]
            after += [[previous + (i - 1) % n] if at else [] for i in range(n)]
            delay_ps += [COMPUTE_PS if at % rounds == 0 and not last else 0] * n
            job += [-1 if last else number] * n
    start_ps = np.where(np.array([not waits_for for waits_for in after]), COMPUTE_PS, 0)
    traffic = Traffic.of(
        fabric, rows, start_ps=start_ps, delay_ps=np.array(delay_ps), after=after, description="two jobs in rings"
    )
    return traffic, np.array(job)


def _measure(good: Fabric, cable: str, paths: Paths, rate: float, arguments: dict[str, Any]) -> LinkRun:
    fabric = faults.degrade(good, cable, rate)
    traffic, job = ring_steps(fabric, jobs(arguments["hosts"]), arguments["size_bytes"], arguments["steps"])
    options = Options(seed=arguments["seed"], paths=paths, ack_timeout_exponent=arguments["ack_timeout_exponent"])
    result = run_packets(fabric, traffic, options)
    step_ms = tuple(float(result.finish_ps[job == number].max()) / 1e9 / arguments["steps"] for number in (0, 1))
    again = tuple(int(result.retransmitted[job == number].sum()) for number in (0, 1))
    return LinkRun(
        routing=ROUTING[paths],
        bit_error_rate=rate,
        step_ms=(step_ms[0], step_ms[1]),
        sent_again=(again[0], again[1]),
        errors=count_errors(result),
    )


def count_errors(result: Result) -> dict[str, int]:
    """Return the symbol errors by port, as `perfquery` would read them after the run, without ports that have none."""
    counters = result.fabric.counters
    counters[:] = 0  # the fabric may have counted an earlier run
    result.write_counters()
    errors = counters[:, Counter.SYMBOL_ERROR]
    worst_first = sorted(np.flatnonzero(errors).tolist(), key=lambda slot: -int(errors[slot]))
    return {result.fabric.port(slot).name: int(errors[slot]) for slot in worst_first}


def _slowdowns(run: LinkRun, runs: list[LinkRun]) -> tuple[float, float]:
    """Return the slowdowns against the same routing with a good cable."""
    good = next(other for other in runs if other.routing == run.routing and other.bit_error_rate == 0)
    return run.step_ms[0] / good.step_ms[0], run.step_ms[1] / good.step_ms[1]


def _row(run: LinkRun, runs: list[LinkRun]) -> tuple[str | int | float | None, ...]:
    slow = _slowdowns(run, runs)
    rate = f"{run.bit_error_rate:.0e}" if run.bit_error_rate else "good cable"
    lost = sum(run.errors.values())
    return run.routing, rate, lost, run.sent_again[0], run.step_ms[0], slow[0], run.sent_again[1], slow[1]


def _figures(good: Fabric, cable: str, runs: list[LinkRun], arguments: dict[str, Any]) -> dict[str, Any]:
    peer = good.find_port(cable).peer
    assert peer is not None
    named = set().union(*(run.errors for run in runs))
    return {
        "cable": [cable, peer.name],
        "ports_with_errors": sorted(named),
        "found": bool(named) and named <= {cable, peer.name},
        "ack_timeout_ms": ACK_TIMEOUT_PS * 2 ** arguments["ack_timeout_exponent"] / 1e9,
        "runs": [
            {
                "routing": run.routing,
                "bit_error_rate": run.bit_error_rate,
                "errors": run.errors,
                "step_ms": {"A": run.step_ms[0], "B": run.step_ms[1]},
                "slowdown": dict(zip("AB", _slowdowns(run, runs), strict=True)),
                "sent_again": dict(zip("AB", run.sent_again, strict=True)),
            }
            for run in runs
        ],
    }


def _sentence(cable: str, runs: list[LinkRun], figures: dict[str, Any]) -> str:
    def slowdowns(routing: str, job: int) -> list[float]:
        return [_slowdowns(run, runs)[job] for run in runs if run.routing == routing and run.bit_error_rate]

    def list_slowdowns(routing: str, job: int) -> str:
        return _series([f"{slow:,.3g}" for slow in slowdowns(routing, job)])

    rates = [f"{run.bit_error_rate:.0e}" for run in runs if run.bit_error_rate and run.routing == "static"]
    at = f"At {'a bit error rate' if len(rates) == 1 else 'bit error rates'} of {_series(rates)}"
    other = f"job B, which never crosses {cable}, notices nothing"
    if max(slowdowns("static", 1)) > NOTICED:
        other = f"job B becomes {list_slowdowns('static', 1)} times slower too"
    named = " and ".join(figures["ports_with_errors"])
    guilty = (
        f"SymbolErrorCounter names the cable: {named} count errors, no other port does"
        if figures["found"]
        else f"In so short a run SymbolErrorCounter names {named or 'no port'}"
    )
    return (
        f"{at} and with static routes, job A becomes {list_slowdowns('static', 0)} times slower, all of it, "
        f"since a ring waits for its slowest hop; {other}. With adaptive routing both jobs cross the cable: A becomes "
        f"{list_slowdowns('adaptive', 0)} times slower and B {list_slowdowns('adaptive', 1)}, as a loss then costs "
        f"the acknowledgement timeout of {figures['ack_timeout_ms']:,.3g} ms. {guilty}."
    )


def _series(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def draw(finding: Finding, path: Path | str) -> None:
    """Draw the slowdown of both jobs by error rate, for each kind of routing."""
    runs = [run for run in finding.figures["runs"] if run["bit_error_rate"]]
    title = f"One bad cable, {' - '.join(finding.figures['cable'])}, and two jobs"
    with titled_chart(path, title, finding.ran, panels=2) as panels:
        top = 1.5 * max(run["slowdown"][job] for run in runs for job in "AB")
        for axes, routing in zip(panels, ROUTING.values(), strict=True):
            mine = [run for run in runs if run["routing"] == routing]
            places = np.arange(len(mine))
            for job, colour, shift in (("A", "#d55e00", -0.2), ("B", "#0b6fb8", 0.2)):
                slow = [run["slowdown"][job] for run in mine]
                whose = {"A": "A, by the bad cable", "B": "B, by other cables"}[job] if routing == "static" else job
                bars = axes.bar(places + shift, slow, width=0.38, color=colour, label=f"job {whose}")
                axes.bar_label(bars, [f"{value:,.3g}" for value in slow], fontsize=8, padding=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.set_ylim(0.8, max(top, 2))
            axes.set_xticks(places, [f"{run['bit_error_rate']:.0e}" for run in mine])
            axes.grid(axis="x", visible=False)
            axes.axhline(1, color=FAINT, linewidth=0.9)
            axes.set_xlabel("bit error rate of the cable")
            axes.set_title(f"{routing} routing", loc="left", fontsize=10.5, fontweight="bold")
            axes.legend(loc="upper left")
        panels[0].set_ylabel("times slower than with a good cable")
