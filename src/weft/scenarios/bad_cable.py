"""Find a bad cable: a cable degrades under load, and the counters must reveal which one.

A lab runs with weft's subnet manager and continuous jobs. A random cable gets a random fault: bit errors in both
directions or one, a link that goes down and up, or fewer lanes. The monitor sees only the answers of MADs.
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
SOURCE = "operators of large fabrics"
TRUST = (
    "Errors come one by one (Poisson) at a constant rate; real ones come in bursts too, and with heat. Good cables "
    "have a bit error rate around 1e-17, at most 1e-15. The job's rates are max-min fair, less what is sent again."
)
COLUMNS = ("poll", "seconds", "suspects", "first suspect", "kind")
FAULT_KINDS = ("errors", "one-way", "flaps", "width")
_WORST_BER, _LEAST_BER = -8.0, -12.0  # decades
_FLAPS = (60.0, 240.0)  # per hour
_NARROW = ("1x", "2x")


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """A fault of a cable, as arguments of `Lab.degrade`."""

    kind: str
    port: str
    ends: frozenset[str]
    parameters: dict[str, Any]

    @property
    def description(self) -> str:
        return ", ".join(
            f"{name} {value:.1e}" if name == "bit_error_rate" else f"{name} {value}"
            for name, value in self.parameters.items()
        )


class MonitoredLab:
    """A lab with a subnet manager and a monitor, all in this process; time advances only on command."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self.lab = lab
        hosts = lab.fabric.hcas
        self._manager, watch = (stack.enter_context(_carrier(host.name, lab)) for host in (hosts[0], hosts[-1]))
        self.poller = Poller(watch, clock=lambda: float(lab.load_state()["seconds"]))
        self.sweep()

    def sweep(self) -> None:
        """Sweep once, as a subnet manager does on a change; with flaps it must, or the link stays idle."""
        SubnetManager(self._manager, Options(), log=Log(io.StringIO())).run(once=True)

    def inject(self, kind: str, rng: np.random.Generator) -> InjectedFault:
        """Degrade a random cable."""
        fabric = self.lab.fabric
        link = fabric.link(int(rng.integers(len(fabric.links))))
        port = str(link.a if rng.random() < 0.5 else link.b)
        ber = float(10 ** rng.uniform(_LEAST_BER, _WORST_BER))
        parameters: dict[str, dict[str, Any]] = {
            "errors": {"bit_error_rate": ber},
            "one-way": {"bit_error_rate": ber, "one_way": True},
            "flaps": {"flaps": float(rng.uniform(*_FLAPS))},
            "width": {"to": f"{rng.choice(_NARROW)}{link.speed.name}"},
        }
        self.lab.degrade(port, **parameters[kind])
        self.sweep()
        return InjectedFault(
            kind=kind, port=port, ends=frozenset((str(link.a), str(link.b))), parameters=parameters[kind]
        )

    def job_with(self, fault: InjectedFault) -> dict[str, Any]:
        """Return the state of the first job with the fault; with a flapping link, while it is down."""
        if fault.kind != "flaps":
            return dict(self.lab.load_state()["jobs"][0])
        self.lab.break_cable(fault.port)
        job = dict(self.lab.load_state()["jobs"][0])
        self.lab.fix(fault.port)
        self.lab.degrade(fault.port, **fault.parameters)
        self.sweep()
        return job

    def diagnoses(self, polls: int, every_s: float) -> Iterator[Diagnosis]:
        """Yield the diagnosis after each poll from the second on."""
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
def monitored_lab(spec: str) -> Iterator[MonitoredLab]:
    with ExitStack() as stack:
        yield MonitoredLab(stack.enter_context(Lab(load(spec))), stack)


def run(
    *,
    spec: Annotated[str, "A topology or a file.", "--fabric"] = "fat-tree:hosts=128,switch=QM9700",
    fault: Annotated[str, "Kind of fault: errors, one-way, flaps or width; default: random."] = "",
    polls: Annotated[int, "Largest number of polls."] = 3,
    every_s: Annotated[int, "Simulated seconds between polls.", "--every"] = 300,
    seed: Annotated[int, "Random seed for the cable and its fault."] = 1,
) -> Finding:
    """Degrade a cable, poll until there is a suspect, and check whether it is the right one."""
    if fault and fault not in FAULT_KINDS:
        raise ConfigError(f"--fault must be one of {', '.join(FAULT_KINDS)}, got {fault!r}")
    if polls < 2 or every_s < 1:
        raise ConfigError(f"--polls must be 2 or more and --every 1 s or more, got {polls} and {every_s}")
    arguments = {"spec": spec, "fault": fault, "polls": polls, "every_s": every_s, "seed": seed}
    rng = np.random.default_rng(seed)
    with monitored_lab(spec) as monitored:
        monitored.lab.seed_history(seed)
        before = monitored.lab.load("train=all-to-all@90%", speed=0, seed=seed)["jobs"][0]
        injected = monitored.inject(fault or str(rng.choice(FAULT_KINDS)), rng)
        after = monitored.job_with(injected)
        diagnoses = []
        for diagnosis in monitored.diagnoses(polls, every_s):
            diagnoses.append(diagnosis)
            if diagnosis.suspects:
                break
    figures = _figures(injected, diagnoses, before, after)
    return Finding(
        scenario="bad-cable",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{spec}: all hosts send to all at 90 % of line rate; one of {diagnoses[-1].links:,} cables is degraded",
        columns=COLUMNS,
        rows=tuple(_row(number, diagnosis) for number, diagnosis in enumerate(diagnoses, 2)),
        finding=_sentence(injected, diagnoses[-1], figures),
        trust=TRUST,
        options=arguments,
        figures=figures,
    )


def _row(poll: int, diagnosis: Diagnosis) -> tuple[str | int | float | None, ...]:
    name, kind = (diagnosis.suspects[0].name, diagnosis.suspects[0].kind) if diagnosis.suspects else (None, None)
    return poll, diagnosis.seconds, len(diagnosis.suspects), name, kind


def _figures(
    injected: InjectedFault, diagnoses: list[Diagnosis], before: dict[str, Any], after: dict[str, Any]
) -> dict[str, Any]:
    first = diagnoses[-1].suspects[0] if diagnoses[-1].suspects else None
    return {
        "injected": {"kind": injected.kind, "port": injected.port, "ends": sorted(injected.ends)} | injected.parameters,
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
        "polls": len(diagnoses) + 1,
        "job": {
            "gbit_s": before["gbit_s"],
            "gbit_s_with_it": after["gbit_s"],
            "slowest_pair": before["slowest"],
            "slowest_pair_with_it": after["slowest"],
        },
    }


def _sentence(injected: InjectedFault, diagnosis: Diagnosis, figures: dict[str, Any]) -> str:
    job = figures["job"]
    when = "While the link is down, the job" if injected.kind == "flaps" else "The job"
    cost = (
        f"{when} has {job['gbit_s_with_it']:,.0f} Gbit/s of {job['gbit_s']:,.0f}, its slowest pair "
        f"{job['slowest_pair_with_it']:.1%} of its demand instead of {job['slowest_pair']:.1%}"
    )
    if job["slowest_pair_with_it"] > FELT * job["slowest_pair"]:
        cost = f"The job loses less than {1 - FELT:.1%}, even its slowest pair"
    secret = f"{' - '.join(sorted(injected.ends))} ({injected.description})"
    if not diagnosis.suspects:
        return f"{cost}. The cable was {secret}; {figures['polls']} polls show no suspect."
    verdict = "which it was" if figures["found"] else f"but it was {secret}"
    first = diagnosis.suspects[0]
    return (
        f"{cost}. After {figures['polls']} polls the first suspect is {first.name}, {verdict}: {first.kind}. "
        f"{first.evidence[0]}"
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw the share of its demand that the slowest pair of the job gets, without and with the bad cable."""
    job, injected = finding.figures["job"], finding.figures["injected"]
    with titled_chart(path, f"One bad cable: {injected['port']}, {injected['kind']}", finding.ran) as (axes,):
        shares = [job["slowest_pair"], job["slowest_pair_with_it"]]
        bars = axes.bar(("all cables good", "one is bad"), shares, width=0.5, color=("#0b6fb8", "#d55e00"))
        axes.bar_label(bars, [f"{share:.1%}" for share in shares], padding=2)
        axes.grid(axis="x", visible=False)
        axes.axhline(1, color=FAINT, linewidth=0.9)
        axes.set_ylabel("share of its demand that the slowest pair gets")
