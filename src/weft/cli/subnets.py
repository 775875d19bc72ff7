"""Which subnet a command means: of a lab, of ibsim, of this machine's adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.mad.carrier import Carrier


def find_carrier(at: str, lab: str, ibsim: str, umad: str | None) -> Carrier:
    """A port of the subnet that was named; of the only lab that runs if none was."""
    if sum(1 for given in (lab, ibsim, umad) if given) > 1:
        raise ConfigError("--lab, --ibsim and --umad each name a subnet: give one of them")
    if umad:
        from weft.mad.umad import UmadCarrier

        if at:
            raise ConfigError(f"--umad asks from this machine, not from {at}: leave out --at")
        return UmadCarrier("" if umad == "any" else umad)
    from weft.mad.ibsim_client import IbsimCarrier

    if ibsim:
        return IbsimCarrier(at, ibsim)
    from weft.lab import control, registry

    return IbsimCarrier(at, control.ask(registry.find(lab), "state")["sockname"])
