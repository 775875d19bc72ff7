"""`weft diag`: run weft's versions of the tools of infiniband-diags."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from weft.cli.subnets import THE_LAB, Subnet


def diag(
    tool: str = "",
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)],
    subnet: Subnet = THE_LAB,
) -> None:
    """Run a tool of infiniband-diags: ibstat, smpquery, ...

    Without TOOL, list the tools. For example: weft diag smpquery -D portinfo 0,1 3

    Parameters
    ----------
    tool
        ibstat, ibstatus, ibnetdiscover, ibtracert, perfquery, sminfo or smpquery.
    arguments
        Arguments of the tool.
    """
    from weft.diags import TOOLS
    from weft.diags import tool as find

    if not tool:
        print("\n".join(f"{name:<14} {description}" for name, description in TOOLS.items()))
        return
    run = find(tool)
    carrier = subnet.attach()
    try:
        print(run(carrier, arguments), end="")
    finally:
        carrier.close()
