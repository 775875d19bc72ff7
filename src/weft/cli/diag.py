"""`weft diag`: the tools of infiniband-diags where they are not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from weft.mad.carrier import Carrier


def diag(
    tool: str = "",
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)],
    at: str = "",
    lab: str = "",
    ibsim: str = "",
    umad: str | None = None,
) -> None:
    """Ask a subnet as infiniband-diags does: weft diag smpquery -D portinfo 0,1 3. With no TOOL, list them.

    Parameters
    ----------
    tool
        ibstat, ibstatus, ibnetdiscover, ibtracert, perfquery, sminfo or smpquery.
    arguments
        Those of the tool.
    at
        The host to ask from: a name of the lab, of ibsim's net its id. Else the first.
    lab
        A running lab, if more than one runs.
    ibsim
        The name of a running ibsim's sockets (IBSIM_SOCKNAME), instead of a lab.
    umad
        An adapter of this machine, mlx5_0, or `any`, instead of a lab.
    """
    from weft.diags import TOOLS
    from weft.diags import tool as find

    if not tool:
        print("\n".join(f"{name:<14} {what}" for name, what in TOOLS.items()))
        return
    run = find(tool)
    carrier = _carrier(at, lab, ibsim, umad)
    try:
        print(run(carrier, arguments), end="")
    finally:
        carrier.close()


def _carrier(at: str, lab: str, ibsim: str, umad: str | None) -> Carrier:
    from weft.errors import ConfigError

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
