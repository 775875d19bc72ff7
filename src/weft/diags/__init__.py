"""The tools of infiniband-diags, over any carrier: for machines that do not have them.

Each is a function of a carrier and of the tool's arguments, and returns the tool's output. Names, arguments and text
are those of infiniband-diags 44, which a test runs beside them on the same subnet.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weft.errors import UnknownName

if TYPE_CHECKING:
    from weft.mad.carrier import Carrier

__all__ = ["TOOLS", "Tool", "tool"]

Tool = Callable[["Carrier", Sequence[str]], str]
TOOLS = {
    "ibstat": "The adapter of this host: state, rate, LID.",
    "ibstatus": "The same, as sysfs shows it.",
    "ibnetdiscover": "All switches, adapters and cables.",
    "ibtracert": "The path from one LID to another.",
    "perfquery": "Counters of a port; -R clears them.",
    "sminfo": "The subnet manager: its LID, GUID and state.",
    "smpquery": "An attribute of a node: nodeinfo, nodedesc, portinfo, switchinfo, pkeys, sl2vl, vlarb, guidinfo.",
}
_SHARED_MODULES = {"ibstatus": "ibstat", "ibtracert": "ibnetdiscover", "perfquery": "smpquery", "sminfo": "ibstat"}


def tool(name: str) -> Tool:
    """Return the tool with this name; it is imported only now."""
    if name not in TOOLS:
        raise UnknownName("tool", name, TOOLS)
    module = {"ibstatus": "ibstat", "ibtracert": "ibnetdiscover", "perfquery": "smpquery", "sminfo": "ibstat"}.get(
        name, name
    )
    function: Tool = getattr(importlib.import_module(f"weft.diags.{module}"), name)
    return function
