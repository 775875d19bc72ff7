"""What a diagnosis says: suspects with evidence in words, and what else was seen."""

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
    """What a job has with the suspect, and would have without it: simulated, as far as `weft.sim.steady` goes."""

    name: str
    gbit_s: float
    without_gbit_s: float
    slowest: float  # part of what it wants that its slowest pair gets: who waits for all, waits for that
    without_slowest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """Who sends by the suspect, by the forwarding tables; tenants by their P_Keys."""

    jobs: tuple[JobCost, ...] = ()
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """`ends` are the ports of a cable, the worse one first; or the name of a switch or a server.

    A port that does not answer is described by what the other end knew of it.
    """

    ends: tuple[str, ...]
    kind: Kind
    confidence: float  # that it is no chance, over all that was looked at
    evidence: tuple[str, ...]
    action: str
    symbol_ber: tuple[float, float] = (0.0, 0.0)  # of what each end receives
    could_run: tuple[int, int] | None = None  # lanes and speed, a bit of LinkSpeed, if it runs at less
    takes: float | None = None  # part of its line rate, of a receiver that takes less than comes
    impact: Impact | None = None
    strength: float = field(default=0.0, compare=False)  # decimal places of how unlikely it is: the order of suspects

    @property
    def name(self) -> str:
        return " - ".join(self.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`suspects`, the first is the one to look at; `notes`: what explains other counts, or may be no fault."""

    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...]
    seconds: float
    stamp_s: float
    ports: int  # that answered for their counters
    links: int
    tests: int
    symbol_ber: float  # of the fabric without what stands out

    @property
    def is_well(self) -> bool:
        return not self.suspects

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
        inner = ("strength", "could_run", "takes")
        suspects = [{key: value for key, value in asdict(one).items() if key not in inner} for one in self.suspects]
        return asdict(self) | {"suspects": suspects}
