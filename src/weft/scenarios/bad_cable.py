"""The needle in the haystack: a cable goes bad in secret, under load, and the counters are asked which one.

A lab runs with weft's subnet manager and jobs that go on and on. Chance picks a cable and what ails it: bit errors both
ways or one way, a link that goes down and comes up, or fewer lanes. The monitor sees what MADs tell, nothing else.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from weft.draw.chart import FAINT, titled_chart
from weft.errors import ConfigError
from weft.fabric.spec import load
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.monitor.change import Change, between
from weft.monitor.diagnose import diagnose
from weft.monitor.evidence import FELT
from weft.monitor.poll import Poller
from weft.monitor.suspects import Diagnosis
from weft.scenarios.finding import Finding
from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.run import SubnetManager

CLAIM = "A single bad cable slows every job on the fabric, and finding it without monitoring is a search for a needle."
SOURCE = "what operators of large fabrics say"
TRUST = (
    "Errors come one by one (Poisson) at a constant rate; real ones come in bursts too, and with heat. Good cables "
    "have a bit error rate around 1e-17, at most 1e-15. The job's rates are max-min fair, less what is sent again."
)
COLUMNS = ("poll", "seconds", "suspects", "first suspect", "kind")
ILLS = ("errors", "one-way", "flaps", "width")
_WORST_BER, _LEAST_BER = -8.0, -12.0  # decades
_FLAPS = (60.0, 240.0)  # an hour
_NARROW = ("1x", "2x")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ill:
    """What was done to a cable, in the words of `Lab.degrade`."""

    kind: str
    port: str
    ends: frozenset[str]
    words: dict[str, Any]

    @property
    def told(self) -> str:
        return ", ".join(
            f"{name} {value:.1e}" if name == "bit_error_rate" else f"{name} {value}"
            for name, value in self.words.items()
        )


class Ward:
    """A lab with a subnet manager and a monitor, all in this process; time passes when somebody says so."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self.lab = lab
        hosts = lab.fabric.hcas
        self._manager, watch = (stack.enter_context(_carrier(host.name, lab)) for host in (hosts[0], hosts[-1]))
        self.poller = Poller(watch, clock=lambda: float(lab.load_state()["seconds"]))
        self.sweep()

    def sweep(self) -> None:
        """As a subnet manager does it that hears of a change; with flaps it has to, or the link stays idle."""
        SubnetManager(self._manager, Options(), log=Log(io.StringIO())).run(once=True)

    def make_ill(self, kind: str, rng: np.random.Generator) -> Ill:
        """A cable that chance picks."""
        fabric = self.lab.fabric
        link = fabric.link(int(rng.integers(len(fabric.links))))
        port = str(link.a if rng.random() < 0.5 else link.b)
        ber = float(10 ** rng.uniform(_LEAST_BER, _WORST_BER))
        words: dict[str, dict[str, Any]] = {
            "errors": {"bit_error_rate": ber},
            "one-way": {"bit_error_rate": ber, "one_way": True},
            "flaps": {"flaps": float(rng.uniform(*_FLAPS))},
            "width": {"to": f"{rng.choice(_NARROW)}{link.speed.name}"},
        }
        self.lab.degrade(port, **words[kind])
        self.sweep()
        return Ill(kind=kind, port=port, ends=frozenset((str(link.a), str(link.b))), words=words[kind])

    def job_with(self, ill: Ill) -> dict[str, Any]:
        """The first job as it is; with a link that flaps, while that is down."""
        if ill.kind != "flaps":
            return dict(self.lab.load_state()["jobs"][0])
        self.lab.break_cable(ill.port)
        job = dict(self.lab.load_state()["jobs"][0])
        self.lab.fix(ill.port)
        self.lab.degrade(ill.port, **ill.words)
        self.sweep()
        return job

    def diagnoses(self, polls: int, every_s: float) -> Iterator[Diagnosis]:
        """After each poll from the second on."""
        changes: list[Change] = []
        last = self.poller.poll()
        for _ in range(polls - 1):
            self.lab.advance(every_s)
            self.sweep()
            last, before = self.poller.poll(), last
            changes.append(between(before, last))
            yield diagnose(changes)


@contextmanager
def _carrier(host: str, lab: Lab) -> Iterator[IbsimCarrier]:
    carrier = IbsimCarrier(host, lab.sockname)
    try:
        yield carrier
    finally:
        carrier.close()


@contextmanager
def ward(spec: str) -> Iterator[Ward]:
    with ExitStack() as stack:
        yield Ward(stack.enter_context(Lab(load(spec))), stack)


def run(
    *,
    spec: Annotated[str, "A topology or a file.", "--fabric"] = "fat-tree:hosts=128,switch=QM9700",
    ill: Annotated[str, "errors, one-way, flaps or width; else chance picks."] = "",
    polls: Annotated[int, "The most that are made."] = 3,
    every_s: Annotated[int, "Simulated seconds from poll to poll.", "--every"] = 300,
    seed: Annotated[int, "Of the cable and what ails it."] = 1,
) -> Finding:
    """Break, poll until there is a suspect, and look whether it is the one."""
    if ill and ill not in ILLS:
        raise ConfigError(f"a cable cannot have {ill!r}: give {', '.join(ILLS)}, or nothing")
    if polls < 2 or every_s < 1:
        raise ConfigError(f"{polls} polls every {every_s} s show no change: give 2 polls or more, 1 s or more")
    given = {"spec": spec, "ill": ill, "polls": polls, "every_s": every_s, "seed": seed}
    rng = np.random.default_rng(seed)
    with ward(spec) as patient:
        patient.lab.seed_history(seed)
        before = patient.lab.load("train=all-to-all@90%", speed=0, seed=seed)["jobs"][0]
        injected = patient.make_ill(ill or str(rng.choice(ILLS)), rng)
        after = patient.job_with(injected)
        found = []
        for diagnosis in patient.diagnoses(polls, every_s):
            found.append(diagnosis)
            if diagnosis.suspects:
                break
    figures = _figures(injected, found, before, after)
    return Finding(
        scenario="bad-cable",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{spec}: all hosts send to all at 90 % of line rate; one of {found[-1].links:,} cables is made ill",
        columns=COLUMNS,
        rows=tuple(_row(number, one) for number, one in enumerate(found, 2)),
        finding=_sentence(injected, found[-1], figures),
        trust=TRUST,
        options=given,
        figures=figures,
    )


def _row(poll: int, found: Diagnosis) -> tuple[str | int | float | None, ...]:
    name, kind = (found.suspects[0].name, found.suspects[0].kind) if found.suspects else (None, None)
    return poll, found.seconds, len(found.suspects), name, kind


def _figures(injected: Ill, found: list[Diagnosis], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    first = found[-1].suspects[0] if found[-1].suspects else None
    return {
        "injected": {"kind": injected.kind, "port": injected.port, "ends": sorted(injected.ends)} | injected.words,
        "suspect": None
        if first is None
        else {
            "ends": list(first.ends),
            "kind": first.kind,
            "confidence": first.confidence,
            "evidence": list(first.evidence),
            "action": first.action,
        },
        "found": first is not None and frozenset(first.ends) == injected.ends,
        "polls": len(found) + 1,
        "job": {
            "gbit_s": before["gbit_s"],
            "gbit_s_with_it": after["gbit_s"],
            "slowest_pair": before["slowest"],
            "slowest_pair_with_it": after["slowest"],
        },
    }


def _sentence(injected: Ill, found: Diagnosis, figures: dict[str, Any]) -> str:
    job = figures["job"]
    when = "While the link is down, the job" if injected.kind == "flaps" else "The job"
    cost = (
        f"{when} has {job['gbit_s_with_it']:,.0f} Gbit/s of {job['gbit_s']:,.0f}, its slowest pair "
        f"{job['slowest_pair_with_it']:.1%} of what it wants instead of {job['slowest_pair']:.1%}"
    )
    if job["slowest_pair_with_it"] > FELT * job["slowest_pair"]:
        cost = f"The job loses less than {1 - FELT:.1%}, even its slowest pair"
    secret = f"{' - '.join(sorted(injected.ends))} ({injected.told})"
    if not found.suspects:
        return f"{cost}. The cable was {secret}; {figures['polls']} polls show no suspect."
    verdict = "which it was" if figures["found"] else f"but it was {secret}"
    first = found.suspects[0]
    return (
        f"{cost}. After {figures['polls']} polls the first suspect is {first.name}, {verdict}: {first.kind}. "
        f"{first.evidence[0]}"
    )


def draw(finding: Finding, path: Path | str) -> None:
    """What the slowest pair of the job gets, without and with the bad cable."""
    job, injected = finding.figures["job"], finding.figures["injected"]
    with titled_chart(path, f"One bad cable: {injected['port']}, {injected['kind']}", finding.ran) as (axes,):
        shares = [job["slowest_pair"], job["slowest_pair_with_it"]]
        bars = axes.bar(("all cables good", "one is bad"), shares, width=0.5, color=("#0b6fb8", "#d55e00"))
        axes.bar_label(bars, [f"{one:.1%}" for one in shares], padding=2)
        axes.grid(axis="x", visible=False)
        axes.axhline(1, color=FAINT, linewidth=0.9)
        axes.set_ylabel("of what the slowest pair wants")
