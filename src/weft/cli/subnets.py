"""The options that select a subnet: a lab, ibsim or an adapter of this machine. A string below a field is its help."""

from __future__ import annotations

from dataclasses import dataclass

from cyclopts import Parameter

from weft.cli.arguments import LabName
from weft.lab import subnets


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Subnet(subnets.Subnet):
    """The subnet of a command; without options, that of the only running lab."""

    lab: LabName = ""
    ibsim: str = ""
    """The socket name of a running ibsim (IBSIM_SOCKNAME), instead of a lab."""
    umad: str = ""
    """An adapter of this machine, mlx5_0, or `any`, instead of a lab."""
    at: str = ""
    """The host to run on: a name of the lab, or the id in ibsim's net. [the first]"""


THE_LAB = Subnet()
