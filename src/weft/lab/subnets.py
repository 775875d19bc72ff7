"""A subnet by name: that of a lab, of ibsim, or of an adapter of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.lab import control
from weft.lab.registry import Entry
from weft.mad.carrier import Carrier
from weft.monitor.poll import Poller
from weft.monitor.ports import Cabling, cable, node_of


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """A subnet by its name; without a name, that of the only running lab."""

    lab: str = ""
    ibsim: str = ""  # IBSIM_SOCKNAME of a running ibsim, instead of a lab
    umad: str = ""  # an adapter of this machine, `mlx5_0`, or `any`, instead of a lab
    at: str = ""  # the host to send from; by default the first

    def __post_init__(self) -> None:
        if sum(map(bool, (self.lab, self.ibsim, self.umad))) > 1:
            raise ConfigError("use one of --lab, --ibsim and --umad")
        if self.umad and self.at:
            raise ConfigError(f"--at {self.at} has no effect with --umad, which sends from this machine: leave it out")

    def attach(self) -> Carrier:
        """Return a port of the subnet, whose SMPs carry the M_Key if the user's own subnet manager has made one."""
        from weft.mad.keyed import KeyedCarrier, KeyFile

        return KeyedCarrier(self._attach(), KeyFile(self.m_key_file))

    def _attach(self) -> Carrier:
        if self.umad:
            from weft.mad.umad import UmadCarrier

            return UmadCarrier("" if self.umad == "any" else self.umad)
        from weft.mad.ibsim_client import IbsimCarrier

        if self.ibsim:
            return IbsimCarrier(self.at, self.ibsim)
        from weft.lab import control, registry

        host = control.ask(registry.find(self.lab), "host", name=self.at)  # the lab suggests similar names
        return IbsimCarrier(self.at, host["sockname"])

    @property
    def m_key_file(self) -> Path:
        """Return the file with the M_Key: that of a lab ends with the lab, others outlive a reboot."""
        from weft import runtime
        from weft.lab import registry

        if self.umad:
            return runtime.state_folder() / "umad.m_key"
        if self.ibsim:
            return runtime.state_folder() / f"ibsim-{self.ibsim}.m_key"
        return registry.find(self.lab).m_key_file

    def jobs(self) -> list[dict[str, Any]]:
        """Return the jobs of a lab's load; those of another fabric are not known."""
        from weft.lab import control, registry

        if self.ibsim or self.umad:
            return []
        jobs: list[dict[str, Any]] = control.ask(registry.find(self.lab), "load_state")["jobs"]
        return jobs

    def new_poller(self, plan: str = "") -> Poller:
        """Return a poller of all counters. A lab has its own clock, and its cabling is its plan."""
        from weft.monitor.poll import Poller

        expected = _read_cabling(plan) if plan else None
        if self.ibsim or self.umad:
            return Poller(self.attach(), expected=expected)
        from weft.lab import registry
        from weft.lab.subnets import new_poller

        return new_poller(registry.find(self.lab), self.attach(), expected)


def _read_cabling(plan: str) -> Cabling:
    from weft.monitor.ports import cabling_of
    from weft.plan.audit.positions import read_plan

    return cabling_of(read_plan(plan).fabric)


def new_poller(lab: Entry, carrier: Carrier, plan: Cabling | None = None) -> Poller:
    """Return a poller at a port of a lab; `plan` replaces the cabling that the lab was started with."""
    return Poller(carrier, expected=plan or cabling_of_lab(lab), clock=lambda: float(control.ask(lab, "now_s")))


def cabling_of_lab(lab: Entry) -> Cabling:
    """Return the cables that a lab was started with, broken ones too."""
    kinds = dict(control.ask(lab, "nodes"))
    ends = (cable(a, b) for a, b, _ in control.ask(lab, "links"))
    return Cabling(
        cables=frozenset(pair for pair in ends if all(kinds.get(node_of(end)) in _CABLED for end in pair)),
        switches=frozenset(name for name, kind in kinds.items() if kind == "switch"),
    )


_CABLED = ("switch", "hca", "router")
