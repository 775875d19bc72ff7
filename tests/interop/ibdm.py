"""ibdmchk's proof as a script for ibdmsh, the shell of the same package.

It is the same without a histogram past whose end ibdmchk writes where a switch has fifty equally near ports to a host,
as the NDR fabric has, and without the min-hop tables behind that, which are half of the time on Selene. One lane only.
"""

from __future__ import annotations

from pathlib import Path


def proof(subnet: Path, routes: Path, *, switches: bool = False) -> str:
    """That all paths arrive, of switches too if asked for, and that there is no credit loop."""
    lines = [
        "set fabric [new_IBFabric]",
        f"IBFabric_parseSubnetLinks $fabric {subnet}",
        f"IBFabric_parseFdbFile $fabric {routes}",
        "ibdmVerifyCAtoCARoutes $fabric",
        *(["ibdmVerifyAllPaths $fabric", "ibdmSetCreditLoopAnalysisMode 1 0"] if switches else []),
        "ibdmAnalyzeLoops $fabric\n",
    ]
    return "\n".join(lines)
