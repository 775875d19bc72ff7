"""A poller of a lab's counters: by the lab's clock, and with the lab's cabling as the plan."""

from __future__ import annotations

from weft.lab import control
from weft.lab.registry import Entry
from weft.mad.carrier import Carrier
from weft.monitor.cabling import Cabling, cable, node_of
from weft.monitor.poll import Poller


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
