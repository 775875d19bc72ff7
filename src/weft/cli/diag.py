"""`weft diag`: the tools of infiniband-diags where they are not installed."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from weft.cli.arguments import LabName


def diag(
    tool: str = "",
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)],
    at: str = "",
    lab: LabName = "",
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
    ibsim
        The name of a running ibsim's sockets (IBSIM_SOCKNAME), instead of a lab.
    umad
        An adapter of this machine, mlx5_0, or `any`, instead of a lab.
    """
    from weft.cli.subnets import find_carrier
    from weft.diags import TOOLS
    from weft.diags import tool as find

    if not tool:
        print("\n".join(f"{name:<14} {what}" for name, what in TOOLS.items()))
        return
    run = find(tool)
    carrier = find_carrier(at, lab, ibsim, umad)
    try:
        print(run(carrier, arguments), end="")
    finally:
        carrier.close()
