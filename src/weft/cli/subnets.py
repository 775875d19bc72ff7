"""Which subnet a command means: of a lab, of ibsim, of this machine's adapters; a string below a field is its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from weft.cli.arguments import LabName
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.mad.carrier import Carrier
    from weft.monitor.cabling import Cabling
    from weft.monitor.poll import Poller


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Subnet:
    """The one that was named; that of the only lab that runs if none was."""

    lab: LabName = ""
    ibsim: str = ""
    """The name of a running ibsim's sockets (IBSIM_SOCKNAME), instead of a lab."""
    umad: str = ""
    """An adapter of this machine, mlx5_0, or `any`, instead of a lab."""
    at: str = ""
    """The host to run on: a name of the lab, or the id in ibsim's net. [the first]"""

    def __post_init__(self) -> None:
        if sum(1 for given in (self.lab, self.ibsim, self.umad) if given) > 1:
            raise ConfigError("--lab, --ibsim and --umad each name a subnet: give one of them")
        if self.umad and self.at:
            raise ConfigError(f"--umad asks from this machine, not from {self.at}: leave out --at")

    def attach(self) -> Carrier:
        """A port of it, whose SMPs carry the subnet's M_Key if the user's own subnet manager has made one."""
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

        there = control.ask(registry.find(self.lab), "host", name=self.at)  # near names are the lab's to tell
        return IbsimCarrier(self.at, there["sockname"])

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

    def new_poller(self, plan: str = "") -> Poller:
        """Return a poller of all counters. The clock of a lab may be faster than ours, and its cabling is its plan."""
        from weft.monitor.poll import Poller

        expected = _read_cabling(plan) if plan else None
        if self.ibsim or self.umad:
            return Poller(self.attach(), expected=expected)
        from weft.lab import registry
        from weft.lab.monitoring import new_poller

        return new_poller(registry.find(self.lab), self.attach(), expected)


def _read_cabling(plan: str) -> Cabling:
    from weft.monitor.cabling import cabling_of
    from weft.plan.audit.positions import read_plan

    return cabling_of(read_plan(plan).fabric)


THE_LAB = Subnet()
