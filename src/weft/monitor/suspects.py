"""The result of a diagnosis: suspects with evidence, and notes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal[
    "link down",
    "switch down",
    "host down",
    "duplicate GUID",
    "bad cable",
    "bad port",
    "bad switch",
    "bad transceiver",
    "overloaded receiver",
    "misrouted",
    "degraded link",
    "flapping",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCost:
    """The simulated rates of a job with and without the suspect, by `weft.sim.steady`."""

    name: str
    gbit_s: float
    without_gbit_s: float
    slowest: float  # share of its demand that the slowest pair gets: collectives wait for that pair
    without_slowest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """The jobs and tenants (by P_Key) whose routes cross the suspect."""

    jobs: tuple[JobCost, ...] = ()
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A suspect. `ends` are the ports of a cable, the worse one first, or the name of a switch or server.

    A port that does not answer is described by the node GUID and port number that the other end knows.
    """

    ends: tuple[str, ...]
    kind: Kind
    confidence: float  # that it is not random, over all tests
    evidence: tuple[str, ...]
    action: str
    symbol_ber: tuple[float, float] = (0.0, 0.0)  # received at each end
    could_run: tuple[int, int] | None = None  # supported lanes and speed (a bit of LinkSpeed) of a degraded link
    takes: float | None = None  # share of its line rate that an overloaded receiver accepts
    impact: Impact | None = None
    strength: float = field(default=0.0, compare=False)  # -log10 of the probability: the order of suspects

    @property
    def name(self) -> str:
        return " - ".join(self.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A diagnosis: `suspects`, the most important first, and `notes` on other observations."""

    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...]
    seconds: float
    stamp_s: float
    ports: int  # with known counters
    links: int
    tests: int
    symbol_ber: float  # background of the fabric, without outliers

    @property
    def is_well(self) -> bool:
        return not self.suspects

    def report(self) -> dict[str, Any]:
        """Return the diagnosis as `--json` prints it."""
        inner = ("strength", "could_run", "takes")
        suspects = [
            {key: value for key, value in asdict(suspect).items() if key not in inner} for suspect in self.suspects
        ]
        return asdict(self) | {"suspects": suspects}
